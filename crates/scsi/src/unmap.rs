//! The UNMAP parameter list (SBC-4 5.38.2).

/// Bytes in front of the block descriptors.
pub const HEADER_LEN: usize = 8;

/// Bytes of a block descriptor.
pub const DESCRIPTOR_LEN: usize = 16;

/// A range to unmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnmapRange {
    /// The first logical block address.
    pub lba: u64,
    /// Number of blocks; zero is no error.
    pub blocks: u32,
}

/// The list is shorter than its header, or than it announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the UNMAP parameter list has {len} bytes and needs {needed}")]
pub struct ListTooShort {
    /// Length of the list in bytes.
    pub len: usize,
    /// Length in bytes that the list announces.
    pub needed: usize,
}

/// Parses the ranges of a parameter list, in their order. Bytes after the last whole descriptor are ignored, as the
/// standard requires when BLOCK DESCRIPTOR DATA LENGTH is not a multiple of 16.
///
/// # Errors
///
/// When the list ends before the last announced descriptor.
pub fn parse(list: &[u8]) -> Result<impl ExactSizeIterator<Item = UnmapRange> + Clone + use<'_>, ListTooShort> {
    let short = |needed| ListTooShort { len: list.len(), needed };
    let (header, descriptors) = list.split_first_chunk::<HEADER_LEN>().ok_or(short(HEADER_LEN))?;
    let announced = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let descriptors = descriptors.get(..announced).ok_or(short(HEADER_LEN + announced))?;
    let (descriptors, _) = descriptors.as_chunks::<DESCRIPTOR_LEN>();
    Ok(descriptors.iter().map(|bytes| {
        // LBA, number of blocks, four reserved bytes: three numbers in sixteen bytes.
        let descriptor = u128::from_be_bytes(*bytes);
        UnmapRange { lba: (descriptor >> 64) as u64, blocks: (descriptor >> 32) as u32 }
    }))
}

/// Encodes a parameter list of `ranges`. Ranges beyond the 4,095th do not fit and are left out.
pub fn emit(ranges: &[UnmapRange]) -> Vec<u8> {
    const MAX_RANGES: usize = (u16::MAX as usize - HEADER_LEN) / DESCRIPTOR_LEN;
    let ranges = &ranges[..ranges.len().min(MAX_RANGES)];
    let len = (ranges.len() * DESCRIPTOR_LEN) as u16;
    let mut list = [(len + HEADER_LEN as u16 - 2).to_be_bytes(), len.to_be_bytes(), [0; 2], [0; 2]].concat();
    for range in ranges {
        list.extend_from_slice(&range.lba.to_be_bytes());
        list.extend_from_slice(&range.blocks.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_list_shorter_than_it_says_is_refused() {
        let mut list = emit(&[UnmapRange { lba: 1, blocks: 2 }]);
        assert_eq!(parse(&list).unwrap().len(), 1);
        list.pop();
        assert_eq!(parse(&list).err(), Some(ListTooShort { len: 23, needed: 24 }));
        assert_eq!(parse(&list[..7]).err(), Some(ListTooShort { len: 7, needed: 8 }));
    }

    #[test]
    fn a_broken_descriptor_at_the_end_is_ignored() {
        let mut list = emit(&[UnmapRange { lba: 1, blocks: 2 }]);
        list[3] += 5;
        list.extend_from_slice(&[0xff; 5]);
        assert_eq!(parse(&list).unwrap().collect::<Vec<_>>(), [UnmapRange { lba: 1, blocks: 2 }]);
    }

    proptest! {
        #[test]
        fn parsing_round_trips(ranges in proptest::collection::vec(any::<(u64, u32)>(), 0..40)) {
            let ranges: Vec<_> = ranges.into_iter().map(|(lba, blocks)| UnmapRange { lba, blocks }).collect();
            let list = emit(&ranges);
            prop_assert_eq!(parse(&list).unwrap().collect::<Vec<_>>(), ranges);
        }

        #[test]
        fn parsing_never_panics(list in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(ranges) = parse(&list) {
                prop_assert!(ranges.len() <= list.len() / DESCRIPTOR_LEN);
            }
        }
    }
}
