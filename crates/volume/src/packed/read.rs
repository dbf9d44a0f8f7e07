//! Reads of a packed volume: from the places of quanta, and from the journal.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lunette_buffer::{Buffer, MAX_BUFFER_LEN, PAGE_LEN};
use lunette_quanta::packed::Journal;
use lunette_quanta::{OpenError, Reason, SLOT_LEN};
use lunette_store::{Completion, CompletionSink, FileIo, Op, Outcome, StoreError};

use crate::owners::Owners;
use crate::packed::Packed;
use crate::ranges::ClaimId;
use crate::request::Request;
use crate::unit::{Unit, filled};

/// Adjacent quanta that are read from one part of the unit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Ciphertexts and slots are in their places.
    Places(Range<u64>),
    /// The ciphertexts are in the journal, at this offset of it; the slots are known.
    Record { quanta: Range<u64>, data_offset: u64, slots: Vec<u8> },
    /// Quanta that were unmapped since the last checkpoint.
    Holes(Range<u64>),
}

impl Source {
    pub(crate) fn quanta(&self) -> Range<u64> {
        match self {
            Self::Places(quanta) | Self::Holes(quanta) | Self::Record { quanta, .. } => quanta.clone(),
        }
    }
}

/// Where quanta are to be read from, in order.
pub(crate) fn sources(journal: &Journal, quantum_len: u64, range: Range<u64>) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut next = range.start;
    for (position, live) in journal.live(range.clone()) {
        if next < position {
            sources.push(Source::Places(next..position));
        }
        next = position + 1;
        match (live.data_offset, sources.last_mut()) {
            (None, Some(Source::Holes(quanta))) if quanta.end == position => quanta.end = next,
            (None, _) => sources.push(Source::Holes(position..next)),
            (Some(at), Some(Source::Record { quanta, data_offset, slots }))
                if quanta.end == position && *data_offset + (quanta.end - quanta.start) * quantum_len == at =>
            {
                quanta.end = next;
                slots.extend(live.slot);
            }
            (Some(at), _) => {
                sources.push(Source::Record { quanta: position..next, data_offset: at, slots: live.slot.to_vec() });
            }
        }
    }
    if next < range.end {
        sources.push(Source::Places(next..range.end));
    }
    sources
}

/// Which attempt at a piece a read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Try {
    /// The first one, during which others may write.
    First,
    /// The second one, which has the quanta to itself, by this claim or by that of its request.
    Last(Option<ClaimId>),
}

/// A piece of a read.
struct Piece {
    packed: Arc<Packed>,
    request: Arc<Request>,
    attempt: Try,
    quanta: Range<u64>,
    generation: usize,
    sources: Vec<Source>,
    /// Reads of the unit that have not ended.
    left: AtomicUsize,
    read: Mutex<Read>,
}

/// The read bytes: for each source, its ciphertexts and its slots.
struct Read {
    buffers: Vec<[Option<Buffer>; 2]>,
    failed: Option<StoreError>,
}

impl Packed {
    /// Makes the reads of the unit for one piece. False, and nothing was done, when there are no buffers.
    pub(crate) fn read_piece(
        self: &Arc<Self>,
        request: &Arc<Request>,
        quanta: Range<u64>,
        attempt: Try,
        io: &dyn FileIo,
    ) -> bool {
        let (generation, sources) = {
            let mut state = self.state();
            (state.readers.enter(), sources(&state.journal, self.owners.size.bytes() as u64, quanta.clone()))
        };
        // Asked for at once, so that buffers for a part of it are not taken and given back again and again.
        let needed = sources.iter().map(|source| self.buffer_bytes(source)).sum::<usize>().min(MAX_BUFFER_LEN);
        let Some(ops) = self.owners.buffers.room(needed).and_then(|all| {
            drop(all);
            self.reads(&sources)
        }) else {
            self.leave(generation);
            return false;
        };
        let piece = Arc::new(Piece {
            packed: Arc::clone(self),
            request: Arc::clone(request),
            attempt,
            quanta,
            generation,
            // One more, so that the end comes when all are submitted.
            left: AtomicUsize::new(ops.len() + 1),
            read: Mutex::new(Read { buffers: sources.iter().map(|_| [None, None]).collect(), failed: None }),
            sources,
        });
        for (tag, op) in ops {
            let sink: Arc<dyn CompletionSink> = Arc::<Piece>::clone(&piece);
            self.owners.inner.submit(op, io, Completion::new(sink, tag));
        }
        piece.one_ended();
        true
    }

    /// The reads of the unit, with tags: twice the number of the source, and one more for slots.
    fn reads(&self, sources: &[Source]) -> Option<Vec<(u64, Op)>> {
        let len = self.owners.size.bytes();
        let bytes = |quanta: &Range<u64>| (quanta.end - quanta.start) as usize * len;
        let mut ops = Vec::with_capacity(2 * sources.len());
        for (source, number) in sources.iter().zip(0..) {
            match source {
                Source::Holes(_) => {}
                Source::Record { quanta, data_offset, .. } => {
                    let into = self.owners.buffers.take(bytes(quanta))?;
                    ops.push((2 * number, Op::Read { offset: self.layout.journal_offset() + data_offset, into }));
                }
                Source::Places(quanta) => {
                    let (slots, slots_len) = self.slot_blocks(quanta);
                    let into = self.owners.buffers.take(bytes(quanta))?;
                    ops.push((2 * number, Op::Read { offset: self.layout.data(quanta.start), into }));
                    let into = self.owners.buffers.take(slots_len)?;
                    ops.push((2 * number + 1, Op::Read { offset: slots, into }));
                }
            }
        }
        Some(ops)
    }

    /// Bytes of the pool that the reads of a source count for.
    fn buffer_bytes(&self, source: &Source) -> usize {
        let pooled = |len: usize| len.next_power_of_two().max(PAGE_LEN);
        let quanta = source.quanta();
        let data = pooled((quanta.end - quanta.start) as usize * self.owners.size.bytes());
        match source {
            Source::Holes(_) => 0,
            Source::Record { .. } => data,
            Source::Places(_) => data + pooled(self.slot_blocks(&quanta).1),
        }
    }

    /// Offset and length of the blocks that hold the slots of some quanta.
    pub(crate) fn slot_blocks(&self, quanta: &Range<u64>) -> (u64, usize) {
        let from = self.layout.slot_block(quanta.start);
        let until = self.layout.slot_block(quanta.end - 1) + self.block_len();
        (from, (until - from) as usize)
    }

    /// The slots of quanta that do not change meanwhile, for a caller that waits for the unit.
    pub(crate) fn slots(&self, unit: &Unit, quanta: &Range<u64>) -> Result<Vec<[u8; SLOT_LEN]>, StoreError> {
        let live: Vec<_> = self.state().journal.live(quanta.clone()).map(|(at, live)| (at, live.slot)).collect();
        let (from, len) = self.slot_blocks(quanta);
        let blocks = unit.read(from, len)?;
        let places = &blocks[(self.layout.slot(quanta.start) - from) as usize..];
        let (places, _) = places.as_chunks::<SLOT_LEN>();
        let mut slots = places[..(quanta.end - quanta.start) as usize].to_vec();
        for (position, slot) in live {
            slots[(position - quanta.start) as usize] = slot;
        }
        Ok(slots)
    }

    fn leave(&self, generation: usize) {
        if self.state().readers.leave(generation) {
            self.readers_left.notify_all();
        }
    }

    /// Opens everything that was read.
    fn open(&self, piece: &Piece, buffers: &[[Option<Buffer>; 2]]) -> Result<(), OpenError> {
        let seals = &self.owners.seals;
        let codec = seals.codec();
        for (source, [data, slots]) in piece.sources.iter().zip(buffers) {
            let quanta = source.quanta();
            let data: &[u8] = data.as_deref().unwrap_or_default();
            let slots = match (source, slots) {
                (Source::Record { slots, .. }, _) => &slots[..],
                (Source::Places(quanta), Some(blocks)) => {
                    let within = self.layout.slot(quanta.start) - self.layout.slot_block(quanta.start);
                    &blocks[within as usize..][..(quanta.end - quanta.start) as usize * SLOT_LEN]
                }
                _ => &[],
            };
            piece.request.with_bytes(&quanta, |plain| {
                let plain = plain.expect("a read has a buffer");
                match source {
                    Source::Holes(_) => {
                        quanta.clone().zip(plain.chunks_exact_mut(self.owners.size.bytes())).try_for_each(
                            // A quantum of zeroes, which the codec accepts or refuses.
                            |(position, plain)| {
                                plain.fill(0);
                                codec.open_in_place(position, plain, &[0; SLOT_LEN])
                            },
                        )
                    }
                    _ => codec.open_split(quanta.start, data, slots, plain),
                }
            })?;
            match source {
                Source::Holes(quanta) => {
                    seals.admit(quanta.start, quanta.clone().map(|_| &[0; SLOT_LEN]))?;
                }
                _ => seals.admit(quanta.start, slots.as_chunks().0.iter())?,
            }
            let slots = slots.chunks_exact(SLOT_LEN);
            seals.saw(slots.clone());
            piece.request.opened(slots);
        }
        seals.opened(piece.quanta.end - piece.quanta.start);
        Ok(())
    }
}

impl Piece {
    fn one_ended(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let packed = &*self.packed;
        let Owners { seals, claims, .. } = &packed.owners;
        packed.leave(self.generation);
        let (buffers, failed) = {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut read.buffers), read.failed.take())
        };
        let opened = failed.map_or_else(|| Ok(packed.open(self, &buffers)), Err);
        drop(buffers);
        if let (Ok(Err(error)), Try::First) = (&opened, self.attempt)
            && error.reason == Reason::RolledBack
        {
            // A write may have been acknowledged since its quanta were looked for.
            return claims.try_again(&self.request, &self.quanta);
        }
        if let (Ok(Err(error)), Try::First) = (&opened, self.attempt)
            && packed.owners.waits_for_key(&self.request, &self.quanta, *error)
        {
            return;
        }
        let result = opened.and_then(|opened| opened.map_err(|error| seals.refused(error)));
        self.request.ended(self.quanta.end - self.quanta.start, result);
        if let Try::Last(Some(claim)) = self.attempt {
            claims.release(claim);
        }
    }
}

impl CompletionSink for Piece {
    fn complete(&self, tag: u64, outcome: Outcome) {
        {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            match filled(outcome) {
                Ok(buffer) => read.buffers[tag as usize / 2][tag as usize % 2] = Some(buffer),
                Err(error) => read.failed = read.failed.take().or(Some(error)),
            }
        }
        self.one_ended();
    }
}
