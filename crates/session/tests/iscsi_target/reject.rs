//! Rejected PDUs, and whether the connection survives (RFC 7143 sections 7.8 and 11.17).

use lunette_pdu::{BHS_LEN, InitiatorTaskTag, RejectReason, SnackType};

use crate::harness::{Peer, Setup, nop_out, snack};

fn still_there(peer: &mut Peer) {
    peer.nop_out(nop_out(1), b"ping");
    assert_eq!(peer.nop_in().1, b"ping");
}

#[test]
fn a_snack_is_rejected_at_level_0() {
    for snack_type in [SnackType::DATA_R2T, SnackType::STATUS, SnackType::DATA_ACK, SnackType::R_DATA, SnackType(9)] {
        let mut peer = Peer::logged_in(Setup::default());
        let snack = snack(InitiatorTaskTag(1), snack_type);
        peer.send(snack.emit(), &[]);
        let (reject, quoted) = peer.reject();
        assert_eq!((reject.reason, &quoted[..]), (RejectReason::SNACK_REJECT, &snack.emit()[..]));
        still_there(&mut peer);
    }
}

#[test]
fn unknown_opcodes_are_rejected_with_their_header() {
    for opcode in (0x07..0x20_u8).filter(|opcode| *opcode != 0x10) {
        for data in [&[][..], &[1, 2, 3]] {
            let mut peer = Peer::logged_in(Setup::default());
            let mut bhs = [0x11; BHS_LEN];
            bhs[0] = opcode | 0x40;
            bhs[4] = 0;
            bhs[5..8].copy_from_slice(&[0, 0, data.len() as u8]);
            peer.send(bhs, data);
            let (reject, quoted) = peer.reject();
            assert_eq!((reject.reason, &quoted[..]), (RejectReason::COMMAND_NOT_SUPPORTED, &bhs[..]));
            still_there(&mut peer);
        }
    }
}

#[test]
fn pdus_of_a_target_end_the_connection() {
    for opcode in 0x20..0x40_u8 {
        let mut peer = Peer::logged_in(Setup::default());
        let mut bhs = [0; BHS_LEN];
        (bhs[0], bhs[1]) = (opcode, 0x80);
        peer.send(bhs, &[]);
        peer.cut_off(RejectReason::PROTOCOL_ERROR);
    }
}

#[test]
fn headers_with_segments_that_they_may_not_have_end_the_connection() {
    // Task management, logout and SNACK have no data; only commands have additional headers.
    for (opcode, spoiled) in [(0x02, 7), (0x06, 7), (0x10, 7), (0x00, 4), (0x04, 4), (0x05, 4)] {
        let mut peer = Peer::logged_in(Setup::default());
        let mut bhs = [0; BHS_LEN];
        (bhs[0], bhs[1], bhs[spoiled]) = (opcode | 0x40, 0x81, 1);
        let rest = [0; 4];
        peer.raw(&[&bhs[..], &rest].concat());
        peer.cut_off(RejectReason::INVALID_PDU_FIELD);
    }
}

#[test]
fn text_with_f_and_c_ends_the_connection() {
    let mut peer = Peer::logged_in(Setup::default());
    let mut bhs = [0; BHS_LEN];
    (bhs[0], bhs[1]) = (0x44, 0xc0);
    bhs[20..24].copy_from_slice(&[0xff; 4]);
    peer.send(bhs, &[]);
    peer.cut_off(RejectReason::INVALID_PDU_FIELD);
}

#[test]
fn segments_beyond_our_limit_end_the_connection_before_they_arrive() {
    let mut peer = Peer::logged_in(Setup::default());
    let mut bhs = nop_out(1).emit();
    bhs[5..8].copy_from_slice(&262_145_u32.to_be_bytes()[1..]);
    peer.raw(&bhs);
    peer.cut_off(RejectReason::PROTOCOL_ERROR);
}
