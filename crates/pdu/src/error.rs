//! Why a header is not a PDU.

use crate::Opcode;

/// A basic header segment that cannot be taken as the PDU it says it is.
///
/// Each kind calls for its own answer, which the session gives: see the variants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PduError {
    /// No PDU has this opcode. The answer is a Reject with "command not supported".
    #[error("unknown opcode {opcode}")]
    UnknownOpcode {
        /// The opcode received.
        opcode: Opcode,
    },
    /// The opcode belongs to the peer's peer: a target sent a request, or an initiator a response.
    #[error("{opcode} came from the side that receives such PDUs")]
    WrongDirection {
        /// The opcode received.
        opcode: Opcode,
    },
    /// A header was handed to the `parse` of another PDU. A mistake of the caller, not of the peer.
    #[error("header is a {found}, not a {expected}")]
    WrongOpcode {
        /// The opcode of the struct whose `parse` was called.
        expected: Opcode,
        /// The opcode in the header.
        found: Opcode,
    },
    /// A field has a value that the standard reserves and that leaves the PDU without a meaning.
    #[error("{opcode}: {field} has the reserved value {value}")]
    ReservedValue {
        /// The PDU.
        opcode: Opcode,
        /// The field, by its name in RFC 7143.
        field: &'static str,
        /// The value received.
        value: u32,
    },
    /// Bits that are valid alone but not together.
    #[error("{opcode}: {rule} (byte 1 is {flags:#04x})")]
    IllegalCombination {
        /// The PDU.
        opcode: Opcode,
        /// The rule that was broken.
        rule: &'static str,
        /// The flags byte received.
        flags: u8,
    },
    /// A segment that this PDU may not have.
    #[error("{opcode}: {field} is {len} bytes, at most {max} are allowed")]
    Length {
        /// The PDU.
        opcode: Opcode,
        /// The field, by its name in RFC 7143.
        field: &'static str,
        /// The length received, in bytes.
        len: usize,
        /// The longest this PDU may have, in bytes.
        max: usize,
    },
}

impl PduError {
    /// The opcode of the header that was refused.
    pub const fn opcode(&self) -> Opcode {
        match *self {
            Self::UnknownOpcode { opcode }
            | Self::WrongDirection { opcode }
            | Self::WrongOpcode { found: opcode, .. }
            | Self::ReservedValue { opcode, .. }
            | Self::IllegalCombination { opcode, .. }
            | Self::Length { opcode, .. } => opcode,
        }
    }
}
