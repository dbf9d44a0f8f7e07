//! Data-In PDUs and R2Ts that were lost on their way, at recovery level 1: they are asked for again, and no command ends
//! without them.

use std::time::Duration;

use lunette_pdu::{
    DataIn, InitiatorPdu, InitiatorTaskTag, LunField, R2t, RejectReason, Residual, ScsiResponse, SerialNumber,
    SnackRequest, SnackType, TargetTransferTag,
};
use lunette_session::iscsi_initiator::{Command, Event, Recoveries, SessionError};

use crate::harness::{LUN, Liar, Sent, pattern, write};

fn assert_asked(liar: &mut Liar, itt: InitiatorTaskTag, first: u32, len: u32) -> SnackRequest {
    let pdu = liar.snack_request();
    assert_eq!((pdu.snack_type, pdu.itt, pdu.ttt), (SnackType::DATA_R2T, itt, TargetTransferTag::RESERVED));
    assert_eq!((pdu.beg_run, pdu.run_length), (first, len));
    pdu
}

fn assert_acknowledged(liar: &mut Liar, ttt: u32, beg_run: u32) {
    let pdu = liar.snack_request();
    assert_eq!((pdu.snack_type, pdu.itt), (SnackType::DATA_ACK, InitiatorTaskTag::RESERVED));
    assert_eq!((pdu.lun, pdu.ttt, pdu.beg_run, pdu.run_length), (LUN, TargetTransferTag(ttt), beg_run, 0));
}

fn assert_whole(liar: &mut Liar, len: usize) {
    let (command, response) = liar.completed();
    assert_eq!((response.status, response.data_in_len), (0, len));
    assert_eq!(command.data_in.as_deref(), Some(&pattern(len)[..]));
}

/// The n-th kilobyte of a read.
fn part(liar: &Liar, itt: InitiatorTaskTag, n: u32) -> DataIn {
    DataIn { final_: false, ..liar.data_in(itt, n, n * 1024, 1024) }
}

/// The last part, with the status.
fn last(liar: &mut Liar, itt: InitiatorTaskTag, n: u32) -> DataIn {
    let status = Some(liar.status(Residual::None));
    DataIn { final_: true, status, ..part(liar, itt, n) }
}

fn good(liar: &mut Liar, itt: InitiatorTaskTag, exp_data_sn: u32) -> ScsiResponse {
    ScsiResponse { exp_data_sn, ..liar.response(itt) }
}

#[test]
fn damaged_data_is_asked_for_and_may_come_damaged_again() {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.read(4096);
    liar.send_data(part(&liar, itt, 0));
    for _ in 0..2 {
        liar.send_damaged_data(part(&liar, itt, 1));
        assert_asked(&mut liar, itt, 1, 1);
    }
    liar.send_data(part(&liar, itt, 2));
    let last = last(&mut liar, itt, 3);
    liar.send_data(last);
    assert!(liar.events.is_empty() && liar.sent.is_empty(), "{:?} {:?}", liar.events, liar.sent);
    liar.send_data(part(&liar, itt, 1));
    assert_whole(&mut liar, 4096);
    let counted = Recoveries { damaged_pdus: 2, data_snacks: 2, ..Recoveries::default() };
    assert_eq!(*liar.session.recoveries(), counted);
}

#[test]
fn a_run_that_is_missing_is_asked_for_once() {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.read(5120);
    liar.send_data(part(&liar, itt, 2));
    assert_asked(&mut liar, itt, 0, 2);
    let last = last(&mut liar, itt, 4);
    liar.send_data(last);
    assert_asked(&mut liar, itt, 3, 1);
    for n in [1, 3, 1, 0] {
        assert!(liar.events.is_empty());
        liar.send_data(part(&liar, itt, n));
    }
    assert_whole(&mut liar, 5120);
    // What comes twice, and even after the end, is discarded.
    liar.send_data(part(&liar, itt, 1));
    liar.send_data(last);
    assert!(liar.events.is_empty() && liar.sent.is_empty(), "{:?} {:?}", liar.events, liar.sent);
}

#[test]
fn the_data_of_a_bidirectional_command_is_missed_too() {
    let mut liar = Liar::recovering();
    let data_in = Some(liar.pool.take(1024).unwrap());
    let command = Command { data_in, ..write(&liar.pool, 1, 0, &pattern(1024)) };
    liar.session.submit(command, liar.now).unwrap();
    liar.raw(&[]);
    let sent = liar.next();
    let InitiatorPdu::ScsiCommand(pdu) = sent.pdu else { panic!("{sent:?}") };
    // R2Ts and Data-In share one numbering.
    liar.send(liar.r2t(pdu.itt, 0, 0, 1024).emit(), &[]);
    liar.next();
    let response = good(&mut liar, pdu.itt, 2);
    liar.send(response.emit(), &[]);
    assert_asked(&mut liar, pdu.itt, 1, 1);
    assert!(liar.events.is_empty());
    liar.send_data(liar.data_in(pdu.itt, 1, 0, 1024));
    assert_whole(&mut liar, 1024);
}

#[test]
fn what_comes_twice_overwrites_nothing() {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.read(2048);
    liar.send_data(part(&liar, itt, 0));
    liar.send(part(&liar, itt, 0).emit(), &[0xee; 1024]);
    let last = last(&mut liar, itt, 1);
    liar.send_data(last);
    assert_whole(&mut liar, 2048);
}

#[test]
fn a_response_says_how_much_data_there_was() {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.read(4096);
    liar.send_data(part(&liar, itt, 0));
    let response = good(&mut liar, itt, 4);
    liar.send(response.emit(), &[]);
    assert_asked(&mut liar, itt, 1, 3);
    // The status waits, and is not acknowledged (RFC 7143 section 7.9).
    assert_eq!(liar.exp_stat_sn(), response.stat_sn);
    for n in 1..4 {
        assert!(liar.events.is_empty());
        liar.send_data(part(&liar, itt, n));
    }
    assert_whole(&mut liar, 4096);
    assert_eq!(liar.exp_stat_sn(), response.stat_sn.next());
}

#[test]
fn a_damaged_status_with_data_is_asked_for_as_data_alone() {
    let mut liar = Liar::recovering();
    let (_, first) = liar.read(1024);
    let (_, second) = liar.read(0);
    let pdu = last(&mut liar, first, 0);
    liar.send_damaged_data(pdu);
    assert_asked(&mut liar, first, 0, 1);
    let response = good(&mut liar, second, 0);
    liar.send(response.emit(), &[]);
    assert!(liar.events.is_empty() && liar.sent.is_empty(), "{:?} {:?}", liar.events, liar.sent);
    liar.send_data(pdu);
    assert_whole(&mut liar, 1024);
    assert_eq!(liar.completed().0.user, 2);
}

#[test]
fn data_is_acknowledged_when_there_is_no_hole_before_it() {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.read(6144);
    let asks = |pdu: DataIn, ttt| DataIn { acknowledge: true, lun: LUN, ttt: TargetTransferTag(ttt), ..pdu };
    liar.send_data(asks(part(&liar, itt, 0), 70));
    assert_acknowledged(&mut liar, 70, 1);
    liar.send_damaged_data(asks(part(&liar, itt, 1), 71));
    assert_asked(&mut liar, itt, 1, 1);
    liar.send_data(asks(part(&liar, itt, 2), 72));
    liar.send_damaged_data(part(&liar, itt, 3));
    assert_asked(&mut liar, itt, 3, 1);
    liar.send_data(asks(part(&liar, itt, 4), 74));
    assert!(liar.sent.is_empty(), "{:?}", liar.sent);
    liar.send_data(asks(part(&liar, itt, 1), 71));
    assert_acknowledged(&mut liar, 72, 3);
    assert_acknowledged(&mut liar, 71, 2);
    let end = last(&mut liar, itt, 5);
    let end = asks(end, 75);
    liar.send_data(end);
    assert!(liar.sent.is_empty(), "{:?}", liar.sent);
    liar.send_data(part(&liar, itt, 3));
    assert_acknowledged(&mut liar, 74, 5);
    assert_acknowledged(&mut liar, 75, 6);
    assert_whole(&mut liar, 6144);
}

/// RFC 7143 section 7.8: a good status is discarded then, an unfortunate one stands.
#[test]
fn a_refused_snack_ends_its_command_with_a_check_condition() {
    let crc_error = [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x47, 0x05, 0, 0, 0, 0];
    let snack_rejected = [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x11, 0x13, 0, 0, 0, 0];
    for status_first in [true, false] {
        let mut liar = Liar::recovering();
        let (_, itt) = liar.read(2048);
        liar.send_data(part(&liar, itt, 0));
        liar.send_damaged_data(part(&liar, itt, 1));
        let asked = assert_asked(&mut liar, itt, 1, 1);
        let expected = if status_first {
            let response = good(&mut liar, itt, 2);
            liar.send(response.emit(), &[]);
            liar.reject(RejectReason::SNACK_REJECT, asked.emit());
            crc_error
        } else {
            liar.reject(RejectReason::SNACK_REJECT, asked.emit());
            assert!(liar.events.is_empty());
            let response = ScsiResponse { status: 2, data_segment_len: 20, ..good(&mut liar, itt, 2) };
            liar.send(response.emit(), &[&[0, 18][..], &snack_rejected].concat());
            snack_rejected
        };
        let (_, response) = liar.completed();
        assert_eq!((response.response, response.status, response.data_in_len), (0, 2, 1024));
        assert_eq!(response.sense, expected);
        assert_eq!(liar.exp_stat_sn(), liar.stat_sn);
    }
}

#[test]
fn a_refusal_that_comes_too_late_changes_nothing() {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.read(2048);
    liar.send_damaged_data(part(&liar, itt, 0));
    let asked = assert_asked(&mut liar, itt, 0, 1);
    liar.send_data(part(&liar, itt, 0));
    liar.reject(RejectReason::SNACK_REJECT, asked.emit());
    let last = last(&mut liar, itt, 1);
    liar.send_data(last);
    assert_whole(&mut liar, 2048);
}

#[test]
fn data_that_does_not_come_is_asked_for_again_until_the_connection_is_given_up() {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.read(4096);
    liar.send_data(part(&liar, itt, 1));
    assert_asked(&mut liar, itt, 0, 1);
    liar.send_data(part(&liar, itt, 3));
    assert_asked(&mut liar, itt, 2, 1);
    for round in 0..6 {
        liar.pass_in_company(Duration::from_secs(5));
        assert_asked(&mut liar, itt, 0, 1);
        if round < 2 {
            assert_asked(&mut liar, itt, 2, 1);
        }
        if round == 1 {
            // Something comes: the time allowed starts over.
            liar.send_data(part(&liar, itt, 2));
        }
    }
    liar.pass_in_company(Duration::from_secs(5));
    assert_eq!(liar.closed(), SessionError::Unrecovered("data"));
    assert_eq!(liar.session.into_unfinished().len(), 1);
}

#[test]
fn an_aborted_command_is_not_asked_about_again() {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.read(4096);
    liar.send_damaged_data(part(&liar, itt, 0));
    assert_asked(&mut liar, itt, 0, 1);
    let (gone, news) = (liar.next_stat_sn(), lunette_pdu::AsyncEvent::TASK_TERMINATION);
    let pdu = lunette_pdu::AsyncMessage {
        lun: LUN,
        stat_sn: gone,
        exp_cmd_sn: liar.exp_cmd_sn,
        max_cmd_sn: liar.max_cmd_sn(),
        event: news,
        vcode: 0,
        parameter1: 0,
        parameter2: 0,
        parameter3: 0,
        data_segment_len: 0,
    };
    liar.send(pdu.emit(), &[]);
    assert!(matches!(liar.event(), Event::Aborted(_)));
    liar.sent.clear();
    liar.pass(Duration::from_secs(20));
    let asks = |sent: &Sent| matches!(sent.pdu, InitiatorPdu::SnackRequest(_));
    assert!(!liar.sent.iter().any(asks), "{:?}", liar.sent);
}

fn data_out(liar: &mut Liar) -> (u32, u32, bool) {
    let sent = liar.next();
    let InitiatorPdu::DataOut(pdu) = sent.pdu else { panic!("{sent:?}") };
    let from = pdu.buffer_offset as usize;
    assert_eq!(sent.data, pattern(from + sent.data.len())[from..]);
    (pdu.ttt.0, pdu.buffer_offset, pdu.final_)
}

#[test]
fn a_lost_r2t_is_asked_for_and_one_that_comes_twice_is_answered_once() {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.write(20_000);
    let first = liar.r2t(itt, 0, 0, 8192);
    let second = liar.r2t(itt, 1, 8192, 8192);
    let third = liar.r2t(itt, 2, 16_384, 3616);
    liar.send(first.emit(), &[]);
    assert_eq!(data_out(&mut liar), (0x100, 0, true));
    liar.send(third.emit(), &[]);
    assert_asked(&mut liar, itt, 1, 1);
    assert_eq!(data_out(&mut liar), (0x102, 16_384, true));
    for pdu in [second, second, first, third] {
        liar.send(pdu.emit(), &[]);
    }
    assert_eq!(data_out(&mut liar), (0x101, 8192, true));
    assert!(liar.sent.is_empty(), "{:?}", liar.sent);
    let response = good(&mut liar, itt, 0);
    liar.send(response.emit(), &[]);
    assert_eq!(liar.completed().1.status, 0);
}

/// The target refuses when it has the data that the R2T asked for, as a later one has asked for it, too.
#[test]
fn a_refusal_to_send_an_r2t_again_ends_no_command() {
    for reads in [false, true] {
        let mut liar = Liar::recovering();
        let data_in = reads.then(|| liar.pool.take(1024).unwrap());
        let command = Command { data_in, ..write(&liar.pool, 1, 0, &pattern(1024)) };
        liar.session.submit(command, liar.now).unwrap();
        liar.raw(&[]);
        let sent = liar.next();
        let InitiatorPdu::ScsiCommand(pdu) = sent.pdu else { panic!("{sent:?}") };
        liar.send(liar.r2t(pdu.itt, 1, 0, 1024).emit(), &[]);
        let asked = liar.snack_request();
        assert_eq!((asked.beg_run, asked.run_length), (0, 1));
        assert!(data_out(&mut liar).2);
        liar.reject(RejectReason::PROTOCOL_ERROR, asked.emit());
        if reads {
            liar.send_data(liar.data_in(pdu.itt, 2, 0, 1024));
        }
        let response = good(&mut liar, pdu.itt, if reads { 3 } else { 0 });
        liar.send(response.emit(), &[]);
        assert_eq!(liar.completed().1.status, 0, "{reads}");
    }
}

#[test]
fn a_recovery_r2t_gets_the_same_bytes_again() {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.write(8192);
    for pdu in [liar.r2t(itt, 0, 0, 8192), liar.r2t(itt, 1, 4096, 1000), liar.r2t(itt, 2, 0, 8192)] {
        liar.send(pdu.emit(), &[]);
        assert_eq!(data_out(&mut liar), (pdu.ttt.0, pdu.buffer_offset, true));
    }
    assert_eq!(liar.session.recoveries().recovery_r2ts, 2);
    let response = good(&mut liar, itt, 0);
    liar.send(response.emit(), &[]);
    assert_eq!(liar.completed().1.status, 0);
}

#[test]
fn what_stays_wrong_at_level_1() {
    type Lie = fn(&mut Liar, InitiatorTaskTag);
    let reads: [(&str, Lie); 3] = [
        // The same bytes under another number.
        ("11.7.6", |liar, itt| {
            liar.send_data(liar.data_in(itt, 0, 0, 1024));
            liar.send_data(liar.data_in(itt, 1, 512, 1024));
        }),
        ("11.7.6", |liar, itt| liar.send_data(liar.data_in(itt, 1, 3072, 1025))),
        ("11.2.1.8", |liar, _| {
            let status = Some(liar.status(Residual::None));
            liar.send_data(DataIn { status, ..liar.data_in(InitiatorTaskTag(0x0009_0000), 0, 0, 0) });
        }),
    ];
    for (section, lie) in reads {
        let mut liar = Liar::recovering();
        let (_, itt) = liar.read(4096);
        lie(&mut liar, itt);
        liar.sent.clear();
        liar.broken(section);
    }
    for (section, wrong) in [
        ("11.8.4", R2t { desired_data_transfer_length: 4097, ..r2t() }),
        ("11.8.5", R2t { ttt: TargetTransferTag::RESERVED, ..r2t() }),
    ] {
        let mut liar = Liar::recovering();
        let (_, itt) = liar.write(4096);
        liar.send(R2t { itt, ..wrong_numbers(&liar, wrong) }.emit(), &[]);
        liar.broken(section);
    }
}

fn r2t() -> R2t {
    R2t {
        lun: LunField::default(),
        itt: InitiatorTaskTag(0),
        ttt: TargetTransferTag(5),
        stat_sn: SerialNumber(0),
        exp_cmd_sn: SerialNumber(0),
        max_cmd_sn: SerialNumber(0),
        r2t_sn: 0,
        buffer_offset: 0,
        desired_data_transfer_length: 4096,
    }
}

fn wrong_numbers(liar: &Liar, pdu: R2t) -> R2t {
    let usual = liar.r2t(pdu.itt, 0, 0, 1);
    R2t { stat_sn: usual.stat_sn, exp_cmd_sn: usual.exp_cmd_sn, max_cmd_sn: usual.max_cmd_sn, ..pdu }
}
