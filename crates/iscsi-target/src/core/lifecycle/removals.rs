//! The removal of objects: their commands end, then their stores are flushed and closed.

use std::sync::Arc;

use lunette_device::{LogicalUnit, TargetDevice};
use lunette_store::{Outcome, Store};

use super::Lifecycle;

/// The removed objects, and the flushes that have not ended.
#[derive(Default)]
pub(super) struct Removals {
    waiting: Vec<Removal>,
    flushes: usize,
}

struct Removal {
    removed: Removed,
    /// Other cores that may work with it. The first core counts them, and flushes.
    others: usize,
}

/// An object that is not served any more.
#[derive(Clone)]
pub(crate) enum Removed {
    Target(Arc<TargetDevice>),
    Unit(Arc<LogicalUnit>),
}

impl Removed {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Target(one), Self::Target(other)) => Arc::ptr_eq(one, other),
            (Self::Unit(one), Self::Unit(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn into_units(self) -> Vec<Arc<LogicalUnit>> {
        match self {
            Self::Target(device) => device.units().into_iter().map(|(_, unit)| unit).collect(),
            Self::Unit(unit) => vec![unit],
        }
    }
}

impl Removals {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.flushes == 0
    }
}

/// Whether the store of `unit` may hold what is not on stable storage. An initiator that sets software write protection
/// leaves what was written before it.
pub(super) fn needs_flush(unit: &LogicalUnit) -> bool {
    !unit.config().read_only && !unit.store().capabilities().read_only
}

impl Lifecycle {
    /// Removes what is served no more, when no core works with it. `others`: other cores that may, which the first core
    /// waits for.
    pub(in crate::core) fn remove(&mut self, removed: Removed, others: usize) {
        self.removals.waiting.push(Removal { removed, others });
    }

    /// Another core works with it no longer.
    pub(in crate::core) fn unused_elsewhere(&mut self, removed: &Removed) {
        let waits = |removal: &&mut Removal| removal.others > 0 && removal.removed.is(removed);
        if let Some(removal) = self.removals.waiting.iter_mut().find(waits) {
            removal.others -= 1;
        }
    }

    /// Takes what no core works with any more.
    pub(in crate::core) fn take_unused(&mut self, is_used: impl Fn(&Removed) -> bool) -> Vec<Removed> {
        let is_over = |removal: &mut Removal| removal.others == 0 && !is_used(&removal.removed);
        self.removals.waiting.extract_if(.., is_over).map(|removal| removal.removed).collect()
    }

    /// The stores to flush of what no core works with any more. Report each with [`Self::removed_flushed`].
    pub(in crate::core) fn begin_flushes(&mut self, unused: Vec<Removed>) -> Vec<Arc<dyn Store>> {
        let units = unused.into_iter().flat_map(Removed::into_units).filter(|unit| needs_flush(unit));
        let stores: Vec<_> = units.map(|unit| Arc::clone(unit.store())).collect();
        self.removals.flushes += stores.len();
        stores
    }

    /// One of these flushes has ended.
    pub(in crate::core) fn removed_flushed(&mut self, outcome: &Outcome) {
        self.removals.flushes -= 1;
        if let Err(error) = &outcome.result {
            tracing::error!(%error, "the store of a logical unit that was removed could not be flushed");
        }
    }
}
