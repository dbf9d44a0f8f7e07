//! Command descriptor blocks.

use crate::{FieldPointer, OpCode, ServiceAction};

/// The longest CDB of any kind (SAM-5 5.2).
pub const MAX_CDB_LEN: usize = 260;

/// Bytes of a CDB in the header of a SCSI Command PDU.
const BASE_LEN: usize = 16;

/// A CDB: 16 bytes, padded with zeroes, and the additional bytes of an extended CDB.
///
/// ```
/// use lunette_scsi::{Cdb, OpCode};
///
/// let mut bytes = [0; 16];
/// bytes[0] = 0x28;
/// bytes[5] = 7;
/// let cdb = Cdb::from(bytes);
/// assert_eq!(cdb.opcode(), OpCode::READ_10);
/// assert_eq!(cdb.u32_at(2), 7);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cdb {
    base: [u8; BASE_LEN],
    additional: Box<[u8]>,
}

/// A CDB longer than [`MAX_CDB_LEN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a CDB of {len} bytes exceeds {MAX_CDB_LEN}")]
pub struct CdbTooLong {
    /// The length of the rejected CDB in bytes.
    pub len: usize,
}

impl From<[u8; BASE_LEN]> for Cdb {
    /// Converts a CDB of 16 bytes, without an allocation.
    fn from(base: [u8; BASE_LEN]) -> Self {
        Self { base, additional: Box::default() }
    }
}

impl Cdb {
    /// An extended CDB, with bytes beyond the sixteenth.
    ///
    /// # Errors
    ///
    /// When the whole is longer than [`MAX_CDB_LEN`].
    pub fn extended(base: [u8; BASE_LEN], additional: &[u8]) -> Result<Self, CdbTooLong> {
        let len = BASE_LEN + additional.len();
        if len > MAX_CDB_LEN {
            return Err(CdbTooLong { len });
        }
        Ok(Self { base, additional: additional.into() })
    }

    /// The operation code, in byte 0.
    pub fn opcode(&self) -> OpCode {
        OpCode(self.base[0])
    }

    /// The length in bytes: 16, or more for an extended CDB. The iSCSI header does not distinguish shorter CDBs.
    #[expect(clippy::len_without_is_empty, reason = "a CDB is never empty")]
    pub fn len(&self) -> usize {
        BASE_LEN + self.additional.len()
    }

    /// The service action, for operation codes that have one: in bytes 8 and 9 of a variable length CDB, else in byte 1
    /// (SPC-5 4.2.5.2).
    pub fn service_action(&self) -> ServiceAction {
        match self.opcode() {
            OpCode::VARIABLE_LENGTH => ServiceAction(self.u16_at(8)),
            _ => ServiceAction(u16::from(self.base[1] & 0x1f)),
        }
    }

    /// The field of the service action, for sense data.
    pub fn service_action_field(&self) -> FieldPointer {
        match self.opcode() {
            OpCode::VARIABLE_LENGTH => FieldPointer::cdb(8),
            _ => FieldPointer::cdb(1).bit(4),
        }
    }

    /// The offset of the flags byte, which holds DPO, FUA, UNMAP and BYTCHK: byte 10 of a variable length CDB,
    /// otherwise byte 1.
    pub fn flags_at(&self) -> u16 {
        if self.opcode() == OpCode::VARIABLE_LENGTH { 10 } else { 1 }
    }

    /// Whether any bit of `mask` is set in the flags byte.
    pub fn flag(&self, mask: u8) -> bool {
        self.bit(usize::from(self.flags_at()), mask)
    }

    /// Byte `at`; zero beyond the end.
    pub fn byte(&self, at: usize) -> u8 {
        match at.checked_sub(BASE_LEN) {
            None => self.base[at],
            Some(beyond) => self.additional.get(beyond).copied().unwrap_or(0),
        }
    }

    /// Whether any bit of `mask` is set in byte `at`.
    pub fn bit(&self, at: usize, mask: u8) -> bool {
        self.byte(at) & mask != 0
    }

    /// The two bytes at `at`, big-endian.
    pub fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    /// The four bytes at `at`, big-endian.
    pub fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    /// The eight bytes at `at`, big-endian.
    pub fn u64_at(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|index| self.byte(at + index))
    }
}

/// Checks `cdb` against the usage bitmap of its command (SPC-5, CDB USAGE DATA): one bit for each bit that the device
/// server evaluates. Byte 0, the operation code, is skipped.
///
/// # Errors
///
/// The first bit that is set and not in the bitmap.
pub fn check_usage(cdb: &Cdb, usage: &[u8]) -> Result<(), FieldPointer> {
    // All at once first, because stray bits are rare.
    if usage.len() <= BASE_LEN && usage.iter().zip(&cdb.base).skip(1).all(|(mask, byte)| byte & !mask == 0) {
        return Ok(());
    }
    for (at, mask) in usage.iter().enumerate().skip(1) {
        let stray = cdb.byte(at) & !mask;
        if stray != 0 {
            return Err(FieldPointer::cdb(at as u16).bit(stray.ilog2() as u8));
        }
    }
    Ok(())
}

/// Checks that ADDITIONAL CDB LENGTH of a variable length CDB announces `len` bytes in all, and that the CDB has them
/// (SPC-5 4.2.3).
///
/// # Errors
///
/// The field, when it announces another length or the CDB has fewer bytes.
pub fn check_additional_len(cdb: &Cdb, len: usize) -> Result<(), FieldPointer> {
    const ADDITIONAL_CDB_LENGTH: usize = 7;
    let says = usize::from(cdb.byte(ADDITIONAL_CDB_LENGTH)) + ADDITIONAL_CDB_LENGTH + 1;
    if says == len && cdb.len() >= len { Ok(()) } else { Err(FieldPointer::cdb(ADDITIONAL_CDB_LENGTH as u16)) }
}

/// The common fields of commands on a range of logical blocks, in their 6, 10, 12, 16 and 32-byte forms (SPC-5 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCdb {
    /// The first logical block address.
    pub lba: u64,
    /// TRANSFER LENGTH, VERIFICATION LENGTH or NUMBER OF LOGICAL BLOCKS. The zero of a 6-byte CDB is already 256 here.
    pub blocks: u32,
    /// The field of the LBA, for sense data.
    pub lba_field: FieldPointer,
    /// The field of the number of blocks, for sense data.
    pub blocks_field: FieldPointer,
}

impl BlockCdb {
    /// Parses the fields by the group code of the operation code; `None` for groups without such a form. COMPARE AND
    /// WRITE and WRITE ATOMIC have shorter block counts than their group.
    pub fn parse(cdb: &Cdb) -> Option<Self> {
        let (lba, blocks, lba_at, blocks_at) = match cdb.opcode().0 >> 5 {
            4 if cdb.opcode() == OpCode::COMPARE_AND_WRITE => (cdb.u64_at(2), u32::from(cdb.byte(13)), 2, 13),
            4 if cdb.opcode() == OpCode::WRITE_ATOMIC_16 => (cdb.u64_at(2), u32::from(cdb.u16_at(12)), 2, 12),
            0 => {
                let lba = u64::from(cdb.u32_at(0) & 0x001f_ffff);
                let blocks = if cdb.byte(4) == 0 { 256 } else { u32::from(cdb.byte(4)) };
                (lba, blocks, 1, 4)
            }
            1 | 2 => (u64::from(cdb.u32_at(2)), u32::from(cdb.u16_at(7)), 2, 7),
            3 if cdb.opcode() == OpCode::VARIABLE_LENGTH => (cdb.u64_at(12), cdb.u32_at(28), 12, 28),
            4 => (cdb.u64_at(2), cdb.u32_at(10), 2, 10),
            5 => (u64::from(cdb.u32_at(2)), cdb.u32_at(6), 2, 6),
            _ => return None,
        };
        let lba_field = FieldPointer::cdb(lba_at);
        Some(Self { lba, blocks, lba_field, blocks_field: FieldPointer::cdb(blocks_at) })
    }

    /// The block after the last one; `None` when it exceeds 64 bits.
    pub fn end(&self) -> Option<u64> {
        self.lba.checked_add(u64::from(self.blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cdb(bytes: &[u8]) -> Cdb {
        let mut base = [0; BASE_LEN];
        base[..bytes.len()].copy_from_slice(bytes);
        Cdb::from(base)
    }

    #[test]
    fn every_form_has_its_lba_and_length() {
        let forms: [(&[u8], u64, u32); 7] = [
            (&[0x08, 0xff, 2, 3, 4, 0], 0x1f_0203, 4),
            (&[0x08, 0, 0, 0, 0, 0], 0, 256),
            (&[0x28, 0, 1, 2, 3, 4, 0xff, 5, 6, 0], 0x0102_0304, 0x0506),
            (&[0xa8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0], 0x0102_0304, 0x0506_0708),
            (&[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xff, 0], 0x0102_0304_0506_0708, 0x090a_0b0c),
            (&[0x89, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff, 0xff, 12, 0xff, 0], 0x0102_0304_0506_0708, 12),
            (&[0x9c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff, 11, 12, 0xff, 0], 0x0102_0304_0506_0708, 0x0b0c),
        ];
        for (bytes, lba, blocks) in forms {
            let parsed = BlockCdb::parse(&cdb(bytes)).unwrap();
            assert_eq!((parsed.lba, parsed.blocks), (lba, blocks), "{bytes:x?}");
        }
        assert_eq!(BlockCdb::parse(&cdb(&[0x60])), None);
    }

    #[test]
    fn a_variable_length_cdb_has_its_fields_further_behind() {
        let base = [0x7f, 0, 0, 0, 0, 0, 0, 0x18, 0x00, 0x0b, 0x08, 0xff, 1, 2, 3, 4];
        let cdb = Cdb::extended(base, &[5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 9, 10, 11, 12]).unwrap();
        let parsed = BlockCdb::parse(&cdb).unwrap();
        assert_eq!((parsed.lba, parsed.blocks), (0x0102_0304_0506_0708, 0x090a_0b0c));
        assert_eq!((parsed.lba_field, parsed.blocks_field), (FieldPointer::cdb(12), FieldPointer::cdb(28)));
        assert_eq!(cdb.service_action(), ServiceAction::WRITE_32);
        assert!(cdb.flag(0x08) && !cdb.flag(0xf7));
        assert_eq!(check_additional_len(&cdb, 32), Ok(()));
        assert_eq!(check_additional_len(&cdb, 36), Err(FieldPointer::cdb(7)), "another length");
        let short = Cdb::extended(base, &[0; 15]).unwrap();
        assert_eq!(check_additional_len(&short, 32), Err(FieldPointer::cdb(7)), "bytes are missing");
    }

    #[test]
    fn the_end_of_a_range_does_not_wrap() {
        let mut bytes = [0xff; 16];
        bytes[0] = 0x88;
        assert_eq!(BlockCdb::parse(&Cdb::from(bytes)).unwrap().end(), None);
    }

    #[test]
    fn a_stray_bit_is_pointed_at() {
        let usage = [0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0x00];
        assert_eq!(check_usage(&cdb(&[0x28, 0x18, 1, 2, 3, 4, 5, 6, 7, 0]), &usage), Ok(()));
        assert_eq!(check_usage(&cdb(&[0x28, 0x62]), &usage), Err(FieldPointer::cdb(1).bit(6)));
        assert_eq!(check_usage(&cdb(&[0x28, 0, 0, 0, 0, 0, 0, 0, 0, 4]), &usage), Err(FieldPointer::cdb(9).bit(2)));
    }

    #[test]
    fn bytes_beyond_the_end_are_zero() {
        let short = cdb(&[0x7f]);
        assert_eq!((short.byte(16), short.u64_at(12), short.u32_at(1000)), (0, 0, 0));
        let long = Cdb::extended([0; 16], &[1, 2, 3]).unwrap();
        assert_eq!((long.byte(17), long.u16_at(18)), (2, 0x0300));
        assert_eq!(Cdb::extended([0; 16], &[0; 245]), Err(CdbTooLong { len: 261 }));
    }
}
