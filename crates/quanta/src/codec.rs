//! Sealing and opening quanta.

use std::iter::zip;

use arrayvec::ArrayVec;

use crate::associated::{Associated, VolumeId};
use crate::cipher::{Aead, Lane, Lanes, MAX_LANES};
use crate::error::{OpenError, Reason};
use crate::header::AUTHENTICATED_LEN;
use crate::key::KeyRing;
use crate::size::QuantumSize;
use crate::slot::{CRC_AT, Condition, NONCE_LEN, SLOT_LEN, Slot, TAG_LEN, check, crc_of};

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
        let edus = edus.chunks_exact_mut(edu_len).map(|edu| edu.split_at_mut(len));
        let quanta = zip(plain.chunks_exact(len), edus);
        self.sealer(sealing).seal(quanta.map(|(plain, (data, slot))| (Some(plain), data, slot)));
    }

    /// Seals `plain` into `data` and `slots`.
    pub fn seal_split(&self, sealing: Sealing, plain: &[u8], data: &mut [u8], slots: &mut [u8]) {
        let len = self.size.bytes();
        assert_eq!(plain.len(), data.len(), "{MISFIT}");
        assert_eq!(count(data, len), count(slots, SLOT_LEN), "{MISFIT}");
        let places = zip(data.chunks_exact_mut(len), slots.chunks_exact_mut(SLOT_LEN));
        let quanta = zip(plain.chunks_exact(len), places);
        self.sealer(sealing).seal(quanta.map(|(plain, (data, slot))| (Some(plain), data, slot)));
    }

    /// Seals the plain text that stands where the ciphertexts of `edus` will be.
    pub fn seal_in_place(&self, sealing: Sealing, edus: &mut [u8]) {
        count(edus, self.size.edu_len());
        let edus = edus.chunks_exact_mut(self.size.edu_len()).map(|edu| edu.split_at_mut(self.size.bytes()));
        self.sealer(sealing).seal(edus.map(|(data, slot)| (None, data, slot)));
    }

    /// Opens `edus`, the first of which is at `position`, into `plain`.
    ///
    /// # Errors
    ///
    /// The first quantum that cannot be opened.
    pub fn open(&self, position: u64, edus: &[u8], plain: &mut [u8]) -> Result<(), OpenError> {
        assert_eq!(count(plain, self.size.bytes()), count(edus, self.size.edu_len()), "{MISFIT}");
        let edus = edus.chunks_exact(self.size.edu_len()).map(|edu| edu.split_at(self.size.bytes()));
        let quanta = zip(edus, plain.chunks_exact_mut(self.size.bytes()));
        self.opener(position).open(quanta.map(|((data, slot), plain)| (Some(data), plain, slot)))
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
        let quanta = zip(edus, plain.chunks_exact_mut(self.size.bytes()));
        self.opener(position).open(quanta.map(|((data, slot), plain)| (Some(data), plain, slot)))
    }

    /// Opens `data` with `slots`, the first of which are at `position`, where it stands.
    ///
    /// # Errors
    ///
    /// The first quantum that cannot be opened.
    pub fn open_in_place(&self, position: u64, data: &mut [u8], slots: &[u8]) -> Result<(), OpenError> {
        assert_eq!(count(data, self.size.bytes()), count(slots, SLOT_LEN), "{MISFIT}");
        let quanta = zip(data.chunks_exact_mut(self.size.bytes()), slots.chunks_exact(SLOT_LEN));
        self.opener(position).open(quanta.map(|(data, slot)| (None, data, slot)))
    }

    fn sealer(&self, sealing: Sealing) -> Sealer<'_> {
        Sealer { codec: self, associated: self.associated(), sealing, sealed: 0 }
    }

    fn opener(&self, position: u64) -> Opener<'_> {
        Opener {
            codec: self,
            associated: self.associated(),
            position,
            key: None,
            lanes: Lanes::new(),
            slots: ArrayVec::new(),
        }
    }

    fn associated(&self) -> Associated {
        Associated::new(self.volume, self.size, self.keys.cipher())
    }
}

/// Seals the quanta of one request, some at a time.
struct Sealer<'a> {
    codec: &'a Codec,
    associated: Associated,
    sealing: Sealing,
    /// Quanta sealed so far.
    sealed: usize,
}

impl Sealer<'_> {
    /// Seals plain texts, each into its place or where it stands, and fills their slots.
    fn seal<'a>(&mut self, mut quanta: impl Iterator<Item = (Option<&'a [u8]>, &'a mut [u8], &'a mut [u8])>) {
        let (epoch, key) = self.codec.keys.newest();
        let Sealing { position: first, version, ref seed } = self.sealing;
        loop {
            let begin = first.wrapping_add(self.sealed as u64);
            let (mut lanes, mut slots) = (Lanes::new(), ArrayVec::<_, MAX_LANES>::new());
            for (from, data, slot) in quanta.by_ref().take(MAX_LANES) {
                let position = first.wrapping_add(self.sealed as u64);
                let (nonce, associated) = (seed.nonce(self.sealed), *self.associated.of(position, version, epoch));
                self.sealed += 1;
                lanes.push(Lane { nonce, associated, from, data, tag: [0; TAG_LEN] });
                slots.push(slot);
            }
            if lanes.is_empty() {
                return;
            }
            key.seal_lanes(&mut lanes);
            for (at, (Lane { nonce, data, tag, .. }, slot)) in zip(lanes, slots).enumerate() {
                let slot: &mut [u8; SLOT_LEN] = slot.try_into().expect(CUT);
                Slot { nonce, tag, version, epoch, crc: 0 }.encode(slot);
                let crc = crc_of(begin.wrapping_add(at as u64), slot, data);
                slot[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            }
        }
    }
}

/// Opens adjacent quanta, those of one key together.
///
/// A ciphertext that is opened into another place is checked behind the cipher, which has brought it into the cache; one that is opened where it stands must
/// be checked before.
struct Opener<'a> {
    codec: &'a Codec,
    associated: Associated,
    /// That of the next quantum.
    position: u64,
    /// The key of the lanes, and its epoch.
    key: Option<(u32, &'a dyn Aead)>,
    /// The quanta up to the next one that are not open yet, and their slots.
    lanes: Lanes<'a>,
    slots: ArrayVec<&'a [u8; SLOT_LEN], MAX_LANES>,
}

impl<'a> Opener<'a> {
    /// Opens ciphertexts, each into its place or where it stands.
    fn open(
        mut self,
        quanta: impl Iterator<Item = (Option<&'a [u8]>, &'a mut [u8], &'a [u8])>,
    ) -> Result<(), OpenError> {
        for (from, data, slot) in quanta {
            if let Err(reason) = self.take(from, data, slot.try_into().expect(CUT))? {
                self.open_lanes()?;
                return Err(OpenError { position: self.position, reason });
            }
            self.position = self.position.wrapping_add(1);
        }
        self.open_lanes()
    }

    /// Opens the next quantum, or keeps it to be opened with others. `Ok(Err)` says what is wrong with it.
    fn take(
        &mut self,
        from: Option<&'a [u8]>,
        data: &'a mut [u8],
        slot: &'a [u8; SLOT_LEN],
    ) -> Result<Result<(), Reason>, OpenError> {
        let Slot { nonce, tag, version, epoch, .. } = Slot::decode(slot);
        let is_kept = self.key.is_some_and(|(of, _)| of == epoch);
        if from.is_none() || !is_kept {
            match check(self.position, from.unwrap_or(data), slot) {
                Condition::Damaged => return Ok(Err(Reason::Damaged)),
                Condition::NeverWritten if self.codec.holes == Holes::Refused => return Ok(Err(Reason::Hole)),
                Condition::NeverWritten => {
                    self.open_lanes()?;
                    data.fill(0);
                    return Ok(Ok(()));
                }
                Condition::Intact => {}
            }
        }
        if !is_kept || self.lanes.is_full() {
            self.open_lanes()?;
        }
        if !is_kept {
            let Some(key) = self.codec.keys.get(epoch) else { return Ok(Err(Reason::UnknownEpoch(epoch))) };
            self.key = Some((epoch, key));
        }
        let associated = *self.associated.of(self.position, version, epoch);
        self.lanes.push(Lane { nonce, associated, from, data, tag });
        self.slots.push(slot);
        Ok(Ok(()))
    }

    /// Opens the quanta that were kept.
    fn open_lanes(&mut self) -> Result<(), OpenError> {
        let (Some((_, key)), false) = (self.key, self.lanes.is_empty()) else { return Ok(()) };
        let first = self.position.wrapping_sub(self.lanes.len() as u64);
        let forged = key.open_lanes(&mut self.lanes).err();
        let mut refused = forged.map(|at| (at, Reason::NotAuthentic));
        for (at, (lane, slot)) in zip(&self.lanes, &self.slots).enumerate().take(forged.map_or(MAX_LANES, |at| at + 1))
        {
            let position = first.wrapping_add(at as u64);
            if lane.from.is_some_and(|from| check(position, from, slot) != Condition::Intact) {
                refused = Some((at, Reason::Damaged));
                break;
            }
        }
        if let Some((at, reason)) = refused {
            self.lanes[at..].iter_mut().for_each(|lane| lane.data.fill(0));
            return Err(OpenError { position: first.wrapping_add(at as u64), reason });
        }
        self.lanes.clear();
        self.slots.clear();
        Ok(())
    }
}

/// The number of pieces of `len` bytes in `bytes`.
fn count(bytes: &[u8], len: usize) -> usize {
    assert_eq!(bytes.len() % len, 0, "{MISFIT}");
    bytes.len() / len
}

const CUT: &str = "cut to the length of a slot";
const MISFIT: &str = "the buffers do not hold the same whole number of quanta";
