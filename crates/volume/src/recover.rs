//! Bringing a packed volume to rest.

use std::sync::Arc;

use lunette_quanta::KeyRing;
use lunette_store::Store;

use crate::{Found, VolumeError};

/// What to do about a journal whose two tails are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TailLoss {
    /// Leave the volume as it is, and say so.
    #[default]
    Refuse,
    /// Take every whole record of the journal, unless the quantum in its place has a higher version. Quanta that were written last may be older
    /// than they were.
    Force,
}

/// What [`recover`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Quanta that were moved from the journal to their places.
    pub moved: u64,
    /// Whether both tails were damaged, so that [`TailLoss::Force`] had to be used.
    pub tail_lost: bool,
}

/// Opens a volume, moves what its journal holds to its places, and closes it. A native volume has no journal, so nothing is done.
///
/// It is not needed before a volume is opened: that replays the journal, too. It leaves a journal that is empty.
///
/// # Errors
///
/// [`VolumeError::TailLost`] unless forced, and what [`Volume::open`](crate::Volume::open) fails with.
pub fn recover(
    inner: &Arc<dyn Store>,
    found: &Found,
    keys: &KeyRing,
    tail_loss: TailLoss,
) -> Result<Recovered, VolumeError> {
    let _ = (inner, found, keys, tail_loss);
    todo!()
}
