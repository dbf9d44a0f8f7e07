//! Datagram sockets over the loopback interface, and in network namespaces where that needs another MTU or a narrow
//! link. Both ends are of one reactor, so what a test does it does in one order.

mod exchange;
mod failures;
mod namespace;
mod paths;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use lunette_reactor::{
    Closed, ConnectionId, Context, Counts, DatagramFailure, DatagramList, DatagramPath, DatagramSocketId, Datagrams,
    Ecn, Gather, Handler, ListenerId, Reactor,
};

/// A test that has not ended by then never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// The events that a test which does not end shows.
const LAST_EVENTS: usize = 16;

/// A datagram as the handler saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Got {
    path: DatagramPath,
    ecn: Ecn,
    bytes: Vec<u8>,
}

/// The calls to the handler under test.
enum Event {
    Datagrams(DatagramSocketId, Vec<Got>),
    Sent(DatagramSocketId, usize),
    Failed(DatagramSocketId, DatagramFailure),
}

/// The state of the handler under test: the datagrams that each socket has to send.
#[derive(Default)]
struct State {
    out: HashMap<DatagramSocketId, VecDeque<(DatagramPath, Vec<u8>)>>,
    /// Times that sockets took a part of what was offered.
    cut: usize,
    offered: usize,
    /// The last events, for a test that does not end.
    last: VecDeque<String>,
}

impl State {
    fn offer(&mut self, cx: &mut Context<'_>, id: DatagramSocketId, to: impl Into<DatagramPath>, bytes: Vec<u8>) {
        self.out.entry(id).or_default().push_back((to.into(), bytes));
        cx.send_datagrams(id);
    }
}

type Behaviour<'a> = dyn FnMut(&mut State, &mut Context<'_>, Event) + 'a;

/// A handler whose behaviour is one closure.
struct Toy<'a> {
    state: State,
    on: Box<Behaviour<'a>>,
    ends: Instant,
}

impl Toy<'_> {
    fn tell(&mut self, cx: &mut Context<'_>, event: Event) {
        if self.state.last.len() == LAST_EVENTS {
            self.state.last.pop_front();
        }
        self.state.last.push_back(match &event {
            Event::Datagrams(id, got) => {
                let first = got.first().map(|got| (got.path.peer, got.bytes.len()));
                format!("{id:?} received {}, the first from and with {first:?}", got.len())
            }
            Event::Sent(id, count) => format!("{id:?} sent {count}"),
            Event::Failed(id, failure) => format!("{id:?} failed: {failure:?}"),
        });
        (self.on)(&mut self.state, cx, event);
    }
}

impl Handler for Toy<'_> {
    fn accepted(&mut self, _: &mut Context<'_>, _: ListenerId, _: ConnectionId, _: SocketAddr, _: SocketAddr) {}

    fn received(&mut self, _: &mut Context<'_>, _: ConnectionId, bytes: &[u8]) -> usize {
        bytes.len()
    }

    fn gather<'a>(&'a self, _: ConnectionId, _: &mut Gather<'a>) {}

    fn sent(&mut self, _: &mut Context<'_>, _: ConnectionId, _: usize) {}

    fn closed(&mut self, _: &mut Context<'_>, _: ConnectionId, _: Closed) {}

    fn datagrams(&mut self, cx: &mut Context<'_>, id: DatagramSocketId, datagrams: Datagrams<'_>) {
        let got = datagrams.map(|datagram| {
            let bytes = datagram.bytes.to_vec();
            // They may be changed, and no neighbour sees it.
            datagram.bytes.fill(0xee);
            Got { path: *datagram.path, ecn: datagram.ecn, bytes }
        });
        let got = got.collect();
        self.tell(cx, Event::Datagrams(id, got));
    }

    fn gather_datagrams<'a>(&'a mut self, id: DatagramSocketId, list: &mut DatagramList<'a>) {
        for (path, bytes) in self.state.out.entry(id).or_default().iter() {
            // A header and two parts.
            let (header, payload) = bytes.split_at(bytes.len().min(128));
            let (first, second) = payload.split_at(payload.len() / 3);
            if !list.push(path, [header, first, second]) {
                break;
            }
        }
        self.state.offered = list.len();
    }

    fn datagrams_sent(&mut self, cx: &mut Context<'_>, id: DatagramSocketId, count: usize) {
        assert!(count > 0 && count <= self.state.offered);
        self.state.cut += usize::from(count < self.state.offered);
        self.state.out.entry(id).or_default().drain(..count);
        self.tell(cx, Event::Sent(id, count));
    }

    fn datagram_failed(&mut self, cx: &mut Context<'_>, id: DatagramSocketId, failure: DatagramFailure) {
        self.tell(cx, Event::Failed(id, failure));
    }

    fn next_timeout(&mut self, _: Instant) -> Option<Instant> {
        Some(self.ends)
    }

    fn timeout(&mut self, _: &mut Context<'_>) {
        let State { out, last, .. } = &self.state;
        let left: usize = out.values().map(VecDeque::len).sum();
        panic!("not ended within {PATIENCE:?}; {left} datagrams were not sent; the last events were {last:#?}");
    }
}

/// Runs `reactor` with the behaviour `on` until that stops it. `begin` offers the first datagrams.
fn run(
    reactor: &mut Reactor,
    begin: impl FnOnce(&mut State, &mut Context<'_>),
    on: impl FnMut(&mut State, &mut Context<'_>, Event),
) -> Counts {
    let mut toy = Toy { state: State::default(), on: Box::new(on), ends: Instant::now() + PATIENCE };
    let before = reactor.counts().counts();
    begin(&mut toy.state, &mut reactor.context());
    reactor.run(&mut toy).unwrap();
    reactor.counts().counts().since(&before)
}

fn to(address: SocketAddr) -> DatagramPath {
    DatagramPath::to(address.into())
}

/// Bytes that tell where they should be.
fn numbered(number: usize, len: usize) -> Vec<u8> {
    static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| super::pattern(1 << 16));
    let mut bytes = PATTERN[..len].to_vec();
    let tag = (number as u32).to_be_bytes();
    let tagged = len.min(tag.len());
    bytes[..tagged].copy_from_slice(&tag[..tagged]);
    bytes
}
