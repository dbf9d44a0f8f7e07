//! The parameter lists of EXTENDED COPY(LID1) and (LID4) (SPC-5 6.5, 6.6).

use super::{CopyLimits, LIST_LENGTH, check_reserved, field, number};
use crate::vpd::Designator;
use crate::{AdditionalSense, FieldPointer, SenseData};

/// Bytes of a CSCD descriptor.
pub const CSCD_LEN: usize = 32;

/// The descriptor type codes that this crate reads, in their order: segments, then CSCDs.
pub const DESCRIPTOR_TYPES: [u8; 3] = [BLOCK_TO_BLOCK, VERIFY_CSCD, IDENTIFICATION];

/// The CSCD descriptor ID of the logical unit that got the command.
pub const THIS_UNIT: u16 = 0xffff;

const BLOCK_TO_BLOCK: u8 = 0x02;
const VERIFY_CSCD: u8 = 0x07;
pub(crate) const IDENTIFICATION: u8 = 0xe4;

/// What stands in front of the length of a segment descriptor's rest.
const SEGMENT_HEADER_LEN: usize = 4;
/// The longest designator of an identification descriptor.
pub(crate) const MAX_CSCD_DESIGNATOR_LEN: usize = 20;

/// Which command the list belongs to: their headers differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListForm {
    /// EXTENDED COPY(LID1).
    Lid1,
    /// EXTENDED COPY(LID4).
    Lid4,
}

/// A whole parameter list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyList {
    /// LIST IDENTIFIER; `None` when the initiator will not ask for the outcome.
    pub list_id: Option<u32>,
    /// Copy sources and copy destinations.
    pub cscds: Vec<Cscd>,
    /// What to do, in this order.
    pub segments: Vec<Segment>,
}

/// A copy source or copy destination: an identification descriptor CSCD descriptor (E4h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cscd {
    /// A name of the logical unit.
    pub designator: Designator,
    /// PERIPHERAL DEVICE TYPE.
    pub device_type: u8,
    /// DISK BLOCK LENGTH.
    pub block_len: u32,
    at: usize,
}

/// One step of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// What it does.
    pub operation: Operation,
    at: usize,
}

/// What a segment descriptor asks for. CSCDs are given by their index or [`THIS_UNIT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
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
        /// TUR: it must be ready, too.
        ready: bool,
    },
}

impl Cscd {
    /// Where PERIPHERAL DEVICE TYPE stands.
    pub fn device_type_field(&self) -> FieldPointer {
        field(self.at + 1).bit(4)
    }

    /// Where DISK BLOCK LENGTH stands.
    pub fn block_len_field(&self) -> FieldPointer {
        field(self.at + 29)
    }
}

impl Segment {
    /// Where the (first) CSCD descriptor ID stands.
    pub fn source_field(&self) -> FieldPointer {
        field(self.at + 4)
    }

    /// Where the second CSCD descriptor ID stands.
    pub fn destination_field(&self) -> FieldPointer {
        field(self.at + 6)
    }

    /// Where BLOCK DEVICE NUMBER OF BLOCKS stands.
    pub fn blocks_field(&self) -> FieldPointer {
        field(self.at + 10)
    }

    /// Where the LBA of the source stands.
    pub fn source_lba_field(&self) -> FieldPointer {
        field(self.at + 12)
    }

    /// Where the LBA of the destination stands.
    pub fn destination_lba_field(&self) -> FieldPointer {
        field(self.at + 20)
    }
}

/// What differs between the two headers.
struct Layout {
    /// The bits with a meaning. As long as the header.
    used: &'static [u8],
    list_id: (usize, usize),
    cscds_len_at: usize,
    segments_len: (usize, usize),
    inline_len: (usize, usize),
}

/// LIST ID USAGE, STR and PRIORITY. The last two are hints that change nothing here.
const FLAGS: u8 = 0x3f;

const LID1: Layout = Layout {
    used: &[0xff, FLAGS, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    list_id: (0, 1),
    cscds_len_at: 2,
    segments_len: (8, 4),
    inline_len: (12, 4),
};

const LID4: Layout = Layout {
    // PARAMETER LIST FORMAT, flags, length of the header's CSCD descriptor; IMMED and G_SENSE; its type code; LIST IDENTIFIER;
    // the three lengths.
    used: &[
        0xff, FLAGS, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x03, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    ],
    list_id: (20, 4),
    cscds_len_at: 42,
    segments_len: (44, 2),
    inline_len: (46, 2),
};

impl ListForm {
    /// Bytes in front of the descriptors.
    pub fn header_len(self) -> usize {
        self.layout().used.len()
    }

    fn layout(self) -> &'static Layout {
        match self {
            Self::Lid1 => &LID1,
            Self::Lid4 => &LID4,
        }
    }
}

/// Reads a list. Bytes behind its last descriptor mean nothing.
///
/// # Errors
///
/// Sense data: PARAMETER LIST LENGTH ERROR for a list that is shorter than it says or has more descriptors than fit; TOO MANY
/// TARGET or SEGMENT DESCRIPTORS; UNSUPPORTED TARGET or SEGMENT DESCRIPTOR TYPE CODE; INLINE DATA LENGTH EXCEEDED, as there is no
/// use for any; INVALID FIELD IN PARAMETER LIST for the rest.
pub fn parse(list: &[u8], form: ListForm, limits: &CopyLimits) -> Result<CopyList, SenseData> {
    let layout = form.layout();
    let header_len = form.header_len();
    let (header, descriptors) = list.split_at_checked(header_len).ok_or(LIST_LENGTH)?;
    check_reserved(header, 0, layout.used)?;
    if form == ListForm::Lid4 {
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
        return Err(LIST_LENGTH);
    }
    if cscds_len / CSCD_LEN as u64 > u64::from(limits.max_cscds) {
        let code = AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS;
        return Err(SenseData::illegal_request(code).with_field(field(layout.cscds_len_at)));
    }
    let (cscds, rest) = descriptors.split_at_checked(cscds_len as usize).ok_or(LIST_LENGTH)?;
    let segments = rest.get(..segments_len as usize).ok_or(LIST_LENGTH)?;
    let (cscds, _) = cscds.as_chunks::<CSCD_LEN>();
    let cscds = cscds.iter().enumerate().map(|(index, bytes)| cscd(bytes, header_len + index * CSCD_LEN));
    Ok(CopyList {
        list_id,
        cscds: cscds.collect::<Result<_, _>>()?,
        segments: parse_segments(segments, header_len + cscds_len as usize, limits)?,
    })
}

/// What only the header of LID4 has: fixed values that tell its format.
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

/// LIST ID USAGE says whether there is one.
fn list_id(header: &[u8], layout: &Layout) -> Result<Option<u32>, FieldPointer> {
    let (at, len) = layout.list_id;
    let id = if len == 1 { number::<1>(header, at) } else { number::<4>(header, at) } as u32;
    match number::<1>(header, 1) >> 3 & 3 {
        // Hold data for RECEIVE COPY DATA, of which there is none here, or discard it.
        0b00 | 0b10 => Ok(Some(id)),
        0b11 if id == 0 => Ok(None),
        0b11 => Err(field(at)),
        _ => Err(field(1).bit(4)),
    }
}

fn cscd(bytes: &[u8; CSCD_LEN], at: usize) -> Result<Cscd, SenseData> {
    /// Relative initiator port and the obsolete LU ID TYPE and NUL are not looked at; of the device type specific parameters
    /// there is PAD.
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

/// The segment descriptor in front of `bytes`, which stand at `at`, and what comes behind it.
fn segment(bytes: &[u8], at: usize) -> Result<(Operation, &[u8]), SenseData> {
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
    let (descriptor, behind) = bytes.split_at_checked(used.len()).ok_or(LIST_LENGTH)?;
    if number::<2>(descriptor, 2) as usize != used.len() - SEGMENT_HEADER_LEN {
        return Err(field(at + 2).into());
    }
    check_reserved(descriptor, at, used)?;
    let first = number::<2>(descriptor, 4) as u16;
    let operation = if descriptor[0] == VERIFY_CSCD {
        Operation::Verify { cscd: first, ready: descriptor[8] & TUR != 0 }
    } else {
        Operation::Copy {
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
