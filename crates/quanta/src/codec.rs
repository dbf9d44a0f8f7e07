//! Sealing and opening quanta.

use std::iter::zip;

use crate::associated::{Associated, VolumeId};
use crate::cipher::Aead;
use crate::error::{OpenError, Reason};
use crate::header::AUTHENTICATED_LEN;
use crate::key::KeyRing;
use crate::size::QuantumSize;
use crate::slot::{CRC_AT, Condition, NONCE_LEN, SLOT_LEN, Slot, check, crc_of};

/// Bytes of the longest associated data: that of a header.
pub(crate) const MAX_ASSOCIATED_LEN: usize = AUTHENTICATED_LEN;

/// Whether quanta of a volume may be without content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// An EDU of zeroes reads as zeroes: it was never written, or was unmapped. A server can pretend that of any quantum.
    Allowed,
    /// Every quantum was sealed when the volume was formatted, and an EDU of zeroes is refused.
    Refused,
}

/// Thirty-two random bytes, from which the nonces of one request are made.
///
/// They come from the system's generator, for this request: a seed is moved into the call that uses it up, and two calls never share one.
pub struct Seed([u8; NONCE_LEN]);

impl Seed {
    /// A seed of bytes that the system's generator has just given.
    pub fn new(bytes: [u8; NONCE_LEN]) -> Self {
        Self(bytes)
    }

    /// The nonce of quantum `index` of the request. The nonces of one request differ from each other, and each is as random as the seed.
    pub(crate) fn nonce(&self, index: usize) -> [u8; NONCE_LEN] {
        let mut nonce = self.0;
        let (counted, _) = nonce.split_first_chunk_mut::<8>().expect("a nonce is longer than 8 bytes");
        *counted = u64::from_le_bytes(*counted).wrapping_add(index as u64).to_le_bytes();
        nonce
    }
}

/// What one request to seal adjacent quanta needs beside their bytes.
pub struct Sealing {
    /// The position of the first quantum.
    pub position: u64,
    /// The version of all of them: higher than any that the writer knows of these positions. Readers that keep no versions do not look at it.
    pub version: u64,
    /// The randomness of their nonces.
    pub seed: Seed,
}

/// Seals and opens the quanta of one volume.
///
/// Each call works on adjacent quanta, as many as its buffers hold, and allocates nothing. `data` is a run of ciphertexts, `slots` the run of
/// their slots, and `edus` a run of both in turn, as a native volume has them.
///
/// An error names the first quantum that cannot be opened. Those before it are open; no plain text of it or of those behind it is in the buffer that
/// the call was to fill, whose bytes there are unspecified.
///
/// # Panics
///
/// Every method panics when its buffers do not hold the same whole number of quanta: a mistake of the caller.
///
/// ```
/// use lunette_quanta::{Cipher, Codec, DataKey, Holes, KeyRing, QuantumSize, Sealing, Seed, VolumeId};
///
/// let ring = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([7; 32]))?;
/// let codec = Codec::new(VolumeId([1; 16]), QuantumSize::B512, Holes::Allowed, ring);
/// let mut edus = [0; 2 * 576];
/// // Both arrays of random bytes come from the system's generator in earnest.
/// codec.seal(Sealing { position: 40, version: 1, seed: Seed::new([9; 32]) }, &[0x5a; 1024], &mut edus);
///
/// let mut plain = [0; 1024];
/// codec.open(40, &edus, &mut plain)?;
/// assert_eq!(plain, [0x5a; 1024]);
/// assert!(codec.open(41, &edus, &mut plain).is_err(), "another position");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Codec {
    volume: VolumeId,
    size: QuantumSize,
    holes: Holes,
    keys: KeyRing,
}

impl Codec {
    /// The codec of a volume.
    pub fn new(volume: VolumeId, size: QuantumSize, holes: Holes, keys: KeyRing) -> Self {
        Self { volume, size, holes, keys }
    }

    /// The volume.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// The size of its quanta.
    pub fn size(&self) -> QuantumSize {
        self.size
    }

    /// The keys.
    pub fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// The same codec with other keys.
    #[must_use]
    pub fn with_keys(&self, keys: KeyRing) -> Self {
        Self { keys, ..*self }
    }

    /// Seals `plain` into `edus`.
    pub fn seal(&self, sealing: Sealing, plain: &[u8], edus: &mut [u8]) {
        assert_eq!(count(plain, self.size.bytes()), count(edus, self.size.edu_len()), "{MISFIT}");
        let places = edus.chunks_exact_mut(self.size.edu_len()).map(|edu| edu.split_at_mut(self.size.bytes()));
        self.seal_all(sealing, zip(plain.chunks_exact(self.size.bytes()), places).map(Work::Between));
    }

    /// Seals `plain` into `data` and `slots`.
    pub fn seal_split(&self, sealing: Sealing, plain: &[u8], data: &mut [u8], slots: &mut [u8]) {
        assert_eq!(plain.len(), data.len(), "{MISFIT}");
        assert_eq!(count(data, self.size.bytes()), count(slots, SLOT_LEN), "{MISFIT}");
        let places = zip(data.chunks_exact_mut(self.size.bytes()), slots.chunks_exact_mut(SLOT_LEN));
        self.seal_all(sealing, zip(plain.chunks_exact(self.size.bytes()), places).map(Work::Between));
    }

    /// Seals the plain text that stands where the ciphertexts of `edus` will be.
    pub fn seal_in_place(&self, sealing: Sealing, edus: &mut [u8]) {
        count(edus, self.size.edu_len());
        let places = edus.chunks_exact_mut(self.size.edu_len()).map(|edu| edu.split_at_mut(self.size.bytes()));
        self.seal_all(sealing, places.map(Work::InPlace));
    }

    /// Opens `edus`, the first of which is at `position`, into `plain`.
    ///
    /// # Errors
    ///
    /// The first quantum that cannot be opened.
    pub fn open(&self, position: u64, edus: &[u8], plain: &mut [u8]) -> Result<(), OpenError> {
        assert_eq!(count(plain, self.size.bytes()), count(edus, self.size.edu_len()), "{MISFIT}");
        let edus = edus.chunks_exact(self.size.edu_len()).map(|edu| edu.split_at(self.size.bytes()));
        self.open_all(position, zip(edus, plain.chunks_exact_mut(self.size.bytes())))
    }

    /// Opens `data` with `slots`, the first of which are at `position`, into `plain`.
    ///
    /// # Errors
    ///
    /// The first quantum that cannot be opened.
    pub fn open_split(&self, position: u64, data: &[u8], slots: &[u8], plain: &mut [u8]) -> Result<(), OpenError> {
        assert_eq!(plain.len(), data.len(), "{MISFIT}");
        assert_eq!(count(data, self.size.bytes()), count(slots, SLOT_LEN), "{MISFIT}");
        let edus = zip(data.chunks_exact(self.size.bytes()), slots.chunks_exact(SLOT_LEN));
        self.open_all(position, zip(edus, plain.chunks_exact_mut(self.size.bytes())))
    }

    /// Opens `data` with `slots`, the first of which are at `position`, where it stands.
    ///
    /// # Errors
    ///
    /// The first quantum that cannot be opened.
    pub fn open_in_place(&self, position: u64, data: &mut [u8], slots: &[u8]) -> Result<(), OpenError> {
        assert_eq!(count(data, self.size.bytes()), count(slots, SLOT_LEN), "{MISFIT}");
        let edus = zip(data.chunks_exact_mut(self.size.bytes()), slots.chunks_exact(SLOT_LEN));
        let mut associated = self.associated();
        for (index, (data, slot)) in edus.enumerate() {
            let position = position.wrapping_add(index as u64);
            let Some((slot, key)) = self.admit(position, data, slot)? else { continue };
            let associated = associated.of(position, slot.version, slot.epoch);
            key.open_in_place(&slot.nonce, associated, data, &slot.tag)
                .map_err(|_| OpenError { position, reason: Reason::NotAuthentic })?;
        }
        Ok(())
    }

    fn open_all<'a>(
        &self,
        first: u64,
        works: impl Iterator<Item = ((&'a [u8], &'a [u8]), &'a mut [u8])>,
    ) -> Result<(), OpenError> {
        let mut associated = self.associated();
        for (index, ((data, slot), plain)) in works.enumerate() {
            let position = first.wrapping_add(index as u64);
            let Some((slot, key)) = self.admit(position, data, slot)? else {
                plain.fill(0);
                continue;
            };
            let associated = associated.of(position, slot.version, slot.epoch);
            key.open(&slot.nonce, associated, data, &slot.tag, plain)
                .map_err(|_| OpenError { position, reason: Reason::NotAuthentic })?;
        }
        Ok(())
    }

    /// Everything that is checked before the tag. `None` for a hole.
    fn admit(&self, position: u64, data: &[u8], slot: &[u8]) -> Result<Option<(Slot, &dyn Aead)>, OpenError> {
        let refused = |reason| OpenError { position, reason };
        let bytes: &[u8; SLOT_LEN] = slot.try_into().expect("cut to the length of a slot");
        match check(position, data, bytes) {
            Condition::Damaged => return Err(refused(Reason::Damaged)),
            Condition::NeverWritten if self.holes == Holes::Allowed => return Ok(None),
            Condition::NeverWritten => return Err(refused(Reason::Hole)),
            Condition::Intact => {}
        }
        let slot = Slot::decode(bytes);
        let key = self.keys.get(slot.epoch).ok_or(refused(Reason::UnknownEpoch(slot.epoch)))?;
        Ok(Some((slot, key)))
    }

    fn seal_all<'a>(&self, sealing: Sealing, works: impl Iterator<Item = Work<'a>>) {
        let Sealing { position, version, seed } = sealing;
        let (epoch, key) = self.keys.newest();
        let mut associated = self.associated();
        for (index, work) in works.enumerate() {
            let position = position.wrapping_add(index as u64);
            let nonce = seed.nonce(index);
            let associated = associated.of(position, version, epoch);
            let (tag, data, slot) = match work {
                Work::Between((plain, (data, slot))) => (key.seal(&nonce, associated, plain, data), data, slot),
                Work::InPlace((data, slot)) => (key.seal_in_place(&nonce, associated, data), data, slot),
            };
            let slot: &mut [u8; SLOT_LEN] = slot.try_into().expect("cut to the length of a slot");
            Slot { nonce, tag, version, epoch, crc: 0 }.encode(slot);
            let crc = crc_of(position, data, slot);
            slot[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        }
    }

    fn associated(&self) -> Associated {
        Associated::new(self.volume, self.size, self.keys.cipher())
    }
}

/// The number of pieces of `len` bytes in `bytes`.
fn count(bytes: &[u8], len: usize) -> usize {
    assert_eq!(bytes.len() % len, 0, "{MISFIT}");
    bytes.len() / len
}

const MISFIT: &str = "the buffers do not hold the same whole number of quanta";

/// One quantum to seal: the place of its ciphertext and slot, and its plain text unless that stands there.
enum Work<'a> {
    Between((&'a [u8], (&'a mut [u8], &'a mut [u8]))),
    InPlace((&'a mut [u8], &'a mut [u8])),
}
