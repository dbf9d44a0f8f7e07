//! A packed volume whose client or server is killed during a load of writes: what was flushed is there, and all of it
//! can be read.

use std::env;

use lunette_tests::keys::{CHEAP, Place, json, keys};
use lunette_tests::{Durable, Server, lunette, run_at_most};

/// The variable that says how many times each side is killed, such as 50, instead of a few times.
const KILLS: &str = "LUNETTE_TEST_KILLS";

fn kills() -> u32 {
    env::var(KILLS).ok().map_or(3, |text| text.parse().expect("LUNETTE_TEST_KILLS is a number"))
}

/// A packed volume on a target's disk. Its client is a target, too, with the volume's plain text as its disk.
struct Volume {
    place: Place,
}

impl Volume {
    fn new() -> Self {
        let place = Place::new();
        let (file, passphrase) = (place.text("keys"), place.file("passphrase", "correct horse"));
        keys(&[&["create", &file, "--passphrase-file", &passphrase], &CHEAP[..]].concat()).succeeded();
        let volume = Self { place };
        let server = volume.server();
        // A short journal is full often.
        volume.quanta("format", &server, &["--quantum", "512", "--journal", "1M"]);
        server.stop();
        volume
    }

    fn server(&self) -> Server {
        Server::start(&[&self.place.text("disk"), "--create", "16M"])
    }

    fn keyed(&self, server: &Server) -> String {
        let (file, passphrase) = (self.place.text("keys"), self.place.text("passphrase"));
        format!("{}?keys=file:{file}&passphrase_file={passphrase}", server.url(0))
    }

    fn client(&self, server: &Server) -> Server {
        Server::start(&[&self.keyed(server)])
    }

    fn quanta(&self, command: &str, server: &Server, more: &[&str]) -> serde_json::Value {
        let mut ran = lunette();
        ran.args(["quanta", command, &self.keyed(server), "--json"]).args(more);
        json(&run_at_most(std::time::Duration::from_mins(2), &mut ran))
    }
}

/// Kills one side again and again, each time after another number of flushes, and looks at the disk.
fn kill_and_look(kill: fn(&Server, &Server)) {
    let volume = Volume::new();
    let mut known = Durable::new();
    for round in 0..kills() {
        let server = volume.server();
        let client = volume.client(&server);
        known.load(&client, 1 + round * 5 % 17, || kill(&server, &client));
        client.kill();
        server.kill();
        let server = volume.server();
        let client = volume.client(&server);
        known.check(&client);
        client.stop();
        server.stop();
    }
    let server = volume.server();
    assert_eq!(volume.quanta("verify", &server, &[])["whole"], true);
    server.stop();
}

#[test]
fn flushed_quanta_survive_a_kill_of_the_client() {
    kill_and_look(|_, client| client.kill_now());
}

#[test]
fn flushed_quanta_survive_a_kill_of_the_server() {
    // The client waits for its server to come back, which it does not, and then is killed, too.
    kill_and_look(|server, client| {
        server.kill_now();
        client.kill_now();
    });
}
