//! What an open volume has done so far.

/// What an open volume has done since it was opened, in quanta unless a field says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Sealed for writes.
    pub sealed: u64,
    /// Opened for reads, holes included.
    pub opened: u64,
    /// Requests that were refused for a damaged quantum: its CRC is wrong.
    pub refused_damaged: u64,
    /// Requests that were refused for a hole in a volume that has none.
    pub refused_holes: u64,
    /// Requests that were refused because there was no key of the epoch.
    pub refused_unknown_epoch: u64,
    /// Requests that were refused for a quantum that is not authentic: its tag is wrong.
    pub refused_not_authentic: u64,
    /// Reads that were made a second time because the first met a torn quantum.
    pub read_again: u64,
    /// Records written to the journal of a packed volume.
    pub records: u64,
    /// Checkpoints of a packed volume.
    pub checkpoints: u64,
}
