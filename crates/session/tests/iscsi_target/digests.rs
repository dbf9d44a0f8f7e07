//! Header and data digests (RFC 7143 section 11.2.3 and 7.7). The harness checks those of the target.

use lunette_pdu::{NopOut, RejectReason, ScsiCommand, SerialNumber};

use crate::harness::{Cut, Peer, Setup, data_out, nop_out, pattern, read, write};

fn digests(header: &'static str, data: &'static str) -> Setup {
    Setup::keys(&[("HeaderDigest", header), ("DataDigest", data), ("InitialR2T", "No")])
}

#[test]
fn all_combinations_carry_all_kinds_of_pdus() {
    for header in ["None", "CRC32C"] {
        for data in ["None", "CRC32C"] {
            for cut in [Cut::WHOLE, Cut { piece: 1, direct: false }, Cut { piece: 50, direct: true }] {
                for len in [1, 2, 3, 4, 511, 8192] {
                    let mut peer = Peer::logged_in(digests(header, data)).cut(cut);
                    peer.out_piece = 13;
                    assert_eq!(
                        (peer.checker.format.header_digest, peer.checker.format.data_digest),
                        (header != "None", data != "None")
                    );
                    peer.nop_out(nop_out(1), &pattern(len));
                    assert_eq!(peer.nop_in().1, pattern(len));
                    peer.command(read(2, len as u32), &[]);
                    assert_eq!(peer.data_in().1, pattern(len));
                    peer.command(write(3, len as u32), &pattern(len));
                    peer.scsi_response();
                    peer.command(ScsiCommand { final_: false, ..write(4, len as u32) }, &[]);
                    peer.data_out(data_out(4, 0), &pattern(len));
                    peer.scsi_response();
                    assert!(peer.driver.data_out.iter().all(|(_, bytes)| *bytes == pattern(len)));
                    assert_eq!(peer.driver.data_out.len(), 2);
                }
            }
        }
    }
}

/// A write with immediate data, as it stands on the wire.
fn write_pdu(peer: &Peer, len: usize) -> Vec<u8> {
    let request = ScsiCommand { cmd_sn: SerialNumber(1), data_segment_len: len, ..write(1, len as u32) };
    peer.frame(request.emit(), &[], &pattern(len))
}

#[test]
fn no_corrupted_bit_reaches_the_device() {
    for (len, step) in [(61, 1), (512, 7)] {
        for cut in [Cut::WHOLE, Cut { piece: 97, direct: false }] {
            let bits = 8 * write_pdu(&Peer::logged_in(digests("CRC32C", "CRC32C")), len).len();
            for bit in (0..bits).step_by(step) {
                let mut peer = Peer::logged_in(digests("CRC32C", "CRC32C")).cut(cut);
                let mut bytes = write_pdu(&peer, len);
                bytes[bit / 8] ^= 1 << (bit % 8);
                peer.driver.feed(&bytes);
                assert!(peer.driver.data_out.is_empty(), "bit {bit} of {bits}");
            }
        }
    }
}

#[test]
fn no_corrupted_bit_of_a_large_segment_reaches_the_device() {
    const LEN: usize = 40_000;
    for direct in [false, true] {
        for bit in (0..8 * LEN).step_by(9973) {
            let mut peer = Peer::logged_in(digests("None", "CRC32C")).cut(Cut { piece: 17_000, direct });
            let mut bytes = write_pdu(&peer, LEN);
            bytes[48 + bit / 8] ^= 1 << (bit % 8);
            peer.cmd_sn = peer.cmd_sn.next();
            peer.raw(&bytes);
            peer.cut_off(RejectReason::DATA_DIGEST_ERROR);
            assert!(peer.driver.data_out.is_empty(), "bit {bit}");
        }
    }
}

#[test]
fn a_wrong_header_digest_ends_the_connection_without_a_word() {
    let mut peer = Peer::logged_in(digests("CRC32C", "None"));
    let mut bytes = peer.frame(NopOut { cmd_sn: SerialNumber(1), ..nop_out(1) }.emit(), &[], &[]);
    bytes[50] ^= 1;
    peer.raw(&bytes);
    peer.broken();
}

#[test]
fn a_wrong_data_digest_is_named() {
    let mut peer = Peer::logged_in(digests("None", "CRC32C"));
    let ping = NopOut { cmd_sn: SerialNumber(1), data_segment_len: 5, ..nop_out(1) };
    let mut bytes = peer.frame(ping.emit(), &[], b"hello");
    *bytes.last_mut().unwrap() ^= 0x80;
    peer.raw(&bytes);
    let (reject, quoted) = peer.reject();
    assert_eq!(reject.reason, RejectReason::DATA_DIGEST_ERROR);
    assert_eq!(quoted, ping.emit());
    peer.broken();
}

#[test]
fn the_pad_is_digested_too() {
    let mut peer = Peer::logged_in(digests("None", "CRC32C"));
    let ping = NopOut { cmd_sn: SerialNumber(1), data_segment_len: 5, ..nop_out(1) };
    let mut bytes = peer.frame(ping.emit(), &[], b"hello");
    bytes[48 + 6] = 1;
    peer.raw(&bytes);
    peer.cut_off(RejectReason::DATA_DIGEST_ERROR);
}

#[test]
fn data_that_nobody_wants_is_digested_all_the_same() {
    let mut peer = Peer::logged_in(digests("None", "CRC32C"));
    let stray = lunette_pdu::DataOut { data_segment_len: 100, ..data_out(9, 0) };
    let good = peer.frame(stray.emit(), &[], &[7; 100]);
    peer.raw(&good);
    peer.silence();
    let mut bad = good;
    bad[60] ^= 1;
    peer.raw(&bad);
    peer.cut_off(RejectReason::DATA_DIGEST_ERROR);
}
