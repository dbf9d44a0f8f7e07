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
    /// An EDU of zeroes reads as zeroes: it was never written, or was unmapped. A server can pretend that of any
    /// quantum.
    Allowed,
    /// Every quantum was sealed when the volume was formatted, and an EDU of zeroes is refused.
    Refused,
}

/// Thirty-two random bytes, from which the nonces of one request are made.
///
/// They come from the system's generator, for this request: a seed is moved into the call that uses it up, and two
/// calls never share one.
pub struct Seed([u8; NONCE_LEN]);

impl Seed {
    /// A seed of bytes that the system's generator has just given.
    pub fn new(bytes: [u8; NONCE_LEN]) -> Self {
        Self(bytes)
    }

    /// The nonce of quantum `index` of the request. The nonces of one request differ from each other, and each is as
    /// random as the seed.
    pub(crate) fn nonce(&self, index: usize) -> [u8; NONCE_LEN] {
        let mut nonce = self.0;
        let (counted, _) = nonce.split_first_chunk_mut::<8>().expect("a nonce is longer than 8 bytes");
        *counted = u64::from_le_bytes(*counted).wrapping_add(index as u64).to_le_bytes();
        nonce
    }

    /// Uses the seed up.
    fn into_nonces(self) -> impl Fn(usize) -> [u8; NONCE_LEN] {
        move |index| self.nonce(index)
    }
}

/// The values that one request to seal adjacent quanta needs beside their bytes.
pub struct Sealing {
    /// The position of the first quantum.
    pub position: u64,
    /// The version of all of them: higher than any that the writer knows of these positions. Readers that keep no
    /// versions do not look at it.
    pub version: u64,
    /// The randomness of their nonces.
    pub seed: Seed,
}

/// Adjacent quanta that are sealed in one call with others.
pub struct SealRun<'a> {
    /// The position of the first quantum.
    pub position: u64,
    /// The version of all of them, as in [`Sealing`].
    pub version: u64,
    /// The plain text.
    pub plain: &'a [u8],
    /// Where the EDUs are to stand.
    pub edus: &'a mut [u8],
}

/// Adjacent quanta that are opened in one call with others.
pub struct OpenRun<'a> {
    /// The position of the first quantum.
    pub position: u64,
    /// The EDUs.
    pub edus: &'a [u8],
    /// Where the plain text is to stand.
    pub plain: &'a mut [u8],
}

/// Seals and opens the quanta of one volume.
///
/// Each call works on adjacent quanta, as many as its buffers hold, and allocates nothing. `data` is a run of
/// ciphertexts, `slots` the run of their slots, and `edus` a run of both in turn, as a native volume has them.
///
/// An error names the first quantum that cannot be opened. Those before it are open; no plain text of it or of those
/// behind it is in the buffer that the call was to fill, whose bytes there are unspecified.
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

    /// A codec with other keys.
    #[must_use]
    pub fn with_keys(&self, keys: KeyRing) -> Self {
        Self { keys, ..*self }
    }

    /// Seals `plain` into `edus`.
    pub fn seal(&self, sealing: Sealing, plain: &[u8], edus: &mut [u8]) {
        let Sealing { position, version, seed } = sealing;
        self.seal_runs(seed, [SealRun { position, version, plain, edus }]);
    }

    /// Seals several runs with the randomness of one seed: short ones are sealed faster together than one after
    /// another.
    pub fn seal_runs<'a>(&self, seed: Seed, runs: impl IntoIterator<Item = SealRun<'a>>) {
        let (len, edu_len) = (self.size.bytes(), self.size.edu_len());
        self.seal_quanta(
            seed,
            runs.into_iter().flat_map(|SealRun { position, version, plain, edus }| {
                assert_eq!(count(plain, len), count(edus, edu_len), "{MISFIT}");
                let edus = edus.chunks_exact_mut(edu_len).map(move |edu| edu.split_at_mut(len));
                let quanta = zip(positions(position), zip(plain.chunks_exact(len), edus));
                quanta.map(move |(position, (plain, (data, slot)))| Plain {
                    position,
                    version,
                    from: Some(plain),
                    data,
                    slot,
                })
            }),
        );
    }

    /// Seals `plain` into `data` and `slots`.
    pub fn seal_split(&self, sealing: Sealing, plain: &[u8], data: &mut [u8], slots: &mut [u8]) {
        let len = self.size.bytes();
        assert_eq!(plain.len(), data.len(), "{MISFIT}");
        assert_eq!(count(data, len), count(slots, SLOT_LEN), "{MISFIT}");
        let Sealing { position, version, seed } = sealing;
        let places = zip(data.chunks_exact_mut(len), slots.chunks_exact_mut(SLOT_LEN));
        let quanta = zip(positions(position), zip(plain.chunks_exact(len), places));
        self.seal_quanta(
            seed,
            quanta.map(|(position, (plain, (data, slot)))| Plain { position, version, from: Some(plain), data, slot }),
        );
    }

    /// Seals the plain text that stands where the ciphertexts of `edus` will be.
    pub fn seal_in_place(&self, sealing: Sealing, edus: &mut [u8]) {
        count(edus, self.size.edu_len());
        let Sealing { position, version, seed } = sealing;
        let edus = edus.chunks_exact_mut(self.size.edu_len()).map(|edu| edu.split_at_mut(self.size.bytes()));
        let quanta = zip(positions(position), edus);
        self.seal_quanta(
            seed,
            quanta.map(|(position, (data, slot))| Plain { position, version, from: None, data, slot }),
        );
    }

    /// Opens `edus`, the first of which is at `position`, into `plain`.
    ///
    /// # Errors
    ///
    /// The first quantum that cannot be opened.
    pub fn open(&self, position: u64, edus: &[u8], plain: &mut [u8]) -> Result<(), OpenError> {
        self.open_runs([OpenRun { position, edus, plain }])
    }

    /// Opens several runs: short ones are opened faster together than one after another.
    ///
    /// # Errors
    ///
    /// The first quantum that cannot be opened; nothing says in which run it is when two runs have quanta in common.
    pub fn open_runs<'a>(&self, runs: impl IntoIterator<Item = OpenRun<'a>>) -> Result<(), OpenError> {
        let (len, edu_len) = (self.size.bytes(), self.size.edu_len());
        self.opener().open(runs.into_iter().flat_map(|OpenRun { position, edus, plain }| {
            assert_eq!(count(plain, len), count(edus, edu_len), "{MISFIT}");
            let edus = edus.chunks_exact(edu_len).map(move |edu| edu.split_at(len));
            let quanta = zip(positions(position), zip(edus, plain.chunks_exact_mut(len)));
            quanta.map(|(position, ((data, slot), plain))| Sealed { position, from: Some(data), data: plain, slot })
        }))
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
        let quanta = zip(positions(position), zip(edus, plain.chunks_exact_mut(self.size.bytes())));
        let sealed = |(position, ((data, slot), plain))| Sealed { position, from: Some(data), data: plain, slot };
        self.opener().open(quanta.map(sealed))
    }

    /// Opens `data` with `slots`, the first of which are at `position`, where it stands.
    ///
    /// # Errors
    ///
    /// The first quantum that cannot be opened.
    pub fn open_in_place(&self, position: u64, data: &mut [u8], slots: &[u8]) -> Result<(), OpenError> {
        assert_eq!(count(data, self.size.bytes()), count(slots, SLOT_LEN), "{MISFIT}");
        let quanta = zip(data.chunks_exact_mut(self.size.bytes()), slots.chunks_exact(SLOT_LEN));
        let quanta = zip(positions(position), quanta);
        self.opener().open(quanta.map(|(position, (data, slot))| Sealed { position, from: None, data, slot }))
    }

    /// Seals plain texts, each into its place or where it stands, and fills their slots.
    fn seal_quanta<'a>(&self, seed: Seed, mut quanta: impl Iterator<Item = Plain<'a>>) {
        let (epoch, key) = self.keys.newest();
        let mut associated = self.associated();
        let nonces = seed.into_nonces();
        let mut sealed = 0;
        loop {
            let (mut lanes, mut places) = (Lanes::new(), ArrayVec::<_, MAX_LANES>::new());
            for Plain { position, version, from, data, slot } in quanta.by_ref().take(MAX_LANES) {
                let (nonce, associated) = (nonces(sealed), *associated.of(position, version, epoch));
                sealed += 1;
                lanes.push(Lane { nonce, associated, from, data, tag: [0; TAG_LEN] });
                places.push((position, version, slot));
            }
            if lanes.is_empty() {
                return;
            }
            key.seal_lanes(&mut lanes);
            for (Lane { nonce, data, tag, .. }, (position, version, slot)) in zip(lanes, places) {
                let slot: &mut [u8; SLOT_LEN] = slot.try_into().expect(CUT);
                Slot { nonce, tag, version, epoch, crc: 0 }.encode(slot);
                let crc = crc_of(position, slot, data);
                slot[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            }
        }
    }

    fn opener(&self) -> Opener<'_> {
        Opener { codec: self, associated: self.associated(), key: None, lanes: Lanes::new(), places: ArrayVec::new() }
    }

    fn associated(&self) -> Associated {
        Associated::new(self.volume, self.size, self.keys.cipher())
    }
}

/// A quantum that is to be sealed.
struct Plain<'a> {
    position: u64,
    version: u64,
    /// The bytes of the quantum; `None` when they stand in `data`.
    from: Option<&'a [u8]>,
    data: &'a mut [u8],
    slot: &'a mut [u8],
}

/// A quantum that is to be opened.
struct Sealed<'a> {
    position: u64,
    /// The ciphertext of the quantum; `None` when it stands in `data`.
    from: Option<&'a [u8]>,
    data: &'a mut [u8],
    slot: &'a [u8],
}

/// The positions of adjacent quanta.
fn positions(first: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |at| first.wrapping_add(at))
}

/// Opens quanta, those of one key together.
///
/// A ciphertext that is opened into another place is checked behind the cipher, which has brought it into the cache;
/// one that is opened where it stands must be checked before.
struct Opener<'a> {
    codec: &'a Codec,
    associated: Associated,
    /// The key of the lanes, and its epoch.
    key: Option<(u32, &'a dyn Aead)>,
    /// The quanta that are not open yet.
    lanes: Lanes<'a>,
    /// The positions and slots of the quanta.
    places: ArrayVec<(u64, &'a [u8; SLOT_LEN]), MAX_LANES>,
}

impl<'a> Opener<'a> {
    /// Opens ciphertexts, each into its place or where it stands.
    fn open(mut self, quanta: impl Iterator<Item = Sealed<'a>>) -> Result<(), OpenError> {
        for quantum in quanta {
            let position = quantum.position;
            if let Err(reason) = self.take(quantum)? {
                self.open_lanes()?;
                return Err(OpenError { position, reason });
            }
        }
        self.open_lanes()
    }

    /// Opens the next quantum, or keeps it to be opened with others. `Ok(Err)` says what is wrong with it.
    fn take(&mut self, quantum: Sealed<'a>) -> Result<Result<(), Reason>, OpenError> {
        let Sealed { position, from, data, slot } = quantum;
        let slot: &[u8; SLOT_LEN] = slot.try_into().expect(CUT);
        let Slot { nonce, tag, version, epoch, .. } = Slot::decode(slot);
        let is_kept = self.key.is_some_and(|(of, _)| of == epoch);
        if from.is_none() || !is_kept {
            match check(position, from.unwrap_or(data), slot) {
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
        let associated = *self.associated.of(position, version, epoch);
        self.lanes.push(Lane { nonce, associated, from, data, tag });
        self.places.push((position, slot));
        Ok(Ok(()))
    }

    /// Opens the quanta that were kept.
    fn open_lanes(&mut self) -> Result<(), OpenError> {
        let (Some((_, key)), false) = (self.key, self.lanes.is_empty()) else { return Ok(()) };
        let forged = key.open_lanes(&mut self.lanes).err();
        let mut refused = forged.map(|at| (at, Reason::NotAuthentic));
        let judged = forged.map_or(MAX_LANES, |at| at + 1);
        for (at, (lane, (position, slot))) in zip(&self.lanes, &self.places).enumerate().take(judged) {
            if lane.from.is_some_and(|from| check(*position, from, slot) != Condition::Intact) {
                refused = Some((at, Reason::Damaged));
                break;
            }
        }
        if let Some((at, reason)) = refused {
            self.lanes[at..].iter_mut().for_each(|lane| lane.data.fill(0));
            return Err(OpenError { position: self.places[at].0, reason });
        }
        self.lanes.clear();
        self.places.clear();
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
