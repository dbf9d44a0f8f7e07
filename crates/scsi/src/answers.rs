//! Parsers for the Data-In of a disk, for initiators.
//!
//! The disk may be of any make, so nothing is taken for granted: data too short to be read parses to `None`, fields
//! beyond the end of the data are zero, and bytes beyond the known fields are ignored.

use crate::port_groups::{AccessState, Management};
use crate::vpd::PageCode;
use crate::{Lun, OpCode, ServiceAction};

/// The first `N` bytes from `at`, zero beyond the end of the data.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes.get(at + index).copied().unwrap_or(0))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

/// A text field: graphic ASCII (SPC-5 4.3.1), without the blanks and zeroes around it. Every other byte becomes a
/// replacement character, because terminals would obey escape sequences.
fn text(bytes: &[u8]) -> String {
    let is_blank = |byte: &u8| matches!(byte, b' ' | 0);
    let start = bytes.iter().position(|byte| !is_blank(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    let graphic = |byte: &u8| if matches!(byte, b' '..=b'~') { (*byte).into() } else { char::REPLACEMENT_CHARACTER };
    bytes[start..end].iter().map(graphic).collect()
}

/// Standard INQUIRY data (SPC-5 6.6.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// PERIPHERAL QUALIFIER: 0 when there is a logical unit.
    pub qualifier: u8,
    /// PERIPHERAL DEVICE TYPE: 0 for a disk.
    pub device_type: u8,
    /// RMB: the medium is removable.
    pub removable: bool,
    /// T10 VENDOR IDENTIFICATION.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION.
    pub product: String,
    /// PRODUCT REVISION LEVEL.
    pub revision: String,
    /// TPGS: which side changes the access states of target port groups; `None` without asymmetric access.
    pub access_management: Option<Management>,
}

impl Inquiry {
    /// Length of these fields in bytes.
    pub const LEN: u16 = 36;

    /// Parses standard INQUIRY data.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (first, _) = data.split_first()?;
        data.get(..usize::from(Self::LEN))?;
        Some(Self {
            qualifier: first >> 5,
            device_type: first & 0x1f,
            removable: data[1] & 0x80 != 0,
            vendor: text(&data[8..16]),
            product: text(&data[16..32]),
            revision: text(&data[32..36]),
            access_management: match data[5] >> 4 & 0b11 {
                1 => Some(Management::Implicit),
                2 => Some(Management::Explicit),
                3 => Some(Management::Both),
                _ => None,
            },
        })
    }
}

/// READ CAPACITY data, of either form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Number of logical blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: u32,
    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT.
    pub physical_exponent: u8,
    /// LBPME: logical block provisioning management is enabled.
    pub provisioned: bool,
    /// LBPRZ: unmapped blocks read as zero.
    pub unmapped_zero: bool,
}

/// Why READ CAPACITY data describes no medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapacityError {
    /// The data end before the block length.
    #[error("{len} bytes of data, of which at least {needed} are needed")]
    TooShort {
        /// Length of the data in bytes.
        len: usize,
        /// Bytes up to the end of the block length.
        needed: usize,
    },
    /// The block length is zero.
    #[error("a logical block length of 0 bytes")]
    NoBlockLength,
    /// The length of the medium exceeds 64 bits, or the last address exceeds the form of the command.
    #[error("last logical block {last_lba} of {block_len} bytes, which is more than can be counted")]
    TooLong {
        /// The last logical block address.
        last_lba: u64,
        /// Bytes of a block.
        block_len: u32,
    },
}

impl Capacity {
    /// Parses READ CAPACITY(16) data.
    ///
    /// # Errors
    ///
    /// [`CapacityError`] when the data describe no medium.
    pub fn parse_16(data: &[u8]) -> Result<Self, CapacityError> {
        check_len(data, 12)?;
        let flags = array::<2>(data, 13);
        let short = Self::checked(u64_at(data, 0), u32_at(data, 8))?;
        Ok(Self {
            physical_exponent: flags[0] & 0x0f,
            provisioned: flags[1] & 0x80 != 0,
            unmapped_zero: flags[1] & 0x40 != 0,
            ..short
        })
    }

    /// Parses READ CAPACITY(10) data.
    ///
    /// # Errors
    ///
    /// [`CapacityError`] when the data describe no medium, or the last address does not fit (SBC-4 5.20.2).
    pub fn parse_10(data: &[u8]) -> Result<Self, CapacityError> {
        check_len(data, 8)?;
        let (last_lba, block_len) = (u32_at(data, 0), u32_at(data, 4));
        if last_lba == u32::MAX {
            return Err(CapacityError::TooLong { last_lba: last_lba.into(), block_len });
        }
        Self::checked(last_lba.into(), block_len)
    }

    fn checked(last_lba: u64, block_len: u32) -> Result<Self, CapacityError> {
        if block_len == 0 {
            return Err(CapacityError::NoBlockLength);
        }
        let countable = |blocks: &u64| blocks.checked_mul(block_len.into()).is_some();
        let blocks = last_lba.checked_add(1).filter(countable);
        let blocks = blocks.ok_or(CapacityError::TooLong { last_lba, block_len })?;
        Ok(Self { blocks, block_len, physical_exponent: 0, provisioned: false, unmapped_zero: false })
    }

    /// Length of the medium in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_len)
    }
}

fn check_len(data: &[u8], needed: usize) -> Result<(), CapacityError> {
    if data.len() < needed { Err(CapacityError::TooShort { len: data.len(), needed }) } else { Ok(()) }
}

/// The body of a vital product data page, when `data` is that page.
pub fn vpd_body(data: &[u8], code: PageCode) -> Option<&[u8]> {
    let (header, body) = data.split_first_chunk::<4>()?;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    (header[1] == code.0).then(|| &body[..body.len().min(len)])
}

/// The page codes of Supported VPD Pages.
pub fn supported_pages(data: &[u8]) -> Option<&[u8]> {
    vpd_body(data, PageCode(0))
}

/// The serial number of the Unit Serial Number page.
pub fn serial_number(data: &[u8]) -> Option<String> {
    vpd_body(data, PageCode(0x80)).map(text)
}

/// A designation descriptor of the Device Identification page (SPC-5 7.8.6), as it came.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Designation {
    /// ASSOCIATION: 0 for the logical unit, 1 for the target port, 2 for the target device.
    pub association: u8,
    /// DESIGNATOR TYPE.
    pub kind: u8,
    /// CODE SET: 1 for binary, 2 for ASCII, 3 for UTF-8.
    pub code_set: u8,
    /// The designator.
    pub bytes: Vec<u8>,
}

impl Designation {
    const TARGET_PORT: u8 = 1;
    const T10: u8 = 1;
    const EUI_64: u8 = 2;
    const NAA: u8 = 3;
    const PORT_GROUP: u8 = 5;

    /// Whether it names the logical unit.
    pub fn is_of_unit(&self) -> bool {
        self.association == 0
    }

    /// The target port group that it names.
    pub fn port_group(&self) -> Option<u16> {
        let is_group = self.association == Self::TARGET_PORT && self.kind == Self::PORT_GROUP && self.bytes.len() >= 4;
        is_group.then(|| u16_at(&self.bytes, 2))
    }
}

/// The designation descriptors of the Device Identification page, up to the first that is cut.
pub fn designations(data: &[u8]) -> Option<Vec<Designation>> {
    let mut rest = vpd_body(data, PageCode(0x83))?;
    let mut list = Vec::new();
    while let [code_set, kind, _, len, tail @ ..] = rest {
        let Some((bytes, next)) = tail.split_at_checked(usize::from(*len)) else { break };
        rest = next;
        list.push(Designation {
            association: kind >> 4 & 0b11,
            kind: kind & 0x0f,
            code_set: code_set & 0x0f,
            bytes: bytes.to_vec(),
        });
    }
    Some(list)
}

/// The name of the logical unit from the Device Identification page: its first NAA, EUI-64 or T10 designator, in this
/// order of preference.
pub fn unit_name(data: &[u8]) -> Option<String> {
    best_name(&designations(data)?)
}

/// The name of the logical unit by `designations`: the first NAA, EUI-64 or T10 designator, in this order of
/// preference.
pub fn best_name(designations: &[Designation]) -> Option<String> {
    let mut found: [Option<String>; 3] = [None, None, None];
    for Designation { kind, code_set, bytes, .. } in designations.iter().filter(|one| one.is_of_unit()) {
        let (place, name) = match *kind {
            Designation::NAA => (0, format!("naa.{}", hex(bytes))),
            Designation::EUI_64 => (1, format!("eui.{}", hex(bytes))),
            Designation::T10 if *code_set >= 2 => (2, format!("t10.{}", text(bytes))),
            _ => continue,
        };
        found[place].get_or_insert(name);
    }
    found.into_iter().flatten().next()
}

/// The access state of a target port group, by REPORT TARGET PORT GROUPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortGroup {
    /// TARGET PORT GROUP.
    pub group: u16,
    /// PREF: the group is preferred, whatever its state.
    pub preferred: bool,
    /// ASYMMETRIC ACCESS STATE. The logical block dependent state counts as active/non-optimized: every command is
    /// processed.
    pub state: AccessState,
}

/// Parses REPORT TARGET PORT GROUPS data without extended header. Groups in a reserved state are left out.
pub fn port_groups(data: &[u8]) -> Option<Vec<PortGroup>> {
    const BLOCK_DEPENDENT: u8 = 4;
    const DESCRIPTOR_LEN: usize = 8;
    let (header, list) = data.split_first_chunk::<4>()?;
    let mut rest = &list[..list.len().min(u32_at(header, 0) as usize)];
    let mut groups = Vec::new();
    while rest.len() >= DESCRIPTOR_LEN {
        let state = match rest[0] & 0x0f {
            BLOCK_DEPENDENT => Some(AccessState::ActiveNonOptimized),
            code => AccessState::decode(code),
        };
        let preferred = rest[0] & 0x80 != 0;
        groups.extend(state.map(|state| PortGroup { group: u16_at(rest, 2), preferred, state }));
        let ports = usize::from(rest[7]);
        rest = rest.get(DESCRIPTOR_LEN + 4 * ports..).unwrap_or_default();
    }
    Some(groups)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Block Limits (SBC-4 6.6.4), in blocks. Zero means that the limit is not reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockLimits {
    /// MAXIMUM COMPARE AND WRITE LENGTH; 0 when the command is not supported.
    pub max_compare_and_write: u8,
    /// MAXIMUM TRANSFER LENGTH; 0 when no limit is reported.
    pub max_transfer: u32,
    /// OPTIMAL TRANSFER LENGTH.
    pub optimal_transfer: u32,
    /// MAXIMUM UNMAP LBA COUNT; 0 when UNMAP is not supported.
    pub max_unmap_blocks: u32,
    /// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT.
    pub max_unmap_descriptors: u32,
    /// OPTIMAL UNMAP GRANULARITY.
    pub unmap_granularity: u32,
    /// MAXIMUM WRITE SAME LENGTH; 0 when no limit is reported.
    pub max_write_same: u64,
}

impl BlockLimits {
    /// Parses the Block Limits page.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let body = vpd_body(data, PageCode::BLOCK_LIMITS)?;
        Some(Self {
            max_compare_and_write: array::<1>(body, 1)[0],
            max_transfer: u32_at(body, 4),
            optimal_transfer: u32_at(body, 8),
            max_unmap_blocks: u32_at(body, 16),
            max_unmap_descriptors: u32_at(body, 20),
            unmap_granularity: u32_at(body, 24),
            max_write_same: u64_at(body, 32),
        })
    }
}

/// Logical Block Provisioning (SBC-4 6.6.7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Provisioning {
    /// LBPU: UNMAP frees space.
    pub unmap: bool,
    /// LBPWS: WRITE SAME(16) with the UNMAP bit does.
    pub write_same_16: bool,
    /// LBPWS10: WRITE SAME(10) does.
    pub write_same_10: bool,
    /// LBPRZ: unmapped blocks read as zero.
    pub unmapped_zero: bool,
    /// PROVISIONING TYPE: 0 full or not reported, 1 resource, 2 thin.
    pub kind: u8,
}

impl Provisioning {
    /// Parses the Logical Block Provisioning page.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let body = vpd_body(data, PageCode::LOGICAL_BLOCK_PROVISIONING)?;
        let [_, flags, kind] = array(body, 0);
        Some(Self {
            unmap: flags & 0x80 != 0,
            write_same_16: flags & 0x40 != 0,
            write_same_10: flags & 0x20 != 0,
            // Three bits in SBC-4; 1 and xx1b mean zeroes.
            unmapped_zero: flags & 0x04 != 0,
            kind: kind & 0x07,
        })
    }
}

/// MODE SENSE(6) data: the header, and the page after the block descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModePage<'a> {
    /// WP of the device-specific parameter: writes are refused.
    pub write_protected: bool,
    /// The parameters of the page, after its code and length; empty when the page is missing.
    pub parameters: &'a [u8],
}

/// Parses MODE SENSE(6) data that was requested for one page.
pub fn mode_page_6(data: &[u8], code: crate::mode::PageCode) -> Option<ModePage<'_>> {
    const WP: u8 = 0x80;
    let (header, rest) = data.split_first_chunk::<4>()?;
    let parameters = match rest.get(usize::from(header[3])..) {
        Some([first, len, parameters @ ..]) if first & 0x3f == code.0 => {
            &parameters[..parameters.len().min(usize::from(*len))]
        }
        _ => &[],
    };
    Some(ModePage { write_protected: header[2] & WP != 0, parameters })
}

/// WCE in the parameters of the Caching page.
pub fn write_cache_enabled(parameters: &[u8]) -> bool {
    parameters.first().is_some_and(|flags| flags & 0x04 != 0)
}

/// Parses REPORT LUNS data: the length in bytes of the whole list, and the LUNs in the data.
pub fn luns(data: &[u8]) -> Option<(u32, Vec<Lun>)> {
    let (header, list) = data.split_first_chunk::<8>()?;
    let len = u32_at(header, 0);
    let list = &list[..list.len().min(len as usize)];
    Some((len.saturating_add(8), list.as_chunks::<8>().0.iter().map(|lun| Lun::decode(*lun)).collect()))
}

/// Parses GET LBA STATUS data: the LBA of the first descriptor, and the length of each consecutive run from there with
/// whether it is mapped. The list ends at the first descriptor that does not follow its predecessor.
pub fn lba_status(data: &[u8]) -> Option<(u64, Vec<(u64, bool)>)> {
    const MAPPED: u8 = 0;
    let (header, list) = data.split_first_chunk::<8>()?;
    let len = (u32_at(header, 0) as usize).saturating_sub(4);
    let descriptors = list[..list.len().min(len)].as_chunks::<16>().0;
    let first = u64_at(descriptors.first()?, 0);
    let mut next = first;
    let mut runs = Vec::new();
    for descriptor in descriptors {
        let (lba, blocks) = (u64_at(descriptor, 0), u64::from(u32_at(descriptor, 8)));
        let Some(end) = lba.checked_add(blocks).filter(|_| lba == next && blocks > 0) else { break };
        runs.push((blocks, descriptor[12] & 0x0f == MAPPED));
        next = end;
    }
    Some((first, runs))
}

/// Parses REPORT SUPPORTED OPERATION CODES data for all commands: operation codes, with service actions where they have
/// them.
pub fn supported_opcodes(data: &[u8]) -> Option<Vec<(OpCode, Option<ServiceAction>)>> {
    const SERVACTV: u8 = 0x01;
    const CTDP: u8 = 0x02;
    const DESCRIPTOR_LEN: usize = 8;
    const TIMEOUTS_LEN: usize = 12;
    let (header, list) = data.split_first_chunk::<4>()?;
    let mut rest = &list[..list.len().min(u32_at(header, 0) as usize)];
    let mut commands = Vec::new();
    while rest.len() >= DESCRIPTOR_LEN {
        let action = (rest[5] & SERVACTV != 0).then(|| ServiceAction(u16_at(rest, 2)));
        commands.push((OpCode(rest[0]), action));
        let len = DESCRIPTOR_LEN + if rest[5] & CTDP != 0 { TIMEOUTS_LEN } else { 0 };
        rest = rest.get(len..).unwrap_or_default();
    }
    Some(commands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vpd::{Association, Designator};
    use crate::{capacity, inquiry, lba_status as status, report, vpd};
    use proptest::prelude::*;

    #[test]
    fn port_groups_of_this_device_server_are_parsed() {
        use crate::port_groups::{GroupDescriptor, StatusCode, report};
        let group = |group, state, preferred, ports| GroupDescriptor {
            preferred,
            state,
            group,
            status: StatusCode::Implicit,
            ports,
        };
        let groups = [
            group(1, AccessState::ActiveOptimized, true, vec![1, 2]),
            group(0x0102, AccessState::Standby, false, vec![]),
            group(3, AccessState::Transitioning, false, vec![9]),
        ];
        let mut data = report(&groups, None);
        let of =
            |group: &GroupDescriptor| PortGroup { group: group.group, preferred: group.preferred, state: group.state };
        assert_eq!(port_groups(&data).unwrap(), groups.iter().map(of).collect::<Vec<_>>());
        data[4] = 4;
        assert_eq!(port_groups(&data).unwrap()[0].state, AccessState::ActiveNonOptimized);
        data[4] = 5;
        assert_eq!(port_groups(&data).unwrap().len(), 2, "a reserved state");
        for len in 0..data.len() {
            let cut = port_groups(&data[..len]);
            assert!(cut.is_none_or(|groups| groups.len() < 3));
        }
    }

    #[test]
    fn designations_name_the_unit_and_the_port_group() {
        let designators = [
            Designator::t10_vendor("VEND", "serial"),
            Designator::naa_local(7),
            Designator::relative_port(2),
            Designator::port_group(0x0304),
        ];
        let data = vpd::device_identification(&designators);
        let found = designations(&data).unwrap();
        assert_eq!(found.iter().filter(|one| one.is_of_unit()).count(), 2);
        assert_eq!(found.iter().find_map(Designation::port_group), Some(0x0304));
        assert_eq!(best_name(&found).unwrap(), "naa.3000000000000007");
        assert_eq!(designations(&data[..data.len() - 1]).unwrap().len(), 3, "the last one is cut");
    }

    #[test]
    fn data_of_this_device_server_is_parsed() {
        let inquiry = inquiry::StandardInquiry {
            peripheral: inquiry::Peripheral::DISK,
            removable: true,
            third_party_copy: false,
            port_groups: None,
            vendor: "VEND",
            product: "PRODUCT",
            revision: "1.0",
            versions: &[],
        };
        let read = Inquiry::parse(&inquiry.emit()).unwrap();
        assert_eq!((read.vendor.as_str(), read.product.as_str(), read.revision.as_str()), ("VEND", "PRODUCT", "1.0"));
        assert!(read.removable && read.qualifier == 0 && read.device_type == 0);

        let told = capacity::ReadCapacity16 {
            last_lba: 9,
            block_len: 4096,
            physical_exponent: 1,
            provisioned: true,
            unmapped_zero: true,
        };
        let read = Capacity::parse_16(&told.emit()).unwrap();
        assert_eq!((read.blocks, read.len_bytes(), read.physical_exponent), (10, 40_960, 1));
        assert!(read.provisioned && read.unmapped_zero);
        assert_eq!(Capacity::parse_10(&capacity::read_capacity_10(9, 512)).unwrap().blocks, 10);
        assert!(Capacity::parse_10(&capacity::read_capacity_10(1 << 32, 512)).is_err());

        let limits = vpd::BlockLimits { max_transfer: 7, max_write_same: 1 << 40, ..vpd::BlockLimits::default() };
        let read = BlockLimits::parse(&limits.emit()).unwrap();
        assert_eq!((read.max_transfer, read.max_write_same, read.max_unmap_blocks), (7, 1 << 40, 0));

        let list = [
            status::LbaStatus { lba: 3, blocks: 2, mapped: true },
            status::LbaStatus { lba: 5, blocks: 4, mapped: false },
        ];
        assert_eq!(lba_status(&status::emit(&list)), Some((3, vec![(2, true), (4, false)])));

        let luns_there = [Lun::ZERO, Lun::new(300).unwrap()];
        assert_eq!(luns(&report::luns(&luns_there)), Some((24, luns_there.to_vec())));
    }

    #[test]
    fn the_best_name_of_a_unit_is_chosen() {
        let page = vpd::device_identification(&[
            Designator::name(Association::TargetPort, "iqn.x,t,1"),
            Designator::t10_vendor("VEND", "abc"),
            Designator::naa_local(0x123),
        ]);
        assert_eq!(unit_name(&page).unwrap(), "naa.3000000000000123");
        let page = vpd::device_identification(&[Designator::t10_vendor("VEND", "abc")]);
        assert_eq!(unit_name(&page).unwrap(), "t10.VEND    abc");
    }

    #[test]
    fn capacities_that_cannot_be_are_refused() {
        let data = |last_lba: u64, block_len: u32| [&last_lba.to_be_bytes()[..], &block_len.to_be_bytes()].concat();
        let too_long = |last_lba, block_len| Err(CapacityError::TooLong { last_lba, block_len });
        for (data, expected) in [
            (data(u64::MAX, 1), too_long(u64::MAX, 1)),
            (data(u64::MAX, 512), too_long(u64::MAX, 512)),
            (data(u64::MAX - 1, 2), too_long(u64::MAX - 1, 2)),
            (data(1 << 33, u32::MAX), too_long(1 << 33, u32::MAX)),
            (data(7, 0), Err(CapacityError::NoBlockLength)),
            (vec![0; 11], Err(CapacityError::TooShort { len: 11, needed: 12 })),
            (vec![], Err(CapacityError::TooShort { len: 0, needed: 12 })),
        ] {
            assert_eq!(Capacity::parse_16(&data), expected, "{data:?}");
        }
        assert_eq!(Capacity::parse_16(&data(u64::MAX - 1, 1)).unwrap().len_bytes(), u64::MAX);
    }

    #[test]
    fn nothing_in_a_text_field_reaches_a_terminal_but_graphic_ascii() {
        for (field, expected) in [
            (&b"  VEND\0\0"[..], "VEND"),
            (b"a b", "a b"),
            (b"\0 \0", ""),
            (b"", ""),
            (b"\x1b[2J", "\u{fffd}[2J"),
            (b"x\r\ny", "x\u{fffd}\u{fffd}y"),
            (b"\x7f\x9b\xff", "\u{fffd}\u{fffd}\u{fffd}"),
            ("\u{202e}gpj".as_bytes(), "\u{fffd}\u{fffd}\u{fffd}gpj"),
            (b" \n ", "\u{fffd}"),
        ] {
            assert_eq!(text(field), expected, "{field:?}");
        }
        let page = vpd::device_identification(&[Designator::t10_vendor("VE\x1b", "\x07")]);
        assert!(unit_name(&page).unwrap().chars().all(|c| !c.is_control()));
    }

    #[test]
    fn a_caching_page_is_found_behind_block_descriptors() {
        let data = [0x17, 0, 0x80, 8, 0, 0, 0, 0, 0, 0, 2, 0, 0x88, 0x12, 0x04, 0];
        let page = mode_page_6(&data, crate::mode::PageCode::CACHING).unwrap();
        assert!(page.write_protected && write_cache_enabled(page.parameters));
        assert!(mode_page_6(&data, crate::mode::PageCode::CONTROL).unwrap().parameters.is_empty());
    }

    #[test]
    fn a_map_with_a_gap_ends_before_it() {
        let list = [
            status::LbaStatus { lba: 3, blocks: 2, mapped: true },
            status::LbaStatus { lba: 9, blocks: 4, mapped: false },
        ];
        assert_eq!(lba_status(&status::emit(&list)), Some((3, vec![(2, true)])));
    }

    proptest! {
        #[test]
        fn nothing_that_a_disk_answers_panics(data in proptest::collection::vec(any::<u8>(), 0..128), code: u8) {
            let _ = (Inquiry::parse(&data), Capacity::parse_16(&data), Capacity::parse_10(&data));
            let _ = (vpd_body(&data, PageCode(code)), supported_pages(&data), serial_number(&data), unit_name(&data));
            let _ = (BlockLimits::parse(&data), Provisioning::parse(&data), luns(&data), lba_status(&data));
            let _ = (mode_page_6(&data, crate::mode::PageCode(code & 0x3f)), supported_opcodes(&data));
            let _ = (port_groups(&data), designations(&data));
        }
    }
}
