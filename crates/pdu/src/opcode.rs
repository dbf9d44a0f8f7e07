//! The operation codes of PDUs (RFC 7143, 11.2.1.2).

use crate::codes::codes;

codes! {
    /// The six-bit operation code in the first byte of every PDU.
    ///
    /// ```
    /// use lunette_pdu::Opcode;
    /// assert_eq!(Opcode::NOP_OUT.to_string(), "NOP-Out");
    /// assert_eq!(format!("{:?}", Opcode(0x2b)), "Opcode(0x2b)");
    /// ```
    Opcode {
        NOP_OUT = 0x00, "NOP-Out";
        SCSI_COMMAND = 0x01, "SCSI Command";
        TASK_MANAGEMENT_REQUEST = 0x02, "Task Management Function Request";
        LOGIN_REQUEST = 0x03, "Login Request";
        TEXT_REQUEST = 0x04, "Text Request";
        SCSI_DATA_OUT = 0x05, "SCSI Data-Out";
        LOGOUT_REQUEST = 0x06, "Logout Request";
        SNACK_REQUEST = 0x10, "SNACK Request";
        NOP_IN = 0x20, "NOP-In";
        SCSI_RESPONSE = 0x21, "SCSI Response";
        TASK_MANAGEMENT_RESPONSE = 0x22, "Task Management Function Response";
        LOGIN_RESPONSE = 0x23, "Login Response";
        TEXT_RESPONSE = 0x24, "Text Response";
        SCSI_DATA_IN = 0x25, "SCSI Data-In";
        LOGOUT_RESPONSE = 0x26, "Logout Response";
        R2T = 0x31, "Ready To Transfer";
        ASYNC_MESSAGE = 0x32, "Asynchronous Message";
        REJECT = 0x3f, "Reject";
    }
}

impl Opcode {
    /// Bits of the first header byte that hold the opcode.
    pub const MASK: u8 = 0x3f;

    /// Whether PDUs with this opcode travel from the initiator to the target: 0x00 to 0x1f.
    pub const fn is_initiator(self) -> bool {
        self.0 < 0x20
    }

    /// Whether PDUs with this opcode travel from the target to the initiator: 0x20 to 0x3f.
    pub const fn is_target(self) -> bool {
        self.0 >= 0x20 && self.0 <= Self::MASK
    }
}
