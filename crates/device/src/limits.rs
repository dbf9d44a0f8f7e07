//! What the device server accepts at most.

use lunette_scsi::copy::CopyLimits;

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

/// Lost nexuses that one logical unit remembers, to tell a lost connection from a power-on when they come back.
pub(crate) const MAX_ABSENT_NEXUSES: usize = 1024;

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

/// Copies, by EXTENDED COPY and by token, that one logical unit does at one time.
pub(crate) const MAX_COPIES: u8 = 64;

/// Copies of one nexus on one logical unit whose outcome is remembered.
pub(crate) const MAX_COPY_REPORTS: usize = 64;

/// Copy sources and destinations, and segments, of one EXTENDED COPY.
const MAX_COPY_TARGETS: u16 = 64;
const MAX_COPY_SEGMENTS: u16 = 64;

/// Bytes of all their descriptors: room for as many of each.
pub(crate) const MAX_COPY_DESCRIPTORS_BYTES: u32 = 4096;

/// Bytes of one segment: more than its number of blocks can say.
const MAX_SEGMENT_BYTES: u32 = 256 << 20;

/// Bytes that one token command handles. Initiators give up on a command after some seconds.
const MAX_TOKEN_BYTES: u64 = 256 << 20;

/// Block device range descriptors of one token command.
const MAX_TOKEN_RANGES: u16 = 64;

/// Bytes of the longest parameter list of a token command: header and token of WRITE USING TOKEN, and its ranges.
pub(crate) const MAX_TOKEN_LIST_BYTES: u32 = 536 + MAX_TOKEN_RANGES as u32 * 16;

/// ROD tokens of one target device.
pub(crate) const MAX_ROD_TOKENS: usize = 1024;

/// Seconds without use after which a ROD token ends: at most, and when nothing is asked for.
const MAX_TOKEN_TIMEOUT_S: u32 = 600;
pub(crate) const DEFAULT_TOKEN_TIMEOUT_S: u32 = 60;

/// Bytes of the buffer that a copy goes through.
pub(crate) const MAX_BUFFERED_COPY_BYTES: usize = 1 << 20;

/// Bytes that the system copies, or a store zeroes, before a copy looks whether it was aborted.
pub(crate) const MAX_SYSTEM_COPY_BYTES: u64 = 16 << 20;

/// Workspaces of ended commands that a thread keeps for the next ones: as many as a few sessions have commands in flight.
pub(crate) const MAX_IDLE_WORKSPACES: usize = 1024;

/// Fewer bytes are not sent from their file: to copy them costs less than the system calls.
pub(crate) const MIN_FILE_SLICE_BYTES: u64 = 32 << 10;

/// What the copy manager of a logical unit takes, whose blocks have `block_size` bytes.
pub(crate) fn copy_limits(block_size: u32) -> CopyLimits {
    CopyLimits {
        max_cscds: MAX_COPY_TARGETS,
        max_segments: MAX_COPY_SEGMENTS,
        max_descriptors_len: MAX_COPY_DESCRIPTORS_BYTES,
        max_segment_len: MAX_SEGMENT_BYTES,
        max_copies: MAX_COPIES,
        max_ranges: MAX_TOKEN_RANGES,
        max_token_blocks: MAX_TOKEN_BYTES / u64::from(block_size),
        max_inactivity_timeout_s: MAX_TOKEN_TIMEOUT_S,
        default_inactivity_timeout_s: DEFAULT_TOKEN_TIMEOUT_S,
    }
}
