//! The seals of an open volume: its keys, the versions of its writes, and its anchor.

use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use lunette_quanta::{Codec, Holes, KeyRing, OpenError, QuantumSize, Reason, SLOT_LEN, Sealing, Slot};
use lunette_store::StoreError;

use crate::anchor::{AnchorSaver, version};
use crate::counts::Tally;
use crate::find::random_seed;
use crate::versions::Versions;

/// Bytes of zeroes that are sealed at once.
static ZEROES: [u8; 16 << 10] = [0; 16 << 10];

/// The keys of a volume with all that decides whether a quantum is what it should be.
pub(crate) struct Seals {
    size: QuantumSize,
    holes: Holes,
    codec: RwLock<Codec>,
    versions: Versions,
    /// The anchor, when the volume was opened with one.
    anchor: Option<AnchorSaver>,
    tally: Arc<Tally>,
}

impl Seals {
    /// Seals of a volume that has quanta up to the last one that `versions` saw.
    pub(crate) fn new(
        codec: Codec,
        holes: Holes,
        versions: Versions,
        anchor: Option<AnchorSaver>,
        tally: Arc<Tally>,
    ) -> Self {
        Self { size: codec.size(), holes, codec: RwLock::new(codec), versions, anchor, tally }
    }

    /// Whether requests may make holes. With an anchor they may not: a hole has no version.
    pub(crate) fn makes_holes(&self) -> bool {
        self.holes == Holes::Allowed && self.anchor.is_none()
    }

    /// The anchor, when the volume was opened with one.
    pub(crate) fn anchor(&self) -> Option<&AnchorSaver> {
        self.anchor.as_ref()
    }

    /// The codec with the present keys. Hold it no longer than sealing or opening takes.
    pub(crate) fn codec(&self) -> RwLockReadGuard<'_, Codec> {
        self.codec.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes other keys, and gives the codec that has them.
    pub(crate) fn set_keys(&self, keys: KeyRing) -> Codec {
        let mut codec = self.codec.write().unwrap_or_else(PoisonError::into_inner);
        *codec = codec.with_keys(keys);
        codec.clone()
    }

    /// A version for the next write.
    pub(crate) fn next_version(&self) -> u64 {
        self.versions.next()
    }

    /// Seals the plain text of a piece, or zeroes when there is none, by `seal`. That gets it in one or more parts,
    /// each with the number of its first quantum within the piece.
    pub(crate) fn seal(
        &self,
        piece: &Range<u64>,
        plain: Option<&[u8]>,
        mut seal: impl FnMut(&Codec, Sealing, usize, &[u8]),
    ) -> Result<(), StoreError> {
        let codec = self.codec();
        if let Some(plain) = plain {
            seal(&codec, self.sealing(piece.start)?, 0, plain);
        } else {
            let step = ZEROES.len() / self.size.bytes();
            for first in piece.clone().step_by(step) {
                let quanta = (piece.end - first).min(step as u64) as usize;
                let plain = &ZEROES[..quanta * self.size.bytes()];
                seal(&codec, self.sealing(first)?, (first - piece.start) as usize, plain);
            }
        }
        self.sealed(piece.end - piece.start);
        Ok(())
    }

    fn sealing(&self, position: u64) -> Result<Sealing, StoreError> {
        let seed = random_seed().map_err(io::Error::other)?;
        Ok(Sealing { position, version: self.next_version(), seed })
    }

    /// Counts quanta that were sealed.
    pub(crate) fn sealed(&self, quanta: u64) {
        Tally::add(&self.tally.sealed, quanta);
    }

    /// Remembers the slots with which quanta were written, where an anchor wants to know them.
    pub(crate) fn written<'a>(&self, quanta: impl Iterator<Item = (u64, &'a [u8; SLOT_LEN])>) {
        let Some(saver) = &self.anchor else { return };
        quanta.for_each(|(position, slot)| saver.anchor().written(position, version(slot)));
    }

    /// Whether quanta from `first` on that were opened with these slots may be what they are; otherwise the first that
    /// is older than it was.
    pub(crate) fn admit<'a>(
        &self,
        first: u64,
        slots: impl Iterator<Item = &'a [u8; SLOT_LEN]>,
    ) -> Result<(), OpenError> {
        let Some(saver) = &self.anchor else { return Ok(()) };
        let older = (first..).zip(slots).find(|(position, slot)| !saver.anchor().admit(*position, version(slot)));
        match older {
            None => Ok(()),
            Some((position, _)) => Err(OpenError { position, reason: Reason::RolledBack }),
        }
    }

    /// Takes note of the versions of quanta that were opened.
    pub(crate) fn saw<'a>(&self, slots: impl Iterator<Item = &'a [u8]>) {
        let version = |slot: &[u8]| slot.first_chunk::<SLOT_LEN>().map_or(0, |slot| Slot::decode(slot).version);
        self.saw_version(slots.map(version).max().unwrap_or(0));
    }

    /// Takes note of a version that an authentic quantum has.
    pub(crate) fn saw_version(&self, version: u64) {
        self.versions.saw(version);
    }

    /// Counts quanta that were opened.
    pub(crate) fn opened(&self, quanta: u64) {
        Tally::add(&self.tally.opened, quanta);
    }

    /// The failure of a request whose quantum was refused.
    pub(crate) fn refused(&self, error: OpenError) -> StoreError {
        self.tally.refused(error.reason);
        tracing::warn!(position = error.position, reason = %error.reason, "a quantum was refused");
        StoreError::Refused { offset: error.position * self.size.bytes() as u64, reason: error.into() }
    }

    /// Whether an owner of the keys sealed this EDU for this position.
    pub(crate) fn vouches(&self, position: u64, edu: &[u8]) -> bool {
        self.codec().open(position, edu, &mut vec![0; self.size.bytes()]).is_ok()
    }

    /// Counts quanta that were repaired.
    pub(crate) fn repaired(&self, quanta: u64) {
        Tally::add(&self.tally.repaired, quanta);
    }
}
