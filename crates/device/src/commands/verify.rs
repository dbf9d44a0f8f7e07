//! VERIFY and WRITE AND VERIFY (SBC-4 5.43 and following).

use lunette_buffer::Buffer;
use lunette_scsi::{AdditionalSense, FieldPointer, SenseData, SenseKey};

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::extent::Extent;
use crate::limits::MAX_CHUNK_BYTES;

/// The bit of BYTCHK that asks for a comparison with the whole Data-Out.
const BYTCHK_COMPARE: u8 = 0x02;

/// The data that the medium is compared with (BYTCHK).
enum Expected {
    /// No data: the blocks must be readable and, where they are quanta that the unit looks at, intact.
    Readable,
    /// The whole Data-Out.
    Bytes(Buffer),
    /// One block of Data-Out, compared with every block.
    Block(Buffer),
}

/// Executes VERIFY(10), (12), (16) and (32), with BYTCHK 0, 1 and 3.
pub(crate) async fn verify(cx: Cx) -> Reply {
    let block_size = cx.unit()?.block_size();
    let Extent { offset, mut len } = cx.extent;
    let expected = match cx.cdb.byte(usize::from(cx.cdb.flags_at())) >> 1 & 0x03 {
        0 => Expected::Readable,
        _ if len == 0 => return Ok(None),
        1 => match cx.data_out(len, block_size).await? {
            None => return Ok(None),
            Some(bytes) => {
                // Of a Data-Out shorter than the CDB announces, the whole blocks are compared.
                len = bytes.len() as u64;
                Expected::Bytes(bytes)
            }
        },
        3 => Expected::Block(cx.exact_data_out(u64::from(block_size)).await?),
        _ => return Err(FieldPointer::cdb(cx.cdb.flags_at()).bit(2).into()),
    };
    let extent = Extent { offset, len };
    if len > 0 {
        let chunk = cx.buffer(chunk_len(&cx, extent)?).await?;
        compare(&cx, extent, &expected, chunk).await?;
    }
    Ok(None)
}

/// Executes WRITE AND VERIFY(10), (12), (16) and (32), with BYTCHK 0 and 1. The blocks are written to stable storage
/// and then verified, atomically for other commands.
pub(crate) async fn write_and_verify(cx: Cx) -> Reply {
    let block_size = cx.unit()?.block_size();
    let Some(data) = cx.data_out(cx.extent.len, block_size).await? else { return Ok(None) };
    let extent = Extent { offset: cx.extent.offset, len: data.len() as u64 };
    let chunk = cx.buffer(chunk_len(&cx, extent)?).await?;
    cx.claim_exclusively(extent).await?;
    let data = cx.write(extent.offset, data, true).await?;
    let expected = if cx.cdb.flag(BYTCHK_COMPARE) { Expected::Bytes(data) } else { Expected::Readable };
    compare(&cx, extent, &expected, chunk).await?;
    Ok(None)
}

/// Length in bytes of the chunks in which `extent` is compared.
fn chunk_len(cx: &Cx, extent: Extent) -> Result<usize, SenseData> {
    Ok(extent.len.min(cx.unit()?.whole_blocks(MAX_CHUNK_BYTES) as u64) as usize)
}

/// Reads `extent` chunk by chunk into `chunk` and compares. INFORMATION of a miscompare is the offset of the first byte
/// that differs.
async fn compare(cx: &Cx, extent: Extent, expected: &Expected, mut chunk: Buffer) -> Result<(), SenseData> {
    let (chunk_len, mut done) = (chunk.len() as u64, 0);
    while done < extent.len {
        chunk.truncate((extent.len - done).min(chunk_len) as usize);
        chunk = cx.read(extent.offset + done, chunk).await?;
        if let Some(quanta) = cx.unit()?.quanta() {
            quanta.check_read(extent.offset + done, &chunk)?;
        }
        if let Some(at) = expected.first_difference(done as usize, &chunk) {
            let sense = SenseData::new(SenseKey::MISCOMPARE, AdditionalSense::MISCOMPARE_DURING_VERIFY);
            return Err(sense.with_information(done + at as u64));
        }
        done += chunk.len() as u64;
    }
    Ok(())
}

impl Expected {
    /// The offset in `chunk` of the first byte that differs. `chunk` was read `done` bytes after the start.
    fn first_difference(&self, done: usize, chunk: &[u8]) -> Option<usize> {
        match self {
            Self::Readable => None,
            Self::Bytes(bytes) => first_difference(chunk, bytes.get(done..)?),
            // Chunks are whole blocks, so each starts with the first byte of the block.
            Self::Block(block) => chunk
                .chunks(block.len())
                .enumerate()
                .find_map(|(index, found)| Some(index * block.len() + first_difference(found, block)?)),
        }
    }
}

/// The index of the first byte in which two slices differ, over their common length.
pub(crate) fn first_difference(found: &[u8], expected: &[u8]) -> Option<usize> {
    let len = found.len().min(expected.len());
    // Equal bytes are the rule, and comparing slices is much faster than looking at each byte.
    if found[..len] == expected[..len] {
        return None;
    }
    found.iter().zip(expected).position(|(found, expected)| found != expected)
}
