//! Requests that did not reach the target, or came damaged: at recovery level 1 they are sent again with their old numbers and
//! tags.

use std::time::Duration;

use lunette_pdu::{
    DataOut, InitiatorPdu, LogoutResponse, LogoutResponseCode, NopIn, NopOut, RejectReason, ScsiCommand, SerialNumber,
    TargetTransferTag, TaskManagementFunction, TaskManagementRequest, TaskManagementResponseCode, TextRequest,
    TextResponse,
};
use lunette_session::iscsi_initiator::{Event, SessionError, TaskTag};
use lunette_session::limits::MAX_UNANSWERED_REQUESTS;

use crate::harness::{Liar, Sent, pattern, write};

/// A kilobyte goes with a command, three more follow it unasked.
const ANSWERS: [(&str, &str); 3] =
    [("MaxRecvDataSegmentLength", "1024"), ("FirstBurstLength", "4096"), ("MaxBurstLength", "8192")];

/// The command and the data that goes with it unasked.
fn unasked_write(liar: &mut Liar) -> (ScsiCommand, Vec<DataOut>) {
    let sent = liar.next();
    let InitiatorPdu::ScsiCommand(command) = sent.pdu else { panic!("{sent:?}") };
    let mut bytes = sent.data;
    let mut data = Vec::new();
    while data.last().is_none_or(|pdu: &DataOut| !pdu.final_) {
        let sent = liar.next();
        let InitiatorPdu::DataOut(pdu) = sent.pdu else { panic!("{sent:?}") };
        assert_eq!((pdu.buffer_offset as usize, pdu.data_sn as usize), (bytes.len(), data.len()));
        bytes.extend(sent.data);
        data.push(pdu);
    }
    assert_eq!(bytes, pattern(4096));
    (command, data)
}

fn submit_write(liar: &mut Liar) {
    let command = write(&liar.pool, 1, 0, &pattern(4096));
    liar.session.submit(command, liar.now).expect("there is room");
    liar.raw(&[]);
}

#[test]
fn a_command_that_came_damaged_is_sent_again_with_all_its_data() {
    let mut liar = Liar::recovering_with(&ANSWERS);
    liar.behind = true;
    submit_write(&mut liar);
    let (command, data) = unasked_write(&mut liar);
    for n in 1..=2 {
        liar.reject(RejectReason::DATA_DIGEST_ERROR, command.emit());
        let (again, data_again) = unasked_write(&mut liar);
        assert_eq!(ScsiCommand { exp_stat_sn: command.exp_stat_sn, ..again }, command);
        assert_eq!(data_again.len(), data.len());
        assert_eq!(liar.session.recoveries().retries, n);
    }
    liar.exp_cmd_sn = command.cmd_sn.next();
    let response = liar.response(command.itt);
    liar.send(response.emit(), &[]);
    assert_eq!(liar.completed().1.status, 0);
}

#[test]
fn a_command_that_always_comes_damaged_is_given_up() {
    let mut liar = Liar::recovering_with(&ANSWERS);
    liar.behind = true;
    submit_write(&mut liar);
    let (command, _) = unasked_write(&mut liar);
    for _ in 0..33 {
        assert!(liar.events.is_empty());
        liar.reject(RejectReason::DATA_DIGEST_ERROR, command.emit());
    }
    assert_eq!(liar.closed(), SessionError::Unrecovered("an acknowledgement"));
    assert_eq!(liar.session.into_unfinished().len(), 1);
}

#[test]
fn what_the_target_has_taken_is_not_sent_again() {
    let mut liar = Liar::recovering_with(&ANSWERS);
    submit_write(&mut liar);
    let (command, data) = unasked_write(&mut liar);
    liar.reject(RejectReason::DATA_DIGEST_ERROR, command.emit());
    // RFC 7143 section 7.3: the target asks for data that it refuses, or ends the task.
    liar.reject(RejectReason::DATA_DIGEST_ERROR, data[1].emit());
    liar.reject(RejectReason::PROTOCOL_ERROR, data[2].emit());
    assert!(liar.sent.is_empty() && liar.events.is_empty(), "{:?} {:?}", liar.sent, liar.events);
    let pdu = liar.r2t(command.itt, 0, 2048, 1024);
    liar.send(pdu.emit(), &[]);
    assert!(matches!(liar.next().pdu, InitiatorPdu::DataOut(DataOut { buffer_offset: 2048, final_: true, .. })));
    let response = liar.response(command.itt);
    liar.send(response.emit(), &[]);
    assert_eq!(liar.completed().1.status, 0);
}

#[test]
fn a_status_may_overtake_a_retry_that_was_none_of_need() {
    let mut liar = Liar::recovering_with(&ANSWERS);
    liar.behind = true;
    submit_write(&mut liar);
    let (command, _) = unasked_write(&mut liar);
    liar.pass_in_company(Duration::from_secs(5));
    unasked_write(&mut liar);
    liar.exp_cmd_sn = command.cmd_sn.next();
    let response = liar.response(command.itt);
    liar.send(response.emit(), &[]);
    assert_eq!(liar.completed().1.status, 0);
}

#[test]
fn a_command_that_is_not_acknowledged_is_sent_again_until_the_connection_is_given_up() {
    let mut liar = Liar::recovering();
    liar.behind = true;
    let first = liar.exp_cmd_sn;
    liar.read(512);
    liar.read(512);
    for _ in 0..4 {
        liar.pass_in_company(Duration::from_secs(5));
        let sent = liar.next();
        let InitiatorPdu::ScsiCommand(pdu) = sent.pdu else { panic!("{sent:?}") };
        assert_eq!(pdu.cmd_sn, first);
        assert!(liar.sent.is_empty(), "only what the target waits for: {:?}", liar.sent);
    }
    liar.pass_in_company(Duration::from_secs(5));
    assert_eq!(liar.closed(), SessionError::Unrecovered("an acknowledgement"));
    assert_eq!(liar.session.into_unfinished().len(), 2);
}

#[test]
fn what_the_target_waits_for_moves_on() {
    let mut liar = Liar::recovering();
    liar.behind = true;
    let first = liar.exp_cmd_sn;
    let (_, itt) = liar.read(512);
    liar.read(512);
    liar.pass_in_company(Duration::from_secs(5));
    assert!(matches!(liar.next().pdu, InitiatorPdu::ScsiCommand(pdu) if pdu.cmd_sn == first && pdu.itt == itt));
    liar.exp_cmd_sn = first.next();
    liar.pass_in_company(Duration::from_secs(5));
    assert!(liar.sent.is_empty(), "the patience begins anew: {:?}", liar.sent);
    liar.pass_in_company(Duration::from_secs(5));
    assert!(matches!(liar.next().pdu, InitiatorPdu::ScsiCommand(pdu) if pdu.cmd_sn == first.next()));
    liar.exp_cmd_sn = first.add(2);
    for _ in 0..10 {
        liar.pass_in_company(Duration::from_secs(5));
    }
    assert!(liar.sent.is_empty() && liar.events.is_empty(), "{:?} {:?}", liar.sent, liar.events);
}

/// It is pinged instead, and given up when that is not answered.
#[test]
fn nothing_is_sent_again_to_a_target_that_is_silent() {
    let mut liar = Liar::recovering();
    liar.behind = true;
    liar.read(512);
    liar.pass(Duration::from_secs(49));
    assert!(matches!(liar.next().pdu, InitiatorPdu::NopOut(_)));
    assert!(liar.sent.is_empty() && liar.events.is_empty(), "{:?} {:?}", liar.sent, liar.events);
    liar.pass(Duration::from_secs(2));
    assert_eq!(liar.closed(), SessionError::PingTimeout);
}

fn text_request(liar: &mut Liar) -> (TextRequest, Vec<u8>) {
    let sent = liar.next();
    let InitiatorPdu::TextRequest(pdu) = sent.pdu else { panic!("{sent:?}") };
    (pdu, sent.data)
}

#[test]
fn a_ping_that_came_damaged_is_sent_again_as_far_as_the_target_takes_it_by_now() {
    let mut liar = Liar::recovering();
    liar.behind = true;
    assert!(liar.session.ping(7, liar.cid, vec![5; 1000]));
    assert!(liar.session.text(8, &[("X-a", "1")]));
    liar.raw(&[]);
    let sent = liar.next();
    let InitiatorPdu::NopOut(ping) = sent.pdu else { panic!("{sent:?}") };
    let (text, _) = text_request(&mut liar);
    let limit = b"MaxRecvDataSegmentLength=512\0";
    liar.exp_cmd_sn = text.cmd_sn.next();
    let response = TextResponse {
        final_: true,
        continue_: false,
        lun: text.lun,
        itt: text.itt,
        ttt: TargetTransferTag::RESERVED,
        stat_sn: liar.next_stat_sn(),
        exp_cmd_sn: liar.exp_cmd_sn,
        max_cmd_sn: liar.max_cmd_sn(),
        data_segment_len: limit.len(),
    };
    liar.send(response.emit(), limit);
    assert!(matches!(liar.event(), Event::Text { user: 8, .. }));
    liar.reject(RejectReason::DATA_DIGEST_ERROR, ping.emit());
    let sent = liar.next();
    assert!(matches!(sent.pdu, InitiatorPdu::NopOut(again) if again.itt == ping.itt), "{sent:?}");
    assert_eq!(sent.data, [5; 512]);
    let stat_sn = liar.next_stat_sn();
    let pong = NopIn { itt: ping.itt, stat_sn, data_segment_len: 512, ..liar.nop_in() };
    liar.send(pong.emit(), &[5; 512]);
    assert!(matches!(liar.event(), Event::Pong { user: 7, intact: true }));
}

#[test]
fn text_that_came_damaged_is_sent_again() {
    let mut liar = Liar::recovering();
    liar.behind = true;
    assert!(liar.session.text(5, &[("SendTargets", "All")]));
    liar.raw(&[]);
    let (pdu, text) = text_request(&mut liar);
    liar.reject(RejectReason::DATA_DIGEST_ERROR, pdu.emit());
    let (again, text_again) = text_request(&mut liar);
    assert_eq!((TextRequest { exp_stat_sn: pdu.exp_stat_sn, ..again }, text_again), (pdu, text));
    assert_eq!(again.exp_stat_sn, pdu.exp_stat_sn.next());
    // The same when it does not come at all.
    liar.pass_in_company(Duration::from_secs(5));
    assert_eq!(text_request(&mut liar).0.cmd_sn, pdu.cmd_sn);
}

fn ping_of_ours(liar: &mut Liar) -> (NopOut, Vec<u8>) {
    let sent = liar.next();
    let InitiatorPdu::NopOut(pdu) = sent.pdu else { panic!("{sent:?}") };
    (pdu, sent.data)
}

#[test]
fn a_ping_that_came_damaged_is_sent_again() {
    let mut liar = Liar::recovering();
    assert!(liar.session.ping(9, liar.cid, b"echo".to_vec()));
    liar.raw(&[]);
    let (pdu, data) = ping_of_ours(&mut liar);
    liar.reject(RejectReason::DATA_DIGEST_ERROR, pdu.emit());
    let (again, data_again) = ping_of_ours(&mut liar);
    assert_eq!((again.itt, data_again), (pdu.itt, data));
    let stat_sn = liar.next_stat_sn();
    let answer = NopIn { itt: pdu.itt, ttt: TargetTransferTag::RESERVED, stat_sn, ..liar.nop_in() };
    liar.send(NopIn { data_segment_len: 4, ..answer }.emit(), b"echo");
    assert!(matches!(liar.event(), Event::Pong { user: 9, intact: true }));
}

/// The number of a command that was ended otherwise is used up by a ping.
#[test]
fn a_number_that_nobody_waits_for_is_filled() {
    let mut liar = Liar::recovering();
    liar.behind = true;
    let first: SerialNumber = liar.exp_cmd_sn;
    liar.read(512);
    let reset = lunette_pdu::TaskManagementFunction::LOGICAL_UNIT_RESET;
    assert!(liar.session.manage_tasks(1, reset, crate::harness::LUN, None));
    let request = liar.task_management_request();
    let complete = lunette_pdu::TaskManagementResponse {
        exp_cmd_sn: first,
        ..liar.task_management_response(request.itt, lunette_pdu::TaskManagementResponseCode::FUNCTION_COMPLETE)
    };
    liar.send(complete.emit(), &[]);
    assert!(matches!(liar.event(), Event::Aborted(_)));
    liar.event();
    liar.sent.clear();
    liar.pass_in_company(Duration::from_secs(5));
    let (pdu, _) = ping_of_ours(&mut liar);
    assert_eq!((pdu.immediate, pdu.cmd_sn), (false, first));
}

/// Answers a ping with what it brought.
fn pong(liar: &mut Liar, pdu: &NopOut, data: &[u8]) {
    let stat_sn = liar.next_stat_sn();
    let answer = NopIn { itt: pdu.itt, ttt: TargetTransferTag::RESERVED, stat_sn, ..liar.nop_in() };
    liar.send(NopIn { data_segment_len: data.len(), ..answer }.emit(), data);
}

/// Time passes, in which a target answers the pings that bring nothing. Gives what else was sent.
fn pass_with_pongs(liar: &mut Liar, seconds: u64) -> Vec<Sent> {
    let mut others = Vec::new();
    for _ in 0..seconds {
        liar.pass(Duration::from_secs(1));
        for sent in std::mem::take(&mut liar.sent) {
            match sent.pdu {
                InitiatorPdu::NopOut(pdu) if sent.data.is_empty() => pong(liar, &pdu, &[]),
                _ => others.push(sent),
            }
        }
    }
    others
}

#[test]
fn a_ping_that_is_lost_is_sent_again_when_others_are_answered() {
    let mut liar = Liar::recovering();
    assert!(liar.session.ping(9, liar.cid, b"echo".to_vec()));
    liar.raw(&[]);
    let (pdu, data) = ping_of_ours(&mut liar);
    let again = pass_with_pongs(&mut liar, 11);
    let [Sent { pdu: InitiatorPdu::NopOut(again), data: data_again, .. }] = &again[..] else { panic!("{again:?}") };
    assert_eq!((NopOut { exp_stat_sn: pdu.exp_stat_sn, ..*again }, data_again), (pdu, &data));
    // It was not lost, but late.
    pong(&mut liar, &pdu, b"echo");
    pong(&mut liar, &pdu, b"echo");
    assert!(matches!(liar.event(), Event::Pong { user: 9, intact: true }));
    assert!(liar.events.is_empty() && pass_with_pongs(&mut liar, 30).is_empty(), "{:?}", liar.events);
}

#[test]
fn a_ping_that_is_never_answered_though_others_are_is_given_up() {
    let mut liar = Liar::recovering();
    assert!(liar.session.ping(9, liar.cid, b"echo".to_vec()));
    liar.raw(&[]);
    let again = pass_with_pongs(&mut liar, 49);
    assert_eq!((again.len(), liar.events.len()), (5, 0), "{again:?}");
    assert!(pass_with_pongs(&mut liar, 2).is_empty());
    assert_eq!(liar.closed(), SessionError::Unrecovered("an answer"));
    assert_eq!(liar.session.next_timeout(), None);
}

fn manage(liar: &mut Liar) -> TaskManagementRequest {
    let reset = TaskManagementFunction::LOGICAL_UNIT_RESET;
    assert!(liar.session.manage_tasks(1, reset, crate::harness::LUN, None));
    liar.task_management_request()
}

/// It may never have come.
#[test]
fn a_task_management_function_is_sent_again_but_not_for_ever() {
    let mut liar = Liar::recovering();
    let request = manage(&mut liar);
    let again = pass_with_pongs(&mut liar, 200);
    let is_it = |sent: &Sent| matches!(sent.pdu, InitiatorPdu::TaskManagementRequest(pdu) if pdu.itt == request.itt);
    assert!(again.len() == MAX_UNANSWERED_REQUESTS as usize && again.iter().all(is_it), "{again:?}");
    assert!(matches!(liar.closed(), SessionError::Unrecovered(_)));
}

/// RFC 7144 section 6.3.3: the target waits for it no more. What it sends beside the answer may say so first.
#[test]
fn a_command_that_a_query_counts_as_received_comes_back() {
    for is_told_before in [false, true] {
        let mut liar = Liar::recovering_with(&[("iSCSIProtocolLevel", "2")]);
        liar.behind = true;
        let (tag, _) = liar.read(512);
        assert!(!query(&mut liar, tag, TaskManagementResponseCode::FUNCTION_SUCCEEDED, false));
        assert!(query(&mut liar, tag, TaskManagementResponseCode::FUNCTION_COMPLETE, is_told_before));
        assert!(liar.session.into_unfinished().is_empty());
    }
}

/// Whether a command is given back before the answer to a query.
fn query(liar: &mut Liar, task: TaskTag, response: TaskManagementResponseCode, is_told_before: bool) -> bool {
    let query = TaskManagementFunction::QUERY_TASK;
    assert!(liar.session.manage_tasks(1, query, crate::harness::LUN, Some(task)));
    let request = liar.task_management_request();
    if response == TaskManagementResponseCode::FUNCTION_COMPLETE {
        liar.exp_cmd_sn = request.ref_cmd_sn.next();
    }
    if is_told_before {
        liar.send(liar.nop_in().emit(), &[]);
    }
    let pdu = liar.task_management_response(request.itt, response);
    liar.send(pdu.emit(), &[]);
    assert!(matches!(liar.events.pop_back(), Some(Event::TaskManagementDone { user: 1, .. })));
    std::mem::take(&mut liar.events).iter().any(|event| matches!(event, Event::Aborted(_)))
}

#[test]
fn a_target_that_works_on_a_function_is_waited_for() {
    let mut liar = Liar::recovering();
    let request = manage(&mut liar);
    let again = pass_with_pongs(&mut liar, 12);
    assert_eq!(again.len(), 1, "{again:?}");
    liar.reject(RejectReason::TASK_IN_PROGRESS, request.emit());
    let again = pass_with_pongs(&mut liar, 500);
    assert!(again.is_empty() && liar.events.is_empty(), "{again:?} {:?}", liar.events);
    for _ in 0..2 {
        let complete = liar.task_management_response(request.itt, TaskManagementResponseCode::FUNCTION_COMPLETE);
        liar.send(complete.emit(), &[]);
    }
    liar.reject(RejectReason::TOO_MANY_IMMEDIATE_COMMANDS, request.emit());
    assert!(matches!(liar.event(), Event::TaskManagementDone { user: 1, .. }));
    assert!(liar.events.is_empty(), "{:?}", liar.events);
}

#[test]
fn a_logout_that_is_lost_is_sent_again() {
    let mut liar = Liar::recovering();
    assert!(liar.session.logout());
    liar.raw(&[]);
    let InitiatorPdu::LogoutRequest(request) = liar.next().pdu else { panic!("no logout") };
    liar.pass(Duration::from_secs(5));
    let InitiatorPdu::LogoutRequest(again) = liar.next().pdu else { panic!("no logout") };
    assert_eq!(again, request);
    let closed = LogoutResponse {
        response: LogoutResponseCode::CLOSED,
        itt: request.itt,
        stat_sn: liar.next_stat_sn(),
        exp_cmd_sn: liar.exp_cmd_sn,
        max_cmd_sn: liar.max_cmd_sn(),
        time2wait: 0,
        time2retain: 0,
    };
    liar.send(closed.emit(), &[]);
    assert_eq!(liar.closed(), SessionError::LoggedOut);
}

#[test]
fn a_logout_that_is_never_answered_ends_the_connection_all_the_same() {
    let mut liar = Liar::recovering();
    assert!(liar.session.logout());
    liar.raw(&[]);
    liar.pass(Duration::from_mins(1));
    assert_eq!(liar.sent.len(), 1 + MAX_UNANSWERED_REQUESTS as usize, "{:?}", liar.sent);
    assert!(matches!(liar.closed(), SessionError::Unrecovered(_)));
    assert!(liar.session.is_over());
}

/// A response before that of the ping is missing: it may be the one.
#[test]
fn nothing_is_sent_again_while_a_response_is_missing() {
    let mut liar = Liar::recovering();
    assert!(liar.session.ping(9, liar.cid, b"echo".to_vec()));
    liar.raw(&[]);
    ping_of_ours(&mut liar);
    liar.next_stat_sn();
    let again = pass_with_pongs(&mut liar, 20);
    assert!(again.iter().all(|sent| matches!(sent.pdu, InitiatorPdu::SnackRequest(_))), "{again:?}");
}
