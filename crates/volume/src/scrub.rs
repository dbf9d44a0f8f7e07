//! Looking after the parity groups of a volume.

use crate::parity::GroupState;
use crate::unit::doing;
use crate::{Progress, Volume, VolumeError};

/// The findings and repairs of [`scrub`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scrubbed {
    /// Parity groups of the volume.
    pub groups: u64,
    /// Damaged quanta that were repaired.
    pub repaired: u64,
    /// Groups whose data was intact and whose parity was not that of the data. It is now.
    pub encoded: u64,
    /// Damaged quanta that could not be repaired.
    pub lost: u64,
}

/// Reads all parity groups of an open volume, repairs what is damaged, and encodes parity that an interrupted write has
/// left behind. Others may use the volume meanwhile, through the same [`Volume`].
///
/// Do it after a client was interrupted: until then, the groups that it was writing to cannot repair damage.
///
/// # Errors
///
/// [`VolumeError::ReadOnly`], and failures of the unit. A volume without parity groups has nothing to look after.
pub fn scrub(volume: &Volume, progress: &mut dyn FnMut(Progress)) -> Result<Scrubbed, VolumeError> {
    let shared = &volume.shared;
    if shared.read_only {
        return Err(VolumeError::ReadOnly);
    }
    let mut done = Scrubbed::default();
    let Some(parity) = &shared.parity else { return Ok(done) };
    done.groups = parity.groups();
    let total_bytes = shared.quanta * shared.owners.size.bytes() as u64;
    for group in 0..done.groups {
        match parity.scrub(group).map_err(doing("looking after a parity group"))? {
            GroupState::Whole => {}
            GroupState::Repaired(quanta) => done.repaired += quanta,
            GroupState::Encoded => done.encoded += 1,
            GroupState::Lost(quanta) => done.lost += quanta,
        }
        let done_bytes = (u128::from(total_bytes) * u128::from(group + 1) / u128::from(done.groups)) as u64;
        progress(Progress { done_bytes, total_bytes });
    }
    volume.close()?;
    Ok(done)
}
