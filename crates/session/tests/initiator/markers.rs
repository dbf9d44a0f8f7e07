//! Markers in the stream (RFC 3720 appendix A), on both sides.

use lunette_session::Authentication;
use lunette_session::initiator::{Event, SessionConfig};
use lunette_session::keys::{Choices, Willing};

use crate::harness::{Pair, config, node, pattern, read, write};

/// A session with digests, in which the initiator offers these intervals and the target likes those.
fn session(offered: Option<u32>, liked: Option<u32>) -> Pair {
    let willing = |marker_interval| Willing {
        header_digest: Choices(0b10),
        data_digest: Choices(0b10),
        marker_interval,
        ..Willing::default()
    };
    let config = SessionConfig { offers: willing(offered), ..config() };
    let mut pair = Pair::new(config, node(Authentication::None, willing(liked)), Authentication::None);
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
        let parameters = pair.session.parameters(pair.cid).expect("it is logged in");
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
            pair.session.submit(write(&pair.pool, 1, 77, &data), pair.now).unwrap();
            pair.run();
            pair.session.submit(read(&pair.pool, 2, 77, len as u32), pair.now).unwrap();
            pair.run();
            let ended: Vec<_> = pair.events.drain(..).collect();
            let [Event::Completed { .. }, Event::Completed { command, .. }] = &ended[..] else { panic!("{ended:?}") };
            assert_eq!(command.data_in.as_deref(), Some(&data[..]), "{len} bytes, interval {interval}");
        }
    }
}
