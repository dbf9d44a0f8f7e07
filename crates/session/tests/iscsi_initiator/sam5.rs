//! The additions of RFC 7144, which need iSCSIProtocolLevel 2.

use lunette_pdu::{
    InitiatorPdu, ScsiResponse, TaskManagementFunction as Function, TaskManagementResponse,
    TaskManagementResponseCode as Code,
};
use lunette_session::iscsi_initiator::{Command, Event};

use crate::harness::{LUN, ScriptedTarget, config, read};

fn modern() -> ScriptedTarget {
    ScriptedTarget::logged_in(config(), &[])
}

fn old() -> ScriptedTarget {
    ScriptedTarget::logged_in(config(), &[("iSCSIProtocolLevel", "1")])
}

/// Submits a read with that priority; gives the one in the header.
fn sent_priority(target: &mut ScriptedTarget, priority: u8) -> u8 {
    let command = Command { priority, ..read(&target.pool, 1, 0, 512) };
    target.session.submit(command, target.now).unwrap();
    target.raw(&[]);
    let InitiatorPdu::ScsiCommand(pdu) = target.next().pdu else { panic!("no command") };
    pdu.priority
}

#[test]
fn priority_is_sent_to_a_target_that_knows_it() {
    assert_eq!(sent_priority(&mut modern(), 3), 3);
    assert_eq!(sent_priority(&mut old(), 3), 0);
    let mut deaf = ScriptedTarget::logged_in(config(), &[("iSCSIProtocolLevel", "NotUnderstood")]);
    assert_eq!(sent_priority(&mut deaf, 3), 0);
}

#[test]
fn the_status_qualifier_is_told() {
    let mut target = modern();
    let (_, itt) = target.read(512);
    let response = ScsiResponse { status: 0x28, status_qualifier: 7, ..target.response(itt) };
    target.send(response.emit(), &[]);
    let Event::Completed { response, .. } = target.event() else { panic!("no end") };
    assert_eq!((response.status, response.status_qualifier), (0x28, 7));
}

#[test]
fn functions_are_not_sent_to_a_target_that_does_not_know_them() {
    let mut target = old();
    let (tag, _) = target.read(512);
    assert!(!target.session.has_sam5_features());
    for function in [Function::QUERY_TASK, Function::I_T_NEXUS_RESET, Function::QUERY_ASYNCHRONOUS_EVENT] {
        assert!(!target.session.manage_tasks(1, function, LUN, Some(tag)), "{function}");
    }
    target.raw(&[]);
    assert!(target.sent.is_empty());
}

#[test]
fn a_task_is_asked_for_by_its_tag_and_stays() {
    let mut target = modern();
    let cmd_sn = target.exp_cmd_sn;
    let (tag, itt) = target.read(512);
    assert!(target.session.manage_tasks(5, Function::QUERY_TASK, LUN, Some(tag)));
    let request = target.task_management_request();
    assert_eq!(
        (request.function, request.referenced_task_tag, request.ref_cmd_sn),
        (Function::QUERY_TASK, itt, cmd_sn)
    );
    let response = TaskManagementResponse {
        additional_response_information: [1, 2, 3],
        ..target.task_management_response(request.itt, Code::FUNCTION_SUCCEEDED)
    };
    target.send(response.emit(), &[]);
    let Event::TaskManagementDone { user: 5, response, information } = target.event() else { panic!("no answer") };
    assert_eq!((response, information), (Code::FUNCTION_SUCCEEDED, [1, 2, 3]));
    assert_eq!(target.session.into_unfinished().len(), 1);
}

#[test]
fn a_task_that_has_ended_is_not_there() {
    let mut target = modern();
    let (tag, itt) = target.read(512);
    let response = ScsiResponse { status: 0x08, ..target.response(itt) };
    target.send(response.emit(), &[]);
    target.event();
    assert!(target.session.manage_tasks(5, Function::QUERY_TASK, LUN, Some(tag)));
    target.raw(&[]);
    let Event::TaskManagementDone { response, .. } = target.event() else { panic!("no answer") };
    assert_eq!(response, Code::FUNCTION_COMPLETE);
}

#[test]
fn a_nexus_reset_ends_every_task() {
    let mut target = modern();
    target.read(512);
    assert!(target.session.manage_tasks(5, Function::I_T_NEXUS_RESET, LUN, None));
    let request = target.task_management_request();
    let response = target.task_management_response(request.itt, Code::FUNCTION_COMPLETE);
    target.send(response.emit(), &[]);
    assert!(matches!(target.event(), Event::Aborted(_)));
    assert!(matches!(target.event(), Event::TaskManagementDone { user: 5, .. }));
}
