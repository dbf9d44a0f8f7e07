//! The parameter lists of EXTENDED COPY(LID1) and (LID4) (SPC-5 6.5, 6.6).

use super::{CopyLimits, check_reserved, field, number};
use crate::designator::{CSCD_LEN, Designator, IDENTIFICATION, MAX_CSCD_DESIGNATOR_LEN};
use crate::{AdditionalSense, FieldPointer, SenseData};

/// The supported descriptor type codes, in order: segments, then CSCDs.
pub const DESCRIPTOR_TYPES: [u8; 3] = [BLOCK_TO_BLOCK, VERIFY_CSCD, IDENTIFICATION];

/// The CSCD descriptor ID of the logical unit that received the command.
pub const THIS_UNIT: u16 = 0xffff;

const BLOCK_TO_BLOCK: u8 = 0x02;
const VERIFY_CSCD: u8 = 0x07;

/// Bytes in front of what DESCRIPTOR LENGTH of a segment descriptor counts.
const SEGMENT_HEADER_LEN: usize = 4;

/// The form of the command, which determines the header of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyListForm {
    /// EXTENDED COPY(LID1).
    Lid1,
    /// EXTENDED COPY(LID4).
    Lid4,
}

/// The parameter list of EXTENDED COPY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyList {
    /// LIST IDENTIFIER; `None` when the initiator does not want a record of the copy.
    pub list_id: Option<u32>,
    /// The CSCD descriptors: copy sources and copy destinations.
    pub cscds: Vec<Cscd>,
    /// The segment descriptors, in their order of execution.
    pub segments: Vec<Segment>,
}

/// A copy source or copy destination: an identification descriptor CSCD descriptor (E4h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cscd {
    /// A designator of the logical unit.
    pub designator: Designator,
    /// PERIPHERAL DEVICE TYPE.
    pub device_type: u8,
    /// DISK BLOCK LENGTH.
    pub block_len: u32,
    at: usize,
}

/// A segment descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The operation of the segment.
    pub operation: SegmentOperation,
    at: usize,
}

/// The operation of a segment descriptor. CSCDs are given by their index or [`THIS_UNIT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentOperation {
    /// Copy from block device to block device (02h).
    Copy {
        /// SOURCE CSCD DESCRIPTOR ID.
        source: u16,
        /// DESTINATION CSCD DESCRIPTOR ID.
        destination: u16,
        /// DC: `blocks` are counted in blocks of the destination.
        destination_counts: bool,
        /// BLOCK DEVICE NUMBER OF BLOCKS.
        blocks: u16,
        /// SOURCE BLOCK DEVICE LOGICAL BLOCK ADDRESS.
        source_lba: u64,
        /// DESTINATION BLOCK DEVICE LOGICAL BLOCK ADDRESS.
        destination_lba: u64,
    },
    /// Verify that a CSCD can be reached (07h).
    Verify {
        /// CSCD DESCRIPTOR ID.
        cscd: u16,
        /// TUR: the logical unit must also be ready.
        ready: bool,
    },
}

impl Cscd {
    /// The field PERIPHERAL DEVICE TYPE.
    pub fn device_type_field(&self) -> FieldPointer {
        field(self.at + 1).bit(4)
    }

    /// The field DISK BLOCK LENGTH.
    pub fn block_len_field(&self) -> FieldPointer {
        field(self.at + 29)
    }
}

impl Segment {
    /// The field of the first CSCD descriptor ID.
    pub fn source_field(&self) -> FieldPointer {
        field(self.at + 4)
    }

    /// The field of the second CSCD descriptor ID.
    pub fn destination_field(&self) -> FieldPointer {
        field(self.at + 6)
    }

    /// The field BLOCK DEVICE NUMBER OF BLOCKS.
    pub fn blocks_field(&self) -> FieldPointer {
        field(self.at + 10)
    }

    /// The field of the source LBA.
    pub fn source_lba_field(&self) -> FieldPointer {
        field(self.at + 12)
    }

    /// The field of the destination LBA.
    pub fn destination_lba_field(&self) -> FieldPointer {
        field(self.at + 20)
    }
}

/// The layout of a header, in which the two forms differ.
struct HeaderLayout {
    /// The mask of the defined bits, as long as the header.
    used: &'static [u8],
    list_id: (usize, usize),
    cscds_len_at: usize,
    segments_len: (usize, usize),
    inline_len: (usize, usize),
}

/// LIST ID USAGE, STR and PRIORITY. The last two are hints, which are ignored.
const FLAGS: u8 = 0x3f;

const LID1: HeaderLayout = HeaderLayout {
    used: &[0xff, FLAGS, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    list_id: (0, 1),
    cscds_len_at: 2,
    segments_len: (8, 4),
    inline_len: (12, 4),
};

const LID4: HeaderLayout = HeaderLayout {
    // PARAMETER LIST FORMAT, flags, length of the header's CSCD descriptor; IMMED and G_SENSE; its type code; LIST
    // IDENTIFIER; the three lengths.
    used: &[
        0xff, FLAGS, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x03, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    ],
    list_id: (20, 4),
    cscds_len_at: 42,
    segments_len: (44, 2),
    inline_len: (46, 2),
};

impl CopyListForm {
    /// Bytes in front of the descriptors.
    pub fn header_len(self) -> usize {
        self.layout().used.len()
    }

    fn layout(self) -> &'static HeaderLayout {
        match self {
            Self::Lid1 => &LID1,
            Self::Lid4 => &LID4,
        }
    }
}

/// Parses a list. Bytes after its last descriptor are ignored.
///
/// # Errors
///
/// Sense data: PARAMETER LIST LENGTH ERROR for a list that is shorter than it announces or exceeds the limit for
/// descriptors; TOO MANY TARGET or SEGMENT DESCRIPTORS; UNSUPPORTED TARGET or SEGMENT DESCRIPTOR TYPE CODE; INLINE DATA
/// LENGTH EXCEEDED, because no supported segment uses inline data; INVALID FIELD IN PARAMETER LIST for the rest.
pub fn parse(list: &[u8], form: CopyListForm, limits: &CopyLimits) -> Result<CopyList, SenseData> {
    let layout = form.layout();
    let header_len = form.header_len();
    let (header, descriptors) = list.split_at_checked(header_len).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    check_reserved(header, 0, layout.used)?;
    if form == CopyListForm::Lid4 {
        check_format(header)?;
    }
    let of_len = |(at, len): (usize, usize)| if len == 2 { number::<2>(header, at) } else { number::<4>(header, at) };
    let list_id = list_id(header, layout)?;
    let (cscds_len, segments_len) = (number::<2>(header, layout.cscds_len_at), of_len(layout.segments_len));
    if of_len(layout.inline_len) != 0 {
        let code = AdditionalSense::INLINE_DATA_LENGTH_EXCEEDED;
        return Err(SenseData::illegal_request(code).with_field(field(layout.inline_len.0)));
    }
    if cscds_len % CSCD_LEN as u64 != 0 {
        return Err(field(layout.cscds_len_at).into());
    }
    if cscds_len + segments_len > u64::from(limits.max_descriptors_len) {
        return Err(SenseData::PARAMETER_LIST_LENGTH_ERROR);
    }
    if cscds_len / CSCD_LEN as u64 > u64::from(limits.max_cscds) {
        let code = AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS;
        return Err(SenseData::illegal_request(code).with_field(field(layout.cscds_len_at)));
    }
    let (cscds, rest) =
        descriptors.split_at_checked(cscds_len as usize).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    let segments = rest.get(..segments_len as usize).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    let (cscds, _) = cscds.as_chunks::<CSCD_LEN>();
    let cscds = cscds.iter().enumerate().map(|(index, bytes)| cscd(bytes, header_len + index * CSCD_LEN));
    Ok(CopyList {
        list_id,
        cscds: cscds.collect::<Result<_, _>>()?,
        segments: parse_segments(segments, header_len + cscds_len as usize, limits)?,
    })
}

/// Checks the constant fields of the LID4 header, which identify its format.
fn check_format(header: &[u8]) -> Result<(), FieldPointer> {
    const FORMAT: u64 = 1;
    const HEADER_CSCD_TYPE: u64 = 0xff;
    match () {
        () if number::<1>(header, 0) != FORMAT => Err(field(0)),
        () if number::<2>(header, 2) != CSCD_LEN as u64 => Err(field(2)),
        () if number::<1>(header, 16) != HEADER_CSCD_TYPE => Err(field(16)),
        () => Ok(()),
    }
}

/// The list identifier, if LIST ID USAGE says that there is one.
fn list_id(header: &[u8], layout: &HeaderLayout) -> Result<Option<u32>, FieldPointer> {
    let (at, len) = layout.list_id;
    let id = if len == 1 { number::<1>(header, at) } else { number::<4>(header, at) } as u32;
    match number::<1>(header, 1) >> 3 & 3 {
        // The modes hold and discard data for RECEIVE COPY DATA; no supported segment produces any.
        0b00 | 0b10 => Ok(Some(id)),
        0b11 if id == 0 => Ok(None),
        0b11 => Err(field(at)),
        _ => Err(field(1).bit(4)),
    }
}

fn cscd(bytes: &[u8; CSCD_LEN], at: usize) -> Result<Cscd, SenseData> {
    /// Relative initiator port and the obsolete LU ID TYPE and NUL are ignored; PAD is the only defined device type
    /// specific parameter.
    const USED: [u8; CSCD_LEN] = {
        let mut used = [0xff; CSCD_LEN];
        used[4] = 0x0f;
        used[5] = 0x3f;
        used[6] = 0;
        used[28] = 0x04;
        used
    };
    if bytes[0] != IDENTIFICATION {
        let code = AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE;
        return Err(SenseData::illegal_request(code).with_field(field(at)));
    }
    check_reserved(bytes, at, &USED)?;
    let association = bytes[5] >> 4;
    if association != 0 {
        return Err(field(at + 5).bit(5).into());
    }
    let len = usize::from(bytes[7]);
    let name = bytes[8..8 + MAX_CSCD_DESIGNATOR_LEN].get(..len).filter(|name| !name.is_empty());
    let name = name.ok_or(field(at + 7))?;
    Ok(Cscd {
        designator: Designator::logical_unit(bytes[5] & 0x0f, bytes[4], name),
        device_type: bytes[1] & 0x1f,
        block_len: number::<3>(bytes, 29) as u32,
        at,
    })
}

fn parse_segments(bytes: &[u8], start: usize, limits: &CopyLimits) -> Result<Vec<Segment>, SenseData> {
    let mut segments = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = start + bytes.len() - rest.len();
        if segments.len() == usize::from(limits.max_segments) {
            let code = AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS;
            return Err(SenseData::illegal_request(code).with_field(field(at)));
        }
        let (operation, behind) = segment(rest, at)?;
        segments.push(Segment { operation, at });
        rest = behind;
    }
    Ok(segments)
}

/// Splits the first segment descriptor from `bytes`, which begin at offset `at`: its operation, and the remaining
/// bytes.
fn segment(bytes: &[u8], at: usize) -> Result<(SegmentOperation, &[u8]), SenseData> {
    const COPY_USED: [u8; 28] = {
        let mut used = [0xff; 28];
        used[1] = 0x03;
        used[8] = 0;
        used[9] = 0;
        used
    };
    const VERIFY_USED: [u8; 12] = [0xff, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x01, 0, 0, 0];
    const DC: u8 = 0x02;
    const TUR: u8 = 0x01;
    let used: &[u8] = match bytes.first() {
        Some(&BLOCK_TO_BLOCK) => &COPY_USED,
        Some(&VERIFY_CSCD) => &VERIFY_USED,
        _ => {
            let code = AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE;
            return Err(SenseData::illegal_request(code).with_field(field(at)));
        }
    };
    let (descriptor, behind) = bytes.split_at_checked(used.len()).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    if number::<2>(descriptor, 2) as usize != used.len() - SEGMENT_HEADER_LEN {
        return Err(field(at + 2).into());
    }
    check_reserved(descriptor, at, used)?;
    let first = number::<2>(descriptor, 4) as u16;
    let operation = if descriptor[0] == VERIFY_CSCD {
        SegmentOperation::Verify { cscd: first, ready: descriptor[8] & TUR != 0 }
    } else {
        SegmentOperation::Copy {
            source: first,
            destination: number::<2>(descriptor, 6) as u16,
            destination_counts: descriptor[1] & DC != 0,
            blocks: number::<2>(descriptor, 10) as u16,
            source_lba: number::<8>(descriptor, 12),
            destination_lba: number::<8>(descriptor, 20),
        }
    };
    Ok((operation, behind))
}

#[cfg(test)]
mod tests;
