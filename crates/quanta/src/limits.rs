//! Bounds on what a header or a journal may claim.

/// Quanta of one volume. With the largest EDU, byte offsets stay below 2^61.
pub const MAX_QUANTA: u64 = 1 << 48;

/// Epochs that a volume has data of at one time.
pub const MAX_EPOCHS: u32 = 4096;

/// Data EDUs of a parity group.
pub const MAX_GROUP_DATA: u16 = 128;

/// Parity EDUs of a parity group.
pub const MAX_GROUP_PARITY: u16 = 16;

/// Bytes of the journal of a packed volume.
pub const MAX_JOURNAL_LEN: u64 = 256 << 20;

/// Entries of one record of the journal.
pub const MAX_RECORD_ENTRIES: usize = 1024;
