//! Data-In that was lost before our MaxRecvDataSegmentLength changed: it is asked for by R-Data SNACKs (RFC 7143 sections 11.4.4
//! and 11.16.3).

use std::time::Duration;

use lunette_pdu::{
    DataIn, InitiatorPdu, InitiatorTaskTag, LunField, RejectReason, Residual, ScsiResponse, ScsiResponseCode,
    SerialNumber, SnackRequest, SnackType, TargetTransferTag, TextResponse,
};
use lunette_session::iscsi_initiator::{Command, Event, SessionError};
use lunette_session::limits::MAX_UNANSWERED_REQUESTS;

use crate::harness::{LUN, Liar, pattern, write};

const PATIENCE: Duration = Duration::from_secs(5);

/// Declares another length. Gives the answer of a target that takes it.
fn ask_to_declare(liar: &mut Liar, len: u32) -> TextResponse {
    assert!(liar.session.declare(9, liar.cid, len));
    liar.raw(&[]);
    let sent = liar.next();
    let InitiatorPdu::TextRequest(request) = sent.pdu else { panic!("{sent:?}") };
    TextResponse {
        final_: true,
        continue_: false,
        lun: LunField::default(),
        itt: request.itt,
        ttt: TargetTransferTag::RESERVED,
        stat_sn: liar.next_stat_sn(),
        exp_cmd_sn: liar.exp_cmd_sn,
        max_cmd_sn: liar.max_cmd_sn(),
        data_segment_len: 0,
    }
}

/// Declares another length, which the target takes.
fn declare(liar: &mut Liar, len: u32) {
    let answer = ask_to_declare(liar, len);
    liar.send(answer.emit(), &[]);
    assert!(matches!(liar.event(), Event::Text { user: 9, .. }));
}

fn assert_asked_anew(liar: &mut Liar, itt: InitiatorTaskTag, snack_tag: u32) {
    let sent = liar.next();
    let InitiatorPdu::SnackRequest(pdu) = sent.pdu else { panic!("{sent:?}") };
    assert_eq!((pdu.snack_type, pdu.itt, pdu.ttt.0), (SnackType::R_DATA, itt, snack_tag));
    assert_eq!((pdu.beg_run, pdu.run_length), (0, 0));
}

fn snack(liar: &mut Liar) -> SnackRequest {
    let sent = liar.next();
    let InitiatorPdu::SnackRequest(pdu) = sent.pdu else { panic!("{sent:?}") };
    pdu
}

/// The `data_sn`-th of a read in pieces of `cut`.
fn piece(liar: &Liar, itt: InitiatorTaskTag, data_sn: u32, cut: u32) -> DataIn {
    DataIn { final_: false, ..liar.data_in(itt, data_sn, data_sn * cut, cut as usize) }
}

/// The last of four kilobytes, with the status.
fn last(liar: &mut Liar, itt: InitiatorTaskTag) -> DataIn {
    let status = Some(liar.status(Residual::None));
    DataIn { final_: true, status, ..piece(liar, itt, 3, 1024) }
}

/// Four kilobytes in pieces of `cut`, all but some.
fn run(liar: &mut Liar, itt: InitiatorTaskTag, cut: u32, lost: &[u32]) {
    let end = 4096 / cut;
    for data_sn in (0..end).filter(|data_sn| !lost.contains(data_sn)) {
        let final_ = data_sn + 1 == end;
        liar.send_data(DataIn { final_, ..piece(liar, itt, data_sn, cut) });
    }
}

fn tagged(liar: &Liar, itt: InitiatorTaskTag, stat_sn: SerialNumber, exp_data_sn: u32, snack_tag: u32) -> ScsiResponse {
    ScsiResponse {
        response: ScsiResponseCode::COMMAND_COMPLETED,
        status: 0,
        status_qualifier: 0,
        itt,
        snack_tag,
        stat_sn,
        exp_cmd_sn: liar.exp_cmd_sn,
        max_cmd_sn: liar.max_cmd_sn(),
        exp_data_sn,
        residual: Residual::None,
        bidi_read_residual: Residual::None,
        data_segment_len: 0,
    }
}

fn assert_whole(liar: &mut Liar) {
    let (command, response) = liar.completed();
    assert_eq!((response.status, response.data_in_len), (0, 4096));
    assert_eq!(command.data_in.as_deref(), Some(&pattern(4096)[..]));
}

fn assert_nothing(liar: &Liar) {
    assert!(liar.events.is_empty() && liar.sent.is_empty(), "{:?} {:?}", liar.events, liar.sent);
}

/// A read of four kilobytes; its second piece is lost, and another length holds before that shows. Gives the number of its
/// status too, which is said with the last piece.
fn lost_before(len: u32) -> (Liar, InitiatorTaskTag, SerialNumber) {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.read(4096);
    liar.send_data(piece(&liar, itt, 0, 1024));
    declare(&mut liar, len);
    let stat_sn = liar.stat_sn;
    let last = last(&mut liar, itt);
    liar.send_data(piece(&liar, itt, 2, 1024));
    assert_asked_anew(&mut liar, itt, 1);
    // It was on its way, and what it lacks was asked for.
    liar.send_data(last);
    assert_nothing(&liar);
    (liar, itt, stat_sn)
}

#[test]
fn all_of_it_comes_again_cut_anew() {
    for cut in [512, 2048, 4096] {
        let (mut liar, itt, stat_sn) = lost_before(cut.max(1024));
        run(&mut liar, itt, cut, &[]);
        assert_nothing(&liar);
        liar.send(tagged(&liar, itt, stat_sn, 4096 / cut, 1).emit(), &[]);
        assert_whole(&mut liar);
        assert_nothing(&liar);
        assert_eq!(liar.session.recoveries().data_snacks, 1);
    }
}

#[test]
fn a_status_with_another_tag_ends_nothing() {
    let (mut liar, itt, stat_sn) = lost_before(1024);
    run(&mut liar, itt, 512, &[]);
    for wrong in [0, 2] {
        liar.send(tagged(&liar, itt, stat_sn, 8, wrong).emit(), &[]);
        assert_nothing(&liar);
    }
    // Its own was lost. The number is asked for.
    liar.pass_in_company(PATIENCE);
    let asked = snack(&mut liar);
    assert_eq!((asked.snack_type, asked.beg_run, asked.exp_stat_sn), (SnackType::STATUS, stat_sn.0, stat_sn));
    liar.send(tagged(&liar, itt, stat_sn, 8, 1).emit(), &[]);
    assert_whole(&mut liar);
}

#[test]
fn what_the_new_run_lacks_is_asked_for_as_usual() {
    let (mut liar, itt, stat_sn) = lost_before(1024);
    let asked = |liar: &mut Liar| {
        let pdu = snack(liar);
        (pdu.snack_type, pdu.itt, pdu.beg_run, pdu.run_length)
    };
    run(&mut liar, itt, 512, &[0, 5, 7]);
    assert_eq!(asked(&mut liar), (SnackType::DATA_R2T, itt, 0, 1));
    assert_eq!(asked(&mut liar), (SnackType::DATA_R2T, itt, 5, 1));
    liar.send(tagged(&liar, itt, stat_sn, 8, 1).emit(), &[]);
    assert_eq!(asked(&mut liar), (SnackType::DATA_R2T, itt, 7, 1));
    liar.send_damaged_data(piece(&liar, itt, 5, 512));
    assert_eq!(asked(&mut liar), (SnackType::DATA_R2T, itt, 5, 1));
    for data_sn in [0, 5, 7] {
        assert_nothing(&liar);
        liar.send_data(DataIn { final_: data_sn == 7, ..piece(&liar, itt, data_sn, 512) });
    }
    assert_whole(&mut liar);
    assert_nothing(&liar);
}

#[test]
fn copies_of_the_new_run_do_not_make_more_of_themselves() {
    let (mut liar, itt, stat_sn) = lost_before(1024);
    run(&mut liar, itt, 512, &[]);
    // It may be a copy, or another beginning.
    liar.send_data(piece(&liar, itt, 5, 512));
    liar.send(tagged(&liar, itt, stat_sn, 8, 1).emit(), &[]);
    liar.send_damaged_data(piece(&liar, itt, 3, 512));
    assert_nothing(&liar);
    liar.pass_in_company(PATIENCE);
    for (beg_run, run_length) in [(0, 5), (6, 2)] {
        let asked = snack(&mut liar);
        assert_eq!((asked.snack_type, asked.beg_run, asked.run_length), (SnackType::DATA_R2T, beg_run, run_length));
    }
    for data_sn in [0, 1, 2, 3, 4, 6, 7] {
        assert_nothing(&liar);
        liar.send_data(DataIn { final_: data_sn == 7, ..piece(&liar, itt, data_sn, 512) });
    }
    assert_whole(&mut liar);
    assert_nothing(&liar);
}

#[test]
fn a_copy_of_the_old_run_does_not_stand_for_data_of_the_new_one() {
    let asked = |liar: &mut Liar| {
        let pdu = snack(liar);
        (pdu.snack_type, pdu.beg_run, pdu.run_length)
    };
    for target_is_wrong in [false, true] {
        let mut liar = Liar::recovering();
        let (_, itt) = liar.read(4096);
        liar.send_data(piece(&liar, itt, 2, 1024));
        assert_eq!(asked(&mut liar), (SnackType::DATA_R2T, 0, 2));
        declare(&mut liar, 2048);
        let stat_sn = liar.stat_sn;
        let last = last(&mut liar, itt);
        liar.send_damaged_data(last);
        assert_asked_anew(&mut liar, itt, 1);
        // What was asked for before. The other half of it is lost again, and so is the beginning of the new run.
        liar.send_data(piece(&liar, itt, 0, 1024));
        run(&mut liar, itt, 2048, &[0]);
        liar.send(tagged(&liar, itt, stat_sn, 2, 1).emit(), &[]);
        assert_eq!(asked(&mut liar), (SnackType::DATA_R2T, 0, 2));
        assert_nothing(&liar);
        if target_is_wrong {
            liar.send_data(piece(&liar, itt, 0, 1024));
        } else {
            liar.send_data(piece(&liar, itt, 0, 2048));
        }
        assert_nothing(&liar);
        liar.send_data(piece(&liar, itt, 1, 2048));
        if target_is_wrong {
            assert!(matches!(liar.closed(), SessionError::Protocol { .. }), "it is not asked for ever");
        } else {
            assert_whole(&mut liar);
        }
        assert_nothing(&liar);
    }
}

#[test]
fn a_status_that_waits_for_old_data_is_not_the_last_one() {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.read(4096);
    liar.send_data(piece(&liar, itt, 0, 1024));
    let declared = ask_to_declare(&mut liar, 1024);
    liar.send_data(piece(&liar, itt, 2, 1024));
    assert_eq!(snack(&mut liar).snack_type, SnackType::DATA_R2T);
    // The declaration is answered before the status, and that answer is lost on its way.
    let stat_sn = liar.stat_sn;
    let last = last(&mut liar, itt);
    liar.send_data(last);
    assert_eq!(snack(&mut liar).beg_run, declared.stat_sn.0);
    liar.send(declared.emit(), &[]);
    assert!(matches!(liar.event(), Event::Text { user: 9, .. }));
    assert_nothing(&liar);
    liar.pass_in_company(PATIENCE);
    assert_asked_anew(&mut liar, itt, 1);
    run(&mut liar, itt, 512, &[]);
    assert_nothing(&liar);
    liar.send(tagged(&liar, itt, stat_sn, 8, 1).emit(), &[]);
    assert_whole(&mut liar);
}

#[test]
fn data_that_was_acknowledged_does_not_come_again() {
    let mut liar = Liar::recovering();
    let (_, itt) = liar.read(4096);
    for data_sn in 0..2 {
        let (acknowledge, ttt) = (data_sn == 1, TargetTransferTag(7));
        liar.send_data(DataIn { acknowledge, ttt, lun: LUN, ..piece(&liar, itt, data_sn, 1024) });
    }
    assert_eq!(snack(&mut liar).beg_run, 2);
    declare(&mut liar, 512);
    let stat_sn = liar.next_stat_sn();
    liar.send(tagged(&liar, itt, stat_sn, 4, 0).emit(), &[]);
    assert_asked_anew(&mut liar, itt, 1);
    // Numbers go on where the acknowledgement ended.
    for n in 0..4 {
        let pdu = liar.data_in(itt, 2 + n, 2048 + n * 512, 512);
        liar.send_data(DataIn { final_: n == 3, ..pdu });
    }
    liar.send(tagged(&liar, itt, stat_sn, 6, 1).emit(), &[]);
    assert_whole(&mut liar);
    assert_nothing(&liar);
}

#[test]
fn the_acknowledgement_of_new_data_has_new_numbers() {
    let (mut liar, itt, stat_sn) = lost_before(1024);
    for data_sn in 0..8 {
        let (acknowledge, ttt, final_) = (data_sn == 5, TargetTransferTag(7), data_sn == 7);
        liar.send_data(DataIn { acknowledge, ttt, final_, lun: LUN, ..piece(&liar, itt, data_sn, 512) });
    }
    let ack = snack(&mut liar);
    assert_eq!((ack.snack_type, ack.beg_run), (SnackType::DATA_ACK, 6));
    liar.send(tagged(&liar, itt, stat_sn, 8, 1).emit(), &[]);
    assert_whole(&mut liar);
}

#[test]
fn a_target_that_refuses_ends_the_command() {
    let (mut liar, itt, stat_sn) = lost_before(1024);
    let refused = SnackRequest {
        snack_type: SnackType::R_DATA,
        lun: LunField::default(),
        itt,
        ttt: TargetTransferTag(1),
        exp_stat_sn: stat_sn,
        beg_run: 0,
        run_length: 0,
    };
    liar.reject(RejectReason::SNACK_REJECT, refused.emit());
    assert_nothing(&liar);
    liar.send(tagged(&liar, itt, stat_sn, 4, 0).emit(), &[]);
    let (_, response) = liar.completed();
    assert_eq!((response.status, response.sense[2]), (0x02, 0x0b));
}

#[test]
fn a_target_that_does_not_answer_is_asked_as_often_as_the_limit_says() {
    let (mut liar, itt, stat_sn) = lost_before(1024);
    // The status is here in vain: it has the old tag.
    for n in 2..2 + MAX_UNANSWERED_REQUESTS {
        liar.pass_in_company(PATIENCE);
        let asked = snack(&mut liar);
        assert_eq!((asked.snack_type, asked.beg_run), (SnackType::STATUS, stat_sn.0));
        assert_asked_anew(&mut liar, itt, n);
        assert_nothing(&liar);
    }
    liar.pass_in_company(PATIENCE);
    assert!(matches!(liar.closed(), SessionError::Unrecovered(_)));
}

#[test]
fn commands_after_the_change_are_asked_for_as_before() {
    let mut liar = Liar::recovering();
    declare(&mut liar, 2048);
    let (_, itt) = liar.read(4096);
    liar.send_data(piece(&liar, itt, 1, 2048));
    let asked = snack(&mut liar);
    assert_eq!((asked.snack_type, asked.beg_run, asked.run_length), (SnackType::DATA_R2T, 0, 1));
}

#[test]
fn r2ts_are_not_cut() {
    let mut liar = Liar::recovering();
    let data_in = Some(liar.pool.take(4096).unwrap());
    let command = Command { data_in, ..write(&liar.pool, 1, 0, &pattern(2048)) };
    liar.session.submit(command, liar.now).unwrap();
    liar.raw(&[]);
    let sent = liar.next();
    let InitiatorPdu::ScsiCommand(pdu) = sent.pdu else { panic!("{sent:?}") };
    let itt = pdu.itt;
    declare(&mut liar, 512);
    liar.send(liar.r2t(itt, 1, 1024, 1024).emit(), &[]);
    let asked = snack(&mut liar);
    assert_eq!((asked.snack_type, asked.beg_run, asked.run_length), (SnackType::DATA_R2T, 0, 1));
    liar.send(liar.r2t(itt, 0, 0, 1024).emit(), &[]);
    liar.sent.clear();
    // Now only data can be missing. Its numbers follow those of the R2Ts.
    let stat_sn = liar.next_stat_sn();
    liar.send(tagged(&liar, itt, stat_sn, 6, 0).emit(), &[]);
    assert_asked_anew(&mut liar, itt, 1);
    for n in 0..8 {
        let pdu = liar.data_in(itt, 2 + n, n * 512, 512);
        liar.send_data(DataIn { final_: n == 7, ..pdu });
    }
    liar.send(tagged(&liar, itt, stat_sn, 10, 1).emit(), &[]);
    assert_whole(&mut liar);
    assert_nothing(&liar);
}
