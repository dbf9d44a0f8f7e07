//! ROD tokens, and the parameter lists of POPULATE TOKEN and WRITE USING TOKEN (SPC-5 5.18.6, SBC-4 5.17, 5.47).

use super::{CopyLimits, check_reserved, field, number, put};
use crate::designator::Designator;
use crate::{AdditionalSense, FieldPointer, SenseData};

/// Bytes of a ROD token.
pub const TOKEN_LEN: usize = 512;

/// Length in bytes of the management ROD token, the part of a token that identifies it.
pub const MANAGEMENT_TOKEN_LEN: usize = 96;

/// Length in bytes of the secret part of a token, which makes it unforgeable.
pub const SECRET_LEN: usize = 32;

/// Bytes of a block device range descriptor.
pub const RANGE_LEN: usize = 16;

const POPULATE_HEADER_LEN: usize = 16;
const WRITE_HEADER_LEN: usize = 536;
/// Bytes in front of what the data length counts.
const DATA_LEN_LEN: u64 = 2;

/// ROD TYPE: the representation of data that a token stands for. Unknown types are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RodType(pub u32);

impl RodType {
    /// A point in time copy, whose kind the copy manager chooses.
    pub const POINT_IN_TIME_DEFAULT: Self = Self(0x0080_0000);
    /// A change vulnerable point in time copy: the token is revoked when its blocks change.
    pub const POINT_IN_TIME_CHANGE_VULNERABLE: Self = Self(0x0080_0001);
    /// A point in time copy of any kind.
    pub const POINT_IN_TIME_ANY: Self = Self(0x0080_ffff);
    /// Zeroes of any length. A token of this type is valid without having been created.
    pub const BLOCK_DEVICE_ZERO: Self = Self(0xffff_0001);
}

/// A range of consecutive blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRange {
    /// The first logical block address.
    pub lba: u64,
    /// Number of blocks; zero is no error.
    pub blocks: u32,
}

/// The block device range descriptors of a list, with their offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRanges {
    /// The ranges in their order. No two have a block in common.
    pub ranges: Vec<BlockRange>,
    at: usize,
}

impl BlockRanges {
    /// The field of the LBA in range `index`.
    pub fn lba_field(&self, index: usize) -> FieldPointer {
        field(self.at + index * RANGE_LEN)
    }

    /// Number of blocks in all ranges.
    pub fn blocks(&self) -> u64 {
        self.ranges.iter().map(|range| u64::from(range.blocks)).sum()
    }
}

/// The parameter list of POPULATE TOKEN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PopulateList {
    /// INACTIVITY TIMEOUT in seconds; `None` for the default.
    pub inactivity_timeout_s: Option<u32>,
    /// ROD TYPE; `None` when the copy manager chooses.
    pub rod_type: Option<RodType>,
    /// The blocks that the token stands for.
    pub ranges: BlockRanges,
}

impl PopulateList {
    /// The field ROD TYPE.
    pub const ROD_TYPE_FIELD: FieldPointer = FieldPointer::data(8);

    /// Reads a list.
    ///
    /// # Errors
    ///
    /// Sense data: PARAMETER LIST LENGTH ERROR for a list shorter than it announces; TOO MANY SEGMENT DESCRIPTORS;
    /// INVALID FIELD IN PARAMETER LIST for ranges that overlap or have too many blocks, for a timeout beyond the limit
    /// and for reserved bits.
    pub fn parse(list: &[u8], limits: &CopyLimits) -> Result<Self, SenseData> {
        const RTV: u8 = 0x02;
        const USED: [u8; POPULATE_HEADER_LEN] =
            [0xff, 0xff, 0x03, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0xff, 0xff];
        let (header, ranges) =
            list.split_at_checked(POPULATE_HEADER_LEN).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
        check_reserved(header, 0, &USED)?;
        let timeout = number::<4>(header, 4) as u32;
        if timeout > limits.max_inactivity_timeout_s {
            return Err(field(4).into());
        }
        Ok(Self {
            inactivity_timeout_s: (timeout != 0).then_some(timeout),
            rod_type: (header[2] & RTV != 0).then_some(RodType(number::<4>(header, 8) as u32)),
            ranges: parse_ranges(header, ranges, limits)?,
        })
    }
}

/// The parameter list of WRITE USING TOKEN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteList {
    /// `DEL_TKN`: the token may be deleted after the command.
    pub delete_token: bool,
    /// OFFSET INTO ROD in blocks of the destination.
    pub offset: u64,
    /// The ROD token.
    pub token: Box<[u8; TOKEN_LEN]>,
    /// The ranges to write.
    pub ranges: BlockRanges,
}

impl WriteList {
    /// The field OFFSET INTO ROD.
    pub const OFFSET_FIELD: FieldPointer = FieldPointer::data(8);

    /// Reads a list.
    ///
    /// # Errors
    ///
    /// The errors of [`PopulateList::parse`].
    pub fn parse(list: &[u8], limits: &CopyLimits) -> Result<Self, SenseData> {
        const DEL_TKN: u8 = 0x02;
        const TOKEN_AT: usize = 16;
        const USED: [u8; WRITE_HEADER_LEN] = {
            let mut used = [0xff; WRITE_HEADER_LEN];
            used[2] = 0x03;
            let mut at = 3;
            while at < 8 {
                used[at] = 0;
                at += 1;
            }
            let mut at = TOKEN_AT + TOKEN_LEN;
            while at < WRITE_HEADER_LEN - 2 {
                used[at] = 0;
                at += 1;
            }
            used
        };
        let (header, ranges) = list.split_at_checked(WRITE_HEADER_LEN).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
        check_reserved(header, 0, &USED)?;
        let token = header[TOKEN_AT..].first_chunk::<TOKEN_LEN>().ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
        Ok(Self {
            delete_token: header[2] & DEL_TKN != 0,
            offset: number::<8>(header, 8),
            token: Box::new(*token),
            ranges: parse_ranges(header, ranges, limits)?,
        })
    }
}

/// Parses the ranges after `header`, whose last two bytes are their length.
fn parse_ranges(header: &[u8], bytes: &[u8], limits: &CopyLimits) -> Result<BlockRanges, SenseData> {
    let at = header.len();
    let (data_len, len) = (number::<2>(header, 0), number::<2>(header, at - 2));
    let len_field = field(at - 2);
    if data_len + DATA_LEN_LEN < at as u64 + len {
        return Err(field(0).into());
    }
    if len == 0 || len % RANGE_LEN as u64 != 0 {
        return Err(len_field.into());
    }
    if len / RANGE_LEN as u64 > u64::from(limits.max_ranges) {
        let code = AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS;
        return Err(SenseData::illegal_request(code).with_field(len_field));
    }
    let bytes = bytes.get(..len as usize).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    let (descriptors, _) = bytes.as_chunks::<RANGE_LEN>();
    let mut ranges = Vec::with_capacity(descriptors.len());
    for (index, descriptor) in descriptors.iter().enumerate() {
        const RESERVED_AT: usize = 12;
        check_reserved(&descriptor[RESERVED_AT..], at + index * RANGE_LEN + RESERVED_AT, &[0; 4])?;
        ranges.push(BlockRange { lba: number::<8>(descriptor, 0), blocks: number::<4>(descriptor, 8) as u32 });
    }
    let ranges = BlockRanges { ranges, at };
    if let Some(second) = overlap(&ranges.ranges) {
        return Err(ranges.lba_field(second).into());
    }
    if ranges.blocks() > limits.max_token_blocks {
        return Err(len_field.into());
    }
    Ok(ranges)
}

/// The index of the first range that overlaps an earlier one. The number of ranges is limited.
fn overlap(ranges: &[BlockRange]) -> Option<usize> {
    let end = |range: &BlockRange| u128::from(range.lba) + u128::from(range.blocks);
    let overlaps = |a: &BlockRange, b: &BlockRange| u128::from(a.lba) < end(b) && u128::from(b.lba) < end(a);
    let filled = |range: &&BlockRange| range.blocks > 0;
    ranges.iter().enumerate().filter(|(_, range)| filled(range)).find_map(|(index, range)| {
        ranges[..index].iter().filter(filled).any(|earlier| overlaps(earlier, range)).then_some(index)
    })
}

/// The fields of a new ROD token (SPC-5 table 128).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RodToken {
    /// ROD TYPE.
    pub rod_type: RodType,
    /// COPY MANAGER ROD TOKEN IDENTIFIER.
    pub id: u64,
    /// A designator of the logical unit that holds the blocks.
    pub unit: Designator,
    /// NUMBER OF BYTES REPRESENTED.
    pub len_bytes: u64,
    /// Bytes of that unit's blocks.
    pub block_len: u32,
    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT.
    pub physical_exponent: u8,
    /// The secret that makes the token unforgeable.
    pub secret: [u8; SECRET_LEN],
}

/// ROD TOKEN LENGTH of every token: the bytes after the field.
const TOKEN_REST_LEN: u16 = (TOKEN_LEN - 8) as u16;

impl RodToken {
    /// Encodes the token.
    pub fn emit(&self) -> [u8; TOKEN_LEN] {
        const SECRET_AT: usize = 128;
        let mut token = [0; TOKEN_LEN];
        put(&mut token, 0, &self.rod_type.0.to_be_bytes());
        put(&mut token, 6, &TOKEN_REST_LEN.to_be_bytes());
        put(&mut token, 8, &self.id.to_be_bytes());
        put(&mut token, 16, &self.unit.emit_cscd(self.block_len));
        put(&mut token, 48, &u128::from(self.len_bytes).to_be_bytes());
        // The READ CAPACITY(16) data of the unit, without the capacity.
        put(&mut token, 96, &self.block_len.to_be_bytes());
        put(&mut token, 101, &[self.physical_exponent]);
        put(&mut token, SECRET_AT, &self.secret);
        token
    }
}

/// The ROD TYPE of an encoded token.
///
/// # Errors
///
/// INVALID TOKEN OPERATION, INVALID TOKEN LENGTH.
pub fn rod_type(token: &[u8; TOKEN_LEN]) -> Result<RodType, SenseData> {
    if number::<2>(token, 6) != u64::from(TOKEN_REST_LEN) {
        return Err(SenseData::illegal_request(AdditionalSense::INVALID_TOKEN_LENGTH));
    }
    Ok(RodType(number::<4>(token, 0) as u32))
}

/// The token of block device zeroes.
pub fn zero_token() -> [u8; TOKEN_LEN] {
    let mut token = [0; TOKEN_LEN];
    put(&mut token, 0, &RodType::BLOCK_DEVICE_ZERO.0.to_be_bytes());
    put(&mut token, 6, &TOKEN_REST_LEN.to_be_bytes());
    token
}

#[cfg(test)]
mod tests;
