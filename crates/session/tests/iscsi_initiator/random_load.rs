//! Random work on random parameters over a stream that is cut at random: every read and write is right.

use std::collections::HashMap;

use lunette_session::Authentication;
use lunette_session::iscsi_initiator::{Event, SessionConfig, SessionError};
use lunette_session::keys::{Choices, Offer};
use proptest::prelude::*;

use crate::harness::{Pair, config, node, read, write};

fn offer() -> impl Strategy<Value = Offer> {
    let length = || prop_oneof![512..3000_u32, Just(8192), Just(0x00ff_ffff)];
    let digests = || (1..4_u8).prop_map(Choices);
    (
        (digests(), digests()),
        (length(), length(), length()),
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        (prop_oneof![1..6_u32, Just(65_535)], 0..5_u32, 0..5_u32),
        prop_oneof![Just(None), (64..200_u32).prop_map(Some), Just(Some(2048))],
    )
        .prop_map(|(digests, lengths, bits, numbers, marker_interval)| Offer {
            header_digest: digests.0,
            data_digest: digests.1,
            recv_data_segment_len: lengths.0,
            max_burst_len: lengths.1,
            first_burst_len: lengths.2,
            initial_r2t: bits.0,
            immediate_data: bits.1,
            data_pdu_in_order: bits.2,
            data_sequence_in_order: bits.3,
            max_outstanding_r2t: numbers.0,
            time2wait_s: numbers.1,
            time2retain_s: numbers.2,
            marker_interval,
            ..Offer::default()
        })
}

/// The other side must have a digest in common.
fn meets(ours: Choices, theirs: Choices) -> bool {
    ours.0 & theirs.0 != 0
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Read { slot: u32, len: u32 },
    Write { slot: u32, len: u32 },
    Rounds(usize),
}

/// Commands work on places of their own, so that their order does not matter.
const SLOT: u32 = 12_000;

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let slot = || 0..12_u32;
    prop_oneof![
        3 => (slot(), 0..SLOT).prop_map(|(slot, len)| Step::Read { slot, len }),
        3 => (slot(), 0..SLOT).prop_map(|(slot, len)| Step::Write { slot, len }),
        2 => (1..30_usize).prop_map(Step::Rounds),
    ]
}

pub(crate) struct Play {
    pub(crate) pair: Pair,
    next_user: u64,
    pub(crate) busy: HashMap<u64, (u32, Option<Vec<u8>>)>,
    pub(crate) model: Vec<u8>,
}

impl Play {
    pub(crate) fn new(pair: Pair) -> Self {
        let model = pair.ends.disk.bytes.clone();
        Self { pair, next_user: 0, busy: HashMap::new(), model }
    }

    pub(crate) fn submit(&mut self, slot: u32, len: u32, writes: bool) {
        if self.pair.ends.session.room() == 0 || self.busy.values().any(|(busy, _)| *busy == slot) {
            return;
        }
        self.next_user += 1;
        let (user, offset) = (self.next_user, slot * SLOT);
        let data: Option<Vec<u8>> = writes.then(|| (0..len).map(|n| (n as u8).wrapping_mul(31) ^ user as u8).collect());
        let command = match &data {
            Some(data) => write(&self.pair.ends.pool, user, offset, data),
            None => read(&self.pair.ends.pool, user, offset, len),
        };
        self.pair.ends.session.submit(command, self.pair.ends.now).expect("there is room");
        self.busy.insert(user, (slot, data));
    }

    pub(crate) fn look(&mut self) {
        while let Some(event) = self.pair.ends.events.pop_front() {
            let Event::Completed { command, response } = event else { panic!("{event:?}") };
            let (slot, data) = self.busy.remove(&command.user).expect("ends once");
            assert_eq!((response.response, response.status, response.residual), (0, 0, None));
            let start = (slot * SLOT) as usize;
            if let Some(data) = data {
                self.model[start..start + data.len()].copy_from_slice(&data);
                continue;
            }
            let got = command.data_in.as_deref().unwrap_or_default();
            assert_eq!(response.data_in_len, got.len());
            assert_eq!(got, &self.model[start..start + got.len()]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives(
        offer in offer(),
        takes in offer(),
        steps in prop::collection::vec(step(), 1..50),
        piece in prop_oneof![Just(usize::MAX), 1..400_usize, 400..40_000_usize],
    ) {
        let common = meets(offer.header_digest, takes.header_digest) && meets(offer.data_digest, takes.data_digest);
        let config = SessionConfig { offer, ..config() };
        let mut pair = Pair::new(config, node(Authentication::None, takes), Authentication::None);
        pair.piece = piece;
        pair.run();
        if !common {
            let event = pair.ends.events.pop_front();
            prop_assert!(
                matches!(event, Some(Event::Closed { why: SessionError::Login(_), .. })),
                "{event:?}"
            );
            return Ok(());
        }
        pair.expect_login();
        let mut play = Play::new(pair);
        for step in steps {
            match step {
                Step::Read { slot, len } => play.submit(slot, len, false),
                Step::Write { slot, len } => play.submit(slot, len, true),
                Step::Rounds(rounds) => {
                    for _ in 0..rounds {
                        play.pair.step();
                    }
                }
            }
            play.look();
        }
        play.pair.run();
        play.look();
        prop_assert!(play.busy.is_empty(), "left: {:?}", play.busy.keys());
        prop_assert_eq!(&play.pair.ends.disk.bytes, &play.model);
        prop_assert_eq!(play.pair.ends.pool.used_bytes(), 0);
        prop_assert!(play.pair.ends.session.logout());
        play.pair.run();
        let event = play.pair.ends.events.pop_front();
        prop_assert!(matches!(event, Some(Event::Closed { why: SessionError::LoggedOut, .. })), "{event:?}");
        prop_assert!(play.pair.ends.session.into_unfinished().is_empty());
    }
}
