//! The limits of the device server, each with its unit.

use lunette_scsi::copy::CopyLimits;

/// Bytes that one command may transfer to or from the medium (MAXIMUM TRANSFER LENGTH of the Block Limits VPD page).
/// Every such transfer fits into one buffer.
pub const MAX_TRANSFER_BYTES: usize = 8 << 20;

/// The lengths that a logical block may have, in bytes: those of disks, and a quantum of 512 to 4096 bytes with the 64
/// bytes of its slot. SBC-4 sets no limit, and all of this crate works for any length up to 256 KiB.
pub const BLOCK_SIZES: [u32; 6] = [512, 4096, 576, 1088, 2112, 4160];

/// Blocks that one WRITE SAME may write on a unit that can free space (MAXIMUM WRITE SAME LENGTH): the most that the
/// 10-byte form can express. Other units set no limit.
pub const MAX_WRITE_SAME_BLOCKS: u32 = 0xffff;

/// Bytes that one request asks a store to zero. One command may cover a whole medium; it can be aborted between two
/// requests.
pub(crate) const MAX_ZEROES_BYTES: usize = 256 << 20;

/// Blocks that one COMPARE AND WRITE may compare and write (MAXIMUM COMPARE AND WRITE LENGTH): the most that its CDB
/// can express.
pub const MAX_COMPARE_AND_WRITE_BLOCKS: u8 = u8::MAX;

/// Bytes that one WRITE ATOMIC may write (MAXIMUM ATOMIC TRANSFER LENGTH).
///
/// Other commands see all of such a write or nothing. After a power cut the medium decides how much of it survives:
/// stores promise nothing beyond their physical block.
pub const MAX_ATOMIC_BYTES: usize = 1 << 20;

/// Block descriptors in one UNMAP parameter list (MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT).
pub const MAX_UNMAP_DESCRIPTORS: u16 = 256;

/// Bytes of a buffer that repeats a pattern or holds blocks to compare. Longer ranges are processed in chunks of this
/// size.
pub(crate) const MAX_CHUNK_BYTES: usize = 256 << 10;

/// Registrations for persistent reservations on one logical unit.
pub const MAX_REGISTRATIONS: usize = 1024;

/// Bytes of a PERSISTENT RESERVE OUT parameter list: TransportIDs of more initiator ports than can be registered at one
/// time.
pub(crate) const MAX_RESERVE_LIST_BYTES: u32 = 256 << 10;

/// The last changes of the reservations that servers of a shared unit have in common, in number and in bytes. A server
/// that has missed more learns of what is gone from the registrations that are.
pub(crate) const MAX_COMMON_CHANGES: usize = 16;
pub(crate) const MAX_COMMON_CHANGES_BYTES: usize = 128 << 10;

/// Unit attentions pending in one queue. The crate raises fewer distinct conditions than this.
pub(crate) const MAX_UNIT_ATTENTIONS: usize = 16;

/// Lost nexuses that one logical unit remembers, so that a returning nexus finds I_T NEXUS LOSS instead of a power on.
pub(crate) const MAX_LOST_NEXUSES: usize = 1024;

/// Initiators whose share of the bytes one logical unit remembers when they are gone. The shares of all others are one.
pub(crate) const MAX_GONE_INITIATORS: usize = 64;

/// Target port groups of one target device.
pub const MAX_PORT_GROUPS: usize = 64;

/// Target ports of one group: REPORT TARGET PORT GROUPS counts them in one byte.
pub const MAX_PORTS_OF_GROUP: usize = 255;

/// Bytes of identifying information of the binary and of the text type (SPC-5 5.7).
pub(crate) const MAX_IDENTIFYING_BYTES: u16 = 512;
pub(crate) const MAX_IDENTIFYING_TEXT_BYTES: u16 = 256;

/// Bytes of one request of a sanitize operation: of a write, and of a request that frees space.
pub(crate) const SANITIZE_WRITE_BYTES: usize = 1 << 20;
pub(crate) const SANITIZE_ERASE_BYTES: usize = 64 << 20;

/// The shortest time between two checkpoints of a sanitize operation. After a restart the operation resumes at the last
/// one.
pub(crate) const SANITIZE_CHECKPOINT: std::time::Duration = std::time::Duration::from_secs(1);

/// Bytes that a scrub reads in one request.
pub(crate) const SCRUB_BYTES: usize = 256 << 10;

/// How long a unit of quanta checks what it reads after an initiator may have found a digest wrong: initiators are back
/// within it and read again.
pub(crate) const DOUBT_TIME: std::time::Duration = std::time::Duration::from_mins(1);

/// Copies, by EXTENDED COPY and by token, that run on one logical unit at one time.
pub(crate) const MAX_COPIES: u8 = 64;

/// Copies of one nexus on one logical unit whose results are kept.
pub(crate) const MAX_COPY_REPORTS: usize = 64;

/// CSCD descriptors, and segment descriptors, of one EXTENDED COPY.
const MAX_COPY_TARGETS: u16 = 64;
const MAX_COPY_SEGMENTS: u16 = 64;

/// Bytes of all CSCD and segment descriptors of one EXTENDED COPY: room for the maximum of each.
pub(crate) const MAX_COPY_DESCRIPTORS_BYTES: u32 = 4096;

/// Bytes of one segment: more than its BLOCK DEVICE NUMBER OF BLOCKS can express.
const MAX_SEGMENT_BYTES: u32 = 256 << 20;

/// Bytes that one token command transfers. Initiators give up on a command after some seconds.
const MAX_TOKEN_BYTES: u64 = 256 << 20;

/// Block device range descriptors of one token command.
const MAX_TOKEN_RANGES: u16 = 64;

/// Bytes of the longest parameter list of a token command: header and token of WRITE USING TOKEN, and its ranges.
pub(crate) const MAX_TOKEN_LIST_BYTES: u32 = 536 + MAX_TOKEN_RANGES as u32 * 16;

/// ROD tokens that are valid at one time on one target device.
pub(crate) const MAX_ROD_TOKENS: usize = 1024;

/// Seconds without use after which a ROD token expires: the longest timeout, and the default.
const MAX_TOKEN_TIMEOUT_S: u32 = 600;
pub(crate) const DEFAULT_TOKEN_TIMEOUT_S: u32 = 60;

/// Bytes of the buffer that a copy reads into and writes from.
pub(crate) const MAX_BUFFERED_COPY_BYTES: usize = 1 << 20;

/// Bytes that the system copies, or a store zeroes, before a copy checks whether it was aborted.
pub(crate) const MAX_SYSTEM_COPY_BYTES: usize = 16 << 20;

/// Workspaces of ended commands that a thread keeps for reuse: as many commands as a few sessions have in flight.
pub(crate) const MAX_IDLE_WORKSPACES: usize = 1024;

/// The shortest read, in bytes, that is sent from the file: copying fewer bytes costs less than the system calls.
pub(crate) const MIN_FILE_SLICE_BYTES: u64 = 32 << 10;

/// The limits of the copy manager of a logical unit whose blocks have `block_size` bytes.
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
