//! Randomness as the driver brings it.

use lunette_pdu::SerialNumber;

use crate::chap::CHALLENGE_BYTES;

/// Bytes from the system's random source, drawn afresh for each connection.
#[derive(Clone)]
pub struct Entropy(pub [u8; Entropy::BYTES]);

impl Entropy {
    /// How many bytes a connection needs: a challenge, its identifier, a first StatSN or CmdSN.
    pub const BYTES: usize = 40;

    pub(crate) fn chap_challenge(&self) -> [u8; CHALLENGE_BYTES] {
        std::array::from_fn(|index| self.0[index])
    }

    pub(crate) fn chap_identifier(&self) -> u8 {
        self.0[32]
    }

    pub(crate) fn first_serial_number(&self) -> SerialNumber {
        SerialNumber(u32::from_be_bytes(std::array::from_fn(|index| self.0[33 + index])))
    }
}
