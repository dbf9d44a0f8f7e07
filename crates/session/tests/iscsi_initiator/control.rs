//! Pings, text, news, the end.

use std::time::Duration;

use lunette_pdu::{
    AsyncEvent, AsyncMessage, InitiatorPdu, InitiatorTaskTag, LogoutReason, LogoutResponse, LogoutResponseCode, NopIn,
    NopOut, Reject, RejectReason, SerialNumber, TargetTransferTag, TextRequest, TextResponse,
};
use lunette_session::Authentication;
use lunette_session::iscsi_initiator::{Event, SessionConfig, SessionError};

use crate::harness::{LUN, Liar, Pair, TARGET, config, node, pattern, read};

fn nop_out(liar: &mut Liar) -> (NopOut, Vec<u8>) {
    let sent = liar.next();
    let InitiatorPdu::NopOut(pdu) = sent.pdu else { panic!("{sent:?}") };
    (pdu, sent.data)
}

fn text_request(liar: &mut Liar) -> TextRequest {
    let sent = liar.next();
    let InitiatorPdu::TextRequest(pdu) = sent.pdu else { panic!("{sent:?}") };
    pdu
}

fn async_message(liar: &mut Liar, event: AsyncEvent) -> AsyncMessage {
    AsyncMessage {
        lun: LUN,
        stat_sn: liar.next_stat_sn(),
        exp_cmd_sn: liar.exp_cmd_sn,
        max_cmd_sn: liar.max_cmd_sn(),
        event,
        vcode: 0,
        parameter1: 0,
        parameter2: 2,
        parameter3: 20,
        data_segment_len: 0,
    }
}

#[test]
fn news_that_want_an_answer_are_not_answered_for_ever_unread() {
    let mut liar = Liar::logged_in(config(), &[]);
    for _ in 0..100_000 {
        let news = async_message(&mut liar, AsyncEvent::TASK_TERMINATION).emit();
        // Nothing of what the initiator has to say is read.
        let mut input = &news[..];
        while let Some(event) = liar.session.next_event(liar.cid, &mut input, liar.now) {
            if !matches!(event, Event::Async { .. }) {
                liar.events.push_back(event);
            }
        }
        if !liar.events.is_empty() {
            break;
        }
    }
    liar.broken("11.19");
}

#[test]
fn a_ping_is_echoed_by_our_target() {
    let mut pair = Pair::logged_in();
    assert!(pair.session.ping(5, pair.cid, pattern(1000)));
    pair.run();
    assert!(matches!(pair.events.pop_front(), Some(Event::Pong { user: 5, intact: true })));
    assert!(!pair.session.ping(6, pair.cid, vec![0; 300_000]), "longer than a segment");
}

#[test]
fn an_echo_that_differs_is_noticed() {
    let mut liar = Liar::logged_in(config(), &[]);
    assert!(liar.session.ping(5, liar.cid, b"abcd".to_vec()));
    liar.raw(&[]);
    let (ping, data) = nop_out(&mut liar);
    assert_eq!((ping.immediate, ping.ttt, &data[..]), (true, TargetTransferTag::RESERVED, &b"abcd"[..]));
    let pong = NopIn {
        itt: ping.itt,
        ttt: TargetTransferTag::RESERVED,
        stat_sn: liar.next_stat_sn(),
        data_segment_len: 4,
        ..liar.nop_in()
    };
    liar.send(pong.emit(), b"abcx");
    assert!(matches!(liar.event(), Event::Pong { user: 5, intact: false }));
}

#[test]
fn the_targets_ping_is_answered_and_its_numbers_are_read() {
    let mut liar = Liar::logged_in(config(), &[]);
    liar.send(liar.nop_in().emit(), &[]);
    let (answer, _) = nop_out(&mut liar);
    assert_eq!((answer.itt, answer.ttt), (InitiatorTaskTag::RESERVED, TargetTransferTag(9)));
    assert_eq!((answer.exp_stat_sn, answer.immediate), (liar.stat_sn, true));
    let silent = NopIn { ttt: TargetTransferTag::RESERVED, max_cmd_sn: liar.exp_cmd_sn.add(99), ..liar.nop_in() };
    liar.send(silent.emit(), &[]);
    assert!(liar.sent.is_empty());
    assert_eq!(liar.session.room(), 100);
}

#[test]
fn a_silent_target_is_asked_and_then_given_up() {
    let mut liar = Liar::logged_in(config(), &[]);
    liar.read(512);
    liar.pass(Duration::from_secs(30));
    let (ping, _) = nop_out(&mut liar);
    let pong = NopIn { itt: ping.itt, stat_sn: liar.next_stat_sn(), ..liar.nop_in() };
    liar.send(pong.emit(), &[]);
    liar.pass(Duration::from_secs(49));
    nop_out(&mut liar);
    assert!(liar.events.is_empty());
    liar.pass(Duration::from_secs(1));
    assert_eq!(liar.closed(), SessionError::PingTimeout);
    assert_eq!(liar.session.into_unfinished().len(), 1);
}

#[test]
fn pings_keep_two_idle_sides_together_for_hours() {
    let mut pair = Pair::logged_in();
    pair.pass(Duration::from_hours(3));
    assert!(pair.events.is_empty() && pair.closed.is_none());
}

#[test]
fn a_discovery_session_lists_the_targets() {
    let config = SessionConfig { target_name: None, ..config() };
    let mut pair = Pair::new(config, node(Authentication::None, <_>::default()), Authentication::None);
    pair.run();
    pair.expect_login();
    assert!(pair.session.text(3, &[("SendTargets", "All")]));
    assert!(!pair.session.text(4, &[("SendTargets", "All")]), "one at a time");
    pair.run();
    let Some(Event::Text { user: 3, pairs }) = pair.events.pop_front() else { panic!() };
    let keys: Vec<_> = pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    assert_eq!(keys[0], ("TargetName", TARGET));
    assert!(keys.contains(&("TargetAddress", "192.0.2.7:3260,1")));
    let command = read(&pair.pool, 1, 0, 512);
    assert!(pair.session.submit(command, pair.now).is_err());
    assert!(!pair.session.text(4, &[("MaxBurstLength", "512")]), "a key of the login");
    assert!(pair.session.logout());
    pair.run();
    assert!(matches!(pair.events.pop_front(), Some(Event::Closed { why: SessionError::LoggedOut, .. })));
}

#[test]
fn text_goes_and_comes_in_parts() {
    let mut liar = Liar::logged_in(config(), &[("MaxRecvDataSegmentLength", "512")]);
    let value = "v".repeat(700);
    assert!(liar.session.text(8, &[("X-a", &value)]));
    liar.raw(&[]);
    let first = text_request(&mut liar);
    assert_eq!((first.continue_, first.final_, first.data_segment_len), (true, false, 512));
    assert!(first.ttt.is_reserved());
    let response = liar.text_response(first.itt, false, 0);
    liar.send(response.emit(), &[]);
    let second = text_request(&mut liar);
    assert_eq!((second.continue_, second.final_, second.data_segment_len), (false, true, 193));
    assert_eq!((second.itt, second.ttt, second.lun), (first.itt, TargetTransferTag(5), LUN));
    for part in [&b"X-a=o"[..], b"k\0Y="] {
        let response = TextResponse { continue_: true, ..liar.text_response(first.itt, false, part.len()) };
        liar.send(response.emit(), part);
        let more = text_request(&mut liar);
        assert_eq!((more.final_, more.data_segment_len), (true, 0));
    }
    let response = liar.text_response(first.itt, true, 2);
    liar.send(response.emit(), b"1\0");
    let Event::Text { user: 8, pairs } = liar.event() else { panic!() };
    assert_eq!(pairs, [("X-a".to_owned(), "ok".to_owned()), ("Y".to_owned(), "1".to_owned())]);
    assert!(liar.session.text(9, &[("X-a", "1")]), "the next one may follow");
}

#[test]
fn text_is_immediate_only_when_the_window_is_closed() {
    let mut liar = Liar::logged_in(config(), &[]);
    assert!(liar.session.text(8, &[("SendTargets", "All")]));
    liar.raw(&[]);
    let first = text_request(&mut liar);
    assert!(!first.immediate);
    let closed = TextResponse {
        max_cmd_sn: SerialNumber(liar.exp_cmd_sn.0.wrapping_sub(1)),
        ..liar.text_response(first.itt, true, 0)
    };
    liar.send(closed.emit(), &[]);
    while liar.session.room() > 0 {
        let command = read(&liar.pool, 1, 0, 512);
        liar.session.submit(command, liar.now).unwrap();
    }
    assert!(liar.session.text(9, &[("SendTargets", "All")]));
    liar.raw(&[]);
    let second = std::iter::repeat_with(|| liar.next()).find_map(|sent| match sent.pdu {
        InitiatorPdu::TextRequest(pdu) => Some(pdu),
        _ => None,
    });
    assert_eq!(second.map(|pdu| (pdu.immediate, pdu.cmd_sn)), Some((true, liar.exp_cmd_sn)));
}

#[test]
fn text_responses_keep_their_rules() {
    let start = || {
        let mut liar = Liar::logged_in(config(), &[]);
        assert!(liar.session.text(8, &[("SendTargets", "All")]));
        liar.raw(&[]);
        let itt = text_request(&mut liar).itt;
        (liar, itt)
    };
    let (mut liar, itt) = start();
    let pdu = TextResponse { ttt: TargetTransferTag(1), ..liar.text_response(itt, true, 0) };
    liar.send(pdu.emit(), &[]);
    liar.broken("11.11.4");
    let (mut liar, itt) = start();
    let pdu = liar.text_response(itt, true, 4);
    liar.send(pdu.emit(), b"A=1B");
    liar.broken("6.1");
    for (section, part) in [("6.2", vec![b'x'; 200_000]), ("11.11", Vec::new())] {
        let (mut liar, itt) = start();
        while liar.events.is_empty() {
            let pdu = liar.text_response(itt, false, part.len());
            liar.send(pdu.emit(), &part);
            liar.sent.clear();
        }
        liar.broken(section);
    }
}

#[test]
fn a_logout_ends_the_session_and_no_request_follows_it() {
    let mut liar = Liar::asked_only();
    let (_, itt) = liar.write(4096);
    assert!(liar.session.logout());
    assert!(!liar.session.logout());
    assert!(!liar.session.ping(1, liar.cid, Vec::new()));
    assert_eq!(liar.session.room(), 0);
    liar.raw(&[]);
    let sent = liar.next();
    let InitiatorPdu::LogoutRequest(pdu) = sent.pdu else { panic!("{sent:?}") };
    assert_eq!((pdu.reason, pdu.immediate), (LogoutReason::CLOSE_SESSION, true));
    liar.send(liar.r2t(itt, 0, 0, 4096).emit(), &[]);
    assert!(liar.sent.is_empty());
    let response = LogoutResponse {
        response: LogoutResponseCode::CLOSED,
        itt: pdu.itt,
        stat_sn: liar.next_stat_sn(),
        exp_cmd_sn: liar.exp_cmd_sn,
        max_cmd_sn: liar.max_cmd_sn(),
        time2wait: 0,
        time2retain: 0,
    };
    liar.send(response.emit(), &[]);
    assert_eq!(liar.closed(), SessionError::LoggedOut);
    assert_eq!(liar.session.into_unfinished().len(), 1);
}

#[test]
fn a_logout_without_an_answer_ends_all_the_same() {
    let mut liar = Liar::asked_only();
    assert!(liar.session.logout());
    // Whatever else the target says.
    liar.pass(Duration::from_secs(49));
    liar.send(liar.nop_in().emit(), &[]);
    assert!(liar.events.is_empty());
    liar.pass(Duration::from_secs(1));
    assert_eq!(liar.closed(), SessionError::PingTimeout);
}

#[test]
fn our_target_may_ask_for_a_logout() {
    let mut pair = Pair::logged_in();
    let now = pair.now;
    pair.target().request_logout(Duration::from_secs(9), now);
    pair.run();
    let Some(Event::Async { message, .. }) = pair.events.pop_front() else { panic!() };
    assert_eq!((message.event, message.parameter3), (AsyncEvent::LOGOUT_REQUEST, 9));
    assert!(pair.session.logout());
    pair.run();
    assert!(matches!(pair.events.pop_front(), Some(Event::Closed { why: SessionError::LoggedOut, .. })));
}

#[test]
fn news_of_every_kind_is_handed_out() {
    for code in [0, 1, 2, 3, 4, 5, 255, 77] {
        let mut liar = Liar::asked_only();
        let pdu = AsyncMessage { data_segment_len: 3, ..async_message(&mut liar, AsyncEvent(code)) };
        liar.send(pdu.emit(), b"abc");
        let Event::Async { message, data } = liar.event() else { panic!() };
        assert_eq!((message.event, &data[..]), (AsyncEvent(code), &b"abc"[..]));
        let dropped = matches!(code, 2 | 3);
        liar.session.disconnected(liar.cid, liar.now);
        liar.raw(&[]);
        assert_eq!(liar.closed(), if dropped { SessionError::Dropped } else { SessionError::Disconnected });
        liar.session.disconnected(liar.cid, liar.now);
        liar.raw(b"late");
        assert!(liar.events.is_empty());
    }
}

#[test]
fn a_rejected_command_ends_the_session_and_a_rejected_ping_does_not() {
    let mut liar = Liar::asked_only();
    assert!(liar.session.ping(4, liar.cid, Vec::new()));
    liar.raw(&[]);
    let (ping, _) = nop_out(&mut liar);
    let reject = |liar: &mut Liar| Reject {
        reason: RejectReason::TOO_MANY_IMMEDIATE_COMMANDS,
        stat_sn: liar.next_stat_sn(),
        exp_cmd_sn: liar.exp_cmd_sn,
        max_cmd_sn: liar.max_cmd_sn(),
        data_sn: 0,
        data_segment_len: 48,
    };
    let pdu = reject(&mut liar);
    liar.send(pdu.emit(), &ping.emit());
    assert!(matches!(liar.event(), Event::Pong { user: 4, intact: false }));
    let command = read(&liar.pool, 1, 0, 512);
    liar.session.submit(command, liar.now).unwrap();
    liar.raw(&[]);
    let InitiatorPdu::ScsiCommand(command) = liar.next().pdu else { panic!() };
    let pdu = reject(&mut liar);
    liar.send(pdu.emit(), &command.emit());
    assert!(matches!(liar.closed(), SessionError::Rejected { .. }));
}
