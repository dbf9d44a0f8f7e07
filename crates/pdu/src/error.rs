//! Errors of header parsing.

use crate::Opcode;

/// An error that makes a basic header segment unusable as the PDU that its opcode names.
///
/// Each variant says how the session answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PduError {
    /// No PDU has this opcode. The answer is a Reject with "command not supported".
    #[error("unknown opcode {opcode}")]
    UnknownOpcode {
        /// The opcode received.
        opcode: Opcode,
    },
    /// The sender plays the wrong role for this opcode: a target sent a request, or an initiator a response.
    #[error("{opcode} came from the side that receives such PDUs")]
    WrongDirection {
        /// The opcode received.
        opcode: Opcode,
    },
    /// A header was handed to the `parse` of another PDU, by mistake of the caller, not of the peer.
    #[error("header is a {found}, not a {expected}")]
    WrongOpcode {
        /// The opcode of the struct whose `parse` was called.
        expected: Opcode,
        /// The opcode in the header.
        found: Opcode,
    },
    /// A field has a reserved value that leaves the PDU without a meaning.
    #[error("{opcode}: {field} has the reserved value {value}")]
    ReservedValue {
        /// The opcode of the PDU.
        opcode: Opcode,
        /// The field, by its name in RFC 7143.
        field: &'static str,
        /// The value received.
        value: u32,
    },
    /// Bits are set together that are valid only alone.
    #[error("{opcode}: {rule} (byte 1 is {flags:#04x})")]
    IllegalCombination {
        /// The opcode of the PDU.
        opcode: Opcode,
        /// The rule that was broken.
        rule: &'static str,
        /// The flags byte received.
        flags: u8,
    },
    /// The PDU has a segment that it may not have, or one that is too long.
    #[error("{opcode}: {field} is {len} bytes, at most {max} are allowed")]
    Length {
        /// The opcode of the PDU.
        opcode: Opcode,
        /// The field, by its name in RFC 7143.
        field: &'static str,
        /// The length received, in bytes.
        len: usize,
        /// The longest length that this PDU allows, in bytes.
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
