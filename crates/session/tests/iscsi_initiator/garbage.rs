//! Bytes that were damaged on the way, and bytes without any sense: a typed error at the worst, and every command comes
//! back.

use lunette_session::Authentication;
use lunette_session::iscsi_initiator::{Event, SessionConfig};
use lunette_session::keys::{Choices, Offer};
use proptest::prelude::*;

use crate::harness::{Pair, ScriptedTarget, config, node, pattern, read, write};

/// Plays a login, reads, writes and a logout of a target to a session.
fn play(digests: u8, flip: Option<(usize, u8)>, piece: usize) {
    let offer = Offer { header_digest: Choices(digests), data_digest: Choices(digests), ..Offer::default() };
    let config = SessionConfig { offer, ..config() };
    let mut pair = Pair::new(config, node(Authentication::None, <_>::default()), Authentication::None);
    pair.piece = piece;
    pair.flip = flip;
    pair.run();
    let mut submitted = 0;
    for user in 0..8 {
        let command = if user % 2 == 0 {
            read(&pair.ends.pool, user, 512, 20_000)
        } else {
            write(&pair.ends.pool, user, 100_000, &pattern(3000))
        };
        submitted += usize::from(pair.ends.session.submit(command, pair.ends.now).is_ok());
        pair.step();
    }
    pair.run();
    pair.ends.session.logout();
    pair.run();
    pair.pass(std::time::Duration::from_secs(200));
    let mut ended = 0;
    let mut closed = false;
    while let Some(event) = pair.ends.events.pop_front() {
        assert!(!closed, "{event:?} after the end");
        match event {
            Event::Completed { .. } | Event::Aborted(_) => ended += 1,
            Event::Closed { .. } | Event::Redirected { .. } => closed = true,
            _ => {}
        }
    }
    assert!(closed, "it ends in time");
    assert_eq!(ended + pair.ends.session.into_unfinished().len(), submitted, "every command comes back");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_flipped_bit_ends_the_session_at_the_worst(
        at in 0..90_000_usize,
        early in any::<bool>(),
        mask in (0..8_u8).prop_map(|bit| 1 << bit),
        digests in 1..3_u8,
        piece in prop_oneof![Just(usize::MAX), 1..5000_usize],
    ) {
        play(digests, Some((if early { at % 1500 } else { at }, mask)), piece);
    }

    #[test]
    fn any_bytes_after_the_login_end_in_a_typed_error(
        bytes in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..400),
        opcode in prop_oneof![Just(0x20_u8), Just(0x21), Just(0x22), Just(0x24), Just(0x25), Just(0x31), Just(0x32), Just(0x3f)],
    ) {
        let mut target = ScriptedTarget::asked_only();
        target.read(4096);
        target.write(4096);
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = opcode;
        }
        if let Some(lengths) = bytes.get_mut(4..6) {
            lengths.fill(0);
        }
        target.raw(&bytes);
        for event in target.events.drain(..) {
            let typed = matches!(
                event,
                Event::Closed { .. } | Event::Completed { .. } | Event::Async { .. }
            );
            prop_assert!(typed, "{event:?}");
        }
    }
}

#[test]
fn without_damage_all_is_well() {
    play(1, None, usize::MAX);
    play(2, None, 777);
}
