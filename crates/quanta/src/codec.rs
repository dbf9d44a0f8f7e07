//! Sealing and opening quanta.

use std::iter::zip;

use crate::associated::{Associated, VolumeId};
use crate::cipher::WrongTag;
use crate::error::{OpenError, Reason};
use crate::header::AUTHENTICATED_LEN;
use crate::key::KeyRing;
use crate::size::QuantumSize;
use crate::slot::{CRC_AT, Condition, NONCE_LEN, SLOT_LEN, Slot, check, copy_checked, crc_of};

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
        let (len, edu_len) = (self.size.bytes(), self.size.edu_len());
        assert_eq!(count(plain, len), count(edus, edu_len), "{MISFIT}");
        let mut sealer = self.sealer(sealing);
        let run = run(self.size);
        for (plain, edus) in zip(plain.chunks(run * len), edus.chunks_mut(run * edu_len)) {
            for (plain, edu) in zip(plain.chunks_exact(len), edus.chunks_exact_mut(edu_len)) {
                edu[..len].copy_from_slice(plain);
            }
            sealer.seal(edus.chunks_exact_mut(edu_len).map(|edu| edu.split_at_mut(len)));
        }
    }

    /// Seals `plain` into `data` and `slots`.
    pub fn seal_split(&self, sealing: Sealing, plain: &[u8], data: &mut [u8], slots: &mut [u8]) {
        let len = self.size.bytes();
        assert_eq!(plain.len(), data.len(), "{MISFIT}");
        assert_eq!(count(data, len), count(slots, SLOT_LEN), "{MISFIT}");
        let mut sealer = self.sealer(sealing);
        let run = run(self.size);
        let places = zip(data.chunks_mut(run * len), slots.chunks_mut(run * SLOT_LEN));
        for (plain, (data, slots)) in zip(plain.chunks(run * len), places) {
            data.copy_from_slice(plain);
            sealer.seal(zip(data.chunks_exact_mut(len), slots.chunks_exact_mut(SLOT_LEN)));
        }
    }

    /// Seals the plain text that stands where the ciphertexts of `edus` will be.
    pub fn seal_in_place(&self, sealing: Sealing, edus: &mut [u8]) {
        count(edus, self.size.edu_len());
        let places = edus.chunks_exact_mut(self.size.edu_len()).map(|edu| edu.split_at_mut(self.size.bytes()));
        self.sealer(sealing).seal(places);
    }

    /// Opens `edus`, the first of which is at `position`, into `plain`.
    ///
    /// # Errors
    ///
    /// The first quantum that cannot be opened.
    pub fn open(&self, position: u64, edus: &[u8], plain: &mut [u8]) -> Result<(), OpenError> {
        assert_eq!(count(plain, self.size.bytes()), count(edus, self.size.edu_len()), "{MISFIT}");
        let edus = edus.chunks_exact(self.size.edu_len()).map(|edu| edu.split_at(self.size.bytes()));
        self.open_all(position, edus, plain)
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
        self.open_all(position, edus, plain)
    }

    /// Opens `data` with `slots`, the first of which are at `position`, where it stands.
    ///
    /// # Errors
    ///
    /// The first quantum that cannot be opened.
    pub fn open_in_place(&self, position: u64, data: &mut [u8], slots: &[u8]) -> Result<(), OpenError> {
        assert_eq!(count(data, self.size.bytes()), count(slots, SLOT_LEN), "{MISFIT}");
        let mut opener = self.opener(position);
        for (data, slot) in zip(data.chunks_exact_mut(self.size.bytes()), slots.chunks_exact(SLOT_LEN)) {
            let slot = slot.try_into().expect(CUT);
            opener.open(check(opener.position, data, slot), slot, data)?;
        }
        Ok(())
    }

    /// Copies each run and checks the copy in the same pass, then opens it where it stands.
    fn open_all<'a>(
        &self,
        position: u64,
        mut edus: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
        plain: &mut [u8],
    ) -> Result<(), OpenError> {
        let mut opener = self.opener(position);
        for plain in plain.chunks_mut(run(self.size) * self.size.bytes()) {
            let mut conditions = [Condition::NeverWritten; MAX_RUN];
            let slots = edus.clone().map(|(_, slot)| slot.try_into().expect(CUT));
            let copies = plain.chunks_exact_mut(self.size.bytes());
            for (index, (copy, (data, slot))) in zip(copies, &mut edus).enumerate() {
                let position = opener.position.wrapping_add(index as u64);
                conditions[index] = copy_checked(position, data, slot.try_into().expect(CUT), copy);
            }
            for (data, (condition, slot)) in zip(plain.chunks_exact_mut(self.size.bytes()), zip(conditions, slots)) {
                opener.open(condition, slot, data)?;
            }
        }
        Ok(())
    }

    fn sealer(&self, sealing: Sealing) -> Sealer<'_> {
        Sealer { codec: self, associated: self.associated(), sealing, sealed: 0 }
    }

    fn opener(&self, position: u64) -> Opener<'_> {
        Opener { codec: self, associated: self.associated(), position }
    }

    fn associated(&self) -> Associated {
        Associated::new(self.volume, self.size, self.keys.cipher())
    }
}

/// Seals the quanta of one request, one after another.
struct Sealer<'a> {
    codec: &'a Codec,
    associated: Associated,
    sealing: Sealing,
    /// Quanta sealed so far.
    sealed: usize,
}

impl Sealer<'_> {
    /// Seals plain texts where they stand, and fills their slots.
    fn seal<'a>(&mut self, places: impl Iterator<Item = (&'a mut [u8], &'a mut [u8])>) {
        let (epoch, key) = self.codec.keys.newest();
        let Sealing { position, version, ref seed } = self.sealing;
        for (data, slot) in places {
            let position = position.wrapping_add(self.sealed as u64);
            let nonce = seed.nonce(self.sealed);
            self.sealed += 1;
            let tag = key.seal(&nonce, self.associated.of(position, version, epoch), data);
            let slot: &mut [u8; SLOT_LEN] = slot.try_into().expect(CUT);
            Slot { nonce, tag, version, epoch, crc: 0 }.encode(slot);
            let crc = crc_of(position, slot, |crc| crc.update(data));
            slot[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// Opens adjacent quanta, one after another.
struct Opener<'a> {
    codec: &'a Codec,
    associated: Associated,
    /// That of the next quantum.
    position: u64,
}

impl Opener<'_> {
    /// Opens the ciphertext in `data`, whose check gave `condition`, where it stands.
    fn open(&mut self, condition: Condition, slot: &[u8; SLOT_LEN], data: &mut [u8]) -> Result<(), OpenError> {
        let opened = self.open_checked(condition, slot, data);
        opened.map_err(|reason| OpenError { position: self.position, reason })?;
        self.position = self.position.wrapping_add(1);
        Ok(())
    }

    fn open_checked(&mut self, condition: Condition, slot: &[u8; SLOT_LEN], data: &mut [u8]) -> Result<(), Reason> {
        match condition {
            Condition::Damaged => return Err(Reason::Damaged),
            Condition::NeverWritten if self.codec.holes == Holes::Refused => return Err(Reason::Hole),
            Condition::NeverWritten => {
                data.fill(0);
                return Ok(());
            }
            Condition::Intact => {}
        }
        let slot = Slot::decode(slot);
        let key = self.codec.keys.get(slot.epoch).ok_or(Reason::UnknownEpoch(slot.epoch))?;
        let associated = self.associated.of(self.position, slot.version, slot.epoch);
        key.open(&slot.nonce, associated, data, &slot.tag).map_err(|WrongTag| Reason::NotAuthentic)
    }
}

/// Quanta that are copied before the cipher works on them.
///
/// A copy of tens of kilobytes uses the memory better than short ones between which the cipher works, and a run stays in the second level cache
/// (measured: `docs/measurements/2026-11-23-quanta.md`).
fn run(size: QuantumSize) -> usize {
    RUN_LEN / size.bytes()
}

/// The number of pieces of `len` bytes in `bytes`.
fn count(bytes: &[u8], len: usize) -> usize {
    assert_eq!(bytes.len() % len, 0, "{MISFIT}");
    bytes.len() / len
}

/// Bytes of plain text in a run.
const RUN_LEN: usize = 64 << 10;

/// Quanta in a run of the smallest ones.
const MAX_RUN: usize = RUN_LEN / QuantumSize::B512.bytes();

const CUT: &str = "cut to the length of a slot";
const MISFIT: &str = "the buffers do not hold the same whole number of quanta";
