//! The stores of the simulated target: they take their time, and the oracle watches what is asked of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_store::{Capabilities, Completion, FileIo, Geometry, Op, Outcome, Store, StoreError};

use crate::env::{Env, Happening};
use crate::oracle::Oracle;
use crate::scenario::{Load, UNITS};

/// A request that a store has been given.
struct Request {
    unit: usize,
    op: Op,
    done: Completion,
    /// How many task management functions were asked for before it.
    asked_before: u64,
}

/// Requests that the stores were given since the world last looked.
type Inbox = Arc<Mutex<Vec<(usize, Op, Completion)>>>;

/// One logical unit's store, as the target has it.
struct SimulatedStore {
    unit: usize,
    len_bytes: u64,
    block_len: usize,
    inbox: Inbox,
}

impl Store for SimulatedStore {
    fn geometry(&self) -> Geometry {
        let granularity_bytes = self.block_len as u32;
        Geometry {
            len_bytes: self.len_bytes,
            granularity_bytes,
            physical_bytes: granularity_bytes,
            unmap_bytes: granularity_bytes,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { volatile_cache: true, ..Capabilities::default() }
    }

    fn submit(&self, op: Op, _: &dyn FileIo, done: Completion) {
        match op.check(self.len_bytes, false) {
            Ok(()) => lock(&self.inbox).push((self.unit, op, done)),
            Err(error) => done.complete(Outcome::new(Err(error), op.into_buffer())),
        }
    }
}

fn lock<T>(list: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All stores, and what they work on.
pub(crate) struct Stores {
    inbox: Inbox,
    running: BTreeMap<u64, Request>,
    last: u64,
    /// Task management functions that were asked for so far.
    asked: u64,
}

impl Stores {
    pub(crate) fn new() -> Self {
        Self { inbox: Inbox::default(), running: BTreeMap::new(), last: 0, asked: 0 }
    }

    /// A store for each logical unit. What lies in them outlives the target.
    pub(crate) fn open(&self, load: &Load) -> Vec<Arc<dyn Store>> {
        let store = |unit| {
            let (len_bytes, inbox) = ((load.blocks * load.block_len) as u64, Arc::clone(&self.inbox));
            Arc::new(SimulatedStore { unit, len_bytes, block_len: load.block_len, inbox }) as Arc<dyn Store>
        };
        (0..UNITS).map(store).collect()
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len() + lock(&self.inbox).len()
    }

    /// A task management function is asked for. Gives the moment, for [`is_clear_of`](Self::is_clear_of).
    pub(crate) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// Whether no request is under way that began before that moment: in the unit, or in any, and for writes of the initiator,
    /// or of all and reads too.
    pub(crate) fn is_clear_of(&self, moment: u64, unit: Option<usize>, of: Option<(usize, &Oracle)>) -> bool {
        let concerned =
            |request: &&Request| request.asked_before < moment && unit.is_none_or(|unit| unit == request.unit);
        !self.running.values().filter(concerned).any(|request| match (&request.op, of) {
            (Op::Write { from, .. }, Some((client, oracle))) => oracle.client_of(from) == Some(client),
            (Op::Write { .. } | Op::Read { .. }, None) => true,
            _ => false,
        })
    }

    /// Begins what the stores were given.
    pub(crate) fn begin(&mut self, env: &mut Env) {
        let given = std::mem::take(&mut *lock(&self.inbox));
        for (unit, op, done) in given {
            self.last += 1;
            let at = env.now + env.dice.micros(0, env.scenario.load.work_us);
            env.enter(at, Happening::Done(self.last));
            self.running.insert(self.last, Request { unit, op, done, asked_before: self.asked });
        }
    }

    /// The process is gone. What the system has begun for it happens now or never.
    pub(crate) fn lose_all(&mut self, env: &mut Env) {
        self.begin(env);
        for request in self.running.keys().copied().collect::<Vec<_>>() {
            if env.dice.coin() {
                self.done(request, env);
            }
        }
        self.running.clear();
    }

    /// A request has had its time: it is done now, all at once.
    pub(crate) fn done(&mut self, request: u64, env: &mut Env) {
        let Some(Request { unit, op, done, .. }) = self.running.remove(&request) else { return };
        let block_len = env.scenario.load.block_len;
        let (offset, len) = op.range();
        let (first, blocks) = (offset as usize / block_len, len as usize / block_len);
        let outcome = match op {
            Op::Read { mut into, .. } => {
                let writers = env.oracle.medium.writers(unit, first, blocks);
                env.oracle.medium.fill(unit, first, &writers, &mut into);
                Outcome::new(Ok(()), Some(into))
            }
            Op::Write { from, .. } => {
                let written = env.oracle.written(unit, first, &from);
                env.check(written);
                Outcome::new(Ok(()), Some(from))
            }
            Op::Flush => Outcome::new(Ok(()), None),
            op => Outcome::new(Err(StoreError::NoSpace), op.into_buffer()),
        };
        done.complete(outcome);
    }
}
