//! SNACK requests at recovery level 1 (RFC 7143 sections 11.7.2 and 11.16).

use std::time::Duration;

use lunette_pdu::{
    DataIn, InitiatorTaskTag, LunField, NopOut, Reject, RejectReason, Residual, ScsiCommand, SerialNumber,
    SnackRequest, SnackType, TargetPdu, TargetTransferTag, TextRequest,
};
use lunette_session::iscsi_target::Response;
use lunette_session::keys::Offer;
use lunette_session::limits::{ACKNOWLEDGE_TIMEOUT, ASK_RETAINED_BYTES, MAX_RETAINED_BYTES, MAX_RETAINED_STATUSES};

use crate::harness::{Peer, Setup, command, nop_out, pattern, read, text, text_request, write};

const BUSY: u8 = 8;

/// A session of recovery level 1, with other keys beside. The initiator acknowledges no status.
fn level_1(keys: &[(&'static str, &'static str)]) -> Peer {
    let offer = Offer { error_recovery_level: 2, ..Offer::default() };
    let keys = [&[("ErrorRecoveryLevel", "1")], keys].concat();
    let mut peer = Peer::logged_in(Setup { offer, ..Setup::keys(&keys) });
    peer.holds_back = peer.checker.stat_sn;
    peer
}

fn snack(snack_type: SnackType, beg_run: u32, run_length: u32) -> SnackRequest {
    SnackRequest {
        snack_type,
        lun: LunField([0; 8]),
        itt: InitiatorTaskTag::RESERVED,
        ttt: TargetTransferTag::RESERVED,
        exp_stat_sn: SerialNumber(0),
        beg_run,
        run_length,
    }
}

fn data_snack(itt: u32, beg_run: u32, run_length: u32) -> SnackRequest {
    SnackRequest { itt: InitiatorTaskTag(itt), ..snack(SnackType::DATA_R2T, beg_run, run_length) }
}

fn r_data_snack(itt: u32, tag: u32) -> SnackRequest {
    let snack = snack(SnackType::R_DATA, 0, 0);
    SnackRequest { itt: InitiatorTaskTag(itt), ttt: TargetTransferTag(tag), ..snack }
}

impl Peer {
    /// Sends a request whose answers come out of order, so the test checks them itself.
    fn ask(&mut self, request: SnackRequest, exp_stat_sn: SerialNumber) {
        self.checker.strict = false;
        self.send(SnackRequest { exp_stat_sn, ..request }.emit(), &[]);
    }

    /// A SNACK that acknowledges no status is refused.
    fn refused(&mut self, request: SnackRequest, exp_stat_sn: SerialNumber, reason: RejectReason) -> Reject {
        self.ask(request, exp_stat_sn);
        let (reject, quoted) = self.reject();
        assert_eq!((reject.reason, &quoted[20..24]), (reason, &request.ttt.0.to_be_bytes()[..]), "{request:?}");
        assert_eq!(self.rest(), []);
        assert_eq!(self.driver.closed, None);
        reject
    }

    fn pdus(&mut self) -> Vec<(DataIn, Vec<u8>)> {
        let pdus = self.rest().into_iter();
        pdus.map(|got| match got.pdu {
            TargetPdu::DataIn(pdu) => (pdu, got.data),
            other => panic!("{other:?} is no Data-In"),
        })
        .collect()
    }

    /// Acknowledges everything that has come, without asking for anything.
    fn acknowledge(&mut self, exp_stat_sn: SerialNumber) {
        let nop = NopOut { itt: InitiatorTaskTag::RESERVED, ..nop_out(0) };
        self.send(NopOut { cmd_sn: self.cmd_sn, exp_stat_sn, ..nop }.emit(), &[]);
    }

    fn stat_sn(&self) -> SerialNumber {
        self.checker.stat_sn.unwrap()
    }
}

#[test]
fn lost_statuses_come_again_as_they_were() {
    let mut peer = level_1(&[]);
    let first = peer.stat_sn();
    peer.nop_out(nop_out(1), b"hello");
    // Immediate requests do not change the numbers that every PDU carries.
    peer.text(TextRequest { immediate: true, ..text_request(2) }, &text(&[("SendTargets", "")]));
    peer.command(ScsiCommand { immediate: true, ..command(3) }, &[]);
    peer.command(ScsiCommand { immediate: true, ..read(4, 5000) }, &[]);
    let sent = peer.rest();
    assert_eq!(sent.len(), 4);
    for (from, len, expected) in [(0, 4, 0..4), (1, 2, 1..3), (2, 0, 2..4), (3, 1, 3..4)] {
        peer.ask(snack(SnackType::STATUS, first.add(from).0, len), first);
        assert_eq!(peer.rest(), sent[expected], "{from} {len}");
    }
    peer.ask(snack(SnackType::STATUS, 0, 0), first);
    assert_eq!(peer.rest(), sent);
    peer.ask(snack(SnackType::STATUS, 0, 0), first.add(3));
    assert_eq!(peer.rest(), sent[3..], "all that is not acknowledged");
}

#[test]
fn what_comes_again_carries_the_numbers_of_today() {
    let mut peer = level_1(&[]);
    let first = peer.stat_sn();
    peer.command(command(1), &[]);
    let (before, _) = peer.scsi_response();
    peer.command(command(2), &[]);
    peer.scsi_response();
    peer.ask(snack(SnackType::STATUS, first.0, 1), first);
    let (again, _) = peer.scsi_response();
    assert_eq!(again.exp_cmd_sn, before.exp_cmd_sn.next());
    assert_eq!(again.max_cmd_sn, before.max_cmd_sn.next());
    assert_eq!((again.stat_sn, again.itt), (before.stat_sn, before.itt));
}

#[test]
fn news_of_ended_tasks_that_come_again_name_the_same_tasks() {
    let mut peer = level_1(&[("TaskReporting", "FastAbort")]);
    let before = peer.cmd_sn;
    peer.driver.in_session(|session, handle| session.tasks_terminated(handle, None, LunField([0; 8]), before));
    let (news, _) = peer.async_message();
    peer.command(command(1), &[]);
    peer.scsi_response();
    peer.ask(snack(SnackType::STATUS, news.stat_sn.0, 1), news.stat_sn);
    peer.checker.exp_cmd_sn = None;
    let (again, _) = peer.async_message();
    assert_eq!((again.event, again.stat_sn, again.exp_cmd_sn), (news.event, news.stat_sn, before));
}

#[test]
fn statuses_that_were_not_sent_or_are_acknowledged_are_refused() {
    let first = level_1(&[]).stat_sn();
    let second = first.next();
    for (from, len) in
        [(first, 1), (first, 0), (second, 3), (first.add(3), 0), (first.add(3), 1), (first.add(1 << 31), 0)]
    {
        let mut peer = level_1(&[]);
        for itt in 0..3 {
            peer.command(command(itt), &[]);
            peer.scsi_response();
        }
        peer.refused(snack(SnackType::STATUS, from.0, len), second, RejectReason::PROTOCOL_ERROR);
        peer.refused(snack(SnackType::STATUS, second.0, u32::MAX), second, RejectReason::PROTOCOL_ERROR);
    }
}

#[test]
fn with_nothing_lost_all_is_nothing() {
    let mut peer = level_1(&[]);
    let first = peer.stat_sn();
    peer.ask(snack(SnackType::STATUS, 0, 0), first);
    peer.silence();
}

#[test]
fn lost_data_comes_again_as_it_was() {
    let mut peer = level_1(&[("MaxRecvDataSegmentLength", "512"), ("MaxBurstLength", "1024")]);
    let first = peer.stat_sn();
    peer.command(read(1, 4000), &[]);
    let sent = peer.pdus();
    assert_eq!(sent.len(), 8);
    for (from, len, expected) in [(0, 0, 0..8), (0, 1, 0..1), (3, 2, 3..5), (6, 0, 6..8), (7, 1, 7..8)] {
        peer.ask(data_snack(1, from, len), first);
        assert_eq!(peer.pdus(), sent[expected], "{from} {len}");
    }
    for (from, len) in [(8, 0), (8, 1), (0, 9), (7, 2), (u32::MAX, 0), (3, u32::MAX)] {
        let reject = peer.refused(data_snack(1, from, len), first, RejectReason::PROTOCOL_ERROR);
        assert_eq!(reject.data_sn, 8, "the number that would come next");
    }
    peer.refused(data_snack(2, 0, 0), first, RejectReason::PROTOCOL_ERROR);
    peer.refused(data_snack(1, 0, 0), first.next(), RejectReason::PROTOCOL_ERROR);
}

#[test]
fn a_tag_that_is_used_again_names_its_last_task() {
    let mut peer = level_1(&[]);
    let first = peer.stat_sn();
    peer.command(read(1, 100), &[]);
    peer.command(read(1, 200), &[]);
    peer.pdus();
    peer.ask(data_snack(1, 0, 0), first);
    assert_eq!(peer.pdus()[0].1, pattern(200));
}

#[test]
fn data_is_acknowledged_when_much_is_kept() {
    let mut peer = level_1(&[("MaxRecvDataSegmentLength", "262144"), ("MaxBurstLength", "1048576")]);
    let first = peer.stat_sn();
    let len = ASK_RETAINED_BYTES as u32;
    peer.command(read(1, len), &[]);
    assert!(peer.pdus().iter().all(|(pdu, _)| !pdu.acknowledge), "there is room");
    peer.checker.strict = false;
    peer.command(read(2, 4 << 20), &[]);
    let sent = peer.pdus();
    let asking: Vec<usize> = (0..16).filter(|at| sent[*at].0.acknowledge).collect();
    assert_eq!(asking, [3, 7, 11, 15], "at the end of each sequence");
    let (asks, _) = sent[7];
    assert!(!asks.ttt.is_reserved() && asks.lun == read(2, 0).lun && sent[6].0.ttt.is_reserved());
    let ack = |data_sn| SnackRequest { ttt: asks.ttt, lun: asks.lun, ..snack(SnackType::DATA_ACK, data_sn, 0) };
    peer.ask(ack(8), first);
    peer.silence();
    peer.ask(data_snack(2, 0, 0), first);
    assert_eq!(peer.pdus(), sent[8..], "all that is not acknowledged");
    peer.refused(data_snack(2, 7, 1), first, RejectReason::PROTOCOL_ERROR);
    for bad in [7, 17, u32::MAX] {
        peer.refused(ack(bad), first, RejectReason::INVALID_DATA_ACK);
    }
    let unknown = SnackRequest { ttt: TargetTransferTag(asks.ttt.0 ^ 0x0100_0000), ..ack(8) };
    peer.refused(unknown, first, RejectReason::INVALID_DATA_ACK);
}

#[test]
fn a_status_is_known_when_the_data_that_it_rode_on_is_acknowledged() {
    let mut peer = level_1(&[("MaxRecvDataSegmentLength", "262144")]);
    let first = peer.stat_sn();
    peer.command(read(1, 1 + ASK_RETAINED_BYTES as u32), &[]);
    peer.checker.strict = false;
    let sent = peer.pdus();
    let used = peer.driver.pool.used_bytes();
    let (last, _) = sent.last().unwrap();
    assert!(last.acknowledge && last.status.is_some());
    peer.ask(SnackRequest { ttt: last.ttt, ..snack(SnackType::DATA_ACK, last.data_sn + 1, 0) }, first);
    assert!(peer.driver.pool.used_bytes() < used, "its buffer is given back");
    peer.ask(snack(SnackType::STATUS, first.0, 1), first);
    let (response, _) = peer.scsi_response();
    assert_eq!((response.stat_sn, response.exp_data_sn), (first, last.data_sn + 1));
}

#[test]
fn another_segment_length_cuts_the_data_anew() {
    let mut peer = level_1(&[("MaxRecvDataSegmentLength", "1024")]);
    let first = peer.stat_sn();
    peer.command(read(1, 4000), &[]);
    assert_eq!(peer.pdus().len(), 4);
    peer.text(text_request(2), &text(&[("MaxRecvDataSegmentLength", "512")]));
    peer.rest();
    peer.ask(r_data_snack(1, 77), first);
    let again = peer.rest();
    let mut bytes = Vec::new();
    for (data_sn, got) in again[..8].iter().enumerate() {
        let TargetPdu::DataIn(pdu) = &got.pdu else { panic!("{got:?}") };
        assert_eq!((pdu.data_sn, pdu.buffer_offset, pdu.status), (data_sn as u32, bytes.len() as u32, None));
        assert!(got.data.len() <= 512);
        bytes.extend_from_slice(&got.data);
    }
    assert_eq!(bytes, pattern(4000));
    let TargetPdu::ScsiResponse(response) = &again[8].pdu else { panic!("{:?}", again[8]) };
    assert_eq!((response.stat_sn, response.snack_tag, response.exp_data_sn), (first, 77, 8));
    assert_eq!(response.residual, Residual::None);
    assert_eq!(again.len(), 9);
    peer.ask(snack(SnackType::STATUS, first.0, 1), first);
    assert_eq!(peer.rest(), again[8..], "the latest of its responses");
    peer.ask(data_snack(1, 7, 1), first);
    assert_eq!(peer.rest(), again[7..8]);
    peer.ask(r_data_snack(1, 78), first);
    assert_eq!(peer.rest().len(), 9);
}

#[test]
fn what_is_acknowledged_is_not_cut_anew() {
    let mut peer = level_1(&[("MaxRecvDataSegmentLength", "65536"), ("MaxBurstLength", "262144")]);
    let first = peer.stat_sn();
    let len = 1 + ASK_RETAINED_BYTES;
    peer.command(read(1, len as u32), &[]);
    peer.checker.strict = false;
    let sent = peer.pdus();
    let (asks, _) = sent[3];
    peer.ask(SnackRequest { ttt: asks.ttt, ..snack(SnackType::DATA_ACK, 3, 0) }, first);
    peer.text(text_request(2), &text(&[("MaxRecvDataSegmentLength", "131072")]));
    peer.checker.max_segment_len = 131_072;
    peer.rest();
    peer.ask(r_data_snack(1, 1), first);
    let again = peer.rest();
    let TargetPdu::DataIn(pdu) = &again[0].pdu else { panic!("{:?}", again[0]) };
    assert_eq!((pdu.data_sn, pdu.buffer_offset, pdu.data_segment_len, pdu.final_), (3, 3 * 65_536, 65_536, true));
    let TargetPdu::DataIn(pdu) = &again[1].pdu else { panic!("{:?}", again[1]) };
    assert_eq!((pdu.data_sn, pdu.buffer_offset, pdu.data_segment_len), (4, 4 * 65_536, 131_072));
}

#[test]
fn an_answer_without_data_gets_its_tag_too() {
    let mut peer = level_1(&[]).manual();
    let first = peer.stat_sn();
    peer.command(read(1, 512), &[]);
    let task = peer.driver.commands[0].task;
    peer.refused(r_data_snack(1, 7), first, RejectReason::PROTOCOL_ERROR);
    let first = peer.stat_sn().next();
    peer.driver.complete(task, Response { status: BUSY, ..Response::default() });
    let (before, _) = peer.scsi_response();
    assert_eq!(before.stat_sn, first);
    peer.ask(r_data_snack(1, 7), first);
    let (again, _) = peer.scsi_response();
    assert_eq!((again.snack_tag, again.status, again.stat_sn), (7, BUSY, first));
}

#[test]
fn a_request_for_new_cuts_needs_a_tag_and_no_run() {
    let mut peer = level_1(&[]);
    let first = peer.stat_sn();
    peer.command(read(1, 512), &[]);
    peer.pdus();
    for bad in [
        r_data_snack(1, 0),
        r_data_snack(1, u32::MAX),
        SnackRequest { beg_run: 1, ..r_data_snack(1, 5) },
        SnackRequest { run_length: 1, ..r_data_snack(1, 5) },
    ] {
        peer.refused(bad, first, RejectReason::INVALID_PDU_FIELD);
    }
    peer.refused(snack(SnackType(9), 0, 0), first, RejectReason::PROTOCOL_ERROR);
}

#[test]
fn what_is_kept_is_bounded() {
    let mut peer = level_1(&[("MaxRecvDataSegmentLength", "1048576")]);
    peer.driver.pool = lunette_buffer::Pool::new(4 * MAX_RETAINED_BYTES);
    let first = peer.stat_sn();
    peer.checker.strict = false;
    let unacknowledged = |peer: &mut Peer, itt| {
        let request = ScsiCommand { cmd_sn: peer.cmd_sn, ..read(itt, 4 << 20) };
        peer.cmd_sn = peer.cmd_sn.next();
        peer.send(request.emit(), &[]);
        peer.rest();
    };
    let fit = (MAX_RETAINED_BYTES / (4 << 20)) as u32;
    for itt in 0..fit {
        unacknowledged(&mut peer, itt);
    }
    peer.ask(data_snack(0, 0, 1), first);
    peer.data_in();
    assert_eq!(peer.driver.act(|c| c.answer_bytes()), MAX_RETAINED_BYTES);
    unacknowledged(&mut peer, fit);
    assert_eq!(peer.driver.act(|c| c.answer_bytes()), MAX_RETAINED_BYTES);
    assert_eq!(peer.driver.pool.used_bytes(), MAX_RETAINED_BYTES);
    peer.refused(data_snack(0, 0, 1), first, RejectReason::SNACK_REJECT);
    peer.refused(snack(SnackType::STATUS, first.0, 1), first, RejectReason::SNACK_REJECT);
    peer.ask(data_snack(1, 0, 1), first);
    peer.data_in();
    let end = first.add(fit + 3);
    peer.acknowledge(end);
    assert_eq!((peer.driver.act(|c| c.answer_bytes()), peer.driver.pool.used_bytes()), (0, 0));
}

#[test]
fn so_is_the_number_of_statuses() {
    let mut peer = level_1(&[]);
    let first = peer.stat_sn();
    peer.checker.strict = false;
    let ping = |peer: &mut Peer| {
        let nop = NopOut { cmd_sn: peer.cmd_sn, ..nop_out(1) };
        peer.send(nop.emit(), &[]);
        peer.nop_in();
    };
    for _ in 0..MAX_RETAINED_STATUSES {
        ping(&mut peer);
    }
    peer.ask(snack(SnackType::STATUS, first.0, 1), first);
    peer.nop_in();
    ping(&mut peer);
    peer.refused(snack(SnackType::STATUS, first.0, 1), first, RejectReason::SNACK_REJECT);
}

#[test]
fn level_0_keeps_nothing() {
    let mut peer = Peer::logged_in(Setup::default());
    let first = peer.stat_sn();
    peer.command(read(1, 512), &[]);
    peer.data_in();
    assert_eq!((peer.driver.act(|c| c.answer_bytes()), peer.driver.pool.used_bytes()), (0, 0));
    peer.refused(data_snack(1, 0, 0), first, RejectReason::SNACK_REJECT);
}

#[test]
fn others_may_need_the_buffers() {
    let mut peer = level_1(&[]);
    let first = peer.stat_sn();
    assert!(!peer.driver.act(|c| c.make_room(peer.driver.now)), "nothing is kept");
    peer.command(read(1, 5000), &[]);
    peer.pdus();
    peer.command(read(2, 5000), &[]);
    peer.pdus();
    assert!(peer.driver.act(|c| c.make_room(peer.driver.now)));
    assert!(!peer.driver.act(|c| c.make_room(peer.driver.now)), "it has been asked for");
    let (ping, _) = peer.nop_in();
    assert!(ping.itt.is_reserved() && !ping.ttt.is_reserved());
    peer.acknowledge(first.next());
    assert_eq!(peer.driver.act(|c| c.answer_bytes()), 8192, "of whole buffers");
    peer.pass(ACKNOWLEDGE_TIMEOUT.saturating_sub(Duration::from_secs(1)));
    peer.command(read(3, 4000), &[]);
    peer.pdus();
    assert_eq!(peer.driver.act(|c| c.answer_bytes()), 12288);
    peer.pass(Duration::from_secs(1));
    assert_eq!(peer.driver.act(|c| c.answer_bytes()), 4096, "what came later was not asked for");
    peer.refused(data_snack(2, 0, 0), first.next(), RejectReason::SNACK_REJECT);
    assert!(peer.driver.act(|c| c.make_room(peer.driver.now)));
}

#[test]
fn what_cannot_be_acknowledged_is_forgotten_at_once() {
    let mut peer = level_1(&[]).manual();
    let first = peer.stat_sn();
    peer.command(read(1, 5000), &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.give_data(task, 5000);
    peer.pdus();
    peer.command(write(2, 512), &[0; 512]);
    assert!(!peer.driver.wants_input(), "the data has no buffer yet");
    assert!(peer.driver.act(|c| c.make_room(peer.driver.now)));
    assert_eq!((peer.driver.act(|c| c.answer_bytes()), peer.driver.pool.used_bytes()), (0, 0));
    assert!(!peer.driver.act(|c| c.make_room(peer.driver.now)));
    let task = peer.driver.commands[1].task;
    peer.driver.want_data(task, 512);
    peer.collect();
    peer.refused(data_snack(1, 0, 0), first, RejectReason::SNACK_REJECT);
}

#[test]
fn the_end_of_a_connection_gives_its_buffers_back() {
    let mut peer = level_1(&[]);
    peer.command(read(1, 5000), &[]);
    peer.pdus();
    peer.command(ScsiCommand { itt: InitiatorTaskTag::RESERVED, ..command(0) }, &[]);
    peer.rejected(RejectReason::INVALID_PDU_FIELD);
    assert!(peer.driver.closed.is_some());
    assert_eq!((peer.driver.act(|c| c.answer_bytes()), peer.driver.pool.used_bytes()), (0, 0));
}
