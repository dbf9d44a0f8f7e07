//! GET LBA STATUS (SBC-4 5.6).

use lunette_scsi::lba_status::{self, LbaStatus};
use lunette_scsi::{AdditionalSense, FieldPointer, OpCode, SenseData};
use lunette_store::Run;

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::extent::Extent;

/// The offsets of the CDB fields in one form of the command.
struct Form {
    lba: u16,
    /// Offset of SCAN LENGTH, which counts blocks; zero sets no limit.
    scan: Option<usize>,
    allocation_len: usize,
}

const FORM_16: Form = Form { lba: 2, scan: None, allocation_len: 10 };
const FORM_32: Form = Form { lba: 12, scan: Some(20), allocation_len: 28 };

/// Executes GET LBA STATUS(16) and (32), which report the blocks that have space in the store. On a fully provisioned
/// unit all blocks are mapped.
pub(crate) async fn get_lba_status(cx: Cx) -> Reply {
    let unit = cx.unit()?;
    let form = if cx.cdb.opcode() == OpCode::VARIABLE_LENGTH { FORM_32 } else { FORM_16 };
    let (lba, block_size) = (cx.cdb.u64_at(usize::from(form.lba)), u64::from(unit.block_size()));
    let Some(rest) = unit.blocks().checked_sub(lba).filter(|blocks| *blocks > 0) else {
        let field = FieldPointer::cdb(form.lba);
        return Err(SenseData::illegal_request(AdditionalSense::LBA_OUT_OF_RANGE).with_field(field));
    };
    let blocks = match form.scan.map_or(0, |at| cx.cdb.u32_at(at)) {
        0 => rest,
        scan => rest.min(u64::from(scan)),
    };
    let extent = Extent { offset: lba * block_size, len: blocks * block_size };
    let runs = if unit.capabilities().unmap {
        cx.allocation(extent).await?
    } else {
        vec![Run { len: extent.len, allocated: true }]
    };
    let data = lba_status::emit(&descriptors(lba, block_size, &runs));
    cx.reply(&data, cx.cdb.u32_at(form.allocation_len) as usize).await
}

/// The descriptors of `runs` from block `lba` on. A block is mapped when any of its bytes has space.
fn descriptors(lba: u64, block_size: u64, runs: &[Run]) -> Vec<LbaStatus> {
    let mut list: Vec<LbaStatus> = Vec::new();
    let (mut block, mut byte) = (0, 0);
    for run in runs {
        byte += run.len;
        let end = if run.allocated { byte.div_ceil(block_size) } else { byte / block_size };
        while block < end {
            let blocks = u32::try_from(end - block).unwrap_or(u32::MAX);
            list.push(LbaStatus { lba: lba + block, blocks, mapped: run.allocated });
            block += u64::from(blocks);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_mapped_when_any_of_its_bytes_is() {
        let run = |len, allocated| Run { len, allocated };
        let status = |lba, blocks, mapped| LbaStatus { lba, blocks, mapped };
        let runs = [run(5000, false), run(1000, true), run(4096 * 2, false), run(4096 * 2, true)];
        let expected = [status(9, 1, false), status(10, 1, true), status(11, 1, false), status(12, 3, true)];
        assert_eq!(descriptors(9, 4096, &runs), expected);
    }

    #[test]
    fn a_run_longer_than_a_descriptor_holds_has_several() {
        let list = descriptors(0, 512, &[Run { len: 512 << 33, allocated: false }]);
        assert_eq!(list.len(), 3);
        assert_eq!(list.iter().map(|status| u64::from(status.blocks)).sum::<u64>(), 1 << 33);
        assert_eq!(list[1].lba, u64::from(u32::MAX));
    }
}
