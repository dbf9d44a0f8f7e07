//! Rewriting what is sealed with older keys.

use std::ops::ControlFlow;

use crate::{Progress, Volume, VolumeError};

/// What [`rekey`] has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rekeyed {
    /// Quanta that were sealed with the newest key.
    pub rewritten: u64,
    /// Quanta that could not be opened, and stay as they are.
    pub refused: u64,
    /// The first of them.
    pub first_refused: Option<u64>,
    /// Where to go on when the caller has stopped it; `None` when it came to the end.
    pub next: Option<u64>,
    /// The oldest epoch that the volume may still have quanta of. Keys before it are not needed any more.
    pub first_epoch: u32,
}

/// Rewrites every quantum that is not sealed with the newest key, from quantum `from` on. Others may use the volume meanwhile, through the
/// same [`Volume`]; what another client writes at the same moment could be lost.
///
/// `progress` is called after each piece, and stops the work by [`ControlFlow::Break`]: [`Rekeyed::next`] is the `from` of the next
/// call. A run from 0 to the end that was refused no quantum raises the header's oldest epoch, so that older keys may be destroyed; one that began
/// later does not.
///
/// # Errors
///
/// [`VolumeError::ReadOnly`], and failures of the unit. What was rewritten until then stays so.
pub fn rekey(
    volume: &Volume,
    from: u64,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Rekeyed, VolumeError> {
    let _ = (volume, from, progress);
    todo!()
}
