//! READ CAPACITY data (SBC-4 5.20, 5.21).

/// READ CAPACITY(10) data.
///
/// A last address above 32 bits is reported as `FFFF_FFFFh`, upon which the initiator sends READ CAPACITY(16).
///
/// ```
/// assert_eq!(lunette_scsi::capacity::read_capacity_10(0x1_0000_0000, 512), [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
/// ```
pub fn read_capacity_10(last_lba: u64, block_len: u32) -> [u8; 8] {
    let mut data = [0; 8];
    data[..4].copy_from_slice(&u32::try_from(last_lba).unwrap_or(u32::MAX).to_be_bytes());
    data[4..].copy_from_slice(&block_len.to_be_bytes());
    data
}

/// READ CAPACITY(16) data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadCapacity16 {
    /// RETURNED LOGICAL BLOCK ADDRESS: the last one.
    pub last_lba: u64,
    /// LOGICAL BLOCK LENGTH IN BYTES.
    pub block_len: u32,
    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT, 0 to 15.
    pub physical_exponent: u8,
    /// LBPME: logical block provisioning management is enabled.
    pub provisioned: bool,
    /// LBPRZ: unmapped blocks read as zero.
    pub unmapped_zero: bool,
}

impl ReadCapacity16 {
    /// Bytes of the data.
    pub const LEN: usize = 32;

    const LBPME: u8 = 0x80;
    const LBPRZ: u8 = 0x40;

    /// The encoded data, for a medium without protection information whose first block is aligned.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut data = [0; Self::LEN];
        data[..8].copy_from_slice(&self.last_lba.to_be_bytes());
        data[8..12].copy_from_slice(&self.block_len.to_be_bytes());
        data[13] = self.physical_exponent & 0x0f;
        if self.provisioned {
            data[14] |= Self::LBPME;
        }
        if self.unmapped_zero {
            data[14] |= Self::LBPRZ;
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_the_standard_puts_them() {
        let capacity = ReadCapacity16 {
            last_lba: 0x0102_0304_0506_0708,
            block_len: 4096,
            physical_exponent: 3,
            provisioned: true,
            unmapped_zero: true,
        };
        let data = capacity.emit();
        assert_eq!(&data[..16], [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 16, 0, 0, 3, 0xc0, 0]);
        assert_eq!(&data[16..], [0; 16]);
    }
}
