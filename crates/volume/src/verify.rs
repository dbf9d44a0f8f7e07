//! Reading everything, to know whether it is whole.

use std::sync::Arc;

use lunette_quanta::KeyRing;
use lunette_store::Store;

use crate::{Found, Progress, VolumeError};

/// Bad quanta that a [`Report`] lists; the others are only counted.
pub const MAX_BAD: usize = 1000;

/// What is wrong with a quantum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// The unit failed to read it.
    Unreadable,
    /// Wrong CRC.
    Damaged,
    /// All zeroes in a volume without holes.
    Hole,
    /// There is no key of its epoch. Without keys: an epoch that the header does not know.
    UnknownEpoch,
    /// Wrong tag. Only seen with keys.
    NotAuthentic,
}

/// A quantum that is not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad {
    /// Its number in the volume.
    pub position: u64,
    /// What is wrong with it.
    pub verdict: Verdict,
}

/// What is in the journal of a packed volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalState {
    /// Nothing that is needed.
    Empty,
    /// Content of this many quanta, which the next client to open the volume takes from there.
    Quanta(u64),
    /// Both tails are damaged. The quanta were verified as they are in their places.
    TailLost,
}

/// What [`verify`] has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Quanta of the volume.
    pub quanta: u64,
    /// Quanta that are whole, by what was checked: with keys, that an owner of the volume made them; without, their CRCs.
    pub intact: u64,
    /// Quanta without content, in a volume that may have such.
    pub holes: u64,
    /// Quanta that are intact or not authentic, and not of the newest epoch: [`rekey`](crate::rekey) rewrites them.
    pub older_epochs: u64,
    /// Quanta that are not whole, by what is wrong with them.
    pub bad: std::collections::BTreeMap<Verdict, u64>,
    /// The first [`MAX_BAD`] of them.
    pub first_bad: Vec<Bad>,
    /// The journal; `None` for a native volume.
    pub journal: Option<JournalState>,
    /// Whether each copy of the header is whole, and with keys authentic. One of them may be stale; that is no fault.
    pub header_copies: [bool; 2],
}

impl Report {
    /// Whether every quantum is whole, and the journal can be read.
    pub fn is_whole(&self) -> bool {
        self.bad.is_empty() && self.journal != Some(JournalState::TailLost)
    }
}

/// Reads a whole volume, and counts what is whole and what is not. Nothing is changed.
///
/// Without keys it checks CRCs alone, which finds damage and quanta in the wrong place, not forgeries. It does not stop at what is bad. A packed volume
/// that someone writes to at the same time shows quanta as bad that are not.
///
/// # Errors
///
/// [`VolumeError`] when the volume itself cannot be understood; bad quanta are no error.
pub fn verify(
    inner: &Arc<dyn Store>,
    found: &Found,
    keys: Option<&KeyRing>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, VolumeError> {
    let _ = (inner, found, keys, progress);
    todo!()
}
