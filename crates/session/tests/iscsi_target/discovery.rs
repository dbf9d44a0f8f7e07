//! Discovery and text requests (RFC 7143 sections 11.10, 11.11 and appendix C).

use std::net::SocketAddr;
use std::sync::Arc;

use lunette_pdu::{RejectReason, TargetTransferTag, TextRequest};
use lunette_session::iscsi_target::{CloseReason, Portal, TargetNode, Transport};
use lunette_session::limits::{
    MAX_DISCOVERY_AHEAD_BYTES, MAX_DISCOVERY_OUTBOX_BYTES, MAX_DISCOVERY_OUTBOX_PDUS, MAX_KEYS, MAX_TEXT_SEGMENT_BYTES,
};

use crate::harness::{Peer, Setup, TARGET, node, nop_out, only, pattern, read, text, text_request};

fn portal(address: &str, group: u16) -> Portal {
    Portal { address: address.parse().unwrap(), group, transport: Transport::Stream }
}

/// Sends one request and follows the answer to its end.
fn ask(peer: &mut Peer, list: &[u8]) -> String {
    peer.text(text_request(1), list);
    let mut answer = Vec::new();
    loop {
        let (response, data) = peer.text_response();
        answer.extend(data);
        if response.final_ {
            return String::from_utf8(answer).unwrap().replace('\0', "\n");
        }
        assert!(response.continue_);
        peer.text(TextRequest { ttt: response.ttt, ..text_request(1) }, &[]);
    }
}

fn send_targets(peer: &mut Peer, value: &str) -> String {
    ask(peer, &text(&[("SendTargets", value)]))
}

fn others() -> Vec<TargetNode> {
    let hidden = TargetNode {
        hosts: vec![Arc::new(only("iqn.2026-11.example:other"))],
        ..node("iqn.2026-11.example:hidden", vec![portal("192.0.2.7:3260", 1)])
    };
    let two = node("iqn.2026-11.example:two", vec![portal("192.0.2.7:3260", 1), portal("[2001:db8::7]:3261", 2)]);
    vec![hidden, two]
}

#[test]
fn all_lists_what_the_initiator_may_see() {
    let mut peer = Peer::discovering(Setup { others: others(), alias: Some("a disk".into()), ..Setup::default() });
    let expected = "TargetName=iqn.2026-11.example:disk\nTargetAddress=192.0.2.7:3260,1\n\
                    TargetName=iqn.2026-11.example:two\nTargetAddress=192.0.2.7:3260,1\n\
                    TargetAddress=[2001:db8::7]:3261,2\n";
    assert_eq!(send_targets(&mut peer, "All"), expected);
}

#[test]
fn a_name_lists_one_or_none() {
    let mut peer = Peer::discovering(Setup { others: others(), ..Setup::default() });
    let own = "TargetName=iqn.2026-11.example:disk\nTargetAddress=192.0.2.7:3260,1\n";
    for (value, expected) in [
        (TARGET, own),
        ("IQN.2026-11.EXAMPLE:DISK", own),
        ("iqn.2026-11.example:hidden", ""),
        ("iqn.2026-11.example:nowhere", ""),
        ("", "SendTargets=Reject\n"),
    ] {
        assert_eq!(send_targets(&mut peer, value), expected, "{value:?}");
    }
}

#[test]
fn a_normal_session_tells_of_its_own_target_only() {
    let mut peer = Peer::logged_in(Setup { others: others(), ..Setup::default() });
    let own = "TargetName=iqn.2026-11.example:disk\nTargetAddress=192.0.2.7:3260,1\n";
    for (value, expected) in
        [("", own), (TARGET, own), ("All", "SendTargets=Reject\n"), ("iqn.2026-11.example:two", "SendTargets=Reject\n")]
    {
        assert_eq!(send_targets(&mut peer, value), expected, "{value:?}");
    }
}

#[test]
fn unspecified_portals_are_listed_as_the_address_that_was_used() {
    for (local, portals, expected) in [
        ("192.0.2.7:3260", &["0.0.0.0:3260"][..], &["192.0.2.7:3260"][..]),
        ("192.0.2.7:3260", &["0.0.0.0:860", "[::]:860"], &["192.0.2.7:860"]),
        ("[2001:db8::7]:3260", &["0.0.0.0:3260", "[::]:3261"], &["[2001:db8::7]:3261"]),
        // An IPv4 initiator at a socket that takes both families.
        ("[::ffff:192.0.2.7]:3260", &["[::]:3260"], &["192.0.2.7:3260"]),
    ] {
        let portals: Vec<Portal> = portals.iter().map(|address| portal(address, 1)).collect();
        let local: SocketAddr = local.parse().unwrap();
        let mut peer = Peer::discovering(Setup { portals, local, ..Setup::default() });
        let answer = send_targets(&mut peer, TARGET);
        let listed: Vec<&str> = answer.lines().filter_map(|line| line.strip_prefix("TargetAddress=")).collect();
        let expected: Vec<String> = expected.iter().map(|address| format!("{address},1")).collect();
        assert_eq!(listed, expected, "{local}");
    }
}

#[test]
fn long_lists_come_in_parts() {
    let others = (0..500).map(|n| node(&format!("iqn.2026-11.example:disk{n}"), vec![portal("192.0.2.7:3260", 1)]));
    for limit in ["512", "8192", "16777215"] {
        let setup = Setup::keys(&[("MaxRecvDataSegmentLength", limit)]);
        let mut peer = Peer::discovering(Setup { others: others.clone().collect(), ..setup });
        let answer = send_targets(&mut peer, "All");
        assert_eq!(answer.lines().filter(|line| line.starts_with("TargetName=")).count(), 501);
        assert_eq!(answer.lines().filter(|line| line.starts_with("TargetAddress=")).count(), 501);
    }
}

fn many_targets() -> Vec<TargetNode> {
    let name = |n: usize| format!("iqn.2026-11.example:a-disk-with-a-rather-long-name-{n}");
    (0..3000).map(|n| node(&name(n), vec![portal("192.0.2.7:3260", 1)])).collect()
}

#[test]
fn a_list_is_made_as_the_initiator_takes_it() {
    let mut peer =
        Peer::discovering(Setup { others: many_targets(), ..Setup::keys(&[("MaxRecvDataSegmentLength", "16777215")]) });
    peer.text(text_request(1), &text(&[("SendTargets", "All")]));
    let (response, data) = peer.text_response();
    assert!(response.continue_ && data.len() == MAX_TEXT_SEGMENT_BYTES, "{} bytes", data.len());
    assert_eq!(send_targets(&mut peer, "All").lines().filter(|line| line.starts_with("TargetName=")).count(), 3001);
}

/// Bytes that wait in the outbox.
fn queued(peer: &Peer) -> usize {
    peer.driver.ready_bytes()
}

#[test]
fn lists_that_are_not_read_are_bounded() {
    const HEADERS: usize = (MAX_DISCOVERY_OUTBOX_PDUS + 1) * 48;
    const QUEUED: usize = MAX_DISCOVERY_OUTBOX_BYTES + MAX_TEXT_SEGMENT_BYTES + HEADERS;
    for limit in ["512", "8192", "16777215"] {
        for value in ["All", "iqn.2026-11.example:nowhere"] {
            let setup = Setup { others: many_targets(), ..Setup::keys(&[("MaxRecvDataSegmentLength", limit)]) };
            let mut peer = Peer::discovering(setup);
            peer.reads = false;
            let mut asked = 0;
            while peer.driver.wants_input() {
                peer.text(text_request(asked), &text(&[("SendTargets", value)]));
                asked += 1;
                assert!(asked < 1000, "all requests are answered, read or not");
            }
            let before = queued(&peer);
            assert!(before <= QUEUED, "{before} bytes wait in parts of {limit}");
            peer.text(text_request(asked), &text(&[("SendTargets", value)]));
            assert_eq!(queued(&peer), before);
            peer.reads = true;
            assert_eq!(peer.rest().len(), asked as usize + 1, "everything is answered once it is read");
        }
    }
}

#[test]
fn a_discovery_session_that_floods_is_ended() {
    let mut peer = Peer::discovering(Setup::default());
    peer.reads = false;
    let request = lunette_pdu::NopOut { immediate: true, cmd_sn: peer.cmd_sn, ..nop_out(1) };
    let flood = peer.frame(request.emit(), &[], &[]).repeat(2 * MAX_DISCOVERY_AHEAD_BYTES / 48);
    peer.raw(&flood);
    assert!(matches!(&peer.driver.closed, Some(CloseReason::Protocol(_))), "{:?}", peer.driver.closed);
    assert!(queued(&peer) <= (MAX_DISCOVERY_OUTBOX_PDUS + 1) * 48);
}

type Keys<'a> = &'a [(&'a str, &'a str)];

/// RFC 7143 section 6.4: no parameter is negotiated more than once in a negotiation sequence.
#[test]
fn a_key_stands_once_in_an_exchange() {
    let all = ("SendTargets", "All");
    let cases: &[(Keys<'_>, Keys<'_>)] = &[
        (&[all, all], &[]),
        (&[all; MAX_KEYS], &[]),
        (&[("SendTargets", TARGET), all], &[]),
        (&[("X-a", "1"), ("X-b", "1"), ("X-a", "2")], &[]),
        (&[("MaxRecvDataSegmentLength", "512"), ("MaxRecvDataSegmentLength", "512")], &[]),
        (&[("SendTargets", TARGET)], &[all]),
        (&[("SendTargets", "")], &[all]),
        (&[("MaxRecvDataSegmentLength", "512")], &[("MaxRecvDataSegmentLength", "512")]),
    ];
    for (first, second) in cases {
        let mut peer = Peer::discovering(Setup::default());
        peer.text(TextRequest { final_: second.is_empty(), ..text_request(1) }, &text(first));
        if !second.is_empty() {
            let (response, _) = peer.text_response();
            peer.text(TextRequest { ttt: response.ttt, ..text_request(1) }, &text(second));
        }
        peer.rejected(RejectReason::PROTOCOL_ERROR);
        assert!(send_targets(&mut peer, "All").starts_with("TargetName="), "the next exchange begins at the start");
    }
}

#[test]
fn a_request_may_come_in_parts() {
    let list = text(&[("SendTargets", TARGET), ("X-thing", "1")]);
    for at in 0..=list.len() {
        let mut peer = Peer::discovering(Setup::default());
        peer.text(TextRequest { final_: false, continue_: true, ..text_request(1) }, &list[..at]);
        let (response, data) = peer.text_response();
        assert!(!response.final_ && !response.continue_ && data.is_empty());
        peer.text(TextRequest { ttt: response.ttt, ..text_request(1) }, &list[at..]);
        let (response, data) = peer.text_response();
        assert!(response.final_, "cut at {at}");
        let answer = String::from_utf8(data).unwrap();
        assert!(answer.contains("X-thing=NotUnderstood\0") && answer.contains(TARGET), "cut at {at}");
    }
}

#[test]
fn requests_without_data_are_harmless() {
    for (final_, continue_) in [(true, false), (false, false), (false, true)] {
        let mut peer = Peer::discovering(Setup::default());
        for _ in 0..3 {
            peer.text(TextRequest { final_, continue_, ..text_request(1) }, &[]);
            let (response, data) = peer.text_response();
            assert!(data.is_empty() && response.final_ == final_);
        }
        // With a transfer tag that was never given out.
        peer.text(TextRequest { ttt: TargetTransferTag(1), final_, continue_, ..text_request(9) }, &[]);
        peer.rejected(RejectReason::PROTOCOL_ERROR);
    }
}

#[test]
fn a_second_exchange_replaces_the_first() {
    let others = (0..100).map(|n| node(&format!("iqn.2026-11.example:disk{n}"), vec![portal("192.0.2.7:3260", 1)]));
    let mut peer =
        Peer::discovering(Setup { others: others.collect(), ..Setup::keys(&[("MaxRecvDataSegmentLength", "512")]) });
    peer.text(text_request(1), &text(&[("SendTargets", "All")]));
    assert!(peer.text_response().0.continue_);
    peer.text(text_request(2), &text(&[("SendTargets", TARGET)]));
    let (response, data) = peer.text_response();
    assert!(response.final_ && data.starts_with(b"TargetName=iqn.2026-11.example:disk\0"));
}

#[test]
fn an_exchange_that_is_not_final_waits_for_more() {
    let mut peer = Peer::discovering(Setup::default());
    peer.text(TextRequest { final_: false, ..text_request(1) }, &text(&[("X-a", "1")]));
    let (response, data) = peer.text_response();
    assert!(!response.final_ && data == b"X-a=NotUnderstood\0");
    peer.text(TextRequest { ttt: response.ttt, ..text_request(1) }, &text(&[("X-b", "1")]));
    let (response, data) = peer.text_response();
    assert!(response.final_ && data == b"X-b=NotUnderstood\0");
}

#[test]
fn text_that_makes_no_sense_is_rejected_and_forgotten() {
    let many: Vec<String> = (0..=MAX_KEYS).map(|n| format!("X-{n}")).collect();
    let many = text(&many.iter().map(|key| (key.as_str(), "1")).collect::<Vec<_>>());
    for list in [&b"SendTargets"[..], b"SendTargets\0", b"=All\0", b"a=\x01\0", b"a=1\0\0b=2\0", &[0xff; 30], &many] {
        let mut peer = Peer::discovering(Setup::default());
        peer.text(text_request(1), list);
        peer.rejected(RejectReason::PROTOCOL_ERROR);
        assert!(send_targets(&mut peer, "All").starts_with("TargetName="));
    }
}

#[test]
fn too_much_text_is_rejected() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.text(TextRequest { final_: false, continue_: true, ..text_request(1) }, &vec![b'a'; 60_000]);
    let (response, _) = peer.text_response();
    let more = TextRequest { final_: false, continue_: true, ttt: response.ttt, ..text_request(1) };
    peer.text(more, &vec![b'a'; 60_000]);
    peer.rejected(RejectReason::PROTOCOL_ERROR);
    assert!(send_targets(&mut peer, "").starts_with("TargetName="));
}

#[test]
fn the_segment_length_may_be_declared_again() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.text(text_request(1), &text(&[("MaxRecvDataSegmentLength", "512")]));
    assert!(peer.text_response().1.is_empty());
    peer.checker.max_segment_len = 512;
    peer.command(read(2, 1000), &[]);
    assert_eq!(peer.data_in().1, pattern(1000)[..512]);
    assert_eq!(peer.data_in().1, pattern(1000)[512..]);
}

#[test]
fn a_list_that_is_rejected_changes_nothing() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.text(text_request(1), b"MaxRecvDataSegmentLength=512\0nonsense\0");
    peer.rejected(RejectReason::PROTOCOL_ERROR);
    peer.command(read(2, 1000), &[]);
    assert_eq!(peer.data_in().1.len(), 1000);
}

#[test]
fn login_keys_have_no_place_in_the_full_feature_phase() {
    let mut peer = Peer::logged_in(Setup::default());
    for (key, value, expected) in [
        ("HeaderDigest", "CRC32C", "Reject"),
        ("MaxBurstLength", "512", "Reject"),
        ("MaxRecvDataSegmentLength", "511", "Reject"),
        ("X-unknown", "1", "NotUnderstood"),
    ] {
        assert_eq!(ask(&mut peer, &text(&[(key, value)])), format!("{key}={expected}\n"));
    }
}

#[test]
fn half_a_list_belongs_to_its_task_and_its_transfer_tag() {
    for itt in [3, 4] {
        let mut peer = Peer::discovering(Setup::default());
        peer.text(TextRequest { final_: false, continue_: true, ..text_request(3) }, b"SendTar");
        peer.text_response();
        peer.text(text_request(itt), &text(&[("X-a", "1")]));
        assert_eq!(peer.text_response().1, b"X-a=NotUnderstood\0", "task {itt}");
    }
}
