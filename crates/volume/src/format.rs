//! Making a volume on a unit.

use std::sync::Arc;

use lunette_quanta::limits::{MAX_JOURNAL_LEN, MIN_JOURNAL_LEN};
use lunette_quanta::packed::{Journal, Layout, MAX_BLOCK_LEN};
use lunette_quanta::{
    Codec, Group, Header, Holes, KeyRing, Native, Placement, QuantumSize, SLOT_LEN, Sealing, VolumeId,
};
use lunette_store::{Geometry, Op, Store, StoreError};

use crate::find::{random_seed, write_header};
use crate::limits::MAX_PIECE_BYTES;
use crate::parity::ParityUnit;
use crate::unit::{Unit, doing};
use crate::versions::Versions;
use crate::{Progress, VolumeError, find};

/// The size of quanta unless one is asked for.
const DEFAULT_SIZE: QuantumSize = QuantumSize::B4096;

/// Quanta that are sealed together when a volume without holes is made. Their slots fill whole blocks.
const SEALED_TOGETHER: u64 = 64;

/// How a volume is to be made.
#[derive(Debug, Clone, Copy)]
pub struct FormatOptions {
    /// The size of the quanta. `None` takes 4096 bytes on blocks of 512 and 4096 bytes; a native unit's blocks have one
    /// size that fits.
    pub size: Option<QuantumSize>,
    /// Whether quanta may be without content. [`Holes::Refused`] seals every quantum now, so that a server cannot
    /// pretend that one was never written.
    pub holes: Holes,
    /// Bytes of the journal of a packed volume: 24 KiB to 256 MiB in steps of 4096. `None` takes 1/64 of the unit, at
    /// most 64 MiB.
    pub journal_bytes: Option<u64>,
    /// Parity groups, from which damaged quanta are repaired. Only native volumes may have them. Writes of less than a
    /// group then read the rest of it.
    pub parity: Option<Group>,
    /// Whether a volume that is there already may be destroyed.
    pub overwrite: bool,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self { size: None, holes: Holes::Allowed, journal_bytes: None, parity: None, overwrite: false }
    }
}

/// Makes a volume on a unit: native where the unit's block has the length of an EDU, packed where it has 512 or 4096
/// bytes.
///
/// The whole unit is zeroed or sealed first, because bytes that were there before would be refused as damaged quanta.
/// The headers come last, so what is interrupted is no volume.
///
/// # Errors
///
/// [`VolumeError::Exists`] unless [`FormatOptions::overwrite`] is set, errors of sizes that do not fit,
/// [`VolumeError::Unit`].
pub fn format(
    inner: &Arc<dyn Store>,
    volume: VolumeId,
    keys: &KeyRing,
    options: &FormatOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Header, VolumeError> {
    let plan = Plan::new(&inner.geometry(), options)?;
    if inner.capabilities().read_only {
        return Err(VolumeError::ReadOnly);
    }
    if !options.overwrite {
        match find(inner) {
            Ok(found) => return Err(VolumeError::Exists(found.header().volume)),
            Err(VolumeError::NoVolume) => {}
            Err(damaged) => return Err(damaged),
        }
    }
    let header = Header {
        volume,
        cipher: keys.cipher(),
        size: plan.size,
        placement: plan.placement(),
        quanta: plan.quanta(),
        holes: options.holes,
        first_epoch: keys.newest_epoch(),
        newest_epoch: keys.newest_epoch(),
        group: options.parity,
        generation: 1,
    };
    let unit = Unit::new(inner);
    // Without its headers, what was there before is no volume any more, so nothing of it is found by the next step.
    let failed = doing("clearing the unit");
    unit.zero(0, plan.header_bytes(), |_| {}).and_then(|()| unit.flush()).map_err(&failed)?;
    let total_bytes = header.quanta * plan.size.bytes() as u64;
    let share = |done: u64, of: u64| (u128::from(total_bytes) * u128::from(done) / u128::from(of.max(1))) as u64;
    let zeroed = if options.holes == Holes::Refused { plan.quanta_offset() } else { plan.len_bytes() };
    let mut report = |done_bytes| progress(Progress { done_bytes, total_bytes });
    // The records of an earlier volume of this name must not be taken for this one's.
    unit.zero(0, zeroed, |done| {
        if options.holes == Holes::Allowed {
            report(share(done, zeroed));
        }
    })
    .map_err(&failed)?;
    if options.holes == Holes::Refused {
        let codec = Codec::new(volume, plan.size, options.holes, keys.clone());
        plan.seal_all(&unit, &codec, |quanta| report(quanta * plan.size.bytes() as u64))?;
        if let (Place::Native(native), Some(_)) = (&plan.place, header.group) {
            let parity = ParityUnit::new(Arc::clone(inner), &header, *native, None, false)?;
            // A scrub finds intact data EDUs and no parity of theirs.
            let encode = |group| parity.scrub(group).map(drop);
            (0..native.groups()).try_for_each(encode).map_err(doing("computing parity"))?;
        }
    }
    plan.write_tails(&unit, volume).and_then(|()| unit.flush()).map_err(doing("writing the journal"))?;
    write_header(&unit, &header, keys)?;
    let header = Header { generation: 2, ..header };
    write_header(&unit, &header, keys)?;
    Ok(header)
}

/// Where everything will be.
struct Plan {
    size: QuantumSize,
    place: Place,
}

enum Place {
    Native(Native),
    Packed(Layout),
}

impl Plan {
    fn new(geometry: &Geometry, options: &FormatOptions) -> Result<Self, VolumeError> {
        let (unit_bytes, block_len) = (geometry.len_bytes, geometry.granularity_bytes);
        if let Some(size) = Native::size_of_block_len(block_len) {
            if let Some(asked) = options.size.filter(|asked| *asked != size) {
                let remedy = "leave the size out: the unit's blocks have the length of one EDU";
                return Err(VolumeError::QuantumSize { size: asked.bytes() as u64, block_len, remedy });
            }
            let native = Native::largest(unit_bytes / u64::from(block_len), options.parity);
            let native = native.ok_or(VolumeError::NoRoom { unit_bytes, journal_bytes: 0 })?;
            return Ok(Self { size, place: Place::Native(native) });
        }
        if options.parity.is_some() {
            return Err(VolumeError::PackedParity);
        }
        let size = options.size.unwrap_or(DEFAULT_SIZE);
        let granularity = block_len;
        let block_len = [512, MAX_BLOCK_LEN].into_iter().find(|len| len % granularity == 0);
        let block_len = block_len.ok_or(VolumeError::BlockLen(granularity))?;
        if block_len as usize > size.bytes() {
            let remedy = "a quantum has at least the length of a block";
            return Err(VolumeError::QuantumSize { size: size.bytes() as u64, block_len, remedy });
        }
        let journal_bytes = options.journal_bytes.unwrap_or_else(|| Layout::default_journal_len(unit_bytes));
        let allowed = MIN_JOURNAL_LEN..=MAX_JOURNAL_LEN;
        if !allowed.contains(&journal_bytes) || !journal_bytes.is_multiple_of(u64::from(MAX_BLOCK_LEN)) {
            return Err(VolumeError::JournalLen(journal_bytes));
        }
        let layout = Layout::largest(unit_bytes, size, block_len, journal_bytes);
        let layout = layout.ok_or(VolumeError::NoRoom { unit_bytes, journal_bytes })?;
        Ok(Self { size, place: Place::Packed(layout) })
    }

    fn placement(&self) -> Placement {
        match &self.place {
            Place::Native(_) => Placement::Native,
            Place::Packed(layout) => layout.placement(),
        }
    }

    fn quanta(&self) -> u64 {
        match &self.place {
            Place::Native(native) => native.quanta(),
            Place::Packed(layout) => layout.quanta(),
        }
    }

    fn len_bytes(&self) -> u64 {
        match &self.place {
            Place::Native(native) => native.blocks() * self.size.edu_len() as u64,
            Place::Packed(layout) => layout.len_bytes(),
        }
    }

    /// Bytes of both copies of the header.
    fn header_bytes(&self) -> u64 {
        match &self.place {
            Place::Native(native) => native.lba(0) * self.size.edu_len() as u64,
            Place::Packed(layout) => layout.journal_offset(),
        }
    }

    /// Where what must be sealed in a volume without holes begins.
    fn quanta_offset(&self) -> u64 {
        match &self.place {
            Place::Native(_) => self.header_bytes(),
            Place::Packed(layout) => layout.slot(0),
        }
    }

    fn write_tails(&self, unit: &Unit, volume: VolumeId) -> Result<(), StoreError> {
        let Place::Packed(layout) = &self.place else { return Ok(()) };
        let Placement::Packed { block_len, .. } = layout.placement() else { return Ok(()) };
        Journal::first_tails(volume).iter().try_for_each(|tail| {
            unit.write_padded(layout.journal_offset() + tail.offset, &tail.bytes, block_len as usize)
        })
    }

    /// Seals zeroes into every quantum.
    fn seal_all(&self, unit: &Unit, codec: &Codec, mut each: impl FnMut(u64)) -> Result<(), VolumeError> {
        let zeroes = vec![0; SEALED_TOGETHER as usize * self.size.bytes()];
        let versions = Versions::default();
        let (mut next, mut done) = (0, 0);
        // Slots of a packed volume are a request of their own, which follows the one of their ciphertexts.
        let mut slots_due = None;
        let op = || -> Result<Option<(u64, Op)>, VolumeError> {
            if let Some(op) = slots_due.take() {
                return Ok(Some((0, op)));
            }
            let (first, quanta) = (next, SEALED_TOGETHER.min(self.quanta() - next));
            if quanta == 0 {
                return Ok(None);
            }
            next += quanta;
            let failed = doing("sealing the volume");
            let sealing = Sealing { position: first, version: versions.next(), seed: random_seed()? };
            let plain = &zeroes[..quanta as usize * self.size.bytes()];
            let (offset, from) = match &self.place {
                Place::Native(native) => {
                    let mut edus = unit.take(quanta as usize * self.size.edu_len()).map_err(failed)?;
                    codec.seal(sealing, plain, &mut edus);
                    (native.lba(first) * self.size.edu_len() as u64, edus)
                }
                Place::Packed(layout) => {
                    let len = quanta as usize * SLOT_LEN;
                    let mut slots = unit.take(len.next_multiple_of(MAX_BLOCK_LEN as usize)).map_err(&failed)?;
                    let mut data = unit.take(plain.len()).map_err(&failed)?;
                    slots[len..].fill(0);
                    codec.seal_split(sealing, plain, &mut data, &mut slots[..len]);
                    slots_due = Some(Op::Write { offset: layout.slot(first), from: slots, fua: false });
                    (layout.data(first), data)
                }
            };
            Ok(Some((quanta, Op::Write { offset, from, fua: false })))
        };
        unit.run(op, |quanta, outcome| {
            outcome.result.map_err(doing("sealing the volume"))?;
            done += quanta;
            each(done);
            Ok(())
        })
    }
}

// What is sealed together for blocks of 512 and 4096 bytes is one piece, and so are its slots: whole blocks.
const _: () = assert!(SEALED_TOGETHER as usize * QuantumSize::B4096.bytes() <= MAX_PIECE_BYTES);
