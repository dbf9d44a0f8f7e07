//! Reads and writes of native volumes, whose quanta lie side by side with their slots.

use std::ops::Range;
use std::sync::Arc;

use lunette_buffer::Buffer;
use lunette_quanta::{Codec, Native, OpenError, Reason, SLOT_LEN};
use lunette_store::{Completion, CompletionSink, FileIo, Op, Outcome, StoreError, execute};

use crate::request::{Request, What};
use crate::shared::{Place, Shared};
use crate::together::waits_for_others;
use crate::unit::{Unit, filled};

impl Shared {
    /// Makes the request of the unit for one piece. False, and nothing was done, when there is no buffer.
    pub(crate) fn native_piece(
        &self,
        native: Native,
        request: &Arc<Request>,
        piece: Range<u64>,
        io: &dyn FileIo,
    ) -> bool {
        let (offset, len) = self.native_bytes(native, &piece);
        let op = match request.what {
            What::Read => {
                // Memory when the data comes: that of an earlier piece, which is still in the cache.
                let Some(into) = self.owners.buffers.room(len as usize) else { return false };
                Op::Read { offset, into }
            }
            What::Write { fua } => {
                let Some(mut from) = self.owners.buffers.take(len as usize) else { return false };
                if !self.owners.inner.needs_file_io()
                    && waits_for_others(request, &piece)
                    && let Some(plain) = request.take_buffer()
                {
                    self.seal_with_others(request, plain, from);
                    return true;
                }
                let edu_len = self.owners.size.edu_len();
                let mut seal = |codec: &Codec, sealing, first: usize, plain: &[u8]| {
                    let quanta = plain.len() / self.owners.size.bytes();
                    codec.seal(sealing, plain, &mut from[first * edu_len..][..quanta * edu_len]);
                };
                let sealed =
                    request.with_bytes(&piece, |plain| self.owners.seals.seal(&piece, plain.as_deref(), &mut seal));
                if let Err(error) = sealed {
                    request.ended(piece.end - piece.start, Err(error));
                    return true;
                }
                Op::Write { offset, from, fua }
            }
            What::Holes { unmap: true, .. } => Op::Unmap { offset, len },
            What::Holes { may_unmap, fua, .. } => Op::WriteZeroes { offset, len, may_unmap, fua },
        };
        self.submit_native(request, piece.start, op, io);
        true
    }

    /// Writes the EDUs of a whole request.
    pub(crate) fn write_native(&self, request: &Arc<Request>, from: Buffer, io: &dyn FileIo) {
        let Place::Native(native) = &self.place else { return };
        let (offset, _) = self.native_bytes(*native, &request.range);
        self.submit_native(request, request.range.start, Op::Write { offset, from, fua: request.what.fua() }, io);
    }

    fn submit_native(&self, request: &Arc<Request>, first: u64, op: Op, io: &dyn FileIo) {
        let sink: Arc<dyn CompletionSink> = Arc::<Request>::clone(request);
        // The tag carries the piece: its first quantum, from which its length follows.
        self.owners.inner.submit(op, io, Completion::new(sink, first));
    }

    fn native_bytes(&self, native: Native, piece: &Range<u64>) -> (u64, u64) {
        let edu_len = self.owners.size.edu_len() as u64;
        (native.lba(piece.start) * edu_len, (piece.end - piece.start) * edu_len)
    }

    /// The unit has ended a piece.
    pub(crate) fn native_ended(&self, request: &Request, first: u64, outcome: Outcome) {
        let piece = first..request.range.end.min(first + self.piece_quanta(request));
        let quanta = piece.end - piece.start;
        if request.what != What::Read {
            return request.ended(quanta, self.native_written(&piece, outcome));
        }
        let edus = match filled(outcome) {
            Err(error) => return request.ended(quanta, Err(error)),
            Ok(edus) => edus,
        };
        if waits_for_others(request, &piece)
            && let Some(plain) = request.take_buffer()
        {
            return self.open_with_others(request.me(), plain, edus);
        }
        let result = self.open_native(request, &piece, &edus);
        self.native_read(request, &piece, edus, result);
    }

    /// The EDUs of a piece were opened, or could not be.
    pub(crate) fn native_read(
        &self,
        request: &Request,
        piece: &Range<u64>,
        edus: Buffer,
        result: Result<(), OpenError>,
    ) {
        match result {
            // A write that was under way may have torn it, or may have been acknowledged since.
            Err(error) if matches!(error.reason, Reason::Damaged | Reason::RolledBack) => {
                drop(edus);
                self.owners.claims.try_again(request, piece);
            }
            Err(error) if self.owners.waits_for_key(request, piece, error) => {}
            result => request.ended(piece.end - piece.start, result.map_err(|error| self.owners.seals.refused(error))),
        }
    }

    /// The slots of EDUs.
    fn slots_of<'a>(&self, edus: &'a [u8]) -> impl Iterator<Item = &'a [u8; SLOT_LEN]> + use<'a> {
        edus.chunks_exact(self.owners.size.edu_len())
            .map(|edu| edu.last_chunk().expect("an EDU is longer than its slot"))
    }

    /// A piece was written. With an anchor, which makes no holes, it is known which versions it has.
    fn native_written(&self, piece: &Range<u64>, outcome: Outcome) -> Result<(), StoreError> {
        if self.owners.seals.anchor().is_none() {
            return outcome.result;
        }
        let edus = filled(outcome)?;
        self.owners.seals.written(piece.clone().zip(self.slots_of(&edus)));
        Ok(())
    }

    /// Opens the EDUs of a piece.
    pub(crate) fn open_native(&self, request: &Request, piece: &Range<u64>, edus: &[u8]) -> Result<(), OpenError> {
        request.with_bytes(piece, |plain| {
            let plain = plain.expect("a read has a buffer");
            self.owners.seals.codec().open(piece.start, edus, plain)
        })?;
        self.opened_native(request, piece, edus)
    }

    /// Compares EDUs that were opened with the anchor, and counts them.
    pub(crate) fn opened_native(&self, request: &Request, piece: &Range<u64>, edus: &[u8]) -> Result<(), OpenError> {
        self.owners.seals.admit(piece.start, self.slots_of(edus))?;
        let slots = edus.chunks_exact(self.owners.size.edu_len()).map(|edu| &edu[self.owners.size.bytes()..]);
        self.owners.seals.saw(slots.clone());
        request.opened(slots);
        self.owners.seals.opened(piece.end - piece.start);
        Ok(())
    }

    /// The slots of quanta that do not change meanwhile, for a caller that waits for the unit.
    pub(crate) fn slots(&self, unit: &Unit, quanta: &Range<u64>) -> Result<Vec<[u8; SLOT_LEN]>, StoreError> {
        match &self.place {
            Place::Packed(packed) => packed.slots(unit, quanta),
            Place::Native(native) => {
                let (offset, len) = self.native_bytes(*native, quanta);
                let edus = unit.read(offset, len as usize)?;
                Ok(self.slots_of(&edus).copied().collect())
            }
        }
    }

    /// Reads a piece a second time, waiting for the unit. The caller has the range to itself.
    pub(crate) fn native_read_again(&self, request: &Arc<Request>, piece: Range<u64>) {
        let Place::Native(native) = &self.place else { return };
        let (offset, len) = self.native_bytes(*native, &piece);
        let into = loop {
            match self.owners.buffers.take(len as usize) {
                Some(into) => break into,
                None => self.owners.mailbox.wait_for_buffers(),
            }
        };
        let edus = filled(execute(&*self.owners.inner, Op::Read { offset, into }));
        let result = edus.and_then(|edus| {
            self.open_native(request, &piece, &edus).map_err(|error| self.owners.seals.refused(error))
        });
        request.ended(piece.end - piece.start, result);
    }
}
