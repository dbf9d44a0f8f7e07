//! A connection whose socket another reactor has, turn by turn.

use std::io::Read;

use super::tests::{pair, reactors};
use super::*;
use crate::Gather;

const LEN: usize = 100_000;

/// Has bytes to send until they have left.
struct Owner {
    out: Vec<u8>,
}

impl Handler for Owner {
    fn accepted(&mut self, _: &mut Context<'_>, _: ListenerId, _: ConnectionId, _: SocketAddr, _: SocketAddr) {}
    fn received(&mut self, _: &mut Context<'_>, _: ConnectionId, bytes: &[u8]) -> usize {
        bytes.len()
    }
    fn gather<'a>(&'a self, _: ConnectionId, list: &mut Gather<'a>) {
        list.push(&self.out);
    }
    fn sent(&mut self, _: &mut Context<'_>, _: ConnectionId, len: usize) {
        self.out.drain(..len);
    }
    fn closed(&mut self, _: &mut Context<'_>, _: ConnectionId, why: Closed) {
        panic!("{why:?}");
    }
}

/// One batch of a reactor for which there is a letter.
fn turn(reactor: &mut Reactor, handler: &mut Owner) {
    assert!(!reactor.waker.fall_asleep(), "nobody has written");
    let mut carrying = Carrying { handler, lines: std::mem::take(&mut reactor.lines) };
    reactor.turn(&mut carrying).unwrap();
    reactor.lines = carrying.lines;
}

#[test]
fn bytes_are_the_handlers_until_they_have_left_the_carrier() {
    for (mut home, mut carrier) in reactors().zip(reactors()) {
        let (near, mut far) = pair();
        let bytes: Vec<u8> = (0..LEN).map(|at| at as u8).collect();
        let mut owner = Owner { out: bytes[..LEN / 2].to_vec() };
        let mut nobody = Owner { out: Vec::new() };
        let id = home.context().adopt_carried(near, &carrier.carrier());
        home.context().send(id);
        turn(&mut carrier, &mut nobody);
        turn(&mut home, &mut owner);
        assert_eq!(owner.out.len(), LEN / 2, "a carrier has them, and they count as what waits");
        // More to send while they are under way: nothing is sent twice.
        owner.out.extend_from_slice(&bytes[LEN / 2..]);
        home.context().send(id);
        home.waker.nudge();
        turn(&mut home, &mut owner);
        assert_eq!(owner.out.len(), LEN);
        let before = home.last_active;
        turn(&mut carrier, &mut nobody);
        turn(&mut home, &mut owner);
        assert!(owner.out.is_empty());
        assert!(home.last_active > before, "a loop that polls looks on when there was a letter");
        let mut received = vec![0; LEN];
        far.read_exact(&mut received).unwrap();
        assert!(received == bytes);
    }
}
