//! Published values: RFC 3720 (appendix B.4) and RFC 7143 (appendix A.4).

use lunette_crc32c::{Crc32c, copy, crc32c, from_wire, to_wire};

/// The SCSI READ (10) PDU of the appendix.
const READ_PDU: [u8; 48] = [
    0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

/// Messages and their digests in wire order, as the RFCs print them.
fn vectors() -> Vec<(Vec<u8>, [u8; 4])> {
    vec![
        (vec![0x00; 32], [0xaa, 0x36, 0x91, 0x8a]),
        (vec![0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
        ((0..32).collect(), [0x4e, 0x79, 0xdd, 0x46]),
        ((0..32).rev().collect(), [0x5c, 0xdb, 0x3f, 0x11]),
        (READ_PDU.to_vec(), [0x56, 0x3a, 0x96, 0xd9]),
    ]
}

#[test]
fn whole_messages() {
    for (message, wire) in vectors() {
        assert_eq!(to_wire(crc32c(&message)), wire);
        assert_eq!(crc32c(&message), from_wire(wire));
    }
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    assert_eq!(crc32c(b""), 0);
}

#[test]
fn every_cut_gives_the_same_digest() {
    for (message, wire) in vectors() {
        for cut in 0..=message.len() {
            let (head, tail) = message.split_at(cut);
            let mut place = vec![0; tail.len()];
            let mut digest = Crc32c::new();
            digest.update(head);
            digest.copy(&mut place, tail);
            assert_eq!(to_wire(digest.finish()), wire);
            assert_eq!(place, tail);
        }
    }
}

#[test]
fn copies_carry_the_bytes() {
    for (message, wire) in vectors() {
        let mut place = vec![0x55; message.len()];
        assert_eq!(to_wire(copy(&mut place, &message)), wire);
        assert_eq!(place, message);
    }
}

#[test]
#[should_panic(expected = "different lengths")]
fn unequal_lengths_are_misuse() {
    copy(&mut [0; 3], b"1234");
}
