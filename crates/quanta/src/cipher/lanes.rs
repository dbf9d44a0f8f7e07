//! Quanta that a cipher works on together.
//!
//! The steps of one AEGIS-256 state wait for each other, so one quantum at a time leaves most of a core idle. A cipher
//! gets several quanta in one call, each of them a [`Lane`], and may work on them side by side. The result for each is
//! what it would be alone.

use arrayvec::ArrayVec;

use super::{Aead, WrongTag};
use crate::associated;
use crate::slot::{NONCE_LEN, TAG_LEN};

/// The most quanta in one call: as many as the widest cipher works on side by side. 32 KiB of the largest stay in the
/// caches.
pub(crate) const MAX_LANES: usize = 8;

/// Adjacent quanta for one call.
pub(crate) type Lanes<'a> = ArrayVec<Lane<'a>, MAX_LANES>;

/// A quantum under a cipher.
pub(crate) struct Lane<'a> {
    pub(crate) nonce: [u8; NONCE_LEN],
    pub(crate) associated: [u8; associated::LEN],
    /// The bytes before; `None` when they stand in `data`. It has the length of `data`.
    pub(crate) from: Option<&'a [u8]>,
    /// The bytes after.
    pub(crate) data: &'a mut [u8],
    /// Made by sealing, compared by opening.
    pub(crate) tag: [u8; TAG_LEN],
}

impl Lane<'_> {
    /// Brings the bytes before to their place.
    fn fill(&mut self) {
        if let Some(from) = self.from {
            self.data.copy_from_slice(from);
        }
    }
}

/// Seals one lane after another, for a cipher that does no better.
///
/// A copy of tens of kilobytes uses the memory better than short ones between which the cipher works, so all bytes are
/// copied first.
pub(super) fn seal_each(key: &(impl Aead + ?Sized), lanes: &mut [Lane<'_>]) {
    lanes.iter_mut().for_each(Lane::fill);
    for lane in lanes {
        lane.tag = key.seal(&lane.nonce, &lane.associated, lane.data);
    }
}

/// Opens one lane after another. `Err` is the number of the first that is not authentic; neither it nor those behind it
/// hold plain text.
pub(super) fn open_each(key: &(impl Aead + ?Sized), lanes: &mut [Lane<'_>]) -> Result<(), usize> {
    lanes.iter_mut().for_each(Lane::fill);
    for (at, lane) in lanes.iter_mut().enumerate() {
        key.open(&lane.nonce, &lane.associated, lane.data, &lane.tag).map_err(|WrongTag| at)?;
    }
    Ok(())
}
