//! Damaged data segments at recovery level 1 (RFC 7143 sections 7.2.1, 7.3 and 7.8): what comes in is asked for again,
//! and the device sees each command once, whole and in order.

use lunette_pdu::{
    BHS_LEN, DataOut, InitiatorTaskTag, NopOut, R2t, RejectReason, ScsiCommand, SerialNumber, SnackRequest, SnackType,
    TargetPdu, TaskManagementFunction, TaskManagementRequest, TaskManagementResponseCode, TextRequest,
};
use lunette_session::iscsi_target::{CloseReason, Response};
use lunette_session::keys::Offer;
use lunette_session::limits::{COMMAND_GAP_TIMEOUT, MAX_EARLY_BYTES};

use crate::harness::{
    Cut, Peer, Setup, command, data_out, nop_out, pattern, read, snack, solicited, task_management, text, text_request,
    write,
};

/// A session of recovery level 1 with data digests, with other keys beside.
fn level_1(keys: &[(&'static str, &'static str)]) -> Peer {
    let offer = Offer { error_recovery_level: 2, ..Offer::default() };
    let keys = [&[("ErrorRecoveryLevel", "1"), ("DataDigest", "CRC32C"), ("InitialR2T", "No")], keys].concat();
    Peer::logged_in(Setup { offer, ..Setup::keys(&keys) })
}

impl Peer {
    /// Sends a PDU whose data segment is damaged on the way, and finds it refused.
    fn damaged(&mut self, bhs: [u8; BHS_LEN], data: &[u8]) {
        let mut bytes = self.frame(bhs, &[], data);
        *bytes.last_mut().unwrap() ^= 0x40;
        self.raw(&bytes);
        let (reject, quoted) = self.reject();
        assert_eq!((reject.reason, &quoted[..]), (RejectReason::DATA_DIGEST_ERROR, &bhs[..]));
        assert_eq!(self.driver.closed, None);
    }

    /// Sends a command with damaged immediate data. It uses up a number for the initiator.
    fn damaged_command(&mut self, request: ScsiCommand, data: &[u8]) -> ScsiCommand {
        let request = ScsiCommand { cmd_sn: self.cmd_sn, data_segment_len: data.len(), ..request };
        if !request.immediate {
            self.cmd_sn = self.cmd_sn.next();
        }
        self.checker.task_sent(request.itt, false);
        self.damaged(request.emit(), data);
        request
    }

    /// Sends a command again, with its own number.
    fn retry(&mut self, request: ScsiCommand, data: &[u8]) {
        let bytes = self.frame(ScsiCommand { exp_stat_sn: self.checker.stat_sn.unwrap(), ..request }.emit(), &[], data);
        self.raw(&bytes);
    }

    /// Answers an R2T. The PDU at `bad` is damaged.
    fn answer_badly(&mut self, r2t: &R2t, source: &[u8], pdu_len: usize, bad: usize) {
        for (at, pdu) in solicited(r2t, pdu_len).into_iter().enumerate() {
            let from = pdu.buffer_offset as usize;
            let data = &source[from..from + pdu.data_segment_len];
            if at == bad {
                self.checker.data_sent(&pdu);
                let bytes = self.frame(pdu.emit(), &[], data);
                let end = bytes.len() - 1;
                self.raw(&[&bytes[..end], &[!bytes[end]]].concat());
            } else {
                self.data_out(pdu, data);
            }
        }
    }

    fn wrote(&mut self, itt: u32, data: &[u8]) {
        let (response, _) = self.scsi_response();
        assert_eq!((response.itt.0, response.status), (itt, 0));
        assert!(self.driver.data_out.last().unwrap().1 == data, "the device has other bytes");
    }
}

#[test]
fn damaged_solicited_data_is_asked_for_again() {
    for bad in 0..3 {
        let mut peer = level_1(&[("ImmediateData", "No"), ("MaxBurstLength", "16384")]);
        let data = pattern(20_000);
        peer.command(write(1, 20_000), &[]);
        let (first, _) = peer.r2t();
        peer.answer_badly(&first, &data, 4096, bad);
        peer.rejected(RejectReason::DATA_DIGEST_ERROR);
        let (again, _) = peer.r2t();
        assert_eq!((again.r2t_sn, again.buffer_offset), (1, 4096 * bad as u32));
        assert_eq!(again.desired_data_transfer_length, 4096);
        peer.answer(&again, &data, 1000);
        let (rest, _) = peer.r2t();
        assert_eq!((rest.r2t_sn, rest.buffer_offset), (2, 16_384));
        peer.answer(&rest, &data, 8192);
        peer.wrote(1, &data);
    }
}

#[test]
fn damaged_unsolicited_data_is_asked_for() {
    let mut peer = level_1(&[]);
    let data = pattern(3000);
    peer.command(ScsiCommand { final_: false, ..write(1, 3000) }, &data[..1000]);
    let first = DataOut { final_: false, data_segment_len: 1000, ..data_out(1, 1000) };
    peer.damaged(first.emit(), &data[1000..2000]);
    peer.data_out(DataOut { data_sn: 1, ..data_out(1, 2000) }, &data[2000..]);
    let (again, _) = peer.r2t();
    assert_eq!((again.r2t_sn, again.buffer_offset, again.desired_data_transfer_length), (0, 1000, 1000));
    peer.answer(&again, &data, 8192);
    peer.wrote(1, &data);
}

#[test]
fn damage_may_strike_again_and_again() {
    let mut peer = level_1(&[("ImmediateData", "No")]);
    let data = pattern(5000);
    peer.command(write(1, 5000), &[]);
    for r2t_sn in 0..50 {
        let (r2t, _) = peer.r2t();
        assert_eq!((r2t.r2t_sn, r2t.desired_data_transfer_length), (r2t_sn, 5000));
        peer.answer_badly(&r2t, &data, 8192, 0);
        peer.rejected(RejectReason::DATA_DIGEST_ERROR);
    }
    let (r2t, _) = peer.r2t();
    peer.answer(&r2t, &data, 8192);
    peer.wrote(1, &data);
}

#[test]
fn a_command_with_damaged_data_does_not_count() {
    for immediate in [false, true] {
        let mut peer = level_1(&[]);
        let data = pattern(700);
        let request = peer.damaged_command(ScsiCommand { immediate, ..write(1, 700) }, &data);
        assert!(peer.driver.commands.is_empty());
        assert_eq!(peer.checker.exp_cmd_sn, Some(request.cmd_sn));
        peer.retry(request, &data);
        peer.wrote(1, &data);
        assert_eq!(peer.driver.commands.len(), 1);
        assert_eq!(peer.checker.exp_cmd_sn, Some(peer.cmd_sn));
    }
}

#[test]
fn what_comes_behind_it_waits_and_loses_its_data() {
    let mut peer = level_1(&[]);
    let data = pattern(3000);
    let lost = peer.damaged_command(write(1, 500), &data[..500]);
    peer.command(read(2, 512), &[]);
    peer.command(ScsiCommand { final_: false, ..write(3, 3000) }, &data[..1000]);
    peer.data_out(data_out(3, 1000), &data[1000..2000]);
    peer.command(ScsiCommand { final_: false, ..write(4, 2000) }, &[]);
    peer.data_out(data_out(4, 0), &data[..1500]);
    peer.nop_out(NopOut { immediate: false, ..nop_out(5) }, b"ping");
    peer.text(text_request(6), &text(&[("SendTargets", "")]));
    peer.nop_out(nop_out(7), b"immediate");
    assert_eq!(peer.nop_in().0.itt.0, 7);
    peer.silence();
    assert!(peer.driver.commands.is_empty());
    peer.retry(lost, &data[..500]);
    let order: Vec<u32> = peer.driver.commands.iter().map(|command| command.order.cmd_sn.0).collect();
    assert_eq!(order, [1, 2, 3, 4]);
    peer.wrote(1, &data[..500]);
    assert_eq!(peer.data_in().1, pattern(512));
    let (third, _) = peer.r2t();
    assert_eq!((third.itt.0, third.buffer_offset, third.desired_data_transfer_length), (3, 0, 3000));
    let (fourth, _) = peer.r2t();
    assert_eq!((fourth.itt.0, fourth.buffer_offset, fourth.desired_data_transfer_length), (4, 0, 2000));
    assert_eq!(peer.nop_in().1, b"ping");
    assert_eq!(peer.text_response().0.itt.0, 6);
    peer.answer(&fourth, &data, 8192);
    peer.wrote(4, &data[..2000]);
    peer.answer(&third, &data, 8192);
    peer.wrote(3, &data);
}

#[test]
fn several_lost_commands_come_again_in_any_order() {
    let mut peer = level_1(&[]);
    let data = pattern(100);
    let lost: Vec<ScsiCommand> = (0..5).map(|itt| peer.damaged_command(write(itt, 100), &data)).collect();
    for at in [3, 1, 0, 4, 2] {
        peer.retry(lost[at], &data);
    }
    // Those that came before their turn have lost their data.
    for _ in 0..5 {
        for got in peer.rest() {
            if let TargetPdu::R2t(r2t) = got.pdu {
                peer.answer(&r2t, &data, 8192);
            }
        }
    }
    let order: Vec<u32> = peer.driver.commands.iter().map(|command| command.order.cmd_sn.0).collect();
    assert_eq!(order, [1, 2, 3, 4, 5]);
    assert_eq!(peer.driver.data_out.len(), 5);
    assert!(peer.driver.data_out.iter().all(|(_, bytes)| *bytes == data));
}

#[test]
fn a_gap_that_stays_ends_the_connection() {
    let mut peer = level_1(&[]);
    peer.damaged_command(write(1, 100), &pattern(100));
    peer.command(command(2), &[]);
    peer.pass(COMMAND_GAP_TIMEOUT);
    peer.rest();
    assert_eq!(peer.driver.closed, Some(CloseReason::Gap));
}

#[test]
fn an_abort_fills_a_gap() {
    let mut peer = level_1(&[]);
    let lost = peer.damaged_command(write(1, 100), &pattern(100));
    peer.command(command(2), &[]);
    let abort = task_management(9, TaskManagementFunction::ABORT_TASK);
    peer.task_management(TaskManagementRequest { referenced_task_tag: lost.itt, ref_cmd_sn: lost.cmd_sn, ..abort });
    let (response, _) = peer.task_management_response();
    assert_eq!(response.response, TaskManagementResponseCode::FUNCTION_COMPLETE);
    assert_eq!(peer.scsi_response().0.itt.0, 2);
    peer.retry(lost, &pattern(100));
    peer.silence();
}

#[test]
fn an_immediate_reset_waits_for_what_is_missing() {
    let mut peer = level_1(&[]);
    let lost = peer.damaged_command(write(1, 100), &pattern(100));
    peer.task_management(task_management(9, TaskManagementFunction::LOGICAL_UNIT_RESET));
    peer.silence();
    peer.retry(lost, &pattern(100));
    assert_eq!(peer.scsi_response().0.itt.0, 1);
    assert_eq!(peer.task_management_response().0.itt.0, 9);
}

#[test]
fn pings_and_text_count_when_they_are_whole() {
    let mut peer = level_1(&[]);
    let ping = NopOut { immediate: false, cmd_sn: peer.cmd_sn, data_segment_len: 5, ..nop_out(1) };
    peer.damaged(ping.emit(), b"hello");
    peer.nop_out(NopOut { immediate: false, ..nop_out(1) }, b"hello");
    assert_eq!(peer.nop_in().1, b"hello");
    let quiet = NopOut { itt: InitiatorTaskTag::RESERVED, cmd_sn: peer.cmd_sn, ..ping };
    peer.damaged(quiet.emit(), b"hello");
    peer.nop_out(NopOut { immediate: false, itt: InitiatorTaskTag::RESERVED, ..nop_out(0) }, b"hello");
    peer.silence();
    let keys = text(&[("SendTargets", "")]);
    let request = TextRequest { cmd_sn: peer.cmd_sn, data_segment_len: keys.len(), ..text_request(2) };
    peer.damaged(request.emit(), &keys);
    peer.text(text_request(2), &keys);
    let (response, _) = peer.text_response();
    assert_eq!(response.exp_cmd_sn, peer.cmd_sn);
}

#[test]
fn a_text_that_waited_may_still_be_refused() {
    let mut peer = level_1(&[]);
    let lost = peer.damaged_command(write(1, 100), &pattern(100));
    peer.text(text_request(2), b"no key at all\0");
    peer.retry(lost, &pattern(100));
    peer.scsi_response();
    let (reject, quoted) = peer.reject();
    assert_eq!((reject.reason, &quoted[16..20]), (RejectReason::PROTOCOL_ERROR, &[0, 0, 0, 2][..]));
    peer.silence();
}

#[test]
fn what_waits_is_bounded() {
    let mut peer = level_1(&[]);
    let lost = peer.damaged_command(write(1, 100), &pattern(100));
    let ping = vec![7; MAX_EARLY_BYTES / 2];
    for itt in 2..5 {
        peer.nop_out(NopOut { immediate: false, ..nop_out(itt) }, &ping);
    }
    peer.retry(lost, &pattern(100));
    peer.scsi_response();
    for itt in 2..4 {
        assert_eq!(peer.nop_in().0.itt.0, itt);
    }
    peer.silence();
    peer.cmd_sn = SerialNumber(peer.cmd_sn.0 - 1);
    peer.nop_out(NopOut { immediate: false, ..nop_out(4) }, &ping);
    assert_eq!(peer.nop_in().0.itt.0, 4);
}

#[test]
fn data_of_nobody_may_be_damaged() {
    let mut peer = level_1(&[]);
    peer.damaged(DataOut { data_segment_len: 100, ..data_out(9, 0) }.emit(), &[7; 100]);
    peer.silence();
}

#[test]
fn the_driver_may_refuse_a_command_that_brought_data() {
    let mut peer = level_1(&[]).manual();
    peer.command(write(1, 100), &pattern(100));
    peer.nop_out(nop_out(2), b"");
    peer.silence();
    let task = peer.driver.commands[0].task;
    assert_eq!(peer.driver.act(|c| c.stopped_by()), Some(task));
    peer.driver.complete(task, Response { status: 8, ..Response::default() });
    assert_eq!(peer.scsi_response().0.status, 8);
    assert_eq!(peer.nop_in().0.itt.0, 2);
}

#[test]
fn a_device_may_want_less_than_was_brought() {
    let mut peer = level_1(&[]).manual();
    peer.command(write(1, 100), &pattern(100));
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 40);
    peer.collect();
    assert_eq!(peer.driver.data_out[0].1, pattern(40));
}

#[test]
fn a_command_that_comes_twice_runs_once() {
    for waits in [false, true] {
        let mut peer = level_1(&[]).manual();
        let data = pattern(2000);
        let request = ScsiCommand { final_: false, cmd_sn: peer.cmd_sn, ..write(1, 2000) };
        peer.command(ScsiCommand { final_: false, ..write(1, 2000) }, &data[..1000]);
        let task = peer.driver.commands[0].task;
        peer.driver.want_data(task, 2000);
        if !waits {
            peer.data_out(data_out(1, 1000), &data[1000..]);
        }
        peer.retry(ScsiCommand { data_segment_len: 1000, ..request }, &data[..1000]);
        peer.data_out(data_out(1, 1000), &data[1000..]);
        if waits {
            let (r2t, _) = peer.r2t();
            assert_eq!((r2t.buffer_offset, r2t.desired_data_transfer_length), (1000, 1000));
            peer.answer(&r2t, &data, 8192);
        }
        assert_eq!(peer.driver.commands.len(), 1);
        assert_eq!(peer.driver.data_out.len(), 1);
        assert_eq!(peer.driver.data_out[0].1, data);
        peer.silence();
    }
}

#[test]
fn lost_r2ts_come_again() {
    let mut peer = level_1(&[("ImmediateData", "No"), ("MaxBurstLength", "1024")]);
    let data = pattern(3000);
    let ask = |peer: &mut Peer, beg_run, run_length| {
        peer.checker.strict = false;
        let request = SnackRequest {
            exp_stat_sn: peer.checker.stat_sn.unwrap(),
            beg_run,
            run_length,
            ..snack(InitiatorTaskTag(1), SnackType::DATA_R2T)
        };
        peer.send(request.emit(), &[]);
    };
    peer.command(write(1, 3000), &[]);
    let (first, _) = peer.r2t();
    peer.answer(&first, &data, 8192);
    let (second, _) = peer.r2t();
    for (beg_run, run_length) in [(1, 1), (1, 0), (0, 0)] {
        ask(&mut peer, beg_run, run_length);
        assert_eq!(peer.r2t().0, second, "{beg_run} {run_length}");
        peer.silence();
    }
    for (beg_run, run_length) in [(0, 1), (0, 2), (2, 0), (2, 1), (1, u32::MAX)] {
        ask(&mut peer, beg_run, run_length);
        let (reject, _) = peer.reject();
        assert_eq!((reject.reason, reject.data_sn), (RejectReason::PROTOCOL_ERROR, 2), "{beg_run} {run_length}");
        peer.silence();
    }
    peer.answer(&second, &data, 8192);
    let (third, _) = peer.r2t();
    peer.answer(&third, &data, 8192);
    peer.wrote(1, &data);
}

#[test]
fn several_r2ts_are_told_apart() {
    let keys = [
        ("ImmediateData", "No"),
        ("MaxBurstLength", "1024"),
        ("DataSequenceInOrder", "No"),
        ("MaxOutstandingR2T", "4"),
    ];
    let offer = Offer { error_recovery_level: 1, data_sequence_in_order: false, ..Offer::default() };
    let keys = [&[("ErrorRecoveryLevel", "1")], &keys[..]].concat();
    let mut peer = Peer::logged_in(Setup { offer, ..Setup::keys(&keys) });
    let data = pattern(4096);
    peer.command(write(1, 4096), &[]);
    let r2ts: Vec<R2t> = (0..4).map(|_| peer.r2t().0).collect();
    peer.answer(&r2ts[1], &data, 8192);
    peer.checker.strict = false;
    let request =
        SnackRequest { exp_stat_sn: peer.checker.stat_sn.unwrap(), ..snack(InitiatorTaskTag(1), SnackType::DATA_R2T) };
    peer.send(request.emit(), &[]);
    for at in [0, 2, 3] {
        assert_eq!(peer.r2t().0, R2t { exp_cmd_sn: r2ts[at].exp_cmd_sn, ..r2ts[at] });
    }
    peer.silence();
}

#[test]
fn any_damage_is_repaired() {
    // A small generator: which PDUs are damaged is a matter of chance.
    let mut state = 1_u32;
    let mut strikes = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16).is_multiple_of(4)
    };
    for cut in [Cut::WHOLE, Cut { piece: 701, direct: false }, Cut { piece: 20_000, direct: true }] {
        for immediate_data in ["Yes", "No"] {
            let keys = [("ImmediateData", immediate_data), ("MaxBurstLength", "65536"), ("FirstBurstLength", "8192")];
            let mut peer = level_1(&keys).cut(cut);
            let len = 150_000;
            let data = pattern(len as usize);
            let at_once = if immediate_data == "Yes" { 8192 } else { 0 };
            let sent = |peer: &mut Peer, bhs, data: &[u8], strikes: bool| {
                let mut bytes = peer.frame(bhs, &[], data);
                if strikes {
                    *bytes.last_mut().unwrap() ^= 1;
                }
                peer.raw(&bytes);
            };
            let request = ScsiCommand { cmd_sn: peer.cmd_sn, data_segment_len: at_once, ..write(1, len) };
            peer.cmd_sn = peer.cmd_sn.next();
            peer.checker.task_sent(request.itt, false);
            loop {
                sent(&mut peer, request.emit(), &data[..at_once], at_once > 0 && strikes());
                if !peer.driver.commands.is_empty() {
                    break;
                }
            }
            while peer.driver.data_out.is_empty() {
                for got in peer.rest() {
                    let TargetPdu::R2t(r2t) = got.pdu else { continue };
                    for pdu in solicited(&r2t, 20_000) {
                        peer.checker.data_sent(&pdu);
                        let from = pdu.buffer_offset as usize;
                        sent(&mut peer, pdu.emit(), &data[from..from + pdu.data_segment_len], strikes());
                    }
                }
                assert_eq!(peer.driver.closed, None);
            }
            assert!(peer.driver.data_out[0].1 == data);
            assert_eq!(peer.driver.commands.len(), 1);
        }
    }
}

#[test]
fn a_discovery_session_recovers_nothing() {
    let offer = Offer { error_recovery_level: 2, ..Offer::default() };
    let mut peer = Peer::discovering(Setup { offer, ..Setup::keys(&[("ErrorRecoveryLevel", "2")]) });
    let snack = snack(InitiatorTaskTag::RESERVED, SnackType::STATUS);
    peer.send(snack.emit(), &[]);
    peer.rejected(RejectReason::SNACK_REJECT);
}
