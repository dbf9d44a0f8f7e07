//! SCSI commands and their data, as a hostile initiator sends them.

use lunette_pdu::{DataOut, InitiatorTaskTag, LunField, R2t, ScsiCommand, TargetTransferTag, TaskAttribute};
use lunette_testkit::requests::{self, cdb};

use super::dice::Dice;
use super::initiator::Walk;
use super::session::Task;
use super::wire::Sent;

const BLOCK_LEN: usize = 512;

/// Lengths of a transfer in blocks: up to 8 MiB.
const BLOCKS: [usize; 8] = [1, 1, 8, 8, 128, 512, 2048, 16384];

/// Zeroes for the data of any PDU.
static DATA: [u8; MAX_SEGMENT_LEN] = [0; MAX_SEGMENT_LEN];

/// The longest data segment that is sent: a little more than the target takes.
const MAX_SEGMENT_LEN: usize = (256 << 10) + 512;

const SEGMENT_LENS: [usize; 6] = [512, 4096, 8192, 65536, 256 << 10, MAX_SEGMENT_LEN];

/// Task attributes. Most commands are SIMPLE.
const ATTRIBUTES: [TaskAttribute; 8] = [
    TaskAttribute::SIMPLE,
    TaskAttribute::SIMPLE,
    TaskAttribute::SIMPLE,
    TaskAttribute::ORDERED,
    TaskAttribute::ORDERED,
    TaskAttribute::HEAD_OF_QUEUE,
    TaskAttribute::ACA,
    TaskAttribute::UNTAGGED,
];

pub(super) fn draw_lun(dice: &mut Dice) -> LunField {
    let number = if dice.mishap(12) { dice.pick(&[3, 16_383]) } else { dice.pick(&[0, 0, 0, 0, 1, 1, 2]) };
    if dice.mishap(50) {
        return LunField(dice.next().to_be_bytes());
    }
    requests::lun(number)
}

/// The parts of a command that its header does not hold.
struct Draft {
    cdb: [u8; 16],
    /// The bytes that it moves, and whether they go to the target.
    len: usize,
    write: bool,
    /// The logical unit; any when not set.
    lun: Option<u16>,
}

fn read_or_write(dice: &mut Dice, write: bool) -> Draft {
    let blocks = dice.pick(&BLOCKS);
    let lba = if dice.mishap(20) { dice.word() } else { dice.below(16_000) as u32 };
    let (opcode, [a, b, c, d], [high, low]) =
        (if write { 0x2a } else { 0x28 }, lba.to_be_bytes(), (blocks as u16).to_be_bytes());
    Draft { cdb: cdb(&[opcode, 0, a, b, c, d, 0, high, low, 0]), len: blocks * BLOCK_LEN, write, lun: None }
}

/// Commands that are neither reads nor writes: their CDB, the bytes they move, and whether these go to the target.
const OTHERS: &[(&[u8], usize, bool)] = &[
    (&[0x00], 0, false),
    (&[0x12, 0, 0, 1, 0], 256, false),
    (&[0x12, 1, 0x83, 1, 0], 256, false),
    (&[0x03, 0, 0, 0, 252], 252, false),
    (&[0xa0, 0, 0, 0, 0, 0, 0, 0, 16, 0], 4096, false),
    (&[0x25], 8, false),
    (&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32], 32, false),
    (&[0x1a, 0, 0x3f, 0, 255], 255, false),
    (&[0x35], 0, false),
    (&[0x42, 0, 0, 0, 0, 0, 0, 0, 24], 24, true),
    (&[0x93, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], 512, true),
    (&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 1024, true),
    (&[0x2f, 2, 0, 0, 0, 0, 0, 0, 8], 4096, true),
    (&[0x55, 0x10, 0, 0, 0, 0, 0, 0, 24], 24, true),
    (&[0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], 256, true),
    (&[0xa3, 0x0c, 0, 0, 0, 0, 0, 1, 0, 0], 65536, false),
    (&[0x48, 1, 0, 0, 0, 0, 0, 0, 8], 8, true),
];

fn other(dice: &mut Dice) -> Draft {
    if dice.one_in(6) {
        let bytes = dice.bytes(16);
        return Draft { cdb: cdb(&bytes), len: dice.below(70_000), write: dice.one_in(2), lun: None };
    }
    let (bytes, len, write) = dice.pick(OTHERS);
    Draft { cdb: cdb(bytes), len, write, lun: None }
}

/// Sends TEST UNIT READY to all logical units: a new session gets a unit attention from each instead of its first
/// answer.
pub(super) fn take_attentions(walk: &mut Walk) -> String {
    let Some((session, at, dice)) = walk.connection() else { return "no connection".into() };
    for lun in 0..3 {
        let command = ScsiCommand {
            lun: requests::lun(lun),
            itt: session.new_tag(dice),
            cmd_sn: session.number(dice, false),
            exp_stat_sn: session.connections[at].exp_stat_sn(dice),
            ..requests::command(0)
        };
        if session.send(at, &command.emit(), &[]) != Sent::All {
            break;
        }
    }
    String::new()
}

/// Starts commands that hold buffers as long as their connection lives: writes whose data does not come, or reads whose
/// data is not taken. Long ones fill most of the buffers, shorter ones the gaps between them.
pub(super) fn hold(walk: &mut Walk) -> String {
    let write = walk.dice.one_in(2);
    let opcode = if write { 0x2a } else { 0x28 };
    let blocks: u16 = if walk.dice.one_in(2) { 0x4000 } else { 0x4000 >> walk.dice.below(12) };
    let [high, low] = blocks.to_be_bytes();
    let len = usize::from(blocks) * 512;
    let draft = Draft { cdb: cdb(&[opcode, 0, 0, 0, 0, 0, 0, high, low, 0]), len, write, lun: Some(0) };
    let told = (0..=walk.dice.below(8)).map(|_| send_command(walk, &draft, None)).collect();
    let Some((session, at, _)) = walk.connection() else { return told };
    session.connections[at].is_deaf = !write;
    told
}

/// Sends any command, with any part of its data.
pub(super) fn command(walk: &mut Walk) -> String {
    let draft = match walk.dice.below(8) {
        0..=3 => read_or_write(&mut walk.dice, true),
        4..=5 => read_or_write(&mut walk.dice, false),
        _ => other(&mut walk.dice),
    };
    send_command(walk, &draft, None)
}

/// Sends PERSISTENT RESERVE IN or OUT: registrations, reservations, and PREEMPT AND ABORT.
pub(super) fn reservation(walk: &mut Walk) -> String {
    let dice = &mut walk.dice;
    // Rarely on the unit where other walks hold buffers: registrations outlive their session, and would end everything
    // later.
    let lun = Some(if dice.one_in(40) { 0 } else { dice.pick(&[1, 2, 2, 2]) });
    if dice.one_in(4) {
        let draft = Draft { cdb: cdb(&[0x5e, dice.below(4) as u8, 0, 0, 0, 0, 0, 1, 0]), len: 256, write: false, lun };
        return send_command(walk, &draft, None);
    }
    let (action, scope) = (dice.pick(&[0, 1, 2, 3, 4, 5, 5, 6]), dice.pick(&[1, 3, 5, 6, 7, 8]));
    let mut list = [0; 24];
    // There are few keys, so that registrations collide.
    (list[7], list[15]) = (dice.below(3) as u8, dice.below(3) as u8);
    let draft = Draft { cdb: cdb(&[0x5f, action, scope, 0, 0, 0, 0, 0, 24]), len: 24, write: true, lun };
    send_command(walk, &draft, Some(&list))
}

fn send_command(walk: &mut Walk, draft: &Draft, list: Option<&[u8]>) -> String {
    let Some((session, at, dice)) = walk.connection() else { return "no connection".into() };
    let immediate = dice.one_in(12);
    let in_segment = match list {
        Some(list) => list.len(),
        None if draft.write && dice.one_in(2) => draft.len.min(dice.pick(&SEGMENT_LENS[..5])),
        None => 0,
    };
    let expected = if dice.mishap(16) {
        dice.pick(&[0, draft.len as u32 / 2, draft.len as u32 + 512, u32::MAX])
    } else {
        draft.len as u32
    };
    let itt = session.new_tag(dice);
    let command = ScsiCommand {
        immediate,
        final_: !dice.mishap(6),
        read: !draft.write && draft.len > 0,
        write: draft.write,
        attr: dice.pick(&ATTRIBUTES),
        lun: draft.lun.map_or_else(|| draw_lun(dice), requests::lun),
        expected_data_transfer_length: expected,
        cmd_sn: session.number(dice, immediate),
        exp_stat_sn: session.connections[at].exp_stat_sn(dice),
        cdb: draft.cdb,
        data_segment_len: in_segment,
        ..requests::command(itt.0)
    };
    session.remember(Task { itt, cmd_sn: command.cmd_sn, lun: command.lun });
    let cid = session.connections[at].cid;
    let mut bytes = session.connections[at].wire.encode(&command.emit(), list.unwrap_or(&DATA[..in_segment]));
    let stops = in_segment > 0 && dice.mishap(20);
    if stops {
        bytes.truncate(48 + dice.below(in_segment));
    }
    let sent = session.send_bytes(at, &bytes);
    if sent == Sent::All && !stops && !command.final_ && draft.write {
        unsolicited(walk, &command, in_segment);
    }
    format!("on {cid}: {command:?} {sent:?}, stops: {stops}")
}

/// Sends unsolicited Data-Out, some or all of what is allowed.
fn unsolicited(walk: &mut Walk, command: &ScsiCommand, start: usize) {
    let at_most = 256 << 10;
    let end = (command.expected_data_transfer_length as usize).min(at_most).max(start);
    let as_r2t = R2t {
        lun: command.lun,
        itt: command.itt,
        ttt: TargetTransferTag::RESERVED,
        stat_sn: command.exp_stat_sn,
        exp_cmd_sn: command.cmd_sn,
        max_cmd_sn: command.cmd_sn,
        r2t_sn: 0,
        buffer_offset: start as u32,
        desired_data_transfer_length: (end - start) as u32,
    };
    if let Some((_, at, _)) = walk.connection() {
        send_data(walk, at, &as_r2t);
    }
}

/// Sends data for an R2T that has arrived.
pub(super) fn answer_r2t(walk: &mut Walk) -> String {
    let Some((session, _, dice)) = walk.connection() else { return "no connection".into() };
    if session.r2ts.is_empty() {
        return "no R2T".into();
    }
    let (cid, r2t) = session.r2ts.swap_remove(dice.below(session.r2ts.len()));
    let at = session.find(cid, dice);
    send_data(walk, at, &r2t)
}

/// A target transfer tag: the reserved one, or one that may exist.
pub(super) fn some_transfer_tag(dice: &mut Dice) -> TargetTransferTag {
    if dice.one_in(2) { TargetTransferTag::RESERVED } else { TargetTransferTag(dice.word() % 8) }
}

/// Sends data for an R2T that never came.
pub(super) fn stray_data(walk: &mut Walk) -> String {
    let Some((session, at, dice)) = walk.connection() else { return "no connection".into() };
    let r2t = R2t {
        lun: draw_lun(dice),
        itt: session.some_tag(dice),
        ttt: some_transfer_tag(dice),
        stat_sn: session.cmd_sn,
        exp_cmd_sn: session.cmd_sn,
        max_cmd_sn: session.cmd_sn,
        r2t_sn: 0,
        buffer_offset: dice.word() % 4096,
        desired_data_transfer_length: dice.word() % 65_536,
    };
    send_data(walk, at, &r2t)
}

/// The fault in the data of a sequence. Half of all sequences have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    Stops,
    StopsInsideOfAPdu,
    Offset,
    TransferTag,
    TaskTag,
    DataSn,
    EarlyFinal,
    TooMuch,
    Digest,
}

const FLAWS: [Flaw; 18] = [
    Flaw::None,
    Flaw::None,
    Flaw::None,
    Flaw::None,
    Flaw::None,
    Flaw::None,
    Flaw::None,
    Flaw::None,
    Flaw::None,
    Flaw::Stops,
    Flaw::StopsInsideOfAPdu,
    Flaw::Offset,
    Flaw::TransferTag,
    Flaw::TaskTag,
    Flaw::DataSn,
    Flaw::EarlyFinal,
    Flaw::TooMuch,
    Flaw::Digest,
];

fn send_data(walk: &mut Walk, at: usize, r2t: &R2t) -> String {
    let (session, dice) = walk.session();
    let flaw = if dice.is_polite { Flaw::None } else { dice.pick(&FLAWS) };
    let piece_len = dice.pick(&SEGMENT_LENS[1..5]);
    let wanted = r2t.desired_data_transfer_length as usize + if flaw == Flaw::TooMuch { 4096 } else { 0 };
    let count = wanted.div_ceil(piece_len).clamp(1, 4096);
    let flawed = dice.below(count);
    for index in 0..count {
        let here = index == flawed;
        if here && flaw == Flaw::Stops {
            break;
        }
        let len = wanted.saturating_sub(index * piece_len).min(piece_len);
        let when = |is: Flaw, wrong: u32, right: u32| if here && flaw == is { wrong } else { right };
        let offset = r2t.buffer_offset.wrapping_add((index * piece_len) as u32);
        let pdu = DataOut {
            final_: index + 1 == count || (here && flaw == Flaw::EarlyFinal),
            lun: r2t.lun,
            itt: InitiatorTaskTag(when(Flaw::TaskTag, dice.word(), r2t.itt.0)),
            ttt: TargetTransferTag(when(Flaw::TransferTag, dice.word(), r2t.ttt.0)),
            exp_stat_sn: session.connections[at].exp_stat_sn(dice),
            data_sn: when(Flaw::DataSn, dice.word(), index as u32),
            buffer_offset: when(Flaw::Offset, dice.word(), offset),
            data_segment_len: len,
        };
        let mut bytes = session.connections[at].wire.encode(&pdu.emit(), &DATA[..len]);
        if here && flaw == Flaw::Digest {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
        }
        if here && flaw == Flaw::StopsInsideOfAPdu {
            bytes.truncate(dice.below(bytes.len()));
        }
        if session.send_bytes(at, &bytes) != Sent::All || (here && flaw == Flaw::StopsInsideOfAPdu) {
            break;
        }
    }
    format!("{} bytes at {} for {:?} {:?}, flaw: {flaw:?}", wanted, r2t.buffer_offset, r2t.itt, r2t.ttt)
}
