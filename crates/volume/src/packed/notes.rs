//! Notes of what was flushed: a tail that is written after a flush, so that a record that rots is missed.
//!
//! A note is written to the copy of the tail that the next checkpoint overwrites, and need not be stable before the
//! flush is acknowledged: one that a power cut loses leaves a weaker note. One is under way at a time; flushes that end
//! meanwhile share the next one. None is while a checkpoint writes its tail.

use std::sync::{Arc, PoisonError};

use lunette_store::{Completion, InlineIo, Op, Outcome};

use crate::mailbox::Job;
use crate::packed::{Packed, State};

/// How notes and the tails of checkpoints keep out of each other's way.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The highest number in a tail that was written.
    noted: u64,
    under_way: bool,
    /// Checkpoints that write their tails or are about to be made.
    barred: usize,
}

impl Packed {
    /// A flush begins. Gives what it makes stable, for [`flushed`](Self::flushed).
    pub(crate) fn flush_begins(&self) -> u64 {
        self.state().journal.written_through()
    }

    /// A flush has succeeded.
    pub(crate) fn flushed(&self, through: u64) {
        if self.state().journal.flushed(through) {
            self.owners.mailbox.push(Job::Note);
        }
    }

    /// Writes a note of what was flushed, unless it is written already. Where there is no buffer, the next flush tries
    /// again.
    pub(crate) fn note(self: &Arc<Self>) {
        let tail = {
            let mut state = self.state();
            let flushed = state.journal.flushed_through();
            if state.closed.is_some() || state.notes.under_way || state.notes.barred > 0 || state.notes.noted >= flushed
            {
                return;
            }
            (state.notes.under_way, state.notes.noted) = (true, flushed);
            state.journal.note()
        };
        let Some(mut from) = self.owners.buffers.take_for_note(self.block_len() as usize) else {
            return self.note_ended();
        };
        let (head, rest) = from.split_at_mut(tail.bytes.len());
        head.copy_from_slice(&tail.bytes);
        rest.fill(0);
        let packed = Arc::clone(self);
        let ended = move |outcome: Outcome| {
            if let Err(error) = outcome.result {
                // The tail that counts is in the other copy, so nothing is wrong but that this one is not known.
                tracing::debug!(%error, "what was flushed could not be noted in the journal");
            }
            packed.note_ended();
            packed.owners.mailbox.push(Job::Note);
        };
        let op = Op::Write { offset: self.layout.journal_offset() + tail.offset, from, fua: false };
        self.owners.inner.submit(op, &InlineIo, Completion::call(ended));
    }

    fn note_ended(&self) {
        self.state().notes.under_way = false;
        self.note_left.notify_all();
    }

    /// Waits for the note that is being written.
    pub(crate) fn wait_for_note(&self) {
        let writing = |state: &mut State| state.notes.under_way;
        drop(self.note_left.wait_while(self.state(), writing).unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets no note be written, until [`admit_notes`](Self::admit_notes).
    pub(crate) fn bar_notes(&self) {
        self.state().notes.barred += 1;
        self.wait_for_note();
    }

    /// The tail of a checkpoint was written. What was flushed before it needs no note any more.
    pub(crate) fn admit_notes(&self) {
        let has_more = {
            let mut state = self.state();
            state.notes.barred -= 1;
            state.notes.noted = state.notes.noted.max(state.journal.moved_through());
            state.notes.noted < state.journal.flushed_through()
        };
        if has_more {
            self.owners.mailbox.push(Job::Note);
        }
    }
}
