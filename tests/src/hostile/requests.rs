//! Requests other than commands, as a hostile initiator sends them.

use lunette_pdu::{
    Cid, InitiatorTaskTag, LogoutReason, LogoutRequest, NopOut, SerialNumber, SnackRequest, SnackType,
    TargetTransferTag, TaskManagementFunction, TaskManagementRequest, TextRequest,
};
use lunette_testkit::requests;

use super::commands::{draw_lun, some_transfer_tag};
use super::dice::Dice;
use super::initiator::Walk;

/// All functions, and one that does not exist. Those that reset everything are rarer.
const FUNCTIONS: [u8; 20] = [1, 1, 1, 2, 2, 2, 2, 3, 4, 4, 5, 5, 6, 8, 8, 9, 10, 11, 12, 13];

pub(super) fn task_management(walk: &mut Walk) -> String {
    let Some((session, at, dice)) = walk.connection() else { return "no connection".into() };
    let immediate = dice.one_in(2);
    let function = if dice.mishap(60) { 7 } else { dice.pick(&FUNCTIONS) };
    let referenced = (!session.tasks.is_empty() && !dice.one_in(4))
        .then(|| session.tasks[dice.below(session.tasks.len())])
        .map_or((session.some_tag(dice), SerialNumber(dice.word()), draw_lun(dice)), |t| (t.itt, t.cmd_sn, t.lun));
    let request = TaskManagementRequest {
        immediate,
        lun: if dice.one_in(3) { draw_lun(dice) } else { referenced.2 },
        itt: session.new_tag(dice),
        referenced_task_tag: referenced.0,
        cmd_sn: session.number(dice, immediate),
        exp_stat_sn: session.connections[at].exp_stat_sn(dice),
        ref_cmd_sn: if dice.mishap(6) { SerialNumber(dice.word()) } else { referenced.1 },
        exp_data_sn: if dice.mishap(4) { dice.word() } else { 0 },
        ..requests::task_management(0, TaskManagementFunction(function))
    };
    let cid = session.connections[at].cid;
    let sent = session.send(at, &request.emit(), &[]);
    format!("on {cid}: {request:?} {sent:?}")
}

pub(super) fn snack(walk: &mut Walk) -> String {
    let Some((session, at, dice)) = walk.connection() else { return "no connection".into() };
    let small = |dice: &mut Dice| if dice.one_in(4) { dice.word() } else { dice.word() % 8 };
    let request = SnackRequest {
        lun: draw_lun(dice),
        ttt: some_transfer_tag(dice),
        exp_stat_sn: session.connections[at].exp_stat_sn(dice),
        beg_run: small(dice),
        run_length: small(dice),
        ..requests::snack(session.some_tag(dice), SnackType(dice.below(5) as u8))
    };
    let cid = session.connections[at].cid;
    let sent = session.send(at, &request.emit(), &[]);
    format!("on {cid}: {request:?} {sent:?}")
}

/// Sends a ping, or an answer to one, right or wrong.
pub(super) fn nop_out(walk: &mut Walk) -> String {
    let Some((session, at, dice)) = walk.connection() else { return "no connection".into() };
    let immediate = dice.one_in(2);
    let answered = if session.pings.is_empty() || dice.one_in(2) { None } else { session.pings.pop() };
    let (itt, ttt) = match answered {
        Some((_, ttt)) => (InitiatorTaskTag::RESERVED, ttt),
        None if dice.mishap(6) => (InitiatorTaskTag::RESERVED, TargetTransferTag(dice.word())),
        None => (session.new_tag(dice), TargetTransferTag::RESERVED),
    };
    let data = vec![0x55; dice.pick(&[0, 0, 4, 8192, 8192])];
    let request = NopOut {
        immediate,
        itt,
        ttt,
        cmd_sn: session.number(dice, immediate),
        exp_stat_sn: session.connections[at].exp_stat_sn(dice),
        data_segment_len: data.len(),
        ..requests::nop_out(0)
    };
    let cid = session.connections[at].cid;
    let sent = session.send(at, &request.emit(), &data);
    format!("on {cid}: {request:?} {sent:?}")
}

const TEXTS: &[&str] = &[
    "SendTargets=\0",
    "SendTargets=All\0",
    "SendTargets=iqn.2026-11.org.example:shared\0",
    "SendTar",
    "gets=\0",
    "",
    "MaxRecvDataSegmentLength=512\0",
    "MaxRecvDataSegmentLength=65536\0",
    "MaxConnections=1\0",
    "HeaderDigest=CRC32C\0",
    "X-org.example.hostile=1\0",
    "\0\0\0",
    "=\0",
];

pub(super) fn text(walk: &mut Walk) -> String {
    let Some((session, at, dice)) = walk.connection() else { return "no connection".into() };
    let (immediate, continue_) = (dice.one_in(3), dice.one_in(4));
    let text = dice.pick(TEXTS).repeat(dice.pick(&[1, 1, 1, 100]));
    let request = TextRequest {
        immediate,
        final_: !continue_ && !dice.one_in(4),
        continue_,
        itt: if dice.one_in(3) { InitiatorTaskTag(0x7e7e) } else { session.new_tag(dice) },
        ttt: some_transfer_tag(dice),
        cmd_sn: session.number(dice, immediate),
        exp_stat_sn: session.connections[at].exp_stat_sn(dice),
        data_segment_len: text.len(),
        ..requests::text(0)
    };
    let cid = session.connections[at].cid;
    let sent = session.send(at, &request.emit(), text.as_bytes());
    format!("on {cid}: {request:?} {sent:?}")
}

/// Logs out the session, this connection or another one. What the target closes is still used for a while.
pub(super) fn logout(walk: &mut Walk) -> String {
    let Some((session, at, dice)) = walk.connection() else { return "no connection".into() };
    let immediate = dice.one_in(2);
    let other = session.connections[dice.below(session.connections.len())].cid;
    let request = LogoutRequest {
        immediate,
        reason: LogoutReason(dice.pick(&[0, 1, 1, 1, 2, 2, 2, 3])),
        itt: session.new_tag(dice),
        cid: if dice.mishap(5) { Cid(dice.word() as u16 % 10) } else { other },
        cmd_sn: session.number(dice, immediate),
        exp_stat_sn: session.connections[at].exp_stat_sn(dice),
    };
    let cid = session.connections[at].cid;
    let sent = session.send(at, &request.emit(), &[]);
    format!("on {cid}: {request:?} {sent:?}")
}
