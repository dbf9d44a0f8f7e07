//! INQUIRY: standard data and VPD pages (SPC-5 6.6).

use lunette_scsi::inquiry::{Peripheral, StandardInquiry, version};
use lunette_scsi::port_groups::AccessState;
use lunette_scsi::vpd::{
    self, Association, AtomicLimits, BlockDeviceCharacteristics, BlockLimits, Designator, ExtendedInquiry, PageCode,
    Provisioning,
};
use lunette_scsi::{FieldPointer, MAX_SENSE_LEN, OpCode, SenseData};

use crate::commands::context::Cx;
use crate::commands::opcodes;
use crate::coroutine::Reply;
use crate::limits::{MAX_COMPARE_AND_WRITE_BLOCKS, MAX_UNMAP_DESCRIPTORS, copy_limits};
use crate::nexus::TargetPort;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::{DEFAULT_PRODUCT, DEFAULT_REVISION, DEFAULT_VENDOR, LogicalUnit};

const EVPD: u8 = 0x01;

/// The function that builds a VPD page.
type MakePage = fn(&LogicalUnit, &Cx) -> Vec<u8>;

/// The supported VPD pages, in the order of their codes.
const PAGES: [(PageCode, MakePage); 12] = [
    (PageCode::SUPPORTED_PAGES, |_, _| supported_pages()),
    (PageCode::UNIT_SERIAL_NUMBER, |unit, _| serial_number(unit)),
    (PageCode::DEVICE_IDENTIFICATION, identification),
    (PageCode::MANAGEMENT_NETWORK_ADDRESSES, |_, _| vpd::no_management_addresses()),
    (PageCode::EXTENDED_INQUIRY, |unit, _| extended_inquiry(unit)),
    (PageCode::MODE_PAGE_POLICY, |_, _| vpd::shared_mode_pages()),
    (PageCode::SCSI_PORTS, |_, cx| ports(cx)),
    (PageCode::THIRD_PARTY_COPY, |_, cx| cx.itl.as_ref().map_or_else(Vec::new, |itl| third_party_copy(itl))),
    (PageCode::BLOCK_LIMITS, |unit, _| block_limits(unit)),
    (PageCode::BLOCK_DEVICE_CHARACTERISTICS, |unit, _| characteristics(unit)),
    (PageCode::LOGICAL_BLOCK_PROVISIONING, |unit, _| provisioning(unit)),
    (PageCode::REFERRALS, |_, _| vpd::no_referrals()),
];

/// Executes INQUIRY. Without a logical unit, the standard data report that.
pub(crate) async fn inquiry(cx: Cx) -> Reply {
    let allocation_len = usize::from(cx.cdb.u16_at(3));
    let code = PageCode(cx.cdb.byte(2));
    if cx.cdb.bit(1, EVPD) {
        let page = vpd_page(&cx, code)?;
        return cx.reply(&page, allocation_len).await;
    }
    if code != PageCode(0) {
        return Err(FieldPointer::cdb(2).into());
    }
    let data = standard(&cx);
    cx.reply(&data, allocation_len).await
}

fn vpd_page(cx: &Cx, code: PageCode) -> Result<Vec<u8>, SenseData> {
    let unit = cx.unit()?;
    let (_, make) = PAGES.iter().find(|(known, _)| *known == code).ok_or(FieldPointer::cdb(2))?;
    let mut page = make(unit, cx);
    if let Some(first) = page.first_mut() {
        *first = peripheral(cx).0;
    }
    Ok(page)
}

/// The peripheral qualifier and device type: whether the unit exists, and whether the port reaches it (SPC-4
/// 5.16.2.4.5).
fn peripheral(cx: &Cx) -> Peripheral {
    match cx.itl.as_ref().map(|itl| itl.access.state()) {
        None => Peripheral::NONE,
        Some(AccessState::Unavailable | AccessState::Offline) => Peripheral::DISK_NOT_CONNECTED,
        Some(_) => Peripheral::DISK,
    }
}

fn standard(cx: &Cx) -> [u8; lunette_scsi::inquiry::STANDARD_LEN] {
    let unit = cx.itl.as_ref().map(|itl| &*itl.unit);
    let config = unit.map(LogicalUnit::config);
    StandardInquiry {
        peripheral: peripheral(cx),
        removable: unit.is_some_and(LogicalUnit::removable),
        port_groups: unit.map(|_| cx.device.management()),
        third_party_copy: unit.is_some(),
        vendor: config.map_or(DEFAULT_VENDOR, |config| &config.vendor),
        product: config.map_or(DEFAULT_PRODUCT, |config| &config.product),
        revision: config.map_or(DEFAULT_REVISION, |config| &config.revision),
        versions: &[version::SAM_5, version::ISCSI, version::SPC_4, version::SBC_3],
    }
    .emit()
}

fn supported_pages() -> Vec<u8> {
    vpd::page(PageCode::SUPPORTED_PAGES, &PAGES.map(|(code, _)| code.0))
}

fn serial_number(unit: &LogicalUnit) -> Vec<u8> {
    vpd::page(PageCode::UNIT_SERIAL_NUMBER, unit.config().serial.as_bytes())
}

/// The designators of the unit, of the target port of this nexus, and of the target device.
fn identification(unit: &LogicalUnit, cx: &Cx) -> Vec<u8> {
    let nexus = &cx.nexus;
    let mut designators = unit.designators().to_vec();
    designators.extend([
        Designator::name(Association::TargetPort, &nexus.name.target_port),
        Designator::relative_port(nexus.name.relative_port),
    ]);
    designators.extend(cx.device.group_of(nexus.name.relative_port).map(Designator::port_group));
    designators.push(Designator::name(Association::TargetDevice, &nexus.device_name));
    vpd::device_identification(&designators)
}

fn extended_inquiry(unit: &LogicalUnit) -> Vec<u8> {
    ExtendedInquiry { volatile_cache: unit.capabilities().volatile_cache, max_sense_len: MAX_SENSE_LEN as u8 }.emit()
}

/// The ports of the target device.
fn ports(cx: &Cx) -> Vec<u8> {
    let ports = cx.device.ports();
    let named = |port: &TargetPort| (port.relative, vec![Designator::name(Association::TargetPort, &port.name)]);
    vpd::scsi_ports(&ports.iter().map(named).collect::<Vec<_>>())
}

fn third_party_copy(itl: &ItlNexus) -> Vec<u8> {
    let commands = [OpCode::THIRD_PARTY_COPY_OUT, OpCode::THIRD_PARTY_COPY_IN].map(|opcode| {
        let rows = opcodes::with_opcode(opcode).filter(|row| row.supported_by(itl));
        (opcode, rows.filter_map(|row| row.action).collect())
    });
    vpd::third_party_copy(&copy_limits(itl.unit.block_size()), &commands)
}

fn block_limits(unit: &LogicalUnit) -> Vec<u8> {
    let geometry = unit.store().geometry();
    let blocks_of = |bytes: u32| bytes.div_ceil(unit.block_size());
    let limits = BlockLimits {
        write_same_non_zero: unit.max_write_same_blocks().is_some(),
        max_write_same: unit.max_write_same_blocks().unwrap_or(0),
        max_compare_and_write: MAX_COMPARE_AND_WRITE_BLOCKS,
        optimal_granularity: blocks_of(geometry.physical_bytes) as u16,
        max_transfer: unit.max_transfer_blocks(),
        atomic: AtomicLimits {
            max_transfer: unit.max_atomic_blocks(),
            alignment: unit.atomic_unit_blocks(),
            granularity: unit.atomic_unit_blocks(),
            ..AtomicLimits::default()
        },
        ..BlockLimits::default()
    };
    if !unit.capabilities().unmap {
        return limits.emit();
    }
    BlockLimits {
        // The limit is the number of descriptors; each holds a 32-bit number of blocks.
        max_unmap_blocks: u32::MAX,
        max_unmap_descriptors: u32::from(MAX_UNMAP_DESCRIPTORS),
        unmap_granularity: blocks_of(geometry.unmap_bytes),
        ..limits
    }
    .emit()
}

/// Block erase is reported where the store frees blocks, which then read as zero.
fn characteristics(unit: &LogicalUnit) -> Vec<u8> {
    BlockDeviceCharacteristics {
        block_erase: unit.capabilities().unmap,
        cryptographic_erase: unit.capabilities().memory,
    }
    .emit()
}

fn provisioning(unit: &LogicalUnit) -> Vec<u8> {
    let capabilities = unit.capabilities();
    let unmapped_zero = capabilities.unmap && capabilities.unmap_zeroes;
    Provisioning {
        unmap: capabilities.unmap,
        unmapped_zero,
        anchor: unit.anchors(),
        threshold_exponent: unit.threshold_exponent(),
    }
    .emit()
}
