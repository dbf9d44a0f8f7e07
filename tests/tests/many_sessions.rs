//! A thousand idle sessions, ten thousand connections that come and go: everything they took comes back.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use lunette_tests::{Initiator, Server, wait_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const SESSIONS: usize = 1000;
const ROUNDS: usize = 10_000;

/// What the allocator may keep for itself: less than 5 KiB for each session, and far less than half a KiB per round.
const MARGIN_KIB: u64 = 4096;

/// For the server to notice that its peers are gone.
const LIMIT: Duration = Duration::from_secs(30);

/// This process holds the initiators' ends.
fn allow_descriptors(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(count, |maximum| maximum.min(count));
    let current = limit.current.unwrap_or(u64::MAX);
    if current < wanted {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }).unwrap();
    }
}

fn descriptors(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.process().id())).unwrap().count()
}

/// One round: every kind of end that a connection can have.
fn come_and_go(server: &Server, round: usize) {
    match round % 4 {
        0 => drop(TcpStream::connect(server.address()).unwrap()),
        1 => {
            let mut initiator = Initiator::connect(server.address()).unwrap();
            initiator.send_bytes(&[0x43, 0x87, 0, 0]).unwrap();
        }
        2 => {
            // An end without a farewell (RST).
            let stream = TcpStream::connect(server.address()).unwrap();
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        }
        _ => drop(Initiator::log_in(server, &[]).unwrap()),
    }
}

fn settled(server: &Server, descriptors_before: usize, memory_before_kib: u64) {
    let back = || (descriptors(server) <= descriptors_before).then_some(());
    wait_until(LIMIT, back).unwrap_or_else(|| {
        panic!("{} descriptors are open, {descriptors_before} were", descriptors(server));
    });
    let bound = memory_before_kib + MARGIN_KIB;
    wait_until(LIMIT, || (server.memory_kib() <= bound).then_some(())).unwrap_or_else(|| {
        panic!("{} KiB are in use, {memory_before_kib} KiB were", server.memory_kib());
    });
}

#[test]
fn memory_and_descriptors_come_back() {
    allow_descriptors(4 * SESSIONS as u64);
    let server = Server::start(&["mem:64M"]);
    // What is allocated once and kept (tables that grew, threads) is there before the count begins.
    for round in 0..100 {
        come_and_go(&server, round);
    }
    let mut witness = Initiator::attach(&server, &[]).unwrap();
    witness.write(0, vec![0x77; 65_536]).unwrap();
    let (descriptors_before, memory_before) = (descriptors(&server), server.memory_kib());

    let sessions: Vec<Initiator> = (0..SESSIONS).map(|_| Initiator::attach(&server, &[]).unwrap()).collect();
    let per_session = (server.memory_kib() - memory_before) as f64 / SESSIONS as f64;
    println!("{per_session:.1} KiB for each idle session");
    assert_eq!(witness.read(0, 128).unwrap(), [0x77; 65_536], "sessions are served beside many idle ones");
    drop(sessions);
    settled(&server, descriptors_before, memory_before);

    for round in 0..ROUNDS {
        come_and_go(&server, round);
    }
    settled(&server, descriptors_before, memory_before);
    assert_eq!(witness.read(0, 128).unwrap(), [0x77; 65_536]);
    println!("{memory_before} KiB before, {} KiB after", server.memory_kib());
    drop(witness);
    server.stop();
}
