//! Tasks that are aborted together while their data is under way (RFC 7143 sections 4.2.3.3 to 4.2.3.5, 11.9.1 and 13.23).

use lunette_pdu::{AsyncEvent, LunField, NopOut, R2t, SerialNumber, TargetTransferTag};
use lunette_session::iscsi_target::Response;

use crate::harness::{Peer, Setup, command, nop_out, write};

const ELSEWHERE: LunField = LunField([0, 9, 0, 0, 0, 0, 0, 0]);

/// A write that was aborted and has an R2T outstanding.
fn aborted(task_reporting: &'static str) -> (Peer, R2t, LunField) {
    let keys = [("InitialR2T", "Yes"), ("TaskReporting", task_reporting)];
    let mut peer = Peer::logged_in(Setup::keys(&keys)).manual();
    peer.command(write(1, 4096), &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 4096);
    let (r2t, _) = peer.r2t();
    assert!(!peer.driver.act(|c| c.owes_data(None)), "it is alive");
    peer.driver.act(|c| c.abort(task));
    (peer, r2t, command(1).lun)
}

fn acknowledgement(lun: LunField) -> NopOut {
    let reserved = lunette_pdu::InitiatorTaskTag::RESERVED;
    NopOut { lun, itt: reserved, ttt: TargetTransferTag::RESERVED, ..nop_out(0) }
}

#[test]
fn data_of_aborted_tasks_is_owed_until_it_has_come() {
    let (mut peer, r2t, lun) = aborted("RFC3720");
    let owes = |peer: &Peer| [None, Some(lun), Some(ELSEWHERE)].map(|lun| peer.driver.act(|c| c.owes_data(lun)));
    assert_eq!(owes(&peer), [true, true, false]);
    peer.answer(&r2t, &[0; 4096], 1024);
    assert_eq!(owes(&peer), [false; 3]);
}

#[test]
fn news_of_ended_tasks_are_for_sessions_with_fast_abort() {
    for task_reporting in ["RFC3720", "ResponseFence"] {
        let (mut peer, _, lun) = aborted(task_reporting);
        peer.driver.act(|c| c.tasks_terminated(lun, peer.cmd_sn));
        peer.silence();
    }
}

#[test]
fn data_is_let_go_of_when_the_news_is_acknowledged() {
    let (mut peer, r2t, lun) = aborted("FastAbort");
    let before = peer.cmd_sn;
    peer.command(command(9), &[]);
    peer.driver.act(|c| c.tasks_terminated(lun, before));
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
    assert!(peer.driver.act(|c| c.owes_data(Some(lun))));
    peer.nop_out(acknowledgement(lun), &[]);
    assert!(!peer.driver.act(|c| c.owes_data(Some(lun))));
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
        peer.driver.act(|c| c.tasks_terminated(lun, peer.cmd_sn));
    }
    let first = peer.async_message().0;
    peer.rest();
    let early = NopOut { cmd_sn: peer.cmd_sn, exp_stat_sn: first.stat_sn.next(), ..acknowledgement(lun) };
    peer.send(early.emit(), &[]);
    assert!(peer.driver.act(|c| c.owes_data(None)));
    let late = NopOut { exp_stat_sn: SerialNumber(first.stat_sn.0.wrapping_add(1000)), ..early };
    peer.send(late.emit(), &[]);
    assert!(!peer.driver.act(|c| c.owes_data(None)));
}

#[test]
fn data_can_be_let_go_of_at_once() {
    let (mut peer, r2t, lun) = aborted("FastAbort");
    peer.driver.act(|c| c.forget_data(Some(ELSEWHERE)));
    assert!(peer.driver.act(|c| c.owes_data(None)));
    peer.driver.act(|c| c.forget_data(Some(lun)));
    assert!(!peer.driver.act(|c| c.owes_data(None)));
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
    peer.driver.act(|c| c.complete(task, Response::default()));
    peer.silence();
    peer.driver.act(|c| c.tasks_terminated(command(1).lun, peer.cmd_sn));
    assert_eq!(peer.async_message().0.event, AsyncEvent::TASK_TERMINATION);
    peer.answer(&r2t, &[0; 4096], 1024);
    peer.silence();
}
