//! Making a volume on a unit.

use std::sync::Arc;

use lunette_quanta::{Header, Holes, KeyRing, QuantumSize, VolumeId};
use lunette_store::Store;

use crate::{Progress, VolumeError};

/// How a volume is to be made.
#[derive(Debug, Clone, Copy)]
pub struct FormatOptions {
    /// The size of the quanta. `None` takes 4096 bytes on blocks of 512 and 4096 bytes; a native unit's blocks have one size that fits.
    pub size: Option<QuantumSize>,
    /// Whether quanta may be without content. [`Holes::Refused`] seals every quantum now, so that a server cannot pretend that one was never written.
    pub holes: Holes,
    /// Bytes of the journal of a packed volume: 24 KiB to 256 MiB in steps of 4096. `None` takes 1/64 of the unit, at most 64 MiB.
    pub journal_bytes: Option<u64>,
    /// Whether a volume that is there already may be destroyed.
    pub overwrite: bool,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self { size: None, holes: Holes::Allowed, journal_bytes: None, overwrite: false }
    }
}

/// Makes a volume on a unit: native where the unit's block has the length of an EDU, packed where it has 512 or 4096 bytes.
///
/// The whole unit is zeroed or sealed first, because bytes that were there before would be refused as damaged quanta. The headers come
/// last, so what is interrupted is no volume.
///
/// # Errors
///
/// [`VolumeError::Exists`] unless [`FormatOptions::overwrite`] is set, errors of sizes that do not fit, [`VolumeError::Unit`].
pub fn format(
    inner: &Arc<dyn Store>,
    volume: VolumeId,
    keys: &KeyRing,
    options: &FormatOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Header, VolumeError> {
    let _ = (inner, volume, keys, options, progress);
    todo!()
}
