//! GET LBA STATUS parameter data (SBC-4 5.6).

/// Bytes in front of the descriptors.
pub const HEADER_LEN: usize = 8;

/// Bytes of a descriptor.
pub const DESCRIPTOR_LEN: usize = 16;

/// The provisioning status of consecutive blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LbaStatus {
    /// The first logical block address.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// PROVISIONING STATUS: mapped or deallocated.
    pub mapped: bool,
}

/// Encodes the parameter data for `list`.
pub fn emit(list: &[LbaStatus]) -> Vec<u8> {
    const DEALLOCATED: u8 = 1;
    let len = (HEADER_LEN - 4 + list.len() * DESCRIPTOR_LEN) as u32;
    let mut data = [len.to_be_bytes(), [0; 4]].concat();
    for status in list {
        data.extend_from_slice(&status.lba.to_be_bytes());
        data.extend_from_slice(&status.blocks.to_be_bytes());
        data.extend_from_slice(&[if status.mapped { 0 } else { DEALLOCATED }, 0, 0, 0]);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_follow_the_header_that_counts_them() {
        let list = [LbaStatus { lba: 1, blocks: 2, mapped: true }, LbaStatus { lba: 3, blocks: 4, mapped: false }];
        let data = emit(&list);
        assert_eq!(data[..8], [0, 0, 0, 36, 0, 0, 0, 0]);
        assert_eq!(data[8..24], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(data[24..], [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 1, 0, 0, 0]);
    }
}
