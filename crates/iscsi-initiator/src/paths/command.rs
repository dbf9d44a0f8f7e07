//! The effect of a command on the blocks of its disk.

use std::ops::Range;

use lunette_scsi::{BlockCdb, Cdb, OpCode, unmap};

use crate::Request;

/// Commands that change blocks which their CDB names.
const CHANGES: [OpCode; 12] = [
    OpCode::WRITE_6,
    OpCode::WRITE_10,
    OpCode::WRITE_12,
    OpCode::WRITE_16,
    OpCode::WRITE_AND_VERIFY_10,
    OpCode::WRITE_AND_VERIFY_12,
    OpCode::WRITE_AND_VERIFY_16,
    OpCode::WRITE_SAME_10,
    OpCode::WRITE_SAME_16,
    OpCode::COMPARE_AND_WRITE,
    OpCode::WRITE_ATOMIC_16,
    OpCode::ORWRITE_16,
];

/// Commands that change no block.
const CHANGES_NOTHING: [OpCode; 19] = [
    OpCode::TEST_UNIT_READY,
    OpCode::REQUEST_SENSE,
    OpCode::INQUIRY,
    OpCode::MODE_SENSE_6,
    OpCode::MODE_SENSE_10,
    OpCode::READ_CAPACITY_10,
    OpCode::READ_6,
    OpCode::READ_10,
    OpCode::READ_12,
    OpCode::READ_16,
    OpCode::VERIFY_10,
    OpCode::VERIFY_16,
    OpCode::SYNCHRONIZE_CACHE_10,
    OpCode::SYNCHRONIZE_CACHE_16,
    OpCode::SERVICE_ACTION_IN_16,
    OpCode::MAINTENANCE_IN,
    OpCode::PERSISTENT_RESERVE_IN,
    OpCode::REPORT_LUNS,
    OpCode::LOG_SENSE,
];

/// The blocks that a command may change. `None` when it changes none; all of them when they are not known.
pub(super) fn changed_blocks(request: &Request) -> Option<Range<u64>> {
    let opcode = OpCode(request.cdb[0]);
    if CHANGES_NOTHING.contains(&opcode) {
        return None;
    }
    let known = if opcode == OpCode::UNMAP {
        request.data_out.as_ref().and_then(|list| unmapped(list))
    } else if CHANGES.contains(&opcode) {
        named(request)
    } else {
        None
    };
    Some(known.unwrap_or(0..u64::MAX))
}

/// The blocks that the CDB names. A WRITE SAME of no blocks goes on to the end of the disk.
fn named(request: &Request) -> Option<Range<u64>> {
    let blocks = BlockCdb::parse(&Cdb::from(request.cdb))?;
    let to_the_end =
        blocks.blocks == 0 && matches!(OpCode(request.cdb[0]), OpCode::WRITE_SAME_10 | OpCode::WRITE_SAME_16);
    Some(blocks.lba..if to_the_end { u64::MAX } else { blocks.end()? })
}

/// The blocks from the first to the last that an UNMAP parameter list names.
fn unmapped(list: &[u8]) -> Option<Range<u64>> {
    let ranges = unmap::parse(list).ok()?;
    let first = ranges.clone().map(|range| range.lba).min()?;
    let end = ranges.map(|range| range.lba.saturating_add(range.blocks.into())).max()?;
    Some(first..end)
}

#[cfg(test)]
mod tests {
    use lunette_buffer::Pool;
    use lunette_scsi::unmap::UnmapRange;
    use lunette_scsi::{Lun, requests};

    use super::*;

    #[test]
    fn each_command_claims_the_blocks_that_it_may_change() {
        for (cdb, expected) in [
            (requests::read(3, 4, false), None),
            (requests::synchronize_cache(), None),
            (requests::get_lba_status(3, 24), None),
            (requests::report_target_port_groups(4), None),
            // PERSISTENT RESERVE IN, READ KEYS.
            ([0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0], None),
            (requests::write(3, 4, true), Some(3..7)),
            (requests::write(1 << 40, 4, false), Some(1 << 40..(1 << 40) + 4)),
            (requests::write(9, 0, false), Some(9..9)),
            (requests::compare_and_write(3, 2, false), Some(3..5)),
            (requests::write_same(3, 70_000, true), Some(3..70_003)),
            (requests::write_same(3, 0, false), Some(3..u64::MAX)),
            (requests::write(u64::MAX, 2, false), Some(0..u64::MAX)),
            // Without its list.
            (requests::unmap(24), Some(0..u64::MAX)),
            // FORMAT UNIT, SET TARGET PORT GROUPS: what they change is not in the table.
            ([4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Some(0..u64::MAX)),
            (requests::set_target_port_groups(8), Some(0..u64::MAX)),
        ] {
            assert_eq!(changed_blocks(&Request::new(Lun::ZERO, cdb)), expected, "{cdb:02x?}");
        }
    }

    #[test]
    fn unmap_claims_from_the_first_to_the_last_block_of_its_list() {
        let list = unmap::emit(&[UnmapRange { lba: 100, blocks: 8 }, UnmapRange { lba: 20, blocks: 5 }]);
        let mut buffer = Pool::new(1 << 20).take(list.len()).unwrap();
        buffer.copy_from_slice(&list);
        let request = Request::new(Lun::ZERO, requests::unmap(list.len() as u16)).with_data_out(buffer.share());
        assert_eq!(changed_blocks(&request), Some(20..108));
    }
}
