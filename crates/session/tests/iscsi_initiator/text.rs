//! Text negotiation in the full feature phase (RFC 7143 sections 6.4, 11.9.1, 11.10, 11.11 and 13.12).

use std::sync::Arc;
use std::time::Duration;

use lunette_pdu::{AsyncEvent, AsyncMessage, InitiatorPdu, InitiatorTaskTag, TextRequest};
use lunette_session::Authentication;
use lunette_session::iscsi_initiator::{Event, SessionError};
use lunette_session::iscsi_target::Directory;
use lunette_session::keys::Offer;

use crate::harness::{LUN, Pair, ScriptedTarget, config, node, pattern, read, write};

fn request(target: &mut ScriptedTarget) -> (TextRequest, Vec<u8>) {
    let sent = target.next();
    let InitiatorPdu::TextRequest(pdu) = sent.pdu else { panic!("{sent:?}") };
    (pdu, sent.data)
}

fn respond(target: &mut ScriptedTarget, itt: InitiatorTaskTag, last: bool, data: &[u8]) {
    let pdu = target.text_response(itt, last, data.len());
    target.send(pdu.emit(), data);
}

fn ask_for_negotiation(target: &mut ScriptedTarget) {
    let message =
        AsyncMessage { lun: LUN, parameter3: 10, ..target.used().async_message(AsyncEvent::NEGOTIATION_REQUEST) };
    target.send(message.emit(), &[]);
    let Event::Async { message, .. } = target.event() else { panic!("no news") };
    assert_eq!(message.event, AsyncEvent::NEGOTIATION_REQUEST);
}

fn their_limit(target: &ScriptedTarget) -> u32 {
    target.session.parameters(target.cid).unwrap().send_data_segment_len
}

#[test]
fn the_target_may_ask_for_a_negotiation() {
    let mut target = ScriptedTarget::logged_in(config(), &[]);
    ask_for_negotiation(&mut target);
    let (pdu, data) = request(&mut target);
    assert_eq!((pdu.final_, pdu.continue_, pdu.ttt.is_reserved(), data.len()), (true, false, true, 0));
    ask_for_negotiation(&mut target);
    assert!(target.sent.is_empty(), "one is under way");
    respond(&mut target, pdu.itt, true, b"MaxRecvDataSegmentLength=512\0");
    assert_eq!(their_limit(&target), 512);
    assert!(target.events.is_empty(), "the driver has not asked");
    assert!(target.session.text(3, &[("X-a", "1")]), "it is over");
}

#[test]
fn a_declaration_of_the_target_holds_from_the_last_response_on() {
    let mut target = ScriptedTarget::logged_in(config(), &[]);
    let before = their_limit(&target);
    assert!(target.session.text(4, &[("X-a", "1")]));
    target.raw(&[]);
    let (pdu, _) = request(&mut target);
    respond(&mut target, pdu.itt, false, b"MaxRecvDataSegmentLength=512\0");
    let (pdu, _) = request(&mut target);
    assert_eq!(their_limit(&target), before);
    respond(&mut target, pdu.itt, true, &[]);
    assert!(matches!(target.event(), Event::Text { user: 4, .. }));
    assert_eq!(their_limit(&target), 512);
}

#[test]
fn a_declaration_of_the_target_keeps_to_its_range() {
    for value in ["511", "16777216", "x", "Reject"] {
        let mut target = ScriptedTarget::logged_in(config(), &[]);
        ask_for_negotiation(&mut target);
        let (pdu, _) = request(&mut target);
        respond(&mut target, pdu.itt, true, format!("MaxRecvDataSegmentLength={value}\0").as_bytes());
        target.broken("13.12");
    }
}

#[test]
fn keys_of_the_login_are_not_sent_again() {
    let mut target = ScriptedTarget::logged_in(config(), &[]);
    for key in ["MaxRecvDataSegmentLength", "MaxBurstLength"] {
        assert!(!target.session.text(4, &[("X-a", "1"), (key, "512")]), "{key}");
    }
    assert!(target.session.text(4, &[("X-a", "1")]));
    assert!(!target.session.text(5, &[("X-a", "1")]), "one at a time");
}

/// Data longer than a segment goes and comes back.
fn write_and_read(pair: &mut Pair, len: u32) {
    for command in [write(&pair.ends.pool, 1, 0, &pattern(len as usize)), read(&pair.ends.pool, 2, 0, len)] {
        pair.ends.session.submit(command, pair.ends.now).unwrap();
        pair.run();
        let Some(Event::Completed { command, response }) = pair.ends.events.pop_front() else { panic!("no end") };
        assert_eq!(response.status, 0);
        assert!(command.data_in.is_none_or(|data| data[..] == pattern(len as usize)));
    }
}

#[test]
fn our_target_declares_and_both_sides_go_on() {
    let mut pair = Pair::logged_in();
    for theirs in [512, 100_000, 4096, 262_144] {
        let offer = Offer { recv_data_segment_len: theirs, ..Offer::default() };
        let targets = vec![Arc::new(node(Authentication::None, offer))];
        let directory = Arc::new(Directory { targets, discovery: Authentication::None });
        pair.target_session().set_directory(&directory, Duration::from_secs(5));
        pair.run();
        assert!(matches!(pair.ends.events.pop_front(), Some(Event::Async { .. })));
        assert_eq!(pair.ends.session.parameters(pair.cid).unwrap().send_data_segment_len, theirs);
        write_and_read(&mut pair, 20_000);
    }
    assert!(pair.ends.session.logout());
    pair.run();
    assert!(matches!(pair.ends.events.pop_front(), Some(Event::Closed { why: SessionError::LoggedOut, .. })));
}
