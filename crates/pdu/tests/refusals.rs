//! Headers that are refused, and with which error.

use lunette_pdu::*;

/// A header that begins with these bytes and is zero otherwise.
fn header(start: &[u8]) -> Bhs {
    let mut bytes = [0; BHS_LEN];
    bytes[..start.len()].copy_from_slice(start);
    Bhs::from(bytes)
}

/// The receiving side's error for a header.
#[track_caller]
fn refusal(bhs: &Bhs) -> PduError {
    let pdu =
        if bhs.opcode().is_target() { TargetPdu::parse(bhs).map(drop) } else { InitiatorPdu::parse(bhs).map(drop) };
    pdu.expect_err("the header should be refused")
}

#[test]
fn opcodes_are_unknown_or_come_from_the_wrong_side() {
    for value in 0..=Opcode::MASK {
        let (bhs, opcode) = (header(&[value]), Opcode(value));
        let wrong_direction = Err(PduError::WrongDirection { opcode });
        if opcode.is_initiator() {
            assert_eq!(TargetPdu::parse(&bhs).map(drop), wrong_direction);
        } else {
            assert_eq!(InitiatorPdu::parse(&bhs).map(drop), wrong_direction);
        }
    }
    assert_eq!(refusal(&header(&[0x07])), PduError::UnknownOpcode { opcode: Opcode(0x07) });
    assert_eq!(refusal(&header(&[0x2b])), PduError::UnknownOpcode { opcode: Opcode(0x2b) });
}

#[test]
fn the_parse_of_a_pdu_takes_only_its_opcode() {
    let found = Opcode::NOP_IN;
    assert_eq!(NopOut::parse(&header(&[0x20])), Err(PduError::WrongOpcode { expected: Opcode::NOP_OUT, found }));
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    for (start, rule) in [
        (&[0x03, 0b1100_0001][..], "T and C must not both be set"),
        (&[0x23, 0b1100_0001], "T and C must not both be set"),
        (&[0x04, 0b1100_0000], "F and C must not both be set"),
        (&[0x24, 0b1100_0000], "F and C must not both be set"),
        (&[0x01, 0b0000_0000], "F or W must be set"),
        (&[0x01, 0b0100_0000], "F or W must be set"),
        (&[0x21, 0b1000_0110], "overflow and underflow must not both be set"),
        (&[0x21, 0b1001_1000], "overflow and underflow must not both be set"),
        (&[0x25, 0b1000_0111], "overflow and underflow must not both be set"),
        (&[0x25, 0b0000_0001], "S must not be set without F"),
    ] {
        let opcode = Opcode(start[0]);
        assert_eq!(refusal(&header(start)), PduError::IllegalCombination { opcode, rule, flags: start[1] });
    }
}

#[test]
fn a_command_with_data_needs_a_direction() {
    let mut bytes = [0; BHS_LEN];
    (bytes[0], bytes[1], bytes[23]) = (0x01, 0x80, 1);
    let rule = "R or W must be set when data is expected";
    let refused = Err(PduError::IllegalCombination { opcode: Opcode::SCSI_COMMAND, rule, flags: 0x80 });
    assert_eq!(ScsiCommand::parse(&Bhs::from(bytes)), refused);
    bytes[1] = 0xc0;
    assert!(ScsiCommand::parse(&Bhs::from(bytes)).is_ok());
}

#[test]
fn stage_2_does_not_exist() {
    let reserved = |opcode, field| PduError::ReservedValue { opcode, field, value: 2 };
    assert_eq!(refusal(&header(&[0x03, 0b0000_1000])), reserved(Opcode::LOGIN_REQUEST, "CSG"));
    assert_eq!(refusal(&header(&[0x03, 0b1000_0010])), reserved(Opcode::LOGIN_REQUEST, "NSG"));
    assert_eq!(refusal(&header(&[0x23, 0b0000_1000])), reserved(Opcode::LOGIN_RESPONSE, "CSG"));
    // Without T, NSG is reserved and does not matter.
    let nsg = LoginRequest::parse(&header(&[0x03, 0b0000_0110])).unwrap().nsg;
    assert_eq!(nsg, Stage::SecurityNegotiation);
}

#[test]
fn the_status_of_a_failed_login_is_seen_whatever_its_flags() {
    let mut bytes = [0; BHS_LEN];
    (bytes[0], bytes[1], bytes[36], bytes[37]) = (0x23, 0b1100_1010, 2, 1);
    let response = LoginResponse::parse(&Bhs::from(bytes)).unwrap();
    assert_eq!(response.status, LoginStatus::AUTHENTICATION_FAILURE);
}

#[test]
fn segments_are_refused_where_a_pdu_has_none() {
    let too_long = |opcode, field, len| PduError::Length { opcode, field, len, max: 0 };
    for value in [0x02, 0x06, 0x10, 0x22, 0x26, 0x31] {
        let refused = refusal(&header(&[value, 0x80, 0, 0, 0, 0, 0, 1]));
        assert_eq!(refused, too_long(Opcode(value), "DataSegmentLength", 1));
    }
    for value in [0, 2, 3, 4, 5, 6, 0x10, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f] {
        let refused = refusal(&header(&[value, 0x80, 0, 0, 2]));
        assert_eq!(refused, too_long(Opcode(value), "TotalAHSLength", 8));
    }
}

#[test]
fn errors_say_what_and_where() {
    assert_eq!(refusal(&header(&[0x2b])).to_string(), "unknown opcode Opcode(0x2b)");
    assert_eq!(
        refusal(&header(&[0x25, 0x01])).to_string(),
        "SCSI Data-In: S must not be set without F (byte 1 is 0x01)"
    );
    assert_eq!(
        refusal(&header(&[0x31, 0x80, 0, 0, 0, 0, 1, 0])).to_string(),
        "Ready To Transfer: DataSegmentLength is 256 bytes, at most 0 are allowed"
    );
}

#[test]
#[should_panic(expected = "data segment is longer than MAX_DATA_SEGMENT_LEN")]
fn a_length_that_does_not_fit_is_never_sent() {
    let ping = NopOut {
        immediate: true,
        lun: LunField::default(),
        itt: InitiatorTaskTag::RESERVED,
        ttt: TargetTransferTag::RESERVED,
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
        data_segment_len: MAX_DATA_SEGMENT_LEN + 1,
    };
    ping.emit();
}
