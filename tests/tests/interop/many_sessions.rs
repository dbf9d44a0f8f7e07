//! A thousand idle sessions, ten thousand connections that come and go: all their resources are released.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use lunette_testkit::ScriptedInitiator;
use lunette_tests::{Server, attach, log_in, login_request, wait_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const SESSIONS: usize = 1000;
const ROUNDS: usize = 10_000;

/// The memory that the first thousand sessions may leave behind: what the allocator keeps, and tables that have grown.
/// A session has some 8 KiB, of which one holds its counters for its logical unit.
const KEPT_KIB: u64 = 9216;

/// The memory that everything later may add: 10,000 deadlines of ended logins wait for their time. A leak of a KiB for
/// each session or of 200 bytes for each connection would be more.
const MARGIN_KIB: u64 = 1024;

/// The longest time for the server to notice that its peers are gone.
const LIMIT: Duration = Duration::from_secs(30);

/// Raises this process's limit of open files, because it holds the initiators' ends.
fn allow_descriptors(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(count, |maximum| maximum.min(count));
    let current = limit.current.unwrap_or(u64::MAX);
    if current < wanted {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }).unwrap();
    }
}

fn descriptors(server: &Server) -> usize {
    server.process().descriptors()
}

/// Runs one round, with every kind of end that a connection can have.
fn come_and_go(server: &Server, round: usize) {
    match round % 4 {
        0 => drop(TcpStream::connect(server.address()).unwrap()),
        1 => {
            let mut initiator = ScriptedInitiator::connect(server.address());
            initiator.send_bytes(&[0x43, 0x87, 0, 0]);
        }
        2 => {
            // The end of this connection is a reset (RST).
            let stream = TcpStream::connect(server.address()).unwrap();
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        }
        _ => drop(log_in(server, &[]).unwrap()),
    }
}

fn settled(server: &Server, descriptors_before: usize, memory_bound_kib: u64) {
    let back = || (descriptors(server) <= descriptors_before).then_some(());
    wait_until(LIMIT, back).unwrap_or_else(|| {
        panic!("{} descriptors are open, {descriptors_before} were", descriptors(server));
    });
    wait_until(LIMIT, || (server.memory_kib() <= memory_bound_kib).then_some(())).unwrap_or_else(|| {
        panic!("{} KiB are in use, at most {memory_bound_kib} KiB are allowed", server.memory_kib());
    });
}

/// Opens a thousand sessions, holds them for a moment beside one that works, and closes them.
fn idle_sessions(server: &Server, witness: &mut ScriptedInitiator) {
    let before_kib = server.memory_kib();
    let sessions: Vec<ScriptedInitiator> = (0..SESSIONS).map(|_| attach(server, &[])).collect();
    println!("{} KiB more for {SESSIONS} idle sessions", server.memory_kib().saturating_sub(before_kib));
    assert_eq!(witness.read(0, 0, 128).good(), vec![0x77; 65_536], "sessions are served beside many idle ones");
    drop(sessions);
}

#[test]
fn memory_and_descriptors_come_back() {
    allow_descriptors(4 * SESSIONS as u64);
    let server = Server::start(&["mem:64M"]);
    let mut witness = attach(&server, &[]);
    witness.write(0, 0, vec![0x77; 65_536]).good();
    let (descriptors_before, memory_before) = (descriptors(&server), server.memory_kib());

    idle_sessions(&server, &mut witness);
    settled(&server, descriptors_before, memory_before + KEPT_KIB);
    let memory_kept = server.memory_kib();

    idle_sessions(&server, &mut witness);
    for round in 0..ROUNDS {
        come_and_go(&server, round);
    }
    settled(&server, descriptors_before, memory_kept + MARGIN_KIB);
    assert_eq!(witness.read(0, 0, 128).good(), vec![0x77; 65_536]);
    println!("{memory_before} KiB before, {memory_kept} KiB after sessions, {} KiB after all", server.memory_kib());
    drop(witness);
    server.stop();
}

/// The number of connections without a target that a server keeps.
const TARGETLESS: usize = 1024;

#[test]
fn connections_without_a_target_make_way_for_others() {
    const MORE: usize = 50;
    allow_descriptors(2 * TARGETLESS as u64);
    let server = Server::start(&["mem:16M"]);
    let mut flood: Vec<ScriptedInitiator> = Vec::new();
    for n in 0..TARGETLESS + MORE {
        let mut initiator = ScriptedInitiator::connect(server.address());
        if n % 2 == 0 {
            initiator.send_bytes(&[0x43, 0x87, 0, 0]);
        } else {
            login_request(&mut initiator, &[("SessionType", "Discovery")]).unwrap();
        }
        flood.push(initiator);
    }
    let mut honest = attach(&server, &[]);
    honest.write(0, 0, vec![0x11; 512]).good();
    let kept = flood.split_off(MORE);
    for oldest in flood {
        oldest.wait_for_end_within(LIMIT);
    }
    let ended = |initiator: &&ScriptedInitiator| {
        initiator.stream().set_nonblocking(true).unwrap();
        !matches!(initiator.stream().peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    // The honest connection took the place of one more.
    assert!(kept.iter().filter(ended).count() <= 1, "those that came last are still there");
    drop((kept, honest));
    server.stop();
}
