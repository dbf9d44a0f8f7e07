//! A filter that delays the completion of requests.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Capabilities, Completion, FileIo, Geometry, Op, Outcome, Space, Store};

/// Delays completions: behind a gate that a test opens, and by a fixed time.
///
/// The inner store executes a request at once; its outcome waits. Dropping the filter opens the gate.
pub struct Delay {
    inner: Arc<dyn Store>,
    gate: Arc<Gate>,
}

/// A completion that waits.
struct Ended {
    outcome: Outcome,
    done: Completion,
}

impl Ended {
    fn release(self) {
        self.done.complete(self.outcome);
    }
}

struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    /// The channel to the thread that waits for the fixed time.
    timer: Option<Sender<(Instant, Ended)>>,
    time: Duration,
}

#[derive(Default)]
struct State {
    closed: bool,
    held: VecDeque<Ended>,
}

impl Delay {
    /// A gate in front of `inner`, which is open until [`hold`](Self::hold).
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, gate: Arc::new(Gate::new(None, Duration::ZERO)) }
    }

    /// Like [`new`](Self::new), with each completion delayed by `time` on a thread of its own.
    ///
    /// # Errors
    ///
    /// When the system refuses the thread.
    pub fn with_time(inner: Arc<dyn Store>, time: Duration) -> io::Result<Self> {
        let (tx, rx) = channel();
        thread::Builder::new().name("store-delay".to_owned()).spawn(move || run_timer(&rx))?;
        Ok(Self { inner, gate: Arc::new(Gate::new(Some(tx), time)) })
    }

    /// Closes the gate: completions wait from now on.
    pub fn hold(&self) {
        self.gate.lock().closed = true;
    }

    /// Opens the gate, and releases all completions that wait.
    pub fn release(&self) {
        let held = {
            let mut state = self.gate.lock();
            state.closed = false;
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(Ended::release);
    }

    /// Releases the completion that has waited longest, without opening the gate. `false` when none waits.
    pub fn release_one(&self) -> bool {
        let oldest = self.gate.lock().held.pop_front();
        oldest.map(Ended::release).is_some()
    }

    /// Number of completions that wait at the gate.
    pub fn held(&self) -> usize {
        self.gate.lock().held.len()
    }

    /// Blocks the caller until at least `count` completions wait at the gate.
    pub fn wait_until_held(&self, count: usize) {
        let waiting = self.gate.changed.wait_while(self.gate.lock(), |state| state.held.len() < count);
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.release();
    }
}

impl Gate {
    fn new(timer: Option<Sender<(Instant, Ended)>>, time: Duration) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), timer, time }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrive(&self, ended: Ended) {
        let mut state = self.lock();
        if state.closed {
            state.held.push_back(ended);
            drop(state);
            self.changed.notify_all();
            return;
        }
        drop(state);
        match &self.timer {
            // The thread lives as long as this sender.
            Some(timer) => drop(timer.send((Instant::now() + self.time, ended))),
            None => ended.release(),
        }
    }
}

/// Releases completions in order of arrival, because the delay is the same for all.
fn run_timer(ended: &Receiver<(Instant, Ended)>) {
    for (due, ended) in ended {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        ended.release();
    }
}

impl Store for Delay {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn space(&self) -> std::io::Result<Option<Space>> {
        self.inner.space()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let gate = Arc::clone(&self.gate);
        let arrive = move |outcome| gate.arrive(Ended { outcome, done });
        self.inner.submit(op, io, Completion::call(arrive));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InlineIo, MemoryStore};

    fn memory() -> Arc<dyn Store> {
        Arc::new(MemoryStore::new(4096).unwrap())
    }

    fn submit(store: &Delay, tx: &Sender<i32>, number: i32) {
        let tx = tx.clone();
        store.submit(Op::Flush, &InlineIo, Completion::call(move |_| tx.send(number).unwrap()));
    }

    #[test]
    fn the_gate_holds_and_lets_go_in_order() {
        let store = Delay::new(memory());
        let (tx, rx) = channel();
        submit(&store, &tx, 0);
        assert_eq!(rx.try_recv(), Ok(0));
        store.hold();
        (1..=3).for_each(|number| submit(&store, &tx, number));
        assert!(rx.try_recv().is_err());
        store.wait_until_held(3);
        assert!(store.release_one());
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), [1]);
        store.release();
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), [2, 3]);
        assert!(!store.release_one());
        submit(&store, &tx, 4);
        assert_eq!(rx.try_recv(), Ok(4));
        store.hold();
        submit(&store, &tx, 5);
        drop(store);
        assert_eq!(rx.try_recv(), Ok(5), "every request ends");
    }

    #[test]
    fn a_fixed_time_passes_before_the_end() {
        let time = Duration::from_millis(5);
        let store = Delay::with_time(memory(), time).unwrap();
        let (tx, rx) = channel();
        let begin = Instant::now();
        submit(&store, &tx, 1);
        submit(&store, &tx, 2);
        drop(store);
        assert_eq!((rx.recv(), rx.recv()), (Ok(1), Ok(2)));
        assert!(begin.elapsed() >= time);
    }
}
