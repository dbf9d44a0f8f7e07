//! What is not served any more: its commands end, then its stores are flushed and let go of.

use std::sync::Arc;

use lunette_buffer::Payload;
use lunette_device::{LogicalUnit, Response, TargetDevice};
use lunette_scsi::{AdditionalSense, SenseData, SenseFormat, Status};
use lunette_store::Outcome;

use super::orders::Order;
use super::tasks::TaskKey;
use super::{Core, FIRST};

/// The tag of these flushes. No slab key has this index.
pub(super) const LEAVE_TAG: u64 = u64::MAX - 1;

/// What leaves, and the flushes that have not ended.
#[derive(Default)]
pub(super) struct Leaving {
    here: Vec<Parting>,
    flushes: usize,
}

struct Parting {
    leaver: Leaver,
    /// Other cores that may work with it. The first core counts them, and flushes.
    others: usize,
}

/// What is not served any more.
#[derive(Clone)]
pub(crate) enum Leaver {
    Target(Arc<TargetDevice>),
    Unit(Arc<LogicalUnit>),
}

impl Leaver {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Target(one), Self::Target(other)) => Arc::ptr_eq(one, other),
            (Self::Unit(one), Self::Unit(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn units(self) -> Vec<Arc<LogicalUnit>> {
        match self {
            Self::Target(device) => device.units().into_iter().map(|(_, unit)| unit).collect(),
            Self::Unit(unit) => vec![unit],
        }
    }
}

impl Leaving {
    pub(super) fn is_empty(&self) -> bool {
        self.here.is_empty() && self.flushes == 0
    }
}

/// Whether the store of `unit` may hold what is not on stable storage. An initiator that sets software write protection
/// leaves what was written before it.
pub(super) fn needs_flush(unit: &LogicalUnit) -> bool {
    !unit.config().read_only && !unit.store().capabilities().read_only
}

impl Core {
    /// A target is gone when its last session is, a unit when its last command is. Those that wait for their initiator end
    /// now.
    pub(super) fn let_go(&mut self, leaver: Leaver) {
        if let Leaver::Unit(unit) = &leaver {
            let waiting: Vec<TaskKey> = self.tasks.tasks_where(|task| task.uses(unit) && task.waits_for_initiator());
            for key in waiting {
                self.end_task(key, not_supported());
            }
        }
        let others = if self.post.me() == FIRST { self.post.others().count() } else { 0 };
        self.leaving.here.push(Parting { leaver, others });
    }

    /// Another core works with it no longer.
    pub(super) fn let_go_elsewhere(&mut self, leaver: &Leaver) {
        let waits = |parting: &&mut Parting| parting.others > 0 && parting.leaver.is(leaver);
        if let Some(parting) = self.leaving.here.iter_mut().find(waits) {
            parting.others -= 1;
        }
    }

    /// Flushes the stores of what nobody works with any more.
    pub(super) fn part(&mut self) {
        if self.leaving.here.is_empty() {
            return;
        }
        let (connections, tasks) = (&self.connections, &self.tasks);
        let in_use = |leaver: &Leaver| match leaver {
            Leaver::Target(device) => {
                tasks.any(|task| task.is_of_device(device)) || connections.any(|conn| conn.is_of(device))
            }
            Leaver::Unit(unit) => tasks.any(|task| task.uses(unit)),
        };
        let is_over = |parting: &mut Parting| parting.others == 0 && !in_use(&parting.leaver);
        let gone: Vec<_> = self.leaving.here.extract_if(.., is_over).map(|parting| parting.leaver).collect();
        if self.post.me() != FIRST {
            return gone.into_iter().for_each(|leaver| self.post.send(FIRST, Order::LetGo(leaver)));
        }
        let units: Vec<_> = gone.into_iter().flat_map(Leaver::units).collect();
        for unit in units.iter().filter(|unit| needs_flush(unit)) {
            self.leaving.flushes += 1;
            self.tasks.flush(unit.store(), LEAVE_TAG);
        }
        self.take_completions();
    }

    /// One of these flushes has ended.
    pub(super) fn left(&mut self, outcome: &Outcome) {
        self.leaving.flushes -= 1;
        if let Err(error) = &outcome.result {
            tracing::error!(%error, "the store of a logical unit that was removed could not be flushed");
        }
    }
}

fn not_supported() -> Response {
    let sense = SenseData::illegal_request(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    Response {
        status: Status::CHECK_CONDITION,
        status_qualifier: 0,
        sense: Some(sense.encode(SenseFormat::Fixed)),
        data_in: Payload::Empty,
        data_out_transfer_len: 0,
    }
}
