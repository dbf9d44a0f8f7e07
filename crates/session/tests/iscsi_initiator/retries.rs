//! Requests that did not reach the target, or came damaged: at recovery level 1 they are sent again with their old
//! numbers and tags.

use std::time::Duration;

use lunette_pdu::{
    DataOut, InitiatorPdu, NopIn, NopOut, RejectReason, ScsiCommand, SerialNumber, TargetTransferTag,
    TaskManagementFunction, TaskManagementRequest, TaskManagementResponseCode, TextRequest, TextResponse,
};
use lunette_session::iscsi_initiator::{Event, SessionError, TaskTag};
use lunette_session::limits::MAX_UNANSWERED_REQUESTS;

use crate::harness::{ScriptedTarget, Sent, pattern, write};

/// A kilobyte goes with a command, three more follow it unasked.
const ANSWERS: [(&str, &str); 3] =
    [("MaxRecvDataSegmentLength", "1024"), ("FirstBurstLength", "4096"), ("MaxBurstLength", "8192")];

/// The command and the data that goes with it unasked.
fn unasked_write(target: &mut ScriptedTarget) -> (ScsiCommand, Vec<DataOut>) {
    let sent = target.next();
    let InitiatorPdu::ScsiCommand(command) = sent.pdu else { panic!("{sent:?}") };
    let mut bytes = sent.data;
    let mut data = Vec::new();
    while data.last().is_none_or(|pdu: &DataOut| !pdu.final_) {
        let sent = target.next();
        let InitiatorPdu::DataOut(pdu) = sent.pdu else { panic!("{sent:?}") };
        assert_eq!((pdu.buffer_offset as usize, pdu.data_sn as usize), (bytes.len(), data.len()));
        bytes.extend(sent.data);
        data.push(pdu);
    }
    assert_eq!(bytes, pattern(4096));
    (command, data)
}

fn submit_write(target: &mut ScriptedTarget) {
    let command = write(&target.pool, 1, 0, &pattern(4096));
    target.session.submit(command, target.now).expect("there is room");
    target.raw(&[]);
}

#[test]
fn a_command_that_came_damaged_is_sent_again_with_all_its_data() {
    let mut target = ScriptedTarget::recovering_with(&ANSWERS);
    target.behind = true;
    submit_write(&mut target);
    let (command, data) = unasked_write(&mut target);
    for n in 1..=2 {
        target.reject(RejectReason::DATA_DIGEST_ERROR, command.emit());
        let (again, data_again) = unasked_write(&mut target);
        assert_eq!(ScsiCommand { exp_stat_sn: command.exp_stat_sn, ..again }, command);
        assert_eq!(data_again.len(), data.len());
        assert_eq!(target.session.recoveries().retries, n);
    }
    target.exp_cmd_sn = command.cmd_sn.next();
    let response = target.response(command.itt);
    target.send(response.emit(), &[]);
    assert_eq!(target.completed().1.status, 0);
}

#[test]
fn a_command_that_always_comes_damaged_is_given_up() {
    let mut target = ScriptedTarget::recovering_with(&ANSWERS);
    target.behind = true;
    submit_write(&mut target);
    let (command, _) = unasked_write(&mut target);
    for _ in 0..33 {
        assert!(target.events.is_empty());
        target.reject(RejectReason::DATA_DIGEST_ERROR, command.emit());
    }
    assert_eq!(target.closed(), SessionError::Unrecovered("an acknowledgement"));
    assert_eq!(target.session.into_unfinished().len(), 1);
}

#[test]
fn what_the_target_has_taken_is_not_sent_again() {
    let mut target = ScriptedTarget::recovering_with(&ANSWERS);
    submit_write(&mut target);
    let (command, data) = unasked_write(&mut target);
    target.reject(RejectReason::DATA_DIGEST_ERROR, command.emit());
    // RFC 7143 section 7.3: the target asks for data that it refuses, or ends the task.
    target.reject(RejectReason::DATA_DIGEST_ERROR, data[1].emit());
    target.reject(RejectReason::PROTOCOL_ERROR, data[2].emit());
    assert!(target.sent.is_empty() && target.events.is_empty(), "{:?} {:?}", target.sent, target.events);
    let pdu = target.r2t(command.itt, 0, 2048, 1024);
    target.send(pdu.emit(), &[]);
    assert!(matches!(target.next().pdu, InitiatorPdu::DataOut(DataOut { buffer_offset: 2048, final_: true, .. })));
    let response = target.response(command.itt);
    target.send(response.emit(), &[]);
    assert_eq!(target.completed().1.status, 0);
}

#[test]
fn a_status_may_overtake_a_retry_that_was_none_of_need() {
    let mut target = ScriptedTarget::recovering_with(&ANSWERS);
    target.behind = true;
    submit_write(&mut target);
    let (command, _) = unasked_write(&mut target);
    target.pass_in_company(Duration::from_secs(5));
    unasked_write(&mut target);
    target.exp_cmd_sn = command.cmd_sn.next();
    let response = target.response(command.itt);
    target.send(response.emit(), &[]);
    assert_eq!(target.completed().1.status, 0);
}

#[test]
fn a_command_that_is_not_acknowledged_is_sent_again_until_the_connection_is_given_up() {
    let mut target = ScriptedTarget::recovering();
    target.behind = true;
    let first = target.exp_cmd_sn;
    target.read(512);
    target.read(512);
    for _ in 0..4 {
        target.pass_in_company(Duration::from_secs(5));
        let sent = target.next();
        let InitiatorPdu::ScsiCommand(pdu) = sent.pdu else { panic!("{sent:?}") };
        assert_eq!(pdu.cmd_sn, first);
        assert!(target.sent.is_empty(), "only what the target waits for: {:?}", target.sent);
    }
    target.pass_in_company(Duration::from_secs(5));
    assert_eq!(target.closed(), SessionError::Unrecovered("an acknowledgement"));
    assert_eq!(target.session.into_unfinished().len(), 2);
}

/// A target with few buffers reads no further command while it sends the data of those before.
#[test]
fn a_target_that_is_busy_with_earlier_commands_is_not_given_up() {
    let mut target = ScriptedTarget::recovering_with(&[("MaxRecvDataSegmentLength", "512")]);
    let (_, first) = target.read(20 * 512);
    let data = |target: &mut ScriptedTarget, data_sn| {
        let pdu = target.data_in(first, data_sn, data_sn * 512, 512);
        target.send_data(pdu);
    };
    data(&mut target, 0);
    target.pass(Duration::from_secs(5));
    target.behind = true;
    let (_, second) = target.read(512);
    for data_sn in 1..20 {
        target.pass(Duration::from_secs(1));
        data(&mut target, data_sn);
        target.pass(Duration::from_secs(4));
        let sent = target.next();
        assert!(matches!(sent.pdu, InitiatorPdu::ScsiCommand(pdu) if pdu.itt == second), "{sent:?}");
        assert!(target.sent.is_empty() && target.events.is_empty(), "{:?} {:?}", target.sent, target.events);
    }
    for _ in 0..MAX_UNANSWERED_REQUESTS {
        target.pass_in_company(Duration::from_secs(5));
        target.next();
        assert!(target.events.is_empty(), "{:?}", target.events);
    }
    target.pass_in_company(Duration::from_secs(5));
    assert_eq!(target.closed(), SessionError::Unrecovered("an acknowledgement"));
}

#[test]
fn what_the_target_waits_for_moves_on() {
    let mut target = ScriptedTarget::recovering();
    target.behind = true;
    let first = target.exp_cmd_sn;
    let (_, itt) = target.read(512);
    target.read(512);
    target.pass_in_company(Duration::from_secs(5));
    assert!(matches!(target.next().pdu, InitiatorPdu::ScsiCommand(pdu) if pdu.cmd_sn == first && pdu.itt == itt));
    target.exp_cmd_sn = first.next();
    target.pass_in_company(Duration::from_secs(5));
    assert!(target.sent.is_empty(), "the time allowed starts over: {:?}", target.sent);
    target.pass_in_company(Duration::from_secs(5));
    assert!(matches!(target.next().pdu, InitiatorPdu::ScsiCommand(pdu) if pdu.cmd_sn == first.next()));
    target.exp_cmd_sn = first.add(2);
    for _ in 0..10 {
        target.pass_in_company(Duration::from_secs(5));
    }
    assert!(target.sent.is_empty() && target.events.is_empty(), "{:?} {:?}", target.sent, target.events);
}

/// A silent target is pinged, and given up when the ping is not answered.
#[test]
fn nothing_is_sent_again_to_a_target_that_is_silent() {
    let mut target = ScriptedTarget::recovering();
    target.behind = true;
    target.read(512);
    target.pass(Duration::from_secs(49));
    assert!(matches!(target.next().pdu, InitiatorPdu::NopOut(_)));
    assert!(target.sent.is_empty() && target.events.is_empty(), "{:?} {:?}", target.sent, target.events);
    target.pass(Duration::from_secs(2));
    assert_eq!(target.closed(), SessionError::PingTimeout);
}

fn text_request(target: &mut ScriptedTarget) -> (TextRequest, Vec<u8>) {
    let sent = target.next();
    let InitiatorPdu::TextRequest(pdu) = sent.pdu else { panic!("{sent:?}") };
    (pdu, sent.data)
}

#[test]
fn a_ping_that_came_damaged_is_sent_again_as_far_as_the_target_takes_it_by_now() {
    let mut target = ScriptedTarget::recovering();
    target.behind = true;
    assert!(target.session.ping(7, target.cid, vec![5; 1000]));
    assert!(target.session.text(8, &[("X-a", "1")]));
    target.raw(&[]);
    let sent = target.next();
    let InitiatorPdu::NopOut(ping) = sent.pdu else { panic!("{sent:?}") };
    let (text, _) = text_request(&mut target);
    let limit = b"MaxRecvDataSegmentLength=512\0";
    target.exp_cmd_sn = text.cmd_sn.next();
    let response = TextResponse { lun: text.lun, ..target.used().text_response(text.itt, limit.len()) };
    target.send(response.emit(), limit);
    assert!(matches!(target.event(), Event::Text { user: 8, .. }));
    target.reject(RejectReason::DATA_DIGEST_ERROR, ping.emit());
    let sent = target.next();
    assert!(matches!(sent.pdu, InitiatorPdu::NopOut(again) if again.itt == ping.itt), "{sent:?}");
    assert_eq!(sent.data, [5; 512]);
    let stat_sn = target.next_stat_sn();
    let pong = NopIn { itt: ping.itt, stat_sn, data_segment_len: 512, ..target.nop_in() };
    target.send(pong.emit(), &[5; 512]);
    assert!(matches!(target.event(), Event::Pong { user: 7, intact: true }));
}

#[test]
fn text_that_came_damaged_is_sent_again() {
    let mut target = ScriptedTarget::recovering();
    target.behind = true;
    assert!(target.session.text(5, &[("SendTargets", "All")]));
    target.raw(&[]);
    let (pdu, text) = text_request(&mut target);
    target.reject(RejectReason::DATA_DIGEST_ERROR, pdu.emit());
    let (again, text_again) = text_request(&mut target);
    assert_eq!((TextRequest { exp_stat_sn: pdu.exp_stat_sn, ..again }, text_again), (pdu, text));
    assert_eq!(again.exp_stat_sn, pdu.exp_stat_sn.next());
    // The same when it does not come at all.
    target.pass_in_company(Duration::from_secs(5));
    assert_eq!(text_request(&mut target).0.cmd_sn, pdu.cmd_sn);
}

fn ping_of_ours(target: &mut ScriptedTarget) -> (NopOut, Vec<u8>) {
    let sent = target.next();
    let InitiatorPdu::NopOut(pdu) = sent.pdu else { panic!("{sent:?}") };
    (pdu, sent.data)
}

#[test]
fn a_ping_that_came_damaged_is_sent_again() {
    let mut target = ScriptedTarget::recovering();
    assert!(target.session.ping(9, target.cid, b"echo".to_vec()));
    target.raw(&[]);
    let (pdu, data) = ping_of_ours(&mut target);
    target.reject(RejectReason::DATA_DIGEST_ERROR, pdu.emit());
    let (again, data_again) = ping_of_ours(&mut target);
    assert_eq!((again.itt, data_again), (pdu.itt, data));
    let stat_sn = target.next_stat_sn();
    let answer = NopIn { itt: pdu.itt, ttt: TargetTransferTag::RESERVED, stat_sn, ..target.nop_in() };
    target.send(NopIn { data_segment_len: 4, ..answer }.emit(), b"echo");
    assert!(matches!(target.event(), Event::Pong { user: 9, intact: true }));
}

/// The number of a command that was ended otherwise is used up by a ping.
#[test]
fn a_number_that_nobody_waits_for_is_filled() {
    let mut target = ScriptedTarget::recovering();
    target.behind = true;
    let first: SerialNumber = target.exp_cmd_sn;
    target.read(512);
    let reset = lunette_pdu::TaskManagementFunction::LOGICAL_UNIT_RESET;
    assert!(target.session.manage_tasks(1, reset, crate::harness::LUN, None));
    let request = target.task_management_request();
    let complete = lunette_pdu::TaskManagementResponse {
        exp_cmd_sn: first,
        ..target.task_management_response(request.itt, lunette_pdu::TaskManagementResponseCode::FUNCTION_COMPLETE)
    };
    target.send(complete.emit(), &[]);
    assert!(matches!(target.event(), Event::Aborted(_)));
    target.event();
    target.sent.clear();
    target.pass_in_company(Duration::from_secs(5));
    let (pdu, _) = ping_of_ours(&mut target);
    assert_eq!((pdu.immediate, pdu.cmd_sn), (false, first));
}

/// Answers a ping with what it brought.
fn pong(target: &mut ScriptedTarget, pdu: &NopOut, data: &[u8]) {
    let stat_sn = target.next_stat_sn();
    let answer = NopIn { itt: pdu.itt, ttt: TargetTransferTag::RESERVED, stat_sn, ..target.nop_in() };
    target.send(NopIn { data_segment_len: data.len(), ..answer }.emit(), data);
}

/// Time passes, in which a target answers the pings that bring nothing. Gives what else was sent.
fn pass_with_pongs(target: &mut ScriptedTarget, seconds: u64) -> Vec<Sent> {
    let mut others = Vec::new();
    for _ in 0..seconds {
        target.pass(Duration::from_secs(1));
        for sent in std::mem::take(&mut target.sent) {
            match sent.pdu {
                InitiatorPdu::NopOut(pdu) if sent.data.is_empty() => pong(target, &pdu, &[]),
                _ => others.push(sent),
            }
        }
    }
    others
}

#[test]
fn a_ping_that_is_lost_is_sent_again_when_others_are_answered() {
    let mut target = ScriptedTarget::recovering();
    assert!(target.session.ping(9, target.cid, b"echo".to_vec()));
    target.raw(&[]);
    let (pdu, data) = ping_of_ours(&mut target);
    let again = pass_with_pongs(&mut target, 11);
    let [Sent { pdu: InitiatorPdu::NopOut(again), data: data_again, .. }] = &again[..] else { panic!("{again:?}") };
    assert_eq!((NopOut { exp_stat_sn: pdu.exp_stat_sn, ..*again }, data_again), (pdu, &data));
    // It was not lost, but late.
    pong(&mut target, &pdu, b"echo");
    pong(&mut target, &pdu, b"echo");
    assert!(matches!(target.event(), Event::Pong { user: 9, intact: true }));
    assert!(target.events.is_empty() && pass_with_pongs(&mut target, 30).is_empty(), "{:?}", target.events);
}

#[test]
fn a_ping_that_is_never_answered_though_others_are_is_given_up() {
    let mut target = ScriptedTarget::recovering();
    assert!(target.session.ping(9, target.cid, b"echo".to_vec()));
    target.raw(&[]);
    let again = pass_with_pongs(&mut target, 49);
    assert_eq!((again.len(), target.events.len()), (5, 0), "{again:?}");
    assert!(pass_with_pongs(&mut target, 2).is_empty());
    assert_eq!(target.closed(), SessionError::Unrecovered("an answer"));
    assert_eq!(target.session.next_timeout(), None);
}

fn manage(target: &mut ScriptedTarget) -> TaskManagementRequest {
    let reset = TaskManagementFunction::LOGICAL_UNIT_RESET;
    assert!(target.session.manage_tasks(1, reset, crate::harness::LUN, None));
    target.task_management_request()
}

/// A task management function may never have come, so it is sent again.
#[test]
fn a_task_management_function_is_sent_again_but_not_for_ever() {
    let mut target = ScriptedTarget::recovering();
    let request = manage(&mut target);
    let again = pass_with_pongs(&mut target, 200);
    let is_it = |sent: &Sent| matches!(sent.pdu, InitiatorPdu::TaskManagementRequest(pdu) if pdu.itt == request.itt);
    assert!(again.len() == MAX_UNANSWERED_REQUESTS as usize && again.iter().all(is_it), "{again:?}");
    assert!(matches!(target.closed(), SessionError::Unrecovered(_)));
}

/// RFC 7144 section 6.3.3: the target waits for it no more. What it sends beside the answer may say so first.
#[test]
fn a_command_that_a_query_counts_as_received_comes_back() {
    for is_told_before in [false, true] {
        let mut target = ScriptedTarget::recovering_with(&[("iSCSIProtocolLevel", "2")]);
        target.behind = true;
        let (tag, _) = target.read(512);
        assert!(!query(&mut target, tag, TaskManagementResponseCode::FUNCTION_SUCCEEDED, false));
        assert!(query(&mut target, tag, TaskManagementResponseCode::FUNCTION_COMPLETE, is_told_before));
        assert!(target.session.into_unfinished().is_empty());
    }
}

/// Whether a command is given back before the answer to a query.
fn query(
    target: &mut ScriptedTarget,
    task: TaskTag,
    response: TaskManagementResponseCode,
    is_told_before: bool,
) -> bool {
    let query = TaskManagementFunction::QUERY_TASK;
    assert!(target.session.manage_tasks(1, query, crate::harness::LUN, Some(task)));
    let request = target.task_management_request();
    if response == TaskManagementResponseCode::FUNCTION_COMPLETE {
        target.exp_cmd_sn = request.ref_cmd_sn.next();
    }
    if is_told_before {
        target.send(target.nop_in().emit(), &[]);
    }
    let pdu = target.task_management_response(request.itt, response);
    target.send(pdu.emit(), &[]);
    assert!(matches!(target.events.pop_back(), Some(Event::TaskManagementDone { user: 1, .. })));
    std::mem::take(&mut target.events).iter().any(|event| matches!(event, Event::Aborted(_)))
}

#[test]
fn a_target_that_works_on_a_function_is_waited_for() {
    let mut target = ScriptedTarget::recovering();
    let request = manage(&mut target);
    let again = pass_with_pongs(&mut target, 12);
    assert_eq!(again.len(), 1, "{again:?}");
    target.reject(RejectReason::TASK_IN_PROGRESS, request.emit());
    let again = pass_with_pongs(&mut target, 500);
    assert!(again.is_empty() && target.events.is_empty(), "{again:?} {:?}", target.events);
    for _ in 0..2 {
        let complete = target.task_management_response(request.itt, TaskManagementResponseCode::FUNCTION_COMPLETE);
        target.send(complete.emit(), &[]);
    }
    target.reject(RejectReason::TOO_MANY_IMMEDIATE_COMMANDS, request.emit());
    assert!(matches!(target.event(), Event::TaskManagementDone { user: 1, .. }));
    assert!(target.events.is_empty(), "{:?}", target.events);
}

#[test]
fn a_logout_that_is_lost_is_sent_again() {
    let mut target = ScriptedTarget::recovering();
    assert!(target.session.logout());
    target.raw(&[]);
    let InitiatorPdu::LogoutRequest(request) = target.next().pdu else { panic!("no logout") };
    target.pass(Duration::from_secs(5));
    let InitiatorPdu::LogoutRequest(again) = target.next().pdu else { panic!("no logout") };
    assert_eq!(again, request);
    let closed = target.used().logout_response(request.itt);
    target.send(closed.emit(), &[]);
    assert_eq!(target.closed(), SessionError::LoggedOut);
}

#[test]
fn a_logout_that_is_never_answered_ends_the_connection_all_the_same() {
    let mut target = ScriptedTarget::recovering();
    assert!(target.session.logout());
    target.raw(&[]);
    target.pass(Duration::from_mins(1));
    assert_eq!(target.sent.len(), 1 + MAX_UNANSWERED_REQUESTS as usize, "{:?}", target.sent);
    assert!(matches!(target.closed(), SessionError::Unrecovered(_)));
    assert!(target.session.is_over());
}

/// A response before that of the ping is missing: it may be the one.
#[test]
fn nothing_is_sent_again_while_a_response_is_missing() {
    let mut target = ScriptedTarget::recovering();
    assert!(target.session.ping(9, target.cid, b"echo".to_vec()));
    target.raw(&[]);
    ping_of_ours(&mut target);
    target.next_stat_sn();
    let again = pass_with_pongs(&mut target, 20);
    assert!(again.iter().all(|sent| matches!(sent.pdu, InitiatorPdu::SnackRequest(_))), "{again:?}");
}
