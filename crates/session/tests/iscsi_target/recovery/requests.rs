//! The requests by which an initiator recovers: logouts and reassignments.

use lunette_pdu::{
    Cid, InitiatorTaskTag, LogoutReason, LogoutRequest, LogoutResponseCode, LunField, SerialNumber, SnackRequest,
    SnackType, TargetTransferTag, TaskManagementFunction, TaskManagementRequest, TaskManagementResponseCode,
    TextRequest,
};
use lunette_session::iscsi_target::{CloseReason, Response};

use super::{RETAIN, WAIT, ask_for, cut, first, join, tag};
use crate::harness::{command, login_request, task_management, text, text_request};

fn logout(cid: Cid) -> LogoutRequest {
    LogoutRequest {
        immediate: true,
        reason: LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY,
        itt: InitiatorTaskTag(0x55),
        cid,
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
    }
}

#[test]
fn a_logout_for_recovery_tells_the_times() {
    let mut a = first();
    a.logout(logout(login_request().cid));
    let (response, _) = a.logout_response();
    assert_eq!(response.response, LogoutResponseCode::CLOSED);
    assert_eq!((u64::from(response.time2wait), u64::from(response.time2retain)), (WAIT, RETAIN));
    assert_eq!(a.driver.suspended, Some(CloseReason::RecoveryLogout));
}

#[test]
fn a_connection_that_is_closed_leaves_nothing_to_wait_for() {
    let mut a = first();
    a.driver.automatic = true;
    a.logout(LogoutRequest { reason: LogoutReason::CLOSE_CONNECTION, ..logout(login_request().cid) });
    let (response, _) = a.logout_response();
    assert_eq!((response.time2wait, response.time2retain), (0, 0));
    assert_eq!((&a.driver.closed, &a.driver.suspended), (&Some(CloseReason::ConnectionLogout), &None));
}

#[test]
fn a_logout_of_another_connection_acknowledges_what_came_there() {
    let mut a = first();
    a.command(command(1), &[]);
    let task = tag(&a);
    a.driver.complete(task, Response::default());
    let (response, _) = a.scsi_response();
    let before = response.stat_sn;
    for reason in [LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY, LogoutReason::CLOSE_CONNECTION] {
        let request = LogoutRequest { reason, cmd_sn: a.cmd_sn, exp_stat_sn: before.next(), ..logout(Cid(99)) };
        a.send(request.emit(), &[]);
        a.logout_response();
    }
    // The number is of another connection: what was sent here is kept.
    let snack = SnackRequest {
        snack_type: SnackType::STATUS,
        lun: LunField([0; 8]),
        itt: InitiatorTaskTag::RESERVED,
        ttt: TargetTransferTag::RESERVED,
        exp_stat_sn: before,
        beg_run: before.0,
        run_length: 1,
    };
    a.checker.strict = false;
    a.send(snack.emit(), &[]);
    assert_eq!(a.scsi_response().0.stat_sn, before);
}

#[test]
fn logouts_that_have_waited_are_answered_one_by_one() {
    let mut a = first();
    let leaving = Cid(90);
    let _other = join(&mut a, leaving);
    let missing = a.cmd_sn;
    a.cmd_sn = missing.next();
    for itt in [0x61, 0x62] {
        let (immediate, reason) = (false, LogoutReason::CLOSE_CONNECTION);
        a.logout(LogoutRequest { immediate, reason, itt: InitiatorTaskTag(itt), ..logout(leaving) });
    }
    a.silence();
    let next = std::mem::replace(&mut a.cmd_sn, missing);
    a.command(command(1), &[]);
    a.cmd_sn = next;
    for itt in [0x61, 0x62] {
        assert_eq!(a.rest(), [], "the driver has not dealt with {itt:#x}");
        a.driver.log_out();
        assert_eq!(a.logout_response().0.itt.0, itt);
    }
}

#[test]
fn a_connection_that_is_not_there_is_not_logged_out() {
    let mut a = first();
    a.driver.automatic = true;
    a.logout(logout(Cid(99)));
    assert_eq!(a.logout_response().0.response, LogoutResponseCode::CID_NOT_FOUND);
    a.silence();
}

fn reassignment(itt: u32) -> TaskManagementRequest {
    TaskManagementRequest {
        referenced_task_tag: InitiatorTaskTag(itt),
        exp_data_sn: 3,
        ..task_management(0x60, TaskManagementFunction::TASK_REASSIGN)
    }
}

#[test]
fn the_driver_is_asked_for_tasks_of_other_connections() {
    let mut a = first();
    a.command(command(1), &[]);
    a.task_management(reassignment(1));
    let (response, _) = a.task_management_response();
    assert_eq!(response.response, TaskManagementResponseCode::TASK_STILL_ALLEGIANT);
    assert!(a.driver.task_management.is_empty());
    for function in [TaskManagementFunction::TASK_REASSIGN, TaskManagementFunction::ABORT_TASK] {
        a.task_management(TaskManagementRequest { function, ref_cmd_sn: SerialNumber(0), ..reassignment(2) });
        let asked = a.driver.task_management.pop().unwrap();
        assert_eq!((asked.function, asked.referenced, asked.referenced_itt.0), (function, None, 2));
        assert_eq!(asked.exp_data_sn, 3);
        a.driver.answer(asked.itt, TaskManagementResponseCode::TASK_DOES_NOT_EXIST);
        a.task_management_response();
    }
}

#[test]
fn a_reassignment_does_not_wait_for_commands_that_are_missing() {
    let mut a = first();
    a.cmd_sn = a.cmd_sn.next();
    a.task_management(reassignment(2));
    assert_eq!(a.driver.task_management.len(), 1);
}

#[test]
fn a_request_that_waits_for_its_answer_cannot_move() {
    let mut a = first();
    a.task_management(task_management(0x61, TaskManagementFunction::LOGICAL_UNIT_RESET));
    cut(&mut a);
    assert_eq!(ask_for(&mut join(&mut a, Cid(7)), 0x61, 0), TaskManagementResponseCode::FUNCTION_REJECTED);
    a.driver.answer(InitiatorTaskTag(0x61), TaskManagementResponseCode::FUNCTION_COMPLETE);
    assert_eq!(a.rest(), []);
}

/// RFC 7143 section 11.5.1: only commands are reassigned.
#[test]
fn text_negotiations_and_requests_are_not_reassigned() {
    let mut a = first();
    a.text(TextRequest { final_: false, ..text_request(0x62) }, &text(&[("X-a", "1")]));
    a.next();
    a.task_management(task_management(0x61, TaskManagementFunction::LOGICAL_UNIT_RESET));
    for itt in [0x61, 0x62] {
        a.task_management(reassignment(itt));
        let (response, _) = a.task_management_response();
        assert_eq!(response.response, TaskManagementResponseCode::FUNCTION_REJECTED, "{itt:#x}");
    }
    assert_eq!(ask_for(&mut a, 0x63, 0), TaskManagementResponseCode::TASK_DOES_NOT_EXIST);
    cut(&mut a);
    let mut b = join(&mut a, Cid(7));
    for itt in [0x61, 0x62] {
        assert_eq!(ask_for(&mut b, itt, 0), TaskManagementResponseCode::FUNCTION_REJECTED, "{itt:#x}");
    }
    assert_eq!(ask_for(&mut b, 0x63, 0), TaskManagementResponseCode::TASK_DOES_NOT_EXIST);
}
