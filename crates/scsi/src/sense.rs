//! Sense data in the fixed and the descriptor format (SPC-5 4.5).

mod codes;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Deref;

pub use codes::{AdditionalSense, SenseKey};

/// The longest sense data of [`SenseData::encode`], in bytes.
pub const MAX_SENSE_LEN: usize = 32;

/// Length of fixed format sense data.
const FIXED_LEN: usize = 18;
/// Header of descriptor format sense data.
const DESCRIPTOR_HEADER_LEN: usize = 8;
const INFORMATION_DESCRIPTOR: u8 = 0x00;
const INFORMATION_DESCRIPTOR_LEN: usize = 12;
const SPECIFIC_DESCRIPTOR: u8 = 0x02;
const SPECIFIC_DESCRIPTOR_LEN: usize = 8;

const RESPONSE_FIXED: u8 = 0x70;
const RESPONSE_DESCRIPTOR: u8 = 0x72;
/// VALID in the fixed format and in the information descriptor.
const VALID: u8 = 0x80;
/// SKSV in the first byte of the sense key specific field.
const SKSV: u8 = 0x80;
const POINTER_IN_CDB: u8 = 0x40;
const BIT_POINTER_VALID: u8 = 0x08;

/// Sense data: the reason why a command ended with CHECK CONDITION.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenseData {
    /// The sense key: the class of the condition.
    pub key: SenseKey,
    /// The additional sense code: the condition itself.
    pub code: AdditionalSense,
    /// INFORMATION: an LBA or an offset, as the command defines it.
    pub information: Option<u64>,
    /// The field in error, for ILLEGAL REQUEST.
    pub field: Option<FieldPointer>,
    /// PROGRESS INDICATION, for NOT READY and NO SENSE: the completed part of an operation, in units of 1/65,536.
    pub progress: Option<u16>,
}

/// The formats of sense data. `D_SENSE` of the Control mode page selects one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SenseFormat {
    /// 18 bytes; INFORMATION holds 32 bits.
    #[default]
    Fixed,
    /// A header and descriptors; INFORMATION holds 64 bits.
    Descriptor,
}

/// A pointer to a field in error (SPC-5 4.5.2.4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldPointer {
    /// Whether `byte` is an offset in the CDB or in the parameter list.
    pub area: PointedArea,
    /// Offset of the first byte of the field.
    pub byte: u16,
    /// Most significant bit of the field, when it does not fill its byte.
    pub bit: Option<u8>,
}

/// The area that a [`FieldPointer`] points into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointedArea {
    /// The pointer is an offset in the CDB.
    Cdb,
    /// The pointer is an offset in the parameter list of the Data-Out.
    Data,
}

impl FieldPointer {
    /// A field that starts with byte `byte` of the CDB.
    pub const fn cdb(byte: u16) -> Self {
        Self { area: PointedArea::Cdb, byte, bit: None }
    }

    /// A field that starts with byte `byte` of the parameter list.
    pub const fn data(byte: u16) -> Self {
        Self { area: PointedArea::Data, byte, bit: None }
    }

    /// The pointer with `bit` (0 to 7) as its most significant bit.
    #[must_use]
    pub const fn bit(self, bit: u8) -> Self {
        Self { bit: Some(bit & 7), ..self }
    }
}

impl SenseData {
    /// Sense data with only a key and a code.
    pub const fn new(key: SenseKey, code: AdditionalSense) -> Self {
        Self { key, code, information: None, field: None, progress: None }
    }

    /// ILLEGAL REQUEST with `code`.
    pub const fn illegal_request(code: AdditionalSense) -> Self {
        Self::new(SenseKey::ILLEGAL_REQUEST, code)
    }

    /// ILLEGAL REQUEST, PARAMETER LIST LENGTH ERROR: the parameter list is too short or too long.
    pub const PARAMETER_LIST_LENGTH_ERROR: Self = Self::illegal_request(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

    /// NOT READY with `code`.
    pub const fn not_ready(code: AdditionalSense) -> Self {
        Self::new(SenseKey::NOT_READY, code)
    }

    /// MEDIUM ERROR with `code`.
    pub const fn medium_error(code: AdditionalSense) -> Self {
        Self::new(SenseKey::MEDIUM_ERROR, code)
    }

    /// HARDWARE ERROR with `code`.
    pub const fn hardware_error(code: AdditionalSense) -> Self {
        Self::new(SenseKey::HARDWARE_ERROR, code)
    }

    /// DATA PROTECT with `code`.
    pub const fn data_protect(code: AdditionalSense) -> Self {
        Self::new(SenseKey::DATA_PROTECT, code)
    }

    /// COPY ABORTED with `code`.
    pub const fn copy_aborted(code: AdditionalSense) -> Self {
        Self::new(SenseKey::COPY_ABORTED, code)
    }

    /// ABORTED COMMAND with `code`.
    pub const fn aborted_command(code: AdditionalSense) -> Self {
        Self::new(SenseKey::ABORTED_COMMAND, code)
    }

    /// UNIT ATTENTION with `code`.
    pub const fn unit_attention(code: AdditionalSense) -> Self {
        Self::new(SenseKey::UNIT_ATTENTION, code)
    }

    /// ILLEGAL REQUEST, INVALID FIELD IN CDB or IN PARAMETER LIST, with the pointer to the field.
    pub const fn invalid_field(field: FieldPointer) -> Self {
        let code = match field.area {
            PointedArea::Cdb => AdditionalSense::INVALID_FIELD_IN_CDB,
            PointedArea::Data => AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST,
        };
        Self { field: Some(field), ..Self::illegal_request(code) }
    }

    /// Adds the INFORMATION field.
    #[must_use]
    pub const fn with_information(self, information: u64) -> Self {
        Self { information: Some(information), ..self }
    }

    /// Adds the pointer to the field in error.
    #[must_use]
    pub const fn with_field(self, field: FieldPointer) -> Self {
        Self { field: Some(field), ..self }
    }

    /// Adds PROGRESS INDICATION.
    #[must_use]
    pub const fn with_progress(self, progress: u16) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// The sense key specific field; its meaning follows the sense key (SPC-5 4.5.2.4).
    fn specific(&self) -> Option<[u8; 3]> {
        if self.has_progress() {
            let [high, low] = self.progress?.to_be_bytes();
            return Some([SKSV, high, low]);
        }
        self.field.map(FieldPointer::encode)
    }

    fn set_specific(&mut self, specific: [u8; 3]) {
        let [flags, high, low] = specific;
        if self.has_progress() {
            self.progress = (flags & SKSV != 0).then_some(u16::from_be_bytes([high, low]));
        } else {
            self.field = FieldPointer::decode(specific);
        }
    }

    fn has_progress(&self) -> bool {
        matches!(self.key, SenseKey::NO_SENSE | SenseKey::NOT_READY)
    }

    /// Encodes current (not deferred) sense data.
    ///
    /// The fixed format has 32 bits for INFORMATION: a larger value leaves VALID at zero (SPC-5 4.5.3).
    pub fn encode(&self, format: SenseFormat) -> EncodedSense {
        match format {
            SenseFormat::Fixed => self.encode_fixed(),
            SenseFormat::Descriptor => self.encode_descriptors(),
        }
    }

    fn encode_fixed(&self) -> EncodedSense {
        let mut out = EncodedSense::default();
        let mut head = [0; FIXED_LEN];
        head[0] = RESPONSE_FIXED;
        head[2] = self.key.0;
        if let Some(information) = self.information.and_then(|value| u32::try_from(value).ok()) {
            head[0] |= VALID;
            head[3..7].copy_from_slice(&information.to_be_bytes());
        }
        head[7] = (FIXED_LEN - 8) as u8;
        head[12] = self.code.asc;
        head[13] = self.code.ascq;
        if let Some(specific) = self.specific() {
            head[15..18].copy_from_slice(&specific);
        }
        out.push(&head);
        out
    }

    fn encode_descriptors(&self) -> EncodedSense {
        let mut out = EncodedSense::default();
        out.push(&[RESPONSE_DESCRIPTOR, self.key.0, self.code.asc, self.code.ascq, 0, 0, 0, 0]);
        if let Some(information) = self.information {
            out.push(&[INFORMATION_DESCRIPTOR, (INFORMATION_DESCRIPTOR_LEN - 2) as u8, VALID, 0]);
            out.push(&information.to_be_bytes());
        }
        if let Some([first, second, third]) = self.specific() {
            out.push(&[SPECIFIC_DESCRIPTOR, (SPECIFIC_DESCRIPTOR_LEN - 2) as u8, 0, 0, first, second, third, 0]);
        }
        out.bytes[7] = (out.len - DESCRIPTOR_HEADER_LEN) as u8;
        out
    }

    /// Decodes sense data in either format. Descriptors that this type does not represent are skipped.
    ///
    /// # Errors
    ///
    /// When the bytes are too short for their format, or the response code is not that of current sense data.
    pub fn decode(bytes: &[u8]) -> Result<Self, SenseError> {
        let response = *bytes.first().ok_or(SenseError::Short { len: 0 })?;
        match response & 0x7f {
            RESPONSE_FIXED => Self::decode_fixed(bytes),
            RESPONSE_DESCRIPTOR => Self::decode_descriptors(bytes),
            other => Err(SenseError::ResponseCode(other)),
        }
    }

    fn decode_fixed(bytes: &[u8]) -> Result<Self, SenseError> {
        let short = SenseError::Short { len: bytes.len() };
        let head: &[u8; 8] = bytes.first_chunk().ok_or(short)?;
        let mut sense = Self::new(SenseKey(head[2] & 0x0f), AdditionalSense::NONE);
        if head[0] & VALID != 0 {
            sense.information = Some(u64::from(u32::from_be_bytes([head[3], head[4], head[5], head[6]])));
        }
        // ADDITIONAL SENSE LENGTH counts from byte 8; the bytes beyond it are not sense data.
        let end = bytes.len().min(8 + usize::from(head[7]));
        if let Some(code) = bytes.get(12..14).filter(|_| end >= 14) {
            sense.code = AdditionalSense { asc: code[0], ascq: code[1] };
        }
        if let Some(specific) = bytes.get(15..18).filter(|_| end >= 18) {
            sense.set_specific([specific[0], specific[1], specific[2]]);
        }
        Ok(sense)
    }

    fn decode_descriptors(bytes: &[u8]) -> Result<Self, SenseError> {
        let (head, rest) =
            bytes.split_first_chunk::<DESCRIPTOR_HEADER_LEN>().ok_or(SenseError::Short { len: bytes.len() })?;
        let mut sense = Self::new(SenseKey(head[1] & 0x0f), AdditionalSense { asc: head[2], ascq: head[3] });
        let mut rest = &rest[..rest.len().min(usize::from(head[7]))];
        while let [kind, len, tail @ ..] = rest {
            let Some((body, next)) = tail.split_at_checked(usize::from(*len)) else { break };
            match (*kind, body) {
                (INFORMATION_DESCRIPTOR, [flags, _, value @ ..]) if flags & VALID != 0 => {
                    sense.information = value.first_chunk().copied().map(u64::from_be_bytes);
                }
                (SPECIFIC_DESCRIPTOR, [_, _, first, second, third, ..]) => {
                    sense.set_specific([*first, *second, *third]);
                }
                _ => {}
            }
            rest = next;
        }
        Ok(sense)
    }
}

impl FieldPointer {
    fn encode(self) -> [u8; 3] {
        let area = if self.area == PointedArea::Cdb { POINTER_IN_CDB } else { 0 };
        let bit = self.bit.map_or(0, |bit| BIT_POINTER_VALID | bit & 7);
        let [high, low] = self.byte.to_be_bytes();
        [SKSV | area | bit, high, low]
    }

    fn decode([flags, high, low]: [u8; 3]) -> Option<Self> {
        (flags & SKSV != 0).then(|| Self {
            area: if flags & POINTER_IN_CDB != 0 { PointedArea::Cdb } else { PointedArea::Data },
            byte: u16::from_be_bytes([high, low]),
            bit: (flags & BIT_POINTER_VALID != 0).then_some(flags & 7),
        })
    }
}

impl From<FieldPointer> for SenseData {
    fn from(field: FieldPointer) -> Self {
        Self::invalid_field(field)
    }
}

/// Encoded sense data in an array, without an allocation. It dereferences to its bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodedSense {
    bytes: [u8; MAX_SENSE_LEN],
    len: usize,
}

impl EncodedSense {
    /// Appends a part. The parts of this module fit together: header, information and sense key specific data are 28
    /// bytes.
    fn push(&mut self, part: &[u8]) {
        self.bytes[self.len..][..part.len()].copy_from_slice(part);
        self.len += part.len();
    }
}

impl Deref for EncodedSense {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Debug for EncodedSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", &**self)
    }
}

/// Why bytes cannot be decoded as sense data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SenseError {
    /// The header is incomplete.
    #[error("{len} bytes are too short for sense data")]
    Short {
        /// Number of bytes.
        len: usize,
    },
    /// The response code is deferred, vendor specific or unknown.
    #[error("response code {0:#04x} is not current sense data")]
    ResponseCode(u8),
}
