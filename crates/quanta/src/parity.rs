//! Parity: EDUs computed from those of a group, from which damaged ones can be repaired without a key.
//!
//! The code works on the *body* of each EDU: all of its bytes but the CRC, which follows from them and the position. A
//! parity EDU is a body that the Reed-Solomon code made, and a CRC at the same place, by the same rule, for its own
//! position. So whoever checks the EDUs of a unit checks parity EDUs in the same way, without knowing which they are,
//! and a rotten parity EDU is told before it is used.
//!
//! # What a repair is worth
//!
//! A group is *stale* when data EDUs were written and not all of its parity EDUs (the writer stopped in between). Then
//! the code makes a body that was never written, and its CRC, which was computed here, proves nothing. Two things do:
//!
//! - The **tag**: with the key of the volume, a quantum that opens is one that was sealed for this position.
//! - **Spares**: intact parity EDUs that the repair did not need. All of them must be what the repaired group encodes
//!   to, or nothing is repaired. The repair is [confirmed](Repaired::confirmed) when the spares are at least half of
//!   the intact parity EDUs. The reason: let an interrupted write have reached one data EDU and some of n intact parity
//!   EDUs. With the write, or without it, at most half of n (rounded up) EDUs are wrong. No two groups that the code
//!   makes are so much alike that as many spares could agree with both. What several writes to several EDUs leave is
//!   the sum of what each leaves, and ciphertexts are random, so these sums do not vanish in each of the hundreds of
//!   symbols of an EDU.
//!
//! Only whoever has the key may use a repair that is not confirmed, after the tag.
//!
//! A repaired EDU is the last one whose parity was written too. That is the last one whose write was acknowledged, or
//! one whose write was under way when the writer stopped, before it or after it.

use std::iter::zip;

use reed_solomon_simd::engine::DefaultEngine;
use reed_solomon_simd::rate::{HighRateDecoder, HighRateEncoder, RateDecoder, RateEncoder};

use crate::codec::Holes;
use crate::error::HeaderError;
use crate::header::Group;
use crate::size::QuantumSize;
use crate::slot::{CRC_AT, Condition, SLOT_LEN, check, crc_of};

/// Some EDUs of a group, by their index in it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Members(u128);

impl Members {
    /// The indices, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..128).filter(move |index| self.contains(*index))
    }

    /// How many they are.
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether `index` is one of them.
    pub fn contains(self, index: usize) -> bool {
        index < 128 && self.0 >> index & 1 == 1
    }

    /// Adds an index, which is below 128: that of an EDU of a group.
    pub fn insert(&mut self, index: usize) {
        assert!(index < 128, "a group has at most 128 EDUs");
        self.0 |= 1 << index;
    }
}

impl FromIterator<usize> for Members {
    fn from_iter<T: IntoIterator<Item = usize>>(indices: T) -> Self {
        let mut members = Self::default();
        indices.into_iter().for_each(|index| members.insert(index));
        members
    }
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The data EDUs of a group, or its parity EDUs. They lie side by side.
#[derive(Debug, Clone, Copy)]
pub struct Part<B> {
    /// The position of the first: the number of its block, counted from that of quantum 0.
    pub position: u64,
    /// The bytes of the EDUs.
    pub edus: B,
    /// The EDUs that could not be read. Their bytes do not count.
    pub unread: Members,
}

/// A group that was repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repaired {
    /// The data EDUs that were made again; none when all of them were intact.
    pub edus: Members,
    /// Whether enough parity EDUs agree. Without it, only the tag tells whether these bytes were ever written.
    pub confirmed: bool,
}

/// Why a group was not repaired. Its bytes are what they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// More data EDUs are damaged than parity EDUs are intact.
    #[error("{} EDUs of the group are damaged, and {intact} of its parity EDUs are intact: restore it from a copy or a backup", damaged.count())]
    TooMany {
        /// Damaged data EDUs.
        damaged: Members,
        /// Intact parity EDUs.
        intact: usize,
    },
    /// Intact parity EDUs contradict each other or the data.
    #[error("{} EDUs of the group are damaged, and its parity is stale: a write was interrupted; restore them from a copy or a backup", damaged.count())]
    Stale {
        /// Damaged data EDUs.
        damaged: Members,
    },
}

impl RepairError {
    /// Damaged data EDUs of the group.
    pub fn damaged(self) -> Members {
        match self {
            Self::TooMany { damaged, .. } | Self::Stale { damaged } => damaged,
        }
    }
}

/// Encodes and repairs the groups of a volume.
///
/// It has working memory of its own, less than four times the bytes of a group with its parity, and calls allocate
/// nothing. A process that has one needs 9 MB more for the tables of the code, which the first one computes.
///
/// # Panics
///
/// Methods panic when a part does not have whole EDUs, or not 1 to [`Group::data`] data EDUs and [`Group::parity`]
/// parity EDUs: a mistake of the caller.
///
/// ```
/// use lunette_quanta::{Group, Holes, Members, Parity, QuantumSize, Part};
/// # use lunette_quanta::{Cipher, Codec, DataKey, KeyRing, Sealing, Seed, VolumeId};
/// # let ring = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([7; 32]))?;
/// # let codec = Codec::new(VolumeId([1; 16]), QuantumSize::B512, Holes::Allowed, ring);
/// # let mut edus = vec![0; 4 * 576];
/// # codec.seal(Sealing { position: 0, version: 1, seed: Seed::new([2; 32]) }, &[0x5a; 4 * 512], &mut edus);
/// let mut groups = Parity::new(Group { data: 4, parity: 2 }, QuantumSize::B512, Holes::Allowed)?;
/// let mut parity = vec![0; 2 * 576];
/// groups.encode(&edus, 100, &mut parity);
///
/// let whole = edus.clone();
/// edus[700] ^= 1;
/// let data = Part { position: 0, edus: &mut edus[..], unread: Members::default() };
/// let repaired = groups.repair(data, Part { position: 100, edus: &parity, unread: Members::default() })?;
/// assert_eq!(repaired.edus.iter().collect::<Vec<_>>(), [1]);
/// assert!(repaired.confirmed && edus == whole);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Parity {
    group: Group,
    size: QuantumSize,
    holes: Holes,
    encoder: HighRateEncoder<DefaultEngine>,
    decoder: HighRateDecoder<DefaultEngine>,
    /// The body of an EDU that a short group does not have.
    absent: Box<[u8]>,
}

impl Parity {
    /// For the groups of a volume. In one whose holes are refused, an EDU of zeroes is a damaged one.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Field`] for a group out of its bounds.
    pub fn new(group: Group, size: QuantumSize, holes: Holes) -> Result<Self, HeaderError> {
        group.check()?;
        let (data, parity, body) = (group.data.into(), group.parity.into(), body_len(size));
        Ok(Self {
            group,
            size,
            holes,
            encoder: HighRateEncoder::new(data, parity, body, DefaultEngine::new(), None).expect(FITS),
            decoder: HighRateDecoder::new(data, parity, body, DefaultEngine::new(), None).expect(FITS),
            absent: vec![0; body].into(),
        })
    }

    /// The sizes of the groups.
    pub fn group(&self) -> Group {
        self.group
    }

    /// Makes the parity EDUs of a group, the first of which has `position`. The last group of a volume may have fewer
    /// data EDUs than the others.
    pub fn encode(&mut self, edus: &[u8], position: u64, parity: &mut [u8]) {
        let (size, bodies) = (self.size, bodies(self.group, self.size, &self.absent, edus));
        assert_eq!(parity.len(), usize::from(self.group.parity) * size.edu_len(), "{MISFIT}");
        bodies.for_each(|body| self.encoder.add_original_shard(body).expect(FITS));
        let encoded = self.encoder.encode().expect(FITS);
        for (index, (body, edu)) in zip(encoded.recovery_iter(), parity.chunks_exact_mut(size.edu_len())).enumerate() {
            put(position.wrapping_add(index as u64), body, edu);
        }
    }

    /// Makes random bytes the parity EDUs of a group, the first of which has `position`: parity that no data has, so
    /// that nothing is repaired from it. That is the parity of a group with a data EDU that is damaged for good. Any
    /// other would vouch for the damaged bytes, or for older ones.
    pub fn void(&self, position: u64, random: &mut [u8]) {
        assert_eq!(random.len(), usize::from(self.group.parity) * self.size.edu_len(), "{MISFIT}");
        for (edu, position) in zip(random.chunks_exact_mut(self.size.edu_len()), position..) {
            let (data, slot) = edu.split_last_chunk_mut::<SLOT_LEN>().expect("an EDU is longer than its slot");
            let crc = crc_of(position, slot, data);
            slot[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Whether all EDUs of a group are intact and its parity is that of its data. When all data EDUs are intact,
    /// [`encode`](Self::encode) makes it so.
    pub fn agrees(&mut self, data: Part<&[u8]>, parity: Part<&[u8]>) -> bool {
        let damaged = [data, parity].map(|part| self.damaged(part.position, part.edus, part.unread).count());
        if damaged != [0, 0] {
            return false;
        }
        for body in bodies(self.group, self.size, &self.absent, data.edus) {
            self.encoder.add_original_shard(body).expect(FITS);
        }
        let encoded = self.encoder.encode().expect(FITS);
        zip(encoded.recovery_iter(), parity.edus.chunks_exact(self.size.edu_len())).all(|(made, edu)| made == body(edu))
    }

    /// Finds the damaged data EDUs of a group, and makes them again from the others and the parity.
    ///
    /// # Errors
    ///
    /// [`RepairError`].
    pub fn repair(&mut self, data: Part<&mut [u8]>, parity: Part<&[u8]>) -> Result<Repaired, RepairError> {
        let Part { position, edus, unread } = data;
        assert_eq!(parity.edus.len(), usize::from(self.group.parity) * self.size.edu_len(), "{MISFIT}");
        let damaged = self.damaged(position, edus, unread);
        let rotten = self.damaged(parity.position, parity.edus, parity.unread);
        let (count, intact) = (damaged.count(), usize::from(self.group.parity) - rotten.count());
        if count == 0 {
            return Ok(Repaired { edus: damaged, confirmed: true });
        }
        if count > intact {
            return Err(RepairError::TooMany { damaged, intact });
        }
        let edu_len = self.size.edu_len();
        let parity_bodies = parity.edus.chunks_exact(edu_len).map(body).enumerate();
        let mut usable = parity_bodies.filter(|(index, _)| !rotten.contains(*index));
        let there = bodies(self.group, self.size, &self.absent, edus).enumerate();
        for (index, body) in there.filter(|(index, _)| !damaged.contains(*index)) {
            self.decoder.add_original_shard(index, body).expect(FITS);
        }
        for (index, body) in usable.by_ref().take(count) {
            self.decoder.add_recovery_shard(index, body).expect(FITS);
        }
        let restored = self.decoder.decode().expect(FITS);
        if intact > count {
            for (index, body) in bodies(self.group, self.size, &self.absent, edus).enumerate() {
                self.encoder.add_original_shard(restored.restored_original(index).unwrap_or(body)).expect(FITS);
            }
            let encoded = self.encoder.encode().expect(FITS);
            if usable.any(|(index, body)| encoded.recovery(index) != Some(body)) {
                return Err(RepairError::Stale { damaged });
            }
        }
        for index in damaged.iter() {
            let body = restored.restored_original(index).expect("it was not given to the decoder");
            put(position.wrapping_add(index as u64), body, &mut edus[index * edu_len..][..edu_len]);
        }
        Ok(Repaired { edus: damaged, confirmed: 2 * count <= intact })
    }

    /// The EDUs of a part that do not count: damaged by their CRC, not read, or holes where there are none.
    fn damaged(&self, position: u64, edus: &[u8], unread: Members) -> Members {
        let damaged = |index: usize, edu: &[u8]| {
            let (data, slot) = edu.split_last_chunk().expect("an EDU is longer than its slot");
            match check(position.wrapping_add(index as u64), data, slot) {
                Condition::Intact => false,
                Condition::NeverWritten => self.holes == Holes::Refused,
                Condition::Damaged => true,
            }
        };
        let edus = edus.chunks_exact(self.size.edu_len()).enumerate();
        edus.filter(|(index, edu)| unread.contains(*index) || damaged(*index, edu)).map(|(index, _)| index).collect()
    }
}

/// The bodies of the data EDUs of a group, with `absent` for those that a short group does not have.
fn bodies<'a>(
    group: Group,
    size: QuantumSize,
    absent: &'a [u8],
    edus: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> + Clone {
    let (edu_len, data) = (size.edu_len(), group.data.into());
    let there = edus.len() / edu_len;
    assert!(edus.len().is_multiple_of(edu_len) && (1..=data).contains(&there), "{MISFIT}");
    edus.chunks_exact(edu_len).map(body).chain(std::iter::repeat_n(absent, data - there))
}

/// Bytes of the body of an EDU.
const fn body_len(size: QuantumSize) -> usize {
    size.bytes() + CRC_AT
}

/// All of an EDU but its CRC.
fn body(edu: &[u8]) -> &[u8] {
    &edu[..edu.len() - SLOT_LEN + CRC_AT]
}

/// Makes the EDU of a body. That of zeroes is a hole.
fn put(position: u64, body: &[u8], edu: &mut [u8]) {
    edu[..body.len()].copy_from_slice(body);
    let (data, slot) = edu.split_last_chunk_mut::<SLOT_LEN>().expect("an EDU is longer than its slot");
    let hole = body.iter().all(|byte| *byte == 0);
    let crc = if hole { 0 } else { crc_of(position, slot, data) };
    slot[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
}

const FITS: &str = "shards of the length and number that the code was made for";
const MISFIT: &str = "the bytes are not those of one group";
