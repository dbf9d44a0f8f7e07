//! What the device server accepts at most.

/// Bytes that one command may transfer to or from the medium (MAXIMUM TRANSFER LENGTH of the Block Limits VPD page).
/// Every such transfer fits into one buffer.
pub const MAX_TRANSFER_BYTES: usize = 8 << 20;

/// Blocks that one WRITE SAME may write on a unit that can free space (MAXIMUM WRITE SAME LENGTH): what the 10-byte form can
/// ask for. Other units set no limit.
pub const MAX_WRITE_SAME_BLOCKS: u32 = 0xffff;

/// Bytes that a store is asked to make zero at a time. One command may ask for a whole medium; between two pieces it can be
/// aborted.
pub(crate) const MAX_ZEROES_BYTES: u64 = 256 << 20;

/// Blocks that one COMPARE AND WRITE may compare and write (MAXIMUM COMPARE AND WRITE LENGTH): what its CDB can ask for.
pub const MAX_COMPARE_AND_WRITE_BLOCKS: u8 = u8::MAX;

/// Bytes that one WRITE ATOMIC may write (MAXIMUM ATOMIC TRANSFER LENGTH).
///
/// Other commands see all of such a write or nothing. What a power cut leaves of it is up to the medium: stores make no
/// promise beyond their physical block.
pub const MAX_ATOMIC_BYTES: usize = 1 << 20;

/// Block descriptors in one UNMAP parameter list (MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT).
pub const MAX_UNMAP_DESCRIPTORS: u16 = 256;

/// Bytes of a buffer that repeats a pattern or holds blocks to compare. Longer ranges are done piece by piece.
pub(crate) const MAX_CHUNK_BYTES: usize = 256 << 10;

/// Registrations for persistent reservations on one logical unit.
pub const MAX_REGISTRATIONS: usize = 1024;

/// Bytes of a PERSISTENT RESERVE OUT parameter list: TransportIDs of more initiator ports than can be registered at one time.
pub(crate) const MAX_RESERVE_LIST_BYTES: u32 = 256 << 10;

/// Unit attentions that wait in one queue. The crate raises fewer different ones than this.
pub(crate) const MAX_UNIT_ATTENTIONS: usize = 16;

/// Target port groups of one target device.
pub const MAX_PORT_GROUPS: usize = 64;

/// Target ports of one group: their number has one byte in REPORT TARGET PORT GROUPS.
pub const MAX_PORTS_OF_GROUP: usize = 255;

/// Bytes of identifying information, and of the text form of it (SPC-5 5.7).
pub(crate) const MAX_IDENTIFYING_BYTES: u16 = 512;
pub(crate) const MAX_IDENTIFYING_TEXT_BYTES: u16 = 256;

/// Bytes of one request of a sanitize operation: of those that write, and of those that free.
pub(crate) const SANITIZE_WRITE_BYTES: usize = 1 << 20;
pub(crate) const SANITIZE_ERASE_BYTES: u64 = 64 << 20;

/// How often at most a sanitize operation records where it stands. A restart begins again there.
pub(crate) const SANITIZE_CHECKPOINT: std::time::Duration = std::time::Duration::from_secs(1);
