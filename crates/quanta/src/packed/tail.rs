//! The tail of a journal: which records are needed, and which of them are known to be on stable storage.
//!
//! The journal begins with two copies, each in 4096 bytes, which are written in turn. The ring of records follows. No
//! record is overwritten before a tail that gives it up is on stable storage: otherwise a power cut could leave an
//! older record of a quantum and not its last one, and replaying would bring the older content back.
//!
//! A tail also says up to which number all needed records were flushed. One of these that is not whole later has
//! rotted, and its content was acknowledged; a record with a higher number may have been torn by a power cut.

use crate::associated::VolumeId;
use crate::limits::MAX_SEQUENCE;
use crate::slot::array;

/// Bytes of a tail; zeroes fill its block.
pub const TAIL_LEN: usize = 64;

/// Bytes at the beginning of the journal that hold both copies of the tail.
pub const TAILS_LEN: usize = RING_OFFSET as usize;

/// Bytes from one copy to the next.
const COPY_LEN: u64 = 4096;

/// Where the ring begins in the journal.
pub(crate) const RING_OFFSET: u64 = 2 * COPY_LEN;

const MAGIC: [u8; 8] = *b"LUNJTAIL";
const VOLUME_AT: usize = 8;
const SEQUENCE_AT: usize = 24;
const OWNER_AT: usize = 32;
const FLUSHED_AT: usize = 40;
const CRC_AT: usize = 60;

/// Bytes to write to the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// Where, from the beginning of the journal.
    pub offset: u64,
    /// The content; zeroes fill the block.
    pub bytes: [u8; TAIL_LEN],
}

/// The content of a tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Content {
    /// The lowest sequence number that is needed.
    pub(crate) sequence: u64,
    /// All records from there up to this number were flushed; 0 in tails whose writer did not note it.
    pub(crate) flushed: u64,
    pub(crate) owner: u64,
}

pub(crate) fn emit(volume: VolumeId, content: Content, copy: u64) -> Tail {
    let mut bytes = [0; TAIL_LEN];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[VOLUME_AT..SEQUENCE_AT].copy_from_slice(&volume.0);
    bytes[SEQUENCE_AT..SEQUENCE_AT + 8].copy_from_slice(&content.sequence.to_le_bytes());
    bytes[OWNER_AT..OWNER_AT + 8].copy_from_slice(&content.owner.to_le_bytes());
    bytes[FLUSHED_AT..FLUSHED_AT + 8].copy_from_slice(&content.flushed.to_le_bytes());
    let crc = lunette_crc32c::crc32c(&bytes[..CRC_AT]);
    bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    Tail { offset: copy * COPY_LEN, bytes }
}

/// The tail that counts and its copy: the one with the highest number, and the highest flushed number of either. `None`
/// when both copies are damaged.
pub(crate) fn find(area: &[u8], volume: VolumeId) -> Option<(Content, u64)> {
    let copies = || (0..2).filter_map(|copy| Some((read(area.get((copy * COPY_LEN) as usize..)?, volume)?, copy)));
    let (content, copy) = copies().max()?;
    let flushed = copies().map(|(content, _)| content.flushed).max()?;
    Some((Content { flushed, ..content }, copy))
}

/// The owners that the copies name; `None` for a damaged copy.
pub(crate) fn owners(area: &[u8], volume: VolumeId) -> [Option<u64>; 2] {
    [0, COPY_LEN].map(|at| Some(read(area.get(at as usize..)?, volume)?.owner))
}

fn read(bytes: &[u8], volume: VolumeId) -> Option<Content> {
    let bytes = bytes.first_chunk::<TAIL_LEN>()?;
    let number = |at| u64::from_le_bytes(array(bytes, at));
    let content = Content { sequence: number(SEQUENCE_AT), flushed: number(FLUSHED_AT), owner: number(OWNER_AT) };
    let ours = bytes[..MAGIC.len()] == MAGIC && bytes[VOLUME_AT..SEQUENCE_AT] == volume.0;
    let whole = u32::from_le_bytes(array(bytes, CRC_AT)) == lunette_crc32c::crc32c(&bytes[..CRC_AT]);
    let allowed = (1..=MAX_SEQUENCE).contains(&content.sequence) && content.flushed <= MAX_SEQUENCE;
    (ours && whole && allowed).then_some(content)
}
