//! Requests in flight.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use lunette_store::{Completion, CompletionSink, Op, Outcome, Store};

use crate::io::PoolIo;

/// A bounded number of requests to stores, each with a note of its purpose.
pub(crate) struct Flight<T> {
    io: PoolIo,
    notes: Vec<Option<T>>,
    free: Vec<usize>,
    landed: Receiver<(u64, Outcome)>,
    sink: Arc<Landing>,
}

struct Landing(Sender<(u64, Outcome)>);

impl CompletionSink for Landing {
    fn complete(&self, tag: u64, outcome: Outcome) {
        // The receiver is gone after a failure, and the outcome with it.
        let _ = self.0.send((tag, outcome));
    }
}

impl<T> Flight<T> {
    /// A flight with room for `depth` requests.
    pub(crate) fn new(depth: usize, io: PoolIo) -> Self {
        let (sender, landed) = mpsc::channel();
        let notes = std::iter::repeat_with(|| None).take(depth).collect();
        Self { io, notes, free: (0..depth).collect(), landed, sink: Arc::new(Landing(sender)) }
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight() == 0
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.notes.len() - self.free.len()
    }

    /// Starts `op`. The flight must have room.
    pub(crate) fn start(&mut self, store: &dyn Store, op: Op, note: T) {
        let tag = self.free.pop().expect("the flight has room for another request");
        self.notes[tag] = Some(note);
        let sink: Arc<dyn CompletionSink> = Arc::<Landing>::clone(&self.sink);
        store.submit(op, &self.io, Completion::new(sink, tag as u64));
    }

    /// Waits for the next outcome. At least one request must be in flight.
    pub(crate) fn land(&mut self) -> (T, Outcome) {
        let (tag, outcome) = self.landed.recv().expect("the sink lives as long as the flight");
        let tag = tag as usize;
        let note = self.notes[tag].take().expect("a store ends each request once");
        self.free.push(tag);
        (note, outcome)
    }
}
