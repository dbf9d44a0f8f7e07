//! The designators of a logical unit, which follow from its serial number.

use lunette_scsi::vpd::Designator;

use super::LogicalUnit;

impl LogicalUnit {
    /// The locally assigned NAA designator: the serial number, hashed.
    pub(crate) fn naa_designator(&self) -> Designator {
        Designator::naa_local(self.identity())
    }

    /// The designators that identify the logical unit itself.
    pub(crate) fn designators(&self) -> [Designator; 2] {
        [self.naa_designator(), Designator::t10_vendor(&self.config.vendor, &self.config.serial)]
    }

    fn identity(&self) -> u64 {
        hash(self.config.serial.as_bytes())
    }
}

/// FNV-1a in 64 bits, then a mixing step so that similar texts differ in all bits. Initiators remember disks by this
/// value, so it must never change.
fn hash(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = bytes.iter().fold(BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 33
}
