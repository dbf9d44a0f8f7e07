//! Markers in the stream (RFC 3720 appendix A), on both sides.

use std::time::Duration;

use lunette_session::Authentication;
use lunette_session::iscsi_initiator::{Event, SessionConfig};
use lunette_session::keys::{Choices, Offer};

use crate::harness::{Pair, config, node, pattern, read, write};
/// A session with digests, in which the initiator offers these intervals and the target likes those.
fn session(offered: Option<u32>, liked: Option<u32>) -> Pair {
    let offer = |marker_interval| Offer {
        header_digest: Choices(0b10),
        data_digest: Choices(0b10),
        marker_interval,
        ..Offer::default()
    };
    let config = SessionConfig { offer: offer(offered), ..config() };
    let mut pair = Pair::new(config, node(Authentication::None, offer(liked)), Authentication::None);
    pair.run();
    pair.expect_login();
    pair
}

#[test]
fn markers_are_agreed_on_when_both_sides_want_them() {
    for (offered, liked, agreed) in [
        (None, None, None),
        (None, Some(2048), None),
        (Some(2048), None, None),
        (Some(100), Some(2048), Some(100)),
        (Some(2048), Some(100), Some(2048)),
    ] {
        let pair = session(offered, liked);
        let parameters = pair.ends.session.parameters(pair.cid).expect("it is logged in");
        let on = (parameters.of_marker, parameters.if_marker);
        assert_eq!(on, (agreed.is_some(), agreed.is_some()), "{offered:?}, {liked:?}");
        if let Some(agreed) = agreed {
            assert_eq!((parameters.of_mark_int, parameters.if_mark_int), (agreed, agreed));
        }
    }
}

#[test]
fn commands_of_every_length_pass_through_markers() {
    for (piece, interval) in [(usize::MAX, 64), (1000, 67), (20_000, 8192), (7, 64)] {
        let mut pair = session(Some(interval), Some(interval));
        pair.piece = piece;
        for len in [1, 3, 4, 200, 512, 4095, 8192, 100_001] {
            let data = pattern(len);
            pair.ends.session.submit(write(&pair.ends.pool, 1, 77, &data), pair.ends.now).unwrap();
            pair.run();
            pair.ends.session.submit(read(&pair.ends.pool, 2, 77, len as u32), pair.ends.now).unwrap();
            pair.run();
            let ended: Vec<_> = pair.ends.events.drain(..).collect();
            let [Event::Completed { .. }, Event::Completed { command, .. }] = &ended[..] else { panic!("{ended:?}") };
            assert_eq!(command.data_in.as_deref(), Some(&data[..]), "{len} bytes, interval {interval}");
        }
    }
}

/// A session of recovery level 1 with digests and markers.
fn recovering() -> Pair {
    let offer = Offer {
        header_digest: Choices(0b10),
        data_digest: Choices(0b10),
        recv_data_segment_len: 1024,
        error_recovery_level: 1,
        marker_interval: Some(64),
        ..Offer::default()
    };
    let config = SessionConfig { offer: offer.clone(), ..config() };
    let mut pair = Pair::new(config, node(Authentication::None, offer), Authentication::None);
    pair.run();
    pair.expect_login();
    assert_eq!(pair.ends.session.parameters(pair.cid).unwrap().error_recovery_level, 1);
    pair
}

/// Writes and reads at once, in different places. All end well.
fn work(mut pair: Pair) -> Pair {
    let disk = pair.ends.disk.bytes.clone();
    let lengths = [0_usize, 100, 512, 3000, 9000];
    for (n, len) in lengths.into_iter().enumerate() {
        let at = n * 10_000;
        pair.ends
            .session
            .submit(write(&pair.ends.pool, n as u64, at as u32, &vec![n as u8 + 1; len]), pair.ends.now)
            .unwrap();
        let user = 100 + n as u64;
        pair.ends
            .session
            .submit(read(&pair.ends.pool, user, (100_000 + at) as u32, len as u32), pair.ends.now)
            .unwrap();
    }
    pair.run();
    pair.pass(Duration::from_secs(100));
    let mut ended = Vec::new();
    for event in std::mem::take(&mut pair.ends.events) {
        let Event::Completed { command, response } = event else { panic!("{event:?}, target: {:?}", pair.closed()) };
        assert_eq!((response.response, response.status), (0, 0));
        if let Some(n) = command.user.checked_sub(100) {
            let at = 100_000 + n as usize * 10_000;
            let len = lengths[n as usize];
            assert_eq!(command.data_in.as_deref().unwrap_or_default(), &disk[at..at + len]);
        }
        ended.push(command.user);
    }
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2, 3, 4, 100, 101, 102, 103, 104], "target: {:?}", pair.closed());
    for (n, len) in lengths.into_iter().enumerate() {
        assert!(pair.ends.disk.bytes[n * 10_000..][..len].iter().all(|byte| *byte == n as u8 + 1));
    }
    pair
}

/// Damages one bit of a session in many places, one after the other. `stream` is what has been sent one way, `flip` the
/// place of the damage. Gives the number of headers that the initiator lost.
fn with_damage(stream: fn(&Pair) -> usize, flip: fn(&mut Pair) -> &mut Option<(usize, u8)>) -> u64 {
    let pair = recovering();
    let start = stream(&pair);
    let end = stream(&work(pair));
    let lost_headers = (start..end).step_by(97).map(|at| {
        let mut pair = recovering();
        *flip(&mut pair) = Some((at, 1 << (at % 8)));
        eprintln!("byte {at} of {start} to {end}");
        work(pair).ends.session.recoveries().lost_headers
    });
    lost_headers.sum()
}

#[test]
fn a_bit_that_flips_on_the_way_to_the_initiator_costs_no_command() {
    let lost_headers = with_damage(|pair| pair.sent_by_target, |pair| &mut pair.flip);
    assert!(lost_headers > 0, "no header was hit");
}
