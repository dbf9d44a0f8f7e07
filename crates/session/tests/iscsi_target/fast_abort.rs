//! Tasks that are aborted together while their data is under way (RFC 7143 sections 4.2.3.3 to 4.2.3.5, 11.9.1 and
//! 13.23).

use lunette_pdu::{
    AsyncEvent, LunField, NopOut, R2t, SerialNumber, TargetTransferTag, TaskManagementFunction as Function,
    TaskManagementRequest,
};
use lunette_session::iscsi_target::{Command, Response};

use crate::harness::{Peer, Setup, command, nop_out, task_management, write};

const ELSEWHERE: LunField = LunField([0, 9, 0, 0, 0, 0, 0, 0]);

/// A write that has an R2T outstanding.
fn writing(task_reporting: &'static str) -> (Peer, R2t) {
    let keys = [("InitialR2T", "Yes"), ("TaskReporting", task_reporting)];
    let mut peer = Peer::logged_in(Setup::keys(&keys)).manual();
    peer.command(write(1, 4096), &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 4096);
    let (r2t, _) = peer.r2t();
    (peer, r2t)
}

/// A peer with an R2T whose command was aborted.
fn aborted(task_reporting: &'static str) -> (Peer, R2t, LunField) {
    let (peer, r2t) = writing(task_reporting);
    let Command { task, lun, .. } = peer.driver.commands[0];
    peer.driver.act(|c| c.abort(task));
    (peer, r2t, lun)
}

/// Tasks of a logical unit were ended by a function that came another way.
fn tell(peer: &mut Peer, lun: LunField, before: SerialNumber) {
    peer.driver.in_session(|session, handle| session.tasks_terminated(handle, None, lun, before));
}

/// Tells all tasks so far.
fn tell_all(peer: &mut Peer, lun: LunField) {
    let before = peer.cmd_sn;
    tell(peer, lun, before);
}

/// Whether the answer to a function that ends the tasks of a logical unit, or all, waits for data.
fn waits(mut peer: Peer, lun: Option<LunField>) -> bool {
    let function = lun.map_or(Function::TARGET_WARM_RESET, |_| Function::ABORT_TASK_SET);
    let request = task_management(90, function);
    peer.task_management(TaskManagementRequest { lun: lun.unwrap_or(request.lun), ..request });
    peer.driver.done(request.itt);
    peer.rest().is_empty()
}

/// Whether the aborted task still has its place, which it keeps until its data has come or is let go of.
fn has_place(peer: &mut Peer) -> bool {
    peer.command(command(77), &[]);
    let task = peer.driver.commands.pop().unwrap().task;
    peer.driver.complete(task, Response::default());
    peer.scsi_response();
    task.index() != peer.driver.commands[0].task.index()
}

fn acknowledgement(lun: LunField) -> NopOut {
    let reserved = lunette_pdu::InitiatorTaskTag::RESERVED;
    NopOut { lun, itt: reserved, ttt: TargetTransferTag::RESERVED, ..nop_out(0) }
}

#[test]
fn data_of_aborted_tasks_is_owed_until_it_has_come() {
    let lun = command(1).lun;
    for (of, is_owed) in [(None, true), (Some(lun), true), (Some(ELSEWHERE), false)] {
        assert!(!waits(writing("RFC3720").0, of), "it is alive");
        assert_eq!(waits(aborted("RFC3720").0, of), is_owed);
        let (mut peer, r2t, _) = aborted("RFC3720");
        peer.answer(&r2t, &[0; 4096], 1024);
        assert!(!waits(peer, of));
    }
}

#[test]
fn news_of_ended_tasks_are_for_sessions_with_fast_abort() {
    for task_reporting in ["RFC3720", "ResponseFence"] {
        let (mut peer, _, lun) = aborted(task_reporting);
        tell_all(&mut peer, lun);
        peer.silence();
    }
}

#[test]
fn data_is_let_go_of_when_the_news_is_acknowledged() {
    let (mut peer, r2t, lun) = aborted("FastAbort");
    let before = peer.cmd_sn;
    peer.command(command(9), &[]);
    tell(&mut peer, lun, before);
    peer.checker.exp_cmd_sn = None;
    let (message, _) = peer.async_message();
    assert_eq!(message.exp_cmd_sn, before, "the younger command goes on");
    peer.checker.exp_cmd_sn = None;
    assert_eq!((message.event, message.lun), (AsyncEvent::TASK_TERMINATION, lun));
    // One for another unit, and one that was sent before.
    peer.nop_out(acknowledgement(ELSEWHERE), &[]);
    let cmd_sn = peer.cmd_sn;
    let old = NopOut { cmd_sn, exp_stat_sn: message.stat_sn, ..acknowledgement(lun) };
    peer.send(old.emit(), &[]);
    assert!(has_place(&mut peer));
    peer.nop_out(acknowledgement(lun), &[]);
    assert!(!has_place(&mut peer));
    // What comes all the same is dropped.
    peer.answer(&r2t, &[0; 4096], 1024);
    peer.silence();
    // Its tag is free.
    peer.command(write(1, 4096), &[]);
    assert_eq!(peer.driver.commands.len(), 3);
}

#[test]
fn the_last_news_of_a_unit_covers_those_before() {
    let (mut peer, _, lun) = aborted("FastAbort");
    for _ in 0..1000 {
        tell_all(&mut peer, lun);
    }
    let first = peer.async_message().0;
    peer.rest();
    let early = NopOut { cmd_sn: peer.cmd_sn, exp_stat_sn: first.stat_sn.next(), ..acknowledgement(lun) };
    peer.send(early.emit(), &[]);
    assert!(has_place(&mut peer));
    let late = NopOut { exp_stat_sn: SerialNumber(first.stat_sn.0.wrapping_add(1000)), ..early };
    peer.send(late.emit(), &[]);
    assert!(!has_place(&mut peer));
}

#[test]
fn data_can_be_let_go_of_at_once() {
    let (mut peer, r2t, lun) = aborted("FastAbort");
    // The function came over this connection.
    let mut end = |lun| {
        let before = peer.cmd_sn;
        peer.driver.in_session(|session, handle| session.tasks_terminated(handle, Some(handle), lun, before));
        has_place(&mut peer)
    };
    assert!(end(ELSEWHERE));
    assert!(!end(lun));
    peer.answer(&r2t, &[0; 4096], 1024);
    peer.silence();
}

/// The initiator has ended the task when it has read the news, so a response would be one to a task that is gone.
#[test]
fn an_answer_that_waits_does_not_follow_the_news_of_its_task() {
    let keys = [("InitialR2T", "Yes"), ("TaskReporting", "FastAbort")];
    let mut peer = Peer::logged_in(Setup::keys(&keys)).manual();
    peer.command(write(1, 4096), &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 4096);
    let (r2t, _) = peer.r2t();
    // The answer waits for the data that was asked for.
    peer.driver.complete(task, Response::default());
    peer.silence();
    tell_all(&mut peer, command(1).lun);
    assert_eq!(peer.async_message().0.event, AsyncEvent::TASK_TERMINATION);
    peer.answer(&r2t, &[0; 4096], 1024);
    peer.silence();
}
