//! Random work at recovery level 1 while data segments are damaged both ways: every read and write is right, no command
//! fails, and the connection lives on.

use std::time::Duration;

use lunette_session::Authentication;
use lunette_session::iscsi_initiator::SessionConfig;
use lunette_session::keys::{Choices, Offer};
use proptest::prelude::*;

use crate::harness::{Pair, Storm, config, node};
use crate::random_load::{Play, Step, step};

fn offer() -> impl Strategy<Value = Offer> {
    let length = || prop_oneof![512..3000_u32, Just(8192), Just(262_144)];
    ((1..3_u8).prop_map(Choices), (length(), length(), length()), (any::<bool>(), any::<bool>()), any::<bool>())
        .prop_map(|(header_digest, lengths, bits, in_order)| Offer {
            header_digest,
            data_digest: Choices(2),
            recv_data_segment_len: lengths.0,
            max_burst_len: lengths.1,
            first_burst_len: lengths.2,
            initial_r2t: bits.0,
            immediate_data: bits.1,
            data_sequence_in_order: in_order,
            error_recovery_level: 1,
            ..Offer::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_in_a_storm(
        offer in offer(),
        steps in prop::collection::vec(step(), 1..40),
        piece in prop_oneof![Just(usize::MAX), 400..40_000_usize],
        one_in in 2..30_usize,
    ) {
        let header_digest = offer.header_digest == Choices(2);
        let takes = Offer { header_digest: Choices(3), error_recovery_level: 1, ..Offer::default() };
        let config = SessionConfig { offer, ..config() };
        let mut pair = Pair::new(config, node(Authentication::None, takes), Authentication::None);
        pair.run();
        pair.expect_login();
        pair.piece = piece;
        pair.storms = Some([(); 2].map(|()| Storm::new(header_digest, one_in)));
        let mut play = Play::new(pair);
        for step in steps {
            match step {
                Step::Read { slot, len } => play.submit(slot, len, false),
                Step::Write { slot, len } => play.submit(slot, len, true),
                Step::Rounds(rounds) => (0..rounds).for_each(|_| {
                    play.pair.step();
                }),
            }
            play.look();
        }
        for _ in 0..40 {
            play.pair.pass(Duration::from_secs(5));
            play.look();
        }
        prop_assert!(play.busy.is_empty(), "left: {:?}", play.busy.keys());
        prop_assert_eq!(&play.pair.ends.disk.bytes, &play.model);
        let recoveries = *play.pair.ends.session.recoveries();
        let [to_target, to_initiator] = play.pair.storms.take().unwrap().map(|storm| storm.hits as u64);
        prop_assert_eq!(recoveries.damaged_pdus, to_initiator);
        prop_assert!(recoveries.retries + recoveries.recovery_r2ts >= u64::from(to_target > 0), "{:?}", recoveries);
        prop_assert_eq!(play.pair.ends.pool.used_bytes(), 0);
    }
}
