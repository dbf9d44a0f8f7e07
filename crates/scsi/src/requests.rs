//! CDBs for initiators, padded to the 16 bytes of a SCSI Command PDU header.
//!
//! Commands on blocks use the 10-byte form where address and length fit, because every disk supports it, and the
//! 16-byte form otherwise.

use crate::{OpCode, ServiceAction};

/// The 16 CDB bytes of a SCSI Command PDU header.
pub type CdbBytes = [u8; 16];

const FUA: u8 = 0x08;
const UNMAP: u8 = 0x08;
const EVPD: u8 = 0x01;
/// DBD: no block descriptors are returned.
const DBD: u8 = 0x08;
const BYTCHK_COMPARE: u8 = 0x02;

/// Pads a CDB with zeroes.
///
/// # Panics
///
/// When `bytes` has more than 16 bytes.
fn padded(bytes: &[u8]) -> CdbBytes {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

/// A command on blocks, in the shorter form that holds its address and length.
fn on_blocks(short: OpCode, long: OpCode, flags: u8, lba: u64, blocks: u32) -> CdbBytes {
    let mut cdb = [0; 16];
    cdb[1] = flags;
    if let (Ok(lba), Ok(blocks)) = (u32::try_from(lba), u16::try_from(blocks)) {
        cdb[0] = short.0;
        cdb[2..6].copy_from_slice(&lba.to_be_bytes());
        cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    } else {
        cdb[0] = long.0;
        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    }
    cdb
}

/// READ(10) or (16).
pub fn read(lba: u64, blocks: u32, fua: bool) -> CdbBytes {
    on_blocks(OpCode::READ_10, OpCode::READ_16, if fua { FUA } else { 0 }, lba, blocks)
}

/// WRITE(10) or (16). With `fua` the command ends when the blocks are on the medium.
pub fn write(lba: u64, blocks: u32, fua: bool) -> CdbBytes {
    on_blocks(OpCode::WRITE_10, OpCode::WRITE_16, if fua { FUA } else { 0 }, lba, blocks)
}

/// VERIFY(10) or (16). With `compare`, the Data-Out holds the same number of blocks to compare with.
pub fn verify(lba: u64, blocks: u32, compare: bool) -> CdbBytes {
    on_blocks(OpCode::VERIFY_10, OpCode::VERIFY_16, if compare { BYTCHK_COMPARE } else { 0 }, lba, blocks)
}

/// SYNCHRONIZE CACHE of the whole medium.
pub fn synchronize_cache() -> CdbBytes {
    padded(&[OpCode::SYNCHRONIZE_CACHE_10.0])
}

/// WRITE SAME(16), which repeats one block of Data-Out. `unmap` allows the device server to free the blocks instead,
/// when the block is zeroes.
pub fn write_same(lba: u64, blocks: u32, unmap: bool) -> CdbBytes {
    let mut cdb = padded(&[OpCode::WRITE_SAME_16.0, if unmap { UNMAP } else { 0 }]);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// UNMAP with a parameter list of `list_len` bytes (see [`crate::unmap::emit`]).
pub fn unmap(list_len: u16) -> CdbBytes {
    let [high, low] = list_len.to_be_bytes();
    padded(&[OpCode::UNMAP.0, 0, 0, 0, 0, 0, 0, high, low])
}

/// COMPARE AND WRITE. The Data-Out is `blocks` blocks to compare with, then the same number of blocks to write.
pub fn compare_and_write(lba: u64, blocks: u8, fua: bool) -> CdbBytes {
    let mut cdb = padded(&[OpCode::COMPARE_AND_WRITE.0, if fua { FUA } else { 0 }]);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[13] = blocks;
    cdb
}

/// TEST UNIT READY.
pub fn test_unit_ready() -> CdbBytes {
    [0; 16]
}

/// INQUIRY for standard data, or for a vital product data page.
pub fn inquiry(page: Option<crate::vpd::PageCode>, allocation_len: u16) -> CdbBytes {
    let [high, low] = allocation_len.to_be_bytes();
    let (evpd, code) = page.map_or((0, 0), |page| (EVPD, page.0));
    padded(&[OpCode::INQUIRY.0, evpd, code, high, low])
}

/// The CDB of READ CAPACITY(10).
pub fn read_capacity_10() -> CdbBytes {
    padded(&[OpCode::READ_CAPACITY_10.0])
}

/// The CDB of READ CAPACITY(16).
pub fn read_capacity_16(allocation_len: u32) -> CdbBytes {
    service_action_in(ServiceAction::READ_CAPACITY_16, 0, allocation_len)
}

/// GET LBA STATUS(16), starting at `lba`.
pub fn get_lba_status(lba: u64, allocation_len: u32) -> CdbBytes {
    service_action_in(ServiceAction::GET_LBA_STATUS_16, lba, allocation_len)
}

fn service_action_in(action: ServiceAction, lba: u64, allocation_len: u32) -> CdbBytes {
    let mut cdb = padded(&[OpCode::SERVICE_ACTION_IN_16.0, action.0 as u8]);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&allocation_len.to_be_bytes());
    cdb
}

/// REPORT LUNS for all logical units except well known ones.
pub fn report_luns(allocation_len: u32) -> CdbBytes {
    let mut cdb = padded(&[OpCode::REPORT_LUNS.0]);
    cdb[6..10].copy_from_slice(&allocation_len.to_be_bytes());
    cdb
}

/// MODE SENSE(6) for the current values of a page, without block descriptors.
pub fn mode_sense_6(page: crate::mode::PageCode, allocation_len: u8) -> CdbBytes {
    padded(&[OpCode::MODE_SENSE_6.0, DBD, page.0, 0, allocation_len])
}

/// REPORT TARGET PORT GROUPS, without extended header.
pub fn report_target_port_groups(allocation_len: u32) -> CdbBytes {
    let mut cdb = padded(&[OpCode::MAINTENANCE_IN.0, ServiceAction::REPORT_TARGET_PORT_GROUPS.0 as u8]);
    cdb[6..10].copy_from_slice(&allocation_len.to_be_bytes());
    cdb
}

/// SET TARGET PORT GROUPS with a parameter list of `list_len` bytes.
pub fn set_target_port_groups(list_len: u32) -> CdbBytes {
    let mut cdb = padded(&[OpCode::MAINTENANCE_OUT.0, ServiceAction::SET_TARGET_PORT_GROUPS.0 as u8]);
    cdb[6..10].copy_from_slice(&list_len.to_be_bytes());
    cdb
}

/// REPORT SUPPORTED OPERATION CODES for all commands.
pub fn report_supported_opcodes(allocation_len: u32) -> CdbBytes {
    let action = ServiceAction::REPORT_SUPPORTED_OPERATION_CODES.0 as u8;
    let mut cdb = padded(&[OpCode::MAINTENANCE_IN.0, action]);
    cdb[6..10].copy_from_slice(&allocation_len.to_be_bytes());
    cdb
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockCdb, Cdb};

    #[test]
    fn the_form_follows_the_numbers() {
        for (lba, blocks, opcode) in [
            (0, 1, OpCode::READ_10),
            (u64::from(u32::MAX), 65_535, OpCode::READ_10),
            (1 << 32, 1, OpCode::READ_16),
            (0, 65_536, OpCode::READ_16),
        ] {
            let cdb = Cdb::from(read(lba, blocks, false));
            let parsed = BlockCdb::parse(&cdb).unwrap();
            assert_eq!((cdb.opcode(), parsed.lba, parsed.blocks), (opcode, lba, blocks));
        }
    }

    #[test]
    fn fields_are_where_the_device_server_reads_them() {
        let fields = |cdb| BlockCdb::parse(&Cdb::from(cdb)).map(|fields| (fields.lba, fields.blocks)).unwrap();
        assert_eq!(fields(compare_and_write(9, 2, true)), (9, 2));
        assert_eq!(fields(write_same(7, 70_000, true)), (7, 70_000));
        assert_eq!(fields(get_lba_status(5, 24)), (5, 24));
        assert_eq!(unmap(24)[..10], [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0]);
        assert_eq!(inquiry(Some(crate::vpd::PageCode::BLOCK_LIMITS), 255)[..6], [0x12, 1, 0xb0, 0, 255, 0]);
        assert_eq!(report_luns(0x1_0000)[6..10], [0, 1, 0, 0]);
    }
}
