//! Attempts at what may never end, such as the opening of a disk on a server that does not answer.
//!
//! Each attempt has a thread of its own, and hangs alone: it holds its thread and nothing else. The handles of an
//! [`Attempt`] own its result. What ends without a handle is dropped, and undoes itself by that.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// The attempts that run at once, without those that take longer than [`SLOW_AFTER`].
const AT_ONCE: usize = 16;

/// The time after which an attempt leaves its place to another one.
const SLOW_AFTER: Duration = Duration::from_millis(500);

/// The attempts without a handle that may go on. Each of them holds a thread.
const MAX_ABANDONED: usize = 64;

type Outcome<T> = Result<T, Failure>;
type Work<T> = Box<dyn FnOnce() -> Outcome<T> + Send>;

/// All attempts of one kind.
pub(crate) struct Attempts<T>(Arc<Shared<T>>);

impl<T> Clone for Attempts<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Attempts<T> {
    fn default() -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State::default()), changed: Condvar::new() }))
    }
}

/// One attempt. The last handle that goes gives it up.
pub(crate) struct Attempt<T: Send + 'static>(Arc<Handle<T>>);

impl<T: Send + 'static> Clone for Attempt<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Handle<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    id: u64,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    next_id: u64,
    waiting: VecDeque<Waiting<T>>,
    running: HashMap<u64, Running>,
    /// The results that nothing has taken yet.
    ended: HashMap<u64, Ended<T>>,
    /// The attempts that have ended with a handle.
    ends: u64,
    has_starter: bool,
}

struct Waiting<T> {
    id: u64,
    lane: Option<String>,
    work: Work<T>,
}

/// An attempt that runs, or whose unwanted result is being dropped: that keeps the lane, because it may be open there.
struct Running {
    lane: Option<String>,
    since: Instant,
    has_handle: bool,
}

struct Ended<T> {
    lane: Option<String>,
    outcome: Outcome<T>,
}

impl<T> Default for State<T> {
    fn default() -> Self {
        Self {
            next_id: 0,
            waiting: VecDeque::new(),
            running: HashMap::new(),
            ended: HashMap::new(),
            ends: 0,
            has_starter: false,
        }
    }
}

/// The next step of the thread that starts attempts.
enum Next<T> {
    Start(u64, Work<T>),
    /// Every place is taken until this moment, unless an attempt ends before.
    Full(Instant),
    /// All that wait do so for an attempt in their lane.
    Behind,
    Done,
}

impl<T: Send + 'static> Attempts<T> {
    /// Begins an attempt. Attempts in one lane are made one after the other, in the order in which they have begun.
    ///
    /// # Errors
    ///
    /// Too many attempts that were given up go on.
    pub(crate) fn begin(
        &self,
        lane: Option<String>,
        work: impl FnOnce() -> Outcome<T> + Send + 'static,
    ) -> Result<Attempt<T>, Failure> {
        let shared = &self.0;
        let mut state = shared.lock();
        if state.running.values().filter(|running| !running.has_handle).count() >= MAX_ABANDONED {
            return Err(Failure::disk(format!(
                "{MAX_ABANDONED} disks that are no longer asked for do not answer; mend what they lie on, or start the \
                 server again"
            )));
        }
        let id = state.next_id;
        state.next_id += 1;
        state.waiting.push_back(Waiting { id, lane, work: Box::new(work) });
        if !state.has_starter {
            let shared = Arc::clone(shared);
            let starter = thread::Builder::new().name("lunette-attempts".into()).spawn(move || shared.start_all());
            if let Err(error) = starter {
                state.waiting.pop_back();
                return Err(Failure::no_thread(error));
            }
            state.has_starter = true;
        }
        drop(state);
        shared.changed.notify_all();
        Ok(Attempt(Arc::new(Handle { shared: Arc::clone(shared), id })))
    }

    /// The number of attempts that have ended.
    #[cfg(test)]
    pub(crate) fn ends(&self) -> u64 {
        self.0.lock().ends
    }

    /// Waits until more attempts have ended than `known`, at most until `until`. Gives their number.
    pub(crate) fn wait_for_more(&self, known: u64, until: Instant) -> u64 {
        self.0.wait(Some(until), |state| state.ends != known).ends
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `is_met`, at most until `until`.
    fn wait(&self, until: Option<Instant>, is_met: impl Fn(&State<T>) -> bool) -> MutexGuard<'_, State<T>> {
        let mut state = self.lock();
        while !is_met(&state) {
            let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
            match rest {
                Some(Duration::ZERO) => break,
                rest => state = self.wait_once(state, rest),
            }
        }
        state
    }

    fn wait_once<'a>(&self, state: MutexGuard<'a, State<T>>, limit: Option<Duration>) -> MutexGuard<'a, State<T>> {
        match limit {
            Some(limit) => self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl<T: Send + 'static> Shared<T> {
    /// Starts attempts until none waits.
    fn start_all(self: Arc<Self>) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            match state.next(now) {
                Next::Start(id, work) => {
                    drop(state);
                    self.start(id, work);
                    state = self.lock();
                }
                Next::Full(until) => state = self.wait_once(state, Some(until.saturating_duration_since(now))),
                Next::Behind => state = self.wait_once(state, None),
                Next::Done => {
                    state.has_starter = false;
                    return;
                }
            }
        }
    }

    fn start(self: &Arc<Self>, id: u64, work: Work<T>) {
        let shared = Arc::clone(self);
        let run = move || {
            let broken = |_| Err(Failure::other("the attempt has met a mistake in the server; the log has it"));
            let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(broken);
            shared.end(id, outcome);
        };
        if let Err(error) = thread::Builder::new().name("lunette-attempt".into()).spawn(run) {
            self.end(id, Err(Failure::no_thread(error)));
        }
    }

    /// Ends an attempt. Its result is kept for its handles, or dropped without them; only then its lane is free.
    fn end(&self, id: u64, outcome: Outcome<T>) {
        let mut state = self.lock();
        if state.running.get(&id).is_some_and(|running| running.has_handle) {
            let lane = state.running.remove(&id).and_then(|running| running.lane);
            state.ended.insert(id, Ended { lane, outcome });
            state.ends += 1;
        } else {
            drop(state);
            // Without the lock: it may take long.
            drop(outcome);
            state = self.lock();
            state.running.remove(&id);
        }
        drop(state);
        self.changed.notify_all();
    }
}

impl<T> State<T> {
    fn next(&mut self, now: Instant) -> Next<T> {
        if self.waiting.is_empty() {
            return Next::Done;
        }
        let busy: HashSet<&str> = self.running.values().filter_map(|running| running.lane.as_deref()).collect();
        let is_free = |waiting: &Waiting<T>| waiting.lane.as_deref().is_none_or(|lane| !busy.contains(lane));
        let Some(index) = self.waiting.iter().position(is_free) else { return Next::Behind };
        let slow_at = || self.running.values().map(|running| running.since + SLOW_AFTER).filter(|slow| *slow > now);
        if let Some(until) = slow_at().min().filter(|_| slow_at().count() >= AT_ONCE) {
            return Next::Full(until);
        }
        let Some(Waiting { id, lane, work }) = self.waiting.remove(index) else { return Next::Done };
        self.running.insert(id, Running { lane, since: now, has_handle: true });
        Next::Start(id, work)
    }

    fn has_ended(&self, id: u64) -> bool {
        !self.running.contains_key(&id) && !self.waits(id)
    }

    fn waits(&self, id: u64) -> bool {
        self.waiting.iter().any(|waiting| waiting.id == id)
    }
}

impl<T: Send + 'static> Attempt<T> {
    /// Waits for the end, at most until `until`. Whether it has ended.
    pub(crate) fn wait(&self, until: Option<Instant>) -> bool {
        let Handle { shared, id } = &*self.0;
        shared.wait(until, |state| state.has_ended(*id)).has_ended(*id)
    }

    /// Whether it has not ended yet.
    pub(crate) fn runs(&self) -> bool {
        !self.0.shared.lock().has_ended(self.0.id)
    }

    /// Whether it has not ended yet, or nothing has taken its result.
    pub(crate) fn is_pending(&self) -> bool {
        let state = self.0.shared.lock();
        !state.has_ended(self.0.id) || state.ended.contains_key(&self.0.id)
    }

    /// Whether it has begun. While it has not, there is nothing to wait for or to close.
    pub(crate) fn has_begun(&self) -> bool {
        !self.0.shared.lock().waits(self.0.id)
    }

    /// The result, if it has ended and nothing has taken it before.
    pub(crate) fn take(&self) -> Option<Outcome<T>> {
        self.0.shared.lock().ended.remove(&self.0.id).map(|ended| ended.outcome)
    }
}

impl<T: Send + 'static> Drop for Handle<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if let Some(running) = state.running.get_mut(&self.id) {
            running.has_handle = false;
        }
        let begun = state.waiting.iter().position(|waiting| waiting.id == self.id);
        let unbegun = begun.and_then(|index| state.waiting.remove(index));
        let unwanted = state.ended.remove(&self.id).map(|Ended { lane, outcome }| {
            state.running.insert(self.id, Running { lane, since: Instant::now(), has_handle: false });
            outcome
        });
        drop(state);
        self.shared.changed.notify_all();
        drop(unbegun);
        if let Some(unwanted) = unwanted {
            let (shared, id) = (Arc::clone(&self.shared), self.id);
            // Closing a disk may take as long as opening it.
            let close = thread::Builder::new().name("lunette-close".into()).spawn(move || shared.end(id, unwanted));
            if close.is_err() {
                // Without a thread it was closed here.
                self.shared.lock().running.remove(&self.id);
                self.shared.changed.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests;
