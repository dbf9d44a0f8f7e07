//! NOP-Out and NOP-In, and the silence of a peer (RFC 7143 sections 11.18 and 11.19).

use std::time::Duration;

use lunette_pdu::{InitiatorTaskTag, NopOut, ScsiCommand, SerialNumber, TargetTransferTag};
use lunette_session::iscsi_target::CloseReason;

use crate::harness::{Cut, Peer, Setup, nop_out, pattern, read, write};

const PING_AFTER: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(20);
const SECOND: Duration = Duration::from_secs(1);
const ALMOST_PING_AFTER: Duration = Duration::from_secs(29);
const ALMOST_PING_ANSWER: Duration = Duration::from_secs(19);

#[test]
fn a_ping_comes_back_with_its_data() {
    for len in [0, 1, 2, 3, 4, 500, 8192] {
        for immediate in [true, false] {
            let mut peer = Peer::logged_in(Setup::default());
            peer.nop_out(NopOut { immediate, ..nop_out(7) }, &pattern(len));
            let (nop, data) = peer.nop_in();
            assert_eq!((nop.itt.0, data), (7, pattern(len)));
            assert_eq!(nop.exp_cmd_sn, peer.cmd_sn);
        }
    }
}

#[test]
fn an_echo_is_cut_to_what_the_initiator_takes() {
    let mut peer = Peer::logged_in(Setup::keys(&[("MaxRecvDataSegmentLength", "512")]));
    for len in [511, 512, 513, 9000] {
        peer.nop_out(nop_out(7), &pattern(len));
        assert_eq!(peer.nop_in().1, pattern(len.min(512)));
    }
}

#[test]
fn a_ping_that_wants_no_answer_gets_none() {
    let mut peer = Peer::logged_in(Setup::default());
    let quiet = NopOut { itt: InitiatorTaskTag::RESERVED, ..nop_out(0) };
    peer.nop_out(quiet, &[]);
    peer.nop_out(quiet, b"to nobody");
    peer.nop_out(NopOut { ttt: TargetTransferTag(77), ..quiet }, &[]);
    peer.silence();
    peer.nop_out(NopOut { immediate: false, ..quiet }, &[]);
    peer.silence();
    peer.nop_out(nop_out(1), &[]);
    assert_eq!(peer.nop_in().0.exp_cmd_sn, peer.cmd_sn);
}

#[test]
fn a_ping_outside_the_window_is_ignored() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.cmd_sn = SerialNumber(500);
    peer.nop_out(NopOut { immediate: false, ..nop_out(7) }, b"hello");
    peer.silence();
}

#[test]
fn silence_is_asked_about_and_an_answer_ends_it() {
    let mut peer = Peer::logged_in(Setup::default());
    let mut tags = Vec::new();
    for _ in 0..3 {
        peer.pass(ALMOST_PING_AFTER);
        peer.silence();
        peer.pass(SECOND);
        let (ping, data) = peer.nop_in();
        assert!(ping.itt.is_reserved() && !ping.ttt.is_reserved() && data.is_empty());
        tags.push(ping.ttt);
        peer.pass(ALMOST_PING_ANSWER);
        peer.nop_out(NopOut { itt: InitiatorTaskTag::RESERVED, ttt: ping.ttt, ..nop_out(0) }, &[]);
        peer.silence();
    }
    tags.dedup();
    assert_eq!(tags.len(), 3, "each ping has its own tag");
}

#[test]
fn no_answer_ends_the_connection() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.pass(PING_AFTER + ALMOST_PING_ANSWER);
    peer.nop_in();
    peer.silence();
    peer.pass(SECOND);
    assert_eq!(peer.driver.closed, Some(CloseReason::PingTimeout));
    assert_eq!(peer.driver.next_timeout(), None);
}

#[test]
fn any_pdu_is_a_sign_of_life() {
    let mut peer = Peer::logged_in(Setup::default());
    for itt in 0..5 {
        peer.pass(ALMOST_PING_AFTER);
        peer.command(read(itt, 512), &[]);
        peer.data_in();
    }
    peer.pass(PING_AFTER);
    peer.nop_in();
    peer.command(read(9, 512), &[]);
    peer.data_in();
    peer.pass(PING_ANSWER);
    peer.silence();
}

#[test]
fn a_slow_data_segment_is_a_sign_of_life() {
    for direct in [false, true] {
        let mut setup = Setup::default();
        // So slow a data phase would make no progress.
        setup.timers.progress = PING_AFTER * 100;
        let mut peer = Peer::logged_in(setup).cut(Cut { piece: usize::MAX, direct });
        let data = pattern(60_000);
        let request = ScsiCommand { cmd_sn: peer.cmd_sn, data_segment_len: data.len(), ..write(1, 60_000) };
        peer.cmd_sn = peer.cmd_sn.next();
        peer.checker.task_sent(request.itt, false);
        let bytes = peer.frame(request.emit(), &[], &data);
        for piece in bytes.chunks(1000) {
            peer.raw(piece);
            peer.pass(ALMOST_PING_AFTER);
        }
        assert_eq!(peer.scsi_response().0.status, 0);
        peer.silence();
    }
}

#[test]
fn a_slow_data_segment_answers_a_ping() {
    for direct in [false, true] {
        let mut peer = Peer::logged_in(Setup::default()).cut(Cut { piece: usize::MAX, direct });
        let request = ScsiCommand { cmd_sn: peer.cmd_sn, data_segment_len: 60_000, ..write(1, 60_000) };
        peer.cmd_sn = peer.cmd_sn.next();
        let bytes = peer.frame(request.emit(), &[], &pattern(60_000));
        peer.raw(&bytes[..1000]);
        peer.pass(PING_AFTER);
        peer.nop_in();
        peer.raw(&bytes[1000..2000]);
        peer.pass(PING_ANSWER);
        peer.silence();
    }
}

#[test]
fn an_answer_that_waits_behind_our_own_driver_is_not_held_against_the_peer() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    peer.command(write(1, 512), &[0; 512]);
    let task = peer.driver.commands[0].task;
    peer.pass(PING_AFTER);
    let (ping, _) = peer.nop_in();
    peer.nop_out(NopOut { itt: InitiatorTaskTag::RESERVED, ttt: ping.ttt, ..nop_out(0) }, &[]);
    peer.pass(PING_ANSWER * 3);
    peer.silence();
    peer.driver.want_data(task, 512);
    peer.collect();
    assert_eq!(peer.driver.data_out.len(), 1);
    peer.pass(PING_ANSWER);
    peer.silence();
}

#[test]
fn a_standstill_is_not_the_silence_of_the_initiator() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.pass(PING_AFTER);
    let (ping, _) = peer.nop_in();
    peer.driver.come_to_rest();
    // Nothing is read and nothing is called meanwhile.
    peer.driver.now = peer.driver.now + 2 * PING_ANSWER;
    peer.driver.go_on();
    peer.pass(ALMOST_PING_ANSWER);
    assert_eq!(peer.driver.closed, None, "its answer may lie unread");
    peer.nop_out(NopOut { itt: InitiatorTaskTag::RESERVED, ttt: ping.ttt, ..nop_out(0) }, &[]);
    peer.silence();
    peer.pass(ALMOST_PING_AFTER);
    peer.silence();
}
