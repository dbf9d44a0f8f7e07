//! The properties of an export, as far as a store needs them. Pure.

use lunette_store::{Capabilities, Geometry, whole_blocks};

use super::OpenError;
use super::handshake::Agreed;
use super::limits::{MAX_EXPORT_LEN, MAX_MINIMUM_BLOCK_LEN, MAX_RANGE_LEN};
use crate::limits::MAX_BLOCK_LEN;
use crate::wire::can;

/// The shortest logical block of a SCSI disk.
const SHORT_BLOCK: u32 = 512;
/// The longest request to a server that announces no limit ("Block size constraints").
const DEFAULT_MAX_LEN: u32 = 32 << 20;
/// The block that a server without an announcement prefers ("Block size constraints").
const DEFAULT_PREFERRED: u32 = 4096;

/// The properties of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) len_bytes: u64,
    /// The length of a logical block.
    pub(crate) block_len: u32,
    preferred: u32,
    /// The most bytes of one command, whole blocks.
    pub(crate) max_len: u32,
    flags: u16,
    /// Reads are answered with structured replies.
    pub(crate) structured: bool,
}

impl Facts {
    /// Checks what was negotiated. With `read_only` nothing is ever written.
    pub(crate) fn new(agreed: &Agreed, read_only: bool) -> Result<Self, OpenError> {
        let [least, preferred, most] = agreed.block_sizes.unwrap_or([1, DEFAULT_PREFERRED, DEFAULT_MAX_LEN]);
        if !least.is_power_of_two() || !preferred.is_power_of_two() || preferred < least {
            return Err(OpenError::Protocol("block sizes that are no powers of two in order"));
        }
        if most < least || (most != u32::MAX && !most.is_multiple_of(least)) {
            return Err(OpenError::Protocol("a maximum block size that is no multiple of the minimum"));
        }
        if least > MAX_MINIMUM_BLOCK_LEN {
            return Err(OpenError::BlockLen(least));
        }
        let block_len = if least > SHORT_BLOCK { MAX_MINIMUM_BLOCK_LEN } else { SHORT_BLOCK };
        let max_len = whole_blocks(most.min(MAX_RANGE_LEN).into(), block_len) as u32;
        let len_bytes = whole_blocks(agreed.len_bytes, block_len);
        if max_len == 0 {
            return Err(OpenError::BlockLen(most));
        }
        if len_bytes == 0 || agreed.len_bytes > MAX_EXPORT_LEN {
            return Err(OpenError::Len(agreed.len_bytes));
        }
        let mut flags = if agreed.flags & can::HAS_FLAGS == 0 { 0 } else { agreed.flags };
        if read_only {
            flags |= can::READ_ONLY;
        }
        let facts = Self { len_bytes, block_len, preferred, max_len, flags, structured: agreed.structured };
        if !facts.read_only() && !facts.can(can::FLUSH) && !facts.can(can::FUA) {
            return Err(OpenError::NotDurable);
        }
        Ok(facts)
    }

    pub(crate) fn can(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn read_only(&self) -> bool {
        self.can(can::READ_ONLY)
    }

    /// Whether all writes go through the cache, because it cannot be flushed.
    pub(crate) fn writes_through(&self) -> bool {
        !self.can(can::FLUSH)
    }

    pub(crate) fn geometry(&self) -> Geometry {
        let preferred = self.preferred.clamp(self.block_len, MAX_BLOCK_LEN);
        Geometry {
            len_bytes: self.len_bytes,
            granularity_bytes: self.block_len,
            physical_bytes: preferred,
            unmap_bytes: preferred,
        }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities {
            read_only: self.read_only(),
            volatile_cache: !self.read_only() && !self.writes_through(),
            unmap: self.can(can::TRIM) && !self.read_only(),
            // A trim may leave the bytes as they are ("Request types").
            unmap_zeroes: false,
            anchors: false,
            write_zeroes: self.can(can::WRITE_ZEROES),
            memory: false,
        }
    }

    /// Checks that `new`, of a later connection, can take the place of these facts.
    pub(crate) fn check_same(&self, new: &Self) -> Result<(), OpenError> {
        let needed = self.flags & (can::FLUSH | can::FUA | can::TRIM | can::WRITE_ZEROES);
        if new.len_bytes < self.len_bytes {
            return Err(OpenError::Changed("length"));
        }
        if new.block_len > self.block_len {
            return Err(OpenError::Changed("block size"));
        }
        if new.read_only() && !self.read_only() {
            return Err(OpenError::Changed("being writable"));
        }
        if new.flags & needed == needed { Ok(()) } else { Err(OpenError::Changed("transmission flags")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: u16 = can::HAS_FLAGS | can::FLUSH | can::FUA;

    fn facts(len_bytes: u64, flags: u16, block_sizes: Option<[u32; 3]>) -> Result<Facts, OpenError> {
        Facts::new(&Agreed { len_bytes, flags, block_sizes, structured: true }, false)
    }

    #[test]
    fn blocks_are_those_of_scsi_disks() {
        for (sizes, block_len, max_len) in [
            (None, 512, 32 << 20),
            (Some([1, 4096, u32::MAX]), 512, 1 << 30),
            (Some([512, 512, 1 << 20]), 512, 1 << 20),
            (Some([1024, 4096, 1 << 20]), 4096, 1 << 20),
            (Some([4096, 1 << 16, 33 << 20]), 4096, 33 << 20),
            (Some([1, 1, 1000]), 512, 512),
        ] {
            let facts = facts(1 << 30, FLAGS, sizes).unwrap();
            assert_eq!((facts.block_len, facts.max_len), (block_len, max_len), "{sizes:?}");
            let geometry = facts.geometry();
            assert!(geometry.physical_bytes.is_multiple_of(block_len), "{sizes:?}");
        }
        assert!(matches!(facts(1 << 30, FLAGS, Some([8192, 8192, 1 << 20])), Err(OpenError::BlockLen(8192))));
        assert!(matches!(facts(1 << 30, FLAGS, Some([1, 1, 511])), Err(OpenError::BlockLen(511))));
        for wrong in [[0, 4096, 4096], [3, 4096, 4098], [4096, 512, 4096], [512, 512, 513], [512, 512, 0], [1, 0, 1]] {
            assert!(matches!(facts(1 << 30, FLAGS, Some(wrong)), Err(OpenError::Protocol(_))), "{wrong:?}");
        }
    }

    #[test]
    fn a_disk_has_whole_blocks() {
        assert_eq!(facts(1_500_000, FLAGS, None).unwrap().len_bytes, 1_499_648);
        for wrong in [0, 511, MAX_EXPORT_LEN + 1, u64::MAX] {
            assert!(matches!(facts(wrong, FLAGS, None), Err(OpenError::Len(_))), "{wrong}");
        }
    }

    #[test]
    fn flags_are_promises() {
        let capabilities = |flags| facts(1 << 20, flags, None).map(|facts| facts.capabilities());
        let flushes = capabilities(FLAGS).unwrap();
        assert!(flushes.volatile_cache && !flushes.unmap && !flushes.write_zeroes && !flushes.read_only);
        assert!(!capabilities(can::HAS_FLAGS | can::FUA).unwrap().volatile_cache, "it is written through");
        assert!(matches!(capabilities(can::HAS_FLAGS), Err(OpenError::NotDurable)));
        assert!(matches!(capabilities(can::FLUSH), Err(OpenError::NotDurable)), "not without HAS_FLAGS");
        let fixed = capabilities(can::HAS_FLAGS | can::READ_ONLY | can::TRIM).unwrap();
        assert!(fixed.read_only && !fixed.unmap);
    }

    #[test]
    fn another_export_does_not_take_the_place_of_the_first() {
        let first = facts(1 << 20, FLAGS, Some([512, 512, 1 << 20])).unwrap();
        let check = |len, flags, least| {
            let new = facts(len, flags, Some([least, 4096, 1 << 20])).unwrap();
            first.check_same(&new).map_err(|error| error.to_string())
        };
        assert_eq!(check(1 << 21, FLAGS | can::TRIM, 1), Ok(()));
        for (wrong, what) in [
            (check(1 << 19, FLAGS, 512), "length"),
            (check(1 << 20, FLAGS, 4096), "block size"),
            (check(1 << 20, FLAGS | can::READ_ONLY, 512), "writable"),
            (check(1 << 20, can::HAS_FLAGS | can::FUA, 512), "flags"),
        ] {
            assert!(wrong.unwrap_err().contains(what), "{what}");
        }
    }
}
