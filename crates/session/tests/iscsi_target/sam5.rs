//! The additions of RFC 7144, which need iSCSIProtocolLevel 2.

use lunette_pdu::{
    InitiatorTaskTag, LunField, ScsiCommand, TaskManagementFunction as Function, TaskManagementRequest,
    TaskManagementResponseCode as Code,
};
use lunette_session::iscsi_target::Response;
use lunette_session::keys::Offer;

use crate::harness::{Peer, Setup, command, read, task_management, write};

const QUERIES: [Function; 3] = [Function::QUERY_TASK, Function::QUERY_TASK_SET, Function::QUERY_ASYNCHRONOUS_EVENT];
const TASK_SET_FULL: u8 = 0x28;

fn modern() -> Peer {
    Peer::logged_in(Setup::keys(&[("iSCSIProtocolLevel", "2"), ("InitialR2T", "No")])).manual()
}

fn query_task(itt: u32, referenced: u32) -> TaskManagementRequest {
    let referenced_task_tag = InitiatorTaskTag(referenced);
    TaskManagementRequest { referenced_task_tag, ..task_management(itt, Function::QUERY_TASK) }
}

#[test]
fn without_the_level_nothing_of_it_is_there() {
    let mut peer = Peer::logged_in(Setup::keys(&[("iSCSIProtocolLevel", "1")])).manual();
    for function in [&QUERIES[..], &[Function::I_T_NEXUS_RESET]].concat() {
        peer.task_management(task_management(9, function));
        assert_eq!(peer.task_management_response().0.response, Code::FUNCTION_NOT_SUPPORTED, "{function}");
    }
    peer.command(ScsiCommand { priority: 7, ..command(1) }, &[]);
    let got = peer.driver.commands[0].clone();
    assert_eq!(got.priority, 0);
    let response = Response { status: TASK_SET_FULL, status_qualifier: 5, ..Response::default() };
    peer.driver.complete(got.task, response);
    assert_eq!(peer.scsi_response().0.status_qualifier, 0);
}

#[test]
fn priority_and_qualifier_are_carried() {
    let mut peer = modern();
    peer.command(ScsiCommand { priority: 7, ..command(1) }, &[]);
    let got = peer.driver.commands[0].clone();
    assert_eq!(got.priority, 7);
    let response = Response { status: TASK_SET_FULL, status_qualifier: 0x4005, ..Response::default() };
    peer.driver.complete(got.task, response);
    let (response, _) = peer.scsi_response();
    assert_eq!((response.status, response.status_qualifier), (TASK_SET_FULL, 0x4005));
}

#[test]
fn a_qualifier_keeps_the_status_out_of_the_last_data_in() {
    let mut peer = modern();
    peer.command(read(1, 512), &[]);
    let task = peer.driver.commands[0].task;
    let response = Response { status_qualifier: 1, ..peer.driver.read_response(512) };
    peer.driver.complete(task, response);
    assert_eq!(peer.data_in().0.status, None);
    assert_eq!(peer.scsi_response().0.status_qualifier, 1);
}

#[test]
fn query_task_finds_a_task_until_its_response_is_sent() {
    let mut peer = modern();
    peer.command(ScsiCommand { final_: false, ..write(1, 4096) }, &[]);
    peer.command(command(2), &[]);
    let [waits, runs] = [0, 1].map(|n| peer.driver.commands[n].task);
    let ask = |peer: &mut Peer, referenced| {
        peer.task_management(query_task(9, referenced));
        peer.task_management_response().0.response
    };
    assert_eq!(ask(&mut peer, 1), Code::FUNCTION_SUCCEEDED);
    assert_eq!(ask(&mut peer, 2), Code::FUNCTION_SUCCEEDED);
    // It has ended for the device, and its response waits for its data.
    peer.driver.complete(waits, Response { status: 2, ..Response::default() });
    assert_eq!(ask(&mut peer, 1), Code::FUNCTION_SUCCEEDED);
    let elsewhere = LunField([0, 9, 0, 0, 0, 0, 0, 0]);
    peer.task_management(TaskManagementRequest { lun: elsewhere, ..query_task(9, 1) });
    assert_eq!(peer.task_management_response().0.response, Code::FUNCTION_COMPLETE);
    assert!(peer.driver.task_management.is_empty());
    // What is not here may be elsewhere, or have been aborted while a store works for it.
    peer.driver.act(|c| c.abort(runs));
    for gone in [2, 3] {
        peer.task_management(query_task(9, gone));
        let request = peer.driver.task_management.pop().unwrap();
        assert_eq!(request.referenced_itt, InitiatorTaskTag(gone));
        peer.driver.done(request.itt);
        assert_eq!(peer.task_management_response().0.response, Code::FUNCTION_COMPLETE);
    }
}

/// RFC 7144 section 6.3.3 and RFC 7143 section 11.6.1.
#[test]
fn query_task_of_a_command_that_was_lost_counts_it_as_received() {
    let mut peer = Peer::logged_in(Setup {
        offer: Offer { error_recovery_level: 1, ..Offer::default() },
        ..Setup::keys(&[("iSCSIProtocolLevel", "2"), ("ErrorRecoveryLevel", "1")])
    })
    .manual();
    let lost = peer.cmd_sn;
    peer.cmd_sn = lost.next();
    peer.command(command(2), &[]);
    assert!(peer.driver.commands.is_empty());
    let query = TaskManagementRequest { ref_cmd_sn: lost.next(), ..query_task(9, 2) };
    peer.task_management(query);
    assert_eq!(peer.task_management_response().0.response, Code::FUNCTION_SUCCEEDED, "it waits for its turn");
    peer.task_management(TaskManagementRequest { ref_cmd_sn: lost, ..query_task(9, 1) });
    assert_eq!(peer.driver.commands.len(), 1, "it was waited for");
    let (response, _) = peer.task_management_response();
    assert_eq!((response.response, response.exp_cmd_sn), (Code::FUNCTION_COMPLETE, lost.next()));
    // It may come all the same.
    peer.command_numbered(ScsiCommand { cmd_sn: lost, ..command(1) }, &[], &[]);
    assert_eq!(peer.driver.commands.len(), 1);
}

#[test]
fn query_task_does_not_ask_for_task_management() {
    let mut peer = modern();
    peer.task_management(task_management(5, Function::LOGICAL_UNIT_RESET));
    peer.task_management(query_task(9, 5));
    assert_eq!(peer.task_management_response().0.response, Code::FUNCTION_REJECTED);
}

#[test]
fn other_questions_and_the_reset_go_to_the_driver() {
    for function in [Function::QUERY_TASK_SET, Function::QUERY_ASYNCHRONOUS_EVENT, Function::I_T_NEXUS_RESET] {
        let mut peer = modern();
        peer.task_management(task_management(9, function));
        let got = peer.driver.task_management[0];
        assert_eq!((got.function, got.referenced), (function, None));
        peer.silence();
        peer.driver.succeed(got.itt, [0x16, 0x2a, 0x09]);
        let (response, _) = peer.task_management_response();
        assert_eq!(response.response, Code::FUNCTION_SUCCEEDED);
        assert_eq!(response.additional_response_information, [0x16, 0x2a, 0x09]);
    }
}

#[test]
fn query_task_set_is_answered_by_the_tasks_of_the_unit() {
    let mut peer = modern();
    let lun = command(0).lun;
    let has_tasks = |peer: &mut Peer, lun| {
        peer.task_management(TaskManagementRequest { lun, ..task_management(9, Function::QUERY_TASK_SET) });
        peer.driver.done(InitiatorTaskTag(9));
        peer.task_management_response().0.response == Code::FUNCTION_SUCCEEDED
    };
    assert!(!has_tasks(&mut peer, lun));
    peer.command(command(1), &[]);
    let task = peer.driver.commands[0].task;
    assert!(has_tasks(&mut peer, lun));
    assert!(!has_tasks(&mut peer, LunField([0, 9, 0, 0, 0, 0, 0, 0])));
    peer.driver.complete(task, Response::default());
    peer.scsi_response();
    assert!(!has_tasks(&mut peer, lun));
}

#[test]
fn an_answer_that_waits_for_data_does_not_follow_that_of_a_nexus_reset() {
    let mut peer = modern();
    peer.command(ScsiCommand { final_: false, ..write(1, 4096) }, &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.complete(task, Response { status: 2, ..Response::default() });
    peer.task_management(task_management(9, Function::I_T_NEXUS_RESET));
    peer.driver.answer(InitiatorTaskTag(9), Code::FUNCTION_COMPLETE);
    peer.task_management_response();
    peer.data_out(crate::harness::data_out(1, 0), &[0; 4096]);
    peer.silence();
}
