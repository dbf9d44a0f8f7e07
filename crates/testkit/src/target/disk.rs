//! The honest disk: its answers to commands, and the effects of commands on it.

use lunette_pdu::ScsiCommand;
use lunette_scsi::capacity::{ReadCapacity16, read_capacity_10};
use lunette_scsi::inquiry::{Peripheral, StandardInquiry};
use lunette_scsi::lba_status::{self, LbaStatus};
use lunette_scsi::vpd::{self, BlockLimits, Designator, PageCode};
use lunette_scsi::{AdditionalSense, Lun, OpCode, SenseData, SenseFormat, Status, report};

use super::{Answer, DISK_LEN};
use crate::BLOCK_LEN;

const BLOCKS: u64 = (DISK_LEN / BLOCK_LEN) as u64;

pub(super) struct Disk {
    pub(super) bytes: Vec<u8>,
}

impl Default for Disk {
    fn default() -> Self {
        Self { bytes: vec![0; DISK_LEN] }
    }
}

impl Disk {
    /// The true answer, before any data has arrived.
    pub(super) fn answer(&self, command: &ScsiCommand) -> Answer {
        let cdb = &command.cdb;
        match OpCode(cdb[0]) {
            OpCode::INQUIRY if cdb[1] & 1 != 0 => page(PageCode(cdb[2])),
            OpCode::INQUIRY => data(inquiry()),
            OpCode::READ_CAPACITY_10 => data(read_capacity_10(BLOCKS - 1, BLOCK_LEN as u32).to_vec()),
            OpCode::SERVICE_ACTION_IN_16 if cdb[1] & 0x1f == 0x10 => data(capacity()),
            OpCode::SERVICE_ACTION_IN_16 if cdb[1] & 0x1f == 0x12 => data(lba_status(cdb)),
            OpCode::MODE_SENSE_6 => data(caching_page()),
            OpCode::REPORT_LUNS => data(report::luns(&[Lun::ZERO])),
            OpCode::READ_10 | OpCode::READ_16 => {
                range(cdb).map_or_else(refuse, |range| data(self.bytes[range].to_vec()))
            }
            OpCode::WRITE_10 | OpCode::WRITE_16 | OpCode::WRITE_SAME_16 if range(cdb).is_none() => refuse(),
            OpCode::WRITE_10
            | OpCode::WRITE_16
            | OpCode::WRITE_SAME_16
            | OpCode::UNMAP
            | OpCode::TEST_UNIT_READY
            | OpCode::SYNCHRONIZE_CACHE_10 => {
                let solicited = if command.write { command.expected_data_transfer_length } else { 0 };
                Answer { solicited, ..Answer::default() }
            }
            _ => refuse(),
        }
    }

    /// Applies a successful command, whose data is complete.
    pub(super) fn apply(&mut self, command: &ScsiCommand, data: &[u8]) {
        let (cdb, Some(range)) = (&command.cdb, range(&command.cdb)) else { return };
        match OpCode(cdb[0]) {
            OpCode::WRITE_10 | OpCode::WRITE_16 if data.len() == range.len() => {
                self.bytes[range].copy_from_slice(data);
            }
            OpCode::WRITE_SAME_16 if data.len() == BLOCK_LEN => {
                self.bytes[range].chunks_exact_mut(BLOCK_LEN).for_each(|block| block.copy_from_slice(data));
            }
            _ => {}
        }
    }
}

fn data(data: Vec<u8>) -> Answer {
    Answer { data, ..Answer::default() }
}

/// CHECK CONDITION, for anything that the disk does not support.
fn refuse() -> Answer {
    let sense = SenseData::illegal_request(AdditionalSense::INVALID_FIELD_IN_CDB).encode(SenseFormat::Fixed);
    Answer { status: Status::CHECK_CONDITION.0, sense: sense.to_vec(), ..Answer::default() }
}

fn inquiry() -> Vec<u8> {
    let inquiry = StandardInquiry {
        peripheral: Peripheral::DISK,
        removable: false,
        third_party_copy: false,
        port_groups: None,
        vendor: "SCRIPTED",
        product: "DISK",
        revision: "1",
        versions: &[],
    };
    inquiry.emit().to_vec()
}

fn page(code: PageCode) -> Answer {
    let codes = [
        PageCode::SUPPORTED_PAGES,
        PageCode::UNIT_SERIAL_NUMBER,
        PageCode::DEVICE_IDENTIFICATION,
        PageCode::BLOCK_LIMITS,
        PageCode::LOGICAL_BLOCK_PROVISIONING,
    ];
    match code {
        PageCode::SUPPORTED_PAGES => data(vpd::page(code, &codes.map(|code| code.0))),
        PageCode::UNIT_SERIAL_NUMBER => data(vpd::page(code, b"serial-1")),
        PageCode::DEVICE_IDENTIFICATION => {
            data(vpd::device_identification(&[Designator::t10_vendor("SCRIPTED", "serial-1")]))
        }
        PageCode::BLOCK_LIMITS => data(BlockLimits { max_unmap_blocks: 1024, ..BlockLimits::default() }.emit()),
        // LBPU, LBPWS and LBPRZ; thin.
        PageCode::LOGICAL_BLOCK_PROVISIONING => data(vpd::page(code, &[0, 0xc4, 2, 0])),
        _ => refuse(),
    }
}

fn capacity() -> Vec<u8> {
    let capacity = ReadCapacity16 {
        last_lba: BLOCKS - 1,
        block_len: BLOCK_LEN as u32,
        physical_exponent: 3,
        provisioned: true,
        unmapped_zero: true,
    };
    capacity.emit().to_vec()
}

/// LBA status in which all blocks are mapped.
fn lba_status(cdb: &[u8; 16]) -> Vec<u8> {
    let lba = u64::from_be_bytes(cdb[2..10].try_into().expect("eight bytes"));
    let blocks = BLOCKS.saturating_sub(lba) as u32;
    lba_status::emit(&[LbaStatus { lba, blocks, mapped: true }])
}

/// MODE SENSE(6) data without block descriptors: the Caching page with WCE.
fn caching_page() -> Vec<u8> {
    let mut data = vec![0; 4 + 20];
    (data[0], data[4], data[5], data[6]) = (23, 0x08, 0x12, 0x04);
    data
}

/// The byte range of a command on blocks, if it lies on the disk.
fn range(cdb: &[u8; 16]) -> Option<std::ops::Range<usize>> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    let (lba, blocks) = match OpCode(cdb[0]) {
        OpCode::READ_10 | OpCode::WRITE_10 => (number(&cdb[2..6]), number(&cdb[7..9])),
        _ => (number(&cdb[2..10]), number(&cdb[10..14])),
    };
    let end = lba.checked_add(blocks).filter(|end| *end <= BLOCKS)?;
    Some(lba as usize * BLOCK_LEN..end as usize * BLOCK_LEN)
}
