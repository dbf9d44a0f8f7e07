//! Standard INQUIRY data (SPC-5 6.6.2).

use crate::port_groups::Management;

/// Length in bytes of the data of [`StandardInquiry::emit`]: up to the version descriptors and the reserved bytes after
/// them.
pub const STANDARD_LEN: usize = 96;

/// Version descriptors of the standards that a device claims (SPC-5 table 149).
pub mod version {
    /// SAM-5, no version claimed.
    pub const SAM_5: u16 = 0x00a0;
    /// iSCSI, no version claimed.
    pub const ISCSI: u16 = 0x0960;
    /// SPC-4, no version claimed.
    pub const SPC_4: u16 = 0x0460;
    /// SBC-3, no version claimed.
    pub const SBC_3: u16 = 0x04c0;
}

/// PERIPHERAL QUALIFIER and PERIPHERAL DEVICE TYPE: byte 0 of INQUIRY data of every kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peripheral(pub u8);

impl Peripheral {
    /// A direct access block device that is connected.
    pub const DISK: Self = Self(0x00);
    /// A direct access block device that is currently unreachable through this port (SPC-4 5.16.2.4.5).
    pub const DISK_NOT_CONNECTED: Self = Self(0x20);
    /// No logical unit exists at this LUN.
    pub const NONE: Self = Self(0x7f);
}

/// The fields of standard INQUIRY data that vary between devices.
#[derive(Debug, Clone, Copy)]
pub struct StandardInquiry<'a> {
    /// PERIPHERAL QUALIFIER and PERIPHERAL DEVICE TYPE.
    pub peripheral: Peripheral,
    /// RMB: the medium is removable.
    pub removable: bool,
    /// TPGS; `None` where no logical unit exists.
    pub port_groups: Option<Management>,
    /// 3PC: third-party copy commands are supported.
    pub third_party_copy: bool,
    /// T10 VENDOR IDENTIFICATION, at most 8 bytes of ASCII.
    pub vendor: &'a str,
    /// PRODUCT IDENTIFICATION, at most 16 bytes.
    pub product: &'a str,
    /// PRODUCT REVISION LEVEL, at most 4 bytes.
    pub revision: &'a str,
    /// VERSION DESCRIPTORs, at most eight.
    pub versions: &'a [u16],
}

impl StandardInquiry<'_> {
    const RMB: u8 = 0x80;
    /// VERSION: SPC-4. Initiators know it well, and no feature of SPC-5 offered here depends on the number.
    const VERSION: u8 = 0x06;
    /// HISUP (LUNs in the format of REPORT LUNS) and RESPONSE DATA FORMAT 2.
    const HISUP_FORMAT_2: u8 = 0x12;
    const TPGS_SHIFT: u8 = 4;
    const THIRD_PARTY_COPY: u8 = 0x08;
    /// CMDQUE: full task management.
    const CMDQUE: u8 = 0x02;

    /// The encoded data. Texts are left-aligned, padded with spaces and cut to their field.
    pub fn emit(&self) -> [u8; STANDARD_LEN] {
        let mut data = [0; STANDARD_LEN];
        data[0] = self.peripheral.0;
        data[1] = if self.removable { Self::RMB } else { 0 };
        data[2] = Self::VERSION;
        data[3] = Self::HISUP_FORMAT_2;
        data[4] = (STANDARD_LEN - 5) as u8;
        let third_party_copy = if self.third_party_copy { Self::THIRD_PARTY_COPY } else { 0 };
        let port_groups = self.port_groups.map_or(0, |management| (management as u8) << Self::TPGS_SHIFT);
        data[5] = port_groups | third_party_copy;
        data[7] = Self::CMDQUE;
        put_text(&mut data[8..16], self.vendor);
        put_text(&mut data[16..32], self.product);
        put_text(&mut data[32..36], self.revision);
        for (place, version) in data[58..74].chunks_exact_mut(2).zip(self.versions) {
            place.copy_from_slice(&version.to_be_bytes());
        }
        data
    }
}

/// Writes left-aligned ASCII, padded with spaces (SPC-5 4.3.1).
pub(crate) fn put_text(place: &mut [u8], text: &str) {
    place.fill(b' ');
    for (place, byte) in place.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_the_standard_puts_them() {
        let inquiry = StandardInquiry {
            peripheral: Peripheral::DISK,
            removable: true,
            port_groups: Some(Management::Both),
            third_party_copy: true,
            vendor: "VEND",
            product: "a product name too long for it",
            revision: "1",
            versions: &[version::SPC_4, version::SBC_3],
        };
        let data = inquiry.emit();
        assert_eq!(&data[..8], [0, 0x80, 6, 0x12, 91, 0x38, 0, 2]);
        assert_eq!(&data[8..36], b"VEND    a product name t1   ");
        assert_eq!(&data[58..64], [0x04, 0x60, 0x04, 0xc0, 0, 0]);
    }
}
