//! Volumes whose content is neither the old nor the new one, because a client writes it or has stopped to, or because
//! it is copied while they are served.
//!
//! A label of the volume says so, which both engines keep on stable storage. It goes when the content is whole.

use lunette_pools::{Labels, PoolError, Volume};

use super::takeover::{map_of, takes_over};

/// The label of a volume that is being filled.
pub(crate) const FILLING: &str = "lunette.filling";

/// Whether a volume with these labels is not whole.
pub(crate) fn is_unfinished(labels: &Labels) -> bool {
    labels.contains_key(FILLING)
}

/// Refuses a volume that is not whole, or is no disk.
pub(crate) fn check_finished(volume: &Volume) -> Result<(), PoolError> {
    let labels = &volume.labels;
    let unfinished = volume.is_filling || is_unfinished(labels) || takes_over(labels) || map_of(labels).is_some();
    if unfinished { Err(PoolError::Filling(volume.name.clone())) } else { Ok(()) }
}
