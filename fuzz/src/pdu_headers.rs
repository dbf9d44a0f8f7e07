//! Any 48 bytes, read as a header of either direction. What is accepted is written and read again, with the same
//! result.

use lunette_pdu::{BHS_LEN, Bhs, InitiatorPdu, Opcode, TargetPdu};

use crate::input::{Input, Random};

/// The target.
pub fn run(data: &[u8]) {
    let bhs = Bhs::from(Input::new(data).array::<BHS_LEN>());
    if let Ok(pdu) = InitiatorPdu::parse(&bhs) {
        assert!(bhs.opcode().is_initiator());
        let again = Bhs::from(emit_initiator(&pdu));
        assert_same_frame(&bhs, &again);
        assert_eq!(InitiatorPdu::parse(&again), Ok(pdu));
    }
    if let Ok(pdu) = TargetPdu::parse(&bhs) {
        assert!(bhs.opcode().is_target());
        let again = Bhs::from(emit_target(&pdu));
        assert_same_frame(&bhs, &again);
        assert_eq!(TargetPdu::parse(&again), Ok(pdu));
    }
}

/// A reader of the next PDU must find it in the same place.
fn assert_same_frame(one: &Bhs, other: &Bhs) {
    let frame = |bhs: &Bhs| (bhs.opcode(), bhs.ahs_len(), bhs.data_segment_len());
    assert_eq!(frame(one), frame(other));
}

fn emit_initiator(pdu: &InitiatorPdu) -> [u8; BHS_LEN] {
    match pdu {
        InitiatorPdu::NopOut(pdu) => pdu.emit(),
        InitiatorPdu::ScsiCommand(pdu) => pdu.emit(),
        InitiatorPdu::TaskManagementRequest(pdu) => pdu.emit(),
        InitiatorPdu::LoginRequest(pdu) => pdu.emit(),
        InitiatorPdu::TextRequest(pdu) => pdu.emit(),
        InitiatorPdu::DataOut(pdu) => pdu.emit(),
        InitiatorPdu::LogoutRequest(pdu) => pdu.emit(),
        InitiatorPdu::SnackRequest(pdu) => pdu.emit(),
    }
}

fn emit_target(pdu: &TargetPdu) -> [u8; BHS_LEN] {
    match pdu {
        TargetPdu::NopIn(pdu) => pdu.emit(),
        TargetPdu::ScsiResponse(pdu) => pdu.emit(),
        TargetPdu::TaskManagementResponse(pdu) => pdu.emit(),
        TargetPdu::LoginResponse(pdu) => pdu.emit(),
        TargetPdu::TextResponse(pdu) => pdu.emit(),
        TargetPdu::DataIn(pdu) => pdu.emit(),
        TargetPdu::LogoutResponse(pdu) => pdu.emit(),
        TargetPdu::R2t(pdu) => pdu.emit(),
        TargetPdu::AsyncMessage(pdu) => pdu.emit(),
        TargetPdu::Reject(pdu) => pdu.emit(),
    }
}

/// Opcodes that exist, before random fields.
const OPCODES: [Opcode; 18] = [
    Opcode::NOP_OUT,
    Opcode::SCSI_COMMAND,
    Opcode::TASK_MANAGEMENT_REQUEST,
    Opcode::LOGIN_REQUEST,
    Opcode::TEXT_REQUEST,
    Opcode::SCSI_DATA_OUT,
    Opcode::LOGOUT_REQUEST,
    Opcode::SNACK_REQUEST,
    Opcode::NOP_IN,
    Opcode::SCSI_RESPONSE,
    Opcode::TASK_MANAGEMENT_RESPONSE,
    Opcode::LOGIN_RESPONSE,
    Opcode::TEXT_RESPONSE,
    Opcode::SCSI_DATA_IN,
    Opcode::LOGOUT_RESPONSE,
    Opcode::R2T,
    Opcode::ASYNC_MESSAGE,
    Opcode::REJECT,
];

/// A header with a known opcode, often without segments.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = random.bytes(BHS_LEN);
    bytes[0] = random.choose(&OPCODES).0 | random.byte() & 0x40;
    bytes[1] |= random.byte() & 0x80;
    if random.below(2) == 0 {
        bytes[4..8].fill(0);
    }
    bytes
}

/// One header per opcode.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let header = |opcode: Opcode| {
        let mut bytes = vec![0; BHS_LEN];
        bytes[..2].copy_from_slice(&[opcode.0, 0x80]);
        (format!("opcode_{:02x}", opcode.0), bytes)
    };
    OPCODES.into_iter().map(header).collect()
}
