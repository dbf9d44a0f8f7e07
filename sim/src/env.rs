//! The common state of the simulated world: clock, agenda, dice, oracle, and the record of the run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lunette_session::Time;

use crate::certificates::Certificates;
use crate::dice::Dice;
use crate::oracle::{Broken, Oracle};
use crate::scenario::Scenario;
use crate::tally::Tally;
use crate::wire::{Side, WireId};

/// Something that happens at a time that is known before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Happening {
    /// Bytes, or the end of the stream, reach a side of a connection.
    Arrive(WireId, Side),
    /// A datagram arrives.
    Land(u64),
    /// An attempt to connect comes to its end.
    Dialed(u64),
    /// An initiator does something.
    Act(usize),
    /// An initiator opens a session again.
    Reopen(usize),
    /// A store is done with a request.
    Done(u64),
    /// The target is changed.
    Change,
    /// Units of the target are frozen.
    Freeze,
    /// The units go on.
    Thaw,
    /// The target is told to stop.
    Stop,
    /// The target is gone without a word.
    Kill,
    /// The target starts again.
    Start,
    /// The target is to leave its sessions to another process.
    HandOver,
    /// The next step of the handover of that number is due.
    HandOverStep(u64),
}

pub(crate) struct Env {
    pub(crate) now: Time,
    pub(crate) dice: Dice,
    pub(crate) scenario: Scenario,
    /// Certificates of a run within TLS.
    pub(crate) certificates: Option<Certificates>,
    oracle: Arc<Mutex<Oracle>>,
    pub(crate) tally: Tally,
    agenda: BTreeMap<(Time, u64), Happening>,
    entered: u64,
    failure: Option<Broken>,
    journal: Option<String>,
    /// The moment that virtual time is counted from.
    base: Instant,
}

impl Env {
    pub(crate) fn new(scenario: Scenario, dice: Dice, traced: bool) -> Self {
        Self {
            now: Time::new(std::time::Duration::from_secs(1000)),
            dice,
            oracle: Arc::new(Mutex::new(Oracle::new(&scenario.load, scenario.reader()))),
            scenario,
            certificates: None,
            tally: Tally::default(),
            agenda: BTreeMap::new(),
            entered: 0,
            failure: None,
            journal: traced.then(String::new),
            base: Instant::now(),
        }
    }

    /// The virtual time, as event loops know it.
    pub(crate) fn instant(&self) -> Instant {
        self.base + self.now.since_epoch()
    }

    /// The virtual time that an event loop has named.
    pub(crate) fn time_of(&self, instant: Instant) -> Time {
        Time::new(instant.saturating_duration_since(self.base))
    }

    pub(crate) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oracle, for what works within a call of the target.
    pub(crate) fn shared_oracle(&self) -> Arc<Mutex<Oracle>> {
        Arc::clone(&self.oracle)
    }

    // The agenda.

    pub(crate) fn enter(&mut self, at: Time, happening: Happening) {
        self.entered += 1;
        self.agenda.insert((at, self.entered), happening);
    }

    /// When the next entry is due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.agenda.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next happening that is due by now.
    pub(crate) fn take_due(&mut self) -> Option<Happening> {
        let first = self.agenda.first_entry().filter(|entry| entry.key().0 <= self.now)?;
        Some(first.remove())
    }

    // The record.

    /// Writes a line to the journal, when there is one.
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(journal) = &mut self.journal {
            let now = self.now.since_epoch();
            // Writing to a string cannot fail.
            let _ = writeln!(journal, "{:>5}.{:06} {}", now.as_secs(), now.subsec_micros(), line());
        }
    }

    /// A rule was broken. The first one counts.
    pub(crate) fn fail(&mut self, why: impl Into<Broken>) {
        if self.failure.is_none() {
            let why = why.into();
            self.note(|| format!("FAILED: {why}"));
            self.failure = Some(why);
        }
    }

    /// The oracle's word on something.
    pub(crate) fn check<T>(&mut self, outcome: Result<T, Broken>) -> Option<T> {
        outcome.map_err(|why| self.fail(why)).ok()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(crate) fn into_record(self) -> (Tally, Option<Broken>, Option<String>) {
        (self.tally, self.failure, self.journal)
    }
}
