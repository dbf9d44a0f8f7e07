//! The work of the thread of a unit with parity: changes of EDUs with their parity, and repairs.

use std::ops::Range;
use std::sync::Arc;

use lunette_buffer::Buffer;
use lunette_quanta::{Members, Native, Parity, Part, QuantumSize};
use lunette_store::{Completion, Op, Outcome, StoreError, execute};

use super::GroupState;
use crate::limits::MAX_GROUP_BYTES;
use crate::seals::Seals;
use crate::unit::Unit;

/// The groups of a volume, and whatever their thread needs.
pub(super) struct Groups {
    unit: Unit,
    parity: Parity,
    native: Native,
    edu_len: usize,
    /// The seals that tell whether a repaired quantum is genuine, where a volume is open.
    seals: Option<Arc<Seals>>,
    read_only: bool,
}

/// A group as it was read.
struct Stored {
    /// The quanta.
    quanta: Range<u64>,
    edus: Vec<u8>,
    unread: Members,
    parity: Vec<u8>,
    parity_unread: Members,
    /// The data EDUs that stay damaged.
    lost: Members,
}

impl Groups {
    pub(super) fn new(
        unit: Unit,
        parity: Parity,
        native: Native,
        size: QuantumSize,
        seals: Option<Arc<Seals>>,
        read_only: bool,
    ) -> Self {
        Self { unit, parity, native, edu_len: size.edu_len(), seals, read_only }
    }

    /// Carries out a request that changes the EDUs of `quanta`, and no other bytes.
    pub(super) fn change(&mut self, op: Op, quanta: &Range<u64>, done: Completion) {
        let (from, fua) = match op {
            Op::Write { from, fua, .. } => (Some(from), fua),
            Op::WriteZeroes { fua, .. } => (None, fua),
            _ => (None, false),
        };
        let result = match &from {
            Some(from) => self.write_edus(quanta, from, fua),
            None => self.clear(quanta, fua),
        };
        done.complete(Outcome::new(result, from));
    }

    /// Makes holes. Groups that become nothing but holes have holes for parity, too.
    fn clear(&mut self, quanta: &Range<u64>, fua: bool) -> Result<(), StoreError> {
        let (mut part, mut whole) = (Vec::new(), 0..0);
        for group in self.groups_of(quanta) {
            let members = self.quanta_of(group);
            if quanta.start <= members.start && members.end <= quanta.end {
                whole = if whole.is_empty() { group..group + 1 } else { whole.start..group + 1 };
            } else {
                part.push(quanta.start.max(members.start)..quanta.end.min(members.end));
            }
        }
        if let Some(last) = whole.end.checked_sub(1).filter(|_| !whole.is_empty()) {
            let parity = u64::from(self.parity.group().parity);
            let data = self.native.lba(self.quanta_of(whole.start).start)..self.native.lba(self.quanta_of(last).end);
            self.zero(&data, fua)?;
            self.zero(&(self.parity_lba(whole.start)..self.parity_lba(last) + parity), fua)?;
        }
        part.into_iter().try_for_each(|quanta| {
            let zeroes = vec![0; (quanta.end - quanta.start) as usize * self.edu_len];
            self.write_edus(&quanta, &zeroes, fua)
        })
    }

    /// Writes EDUs, and the parity of their groups behind them.
    fn write_edus(&mut self, quanta: &Range<u64>, edus: &[u8], fua: bool) -> Result<(), StoreError> {
        let parity_len = usize::from(self.parity.group().parity) * self.edu_len;
        let groups = self.groups_of(quanta);
        let mut edus = edus;
        for first in groups.clone().step_by(MAX_GROUP_BYTES / parity_len) {
            let batch = first..groups.end.min(first + (MAX_GROUP_BYTES / parity_len) as u64);
            let mut parity = vec![0; (batch.end - batch.start) as usize * parity_len];
            let from = quanta.start.max(self.quanta_of(batch.start).start);
            let mut rest = edus;
            for (group, parity) in batch.clone().zip(parity.chunks_exact_mut(parity_len)) {
                let members = self.quanta_of(group);
                let changed = quanta.start.max(members.start)..quanta.end.min(members.end);
                let (changes, behind) = rest.split_at((changed.end - changed.start) as usize * self.edu_len);
                let position = self.parity_position(group);
                if changed == members {
                    self.parity.encode(changes, position, parity);
                } else {
                    self.merge(group, &changed, changes, parity)?;
                }
                rest = behind;
            }
            self.write(self.native.lba(from), &edus[..edus.len() - rest.len()], fua)?;
            self.write(self.parity_lba(first), &parity, fua)?;
            edus = rest;
        }
        Ok(())
    }

    /// Makes the parity of a group of which some quanta are to be changed.
    fn merge(&mut self, group: u64, changed: &Range<u64>, changes: &[u8], parity: &mut [u8]) -> Result<(), StoreError> {
        let (mut stored, _) = self.repaired(group)?;
        let index = (changed.start - stored.quanta.start) as usize;
        let indices = index..index + (changed.end - changed.start) as usize;
        let position = self.parity_position(group);
        if stored.lost.iter().all(|lost| indices.contains(&lost)) {
            stored.edus[index * self.edu_len..][..changes.len()].copy_from_slice(changes);
            self.parity.encode(&stored.edus, position, parity);
        } else {
            getrandom::fill(parity).map_err(std::io::Error::other)?;
            self.parity.void(position, parity);
        }
        Ok(())
    }

    /// Fills the buffer of a read again, from groups that are repaired as far as can be.
    pub(super) fn repair_read(&mut self, quanta: &Range<u64>, mut outcome: Outcome, done: Completion) {
        let Some(buffer) = outcome.buffer.as_mut() else { return done.complete(outcome) };
        let result = self.groups_of(quanta).try_for_each(|group| {
            let (stored, _) = self.repaired(group)?;
            let wanted = quanta.start.max(stored.quanta.start)..quanta.end.min(stored.quanta.end);
            let bytes = |range: &Range<u64>, first: u64| {
                let at = |position: u64| (position - first) as usize * self.edu_len;
                at(range.start)..at(range.end)
            };
            buffer[bytes(&wanted, quanta.start)].copy_from_slice(&stored.edus[bytes(&wanted, stored.quanta.start)]);
            let unread =
                wanted.clone().any(|position| stored.unread.contains((position - stored.quanta.start) as usize));
            if unread { Err(unreadable()) } else { Ok(()) }
        });
        // The error of the read says more than that it could not be repaired.
        if result.is_ok() || outcome.result.is_ok() {
            outcome.result = result;
        }
        done.complete(outcome);
    }

    /// Repairs a group, and encodes stale parity again when all data EDUs are intact.
    pub(super) fn scrub(&mut self, group: u64) -> Result<GroupState, StoreError> {
        let (stored, state) = self.repaired(group)?;
        let data = Part { position: stored.quanta.start, edus: &stored.edus[..], unread: stored.unread };
        let position = self.parity_position(group);
        let parity = Part { position, edus: &stored.parity[..], unread: stored.parity_unread };
        if matches!(state, GroupState::Lost(_)) || self.parity.agrees(data, parity) {
            return Ok(state);
        }
        let mut encoded = vec![0; stored.parity.len()];
        self.parity.encode(&stored.edus, position, &mut encoded);
        self.write(self.parity_lba(group), &encoded, false)?;
        Ok(if state == GroupState::Whole { GroupState::Encoded } else { state })
    }

    /// Reads a group, and repairs it where that is needed and can be done, in memory and on the unit.
    fn repaired(&mut self, group: u64) -> Result<(Stored, GroupState), StoreError> {
        let mut stored = self.read_group(group)?;
        let raw = stored.edus.clone();
        let data = Part { position: stored.quanta.start, edus: &mut stored.edus[..], unread: stored.unread };
        let position = self.parity_position(group);
        let parity = Part { position, edus: &stored.parity[..], unread: stored.parity_unread };
        let repaired = match self.parity.repair(data, parity) {
            Ok(repaired) if repaired.edus.count() == 0 => return Ok((stored, GroupState::Whole)),
            Ok(repaired) => repaired,
            Err(error) => {
                tracing::warn!(group, %error, "a parity group cannot be repaired");
                stored.lost = error.damaged();
                return Ok((stored, GroupState::Lost(error.damaged().count() as u64)));
            }
        };
        let edu = |index: usize| index * self.edu_len..(index + 1) * self.edu_len;
        let first = stored.quanta.start;
        let positions = || repaired.edus.iter().map(|index| (index, first + index as u64));
        let vouched = |(index, position)| {
            self.seals.as_ref().is_some_and(|seals| seals.vouches(position, &stored.edus[edu(index)]))
        };
        let count = repaired.edus.count() as u64;
        if !repaired.confirmed && !positions().all(vouched) {
            tracing::warn!(group, damaged = count, "the parity of a group is stale, and its damaged quanta are lost");
            (stored.edus, stored.lost) = (raw, repaired.edus);
            return Ok((stored, GroupState::Lost(count)));
        }
        for (index, position) in positions() {
            if !self.read_only {
                self.write(self.native.lba(position), &stored.edus[edu(index)], false)?;
            }
            tracing::warn!(position, "a damaged quantum was repaired");
        }
        if let Some(seals) = &self.seals {
            seals.repaired(count);
        }
        stored.unread = Members::default();
        Ok((stored, GroupState::Repaired(count)))
    }

    fn read_group(&self, group: u64) -> Result<Stored, StoreError> {
        let quanta = self.quanta_of(group);
        let (edus, unread) = self.read(self.native.lba(quanta.start), quanta.end - quanta.start)?;
        let (parity, parity_unread) = self.read(self.parity_lba(group), self.parity.group().parity.into())?;
        Ok(Stored { quanta, edus, unread, parity, parity_unread, lost: Members::default() })
    }

    /// Reads blocks: all at once, or each on its own when that fails. A unit that serves nothing now is an error, and
    /// none of its blocks is unread.
    fn read(&self, lba: u64, blocks: u64) -> Result<(Vec<u8>, Members), StoreError> {
        let len = blocks as usize * self.edu_len;
        if let Ok(bytes) = self.unit.read(lba * self.edu_len as u64, len) {
            return Ok((bytes.to_vec(), Members::default()));
        }
        let (mut bytes, mut unread) = (vec![0; len], Members::default());
        for (index, edu) in bytes.chunks_exact_mut(self.edu_len).enumerate() {
            match self.unit.read((lba + index as u64) * self.edu_len as u64, self.edu_len) {
                Ok(read) => edu.copy_from_slice(&read),
                Err(error) if error.concerns_all_bytes() => return Err(error),
                Err(_) => unread.insert(index),
            }
        }
        Ok((bytes, unread))
    }

    fn write(&self, lba: u64, edus: &[u8], fua: bool) -> Result<(), StoreError> {
        let mut from: Buffer = self.unit.take(edus.len())?;
        from.copy_from_slice(edus);
        execute(&*self.unit.store, Op::Write { offset: lba * self.edu_len as u64, from, fua }).result
    }

    fn zero(&self, blocks: &Range<u64>, fua: bool) -> Result<(), StoreError> {
        let edu_len = self.edu_len as u64;
        let (offset, len) = (blocks.start * edu_len, (blocks.end - blocks.start) * edu_len);
        execute(&*self.unit.store, Op::WriteZeroes { offset, len, may_unmap: true, fua }).result
    }

    fn groups_of(&self, quanta: &Range<u64>) -> Range<u64> {
        let data = u64::from(self.parity.group().data);
        quanta.start / data..quanta.end.div_ceil(data)
    }

    fn quanta_of(&self, group: u64) -> Range<u64> {
        let data = u64::from(self.parity.group().data);
        group * data..self.native.quanta().min((group + 1) * data)
    }

    /// The position of the first parity EDU of a group.
    fn parity_position(&self, group: u64) -> u64 {
        self.parity_lba(group) - self.native.lba(0)
    }

    fn parity_lba(&self, group: u64) -> u64 {
        self.native.parity_lba(group).expect("a group of the volume")
    }
}

fn unreadable() -> StoreError {
    std::io::Error::other("the unit cannot read a block, and its parity group does not make it again").into()
}

// A group with its parity is written and read by requests that a unit takes at once.
const _: () = assert!(128 * QuantumSize::B4096.edu_len() <= MAX_GROUP_BYTES);
