//! The initiator's session and the target's back to back over one stream, which may damage what it carries.

use std::collections::VecDeque;
use std::time::Duration;

use lunette_pdu::Cid;
use lunette_session::Authentication;
use lunette_session::iscsi_initiator::{Event, SessionConfig};
use lunette_session::iscsi_target::{CloseReason, ConnectionMut, Session, TargetNode};

use super::multi_pair::MultiPair;
use super::setup::{config, node};
use super::storm::Storm;

/// The only connection.
const LANE: usize = 0;

pub(crate) struct Pair {
    pub(crate) ends: MultiPair,
    pub(crate) cid: Cid,
    /// Longest piece that a socket hands over.
    pub(crate) piece: usize,
    /// The damage to data segments: those to the target, and those to the initiator.
    pub(crate) storms: Option<[Storm; 2]>,
    /// Damages one byte of what the target sends: which, and the bits that flip.
    pub(crate) flip: Option<(usize, u8)>,
    /// Bytes that the target has sent.
    pub(crate) sent_by_target: usize,
    /// The flipped bit in the initiator's bytes.
    pub(crate) flip_to_target: Option<(usize, u8)>,
    pub(crate) sent_by_initiator: usize,
}

impl Pair {
    pub(crate) fn new(config: SessionConfig, target: TargetNode, discovery: Authentication) -> Self {
        let mut ends = MultiPair::new(config, target, discovery, 0x9e37_79b9_7f4a_7c15);
        ends.connect();
        Self {
            cid: ends.lanes[LANE].cid,
            ends,
            piece: usize::MAX,
            storms: None,
            flip: None,
            sent_by_target: 0,
            flip_to_target: None,
            sent_by_initiator: 0,
        }
    }

    /// In full feature phase.
    pub(crate) fn logged_in() -> Self {
        let mut pair = Self::new(config(), node(Authentication::None, <_>::default()), Authentication::None);
        pair.run();
        pair.expect_login();
        pair
    }

    pub(crate) fn expect_login(&mut self) {
        let event = self.ends.events.pop_front();
        assert!(matches!(event, Some(Event::LoggedIn(_))), "{event:?}, target: {:?}", self.closed());
    }

    /// Why the target has ended the connection.
    pub(crate) fn closed(&self) -> Option<&CloseReason> {
        self.ends.lanes[LANE].closed.as_ref()
    }

    /// The target's session.
    pub(crate) fn target_session(&mut self) -> &mut Session<usize> {
        self.ends.target_session(LANE)
    }

    /// The target's end, in its session.
    pub(crate) fn target(&mut self) -> ConnectionMut<'_> {
        self.ends.target(LANE)
    }

    /// Runs both sides as far as they can go.
    pub(crate) fn run(&mut self) {
        while self.step() {}
    }

    /// One round. False when nothing moved.
    pub(crate) fn step(&mut self) -> bool {
        let before = self.ends.events.len();
        self.ends.initiator_events(LANE, &[]);
        self.ends.target_events(LANE, &[]);
        let sent = self.send_initiator() | self.send_target();
        let (to_target, to_initiator) = (self.some(), self.some());
        let received = self.ends.receive_target(LANE, to_target) | self.ends.receive_initiator(LANE, to_initiator);
        sent | received | self.ends.work() | (self.ends.events.len() > before)
    }

    /// How much a socket takes or gives this time.
    fn some(&mut self) -> usize {
        if self.piece == usize::MAX { usize::MAX } else { 1 + self.ends.dice.below(self.piece) }
    }

    fn send_initiator(&mut self) -> bool {
        let (most, before) = (self.some(), self.ends.lanes[LANE].to_target.len());
        let has_output = self.ends.session.has_output(self.cid) && !self.ends.lanes[LANE].gone;
        let sent = self.ends.send_initiator(LANE, most);
        assert_eq!(sent, has_output);
        let wire = &mut self.ends.lanes[LANE].to_target;
        flip(self.flip_to_target, self.sent_by_initiator, wire, before);
        if let Some([storm, _]) = &mut self.storms {
            storm.pass(wire, before, &mut self.ends.dice);
        }
        self.sent_by_initiator += wire.len() - before;
        sent
    }

    fn send_target(&mut self) -> bool {
        let (most, before) = (self.some(), self.ends.lanes[LANE].to_initiator.len());
        let sent = self.ends.send_target(LANE, most);
        let wire = &mut self.ends.lanes[LANE].to_initiator;
        flip(self.flip, self.sent_by_target, wire, before);
        if let Some([_, storm]) = &mut self.storms {
            storm.pass(wire, before, &mut self.ends.dice);
        }
        self.sent_by_target += wire.len() - before;
        sent
    }

    /// Lets time pass, doing what is due on either side on the way.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.ends.now + span;
        loop {
            self.run();
            let of_target = match &self.ends.lanes[LANE].login {
                Some(login) => login.next_timeout(),
                None => self.target_session().next_timeout(LANE),
            };
            let due = self.ends.session.next_timeout().into_iter().chain(of_target).min();
            let Some(at) = due.filter(|at| *at <= end) else { break };
            let now = self.ends.now.max(at);
            self.ends.now = now;
            self.ends.session.time_has_come(now);
            match &mut self.ends.lanes[LANE].login {
                Some(login) => login.time_has_come(now),
                None => self.target().time_has_come(now),
            }
        }
        self.ends.now = end;
    }
}

/// Damages a byte of the stream if it is among those behind the first `before` of `wire`, which `sent` others came
/// before.
fn flip(which: Option<(usize, u8)>, sent: usize, wire: &mut VecDeque<u8>, before: usize) {
    let Some((at, mask)) = which else { return };
    if let Some(byte) = at.checked_sub(sent).and_then(|at| wire.get_mut(before + at)) {
        *byte ^= mask;
    }
}
