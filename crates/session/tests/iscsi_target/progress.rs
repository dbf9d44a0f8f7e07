//! Data phases that stand still end, and slow ones do not (SAM-5 leaves the time to the transport). The initiator shows
//! signs of life all the while.

use std::time::Duration;

use lunette_pdu::{InitiatorTaskTag, NopOut, R2t, ScsiCommand, TargetPdu};
use lunette_session::Unacknowledged;
use lunette_session::iscsi_target::CloseReason;

use crate::harness::{Peer, Setup, data_out, nop_out, pattern, read, write};

/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(10);

/// Beats between two looks for progress.
const BEATS: usize = 3;

const ABORTED_COMMAND_INITIATOR_RESPONSE_TIMEOUT: [u8; 3] = [0x0b, 0x4b, 0x06];

/// Time passes, in which the initiator says that it lives, and `step` does what else it does.
fn live(peer: &mut Peer, beats: usize, mut step: impl FnMut(&mut Peer)) {
    for _ in 0..beats {
        peer.pass(BEAT);
        if peer.driver.closed.is_some() {
            return;
        }
        step(peer);
        peer.nop_out(NopOut { itt: InitiatorTaskTag::RESERVED, ..nop_out(0) }, &[]);
    }
}

fn idle(peer: &mut Peer, beats: usize) {
    live(peer, beats, |_| {});
}

fn asked(peer: &mut Peer, itt: u32, len: u32) -> R2t {
    peer.command(write(itt, len), &[]);
    peer.r2t().0
}

#[test]
fn data_that_was_asked_for_and_does_not_come_costs_the_task_then_the_connection() {
    let mut peer = Peer::logged_in(Setup::default());
    asked(&mut peer, 1, 8192);
    idle(&mut peer, BEATS);
    assert_eq!(peer.driver.aborted, [], "one look tells nothing");
    idle(&mut peer, BEATS);
    assert_eq!(peer.driver.aborted.len(), 1);
    assert_eq!(peer.driver.closed, None);
    idle(&mut peer, BEATS);
    assert_eq!(peer.driver.closed, Some(CloseReason::DataTimeout));
}

#[test]
fn unsolicited_data_that_stops_costs_the_task_then_the_connection() {
    let mut peer = Peer::logged_in(Setup::keys(&[("InitialR2T", "No"), ("FirstBurstLength", "65536")]));
    peer.command(ScsiCommand { final_: false, ..write(1, 65536) }, &pattern(512));
    peer.data_out(lunette_pdu::DataOut { final_: false, ..data_out(1, 512) }, &pattern(512));
    idle(&mut peer, 2 * BEATS);
    assert_eq!((peer.driver.aborted.len(), peer.driver.closed.clone()), (1, None));
    idle(&mut peer, BEATS);
    assert_eq!(peer.driver.closed, Some(CloseReason::DataTimeout));
}

#[test]
fn data_that_drips_does_not_count() {
    let mut peer = Peer::logged_in(Setup::default());
    let r2t = asked(&mut peer, 1, 65536);
    let pdu = lunette_pdu::DataOut { ttt: r2t.ttt, data_segment_len: 65536, ..data_out(1, 0) };
    let bytes = peer.frame(pdu.emit(), &[], &pattern(65536));
    peer.raw(&bytes[..48]);
    for byte in &bytes[48..48 + 3 * BEATS] {
        peer.pass(BEAT);
        if peer.driver.closed.is_some() {
            break;
        }
        peer.raw(std::slice::from_ref(byte));
    }
    peer.pass(BEAT);
    assert_eq!(peer.driver.closed, Some(CloseReason::DataTimeout));
}

#[test]
fn a_task_whose_data_came_too_late_is_answered_and_the_connection_goes_on() {
    let mut peer = Peer::logged_in(Setup::default());
    let r2t = asked(&mut peer, 1, 8192);
    idle(&mut peer, 2 * BEATS);
    assert_eq!(peer.driver.aborted.len(), 1);
    peer.rest();
    peer.answer(&r2t, &pattern(8192), 8192);
    let (response, sense) = peer.scsi_response();
    assert_eq!(response.status, 2);
    // Behind SenseLength, in fixed format.
    assert_eq!([sense[2 + 2], sense[2 + 12], sense[2 + 13]], ABORTED_COMMAND_INITIATOR_RESPONSE_TIMEOUT);
    assert_eq!(peer.driver.data_out, [], "what came late is dropped");
    idle(&mut peer, 4 * BEATS);
    assert_eq!(peer.driver.closed, None);
    let r2t = asked(&mut peer, 2, 512);
    peer.answer(&r2t, &pattern(512), 512);
    assert_eq!(peer.scsi_response().0.status, 0);
}

#[test]
fn a_slow_line_is_fast_enough() {
    let mut peer = Peer::logged_in(Setup::keys(&[("MaxBurstLength", "262144")]));
    let r2t = asked(&mut peer, 1, 262_144);
    let behind = asked(&mut peer, 2, 512);
    let data = pattern(262_144);
    let pdu = lunette_pdu::DataOut { ttt: r2t.ttt, data_segment_len: data.len(), final_: true, ..data_out(1, 0) };
    let bytes = peer.frame(pdu.emit(), &[], &data);
    peer.checker.data_sent(&pdu);
    // 64 KiB between two looks, within one PDU; the other task's data comes after it.
    for piece in bytes.chunks(65536 / BEATS + 1) {
        peer.pass(BEAT);
        peer.raw(piece);
    }
    assert_eq!(peer.driver.aborted, []);
    assert_eq!(peer.driver.data_out[0].1, data);
    peer.answer(&behind, &data, 512);
    assert_eq!(peer.driver.data_out.len(), 2);
    assert_eq!(peer.driver.closed, None);
}

#[test]
fn small_writes_that_are_slow_one_by_one_all_end_well() {
    let mut peer = Peer::logged_in(Setup::default());
    let mut last = asked(&mut peer, 1, 4096);
    for itt in 2..20 {
        peer.pass(BEAT * 2);
        peer.answer(&last, &pattern(4096), 4096);
        peer.rest();
        last = asked(&mut peer, itt, 4096);
    }
    assert_eq!((peer.driver.aborted.len(), peer.driver.closed.clone()), (0, None));
}

#[test]
fn a_task_that_waits_for_the_target_is_not_late() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    peer.command(write(1, 8192), &[]);
    idle(&mut peer, 10 * BEATS);
    assert_eq!((peer.driver.aborted.len(), peer.driver.closed.clone()), (0, None));
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 8192);
    idle(&mut peer, BEATS);
    assert_eq!(peer.driver.aborted, [], "its time begins now");
    idle(&mut peer, BEATS);
    assert_eq!(peer.driver.aborted.len(), 1);
}

#[test]
fn an_initiator_that_reads_nothing_loses_the_connection() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.reads = false;
    peer.command(read(1, 1 << 20), &[]);
    idle(&mut peer, 2 * BEATS);
    assert_eq!(peer.driver.closed, Some(CloseReason::NotReading));
}

#[test]
fn an_initiator_is_not_late_because_the_target_stood_still() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.reads = false;
    peer.command(read(1, 1 << 20), &[]);
    idle(&mut peer, BEATS);
    peer.driver.come_to_rest();
    // Nothing is sent and nothing is called meanwhile.
    peer.driver.now = peer.driver.now + BEAT * BEATS as u32;
    peer.driver.go_on();
    idle(&mut peer, BEATS - 1);
    assert_eq!(peer.driver.closed, None);
    idle(&mut peer, BEATS + 1);
    assert_eq!(peer.driver.closed, Some(CloseReason::NotReading));
}

#[test]
fn an_initiator_that_sips_loses_the_connection_and_a_slow_one_does_not() {
    for (sip, closed) in [(1, Some(CloseReason::NotReading)), (65536 / BEATS + 1, None)] {
        let mut peer = Peer::logged_in(Setup::default());
        peer.reads = false;
        peer.command(read(1, 1 << 20), &[]);
        live(&mut peer, 3 * BEATS, |peer| peer.driver.sent(sip));
        assert_eq!(peer.driver.closed, closed, "{sip} bytes in {BEAT:?}");
    }
}

/// All that is ready leaves for a transport that keeps PDUs apart.
fn take_pdus(peer: &Peer) -> Unacknowledged {
    let mut taken = Unacknowledged::default();
    while let Some(pdu) = peer.driver.act(|c| c.take_pdu()) {
        taken.bytes += 48 + pdu.body_len();
        taken.data_bytes += pdu.data_len();
    }
    taken
}

#[test]
fn datagrams_that_are_acknowledged_by_sips_end_the_connection_and_slow_ones_do_not() {
    for (sip, closed) in [(1, Some(CloseReason::NotReading)), (65536 / BEATS + 1, None)] {
        let mut peer = Peer::logged_in(Setup::default());
        peer.reads = false;
        peer.command(read(1, 1 << 20), &[]);
        let mut left = take_pdus(&peer);
        assert_eq!(left.data_bytes, 1 << 20);
        live(&mut peer, 3 * BEATS, |peer| {
            left.bytes -= sip;
            peer.driver.act(|c| c.set_unacknowledged(left));
        });
        assert_eq!(peer.driver.closed, closed, "{sip} bytes in {BEAT:?}");
    }
}

#[test]
fn a_read_counts_until_its_datagrams_are_acknowledged() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.reads = false;
    peer.command(read(1, 12288), &[]);
    let held = |peer: &Peer| peer.driver.act(|c| c.answer_bytes());
    let buffer_len = held(&peer);
    assert!(buffer_len >= 12288);
    let mut left = take_pdus(&peer);
    assert_eq!(held(&peer), buffer_len, "what has left is kept");
    left = Unacknowledged { data_bytes: 1, ..left };
    peer.driver.act(|c| c.set_unacknowledged(left));
    assert_eq!(held(&peer), buffer_len, "a buffer counts as a whole");
    peer.driver.act(|c| c.set_unacknowledged(Unacknowledged::default()));
    assert_eq!(held(&peer), 0);
}

#[test]
fn a_connection_without_work_is_not_looked_at() {
    let mut peer = Peer::logged_in(Setup::default());
    let r2t = asked(&mut peer, 1, 512);
    peer.answer(&r2t, &pattern(512), 512);
    assert!(matches!(peer.next().pdu, TargetPdu::ScsiResponse(_)));
    idle(&mut peer, 10 * BEATS);
    assert_eq!(peer.driver.closed, None);
}

#[test]
fn an_r2t_behind_answers_that_are_read_slowly_is_not_late() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.reads = false;
    peer.command(read(1, 1 << 20), &[]);
    peer.command(write(2, 8192), &[]);
    // 1 MiB of answers before the R2T, 64 KiB between two looks.
    live(&mut peer, 15 * BEATS, |peer| peer.driver.sent(65536 / BEATS + 1));
    assert_eq!((peer.driver.aborted.len(), peer.driver.closed.clone()), (0, None));
    let rest = peer.driver.ready_bytes();
    peer.driver.sent(rest);
    idle(&mut peer, 2 * BEATS + 1);
    assert_eq!(peer.driver.aborted.len(), 1, "its time begins when it has left");
}
