//! Recovery level 2: the loss of a connection costs no command (RFC 7143 sections 7.1.4.3, 7.2.2, 7.5 and 11.14).

mod connections;
mod refusals;
mod requests;

use std::time::Duration;

use lunette_pdu::{
    AsyncEvent, AsyncMessage, Cid, InitiatorPdu, InitiatorTaskTag, LogoutResponseCode, LunField, RejectReason,
    TargetTransferTag, TaskManagementFunction, TaskManagementResponseCode,
};
use lunette_session::Timers;
use lunette_session::iscsi_initiator::{Event, SessionError};
use lunette_session::limits::{MAX_REASSIGNMENTS, MAX_UNANSWERED_REQUESTS, RECOVERY_PAUSE};

use crate::harness::{LUN, ScriptedSession};

const COMPLETE: TaskManagementResponseCode = TaskManagementResponseCode::FUNCTION_COMPLETE;

/// Two connections, and a read that the target has begun to answer on the one that is lost then.
fn lost_read(received: u32) -> (ScriptedSession, usize, InitiatorTaskTag) {
    let mut peer = ScriptedSession::new(2, 0, 20);
    let (lost, _, command) = peer.read(32 << 10);
    peer.exp_cmd_sn = command.cmd_sn.next();
    for n in 0..received {
        peer.data_in(lost, command.itt, n, n * 8192, 8192, false);
    }
    peer.cut(lost);
    (peer, 1 - lost, command.itt)
}

#[test]
fn a_read_goes_on_where_it_stopped() {
    let (mut peer, other, itt) = lost_read(2);
    assert!(!peer.session.is_over());
    let logout = peer.logout(other);
    assert_ne!(logout.cid, Cid(u16::MAX));
    assert!(peer.is_silent(other), "no task is reassigned before the logout has succeeded");
    peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = peer.reassign(other);
    assert_eq!((reassign.referenced_task_tag, reassign.exp_data_sn), (itt, 2));
    assert_eq!(reassign.lun, LunField::default(), "RFC 7143 section 11.5.3");
    peer.answer_task_management(other, &reassign, COMPLETE);
    peer.data_in(other, itt, 2, 16384, 8192, false);
    peer.data_in(other, itt, 3, 24576, 8192, true);
    peer.completed();
    let recoveries = peer.session.recoveries();
    assert_eq!((recoveries.connections, recoveries.reassignments, recoveries.retries), (1, 1, 0));
}

#[test]
fn a_reset_by_others_leaves_the_end_of_a_task_to_the_answer_about_its_reassignment() {
    for (answer, ended_before) in [(COMPLETE, true), (TaskManagementResponseCode::TASK_DOES_NOT_EXIST, false)] {
        let mut peer = ScriptedSession::new(2, 0, 20);
        let (lost, _, command) = peer.read(32 << 10);
        peer.exp_cmd_sn = command.cmd_sn.next();
        peer.cut(lost);
        let other = 1 - lost;
        let logout = peer.logout(other);
        peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
        let reassign = peer.reassign(other);
        let message = AsyncMessage { lun: command.lun, ..peer.used(other).async_message(AsyncEvent::TASK_TERMINATION) };
        peer.send(other, message.emit(), &[]);
        assert!(matches!(peer.event(), Event::Async { .. }), "the task may have ended with a status before");
        let InitiatorPdu::NopOut(_) = peer.next(other).pdu else { panic!("no acknowledgement") };
        peer.answer_task_management(other, &reassign, answer);
        if ended_before {
            for n in 0..4 {
                peer.data_in(other, command.itt, n, n * 8192, 8192, n == 3);
            }
            peer.completed();
        } else {
            assert!(matches!(peer.event(), Event::Aborted(_)));
        }
        assert!(!peer.session.is_over());
    }
}

#[test]
fn the_target_may_begin_again() {
    for begin in [0, 1] {
        let (mut peer, other, itt) = lost_read(2);
        let logout = peer.logout(other);
        peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
        let reassign = peer.reassign(other);
        peer.answer_task_management(other, &reassign, COMPLETE);
        for n in begin..4 {
            peer.data_in(other, itt, n, n * 8192, 8192, n == 3);
        }
        peer.completed();
    }
}

#[test]
fn the_target_may_not_skip_data() {
    let (mut peer, other, itt) = lost_read(2);
    let logout = peer.logout(other);
    peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = peer.reassign(other);
    peer.answer_task_management(other, &reassign, COMPLETE);
    peer.data_in(other, itt, 2, 24576, 8192, true);
    assert!(matches!(peer.event(), Event::Closed { why: SessionError::Protocol { section: "11.7.6", .. }, .. }));
    assert!(peer.session.is_over());
}

#[test]
fn data_that_came_in_part_did_not_come() {
    for received in [1, 47, 48, 60, 48 + 8191] {
        let mut peer = ScriptedSession::new(2, 0, 20);
        let (lost, _, command) = peer.read(16 << 10);
        peer.exp_cmd_sn = command.cmd_sn.next();
        peer.data_in(lost, command.itt, 0, 0, 8192, false);
        let bytes = peer.data_in_bytes(lost, command.itt, 1, 8192, 8192, true);
        peer.raw(lost, &bytes[..received]);
        peer.cut(lost);
        let other = 1 - lost;
        let logout = peer.logout(other);
        peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
        let reassign = peer.reassign(other);
        assert_eq!(reassign.exp_data_sn, 1, "{received} bytes of the second PDU");
        peer.answer_task_management(other, &reassign, COMPLETE);
        peer.data_in(other, command.itt, 1, 8192, 8192, true);
        peer.completed();
    }
}

#[test]
fn a_write_is_asked_for_what_is_missing() {
    let mut peer = ScriptedSession::new(2, 0, 20);
    let (lost, _, command) = peer.write(24 << 10);
    peer.exp_cmd_sn = command.cmd_sn.next();
    peer.r2t(lost, command.itt, 0, 0, 8192);
    peer.r2t(lost, command.itt, 1, 8192, 8192);
    peer.cut(lost);
    let other = 1 - lost;
    let logout = peer.logout(other);
    peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = peer.reassign(other);
    assert_eq!(reassign.exp_data_sn, 0, "RFC 7143 section 11.5.6: only for what reads");
    peer.answer_task_management(other, &reassign, COMPLETE);
    // The second R2T's data was lost, and a third R2T.
    for (r2t_sn, offset) in [(3, 8192), (4, 16384)] {
        peer.r2t(other, command.itt, r2t_sn, offset, 8192);
        let sent = peer.next(other);
        let InitiatorPdu::DataOut(pdu) = sent.pdu else { panic!("{sent:?}") };
        assert_eq!((pdu.ttt, pdu.buffer_offset, pdu.data_sn), (TargetTransferTag(0x100 + r2t_sn), offset, 0));
        assert!(pdu.final_ && sent.data[..] == crate::harness::pattern(24 << 10)[offset as usize..][..8192]);
    }
    peer.respond(other, command.itt);
    peer.completed();
}

#[test]
fn what_the_target_does_not_have_is_sent_again_with_its_number() {
    let mut peer = ScriptedSession::new(2, 0, 20);
    let (lost, _, known) = peer.read(8192);
    peer.exp_cmd_sn = known.cmd_sn.next();
    let (other, _, gap) = peer.write(8192);
    // It lies on the other connection, and waits for those that are lost.
    let (same, _, unknown) = peer.read(4096);
    assert_eq!((lost, same), (1 - other, lost));
    peer.cut(lost);
    let logout = peer.logout(other);
    peer.exp_cmd_sn = gap.cmd_sn.next();
    peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    // First what fills the gap.
    let again = peer.command(other);
    assert_eq!((again.itt, again.cmd_sn, again.cdb), (unknown.itt, unknown.cmd_sn, unknown.cdb));
    assert_eq!(again.expected_data_transfer_length, 4096);
    let reassign = peer.reassign(other);
    assert_eq!(reassign.referenced_task_tag, known.itt);
    peer.exp_cmd_sn = unknown.cmd_sn.next();
    peer.answer_task_management(other, &reassign, COMPLETE);
    peer.data_in(other, unknown.itt, 0, 0, 4096, true);
    peer.data_in(other, known.itt, 0, 0, 8192, true);
    assert_eq!((peer.completed(), peer.completed()), (3, 1));
    assert_eq!(peer.session.recoveries().retries, 1);
}

#[test]
fn a_task_that_the_target_does_not_have_ends_without_an_answer() {
    let (mut peer, other, _) = lost_read(1);
    let logout = peer.logout(other);
    peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = peer.reassign(other);
    peer.answer_task_management(other, &reassign, TaskManagementResponseCode::TASK_DOES_NOT_EXIST);
    assert!(matches!(peer.event(), Event::Aborted(command) if command.user == 1));
    assert!(!peer.session.is_over());
    assert_eq!(peer.session.recoveries().connections, 1);
}

#[test]
fn reassignments_do_not_flood_the_target() {
    let mut peer = ScriptedSession::new(2, 0, 20);
    let commands: Vec<_> = (0..30).map(|_| peer.read(4096)).collect();
    let lost = commands.iter().filter(|(connection, ..)| *connection == 0).count();
    assert!(lost > MAX_REASSIGNMENTS);
    peer.exp_cmd_sn = commands[29].2.cmd_sn.next();
    peer.cut(0);
    let logout = peer.logout(1);
    peer.answer_logout(1, &logout, LogoutResponseCode::CLOSED);
    let mut open: Vec<_> = (0..MAX_REASSIGNMENTS).map(|_| peer.reassign(1)).collect();
    assert!(peer.is_silent(1));
    let refused = open.remove(0);
    let reject = peer.used(1).reject(RejectReason::TOO_MANY_IMMEDIATE_COMMANDS);
    peer.send(1, reject.emit(), &refused.emit());
    assert!(peer.is_silent(1), "a busy target gets a pause");
    peer.pass(RECOVERY_PAUSE);
    let mut done = 0;
    while done < lost {
        if open.is_empty() || !peer.is_silent(1) {
            open.push(peer.reassign(1));
            continue;
        }
        assert!(open.len() <= MAX_REASSIGNMENTS);
        let reassign = open.remove(0);
        peer.answer_task_management(1, &reassign, COMPLETE);
        peer.data_in(1, reassign.referenced_task_tag, 0, 0, 4096, true);
        peer.completed();
        done += 1;
    }
    assert_eq!(peer.session.recoveries().connections, 1);
}

/// RFC 7143 section 11.8.3: R2Ts and Data-In share one numbering, and ExpDataSN counts both.
#[test]
fn a_command_both_ways_goes_on_where_it_stopped() {
    let mut peer = ScriptedSession::new(2, 0, 20);
    let (lost, _, command) = peer.exchange(16 << 10);
    peer.exp_cmd_sn = command.cmd_sn.next();
    peer.r2t(lost, command.itt, 0, 0, 8192);
    peer.next(lost);
    peer.cut(lost);
    let other = 1 - lost;
    let logout = peer.logout(other);
    peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = peer.reassign(other);
    assert_eq!(reassign.exp_data_sn, 1);
    peer.answer_task_management(other, &reassign, COMPLETE);
    // All of the data was lost on its way; the numbers go on.
    for (r2t_sn, offset) in [(1, 0), (2, 8192)] {
        peer.r2t(other, command.itt, r2t_sn, offset, 8192);
        let sent = peer.next(other);
        assert!(matches!(sent.pdu, InitiatorPdu::DataOut(pdu) if pdu.buffer_offset == offset), "{sent:?}");
    }
    // The data for us begins behind the R2Ts, and the connection is lost once more.
    peer.data_in(other, command.itt, 3, 0, 8192, false);
    peer.cut(other);
    assert!(peer.session.wants_connection());
    let new = peer.join();
    let reassign = loop {
        match peer.peek(new) {
            InitiatorPdu::LogoutRequest(_) => {
                let logout = peer.logout(new);
                peer.answer_logout(new, &logout, LogoutResponseCode::CLOSED);
            }
            _ => break peer.reassign(new),
        }
    };
    assert_eq!(reassign.exp_data_sn, 4);
    peer.answer_task_management(new, &reassign, COMPLETE);
    peer.data_in(new, command.itt, 4, 8192, 8192, false);
    peer.respond(new, command.itt);
    peer.completed();
}

#[test]
fn what_one_connection_did_not_bring_is_not_held_against_the_next() {
    let mut peer = ScriptedSession::new(1, 0, 60);
    let resend = Timers::default().resend;
    let (_, _, command) = peer.read(4096);
    peer.raw(0, &[]);
    for _ in 0..=MAX_UNANSWERED_REQUESTS {
        // The target lives, and does not acknowledge the command.
        peer.pass(Duration::from_millis(1));
        peer.sign_of_life(0);
        peer.pass(resend);
    }
    assert!(matches!(peer.event(), Event::Closed { why: SessionError::Unrecovered(_), .. }));
    peer.pass(resend.saturating_sub(Duration::from_millis(10)));
    let new = peer.join();
    assert_eq!(peer.command(new).itt, command.itt);
    peer.pass(Duration::from_millis(10));
    assert!(peer.events.is_empty(), "given up at once: {:?}", peer.events);
    peer.exp_cmd_sn = command.cmd_sn.next();
    peer.data_in(new, command.itt, 0, 0, 4096, true);
    peer.completed();
}

#[test]
fn an_answer_may_come_after_the_reset_that_ended_its_task() {
    // The target lost the connection before we do, so it waited for no acknowledgement there (RFC 7143 section
    // 4.2.2.3.3).
    for (level, with_data) in [(0, true), (0, false), (1, true), (1, false), (2, true), (2, false)] {
        let mut peer = ScriptedSession::at_level(level, 2, (0, 20));
        let (first, _, one) = peer.read(4096);
        let (second, _, two) = peer.read(4096);
        assert_ne!(first, second);
        peer.exp_cmd_sn = two.cmd_sn.next();
        assert!(peer.session.manage_tasks(7, TaskManagementFunction::LOGICAL_UNIT_RESET, LUN, None));
        peer.raw(first, &[]);
        let asked = if peer.is_silent(first) { second } else { first };
        let (late, itt) = if asked == first { (second, two.itt) } else { (first, one.itt) };
        let reset = peer.task_management(asked);
        peer.answer_task_management(asked, &reset, COMPLETE);
        for _ in 0..2 {
            assert!(matches!(peer.event(), Event::Aborted(_)));
        }
        assert!(matches!(peer.event(), Event::TaskManagementDone { user: 7, .. }));
        if with_data {
            peer.data_in(late, itt, 0, 0, 4096, true);
        } else {
            peer.respond(late, itt);
        }
        // It is acknowledged, and the connection serves on.
        let expected = peer.stat_sn(late);
        assert!(peer.session.ping(8, Cid(late as u16), b"here?".to_vec()));
        peer.raw(late, &[]);
        let InitiatorPdu::NopOut(ping) = peer.next(late).pdu else { panic!("a ping") };
        assert_eq!(ping.exp_stat_sn, expected);
    }
}
