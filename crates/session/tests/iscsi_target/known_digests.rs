//! Data digests that the driver knows: they are sent as they are, and data that they are wrong for is not sent again.

use std::sync::OnceLock;

use lunette_buffer::Payload;
use lunette_crc32c::crc32c;
use lunette_pdu::{
    InitiatorTaskTag, LunField, RejectReason, SerialNumber, SnackRequest, SnackType, TargetPdu, TargetTransferTag,
};
use lunette_session::iscsi_target::{KnownDigests, Response};
use lunette_session::keys::Offer;
use lunette_session::limits::ASK_RETAINED_BYTES;

use crate::harness::{Peer, Setup, pattern, read, text, text_request};

const BLOCK: usize = 576;

/// The digest of the bytes.
fn right(_: u32, _: u64, segment: &Payload) -> u32 {
    crc32c(&segment.to_vec())
}

/// Tells what it was asked.
fn wrong(block_len: u32, first_block: u64, segment: &Payload) -> u32 {
    block_len << 16 | (first_block as u32) << 8 | (segment.len() / BLOCK) as u32
}

fn known(crc32c: fn(u32, u64, &Payload) -> u32) -> KnownDigests {
    KnownDigests { block_len: BLOCK as u32, first_block: 40, crc32c }
}

/// Reads `announced` bytes of ten blocks. Gives the lengths and digests of the data segments.
fn read_ten(peer: &mut Peer, announced: usize, digests: KnownDigests) -> Vec<(usize, u32)> {
    peer.command(read(1, announced as u32), &[]);
    let task = peer.driver.commands.last().unwrap().task;
    let response = Response { digests: Some(digests), ..peer.driver.read_response(10 * BLOCK) };
    peer.driver.complete(task, response);
    let mut wire = peer.driver.take_output(1000);
    let (mut segments, mut data) = (Vec::new(), Vec::new());
    while let Some((frame, len)) = peer.checker.format.first(&wire) {
        let digest = u32::from_le_bytes(*wire[..len].last_chunk().unwrap());
        wire.drain(..len);
        segments.push((frame.data.len(), digest));
        data.extend(frame.data);
    }
    assert_eq!(data, pattern(10 * BLOCK)[..announced]);
    segments
}

fn session(keys: &[(&'static str, &'static str)]) -> Peer {
    session_with("2048", keys)
}

fn session_with(segment_len: &'static str, keys: &[(&'static str, &'static str)]) -> Peer {
    let offer = Offer { error_recovery_level: 2, ..Offer::default() };
    let small = [("MaxRecvDataSegmentLength", segment_len), ("MaxBurstLength", "4500")];
    Peer::logged_in(Setup { offer, ..Setup::keys(&[&small, keys].concat()) }).manual()
}

#[test]
fn segments_end_with_blocks_and_carry_the_digests_that_are_known() {
    let told = |blocks: usize, first: u32| {
        (blocks * BLOCK, wrong(BLOCK as u32, u64::from(first), &pattern(blocks * BLOCK).into()))
    };
    let mut peer = session(&[("DataDigest", "CRC32C")]);
    // A burst has seven blocks.
    let expected = [told(3, 40), told(3, 43), told(1, 46), told(3, 47)];
    assert_eq!(read_ten(&mut peer, 10 * BLOCK, known(wrong)), expected);
}

#[test]
fn segments_end_with_blocks_that_should_stay_whole() {
    let mut peer = session(&[]);
    peer.command(read(1, 10 * BLOCK as u32), &[]);
    let task = peer.driver.commands.last().unwrap().task;
    let response = Response { block_len: BLOCK as u16, ..peer.driver.read_response(10 * BLOCK) };
    peer.driver.complete(task, response);
    let segments: Vec<Vec<u8>> = peer.rest().into_iter().map(|pdu| pdu.data).collect();
    // A segment takes 2,048 bytes, and a burst 4,500.
    assert_eq!(segments.iter().map(|data| data.len() / BLOCK).collect::<Vec<_>>(), [3, 3, 1, 3]);
    assert_eq!(segments.concat(), pattern(10 * BLOCK));
}

#[test]
fn the_rest_of_a_block_is_digested_here() {
    let mut peer = session(&[("DataDigest", "CRC32C")]);
    let segments = read_ten(&mut peer, 5 * BLOCK + 6, known(wrong));
    assert_eq!(segments.iter().map(|(len, _)| *len).collect::<Vec<_>>(), [3 * BLOCK, 2 * BLOCK + 6]);
    let last = [&pattern(5 * BLOCK + 6)[3 * BLOCK..], &[0; 2]].concat();
    assert_eq!(segments[1].1, crc32c(&last));
}

#[test]
fn without_digests_or_room_for_a_block_data_is_cut_as_ever() {
    let mut plain = session(&[]);
    let lens = |segments: Vec<(usize, u32)>| segments.into_iter().map(|(len, _)| len).collect::<Vec<_>>();
    assert_eq!(lens(read_ten(&mut plain, 10 * BLOCK, known(wrong))), [2048, 2048, 404, 1260]);
    let mut narrow = session_with("512", &[("DataDigest", "CRC32C")]);
    let segments = read_ten(&mut narrow, 10 * BLOCK, known(wrong));
    assert_eq!((segments.len(), segments[0]), (12, (512, crc32c(&pattern(512)))));
}

/// A request about all data of a task.
fn request(peer: &Peer, snack_type: SnackType) -> SnackRequest {
    SnackRequest {
        snack_type,
        lun: LunField([0; 8]),
        itt: InitiatorTaskTag(1),
        ttt: if snack_type == SnackType::R_DATA { TargetTransferTag(7) } else { TargetTransferTag::RESERVED },
        exp_stat_sn: peer.checker.stat_sn.unwrap_or(SerialNumber(0)),
        beg_run: 0,
        run_length: 0,
    }
}

/// Asks for all data of a task again.
fn snack(peer: &mut Peer, snack_type: SnackType) {
    peer.checker.strict = false;
    peer.send(request(peer, snack_type).emit(), &[]);
}

#[test]
fn damaged_data_is_not_sent_again_and_the_driver_learns_of_it() {
    for snack_type in [SnackType::DATA_R2T, SnackType::R_DATA] {
        for (digest, is_damaged) in [(right as fn(u32, u64, &Payload) -> u32, false), (wrong, true)] {
            let mut peer = session(&[("DataDigest", "CRC32C"), ("ErrorRecoveryLevel", "1")]);
            peer.holds_back = peer.checker.stat_sn;
            let sent = read_ten(&mut peer, 10 * BLOCK, known(digest));
            snack(&mut peer, snack_type);
            if is_damaged {
                assert_eq!(peer.reject().0.reason, RejectReason::SNACK_REJECT);
            } else {
                let again = peer.rest();
                let lens = again.iter().map(|got| got.data.len()).filter(|len| *len > 0);
                assert!(lens.eq(sent.iter().map(|(len, _)| *len)), "{again:?}");
            }
            assert_eq!(peer.driver.data_damaged, usize::from(is_damaged));
            assert_eq!(peer.driver.closed, None);
        }
    }
}

/// The digest of whole blocks of the pattern, from one of them on: what a unit has stored, whatever the segment holds.
fn stored(block_len: u32, first_block: u64, segment: &Payload) -> u32 {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| pattern(2 * ASK_RETAINED_BYTES));
    let from = (first_block - 40) as usize * block_len as usize;
    crc32c(&bytes[from..from + segment.len()])
}

/// Data that was acknowledged may end within a block: segments were shorter than a block when it was cut. Blocks then
/// lie across segments.
#[test]
fn what_is_cut_anew_within_a_block_is_digested_here() {
    let mut peer = session_with("512", &[("DataDigest", "CRC32C"), ("ErrorRecoveryLevel", "1")]);
    peer.checker.strict = false;
    peer.holds_back = peer.checker.stat_sn;
    let len = (ASK_RETAINED_BYTES / BLOCK + 1) * BLOCK;
    peer.command(read(1, len as u32), &[]);
    let task = peer.driver.commands.last().unwrap().task;
    let response = Response { digests: Some(known(stored)), ..peer.driver.read_response(len) };
    peer.driver.complete(task, response);
    let data_in = |peer: &mut Peer| {
        let pdus = peer.rest().into_iter().filter_map(|got| match got.pdu {
            TargetPdu::DataIn(pdu) => Some(pdu),
            _ => None,
        });
        pdus.collect::<Vec<_>>()
    };
    let asks = data_in(&mut peer).into_iter().find(|pdu| pdu.acknowledge).unwrap();
    let end = asks.buffer_offset as usize + asks.data_segment_len;
    assert!(!end.is_multiple_of(BLOCK));
    let ack =
        SnackRequest { ttt: asks.ttt, lun: asks.lun, beg_run: asks.data_sn + 1, ..request(&peer, SnackType::DATA_ACK) };
    peer.send(ack.emit(), &[]);
    peer.text(text_request(2), &text(&[("MaxRecvDataSegmentLength", "2048")]));
    peer.checker.max_segment_len = 2048;
    peer.rest();
    snack(&mut peer, SnackType::R_DATA);
    let again = data_in(&mut peer);
    assert_eq!((again[0].buffer_offset as usize, peer.driver.data_damaged), (end, 0));
}
