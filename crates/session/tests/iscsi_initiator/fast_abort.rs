//! Tasks that are aborted together, with FastAbort and without (RFC 7143 sections 4.2.3.3, 4.2.3.4 and 11.9.1).

use lunette_pdu::{
    AsyncEvent, AsyncMessage, InitiatorPdu, InitiatorTaskTag, TaskManagementFunction as Function,
    TaskManagementResponseCode,
};
use lunette_session::iscsi_initiator::{Event, SessionConfig};
use lunette_session::keys::{Choices, Offer};
use lunette_testkit::Numbers;

use crate::harness::{LUN, ScriptedTarget, config};

/// Everything needs an R2T; this is agreed on for TaskReporting.
fn session(task_reporting: &str) -> ScriptedTarget {
    let offer = Offer { task_reporting: Choices(0b111), ..Offer::default() };
    let answers = [("InitialR2T", "Yes"), ("ImmediateData", "No"), ("TaskReporting", task_reporting)];
    ScriptedTarget::logged_in(SessionConfig { offer, ..config() }, &answers)
}

fn data_out_of(target: &mut ScriptedTarget) -> usize {
    let sent = std::mem::take(&mut target.sent);
    sent.iter().filter(|sent| matches!(sent.pdu, InitiatorPdu::DataOut(_))).map(|sent| sent.data.len()).sum()
}

#[test]
fn no_data_follows_the_request_with_fast_abort_and_all_of_it_without() {
    for (task_reporting, function, expected) in [
        ("FastAbort", Function::LOGICAL_UNIT_RESET, 0),
        ("FastAbort", Function::TARGET_WARM_RESET, 0),
        ("FastAbort", Function::ABORT_TASK, 4096),
        ("ResponseFence", Function::LOGICAL_UNIT_RESET, 4096),
        ("RFC3720", Function::CLEAR_TASK_SET, 4096),
    ] {
        let mut target = session(task_reporting);
        let (tag, itt) = target.write(4096);
        assert!(target.session.manage_tasks(1, function, LUN, Some(tag)));
        target.raw(&[]);
        target.send(target.r2t(itt, 0, 0, 4096).emit(), &[]);
        assert_eq!(data_out_of(&mut target), expected, "{task_reporting}, {function}");
    }
}

#[test]
fn a_request_that_is_refused_lets_the_data_go_on() {
    for response in [TaskManagementResponseCode::LUN_DOES_NOT_EXIST, TaskManagementResponseCode::FUNCTION_REJECTED] {
        let mut target = session("FastAbort");
        let (_, itt) = target.write(4096);
        for user in [1, 2] {
            assert!(target.session.manage_tasks(user, Function::LOGICAL_UNIT_RESET, LUN, None));
            target.raw(&[]);
        }
        target.send(target.r2t(itt, 0, 0, 4096).emit(), &[]);
        let requests: Vec<_> = target.sent.drain(..).map(|sent| sent.pdu).collect();
        let [InitiatorPdu::TaskManagementRequest(first), InitiatorPdu::TaskManagementRequest(second)] = requests[..]
        else {
            panic!("{requests:?}")
        };
        refuse(&mut target, first.itt, response);
        assert_eq!(data_out_of(&mut target), 0, "the other one may still succeed");
        refuse(&mut target, second.itt, response);
        assert_eq!(data_out_of(&mut target), 4096, "{response}");
        let end = target.response(itt).emit();
        target.send(end, &[]);
        assert!(target.events.iter().any(|event| matches!(event, Event::Completed { .. })), "{:?}", target.events);
    }
}

fn refuse(target: &mut ScriptedTarget, itt: InitiatorTaskTag, response: TaskManagementResponseCode) {
    let pdu = target.task_management_response(itt, response);
    target.send(pdu.emit(), &[]);
}

#[test]
fn commands_after_the_request_send_their_data() {
    let mut target = session("FastAbort");
    assert!(target.session.manage_tasks(1, Function::LOGICAL_UNIT_RESET, LUN, None));
    let (_, itt) = {
        target.raw(&[]);
        target.sent.clear();
        target.write(4096)
    };
    target.send(target.r2t(itt, 0, 0, 4096).emit(), &[]);
    assert_eq!(data_out_of(&mut target), 4096);
}

#[test]
fn a_response_that_overtook_the_request_ends_its_task() {
    let mut target = session("FastAbort");
    let (_, itt) = target.write(4096);
    target.send(target.r2t(itt, 0, 0, 2048).emit(), &[]);
    assert!(target.session.manage_tasks(1, Function::LOGICAL_UNIT_RESET, LUN, None));
    target.raw(&[]);
    target.send(target.r2t(itt, 1, 2048, 2048).emit(), &[]);
    let response = lunette_pdu::ScsiResponse { status: 0x02, ..target.response(itt) };
    target.send(response.emit(), &[]);
    assert!(matches!(target.event(), Event::Completed { .. }));
}

#[test]
fn news_of_ended_tasks_name_their_unit_in_the_acknowledgement() {
    let mut target = session("FastAbort");
    let (_, itt) = target.write(4096);
    let received = target.exp_cmd_sn;
    // The target has not seen this one yet.
    target.read(512);
    let message = Numbers::new(target.next_stat_sn(), received).async_message(AsyncEvent::TASK_TERMINATION);
    let message = AsyncMessage { lun: LUN, ..message };
    target.send(message.emit(), &[]);
    let Event::Aborted(command) = target.event() else { panic!("the write has ended") };
    assert!(command.data_out.is_some());
    assert!(matches!(target.event(), Event::Async { .. }));
    assert!(target.events.is_empty(), "the read goes on");
    let InitiatorPdu::NopOut(pdu) = target.next().pdu else { panic!("no acknowledgement") };
    assert_eq!((pdu.lun, pdu.itt.is_reserved(), pdu.ttt.is_reserved()), (LUN, true, true));
    assert_eq!(pdu.exp_stat_sn, target.stat_sn);
    assert_eq!(target.session.into_unfinished().len(), 1, "{itt}");
}
