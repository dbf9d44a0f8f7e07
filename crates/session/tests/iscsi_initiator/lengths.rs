//! The data lengths at the ends of their range (RFC 7143 sections 13.12 to 13.14), on both sides and end to end.

use lunette_session::Authentication;
use lunette_session::iscsi_initiator::{Event, SessionConfig};
use lunette_session::keys::{Choices, DATA_LENGTH, Offer};

use crate::harness::{Pair, config, node, pattern, read, write};

const SHORTEST: u32 = *DATA_LENGTH.start();
const LONGEST: u32 = *DATA_LENGTH.end();

/// MaxRecvDataSegmentLength of either side, and the bursts that they agree on.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    initiator: u32,
    target: u32,
    max_burst: u32,
    first_burst: u32,
}

fn pair(lengths: Lengths, immediate_data: bool) -> Pair {
    let Lengths { initiator, target, max_burst, first_burst } = lengths;
    let offer = |recv_data_segment_len| Offer {
        recv_data_segment_len,
        max_burst_len: max_burst,
        first_burst_len: first_burst,
        immediate_data,
        data_digest: Choices(0b10),
        ..Offer::default()
    };
    let config = SessionConfig { offer: offer(initiator), ..config() };
    let mut pair = Pair::new(config, node(Authentication::None, offer(target)), Authentication::None);
    pair.run();
    pair.expect_login();
    pair
}

/// Writes and reads back `len` bytes.
fn there_and_back(pair: &mut Pair, len: u32) {
    let data = pattern(len as usize + 7)[7..].to_vec();
    pair.ends.disk.bytes.clear();
    pair.ends.disk.bytes.resize(len as usize, 0);
    for command in [write(&pair.ends.pool, 1, 0, &data), read(&pair.ends.pool, 2, 0, len)] {
        pair.ends.session.submit(command, pair.ends.now).expect("there is room");
        pair.run();
        let event = pair.ends.events.pop_front();
        let Some(Event::Completed { command, response }) = event else { panic!("{event:?}, {:?}", pair.closed()) };
        assert_eq!((response.response, response.status, response.residual), (0, 0, None));
        if let Some(got) = command.data_in {
            assert!(got[..] == data[..], "{len} bytes");
        }
    }
    assert!(pair.ends.disk.bytes == data, "{len} bytes");
}

#[test]
fn every_pair_of_ends_carries_every_byte() {
    let ends = [SHORTEST, LONGEST];
    for initiator in ends {
        for target in ends {
            for max_burst in ends {
                for first_burst in ends {
                    let lengths = Lengths { initiator, target, max_burst, first_burst };
                    println!("{lengths:?}");
                    let mut pair = pair(lengths, true);
                    for len in [SHORTEST - 1, SHORTEST, SHORTEST + 1, 100_001] {
                        there_and_back(&mut pair, len);
                    }
                }
            }
        }
    }
}

#[test]
fn the_longest_segment_is_full_in_both_directions() {
    let all = Lengths { initiator: LONGEST, target: LONGEST, max_burst: LONGEST, first_burst: LONGEST };
    for (immediate_data, first_burst) in [(true, LONGEST), (false, SHORTEST)] {
        let mut pair = pair(Lengths { first_burst, ..all }, immediate_data);
        for len in [LONGEST, LONGEST + 1] {
            there_and_back(&mut pair, len);
        }
    }
}
