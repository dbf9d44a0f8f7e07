//! Tasks that are aborted together, with FastAbort and without (RFC 7143 sections 4.2.3.3, 4.2.3.4 and 11.9.1).

use lunette_pdu::{
    AsyncEvent, AsyncMessage, InitiatorPdu, InitiatorTaskTag, SerialNumber, TaskManagementFunction as Function,
    TaskManagementResponseCode,
};
use lunette_session::iscsi_initiator::{Event, SessionConfig};
use lunette_session::keys::{Choices, Offer};

use crate::harness::{LUN, Liar, config};

/// Everything needs an R2T; this is agreed on for TaskReporting.
fn session(task_reporting: &str) -> Liar {
    let offer = Offer { task_reporting: Choices(0b111), ..Offer::default() };
    let answers = [("InitialR2T", "Yes"), ("ImmediateData", "No"), ("TaskReporting", task_reporting)];
    Liar::logged_in(SessionConfig { offer, ..config() }, &answers)
}

fn data_out_of(liar: &mut Liar) -> usize {
    let sent = std::mem::take(&mut liar.sent);
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
        let mut liar = session(task_reporting);
        let (tag, itt) = liar.write(4096);
        assert!(liar.session.manage_tasks(1, function, LUN, Some(tag)));
        liar.raw(&[]);
        liar.send(liar.r2t(itt, 0, 0, 4096).emit(), &[]);
        assert_eq!(data_out_of(&mut liar), expected, "{task_reporting}, {function}");
    }
}

#[test]
fn a_request_that_is_refused_lets_the_data_go_on() {
    for response in [TaskManagementResponseCode::LUN_DOES_NOT_EXIST, TaskManagementResponseCode::FUNCTION_REJECTED] {
        let mut liar = session("FastAbort");
        let (_, itt) = liar.write(4096);
        for user in [1, 2] {
            assert!(liar.session.manage_tasks(user, Function::LOGICAL_UNIT_RESET, LUN, None));
            liar.raw(&[]);
        }
        liar.send(liar.r2t(itt, 0, 0, 4096).emit(), &[]);
        let requests: Vec<_> = liar.sent.drain(..).map(|sent| sent.pdu).collect();
        let [InitiatorPdu::TaskManagementRequest(first), InitiatorPdu::TaskManagementRequest(second)] = requests[..]
        else {
            panic!("{requests:?}")
        };
        refuse(&mut liar, first.itt, response);
        assert_eq!(data_out_of(&mut liar), 0, "the other one may still succeed");
        refuse(&mut liar, second.itt, response);
        assert_eq!(data_out_of(&mut liar), 4096, "{response}");
        let end = liar.response(itt).emit();
        liar.send(end, &[]);
        assert!(liar.events.iter().any(|event| matches!(event, Event::Completed { .. })), "{:?}", liar.events);
    }
}

fn refuse(liar: &mut Liar, itt: InitiatorTaskTag, response: TaskManagementResponseCode) {
    let pdu = liar.task_management_response(itt, response);
    liar.send(pdu.emit(), &[]);
}

#[test]
fn commands_after_the_request_send_their_data() {
    let mut liar = session("FastAbort");
    assert!(liar.session.manage_tasks(1, Function::LOGICAL_UNIT_RESET, LUN, None));
    let (_, itt) = {
        liar.raw(&[]);
        liar.sent.clear();
        liar.write(4096)
    };
    liar.send(liar.r2t(itt, 0, 0, 4096).emit(), &[]);
    assert_eq!(data_out_of(&mut liar), 4096);
}

#[test]
fn a_response_that_overtook_the_request_ends_its_task() {
    let mut liar = session("FastAbort");
    let (_, itt) = liar.write(4096);
    liar.send(liar.r2t(itt, 0, 0, 2048).emit(), &[]);
    assert!(liar.session.manage_tasks(1, Function::LOGICAL_UNIT_RESET, LUN, None));
    liar.raw(&[]);
    liar.send(liar.r2t(itt, 1, 2048, 2048).emit(), &[]);
    let response = lunette_pdu::ScsiResponse { status: 0x02, ..liar.response(itt) };
    liar.send(response.emit(), &[]);
    assert!(matches!(liar.event(), Event::Completed { .. }));
}

#[test]
fn news_of_ended_tasks_name_their_unit_in_the_acknowledgement() {
    let mut liar = session("FastAbort");
    let (_, itt) = liar.write(4096);
    let received = liar.exp_cmd_sn;
    // The target has not seen this one yet.
    liar.read(512);
    let message = AsyncMessage {
        lun: LUN,
        stat_sn: liar.next_stat_sn(),
        exp_cmd_sn: received,
        max_cmd_sn: SerialNumber(received.0.wrapping_add(31)),
        event: AsyncEvent::TASK_TERMINATION,
        vcode: 0,
        parameter1: 0,
        parameter2: 0,
        parameter3: 0,
        data_segment_len: 0,
    };
    liar.send(message.emit(), &[]);
    let Event::Aborted(command) = liar.event() else { panic!("the write has ended") };
    assert!(command.data_out.is_some());
    assert!(matches!(liar.event(), Event::Async { .. }));
    assert!(liar.events.is_empty(), "the read goes on");
    let InitiatorPdu::NopOut(pdu) = liar.next().pdu else { panic!("no acknowledgement") };
    assert_eq!((pdu.lun, pdu.itt.is_reserved(), pdu.ttt.is_reserved()), (LUN, true, true));
    assert_eq!(pdu.exp_stat_sn, liar.stat_sn);
    assert_eq!(liar.session.into_unfinished().len(), 1, "{itt}");
}
