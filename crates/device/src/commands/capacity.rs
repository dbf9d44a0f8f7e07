//! READ CAPACITY (SBC-4 5.20, 5.21).

use lunette_scsi::capacity::{ReadCapacity16, read_capacity_10 as short_data};

use crate::commands::context::Cx;
use crate::coroutine::Reply;

/// Executes READ CAPACITY(10).
pub(crate) async fn read_capacity_10(cx: Cx) -> Reply {
    let unit = cx.unit()?;
    // A store that shrank below one block has no last block; zero is the closest value.
    let data = short_data(unit.blocks().saturating_sub(1), unit.block_size());
    cx.reply(&data, data.len()).await
}

/// Executes READ CAPACITY(16).
pub(crate) async fn read_capacity_16(cx: Cx) -> Reply {
    let unit = cx.unit()?;
    let capabilities = unit.capabilities();
    let capacity = ReadCapacity16 {
        last_lba: unit.blocks().saturating_sub(1),
        block_len: unit.block_size(),
        physical_exponent: unit.physical_exponent(),
        provisioned: capabilities.unmap,
        unmapped_zero: capabilities.unmap && capabilities.unmap_zeroes,
    };
    cx.reply(&capacity.emit(), cx.cdb.u32_at(10) as usize).await
}
