//! The stores of the simulated target: they take their time, and the oracle watches what is asked of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_store::{Capabilities, Completion, FileIo, Geometry, Op, OpKind, Outcome, Store, StoreError};

use crate::dice::Dice;
use crate::env::{Env, Happening};
use crate::oracle::{Broken, Oracle};
use crate::scenario::{Load, UNITS};

/// A request that a store has been given.
struct Request {
    unit: usize,
    op: Op,
    done: Completion,
    /// How many task management functions were asked for before it.
    asked_before: u64,
}

/// The part of the world that all stores share.
struct Desk {
    oracle: Arc<Mutex<Oracle>>,
    dice: Mutex<Dice>,
    /// Requests that the stores were given since the world last looked.
    inbox: Mutex<Vec<(usize, Op, Completion)>>,
    /// The answers within the call since then.
    at_once: Mutex<Vec<AtOnce>>,
}

/// A read or write that a store has answered within the call.
struct AtOnce {
    unit: usize,
    kind: OpKind,
    first: usize,
    verdict: Result<(), Broken>,
}

/// One logical unit's store, as the target has it.
struct SimulatedStore {
    unit: usize,
    len_bytes: u64,
    block_len: usize,
    /// See [`Load::at_once`].
    at_once: u64,
    desk: Arc<Desk>,
}

impl SimulatedStore {
    /// The first of the blocks of a request, if it is answered within the call this time.
    fn first_at_once(&self, offset: u64, len: usize) -> Option<usize> {
        let fits = offset.checked_add(len as u64).is_some_and(|end| end <= self.len_bytes);
        let is_drawn = self.at_once > 0 && lock(&self.desk.dice).one_in(self.at_once);
        (fits && is_drawn).then_some(offset as usize / self.block_len)
    }

    fn answered(&self, kind: OpKind, first: usize, verdict: Result<(), Broken>) -> bool {
        lock(&self.desk.at_once).push(AtOnce { unit: self.unit, kind, first, verdict });
        true
    }
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
            Ok(()) => lock(&self.desk.inbox).push((self.unit, op, done)),
            Err(error) => done.complete(Outcome::new(Err(error), op.into_buffer())),
        }
    }

    fn answers_at_once(&self, _: OpKind) -> bool {
        self.at_once > 0
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(first) = self.first_at_once(offset, into.len()) else { return false };
        lock(&self.desk.oracle).read(self.unit, first, into);
        self.answered(OpKind::Read, first, Ok(()))
    }

    fn write_at_once(&self, offset: u64, from: &[u8], _fua: bool) -> bool {
        let Some(first) = self.first_at_once(offset, from.len()) else { return false };
        let verdict = lock(&self.desk.oracle).written(self.unit, first, from);
        self.answered(OpKind::Write, first, verdict)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All stores, and what they work on.
pub(crate) struct Stores {
    desk: Arc<Desk>,
    running: BTreeMap<u64, Request>,
    last: u64,
    /// Task management functions that were asked for so far.
    asked: u64,
    /// The units that are given no requests.
    frozen: BTreeSet<usize>,
}

impl Stores {
    pub(crate) fn new(env: &mut Env) -> Self {
        let desk = Desk {
            oracle: env.shared_oracle(),
            dice: Mutex::new(Dice::new(u64::from_le_bytes(env.dice.bytes()))),
            inbox: Mutex::default(),
            at_once: Mutex::default(),
        };
        Self { desk: Arc::new(desk), running: BTreeMap::new(), last: 0, asked: 0, frozen: BTreeSet::new() }
    }

    /// A store for each logical unit. What lies in them outlives the target.
    pub(crate) fn open(&self, load: &Load) -> Vec<Arc<dyn Store>> {
        let store = |unit| {
            let (len_bytes, desk) = ((load.blocks * load.block_len) as u64, Arc::clone(&self.desk));
            let (block_len, at_once) = (load.block_len, load.at_once);
            Arc::new(SimulatedStore { unit, len_bytes, block_len, at_once, desk }) as Arc<dyn Store>
        };
        (0..UNITS).map(store).collect()
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len() + lock(&self.desk.inbox).len()
    }

    /// A task management function is asked for. Gives the moment, for [`is_clear_of`](Self::is_clear_of).
    pub(crate) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// Whether no request is under way that began before that moment: in the unit, or in any, and for writes of the
    /// initiator, or of all and reads too.
    pub(crate) fn is_clear_of(&self, moment: u64, unit: Option<usize>, of: Option<(usize, &Oracle)>) -> bool {
        let concerned =
            |request: &&Request| request.asked_before < moment && unit.is_none_or(|unit| unit == request.unit);
        !self.running.values().filter(concerned).any(|request| match (&request.op, of) {
            (Op::Write { from, .. }, Some((client, oracle))) => oracle.client_of(from) == Some(client),
            (Op::Write { .. } | Op::Read { .. }, None) => true,
            _ => false,
        })
    }

    /// Begins what the stores were given, and hears the oracle on what they have answered within the call.
    pub(crate) fn begin(&mut self, env: &mut Env) {
        for AtOnce { unit, kind, first, verdict } in std::mem::take(&mut *lock(&self.desk.at_once)) {
            env.note(|| format!("{kind:?} from block {first} of unit {unit} on is done at once"));
            env.tally.happening("reads and writes answered at once");
            env.check(verdict);
            self.check_frozen(unit, kind, env);
        }
        let given = std::mem::take(&mut *lock(&self.desk.inbox));
        for (unit, op, done) in given {
            self.check_frozen(unit, op.kind(), env);
            self.last += 1;
            let at = env.now + env.dice.micros(0, env.scenario.load.work_us);
            env.enter(at, Happening::Done(self.last));
            self.running.insert(self.last, Request { unit, op, done, asked_before: self.asked });
        }
    }

    /// The units that are given nothing from now on.
    pub(crate) fn freeze(&mut self, units: &BTreeSet<usize>) {
        self.frozen.clone_from(units);
    }

    pub(crate) fn thaw(&mut self) {
        self.frozen.clear();
    }

    /// Whether a request of the unit is under way.
    pub(crate) fn is_at_work(&self, unit: usize) -> bool {
        self.running.values().any(|request| request.unit == unit)
            || lock(&self.desk.inbox).iter().any(|(asked, ..)| *asked == unit)
    }

    fn check_frozen(&self, unit: usize, kind: OpKind, env: &mut Env) {
        // A target that stops flushes what is frozen too.
        if self.frozen.contains(&unit) && kind != OpKind::Flush {
            env.fail(format!("unit {unit} is frozen, and its store is given a {kind:?}"));
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
        let (offset, _) = op.range();
        let first = offset as usize / block_len;
        let outcome = match op {
            Op::Read { mut into, .. } => {
                env.oracle().read(unit, first, &mut into);
                Outcome::new(Ok(()), Some(into))
            }
            Op::Write { from, .. } => {
                let written = env.oracle().written(unit, first, &from);
                env.check(written);
                Outcome::new(Ok(()), Some(from))
            }
            Op::Flush => Outcome::new(Ok(()), None),
            op => Outcome::new(Err(StoreError::NoSpace), op.into_buffer()),
        };
        done.complete(outcome);
    }
}
