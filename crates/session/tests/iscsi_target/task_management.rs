//! Task management (RFC 7143 sections 11.5 and 11.6).

use lunette_pdu::{
    InitiatorTaskTag, LunField, RejectReason, ScsiCommand, SerialNumber, TaskManagementFunction as Function,
    TaskManagementRequest, TaskManagementResponseCode as Code, TextRequest,
};
use lunette_session::iscsi_target::Response;
use lunette_session::limits::{COMMAND_WINDOW, MAX_PENDING_TASK_MANAGEMENT};

use crate::harness::{Peer, Setup, command, data_out, nop_out, read, task_management, text, text_request, write};

fn abort(itt: u32, referenced: u32) -> TaskManagementRequest {
    let referenced_task_tag = InitiatorTaskTag(referenced);
    TaskManagementRequest { referenced_task_tag, ..task_management(itt, Function::ABORT_TASK) }
}

#[test]
fn functions_that_concern_tasks_reach_the_driver() {
    for function in [
        Function::ABORT_TASK_SET,
        Function::CLEAR_TASK_SET,
        Function::LOGICAL_UNIT_RESET,
        Function::TARGET_WARM_RESET,
        Function::TARGET_COLD_RESET,
    ] {
        for immediate in [true, false] {
            let mut peer = Peer::logged_in(Setup::default()).manual();
            peer.task_management(TaskManagementRequest { immediate, ..task_management(9, function) });
            peer.silence();
            let got = peer.driver.task_management[0];
            assert_eq!((got.function, got.itt.0, got.referenced), (function, 9, None));
            assert_eq!(got.lun, command(0).lun);
            peer.driver.answer(got.itt, Code::LUN_DOES_NOT_EXIST);
            let (response, _) = peer.task_management_response();
            assert_eq!((response.response, response.itt.0), (Code::LUN_DOES_NOT_EXIST, 9));
            assert_eq!(response.exp_cmd_sn, peer.cmd_sn);
            peer.driver.answer(got.itt, Code::FUNCTION_COMPLETE);
            peer.silence();
        }
    }
}

/// An initiator cannot know whether an immediate request came damaged. It learns that this one did not.
#[test]
fn a_function_that_is_sent_again_runs_once() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    peer.task_management(task_management(9, Function::LOGICAL_UNIT_RESET));
    peer.silence();
    peer.task_management(task_management(9, Function::LOGICAL_UNIT_RESET));
    peer.rejected(RejectReason::TASK_IN_PROGRESS);
    let [reset] = peer.driver.task_management[..] else { panic!("{:?}", peer.driver.task_management) };
    peer.driver.answer(reset.itt, Code::FUNCTION_COMPLETE);
    assert_eq!(peer.task_management_response().0.response, Code::FUNCTION_COMPLETE);
    peer.silence();
}

#[test]
fn functions_that_we_do_not_have_are_answered_at_once() {
    for (function, expected) in [
        (Function::CLEAR_ACA, Code::FUNCTION_NOT_SUPPORTED),
        (Function::TASK_REASSIGN, Code::REASSIGNMENT_NOT_SUPPORTED),
        (Function(0), Code::FUNCTION_NOT_SUPPORTED),
        (Function(99), Code::FUNCTION_NOT_SUPPORTED),
    ] {
        let mut peer = Peer::logged_in(Setup::default()).manual();
        peer.task_management(task_management(9, function));
        assert_eq!(peer.task_management_response().0.response, expected, "{function}");
        assert!(peer.driver.task_management.is_empty());
    }
}

#[test]
fn abort_task_names_a_task_that_lives() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    peer.command(command(1), &[]);
    peer.command(command(2), &[]);
    peer.task_management(abort(9, 2));
    let got = peer.driver.task_management[0];
    assert_eq!(got.referenced, Some(peer.driver.commands[1].task));
    peer.driver.act(|c| c.abort(got.referenced.unwrap()));
    peer.driver.answer(got.itt, Code::FUNCTION_COMPLETE);
    assert_eq!(peer.task_management_response().0.response, Code::FUNCTION_COMPLETE);
    // Its response never comes, and its tag is free.
    peer.driver.complete(got.referenced.unwrap(), Response::default());
    peer.silence();
    peer.command(command(2), &[]);
    peer.silence();
}

/// SAM-5 7.2 gives ABORT TASK one logical unit.
#[test]
fn abort_task_does_not_mean_a_task_of_another_logical_unit() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    peer.command(command(1), &[]);
    let other = LunField(command(1).lun.0.map(|byte| byte ^ 1));
    peer.task_management(TaskManagementRequest { lun: other, ..abort(9, 1) });
    let got = peer.driver.task_management[0];
    assert_eq!(got.referenced, None);
    peer.driver.done(got.itt);
    assert_eq!(peer.task_management_response().0.response, Code::TASK_DOES_NOT_EXIST);
    peer.driver.complete(peer.driver.commands[0].task, Response::default());
    assert_eq!(peer.scsi_response().0.itt.0, 1, "it lives on");
}

#[test]
fn abort_task_of_no_task_says_so() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.command(command(1), &[]);
    peer.scsi_response();
    for referenced in [1, 77, u32::MAX] {
        peer.task_management(abort(9, referenced));
        assert_eq!(peer.task_management_response().0.response, Code::TASK_DOES_NOT_EXIST);
    }
}

/// RFC 7143 section 11.5.1.
#[test]
fn a_task_management_request_is_not_aborted() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    peer.task_management(task_management(5, Function::LOGICAL_UNIT_RESET));
    peer.task_management(abort(9, 5));
    assert_eq!(peer.task_management_response().0.response, Code::FUNCTION_REJECTED);
    assert_eq!(peer.driver.task_management.len(), 1);
}

#[test]
fn a_text_negotiation_is_aborted() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.text(TextRequest { final_: false, ..text_request(5) }, &text(&[("MaxRecvDataSegmentLength", "512")]));
    let (response, _) = peer.text_response();
    for code in [Code::FUNCTION_COMPLETE, Code::TASK_DOES_NOT_EXIST] {
        peer.task_management(abort(9, 5));
        assert_eq!(peer.task_management_response().0.response, code);
    }
    // Nothing of it holds, and it does not go on.
    peer.text(TextRequest { ttt: response.ttt, ..text_request(5) }, &[]);
    peer.rejected(RejectReason::PROTOCOL_ERROR);
    peer.command(read(1, 1024), &[]);
    assert_eq!(peer.data_in().1.len(), 1024);
}

#[test]
fn an_aborted_task_stays_aborted_while_its_data_comes() {
    let mut peer = Peer::logged_in(Setup::keys(&[("InitialR2T", "Yes")])).manual();
    peer.command(write(1, 4096), &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 4096);
    let (r2t, _) = peer.r2t();
    peer.task_management(abort(9, 1));
    peer.driver.act(|c| c.abort(task));
    peer.driver.answer(InitiatorTaskTag(9), Code::FUNCTION_COMPLETE);
    peer.task_management_response();
    peer.task_management(abort(10, 1));
    // The store may still work on what is gone here, so the driver has the last word.
    peer.silence();
    let again = peer.driver.task_management[1];
    assert_eq!(again.referenced, None);
    peer.driver.done(again.itt);
    assert_eq!(peer.task_management_response().0.response, Code::TASK_DOES_NOT_EXIST);
    peer.answer(&r2t, &[0; 4096], 512);
    peer.silence();
}

#[test]
fn requests_that_wait_are_bounded() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    for itt in 0..MAX_PENDING_TASK_MANAGEMENT as u32 {
        peer.task_management(task_management(itt, Function::LOGICAL_UNIT_RESET));
    }
    peer.silence();
    peer.task_management(task_management(99, Function::LOGICAL_UNIT_RESET));
    peer.rejected(RejectReason::TOO_MANY_IMMEDIATE_COMMANDS);
    peer.driver.answer(InitiatorTaskTag(3), Code::FUNCTION_COMPLETE);
    assert_eq!(peer.task_management_response().0.itt.0, 3);
    peer.task_management(task_management(99, Function::LOGICAL_UNIT_RESET));
    peer.silence();
}

#[test]
fn a_request_outside_the_window_is_ignored() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    peer.cmd_sn = SerialNumber(1000);
    let request = task_management(1, Function::LOGICAL_UNIT_RESET);
    peer.task_management(TaskManagementRequest { immediate: false, ..request });
    peer.silence();
    assert!(peer.driver.task_management.is_empty());
}

#[test]
fn a_window_that_aborts_open_is_told() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    for itt in 0..COMMAND_WINDOW {
        peer.command(command(itt), &[]);
    }
    peer.nop_out(nop_out(500), &[]);
    let (nop, _) = peer.nop_in();
    assert_eq!(nop.max_cmd_sn.next(), nop.exp_cmd_sn);
    for index in 0..COMMAND_WINDOW as usize {
        let task = peer.driver.commands[index].task;
        peer.driver.act(|c| c.abort(task));
    }
    let (nop, _) = peer.nop_in();
    assert!(nop.itt.is_reserved() && nop.ttt.is_reserved());
    assert_eq!(nop.max_cmd_sn, nop.exp_cmd_sn, "open again");
    peer.silence();
}

#[test]
fn a_discovery_session_has_no_tasks_to_manage() {
    let mut peer = Peer::discovering(Setup::default());
    peer.task_management(task_management(1, Function::TARGET_WARM_RESET));
    peer.cut_off(RejectReason::PROTOCOL_ERROR);
}

#[test]
fn a_refused_task_whose_answer_waits_for_data_can_be_aborted() {
    for function in [
        Function::ABORT_TASK,
        Function::ABORT_TASK_SET,
        Function::CLEAR_TASK_SET,
        Function::LOGICAL_UNIT_RESET,
        Function::TARGET_WARM_RESET,
    ] {
        let mut peer = Peer::logged_in(Setup::keys(&[("InitialR2T", "No")])).manual();
        peer.command(ScsiCommand { final_: false, ..write(1, 4096) }, &[]);
        let task = peer.driver.commands[0].task;
        peer.driver.complete(task, Response { status: 2, ..Response::default() });
        peer.silence();
        peer.task_management(TaskManagementRequest { function, ..abort(9, 1) });
        if let Some(request) = peer.driver.task_management.pop() {
            assert_eq!(request.referenced, None);
            peer.driver.answer(request.itt, Code::FUNCTION_COMPLETE);
        }
        assert_eq!(peer.task_management_response().0.response, Code::FUNCTION_COMPLETE, "{function}");
        // No answer may follow that of the abort.
        peer.data_out(data_out(1, 0), &[0; 4096]);
        peer.silence();
        peer.nop_out(nop_out(7), &[]);
        let (nop, _) = peer.nop_in();
        assert_eq!(nop.max_cmd_sn.distance_from(nop.exp_cmd_sn), COMMAND_WINDOW.cast_signed() - 1);
    }
}

#[test]
fn tasks_of_other_units_keep_their_answers() {
    let mut peer = Peer::logged_in(Setup::keys(&[("InitialR2T", "No")])).manual();
    peer.command(ScsiCommand { final_: false, ..write(1, 4096) }, &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.complete(task, Response { status: 2, ..Response::default() });
    let other = LunField([0, 9, 0, 0, 0, 0, 0, 0]);
    peer.task_management(TaskManagementRequest { lun: other, ..task_management(9, Function::LOGICAL_UNIT_RESET) });
    peer.driver.answer(InitiatorTaskTag(9), Code::FUNCTION_COMPLETE);
    peer.task_management_response();
    peer.data_out(data_out(1, 0), &[0; 4096]);
    assert_eq!(peer.scsi_response().0.status, 2);
}
