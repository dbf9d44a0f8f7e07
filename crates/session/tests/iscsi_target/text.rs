//! Text negotiation in the full feature phase: F, C and transfer tags in every combination, and what may be declared
//! again (RFC 7143 sections 6.4, 11.10, 11.11 and 13.12).

use std::sync::Arc;
use std::time::Duration;

use lunette_pdu::{
    AsyncEvent, Cid, LogoutReason, LogoutRequest, LogoutResponseCode, RejectReason, ScsiCommand, SerialNumber,
    TargetPdu, TargetTransferTag, TextRequest, TextResponse,
};
use lunette_session::Authentication;
use lunette_session::iscsi_target::{Directory, TargetNode};
use lunette_session::keys::Offer;
use lunette_testkit::requests::logout;

use crate::harness::{Peer, Setup, TARGET, node, nop_out, pattern, read, text, text_request, write};

const GRACE: Duration = Duration::from_secs(7);

fn part(final_: bool, continue_: bool) -> TextRequest {
    TextRequest { final_, continue_, ..text_request(1) }
}

fn answer(peer: &mut Peer, request: TextRequest, data: &[u8]) -> (TextResponse, Vec<u8>) {
    peer.text(request, data);
    peer.text_response()
}

fn next(response: &TextResponse, request: TextRequest) -> TextRequest {
    TextRequest { ttt: response.ttt, ..request }
}

/// F, C and the transfer tag of a response.
fn flags(response: &TextResponse) -> (bool, bool, bool) {
    (response.final_, response.continue_, response.ttt.is_reserved())
}

const OVER: (bool, bool, bool) = (true, false, true);
const OPEN: (bool, bool, bool) = (false, false, false);
const GOES_ON: (bool, bool, bool) = (false, true, false);

#[test]
fn f_ends_the_exchange_and_nothing_else_does() {
    let mut peer = Peer::logged_in(Setup::default());
    let (response, data) = answer(&mut peer, part(false, false), &text(&[("X-a", "1")]));
    assert_eq!((flags(&response), &data[..]), (OPEN, &b"X-a=NotUnderstood\0"[..]));
    let (response, data) = answer(&mut peer, next(&response, part(false, true)), b"X-b");
    assert_eq!((flags(&response), data.len()), (OPEN, 0));
    let (response, data) = answer(&mut peer, next(&response, part(false, false)), b"=1\0");
    assert_eq!((flags(&response), &data[..]), (OPEN, &b"X-b=NotUnderstood\0"[..]));
    let (response, data) = answer(&mut peer, next(&response, part(true, false)), &[]);
    assert_eq!((flags(&response), data.len()), (OVER, 0));
}

#[test]
fn f_and_c_together_are_refused() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.text(part(true, true), b"X-a");
    peer.cut_off(RejectReason::INVALID_PDU_FIELD);
}

/// An exchange whose answer comes in parts.
fn long_answer() -> (Peer, TextResponse) {
    let mut peer = Peer::logged_in(Setup::keys(&[("MaxRecvDataSegmentLength", "512")]));
    let keys: Vec<String> = (0..60).map(|n| format!("X-{n}")).collect();
    let list = text(&keys.iter().map(|key| (key.as_str(), "1")).collect::<Vec<_>>());
    let (response, data) = answer(&mut peer, part(true, false), &list);
    assert_eq!((flags(&response), data.len()), (GOES_ON, 512));
    (peer, response)
}

#[test]
fn a_long_answer_is_asked_for_part_by_part_with_f_or_without() {
    for last in [true, false] {
        let (mut peer, mut response) = long_answer();
        while response.continue_ {
            response = answer(&mut peer, next(&response, part(last, false)), &[]).0;
        }
        assert_eq!(flags(&response), if last { OVER } else { OPEN });
        if !last {
            assert_eq!(flags(&answer(&mut peer, next(&response, part(true, false)), &[]).0), OVER);
        }
    }
}

#[test]
fn keys_and_c_are_refused_while_an_answer_goes_on() {
    for (request, data) in [(part(true, false), &b"X-z=1\0"[..]), (part(false, true), &[]), (part(false, true), b"X-z")]
    {
        let (mut peer, response) = long_answer();
        peer.text(next(&response, request), data);
        peer.rejected(RejectReason::PROTOCOL_ERROR);
        // The exchange is forgotten.
        peer.text(next(&response, part(true, false)), &[]);
        peer.rejected(RejectReason::PROTOCOL_ERROR);
        assert_eq!(flags(&answer(&mut peer, part(true, false), &[]).0), OVER);
    }
}

#[test]
fn tags_that_do_not_match_are_refused() {
    for change in [
        (|request| TextRequest { ttt: TargetTransferTag(1), ..request }) as fn(TextRequest) -> TextRequest,
        |request| TextRequest { itt: lunette_pdu::InitiatorTaskTag(2), ..request },
    ] {
        let (mut peer, response) = long_answer();
        peer.text(change(next(&response, part(true, false))), &[]);
        peer.rejected(RejectReason::PROTOCOL_ERROR);
        peer.silence();
    }
}

#[test]
fn a_reserved_tag_begins_anew() {
    let (mut peer, _) = long_answer();
    let (response, data) = answer(&mut peer, part(true, false), &text(&[("X-a", "1")]));
    assert_eq!((flags(&response), &data[..]), (OVER, &b"X-a=NotUnderstood\0"[..]));
}

#[test]
fn a_key_is_offered_once_in_an_exchange() {
    let mut peer = Peer::logged_in(Setup::default());
    let list = text(&[("MaxRecvDataSegmentLength", "512"), ("MaxRecvDataSegmentLength", "1024")]);
    peer.text(part(true, false), &list);
    peer.rejected(RejectReason::PROTOCOL_ERROR);
    let list = text(&[("MaxRecvDataSegmentLength", "512")]);
    let (response, _) = answer(&mut peer, part(false, false), &list);
    peer.text(next(&response, part(true, false)), &list);
    peer.rejected(RejectReason::PROTOCOL_ERROR);
    // Neither changed anything.
    peer.command(read(2, 1000), &[]);
    assert_eq!(peer.data_in().1, pattern(1000));
}

#[test]
fn keys_of_the_login_are_rejected() {
    let mut peer = Peer::logged_in(Setup::default());
    for key in ["HeaderDigest", "MaxBurstLength", "ErrorRecoveryLevel", "TaskReporting", "iSCSIProtocolLevel"] {
        let (response, data) = answer(&mut peer, part(true, false), &text(&[(key, "1")]));
        assert_eq!((flags(&response), data), (OVER, text(&[(key, "Reject")])), "{key}");
    }
    for length in ["511", "16777216", "no"] {
        let list = text(&[("MaxRecvDataSegmentLength", length)]);
        assert_eq!(answer(&mut peer, part(true, false), &list).1, text(&[("MaxRecvDataSegmentLength", "Reject")]));
    }
}

#[test]
fn what_is_declared_holds_when_the_exchange_is_over() {
    let mut peer = Peer::logged_in(Setup::default());
    let (response, _) = answer(&mut peer, part(false, false), &text(&[("MaxRecvDataSegmentLength", "512")]));
    peer.command(read(2, 1000), &[]);
    assert_eq!(peer.data_in().1.len(), 1000);
    answer(&mut peer, next(&response, part(true, false)), &[]);
    peer.checker.max_segment_len = 512;
    peer.command(read(3, 1000), &[]);
    assert_eq!(peer.data_in().1.len(), 512);
}

/// The target takes data segments of that length from now on.
fn declare(peer: &Peer, len: u32) {
    let offer = Offer { recv_data_segment_len: len, ..Offer::default() };
    let target = Arc::new(TargetNode { offer, ..node(TARGET, Vec::new()) });
    let directory = Arc::new(Directory { targets: vec![target], discovery: Authentication::None });
    peer.driver.set_directory(&directory, GRACE);
}

/// Our own declaration, after a login with 262,144.
fn declares(len: u32) -> Peer {
    let mut peer = Peer::logged_in(Setup::keys(&[("InitialR2T", "Yes")]));
    declare(&peer, len);
    let (message, _) = peer.async_message();
    assert_eq!((message.event, message.parameter3), (AsyncEvent::NEGOTIATION_REQUEST, 7));
    peer
}

fn declaration(len: u32) -> Vec<u8> {
    text(&[("MaxRecvDataSegmentLength", &len.to_string())])
}

#[test]
fn the_target_declares_in_the_negotiation_that_it_asked_for() {
    let mut peer = declares(400_000);
    peer.nop_out(nop_out(8), &vec![0; 1000]);
    peer.nop_in();
    let (response, data) = answer(&mut peer, part(false, false), &[]);
    assert_eq!((flags(&response), data), (OPEN, declaration(400_000)));
    let (response, data) = answer(&mut peer, next(&response, part(true, false)), &[]);
    assert_eq!((flags(&response), data.len()), (OVER, 0), "once");
    peer.nop_out(nop_out(9), &vec![0; 400_000]);
    assert_eq!(peer.nop_in().0.itt.0, 9);
    assert_eq!(answer(&mut peer, part(true, false), &[]).1, []);
    declare(&peer, 400_000);
    peer.silence();
}

/// RFC 7143 section 13.12: a declaration holds for what the initiator sends after it, whenever the request was dealt
/// with.
#[test]
fn a_request_that_waited_for_its_turn_declares_too() {
    let offer = Offer { error_recovery_level: 2, ..Offer::default() };
    let mut peer = Peer::logged_in(Setup { offer, ..Setup::keys(&[("ErrorRecoveryLevel", "1")]) });
    declare(&peer, 400_000);
    peer.async_message();
    let missing = peer.cmd_sn;
    peer.cmd_sn = missing.next();
    peer.text(part(true, false), &[]);
    peer.silence();
    peer.command_numbered(ScsiCommand { cmd_sn: missing, ..read(2, 10) }, &[], &[]);
    let mut answers = peer.rest();
    answers.retain(|answer| matches!(answer.pdu, TargetPdu::TextResponse(_)));
    assert_eq!(answers.iter().map(|answer| &answer.data).collect::<Vec<_>>(), [&declaration(400_000)]);
    peer.nop_out(nop_out(9), &vec![0; 400_000]);
    assert_eq!(peer.nop_in().0.itt.0, 9);
}

#[test]
fn a_longer_segment_is_refused_before_it_is_declared() {
    let mut peer = declares(400_000);
    peer.nop_out(nop_out(8), &vec![0; 262_145]);
    peer.cut_off(RejectReason::PROTOCOL_ERROR);
}

#[test]
fn a_shorter_limit_holds_for_what_is_sent_after_it_was_heard_of() {
    let mut peer = declares(4096);
    peer.command(write(5, 8192), &[]);
    let (r2t, _) = peer.r2t();
    // On its way before the initiator has read that the exchange is over.
    peer.reads = false;
    peer.text(part(true, false), &[]);
    peer.answer(&r2t, &pattern(8192), 8192);
    peer.reads = true;
    assert_eq!(peer.text_response().1, declaration(4096));
    assert_eq!(peer.scsi_response().0.status, 0);
    peer.nop_out(nop_out(8), &vec![0; 4096]);
    peer.nop_in();
    peer.nop_out(nop_out(9), &vec![0; 4097]);
    peer.cut_off(RejectReason::PROTOCOL_ERROR);
}

/// RFC 7143 section 11.14.4: such a logout has the ExpStatSN of the connection that it closes.
#[test]
fn a_logout_of_another_connection_does_not_shorten_the_limit() {
    let mut peer = declares(4096);
    peer.command(write(5, 8192), &[]);
    let (r2t, _) = peer.r2t();
    peer.reads = false;
    peer.text(part(true, false), &[]);
    let request = LogoutRequest {
        cid: Cid(99),
        cmd_sn: peer.cmd_sn,
        exp_stat_sn: SerialNumber(r2t.stat_sn.0.wrapping_add(1000)),
        ..logout(0x55, LogoutReason::CLOSE_CONNECTION)
    };
    peer.send(request.emit(), &[]);
    peer.answer(&r2t, &pattern(8192), 8192);
    peer.reads = true;
    assert_eq!(peer.text_response().1, declaration(4096));
    assert_eq!(peer.logout_response().0.response, LogoutResponseCode::CID_NOT_FOUND);
    assert_eq!(peer.scsi_response().0.status, 0);
}

#[test]
fn a_declaration_waits_for_any_exchange() {
    let mut peer = declares(8192);
    let (response, data) = answer(&mut peer, part(true, false), &text(&[("X-a", "1")]));
    assert_eq!((flags(&response), data), (OVER, [&b"X-a=NotUnderstood\0"[..], &declaration(8192)].concat()));
}

#[test]
fn a_rejected_exchange_declares_nothing() {
    let mut peer = declares(512);
    peer.text(part(true, false), b"nonsense\0");
    peer.rejected(RejectReason::PROTOCOL_ERROR);
    peer.nop_out(nop_out(8), &vec![0; 1000]);
    peer.nop_in();
    assert_eq!(answer(&mut peer, part(true, false), &[]).1, declaration(512));
}
