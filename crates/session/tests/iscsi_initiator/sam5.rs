//! What RFC 7144 adds, and that it needs iSCSIProtocolLevel 2.

use lunette_pdu::{
    InitiatorPdu, ScsiResponse, TaskManagementFunction as Function, TaskManagementResponse,
    TaskManagementResponseCode as Code,
};
use lunette_session::iscsi_initiator::{Command, Event};

use crate::harness::{LUN, Liar, config, read};

fn modern() -> Liar {
    Liar::logged_in(config(), &[])
}

fn old() -> Liar {
    Liar::logged_in(config(), &[("iSCSIProtocolLevel", "1")])
}

/// Submits a read with that priority; gives the one in the header.
fn sent_priority(liar: &mut Liar, priority: u8) -> u8 {
    let command = Command { priority, ..read(&liar.pool, 1, 0, 512) };
    liar.session.submit(command, liar.now).unwrap();
    liar.raw(&[]);
    let InitiatorPdu::ScsiCommand(pdu) = liar.next().pdu else { panic!("no command") };
    pdu.priority
}

#[test]
fn priority_is_sent_to_a_target_that_knows_it() {
    assert_eq!(sent_priority(&mut modern(), 3), 3);
    assert_eq!(sent_priority(&mut old(), 3), 0);
    let mut deaf = Liar::logged_in(config(), &[("iSCSIProtocolLevel", "NotUnderstood")]);
    assert_eq!(sent_priority(&mut deaf, 3), 0);
}

#[test]
fn the_status_qualifier_is_told() {
    let mut liar = modern();
    let (_, itt) = liar.read(512);
    let response = ScsiResponse { status: 0x28, status_qualifier: 7, ..liar.response(itt) };
    liar.send(response.emit(), &[]);
    let Event::Completed { response, .. } = liar.event() else { panic!("no end") };
    assert_eq!((response.status, response.status_qualifier), (0x28, 7));
}

#[test]
fn functions_are_not_sent_to_a_target_that_does_not_know_them() {
    let mut liar = old();
    let (tag, _) = liar.read(512);
    assert!(!liar.session.has_sam5_features());
    for function in [Function::QUERY_TASK, Function::I_T_NEXUS_RESET, Function::QUERY_ASYNCHRONOUS_EVENT] {
        assert!(!liar.session.manage_tasks(1, function, LUN, Some(tag)), "{function}");
    }
    liar.raw(&[]);
    assert!(liar.sent.is_empty());
}

#[test]
fn a_task_is_asked_for_by_its_tag_and_stays() {
    let mut liar = modern();
    let cmd_sn = liar.exp_cmd_sn;
    let (tag, itt) = liar.read(512);
    assert!(liar.session.manage_tasks(5, Function::QUERY_TASK, LUN, Some(tag)));
    let request = liar.task_management_request();
    assert_eq!(
        (request.function, request.referenced_task_tag, request.ref_cmd_sn),
        (Function::QUERY_TASK, itt, cmd_sn)
    );
    let response = TaskManagementResponse {
        additional_response_information: [1, 2, 3],
        ..liar.task_management_response(request.itt, Code::FUNCTION_SUCCEEDED)
    };
    liar.send(response.emit(), &[]);
    let Event::TaskManagementDone { user: 5, response, information } = liar.event() else { panic!("no answer") };
    assert_eq!((response, information), (Code::FUNCTION_SUCCEEDED, [1, 2, 3]));
    assert_eq!(liar.session.into_unfinished().len(), 1);
}

#[test]
fn a_task_that_has_ended_is_not_there() {
    let mut liar = modern();
    let (tag, itt) = liar.read(512);
    let response = ScsiResponse { status: 0x08, ..liar.response(itt) };
    liar.send(response.emit(), &[]);
    liar.event();
    assert!(liar.session.manage_tasks(5, Function::QUERY_TASK, LUN, Some(tag)));
    liar.raw(&[]);
    let Event::TaskManagementDone { response, .. } = liar.event() else { panic!("no answer") };
    assert_eq!(response, Code::FUNCTION_COMPLETE);
}

#[test]
fn a_nexus_reset_ends_every_task() {
    let mut liar = modern();
    liar.read(512);
    assert!(liar.session.manage_tasks(5, Function::I_T_NEXUS_RESET, LUN, None));
    let request = liar.task_management_request();
    let response = liar.task_management_response(request.itt, Code::FUNCTION_COMPLETE);
    liar.send(response.emit(), &[]);
    assert!(matches!(liar.event(), Event::Aborted(_)));
    assert!(matches!(liar.event(), Event::TaskManagementDone { user: 5, .. }));
}
