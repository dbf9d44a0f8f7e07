//! Responses that were lost on their way, at recovery level 1: they are asked for again, and everything is dealt with in the
//! order of the status numbers.

use std::time::Duration;

use lunette_pdu::{
    InitiatorPdu, InitiatorTaskTag, NopIn, RejectReason, ScsiResponse, SerialNumber, SnackType, TargetTransferTag,
    TaskManagementFunction, TaskManagementResponseCode,
};
use lunette_session::iscsi_initiator::{Event, Recoveries, SessionError};

use crate::harness::{LUN, Liar};

/// The next thing that was sent asks for these statuses.
fn assert_asked(liar: &mut Liar, first: SerialNumber, len: u32) {
    let pdu = liar.snack_request();
    assert_eq!((pdu.snack_type, pdu.beg_run, pdu.run_length), (SnackType::STATUS, first.0, len));
    assert_eq!((pdu.itt, pdu.ttt), (InitiatorTaskTag::RESERVED, TargetTransferTag::RESERVED));
}

/// Writes that are all over, but for their responses: without data, GOOD.
fn responses<const N: usize>(liar: &mut Liar) -> [ScsiResponse; N] {
    let itts: Vec<_> = (0..N).map(|_| liar.read(0).1).collect();
    std::array::from_fn(|n| liar.response(itts[n]))
}

#[test]
fn a_gap_is_asked_for_once_and_all_ends_in_order() {
    let mut liar = Liar::recovering();
    let [first, second, third, fourth, fifth] = responses(&mut liar);
    liar.send(first.emit(), &[]);
    assert_eq!(liar.completed().0.user, 1);
    liar.send(fourth.emit(), &[]);
    assert_asked(&mut liar, second.stat_sn, 2);
    liar.send(fifth.emit(), &[]);
    liar.send(third.emit(), &[]);
    assert!(liar.events.is_empty() && liar.sent.is_empty(), "{:?} {:?}", liar.events, liar.sent);
    liar.send(second.emit(), &[]);
    assert_eq!([(); 4].map(|()| liar.completed().0.user), [2, 3, 4, 5]);
    assert_eq!(liar.exp_stat_sn(), fifth.stat_sn.next());
    let counted = Recoveries { status_snacks: 1, ..Recoveries::default() };
    assert_eq!(*liar.session.recoveries(), counted);
}

#[test]
fn nothing_is_acknowledged_before_what_was_lost() {
    let mut liar = Liar::recovering();
    let [first, second] = responses(&mut liar);
    liar.send(second.emit(), &[]);
    assert_asked(&mut liar, first.stat_sn, 1);
    assert_eq!(liar.exp_stat_sn(), first.stat_sn);
}

#[test]
fn a_damaged_response_is_asked_for_at_once() {
    let mut liar = Liar::recovering();
    let [response] = responses(&mut liar);
    let response = ScsiResponse { status: 2, data_segment_len: 7, ..response };
    let sense = [0, 3, 0x70, 0, 5, 9, 9];
    for _ in 0..2 {
        liar.send_damaged(response.emit(), &sense);
        assert_asked(&mut liar, response.stat_sn, 1);
    }
    assert!(liar.events.is_empty());
    for _ in 0..2 {
        // It comes twice; once is enough.
        liar.send(response.emit(), &sense);
    }
    assert_eq!((liar.completed().0.user, liar.events.len()), (1, 0));
    let counted = Recoveries { damaged_pdus: 2, status_snacks: 2, ..Recoveries::default() };
    assert_eq!(*liar.session.recoveries(), counted);
}

#[test]
fn damage_behind_a_gap_asks_for_both() {
    let mut liar = Liar::recovering();
    let [first, second, third] = responses(&mut liar);
    let second = ScsiResponse { status: 2, data_segment_len: 4, ..second };
    liar.send_damaged(second.emit(), &[0, 2, 0x70, 0]);
    assert_asked(&mut liar, first.stat_sn, 2);
    liar.send(third.emit(), &[]);
    liar.send(second.emit(), &[0, 2, 0x70, 0]);
    liar.send(first.emit(), &[]);
    assert_eq!([(); 3].map(|()| liar.completed().0.user), [1, 2, 3]);
}

#[test]
fn the_targets_ping_and_its_r2t_tell_of_lost_responses() {
    let mut liar = Liar::recovering();
    let [first, second] = responses(&mut liar);
    let (_, itt) = liar.write(4096);
    let report = NopIn { ttt: TargetTransferTag::RESERVED, stat_sn: second.stat_sn, ..liar.nop_in() };
    liar.send(report.emit(), &[]);
    assert_asked(&mut liar, first.stat_sn, 1);
    let r2t = liar.r2t(itt, 0, 0, 4096);
    liar.send(r2t.emit(), &[]);
    assert_asked(&mut liar, second.stat_sn, 1);
    assert!(matches!(liar.next().pdu, InitiatorPdu::DataOut(_)));
    liar.send(second.emit(), &[]);
    liar.send(first.emit(), &[]);
    assert_eq!([liar.completed().0.user, liar.completed().0.user], [1, 2]);
}

/// The answer says that the tasks before it are gone: it must not overtake their responses.
#[test]
fn an_answer_to_task_management_waits_for_the_responses_before_it() {
    let mut liar = Liar::recovering();
    let [lost] = responses(&mut liar);
    assert!(liar.session.manage_tasks(7, TaskManagementFunction::ABORT_TASK_SET, LUN, None));
    let request = liar.task_management_request();
    let answer = liar.task_management_response(request.itt, TaskManagementResponseCode::FUNCTION_COMPLETE);
    liar.send(answer.emit(), &[]);
    assert!(liar.events.is_empty());
    liar.send(lost.emit(), &[]);
    assert_eq!(liar.completed().0.user, 1);
    assert!(matches!(liar.event(), Event::TaskManagementDone { user: 7, .. }));
}

#[test]
fn what_does_not_come_is_asked_for_again_until_the_connection_is_given_up() {
    let mut liar = Liar::recovering();
    let [first, second] = responses(&mut liar);
    liar.send(second.emit(), &[]);
    assert_asked(&mut liar, first.stat_sn, 1);
    for _ in 0..4 {
        liar.pass_in_company(Duration::from_secs(5));
        assert_asked(&mut liar, first.stat_sn, 1);
    }
    liar.pass_in_company(Duration::from_secs(5));
    assert_eq!(liar.closed(), SessionError::Unrecovered("a response"));
    assert_eq!(liar.session.into_unfinished().len(), 2);
}

#[test]
fn what_always_comes_damaged_is_given_up() {
    let mut liar = Liar::recovering();
    let [response] = responses(&mut liar);
    let response = ScsiResponse { status: 2, data_segment_len: 4, ..response };
    for _ in 0..34 {
        assert!(liar.events.is_empty());
        liar.send_damaged(response.emit(), &[0, 2, 0x70, 0]);
    }
    assert_eq!(liar.closed(), SessionError::Unrecovered("a response"));
}

#[test]
fn a_refused_snack_matters_while_something_is_missing() {
    for late in [false, true] {
        let mut liar = Liar::recovering();
        let [first, second] = responses(&mut liar);
        liar.send(second.emit(), &[]);
        let asked = liar.snack_request();
        if late {
            liar.send(first.emit(), &[]);
            assert_eq!([liar.completed().0.user, liar.completed().0.user], [1, 2]);
        }
        liar.reject(RejectReason::PROTOCOL_ERROR, asked.emit());
        if late {
            assert!(liar.events.is_empty());
            assert_eq!(liar.exp_stat_sn(), liar.stat_sn);
        } else {
            assert_eq!(liar.closed(), SessionError::Unrecovered("a response"));
        }
    }
}

#[test]
fn numbers_far_ahead_are_a_broken_rule() {
    let mut liar = Liar::recovering();
    let [response] = responses(&mut liar);
    let far = ScsiResponse { stat_sn: response.stat_sn.add(5000), ..response };
    liar.send(far.emit(), &[]);
    liar.broken("4.2.2.2");
}

#[test]
fn a_logout_is_not_held_up_by_what_was_lost() {
    let mut liar = Liar::recovering();
    let [_lost] = responses(&mut liar);
    assert!(liar.session.logout());
    liar.raw(&[]);
    let sent = liar.next();
    let InitiatorPdu::LogoutRequest(request) = sent.pdu else { panic!("{sent:?}") };
    let answer = lunette_pdu::LogoutResponse {
        response: lunette_pdu::LogoutResponseCode::CLOSED,
        itt: request.itt,
        stat_sn: liar.next_stat_sn(),
        exp_cmd_sn: liar.exp_cmd_sn,
        max_cmd_sn: liar.max_cmd_sn(),
        time2wait: 0,
        time2retain: 0,
    };
    liar.send(answer.emit(), &[]);
    assert_eq!(liar.closed(), SessionError::LoggedOut);
    assert!(liar.sent.is_empty(), "nothing is asked for after a logout: {:?}", liar.sent);
}
