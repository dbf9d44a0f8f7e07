//! A server that is killed during a load: what was written before a successful SYNCHRONIZE CACHE is there.

use lunette_tests::{Durable, Server};

/// Synchronizations that succeed before the server is killed.
const ROUNDS_BEFORE_KILL: u32 = 20;

#[test]
fn synchronized_blocks_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..3 {
        let disk = folder.path().join(format!("disk{n}"));
        let arguments = [disk.to_str().unwrap(), "--create", "16M"];
        let server = Server::start(&arguments);
        let mut known = Durable::new();
        known.load(&server, ROUNDS_BEFORE_KILL, || server.kill_now());
        server.kill();
        let server = Server::start(&arguments);
        known.check(&server);
        server.stop();
    }
}

#[test]
fn a_server_that_was_stopped_normally_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let arguments = [disk.to_str().unwrap(), "--create", "16M"];
    let server = Server::start(&arguments);
    let mut known = Durable::new();
    known.write_one(&server, 3);
    server.stop();

    let server = Server::start(&arguments);
    known.check(&server);
    server.stop();
}
