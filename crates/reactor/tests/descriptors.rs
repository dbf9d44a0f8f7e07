//! A reactor that runs out of descriptors. The limit holds for a whole process, so the reactor has one of its own: this
//! program again, started with a low limit.

#![expect(clippy::unwrap_used, reason = "a test ends with the first surprise")]

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use lunette_reactor::{Closed, ConnectionId, Context, Gather, Handler, IoBackend, ListenerId, Reactor};

const DESCRIPTORS: usize = 24;
const CONNECTIONS: usize = 60;

/// Greets with one byte, and stops when all have come and gone.
#[derive(Default)]
struct Greeter {
    fresh: HashSet<ConnectionId>,
    gone: usize,
}

impl Handler for Greeter {
    fn accepted(&mut self, cx: &mut Context<'_>, _: ListenerId, id: ConnectionId, _: SocketAddr, _: SocketAddr) {
        self.fresh.insert(id);
        cx.send(id);
    }

    fn received(&mut self, _: &mut Context<'_>, _: ConnectionId, bytes: &[u8]) -> usize {
        bytes.len()
    }

    fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
        if self.fresh.contains(&id) {
            list.push(b"!");
        }
    }

    fn sent(&mut self, _: &mut Context<'_>, id: ConnectionId, _: usize) {
        self.fresh.remove(&id);
    }

    fn closed(&mut self, cx: &mut Context<'_>, _: ConnectionId, _: Closed) {
        self.gone += 1;
        if self.gone == CONNECTIONS {
            cx.stop();
        }
    }
}

#[test]
#[ignore = "the other half of a test below, which starts it"]
fn serve_by_epoll() {
    serve(IoBackend::Epoll);
}

#[test]
#[ignore = "the other half of a test below, which starts it"]
fn serve_by_uring() {
    serve(IoBackend::Uring);
}

fn serve(io: IoBackend) {
    // Where the system forbids it the test runs on the other.
    let mut reactor = Reactor::with(io).or_else(|_| Reactor::with(IoBackend::Epoll)).unwrap();
    let (_, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    println!("\naddress={address}");
    reactor.run(&mut Greeter::default()).unwrap();
}

#[test]
fn peers_beyond_the_limit_wait_for_those_before_them() {
    peers_beyond_the_limit("serve_by_epoll");
}

#[test]
fn peers_beyond_the_limit_wait_for_those_before_them_with_a_ring() {
    peers_beyond_the_limit("serve_by_uring");
}

fn peers_beyond_the_limit(serve: &str) {
    let script = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" --ignored --nocapture --exact {serve}");
    let mut server = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| Some(line.unwrap().strip_prefix("address=")?.to_owned())).unwrap();

    // All at once: far more than the server has descriptors for. Each leaves when it was greeted.
    let streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for mut stream in streams {
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    lines.for_each(drop);
    assert!(server.wait().unwrap().success());
}
