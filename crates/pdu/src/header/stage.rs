//! Login stages, and the flags byte that both Login PDUs share.

use crate::bhs::{CONTINUE, FINAL, bit};
use crate::{Bhs, PduError};

/// A stage of the login phase, or the phase after it (RFC 7143, 11.12.3).
///
/// The order of the variants is that in which a login passes the stages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Stage {
    /// The sides authenticate each other.
    SecurityNegotiation = 0,
    /// The sides agree on operational parameters.
    LoginOperationalNegotiation = 1,
    /// The login is over.
    FullFeaturePhase = 3,
}

impl Stage {
    /// Reads two bits; 2 is reserved.
    const fn from_bits(bits: u8) -> Option<Self> {
        match bits & 3 {
            0 => Some(Self::SecurityNegotiation),
            1 => Some(Self::LoginOperationalNegotiation),
            3 => Some(Self::FullFeaturePhase),
            _ => None,
        }
    }
}

/// Byte 1 of Login Requests and Responses.
pub(super) struct LoginFlags {
    pub(super) transit: bool,
    pub(super) continue_: bool,
    pub(super) csg: Stage,
    pub(super) nsg: Stage,
}

impl LoginFlags {
    /// Reads the flags. Without T, the NSG field is reserved and `nsg` is the first stage.
    pub(super) fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        let flags = Self::parse_leniently(bhs);
        if flags.transit && flags.continue_ {
            return Err(bhs.illegal_combination("T and C must not both be set"));
        }
        let reserved = |field, value: u8| PduError::ReservedValue { opcode: bhs.opcode(), field, value: value.into() };
        let (csg, nsg) = stage_bits(bhs);
        if Stage::from_bits(csg).is_none() {
            return Err(reserved("CSG", csg));
        }
        if flags.transit && Stage::from_bits(nsg).is_none() {
            return Err(reserved("NSG", nsg));
        }
        Ok(flags)
    }

    /// Reads the flags of a PDU in which they no longer matter: a value without a meaning becomes the first stage.
    pub(super) fn parse_leniently(bhs: &Bhs) -> Self {
        let (csg, nsg) = stage_bits(bhs);
        let transit = bhs.final_bit();
        let nsg = if transit { nsg } else { 0 };
        Self {
            transit,
            continue_: bhs.flags() & CONTINUE != 0,
            csg: Stage::from_bits(csg).unwrap_or(Stage::SecurityNegotiation),
            nsg: Stage::from_bits(nsg).unwrap_or(Stage::SecurityNegotiation),
        }
    }

    pub(super) const fn emit(&self) -> u8 {
        let nsg = if self.transit { self.nsg as u8 } else { 0 };
        bit(self.transit, FINAL) | bit(self.continue_, CONTINUE) | (self.csg as u8) << 2 | nsg
    }
}

/// The CSG and NSG fields.
const fn stage_bits(bhs: &Bhs) -> (u8, u8) {
    (bhs.flags() >> 2 & 3, bhs.flags() & 3)
}
