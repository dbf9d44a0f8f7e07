//! Vital product data pages (SPC-5 7.8, SBC-4 6.6).

mod device;
mod third_party_copy;

pub use crate::designator::{Association, Designator, naa_local};
pub use device::{ExtendedInquiry, no_management_addresses, no_referrals, scsi_ports, shared_mode_pages};
pub use third_party_copy::third_party_copy;

use crate::inquiry::Peripheral;

/// The code of a VPD page. Unknown codes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageCode(pub u8);

impl PageCode {
    /// Supported VPD Pages.
    pub const SUPPORTED_PAGES: Self = Self(0x00);
    /// Unit Serial Number.
    pub const UNIT_SERIAL_NUMBER: Self = Self(0x80);
    /// The Device Identification page.
    pub const DEVICE_IDENTIFICATION: Self = Self(0x83);
    /// Management Network Addresses.
    pub const MANAGEMENT_NETWORK_ADDRESSES: Self = Self(0x85);
    /// Extended INQUIRY Data.
    pub const EXTENDED_INQUIRY: Self = Self(0x86);
    /// Mode Page Policy.
    pub const MODE_PAGE_POLICY: Self = Self(0x87);
    /// The SCSI Ports page.
    pub const SCSI_PORTS: Self = Self(0x88);
    /// The Third-party Copy page.
    pub const THIRD_PARTY_COPY: Self = Self(0x8f);
    /// The Block Limits page.
    pub const BLOCK_LIMITS: Self = Self(0xb0);
    /// Block Device Characteristics.
    pub const BLOCK_DEVICE_CHARACTERISTICS: Self = Self(0xb1);
    /// Logical Block Provisioning.
    pub const LOGICAL_BLOCK_PROVISIONING: Self = Self(0xb2);
    /// The Referrals page.
    pub const REFERRALS: Self = Self(0xb3);
}

/// Encodes a page: the header with its length, and `body`. A body beyond 65,535 bytes is cut.
pub fn page(code: PageCode, body: &[u8]) -> Vec<u8> {
    let body = &body[..body.len().min(usize::from(u16::MAX))];
    let [high, low] = (body.len() as u16).to_be_bytes();
    [&[Peripheral::DISK.0, code.0, high, low], body].concat()
}

/// Encodes the Device Identification page.
pub fn device_identification(designators: &[Designator]) -> Vec<u8> {
    let body: Vec<u8> = designators.iter().flat_map(Designator::emit).collect();
    page(PageCode::DEVICE_IDENTIFICATION, &body)
}

/// Block Limits (SBC-4 6.6.4). Zero means "not reported" or "not supported" in every field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockLimits {
    /// WSNZ: WRITE SAME refuses zero blocks as "all to the end".
    pub write_same_non_zero: bool,
    /// MAXIMUM COMPARE AND WRITE LENGTH in blocks.
    pub max_compare_and_write: u8,
    /// OPTIMAL TRANSFER LENGTH GRANULARITY in blocks.
    pub optimal_granularity: u16,
    /// MAXIMUM TRANSFER LENGTH in blocks.
    pub max_transfer: u32,
    /// OPTIMAL TRANSFER LENGTH in blocks.
    pub optimal_transfer: u32,
    /// MAXIMUM PREFETCH LENGTH in blocks.
    pub max_prefetch: u32,
    /// MAXIMUM UNMAP LBA COUNT.
    pub max_unmap_blocks: u32,
    /// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT.
    pub max_unmap_descriptors: u32,
    /// OPTIMAL UNMAP GRANULARITY in blocks. Its alignment is block 0.
    pub unmap_granularity: u32,
    /// MAXIMUM WRITE SAME LENGTH in blocks.
    pub max_write_same: u64,
    /// The limits of WRITE ATOMIC.
    pub atomic: AtomicLimits,
}

/// The fields of the Block Limits page on WRITE ATOMIC, all in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AtomicLimits {
    /// MAXIMUM ATOMIC TRANSFER LENGTH.
    pub max_transfer: u32,
    /// ATOMIC ALIGNMENT.
    pub alignment: u32,
    /// ATOMIC TRANSFER LENGTH GRANULARITY.
    pub granularity: u32,
    /// MAXIMUM ATOMIC TRANSFER LENGTH WITH ATOMIC BOUNDARY.
    pub max_transfer_with_boundary: u32,
    /// MAXIMUM ATOMIC BOUNDARY SIZE.
    pub max_boundary: u32,
}

impl BlockLimits {
    const BODY_LEN: usize = 60;
    /// UGAVALID, in front of UNMAP GRANULARITY ALIGNMENT.
    const UGAVALID: u32 = 1 << 31;

    const WSNZ: u8 = 0x01;

    /// Encodes the Block Limits page.
    pub fn emit(&self) -> Vec<u8> {
        let mut body = [0; Self::BODY_LEN];
        body[0] = if self.write_same_non_zero { Self::WSNZ } else { 0 };
        body[1] = self.max_compare_and_write;
        body[2..4].copy_from_slice(&self.optimal_granularity.to_be_bytes());
        body[4..8].copy_from_slice(&self.max_transfer.to_be_bytes());
        body[8..12].copy_from_slice(&self.optimal_transfer.to_be_bytes());
        body[12..16].copy_from_slice(&self.max_prefetch.to_be_bytes());
        body[16..20].copy_from_slice(&self.max_unmap_blocks.to_be_bytes());
        body[20..24].copy_from_slice(&self.max_unmap_descriptors.to_be_bytes());
        body[24..28].copy_from_slice(&self.unmap_granularity.to_be_bytes());
        let alignment = if self.unmap_granularity == 0 { 0 } else { Self::UGAVALID };
        body[28..32].copy_from_slice(&alignment.to_be_bytes());
        body[32..40].copy_from_slice(&self.max_write_same.to_be_bytes());
        let AtomicLimits { max_transfer, alignment, granularity, max_transfer_with_boundary, max_boundary } =
            self.atomic;
        let atomic = [max_transfer, alignment, granularity, max_transfer_with_boundary, max_boundary];
        for (place, value) in body[40..].chunks_exact_mut(4).zip(atomic) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        page(PageCode::BLOCK_LIMITS, &body)
    }
}

/// Block Device Characteristics of a medium that does not rotate, and on which FUA needs no other command to flush
/// (SBC-4 6.6.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockDeviceCharacteristics {
    /// SANITIZE with BLOCK ERASE is supported, and reads succeed after it without a write in between (WABEREQ).
    pub block_erase: bool,
    /// SANITIZE with CRYPTOGRAPHIC ERASE is supported, and reads succeed after it without a write in between (WACEREQ).
    pub cryptographic_erase: bool,
}

impl BlockDeviceCharacteristics {
    const BODY_LEN: usize = 60;
    const NON_ROTATING: u16 = 1;
    /// WABEREQ and WACEREQ: reads succeed after the erasure.
    const WABEREQ_READABLE: u8 = 0x40;
    const WACEREQ_READABLE: u8 = 0x10;

    /// Encodes the Block Device Characteristics page.
    pub fn emit(&self) -> Vec<u8> {
        let mut body = [0; Self::BODY_LEN];
        body[..2].copy_from_slice(&Self::NON_ROTATING.to_be_bytes());
        body[3] |= if self.block_erase { Self::WABEREQ_READABLE } else { 0 };
        body[3] |= if self.cryptographic_erase { Self::WACEREQ_READABLE } else { 0 };
        page(PageCode::BLOCK_DEVICE_CHARACTERISTICS, &body)
    }
}

/// Logical Block Provisioning (SBC-4 6.6.7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Provisioning {
    /// LBPU, LBPWS and LBPWS10: UNMAP and WRITE SAME with the UNMAP bit free space.
    pub unmap: bool,
    /// LBPRZ: unmapped blocks read as zero.
    pub unmapped_zero: bool,
    /// `ANC_SUP`: blocks can be anchored.
    pub anchor: bool,
    /// THRESHOLD EXPONENT: a threshold set has 2 to this power blocks.
    pub threshold_exponent: u8,
}

impl Provisioning {
    const LBPU_LBPWS_LBPWS10: u8 = 0xe0;
    const LBPRZ: u8 = 0x04;
    const ANC_SUP: u8 = 0x02;
    const THIN: u8 = 2;

    /// Encodes the Logical Block Provisioning page.
    pub fn emit(&self) -> Vec<u8> {
        let commands = if self.unmap { Self::LBPU_LBPWS_LBPWS10 } else { 0 };
        let zero = if self.unmapped_zero { Self::LBPRZ } else { 0 };
        let anchor = if self.anchor { Self::ANC_SUP } else { 0 };
        let kind = if self.unmap { Self::THIN } else { 0 };
        page(PageCode::LOGICAL_BLOCK_PROVISIONING, &[self.threshold_exponent, commands | zero | anchor, kind, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designator::MAX_DESIGNATOR_LEN;

    #[test]
    fn designators_name_unit_port_and_device() {
        let page = device_identification(&[
            Designator::naa_local(0xf123_4567_89ab_cdef),
            Designator::t10_vendor("VEND", "x1"),
            Designator::relative_port(2),
            Designator::name(Association::TargetDevice, "iqn.x"),
        ]);
        assert_eq!(&page[..4], [0, 0x83, 0, 12 + 14 + 8 + 12]);
        let body = &page[4..];
        assert_eq!(&body[..12], [0x01, 0x03, 0, 8, 0x31, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        assert_eq!(&body[12..26], b"\x02\x01\0\x0aVEND    x1");
        assert_eq!(&body[26..34], [0x51, 0x94, 0, 4, 0, 0, 0, 2]);
        assert_eq!(&body[34..], b"\x53\xa8\0\x08iqn.x\0\0\0");
    }

    #[test]
    fn long_names_are_cut_to_what_a_designator_holds() {
        let page = device_identification(&[Designator::name(Association::TargetPort, &"n".repeat(500))]);
        assert_eq!(page.len(), 4 + 4 + MAX_DESIGNATOR_LEN);
        assert_eq!(page.last(), Some(&0), "SCSI name strings end with a zero byte");
    }

    #[test]
    fn block_limits_have_the_length_of_sbc_3_and_later() {
        let limits = BlockLimits {
            write_same_non_zero: true,
            max_compare_and_write: 9,
            max_prefetch: 7,
            unmap_granularity: 8,
            max_write_same: 5,
            atomic: AtomicLimits {
                max_transfer: 1,
                alignment: 2,
                granularity: 3,
                max_transfer_with_boundary: 4,
                max_boundary: 5,
            },
            ..BlockLimits::default()
        };
        let page = limits.emit();
        assert_eq!((page.len(), &page[..4]), (64, &[0, 0xb0, 0, 0x3c][..]));
        assert_eq!(page[4..6], [1, 9]);
        assert_eq!(page[16..20], [0, 0, 0, 7], "MAXIMUM PREFETCH LENGTH");
        assert_eq!(page[44..], [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5]);
        assert_eq!(&page[28..44], [0, 0, 0, 8, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
    }

    #[test]
    fn a_thin_unit_reports_the_commands_that_free_space() {
        assert_eq!(
            Provisioning { unmap: true, unmapped_zero: true, anchor: true, threshold_exponent: 11 }.emit(),
            [0, 0xb2, 0, 4, 11, 0xe6, 2, 0]
        );
        assert_eq!(Provisioning::default().emit(), [0, 0xb2, 0, 4, 0, 0, 0, 0]);
    }
}
