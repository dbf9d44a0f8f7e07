//! Faults and their count.

use std::fmt;

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The server answers nothing any more.
    Hang,
    /// A small request is not answered in time, while others are.
    Starved,
    /// A panic, or the end of the process.
    Panic,
    /// Wrong data, an error in the log, too much memory, or state that is not released.
    Other,
}

/// A fault and its description.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) what: String,
    /// Seeds of the walks that were under way.
    pub(super) suspects: Vec<u64>,
}

impl Fault {
    pub(super) fn new(kind: Kind, what: String) -> Self {
        Self { kind, what, suspects: Vec::new() }
    }
}

/// The result of many walks.
#[derive(Debug, Default)]
pub struct Tally {
    walks: u64,
    faults: Vec<Fault>,
}

impl Tally {
    pub(super) fn add(&mut self, walks: u64, faults: Vec<Fault>) {
        self.walks += walks;
        self.faults.extend(faults);
    }

    pub(super) fn add_all(&mut self, other: Self) {
        self.add(other.walks, other.faults);
    }

    /// Whether no fault was found.
    pub fn is_good(&self) -> bool {
        self.faults.is_empty()
    }

    fn count(&self, kind: Kind) -> usize {
        self.faults.iter().filter(|fault| fault.kind == kind).count()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hangs, starved) = (self.count(Kind::Hang), self.count(Kind::Starved));
        let (panics, others) = (self.count(Kind::Panic), self.count(Kind::Other));
        write!(f, "{} walks, {hangs} hangs, {starved} starved, {panics} panics, {others} other faults", self.walks)
    }
}
