//! Requests in flight.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use lunette_store::{Completion, CompletionSink, Op, Outcome, Store};
use lunette_tuning::InFlight;

use super::io::CopyIo;
use crate::commands::depth::Depth;

/// Requests that move data, of which each kind has a latency of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Moving {
    /// From the source.
    Read,
    /// To the destination.
    Write,
    /// From the destination, to be compared.
    ReadBack,
}

/// The number of kinds in [`Moving`].
const KINDS: usize = 3;

/// The purpose of a request.
pub(crate) trait Purpose {
    /// How the request moves data. `None`: it moves none, so its latency says nothing about the path.
    fn moving(&self) -> Option<Moving>;
}

/// A bounded number of requests to stores, each with its purpose.
pub(crate) struct Flight<T> {
    io: CopyIo,
    notes: Vec<Option<Note<T>>>,
    free: Vec<usize>,
    landed: Receiver<(u64, Outcome)>,
    sink: Arc<Landing>,
    depth: InFlight<KINDS>,
    began: Instant,
}

struct Note<T> {
    purpose: T,
    since: Instant,
}

struct Landing(Sender<(u64, Outcome)>);

impl CompletionSink for Landing {
    fn complete(&self, tag: u64, outcome: Outcome) {
        // The receiver is gone after a failure, and the outcome with it.
        let _ = self.0.send((tag, outcome));
    }
}

impl<T: Purpose> Flight<T> {
    /// A flight with room for `depth` requests of up to `request_len` bytes.
    pub(crate) fn new(depth: Depth, request_len: usize, io: CopyIo) -> Self {
        let (sender, landed) = mpsc::channel();
        let most = depth.most();
        Self {
            io,
            notes: std::iter::repeat_with(|| None).take(most).collect(),
            free: (0..most).collect(),
            landed,
            sink: Arc::new(Landing(sender)),
            depth: depth.rule(request_len),
            began: Instant::now(),
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.in_flight() < self.depth.limit()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight() == 0
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.notes.len() - self.free.len()
    }

    /// Starts `op`. The flight must have room, or a request must have landed right before.
    pub(crate) fn start(&mut self, store: &dyn Store, op: Op, purpose: T) {
        let tag = self.free.pop().expect("the flight has room for another request");
        self.notes[tag] = Some(Note { purpose, since: Instant::now() });
        let sink: Arc<dyn CompletionSink> = Arc::<Landing>::clone(&self.sink);
        store.submit(op, &self.io, Completion::new(sink, tag as u64));
    }

    /// Waits for the next outcome. At least one request must be in flight.
    pub(crate) fn land(&mut self) -> (T, Outcome) {
        let (tag, outcome) = self.landed.recv().expect("the sink lives as long as the flight");
        let tag = tag as usize;
        let note = self.notes[tag].take().expect("a store ends each request once");
        self.free.push(tag);
        if let Some(moving) = note.purpose.moving() {
            let now = Instant::now();
            self.depth.ended(moving as usize, now.duration_since(self.began), now.duration_since(note.since));
        }
        (note.purpose, outcome)
    }
}
