//! Responses that were lost on their way, at recovery level 1: they are asked for again, and everything is dealt with
//! in the order of the status numbers.

use std::time::Duration;

use lunette_pdu::{
    InitiatorPdu, InitiatorTaskTag, NopIn, RejectReason, ScsiResponse, SerialNumber, SnackType, TargetTransferTag,
    TaskManagementFunction, TaskManagementResponseCode,
};
use lunette_session::iscsi_initiator::{Event, Recoveries, SessionError};

use crate::harness::{LUN, ScriptedTarget};

/// The next thing that was sent asks for these statuses.
fn assert_asked(target: &mut ScriptedTarget, first: SerialNumber, len: u32) {
    let pdu = target.snack_request();
    assert_eq!((pdu.snack_type, pdu.beg_run, pdu.run_length), (SnackType::STATUS, first.0, len));
    assert_eq!((pdu.itt, pdu.ttt), (InitiatorTaskTag::RESERVED, TargetTransferTag::RESERVED));
}

/// Writes that are all over, but for their responses: without data, GOOD.
fn responses<const N: usize>(target: &mut ScriptedTarget) -> [ScsiResponse; N] {
    let itts: Vec<_> = (0..N).map(|_| target.read(0).1).collect();
    std::array::from_fn(|n| target.response(itts[n]))
}

#[test]
fn a_gap_is_asked_for_once_and_all_ends_in_order() {
    let mut target = ScriptedTarget::recovering();
    let [first, second, third, fourth, fifth] = responses(&mut target);
    target.send(first.emit(), &[]);
    assert_eq!(target.completed().0.user, 1);
    target.send(fourth.emit(), &[]);
    assert_asked(&mut target, second.stat_sn, 2);
    target.send(fifth.emit(), &[]);
    target.send(third.emit(), &[]);
    assert!(target.events.is_empty() && target.sent.is_empty(), "{:?} {:?}", target.events, target.sent);
    target.send(second.emit(), &[]);
    assert_eq!([(); 4].map(|()| target.completed().0.user), [2, 3, 4, 5]);
    assert_eq!(target.exp_stat_sn(), fifth.stat_sn.next());
    let counted = Recoveries { status_snacks: 1, ..Recoveries::default() };
    assert_eq!(*target.session.recoveries(), counted);
}

#[test]
fn nothing_is_acknowledged_before_what_was_lost() {
    let mut target = ScriptedTarget::recovering();
    let [first, second] = responses(&mut target);
    target.send(second.emit(), &[]);
    assert_asked(&mut target, first.stat_sn, 1);
    assert_eq!(target.exp_stat_sn(), first.stat_sn);
}

#[test]
fn a_damaged_response_is_asked_for_at_once() {
    let mut target = ScriptedTarget::recovering();
    let [response] = responses(&mut target);
    let response = ScsiResponse { status: 2, data_segment_len: 7, ..response };
    let sense = [0, 3, 0x70, 0, 5, 9, 9];
    for _ in 0..2 {
        target.send_damaged(response.emit(), &sense);
        assert_asked(&mut target, response.stat_sn, 1);
    }
    assert!(target.events.is_empty());
    for _ in 0..2 {
        // It comes twice; once is enough.
        target.send(response.emit(), &sense);
    }
    assert_eq!((target.completed().0.user, target.events.len()), (1, 0));
    let counted = Recoveries { damaged_pdus: 2, status_snacks: 2, ..Recoveries::default() };
    assert_eq!(*target.session.recoveries(), counted);
}

#[test]
fn damage_behind_a_gap_asks_for_both() {
    let mut target = ScriptedTarget::recovering();
    let [first, second, third] = responses(&mut target);
    let second = ScsiResponse { status: 2, data_segment_len: 4, ..second };
    target.send_damaged(second.emit(), &[0, 2, 0x70, 0]);
    assert_asked(&mut target, first.stat_sn, 2);
    target.send(third.emit(), &[]);
    target.send(second.emit(), &[0, 2, 0x70, 0]);
    target.send(first.emit(), &[]);
    assert_eq!([(); 3].map(|()| target.completed().0.user), [1, 2, 3]);
}

#[test]
fn the_targets_ping_and_its_r2t_tell_of_lost_responses() {
    let mut target = ScriptedTarget::recovering();
    let [first, second] = responses(&mut target);
    let (_, itt) = target.write(4096);
    let report = NopIn { ttt: TargetTransferTag::RESERVED, stat_sn: second.stat_sn, ..target.nop_in() };
    target.send(report.emit(), &[]);
    assert_asked(&mut target, first.stat_sn, 1);
    let r2t = target.r2t(itt, 0, 0, 4096);
    target.send(r2t.emit(), &[]);
    assert_asked(&mut target, second.stat_sn, 1);
    assert!(matches!(target.next().pdu, InitiatorPdu::DataOut(_)));
    target.send(second.emit(), &[]);
    target.send(first.emit(), &[]);
    assert_eq!([target.completed().0.user, target.completed().0.user], [1, 2]);
}

/// The answer says that the tasks before it are gone: it must not overtake their responses.
#[test]
fn an_answer_to_task_management_waits_for_the_responses_before_it() {
    let mut target = ScriptedTarget::recovering();
    let [lost] = responses(&mut target);
    assert!(target.session.manage_tasks(7, TaskManagementFunction::ABORT_TASK_SET, LUN, None));
    let request = target.task_management_request();
    let answer = target.task_management_response(request.itt, TaskManagementResponseCode::FUNCTION_COMPLETE);
    target.send(answer.emit(), &[]);
    assert!(target.events.is_empty());
    target.send(lost.emit(), &[]);
    assert_eq!(target.completed().0.user, 1);
    assert!(matches!(target.event(), Event::TaskManagementDone { user: 7, .. }));
}

#[test]
fn what_does_not_come_is_asked_for_again_until_the_connection_is_given_up() {
    let mut target = ScriptedTarget::recovering();
    let [first, second] = responses(&mut target);
    target.send(second.emit(), &[]);
    assert_asked(&mut target, first.stat_sn, 1);
    for _ in 0..4 {
        target.pass_in_company(Duration::from_secs(5));
        assert_asked(&mut target, first.stat_sn, 1);
    }
    target.pass_in_company(Duration::from_secs(5));
    assert_eq!(target.closed(), SessionError::Unrecovered("a response"));
    assert_eq!(target.session.into_unfinished().len(), 2);
}

#[test]
fn what_always_comes_damaged_is_given_up() {
    let mut target = ScriptedTarget::recovering();
    let [response] = responses(&mut target);
    let response = ScsiResponse { status: 2, data_segment_len: 4, ..response };
    for _ in 0..34 {
        assert!(target.events.is_empty());
        target.send_damaged(response.emit(), &[0, 2, 0x70, 0]);
    }
    assert_eq!(target.closed(), SessionError::Unrecovered("a response"));
}

#[test]
fn a_refused_snack_matters_while_something_is_missing() {
    for late in [false, true] {
        let mut target = ScriptedTarget::recovering();
        let [first, second] = responses(&mut target);
        target.send(second.emit(), &[]);
        let asked = target.snack_request();
        if late {
            target.send(first.emit(), &[]);
            assert_eq!([target.completed().0.user, target.completed().0.user], [1, 2]);
        }
        target.reject(RejectReason::PROTOCOL_ERROR, asked.emit());
        if late {
            assert!(target.events.is_empty());
            assert_eq!(target.exp_stat_sn(), target.stat_sn);
        } else {
            assert_eq!(target.closed(), SessionError::Unrecovered("a response"));
        }
    }
}

#[test]
fn numbers_far_ahead_are_a_broken_rule() {
    let mut target = ScriptedTarget::recovering();
    let [response] = responses(&mut target);
    let far = ScsiResponse { stat_sn: response.stat_sn.add(5000), ..response };
    target.send(far.emit(), &[]);
    target.broken("4.2.2.2");
}

#[test]
fn a_logout_is_not_held_up_by_what_was_lost() {
    let mut target = ScriptedTarget::recovering();
    let [_lost] = responses(&mut target);
    assert!(target.session.logout());
    target.raw(&[]);
    let sent = target.next();
    let InitiatorPdu::LogoutRequest(request) = sent.pdu else { panic!("{sent:?}") };
    let answer = target.used().logout_response(request.itt);
    target.send(answer.emit(), &[]);
    assert_eq!(target.closed(), SessionError::LoggedOut);
    assert!(target.sent.is_empty(), "nothing is asked for after a logout: {:?}", target.sent);
}
