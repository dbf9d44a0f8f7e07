//! Recovery level 2: the loss of a connection costs no command (RFC 7143 sections 7.1.4.3, 7.2.2, 7.5 and 11.14).

mod connections;
mod refusals;
mod requests;

use std::time::Duration;

use lunette_pdu::{
    Cid, InitiatorPdu, InitiatorTaskTag, LogoutResponseCode, LunField, Reject, RejectReason, TargetTransferTag,
    TaskManagementFunction, TaskManagementResponseCode,
};
use lunette_session::Timers;
use lunette_session::iscsi_initiator::{Event, SessionError};
use lunette_session::limits::{MAX_REASSIGNMENTS, MAX_UNANSWERED_REQUESTS, RECOVERY_PAUSE};

use crate::harness::{Crew, LUN};

const COMPLETE: TaskManagementResponseCode = TaskManagementResponseCode::FUNCTION_COMPLETE;

/// Two connections, and a read that the target has begun to answer on the one that is lost then.
fn lost_read(received: u32) -> (Crew, usize, InitiatorTaskTag) {
    let mut crew = Crew::new(2, 0, 20);
    let (lost, _, command) = crew.read(32 << 10);
    crew.exp_cmd_sn = command.cmd_sn.next();
    for n in 0..received {
        crew.data_in(lost, command.itt, n, n * 8192, 8192, false);
    }
    crew.cut(lost);
    (crew, 1 - lost, command.itt)
}

#[test]
fn a_read_goes_on_where_it_stopped() {
    let (mut crew, other, itt) = lost_read(2);
    assert!(!crew.session.is_over());
    let logout = crew.logout(other);
    assert_ne!(logout.cid, Cid(u16::MAX));
    assert!(crew.is_silent(other), "no task is reassigned before the logout has succeeded");
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = crew.reassign(other);
    assert_eq!((reassign.referenced_task_tag, reassign.exp_data_sn), (itt, 2));
    assert_eq!(reassign.lun, LunField::default(), "RFC 7143 section 11.5.3");
    crew.answer_task_management(other, &reassign, COMPLETE);
    crew.data_in(other, itt, 2, 16384, 8192, false);
    crew.data_in(other, itt, 3, 24576, 8192, true);
    crew.completed();
    let recoveries = crew.session.recoveries();
    assert_eq!((recoveries.connections, recoveries.reassignments, recoveries.retries), (1, 1, 0));
}

#[test]
fn the_target_may_begin_again() {
    for begin in [0, 1] {
        let (mut crew, other, itt) = lost_read(2);
        let logout = crew.logout(other);
        crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
        let reassign = crew.reassign(other);
        crew.answer_task_management(other, &reassign, COMPLETE);
        for n in begin..4 {
            crew.data_in(other, itt, n, n * 8192, 8192, n == 3);
        }
        crew.completed();
    }
}

#[test]
fn the_target_may_not_skip_data() {
    let (mut crew, other, itt) = lost_read(2);
    let logout = crew.logout(other);
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = crew.reassign(other);
    crew.answer_task_management(other, &reassign, COMPLETE);
    crew.data_in(other, itt, 2, 24576, 8192, true);
    assert!(matches!(crew.event(), Event::Closed { why: SessionError::Protocol { section: "11.7.6", .. }, .. }));
    assert!(crew.session.is_over());
}

#[test]
fn data_that_came_in_part_did_not_come() {
    for received in [1, 47, 48, 60, 48 + 8191] {
        let mut crew = Crew::new(2, 0, 20);
        let (lost, _, command) = crew.read(16 << 10);
        crew.exp_cmd_sn = command.cmd_sn.next();
        crew.data_in(lost, command.itt, 0, 0, 8192, false);
        let bytes = crew.data_in_bytes(lost, command.itt, 1, 8192, 8192, true);
        crew.raw(lost, &bytes[..received]);
        crew.cut(lost);
        let other = 1 - lost;
        let logout = crew.logout(other);
        crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
        let reassign = crew.reassign(other);
        assert_eq!(reassign.exp_data_sn, 1, "{received} bytes of the second PDU");
        crew.answer_task_management(other, &reassign, COMPLETE);
        crew.data_in(other, command.itt, 1, 8192, 8192, true);
        crew.completed();
    }
}

#[test]
fn a_write_is_asked_for_what_is_missing() {
    let mut crew = Crew::new(2, 0, 20);
    let (lost, _, command) = crew.write(24 << 10);
    crew.exp_cmd_sn = command.cmd_sn.next();
    crew.r2t(lost, command.itt, 0, 0, 8192);
    crew.r2t(lost, command.itt, 1, 8192, 8192);
    crew.cut(lost);
    let other = 1 - lost;
    let logout = crew.logout(other);
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = crew.reassign(other);
    assert_eq!(reassign.exp_data_sn, 0, "RFC 7143 section 11.5.6: only for what reads");
    crew.answer_task_management(other, &reassign, COMPLETE);
    // The second R2T's data was lost, and a third R2T.
    for (r2t_sn, offset) in [(3, 8192), (4, 16384)] {
        crew.r2t(other, command.itt, r2t_sn, offset, 8192);
        let sent = crew.next(other);
        let InitiatorPdu::DataOut(pdu) = sent.pdu else { panic!("{sent:?}") };
        assert_eq!((pdu.ttt, pdu.buffer_offset, pdu.data_sn), (TargetTransferTag(0x100 + r2t_sn), offset, 0));
        assert!(pdu.final_ && sent.data[..] == crate::harness::pattern(24 << 10)[offset as usize..][..8192]);
    }
    crew.respond(other, command.itt);
    crew.completed();
}

#[test]
fn what_the_target_does_not_have_is_sent_again_with_its_number() {
    let mut crew = Crew::new(2, 0, 20);
    let (lost, _, known) = crew.read(8192);
    crew.exp_cmd_sn = known.cmd_sn.next();
    let (other, _, gap) = crew.write(8192);
    // It lies on the other connection, and waits for those that are lost.
    let (same, _, unknown) = crew.read(4096);
    assert_eq!((lost, same), (1 - other, lost));
    crew.cut(lost);
    let logout = crew.logout(other);
    crew.exp_cmd_sn = gap.cmd_sn.next();
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    // First what fills the gap.
    let again = crew.command(other);
    assert_eq!((again.itt, again.cmd_sn, again.cdb), (unknown.itt, unknown.cmd_sn, unknown.cdb));
    assert_eq!(again.expected_data_transfer_length, 4096);
    let reassign = crew.reassign(other);
    assert_eq!(reassign.referenced_task_tag, known.itt);
    crew.exp_cmd_sn = unknown.cmd_sn.next();
    crew.answer_task_management(other, &reassign, COMPLETE);
    crew.data_in(other, unknown.itt, 0, 0, 4096, true);
    crew.data_in(other, known.itt, 0, 0, 8192, true);
    assert_eq!((crew.completed(), crew.completed()), (3, 1));
    assert_eq!(crew.session.recoveries().retries, 1);
}

#[test]
fn a_task_that_the_target_does_not_have_ends_without_an_answer() {
    let (mut crew, other, _) = lost_read(1);
    let logout = crew.logout(other);
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = crew.reassign(other);
    crew.answer_task_management(other, &reassign, TaskManagementResponseCode::TASK_DOES_NOT_EXIST);
    assert!(matches!(crew.event(), Event::Aborted(command) if command.user == 1));
    assert!(!crew.session.is_over());
    assert_eq!(crew.session.recoveries().connections, 1);
}

#[test]
fn reassignments_do_not_flood_the_target() {
    let mut crew = Crew::new(2, 0, 20);
    let commands: Vec<_> = (0..30).map(|_| crew.read(4096)).collect();
    let lost = commands.iter().filter(|(connection, ..)| *connection == 0).count();
    assert!(lost > MAX_REASSIGNMENTS);
    crew.exp_cmd_sn = commands[29].2.cmd_sn.next();
    crew.cut(0);
    let logout = crew.logout(1);
    crew.answer_logout(1, &logout, LogoutResponseCode::CLOSED);
    let mut open: Vec<_> = (0..MAX_REASSIGNMENTS).map(|_| crew.reassign(1)).collect();
    assert!(crew.is_silent(1));
    let refused = open.remove(0);
    let reject = Reject {
        reason: RejectReason::TOO_MANY_IMMEDIATE_COMMANDS,
        stat_sn: crew.stat_sn(1),
        exp_cmd_sn: crew.exp_cmd_sn,
        max_cmd_sn: crew.max_cmd_sn(),
        data_sn: 0,
        data_segment_len: 48,
    };
    crew.send(1, reject.emit(), &refused.emit());
    assert!(crew.is_silent(1), "a busy target gets a pause");
    crew.pass(RECOVERY_PAUSE);
    let mut done = 0;
    while done < lost {
        if open.is_empty() || !crew.is_silent(1) {
            open.push(crew.reassign(1));
            continue;
        }
        assert!(open.len() <= MAX_REASSIGNMENTS);
        let reassign = open.remove(0);
        crew.answer_task_management(1, &reassign, COMPLETE);
        crew.data_in(1, reassign.referenced_task_tag, 0, 0, 4096, true);
        crew.completed();
        done += 1;
    }
    assert_eq!(crew.session.recoveries().connections, 1);
}

/// RFC 7143 section 11.8.3: R2Ts and Data-In share one numbering, and ExpDataSN counts both.
#[test]
fn a_command_both_ways_goes_on_where_it_stopped() {
    let mut crew = Crew::new(2, 0, 20);
    let (lost, _, command) = crew.exchange(16 << 10);
    crew.exp_cmd_sn = command.cmd_sn.next();
    crew.r2t(lost, command.itt, 0, 0, 8192);
    crew.next(lost);
    crew.cut(lost);
    let other = 1 - lost;
    let logout = crew.logout(other);
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = crew.reassign(other);
    assert_eq!(reassign.exp_data_sn, 1);
    crew.answer_task_management(other, &reassign, COMPLETE);
    // All of the data was lost on its way; the numbers go on.
    for (r2t_sn, offset) in [(1, 0), (2, 8192)] {
        crew.r2t(other, command.itt, r2t_sn, offset, 8192);
        let sent = crew.next(other);
        assert!(matches!(sent.pdu, InitiatorPdu::DataOut(pdu) if pdu.buffer_offset == offset), "{sent:?}");
    }
    // The data for us begins behind the R2Ts, and the connection is lost once more.
    crew.data_in(other, command.itt, 3, 0, 8192, false);
    crew.cut(other);
    assert!(crew.session.wants_connection());
    let new = crew.join();
    let reassign = loop {
        match crew.peek(new) {
            InitiatorPdu::LogoutRequest(_) => {
                let logout = crew.logout(new);
                crew.answer_logout(new, &logout, LogoutResponseCode::CLOSED);
            }
            _ => break crew.reassign(new),
        }
    };
    assert_eq!(reassign.exp_data_sn, 4);
    crew.answer_task_management(new, &reassign, COMPLETE);
    crew.data_in(new, command.itt, 4, 8192, 8192, false);
    crew.respond(new, command.itt);
    crew.completed();
}

#[test]
fn what_one_connection_did_not_bring_is_not_held_against_the_next() {
    let mut crew = Crew::new(1, 0, 60);
    let resend = Timers::default().resend;
    let (_, _, command) = crew.read(4096);
    crew.raw(0, &[]);
    for _ in 0..=MAX_UNANSWERED_REQUESTS {
        // The target lives, and does not acknowledge the command.
        crew.pass(Duration::from_millis(1));
        crew.sign_of_life(0);
        crew.pass(resend);
    }
    assert!(matches!(crew.event(), Event::Closed { why: SessionError::Unrecovered(_), .. }));
    crew.pass(resend.saturating_sub(Duration::from_millis(10)));
    let new = crew.join();
    assert_eq!(crew.command(new).itt, command.itt);
    crew.pass(Duration::from_millis(10));
    assert!(crew.events.is_empty(), "given up at once: {:?}", crew.events);
    crew.exp_cmd_sn = command.cmd_sn.next();
    crew.data_in(new, command.itt, 0, 0, 4096, true);
    crew.completed();
}

#[test]
fn an_answer_may_come_after_the_reset_that_ended_its_task() {
    // The target lost the connection before we do, so it waited for no acknowledgement there (RFC 7143 section 4.2.2.3.3).
    for (level, with_data) in [(0, true), (0, false), (1, true), (1, false), (2, true), (2, false)] {
        let mut crew = Crew::at_level(level, 2, (0, 20));
        let (first, _, one) = crew.read(4096);
        let (second, _, two) = crew.read(4096);
        assert_ne!(first, second);
        crew.exp_cmd_sn = two.cmd_sn.next();
        assert!(crew.session.manage_tasks(7, TaskManagementFunction::LOGICAL_UNIT_RESET, LUN, None));
        crew.raw(first, &[]);
        let asked = if crew.is_silent(first) { second } else { first };
        let (late, itt) = if asked == first { (second, two.itt) } else { (first, one.itt) };
        let reset = crew.task_management(asked);
        crew.answer_task_management(asked, &reset, COMPLETE);
        for _ in 0..2 {
            assert!(matches!(crew.event(), Event::Aborted(_)));
        }
        assert!(matches!(crew.event(), Event::TaskManagementDone { user: 7, .. }));
        if with_data {
            crew.data_in(late, itt, 0, 0, 4096, true);
        } else {
            crew.respond(late, itt);
        }
        // It is acknowledged, and the connection serves on.
        let expected = crew.stat_sn(late);
        assert!(crew.session.ping(8, Cid(late as u16), b"here?".to_vec()));
        crew.raw(late, &[]);
        let InitiatorPdu::NopOut(ping) = crew.next(late).pdu else { panic!("a ping") };
        assert_eq!(ping.exp_stat_sn, expected);
    }
}
