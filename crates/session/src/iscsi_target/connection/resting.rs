//! A connection on its way to a standstill: it goes on with the tasks that have begun, and keeps the rest as it came.
//!
//! A request that is kept has had no effect and no answer, so for its initiator the network is slow. It is dealt with
//! when the connection [goes on](Connection::go_on), in this process or in the one that takes its place.
//!
//! The data of tasks that have begun may stand behind such requests in the stream. So this takes PDUs out of their
//! order, but only those that have no order among requests.

use super::{Connection, ConnectionMut, Phase};
use crate::Time;
use crate::iscsi_target::expect::Expect;
use crate::limits::MAX_RESTING_BYTES;
use crate::markers::MarkedReceiver;
use crate::receiver::Stage;

/// The PDUs that are kept.
#[derive(Default)]
pub(crate) struct Resting {
    kept: Vec<u8>,
    /// The connection goes on as soon as the PDU has come to its end that is being received.
    ends: bool,
}

impl Resting {
    pub(super) fn keeps_nothing(&self) -> bool {
        self.kept.is_empty()
    }

    /// Keeps the PDU that has come to its end, with its digests: it will be read again.
    pub(super) fn keep(&mut self, receiver: &MarkedReceiver, segment: &[u8]) {
        self.kept.extend_from_slice(receiver.last_head());
        self.kept.extend_from_slice(segment);
        self.kept.extend_from_slice(receiver.last_tail());
    }
}

impl Connection {
    /// From now on, no request is begun.
    pub(in crate::iscsi_target) fn come_to_rest(&mut self) {
        self.resting.get_or_insert_default().ends = false;
    }

    /// Deals with what was kept, and with all that comes.
    pub(in crate::iscsi_target) fn go_on(&mut self, now: Time) {
        self.excuse_silence(now);
        if let Some(resting) = &mut self.resting {
            resting.ends = true;
        }
    }

    /// The reason why it is not at rest.
    pub(in crate::iscsi_target) fn restless(&self) -> Option<&'static str> {
        let Phase::FullFeature(full) = &self.phase else { return Some("a connection is being ended") };
        let is_within = self.receiver.stage() == Stage::Data && !matches!(self.expect, Expect::Kept);
        let first = [
            (self.resting.as_ref().is_none_or(|resting| resting.ends), "a connection goes on"),
            (!self.events.is_empty(), "a connection has events"),
            (is_within, "a PDU has come in part"),
            (self.sender.outbox.has_files(), "an answer is being sent from a file"),
        ];
        first.into_iter().find_map(|(holds, why)| holds.then_some(why)).or_else(|| full.restless())
    }

    /// Whether its state can be taken to another process.
    pub fn can_be_handed_over(&self) -> bool {
        !self.receiver.has_markers() && !self.sender.outbox.has_markers()
    }

    /// The bytes that came and were not dealt with.
    pub(super) fn undealt(&self) -> Vec<u8> {
        let kept = self.resting.as_ref().map_or(&[][..], |resting| &resting.kept);
        [kept, &self.receiver.partial(&self.segment), self.held.rest()].concat()
    }

    pub(super) fn keeps_too_much(&self) -> bool {
        self.resting.as_ref().is_some_and(|resting| !resting.ends && resting.kept.len() > MAX_RESTING_BYTES)
    }
}

impl ConnectionMut<'_> {
    /// Puts what was kept before all that comes, if the connection is to go on and nothing else comes before.
    #[inline]
    pub(super) fn end_rest_if_due(&mut self) {
        if self.resting.is_some() {
            self.end_rest();
        }
    }

    #[cold]
    fn end_rest(&mut self) {
        let is_within = self.receiver.stage() == Stage::Data && !matches!(self.expect, Expect::Kept);
        let Some(mut resting) = self.resting.take_if(|resting| resting.ends && !is_within) else { return };
        resting.kept.extend(self.receiver.partial(&self.segment));
        self.receiver.drop_partial();
        self.expect = Expect::Nothing;
        self.segment.clear();
        self.receiver.put_back(resting.kept.len());
        self.held.put_front(resting.kept);
    }
}
