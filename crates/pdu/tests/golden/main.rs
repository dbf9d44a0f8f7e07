//! Every PDU against bytes assembled by hand from the figures of RFC 7143, section 11, and RFC 7144. Only these tests
//! find a layout that is wrong in the same way in `parse` and `emit`.

mod initiator;
mod target;

use lunette_pdu::*;

/// A header with `parts` at their offsets and zeros elsewhere.
pub(crate) fn header(parts: &[(usize, &[u8])]) -> [u8; BHS_LEN] {
    let mut bytes = [0; BHS_LEN];
    for &(offset, part) in parts {
        bytes[offset..offset + part.len()].copy_from_slice(part);
    }
    bytes
}

/// Sets every bit of the byte ranges `reserved`, and the first bit, which is reserved in all headers.
pub(crate) fn scribble(mut bytes: [u8; BHS_LEN], reserved: &[(usize, usize)]) -> Bhs {
    bytes[0] |= 0x80;
    for &(start, end) in reserved {
        bytes[start..end].fill(0xff);
    }
    Bhs::from(bytes)
}

pub(crate) const LUN: [u8; 8] = [0x40, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];
pub(crate) const ITT: [u8; 4] = [0xa0, 0xa1, 0xa2, 0xa3];
pub(crate) const TTT: [u8; 4] = [0xb0, 0xb1, 0xb2, 0xb3];
pub(crate) const RESERVED_TAG: [u8; 4] = [0xff; 4];
pub(crate) const SN: [[u8; 4]; 3] = [[0xc0, 1, 2, 3], [0xd0, 4, 5, 6], [0xe0, 7, 8, 9]];
pub(crate) const OFFSET: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
pub(crate) const LENGTH: [u8; 3] = [0x01, 0x02, 0x03];

pub(crate) const LUN_FIELD: LunField = LunField(LUN);
pub(crate) const ITT_TAG: InitiatorTaskTag = InitiatorTaskTag(0xa0a1_a2a3);
pub(crate) const TTT_TAG: TargetTransferTag = TargetTransferTag(0xb0b1_b2b3);
pub(crate) const SN_C: SerialNumber = SerialNumber(0xc001_0203);
pub(crate) const SN_D: SerialNumber = SerialNumber(0xd004_0506);
pub(crate) const SN_E: SerialNumber = SerialNumber(0xe007_0809);
pub(crate) const DATA_LEN: usize = 0x01_0203;

#[test]
fn reserved_bits_beside_the_flags_do_not_matter() {
    for (opcode, flags, reserved) in [
        (Opcode::SCSI_COMMAND, 0x80, 0x18),
        (Opcode::TASK_MANAGEMENT_REQUEST, 0x81, 0x80),
        (Opcode::LOGIN_REQUEST, 0x81, 0x30),
        (Opcode::TEXT_REQUEST, 0x80, 0x3f),
        (Opcode::LOGOUT_REQUEST, 0x81, 0x80),
        (Opcode::SNACK_REQUEST, 0x82, 0xf0),
        (Opcode::SCSI_RESPONSE, 0x80, 0xe1),
        (Opcode::LOGIN_RESPONSE, 0x81, 0x30),
        (Opcode::TEXT_RESPONSE, 0x80, 0x3f),
        (Opcode::SCSI_DATA_IN, 0x80, 0x38),
    ] {
        let parse = |flags| {
            let bhs = Bhs::from(header(&[(0, &[opcode.0, flags])]));
            InitiatorPdu::parse(&bhs).ok().map(Ok).or_else(|| TargetPdu::parse(&bhs).ok().map(Err))
        };
        let pdu = parse(flags);
        assert!(pdu.is_some(), "{opcode}");
        assert_eq!(parse(flags | reserved), pdu, "{opcode}");
        assert_eq!(parse(flags & !reserved), pdu, "{opcode}");
    }
    let lower_half = ScsiCommand::parse(&Bhs::from(header(&[(0, &[0x01, 0x80, 0x9f])])));
    assert_eq!(lower_half.map(|command| command.priority), Ok(9));
}
