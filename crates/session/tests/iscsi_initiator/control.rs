//! Pings, text, news, the end.

use std::time::Duration;

use lunette_pdu::{
    AsyncEvent, AsyncMessage, InitiatorPdu, InitiatorTaskTag, LogoutReason, NopIn, NopOut, RejectReason, SerialNumber,
    TargetTransferTag, TextRequest, TextResponse,
};
use lunette_session::Authentication;
use lunette_session::iscsi_initiator::{Event, SessionConfig, SessionError};

use crate::harness::{LUN, Pair, ScriptedTarget, TARGET, config, node, pattern, read};

fn nop_out(target: &mut ScriptedTarget) -> (NopOut, Vec<u8>) {
    let sent = target.next();
    let InitiatorPdu::NopOut(pdu) = sent.pdu else { panic!("{sent:?}") };
    (pdu, sent.data)
}

fn text_request(target: &mut ScriptedTarget) -> TextRequest {
    let sent = target.next();
    let InitiatorPdu::TextRequest(pdu) = sent.pdu else { panic!("{sent:?}") };
    pdu
}

fn async_message(target: &mut ScriptedTarget, event: AsyncEvent) -> AsyncMessage {
    AsyncMessage { lun: LUN, parameter2: 2, parameter3: 20, ..target.used().async_message(event) }
}

#[test]
fn news_that_want_an_answer_are_not_answered_for_ever_unread() {
    let mut target = ScriptedTarget::logged_in(config(), &[]);
    for _ in 0..100_000 {
        let news = async_message(&mut target, AsyncEvent::TASK_TERMINATION).emit();
        // Nothing of what the initiator has to say is read.
        let mut input = &news[..];
        while let Some(event) = target.session.next_event(target.cid, &mut input, target.now) {
            if !matches!(event, Event::Async { .. }) {
                target.events.push_back(event);
            }
        }
        if !target.events.is_empty() {
            break;
        }
    }
    target.broken("11.19");
}

#[test]
fn a_ping_is_echoed_by_our_target() {
    let mut pair = Pair::logged_in();
    assert!(pair.ends.session.ping(5, pair.cid, pattern(1000)));
    pair.run();
    assert!(matches!(pair.ends.events.pop_front(), Some(Event::Pong { user: 5, intact: true })));
    assert!(!pair.ends.session.ping(6, pair.cid, vec![0; 300_000]), "longer than a segment");
}

#[test]
fn an_echo_that_differs_is_noticed() {
    let mut target = ScriptedTarget::logged_in(config(), &[]);
    assert!(target.session.ping(5, target.cid, b"abcd".to_vec()));
    target.raw(&[]);
    let (ping, data) = nop_out(&mut target);
    assert_eq!((ping.immediate, ping.ttt, &data[..]), (true, TargetTransferTag::RESERVED, &b"abcd"[..]));
    let pong = NopIn {
        itt: ping.itt,
        ttt: TargetTransferTag::RESERVED,
        stat_sn: target.next_stat_sn(),
        data_segment_len: 4,
        ..target.nop_in()
    };
    target.send(pong.emit(), b"abcx");
    assert!(matches!(target.event(), Event::Pong { user: 5, intact: false }));
}

#[test]
fn the_targets_ping_is_answered_and_its_numbers_are_read() {
    let mut target = ScriptedTarget::logged_in(config(), &[]);
    target.send(target.nop_in().emit(), &[]);
    let (answer, _) = nop_out(&mut target);
    assert_eq!((answer.itt, answer.ttt), (InitiatorTaskTag::RESERVED, TargetTransferTag(9)));
    assert_eq!((answer.exp_stat_sn, answer.immediate), (target.stat_sn, true));
    let silent = NopIn { ttt: TargetTransferTag::RESERVED, max_cmd_sn: target.exp_cmd_sn.add(99), ..target.nop_in() };
    target.send(silent.emit(), &[]);
    assert!(target.sent.is_empty());
    assert_eq!(target.session.room(), 100);
}

#[test]
fn a_silent_target_is_asked_and_then_given_up() {
    let mut target = ScriptedTarget::logged_in(config(), &[]);
    target.read(512);
    target.pass(Duration::from_secs(30));
    let (ping, _) = nop_out(&mut target);
    let pong = NopIn { itt: ping.itt, stat_sn: target.next_stat_sn(), ..target.nop_in() };
    target.send(pong.emit(), &[]);
    target.pass(Duration::from_secs(49));
    nop_out(&mut target);
    assert!(target.events.is_empty());
    target.pass(Duration::from_secs(1));
    assert_eq!(target.closed(), SessionError::PingTimeout);
    assert_eq!(target.session.into_unfinished().len(), 1);
}

#[test]
fn pings_keep_two_idle_sides_together_for_hours() {
    let mut pair = Pair::logged_in();
    pair.pass(Duration::from_hours(3));
    assert!(pair.ends.events.is_empty() && pair.closed().is_none());
}

#[test]
fn a_discovery_session_lists_the_targets() {
    let config = SessionConfig { target_name: None, ..config() };
    let mut pair = Pair::new(config, node(Authentication::None, <_>::default()), Authentication::None);
    pair.run();
    pair.expect_login();
    assert!(pair.ends.session.text(3, &[("SendTargets", "All")]));
    assert!(!pair.ends.session.text(4, &[("SendTargets", "All")]), "one at a time");
    pair.run();
    let Some(Event::Text { user: 3, pairs }) = pair.ends.events.pop_front() else { panic!() };
    let keys: Vec<_> = pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    assert_eq!(keys[0], ("TargetName", TARGET));
    assert!(keys.contains(&("TargetAddress", "192.0.2.7:3260,1")));
    let command = read(&pair.ends.pool, 1, 0, 512);
    assert!(pair.ends.session.submit(command, pair.ends.now).is_err());
    assert!(!pair.ends.session.text(4, &[("MaxBurstLength", "512")]), "a key of the login");
    assert!(pair.ends.session.logout());
    pair.run();
    assert!(matches!(pair.ends.events.pop_front(), Some(Event::Closed { why: SessionError::LoggedOut, .. })));
}

#[test]
fn text_goes_and_comes_in_parts() {
    let mut target = ScriptedTarget::logged_in(config(), &[("MaxRecvDataSegmentLength", "512")]);
    let value = "v".repeat(700);
    assert!(target.session.text(8, &[("X-a", &value)]));
    target.raw(&[]);
    let first = text_request(&mut target);
    assert_eq!((first.continue_, first.final_, first.data_segment_len), (true, false, 512));
    assert!(first.ttt.is_reserved());
    let response = target.text_response(first.itt, false, 0);
    target.send(response.emit(), &[]);
    let second = text_request(&mut target);
    assert_eq!((second.continue_, second.final_, second.data_segment_len), (false, true, 193));
    assert_eq!((second.itt, second.ttt, second.lun), (first.itt, TargetTransferTag(5), LUN));
    for part in [&b"X-a=o"[..], b"k\0Y="] {
        let response = TextResponse { continue_: true, ..target.text_response(first.itt, false, part.len()) };
        target.send(response.emit(), part);
        let more = text_request(&mut target);
        assert_eq!((more.final_, more.data_segment_len), (true, 0));
    }
    let response = target.text_response(first.itt, true, 2);
    target.send(response.emit(), b"1\0");
    let Event::Text { user: 8, pairs } = target.event() else { panic!() };
    assert_eq!(pairs, [("X-a".to_owned(), "ok".to_owned()), ("Y".to_owned(), "1".to_owned())]);
    assert!(target.session.text(9, &[("X-a", "1")]), "the next one may follow");
}

#[test]
fn text_is_immediate_only_when_the_window_is_closed() {
    let mut target = ScriptedTarget::logged_in(config(), &[]);
    assert!(target.session.text(8, &[("SendTargets", "All")]));
    target.raw(&[]);
    let first = text_request(&mut target);
    assert!(!first.immediate);
    let closed = TextResponse {
        max_cmd_sn: SerialNumber(target.exp_cmd_sn.0.wrapping_sub(1)),
        ..target.text_response(first.itt, true, 0)
    };
    target.send(closed.emit(), &[]);
    while target.session.room() > 0 {
        let command = read(&target.pool, 1, 0, 512);
        target.session.submit(command, target.now).unwrap();
    }
    assert!(target.session.text(9, &[("SendTargets", "All")]));
    target.raw(&[]);
    let second = std::iter::repeat_with(|| target.next()).find_map(|sent| match sent.pdu {
        InitiatorPdu::TextRequest(pdu) => Some(pdu),
        _ => None,
    });
    assert_eq!(second.map(|pdu| (pdu.immediate, pdu.cmd_sn)), Some((true, target.exp_cmd_sn)));
}

#[test]
fn text_responses_keep_their_rules() {
    let start = || {
        let mut target = ScriptedTarget::logged_in(config(), &[]);
        assert!(target.session.text(8, &[("SendTargets", "All")]));
        target.raw(&[]);
        let itt = text_request(&mut target).itt;
        (target, itt)
    };
    let (mut target, itt) = start();
    let pdu = TextResponse { ttt: TargetTransferTag(1), ..target.text_response(itt, true, 0) };
    target.send(pdu.emit(), &[]);
    target.broken("11.11.4");
    let (mut target, itt) = start();
    let pdu = target.text_response(itt, true, 4);
    target.send(pdu.emit(), b"A=1B");
    target.broken("6.1");
    for (section, part) in [("6.2", vec![b'x'; 200_000]), ("11.11", Vec::new())] {
        let (mut target, itt) = start();
        while target.events.is_empty() {
            let pdu = target.text_response(itt, false, part.len());
            target.send(pdu.emit(), &part);
            target.sent.clear();
        }
        target.broken(section);
    }
}

#[test]
fn a_logout_ends_the_session_and_no_request_follows_it() {
    let mut target = ScriptedTarget::asked_only();
    let (_, itt) = target.write(4096);
    assert!(target.session.logout());
    assert!(!target.session.logout());
    assert!(!target.session.ping(1, target.cid, Vec::new()));
    assert_eq!(target.session.room(), 0);
    target.raw(&[]);
    let sent = target.next();
    let InitiatorPdu::LogoutRequest(pdu) = sent.pdu else { panic!("{sent:?}") };
    assert_eq!((pdu.reason, pdu.immediate), (LogoutReason::CLOSE_SESSION, true));
    target.send(target.r2t(itt, 0, 0, 4096).emit(), &[]);
    assert!(target.sent.is_empty());
    let response = target.used().logout_response(pdu.itt);
    target.send(response.emit(), &[]);
    assert_eq!(target.closed(), SessionError::LoggedOut);
    assert_eq!(target.session.into_unfinished().len(), 1);
}

#[test]
fn a_logout_without_an_answer_ends_all_the_same() {
    let mut target = ScriptedTarget::asked_only();
    assert!(target.session.logout());
    // Whatever else the target says.
    target.pass(Duration::from_secs(49));
    target.send(target.nop_in().emit(), &[]);
    assert!(target.events.is_empty());
    target.pass(Duration::from_secs(1));
    assert_eq!(target.closed(), SessionError::PingTimeout);
}

#[test]
fn our_target_may_ask_for_a_logout() {
    let mut pair = Pair::logged_in();
    let now = pair.ends.now;
    pair.target_session().request_logout(Duration::from_secs(9), now);
    pair.run();
    let Some(Event::Async { message, .. }) = pair.ends.events.pop_front() else { panic!() };
    assert_eq!((message.event, message.parameter3), (AsyncEvent::LOGOUT_REQUEST, 9));
    assert!(pair.ends.session.logout());
    pair.run();
    assert!(matches!(pair.ends.events.pop_front(), Some(Event::Closed { why: SessionError::LoggedOut, .. })));
}

#[test]
fn news_of_every_kind_is_handed_out() {
    for code in [0, 1, 2, 3, 4, 5, 255, 77] {
        let mut target = ScriptedTarget::asked_only();
        let pdu = AsyncMessage { data_segment_len: 3, ..async_message(&mut target, AsyncEvent(code)) };
        target.send(pdu.emit(), b"abc");
        let Event::Async { message, data } = target.event() else { panic!() };
        assert_eq!((message.event, &data[..]), (AsyncEvent(code), &b"abc"[..]));
        let dropped = matches!(code, 2 | 3);
        target.session.disconnected(target.cid, target.now);
        target.raw(&[]);
        assert_eq!(target.closed(), if dropped { SessionError::Dropped } else { SessionError::Disconnected });
        target.session.disconnected(target.cid, target.now);
        target.raw(b"late");
        assert!(target.events.is_empty());
    }
}

#[test]
fn a_rejected_command_ends_the_session_and_a_rejected_ping_does_not() {
    let mut target = ScriptedTarget::asked_only();
    assert!(target.session.ping(4, target.cid, Vec::new()));
    target.raw(&[]);
    let (ping, _) = nop_out(&mut target);
    let reject = |target: &mut ScriptedTarget| target.used().reject(RejectReason::TOO_MANY_IMMEDIATE_COMMANDS);
    let pdu = reject(&mut target);
    target.send(pdu.emit(), &ping.emit());
    assert!(matches!(target.event(), Event::Pong { user: 4, intact: false }));
    let command = read(&target.pool, 1, 0, 512);
    target.session.submit(command, target.now).unwrap();
    target.raw(&[]);
    let InitiatorPdu::ScsiCommand(command) = target.next().pdu else { panic!() };
    let pdu = reject(&mut target);
    target.send(pdu.emit(), &command.emit());
    assert!(matches!(target.closed(), SessionError::Rejected { .. }));
}
