//! Sessions that come to a standstill and go on in another process.

use lunette_pdu::{InitiatorTaskTag, ScsiCommand, SnackRequest, SnackType, TargetPdu};
use lunette_session::iscsi_target::{InheritError, Response};
use lunette_session::keys::Offer;
use lunette_session::limits::MAX_RESTING_BYTES;

use crate::harness::{
    INITIATOR, Peer, Setup, TARGET, command, data_out, node, nop_out, only, pattern, read, snack, text, text_request,
    write, wrote,
};

fn to_the_same_targets(peer: &mut Peer) {
    assert_eq!(peer.driver.restless(), None);
    peer.driver.hand_over(vec![node(TARGET, Vec::new())]).unwrap();
    peer.collect();
}

#[test]
fn a_request_that_comes_meanwhile_is_answered_once_and_afterwards() {
    for is_handed_over in [true, false] {
        let mut peer = Peer::logged_in(Setup::keys(&[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]));
        peer.driver.come_to_rest();
        peer.command(write(1, 5000), &pattern(5000));
        peer.nop_out(nop_out(2), b"hello");
        peer.command(read(3, 4096), &[]);
        peer.silence();
        assert_eq!(peer.driver.commands.len(), 0, "the device has seen none");
        if is_handed_over {
            to_the_same_targets(&mut peer);
        } else {
            peer.driver.go_on();
        }
        peer.collect();
        assert_eq!(peer.scsi_response().0.itt.0, 1);
        assert_eq!(peer.nop_in().1, b"hello");
        assert_eq!(peer.data_in().1, peer.driver.read_response(4096).data_in.to_vec());
        peer.silence();
        assert_eq!(peer.driver.data_out[0].1, pattern(5000));
    }
}

#[test]
fn a_task_that_has_begun_gets_its_data_though_requests_stand_before_it() {
    let mut peer = Peer::logged_in(Setup::keys(&[("InitialR2T", "No"), ("ImmediateData", "No")])).manual();
    peer.command(ScsiCommand { final_: false, ..write(1, 3000) }, &[]);
    peer.driver.come_to_rest();
    assert_eq!(peer.driver.restless(), Some("a task has not ended"));
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 3000);
    peer.command(command(2), &[]);
    peer.data_out(data_out(1, 0), &pattern(3000));
    assert_eq!(peer.driver.data_out[0].1, pattern(3000));
    peer.driver.complete(task, wrote(3000));
    peer.collect();
    assert_eq!(peer.scsi_response().0.itt.0, 1);
    to_the_same_targets(&mut peer);
    assert_eq!(peer.driver.commands.len(), 2);
}

#[test]
fn a_pdu_may_be_cut_anywhere() {
    let keys = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];
    let len = Peer::logged_in(Setup::keys(&keys)).frame(nop_out(7).emit(), &[], b"hello").len();
    for at in 0..=len {
        for is_handed_over in [true, false] {
            let mut peer = Peer::logged_in(Setup::keys(&keys));
            let bytes = peer.frame(sent(&peer, 7), &[], b"hello");
            peer.driver.come_to_rest();
            peer.raw(&bytes[..at]);
            if is_handed_over {
                to_the_same_targets(&mut peer);
            } else {
                peer.driver.go_on();
            }
            peer.raw(&bytes[at..]);
            assert_eq!(peer.nop_in().1, b"hello", "cut at {at}");
        }
    }
}

/// A ping of five bytes with the numbers that are due.
fn sent(peer: &Peer, itt: u32) -> [u8; 48] {
    let nop = lunette_pdu::NopOut { data_segment_len: 5, cmd_sn: peer.cmd_sn, ..nop_out(itt) };
    nop.emit()
}

#[test]
fn what_was_sent_and_not_acknowledged_can_be_asked_for_again() {
    let offer = Offer { error_recovery_level: 2, ..Offer::default() };
    let mut peer = Peer::logged_in(Setup { offer, ..Setup::keys(&[("ErrorRecoveryLevel", "1")]) });
    let first = peer.checker.stat_sn.unwrap();
    peer.holds_back = Some(first);
    peer.nop_out(nop_out(1), b"hello");
    peer.command(ScsiCommand { immediate: true, ..read(2, 20_000) }, &[]);
    peer.command(ScsiCommand { immediate: true, ..command(3) }, &[]);
    let sent = peer.rest();
    peer.driver.come_to_rest();
    to_the_same_targets(&mut peer);
    peer.checker.strict = false;
    let ask = |peer: &mut Peer, request: SnackRequest| {
        peer.send(SnackRequest { exp_stat_sn: first, ..request }.emit(), &[]);
        peer.rest()
    };
    let statuses = ask(&mut peer, snack(InitiatorTaskTag::RESERVED, SnackType::STATUS));
    assert_eq!((statuses.len(), &statuses[0], &statuses[2]), (3, &sent[0], &sent[sent.len() - 1]));
    let data = snack(InitiatorTaskTag(2), SnackType::DATA_R2T);
    assert_eq!(ask(&mut peer, data), sent[1..sent.len() - 1]);
}

#[test]
fn a_request_that_others_wait_for_is_dealt_with() {
    let offer = Offer { error_recovery_level: 2, ..Offer::default() };
    let mut peer = Peer::logged_in(Setup { offer, ..Setup::keys(&[("ErrorRecoveryLevel", "1")]) }).manual();
    let due = peer.cmd_sn;
    peer.cmd_sn = due.add(3);
    peer.command_numbered(ScsiCommand { cmd_sn: due.next(), ..command(2) }, &[], &[]);
    peer.driver.come_to_rest();
    assert_eq!(peer.driver.restless(), Some("a request waits for others that have not come"));
    peer.command_numbered(ScsiCommand { cmd_sn: due.add(2), ..command(3) }, &[], &[]);
    peer.command_numbered(ScsiCommand { cmd_sn: due, ..command(1) }, &[], &[]);
    assert_eq!(peer.driver.commands.len(), 2, "the third one is kept");
    for at in 0..2 {
        let task = peer.driver.commands[at].task;
        peer.driver.complete(task, Response::default());
    }
    peer.collect();
    to_the_same_targets(&mut peer);
    assert_eq!(peer.driver.commands.len(), 3);
}

#[test]
fn a_session_that_the_target_does_not_admit_any_more_does_not_go_on() {
    let other = |name: &str| lunette_session::iscsi_target::TargetNode {
        hosts: vec![std::sync::Arc::new(only("iqn.2026-11.example:other"))],
        ..node(name, Vec::new())
    };
    for targets in [vec![], vec![other(TARGET)], vec![node("iqn.2026-11.example:another", Vec::new())]] {
        let mut peer = Peer::logged_in(Setup::default());
        peer.driver.come_to_rest();
        assert_eq!(peer.driver.hand_over(targets), Err(InheritError::NotAdmitted), "{INITIATOR}");
    }
}

#[test]
fn a_negotiation_holds_a_standstill_up_until_its_end() {
    let mut peer = Peer::logged_in(Setup::default());
    let half = text(&[("SendTargets", TARGET)]);
    peer.text(lunette_pdu::TextRequest { final_: false, continue_: true, ..text_request(1) }, &half[..4]);
    let TargetPdu::TextResponse(response) = peer.next().pdu else { panic!("no answer") };
    peer.driver.come_to_rest();
    assert_eq!(peer.driver.restless(), Some("keys are being negotiated"));
    peer.text(lunette_pdu::TextRequest { ttt: response.ttt, ..text_request(1) }, &half[4..]);
    assert!(matches!(peer.next().pdu, TargetPdu::TextResponse(_)));
    to_the_same_targets(&mut peer);
}

#[test]
fn a_connection_that_has_kept_all_it_may_goes_on() {
    let mut peer = Peer::logged_in(Setup::default());
    let data = pattern(8000);
    let pings = (MAX_RESTING_BYTES / data.len()) as u32 + 10;
    peer.driver.come_to_rest();
    for itt in 0..pings {
        peer.nop_out(nop_out(itt), &data);
    }
    peer.silence();
    assert!(!peer.driver.wants_input() && peer.driver.unread() > 0, "it keeps no more");
    peer.driver.go_on();
    for _ in 0..pings {
        peer.driver.pump();
        peer.collect();
        assert_eq!(peer.nop_in().1, data);
    }
    peer.silence();
    assert_eq!(peer.driver.unread(), 0);
}
