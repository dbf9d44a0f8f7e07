//! Bounds on what a header or a journal may claim.

/// Quanta of one volume. With the largest EDU, byte offsets stay below 2^61.
pub const MAX_QUANTA: u64 = 1 << 48;

/// Epochs that a volume has data of at one time.
pub const MAX_EPOCHS: u32 = 4096;

/// Data EDUs of a parity group.
pub const MAX_GROUP_DATA: u16 = 128;

/// Parity EDUs of a parity group.
pub const MAX_GROUP_PARITY: u16 = 16;

/// Bytes of the largest journal of a packed volume, which is read as a whole when the volume is opened.
pub const MAX_JOURNAL_LEN: u64 = 256 << 20;

/// Bytes of the smallest journal: its tail, and two records of one quantum.
pub const MIN_JOURNAL_LEN: u64 = 24 << 10;

/// Entries of one record of the journal.
pub const MAX_RECORD_ENTRIES: usize = 1024;

/// The highest sequence number that a journal may contain. A program that writes a record every nanosecond gets there
/// in 146 years.
pub const MAX_SEQUENCE: u64 = 1 << 62;

/// The highest sequence number in a journal that is opened. No program gets there, so a higher one was made to leave no
/// numbers for later records.
pub const MAX_SEQUENCE_AT_OPEN: u64 = MAX_SEQUENCE / 2;

/// Quanta whose content is in a journal that is opened. Without this bound 256 MiB of records of holes would be 3.7
/// million.
pub const MAX_QUANTA_AT_OPEN: usize = 1 << 19;
