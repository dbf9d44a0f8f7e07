//! A process that places the data of one command, to have its instructions counted:
//!
//! ```text
//! valgrind --tool=callgrind --toggle-collect='*counted*' target/release/count-orders write digests shuffled
//! ```
//!
//! Arguments: `read` or `write` (the initiator or the target places the data), `plain` or `digests`, then `ordered`,
//! `reversed` or `shuffled`. Ends with status 2 on anything else.

mod pair;

use std::hint::black_box;
use std::process::ExitCode;

use lunette_buffer::Pool;
use lunette_crc32c::{crc32c, to_wire};
use lunette_pdu::{BHS_LEN, Cid, DIGEST_LEN};
use lunette_session::Time;
use lunette_session::iscsi_initiator::{self, Session};
use lunette_session::iscsi_target::{self, Response};
use lunette_session::keys::Offer;
use pair::{Pair, command};

const PDU_LEN: usize = 8192;
const LEN: usize = 128 * PDU_LEN;
const BUFFER_OFFSET: std::ops::Range<usize> = 40..44;

/// The part to count. Not inlined, so that it has a name to be toggled by.
#[inline(never)]
fn counted_write(
    target: &mut iscsi_target::Session<()>,
    mut input: &[u8],
    now: Time,
) -> Option<iscsi_target::Event<()>> {
    target.next_event((), &mut input, now)
}

#[inline(never)]
fn counted_read(session: &mut Session, cid: Cid, mut input: &[u8], now: Time) -> Option<iscsi_initiator::Event> {
    session.next_event(cid, &mut input, now)
}

/// Moves offsets and data of the PDUs, which are all of one length, to other places. The headers stay otherwise:
/// numbers count on, and the last one ends the sequence.
fn reorder(bytes: &[u8], digests: bool, order: &[usize]) -> Vec<u8> {
    let digest_len = if digests { DIGEST_LEN } else { 0 };
    let data_at = BHS_LEN + digest_len;
    let pdu_len = data_at + PDU_LEN + digest_len;
    assert_eq!(bytes.len(), order.len() * pdu_len, "one PDU for each place");
    let pdus: Vec<&[u8]> = bytes.chunks(pdu_len).collect();
    let moved = pdus.iter().zip(order).flat_map(|(pdu, from)| {
        let mut pdu = pdu.to_vec();
        pdu[BUFFER_OFFSET].copy_from_slice(&pdus[*from][BUFFER_OFFSET]);
        pdu[data_at..].copy_from_slice(&pdus[*from][data_at..]);
        if digests {
            let digest = to_wire(crc32c(&pdu[..BHS_LEN]));
            pdu[BHS_LEN..data_at].copy_from_slice(&digest);
        }
        pdu
    });
    moved.collect()
}

fn order(name: &str) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..LEN / PDU_LEN).collect();
    match name {
        "ordered" => {}
        "reversed" => order.reverse(),
        "shuffled" => {
            let mut seed = 0x9e37_79b9_u64;
            for last in (1..order.len()).rev() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                order.swap(last, (seed >> 33) as usize % (last + 1));
            }
        }
        _ => return None,
    }
    Some(order)
}

/// The target learns of a command.
fn submit(pair: &mut Pair, command: iscsi_initiator::Command) -> iscsi_target::Command {
    pair.session.submit(command, pair.now).expect("there is room");
    pair.feed_target();
    pair.commands.pop().expect("the command has arrived")
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [direction, digests, order_name] = &args[..] else { return ExitCode::from(2) };
    let Some(order) = order(order_name) else { return ExitCode::from(2) };
    let digests = match digests.as_str() {
        "plain" => false,
        "digests" => true,
        _ => return ExitCode::from(2),
    };
    let pool = Pool::new(4 * LEN);
    let buffer = || pool.take(LEN).expect("the pool is large enough");
    let any_order = Offer {
        recv_data_segment_len: PDU_LEN as u32,
        initial_r2t: true,
        immediate_data: false,
        data_pdu_in_order: false,
        data_sequence_in_order: false,
        ..Offer::default()
    };
    let mut pair = Pair::logged_in(&any_order, digests);
    let now = pair.now;
    match direction.as_str() {
        "write" => {
            let task = submit(&mut pair, command(None, Some(buffer()))).task;
            pair.connection().want_data(task, buffer());
            pair.feed_initiator();
            let bytes = reorder(&pair.initiator_output(), digests, &order);
            let event = counted_write(pair.target(), &bytes, now);
            assert!(matches!(black_box(&event), Some(iscsi_target::Event::DataOut { .. })), "{event:?}");
        }
        "read" => {
            let task = submit(&mut pair, command(Some(buffer()), None)).task;
            pair.target().complete((), task, Response { data_in: buffer().into(), ..Response::default() });
            let bytes = reorder(&pair.target_output(), digests, &order);
            let event = counted_read(&mut pair.session, pair.cid, &bytes, now);
            assert!(matches!(black_box(&event), Some(iscsi_initiator::Event::Completed { .. })), "{event:?}");
        }
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}
