//! Answers: Data-In, status, sense, residuals (RFC 7143 sections 11.4 and 11.7). The harness checks DataSN, offsets,
//! bursts and ExpDataSN of every answer.

use lunette_pdu::{Ahs, Residual, ScsiCommand, TargetPdu, sense::split_sense};
use lunette_session::iscsi_target::Response;

use crate::harness::{Peer, Setup, command, pattern, read, write};

const BUSY: u8 = 8;

/// Reads `announced` bytes of a device that has `available`.
fn run(peer: &mut Peer, announced: u32, available: usize, status: u8) {
    peer.command(read(1, announced), &[]);
    let task = peer.driver.commands.last().unwrap().task;
    let response = Response { status, ..peer.driver.read_response(available) };
    peer.driver.complete(task, response);
}

#[test]
fn data_is_cut_to_pdus_and_bursts() {
    for limit in ["512", "700", "4096", "5000", "262144"] {
        for burst in ["512", "1000", "4096", "10000"] {
            for (len, lent) in
                [1, 511, 512, 513, 1000, 4096, 8192, 9999, 20_001].map(|len| [(len, false), (len, true)]).concat()
            {
                let setup = Setup::keys(&[("MaxRecvDataSegmentLength", limit), ("MaxBurstLength", burst)]);
                let mut peer = Peer::logged_in(setup);
                peer.out_piece = 61;
                peer.driver.lends.set(lent);
                peer.command(read(1, len as u32), &[]);
                let pdus = peer.rest();
                let (limit, burst): (usize, usize) = (limit.parse().unwrap(), burst.parse().unwrap());
                let mut bytes = Vec::new();
                let last = pdus.len() - 1;
                for (index, got) in pdus.into_iter().enumerate() {
                    let TargetPdu::DataIn(pdu) = got.pdu else { panic!("{got:?}") };
                    bytes.extend(got.data);
                    assert_eq!(pdu.final_, index == last || bytes.len() % burst == 0, "F bit at {}", bytes.len());
                    assert_eq!(pdu.status.is_some(), index == last);
                    if let Some(status) = pdu.status {
                        assert_eq!((status.status, status.residual), (0, Residual::None));
                    }
                }
                assert_eq!(bytes, pattern(len));
                let bursts = len.div_ceil(burst);
                assert!(last < bursts * burst.div_ceil(limit), "no more PDUs than needed");
            }
        }
    }
}

#[test]
fn residuals_of_reads() {
    for (announced, available, sent, residual) in [
        (512, 512, 512, Residual::None),
        (512, 100, 100, Residual::Underflow(412)),
        (512, 0, 0, Residual::Underflow(512)),
        (512, 600, 512, Residual::Overflow(88)),
        (0, 600, 0, Residual::Overflow(600)),
    ] {
        let mut peer = Peer::logged_in(Setup::default()).manual();
        run(&mut peer, announced, available, 0);
        if sent == 0 {
            assert_eq!(peer.scsi_response().0.residual, residual);
        } else {
            let (pdu, data) = peer.data_in();
            assert_eq!(data, pattern(available)[..sent]);
            assert_eq!(pdu.status.unwrap().residual, residual, "{announced} {available}");
        }
        peer.silence();
    }
}

#[test]
fn residuals_of_writes() {
    for (announced, wanted, status, residual) in [
        (512, 512, 0, Residual::None),
        (512, 100, 0, Residual::Underflow(412)),
        (512, 0, BUSY, Residual::Underflow(512)),
        (512, 4096, 0, Residual::Overflow(3584)),
        (0, 4096, 0, Residual::Overflow(4096)),
        (512, u64::MAX, 0, Residual::Overflow(u32::MAX)),
        (512, u64::from(u32::MAX) + 100, 0, Residual::Overflow(u32::MAX - 412)),
    ] {
        let mut peer = Peer::logged_in(Setup::default()).manual();
        peer.command(write(1, announced), &[]);
        let task = peer.driver.commands[0].task;
        let response = Response { status, data_out_transfer_len: wanted, ..Response::default() };
        peer.driver.complete(task, response);
        let (pdu, _) = peer.scsi_response();
        assert_eq!((pdu.status, pdu.residual), (status, residual), "{announced} {wanted}");
    }
}

#[test]
fn a_status_that_is_not_good_has_its_own_pdu() {
    let mut peer = Peer::logged_in(Setup::keys(&[("MaxRecvDataSegmentLength", "512")])).manual();
    run(&mut peer, 2000, 1100, BUSY);
    for len in [512, 512, 76] {
        let (pdu, data) = peer.data_in();
        assert_eq!((pdu.status, data.len(), pdu.final_), (None, len, len == 76));
    }
    let (pdu, data) = peer.scsi_response();
    assert_eq!((pdu.status, pdu.residual, pdu.exp_data_sn), (BUSY, Residual::Underflow(900), 3));
    assert!(data.is_empty());
}

#[test]
fn sense_data_follows_its_length() {
    for len in [1, 18, 252] {
        let mut peer = Peer::logged_in(Setup::default()).manual();
        peer.command(command(1), &[]);
        let task = peer.driver.commands[0].task;
        let response = Response { status: 2, sense: pattern(len), ..Response::default() };
        peer.driver.complete(task, response);
        let (_, data) = peer.scsi_response();
        assert_eq!(split_sense(&data), Ok((&pattern(len)[..], &[][..])));
    }
}

#[test]
fn sense_data_is_no_longer_than_a_segment() {
    let mut peer = Peer::logged_in(Setup::keys(&[("MaxRecvDataSegmentLength", "512")])).manual();
    peer.command(command(1), &[]);
    let task = peer.driver.commands[0].task;
    let response = Response { status: 2, sense: pattern(70_000), ..Response::default() };
    peer.driver.complete(task, response);
    assert_eq!(split_sense(&peer.scsi_response().1), Ok((&pattern(510)[..], &[][..])));
}

#[test]
fn bidirectional_commands_count_r2ts_and_data_in_together() {
    let mut ahs = [0; 8];
    Ahs::BidiReadLength(3000).emit(&mut ahs).unwrap();
    let keys = &[("MaxRecvDataSegmentLength", "1024"), ("ImmediateData", "No"), ("MaxBurstLength", "4096")];
    let mut peer = Peer::logged_in(Setup::keys(keys)).manual();
    let request = ScsiCommand { read: true, cmd_sn: peer.cmd_sn, ..write(1, 10_000) };
    peer.cmd_sn = peer.cmd_sn.next();
    peer.command_numbered(request, &ahs, &[]);
    let got = peer.driver.commands[0].clone();
    assert_eq!((got.data_out_len, got.data_in_len), (10_000, 3000));
    peer.driver.want_data(got.task, 10_000);
    for _ in 0..3 {
        let (r2t, _) = peer.r2t();
        peer.answer(&r2t, &pattern(10_000), 8192);
    }
    assert_eq!(peer.driver.data_out[0].1, pattern(10_000));
    let response = Response { data_out_transfer_len: 9000, ..peer.driver.read_response(4000) };
    peer.driver.complete(got.task, response);
    for data_sn in 3..6 {
        let (pdu, _) = peer.data_in();
        assert_eq!((pdu.data_sn, pdu.status), (data_sn, None));
    }
    let (pdu, _) = peer.scsi_response();
    assert_eq!(pdu.exp_data_sn, 6);
    assert_eq!((pdu.residual, pdu.bidi_read_residual), (Residual::Underflow(1000), Residual::Overflow(1000)));
}

#[test]
fn the_initiators_length_holds_over_our_own_default() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    run(&mut peer, 20_000, 20_000, 0);
    assert_eq!(peer.data_in().1.len(), 8192, "8192 is the default");
    assert_eq!(peer.rest().len(), 2);
}
