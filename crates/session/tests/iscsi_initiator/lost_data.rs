//! Data-In PDUs and R2Ts that were lost on their way, at recovery level 1: they are asked for again, and no command
//! ends without them.

use std::time::Duration;

use lunette_pdu::{
    AsyncEvent, AsyncMessage, DataIn, InitiatorPdu, InitiatorTaskTag, R2t, RejectReason, Residual, ScsiResponse,
    SerialNumber, SnackRequest, SnackType, TargetTransferTag,
};
use lunette_session::iscsi_initiator::{Command, Event, Recoveries, SessionError};
use lunette_testkit::Numbers;

use crate::harness::{LUN, ScriptedTarget, Sent, pattern, write};

fn assert_asked(target: &mut ScriptedTarget, itt: InitiatorTaskTag, first: u32, len: u32) -> SnackRequest {
    let pdu = target.snack_request();
    assert_eq!((pdu.snack_type, pdu.itt, pdu.ttt), (SnackType::DATA_R2T, itt, TargetTransferTag::RESERVED));
    assert_eq!((pdu.beg_run, pdu.run_length), (first, len));
    pdu
}

fn assert_acknowledged(target: &mut ScriptedTarget, ttt: u32, beg_run: u32) {
    let pdu = target.snack_request();
    assert_eq!((pdu.snack_type, pdu.itt), (SnackType::DATA_ACK, InitiatorTaskTag::RESERVED));
    assert_eq!((pdu.lun, pdu.ttt, pdu.beg_run, pdu.run_length), (LUN, TargetTransferTag(ttt), beg_run, 0));
}

fn assert_whole(target: &mut ScriptedTarget, len: usize) {
    let (command, response) = target.completed();
    assert_eq!((response.status, response.data_in_len), (0, len));
    assert_eq!(command.data_in.as_deref(), Some(&pattern(len)[..]));
}

/// The n-th kilobyte of a read.
fn part(target: &ScriptedTarget, itt: InitiatorTaskTag, n: u32) -> DataIn {
    DataIn { final_: false, ..target.data_in(itt, n, n * 1024, 1024) }
}

/// The last part, with the status.
fn last(target: &mut ScriptedTarget, itt: InitiatorTaskTag, n: u32) -> DataIn {
    let status = Some(target.status(Residual::None));
    DataIn { final_: true, status, ..part(target, itt, n) }
}

fn good(target: &mut ScriptedTarget, itt: InitiatorTaskTag, exp_data_sn: u32) -> ScsiResponse {
    ScsiResponse { exp_data_sn, ..target.response(itt) }
}

#[test]
fn damaged_data_is_asked_for_and_may_come_damaged_again() {
    let mut target = ScriptedTarget::recovering();
    let (_, itt) = target.read(4096);
    target.send_data(part(&target, itt, 0));
    for _ in 0..2 {
        target.send_damaged_data(part(&target, itt, 1));
        assert_asked(&mut target, itt, 1, 1);
    }
    target.send_data(part(&target, itt, 2));
    let last = last(&mut target, itt, 3);
    target.send_data(last);
    assert!(target.events.is_empty() && target.sent.is_empty(), "{:?} {:?}", target.events, target.sent);
    target.send_data(part(&target, itt, 1));
    assert_whole(&mut target, 4096);
    let counted = Recoveries { damaged_pdus: 2, data_snacks: 2, ..Recoveries::default() };
    assert_eq!(*target.session.recoveries(), counted);
}

#[test]
fn a_run_that_is_missing_is_asked_for_once() {
    let mut target = ScriptedTarget::recovering();
    let (_, itt) = target.read(5120);
    target.send_data(part(&target, itt, 2));
    assert_asked(&mut target, itt, 0, 2);
    let last = last(&mut target, itt, 4);
    target.send_data(last);
    assert_asked(&mut target, itt, 3, 1);
    for n in [1, 3, 1, 0] {
        assert!(target.events.is_empty());
        target.send_data(part(&target, itt, n));
    }
    assert_whole(&mut target, 5120);
    // What comes twice, and even after the end, is discarded.
    target.send_data(part(&target, itt, 1));
    target.send_data(last);
    assert!(target.events.is_empty() && target.sent.is_empty(), "{:?} {:?}", target.events, target.sent);
}

#[test]
fn the_data_of_a_bidirectional_command_is_missed_too() {
    let mut target = ScriptedTarget::recovering();
    let data_in = Some(target.pool.take(1024).unwrap());
    let command = Command { data_in, ..write(&target.pool, 1, 0, &pattern(1024)) };
    target.session.submit(command, target.now).unwrap();
    target.raw(&[]);
    let sent = target.next();
    let InitiatorPdu::ScsiCommand(pdu) = sent.pdu else { panic!("{sent:?}") };
    // R2Ts and Data-In share one numbering.
    target.send(target.r2t(pdu.itt, 0, 0, 1024).emit(), &[]);
    target.next();
    let response = good(&mut target, pdu.itt, 2);
    target.send(response.emit(), &[]);
    assert_asked(&mut target, pdu.itt, 1, 1);
    assert!(target.events.is_empty());
    target.send_data(target.data_in(pdu.itt, 1, 0, 1024));
    assert_whole(&mut target, 1024);
}

#[test]
fn what_comes_twice_overwrites_nothing() {
    let mut target = ScriptedTarget::recovering();
    let (_, itt) = target.read(2048);
    target.send_data(part(&target, itt, 0));
    target.send(part(&target, itt, 0).emit(), &[0xee; 1024]);
    let last = last(&mut target, itt, 1);
    target.send_data(last);
    assert_whole(&mut target, 2048);
}

#[test]
fn a_response_says_how_much_data_there_was() {
    let mut target = ScriptedTarget::recovering();
    let (_, itt) = target.read(4096);
    target.send_data(part(&target, itt, 0));
    let response = good(&mut target, itt, 4);
    target.send(response.emit(), &[]);
    assert_asked(&mut target, itt, 1, 3);
    // The status waits, and is not acknowledged (RFC 7143 section 7.9).
    assert_eq!(target.exp_stat_sn(), response.stat_sn);
    for n in 1..4 {
        assert!(target.events.is_empty());
        target.send_data(part(&target, itt, n));
    }
    assert_whole(&mut target, 4096);
    assert_eq!(target.exp_stat_sn(), response.stat_sn.next());
}

#[test]
fn a_damaged_status_with_data_is_asked_for_as_data_alone() {
    let mut target = ScriptedTarget::recovering();
    let (_, first) = target.read(1024);
    let (_, second) = target.read(0);
    let pdu = last(&mut target, first, 0);
    target.send_damaged_data(pdu);
    assert_asked(&mut target, first, 0, 1);
    let response = good(&mut target, second, 0);
    target.send(response.emit(), &[]);
    assert!(target.events.is_empty() && target.sent.is_empty(), "{:?} {:?}", target.events, target.sent);
    target.send_data(pdu);
    assert_whole(&mut target, 1024);
    assert_eq!(target.completed().0.user, 2);
}

#[test]
fn data_is_acknowledged_when_there_is_no_hole_before_it() {
    let mut target = ScriptedTarget::recovering();
    let (_, itt) = target.read(6144);
    let asks = |pdu: DataIn, ttt| DataIn { acknowledge: true, lun: LUN, ttt: TargetTransferTag(ttt), ..pdu };
    target.send_data(asks(part(&target, itt, 0), 70));
    assert_acknowledged(&mut target, 70, 1);
    target.send_damaged_data(asks(part(&target, itt, 1), 71));
    assert_asked(&mut target, itt, 1, 1);
    target.send_data(asks(part(&target, itt, 2), 72));
    target.send_damaged_data(part(&target, itt, 3));
    assert_asked(&mut target, itt, 3, 1);
    target.send_data(asks(part(&target, itt, 4), 74));
    assert!(target.sent.is_empty(), "{:?}", target.sent);
    target.send_data(asks(part(&target, itt, 1), 71));
    assert_acknowledged(&mut target, 72, 3);
    assert_acknowledged(&mut target, 71, 2);
    let end = last(&mut target, itt, 5);
    let end = asks(end, 75);
    target.send_data(end);
    assert!(target.sent.is_empty(), "{:?}", target.sent);
    target.send_data(part(&target, itt, 3));
    assert_acknowledged(&mut target, 74, 5);
    assert_acknowledged(&mut target, 75, 6);
    assert_whole(&mut target, 6144);
}

/// RFC 7143 section 7.8: a good status is discarded then, an unfortunate one stands.
#[test]
fn a_refused_snack_ends_its_command_with_a_check_condition() {
    let crc_error = [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x47, 0x05, 0, 0, 0, 0];
    let snack_rejected = [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x11, 0x13, 0, 0, 0, 0];
    for status_first in [true, false] {
        let mut target = ScriptedTarget::recovering();
        let (_, itt) = target.read(2048);
        target.send_data(part(&target, itt, 0));
        target.send_damaged_data(part(&target, itt, 1));
        let asked = assert_asked(&mut target, itt, 1, 1);
        let expected = if status_first {
            let response = good(&mut target, itt, 2);
            target.send(response.emit(), &[]);
            target.reject(RejectReason::SNACK_REJECT, asked.emit());
            crc_error
        } else {
            target.reject(RejectReason::SNACK_REJECT, asked.emit());
            assert!(target.events.is_empty());
            let response = ScsiResponse { status: 2, data_segment_len: 20, ..good(&mut target, itt, 2) };
            target.send(response.emit(), &[&[0, 18][..], &snack_rejected].concat());
            snack_rejected
        };
        let (_, response) = target.completed();
        assert_eq!((response.response, response.status, response.data_in_len), (0, 2, 1024));
        assert_eq!(response.sense, expected);
        assert_eq!(target.exp_stat_sn(), target.stat_sn);
    }
}

#[test]
fn a_refusal_that_comes_too_late_changes_nothing() {
    let mut target = ScriptedTarget::recovering();
    let (_, itt) = target.read(2048);
    target.send_damaged_data(part(&target, itt, 0));
    let asked = assert_asked(&mut target, itt, 0, 1);
    target.send_data(part(&target, itt, 0));
    target.reject(RejectReason::SNACK_REJECT, asked.emit());
    let last = last(&mut target, itt, 1);
    target.send_data(last);
    assert_whole(&mut target, 2048);
}

#[test]
fn data_that_does_not_come_is_asked_for_again_until_the_connection_is_given_up() {
    let mut target = ScriptedTarget::recovering();
    let (_, itt) = target.read(4096);
    target.send_data(part(&target, itt, 1));
    assert_asked(&mut target, itt, 0, 1);
    target.send_data(part(&target, itt, 3));
    assert_asked(&mut target, itt, 2, 1);
    for round in 0..6 {
        target.pass_in_company(Duration::from_secs(5));
        assert_asked(&mut target, itt, 0, 1);
        if round < 2 {
            assert_asked(&mut target, itt, 2, 1);
        }
        if round == 1 {
            // Something comes: the time allowed starts over.
            target.send_data(part(&target, itt, 2));
        }
    }
    target.pass_in_company(Duration::from_secs(5));
    assert_eq!(target.closed(), SessionError::Unrecovered("data"));
    assert_eq!(target.session.into_unfinished().len(), 1);
}

#[test]
fn an_aborted_command_is_not_asked_about_again() {
    let mut target = ScriptedTarget::recovering();
    let (_, itt) = target.read(4096);
    target.send_damaged_data(part(&target, itt, 0));
    assert_asked(&mut target, itt, 0, 1);
    let news = target.used().async_message(AsyncEvent::TASK_TERMINATION);
    let pdu = AsyncMessage { lun: LUN, ..news };
    target.send(pdu.emit(), &[]);
    assert!(matches!(target.event(), Event::Aborted(_)));
    target.sent.clear();
    target.pass(Duration::from_secs(20));
    let asks = |sent: &Sent| matches!(sent.pdu, InitiatorPdu::SnackRequest(_));
    assert!(!target.sent.iter().any(asks), "{:?}", target.sent);
}

fn data_out(target: &mut ScriptedTarget) -> (u32, u32, bool) {
    let sent = target.next();
    let InitiatorPdu::DataOut(pdu) = sent.pdu else { panic!("{sent:?}") };
    let from = pdu.buffer_offset as usize;
    assert_eq!(sent.data, pattern(from + sent.data.len())[from..]);
    (pdu.ttt.0, pdu.buffer_offset, pdu.final_)
}

#[test]
fn a_lost_r2t_is_asked_for_and_one_that_comes_twice_is_answered_once() {
    let mut target = ScriptedTarget::recovering();
    let (_, itt) = target.write(20_000);
    let first = target.r2t(itt, 0, 0, 8192);
    let second = target.r2t(itt, 1, 8192, 8192);
    let third = target.r2t(itt, 2, 16_384, 3616);
    target.send(first.emit(), &[]);
    assert_eq!(data_out(&mut target), (0x100, 0, true));
    target.send(third.emit(), &[]);
    assert_asked(&mut target, itt, 1, 1);
    assert_eq!(data_out(&mut target), (0x102, 16_384, true));
    for pdu in [second, second, first, third] {
        target.send(pdu.emit(), &[]);
    }
    assert_eq!(data_out(&mut target), (0x101, 8192, true));
    assert!(target.sent.is_empty(), "{:?}", target.sent);
    let response = good(&mut target, itt, 0);
    target.send(response.emit(), &[]);
    assert_eq!(target.completed().1.status, 0);
}

/// The target refuses when it has the data that the R2T asked for, as a later one has asked for it, too.
#[test]
fn a_refusal_to_send_an_r2t_again_ends_no_command() {
    for reads in [false, true] {
        let mut target = ScriptedTarget::recovering();
        let data_in = reads.then(|| target.pool.take(1024).unwrap());
        let command = Command { data_in, ..write(&target.pool, 1, 0, &pattern(1024)) };
        target.session.submit(command, target.now).unwrap();
        target.raw(&[]);
        let sent = target.next();
        let InitiatorPdu::ScsiCommand(pdu) = sent.pdu else { panic!("{sent:?}") };
        target.send(target.r2t(pdu.itt, 1, 0, 1024).emit(), &[]);
        let asked = target.snack_request();
        assert_eq!((asked.beg_run, asked.run_length), (0, 1));
        assert!(data_out(&mut target).2);
        target.reject(RejectReason::PROTOCOL_ERROR, asked.emit());
        if reads {
            target.send_data(target.data_in(pdu.itt, 2, 0, 1024));
        }
        let response = good(&mut target, pdu.itt, if reads { 3 } else { 0 });
        target.send(response.emit(), &[]);
        assert_eq!(target.completed().1.status, 0, "{reads}");
    }
}

#[test]
fn a_recovery_r2t_gets_the_same_bytes_again() {
    let mut target = ScriptedTarget::recovering();
    let (_, itt) = target.write(8192);
    for pdu in [target.r2t(itt, 0, 0, 8192), target.r2t(itt, 1, 4096, 1000), target.r2t(itt, 2, 0, 8192)] {
        target.send(pdu.emit(), &[]);
        assert_eq!(data_out(&mut target), (pdu.ttt.0, pdu.buffer_offset, true));
    }
    assert_eq!(target.session.recoveries().recovery_r2ts, 2);
    let response = good(&mut target, itt, 0);
    target.send(response.emit(), &[]);
    assert_eq!(target.completed().1.status, 0);
}

#[test]
fn what_stays_wrong_at_level_1() {
    type Lie = fn(&mut ScriptedTarget, InitiatorTaskTag);
    let reads: [(&str, Lie); 3] = [
        // The same bytes under another number.
        ("11.7.6", |target, itt| {
            target.send_data(target.data_in(itt, 0, 0, 1024));
            target.send_data(target.data_in(itt, 1, 512, 1024));
        }),
        ("11.7.6", |target, itt| target.send_data(target.data_in(itt, 1, 3072, 1025))),
        ("11.2.1.8", |target, _| {
            let status = Some(target.status(Residual::None));
            target.send_data(DataIn { status, ..target.data_in(InitiatorTaskTag(0x0009_0000), 0, 0, 0) });
        }),
    ];
    for (section, lie) in reads {
        let mut target = ScriptedTarget::recovering();
        let (_, itt) = target.read(4096);
        lie(&mut target, itt);
        target.sent.clear();
        target.broken(section);
    }
    for (section, wrong) in [
        ("11.8.4", R2t { desired_data_transfer_length: 4097, ..r2t() }),
        ("11.8.5", R2t { ttt: TargetTransferTag::RESERVED, ..r2t() }),
    ] {
        let mut target = ScriptedTarget::recovering();
        let (_, itt) = target.write(4096);
        target.send(R2t { itt, ..wrong_numbers(&target, wrong) }.emit(), &[]);
        target.broken(section);
    }
}

fn r2t() -> R2t {
    let r2t = Numbers::new(SerialNumber(0), SerialNumber(0)).r2t(InitiatorTaskTag(0), 0, 0, 4096);
    R2t { ttt: TargetTransferTag(5), ..r2t }
}

fn wrong_numbers(target: &ScriptedTarget, pdu: R2t) -> R2t {
    let usual = target.r2t(pdu.itt, 0, 0, 1);
    R2t { stat_sn: usual.stat_sn, exp_cmd_sn: usual.exp_cmd_sn, max_cmd_sn: usual.max_cmd_sn, ..pdu }
}
