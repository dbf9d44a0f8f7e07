//! What is not served any more: its commands end, then its stores are flushed and let go of.

use std::sync::Arc;

use lunette_device::{LogicalUnit, Response, TargetDevice};
use lunette_scsi::{AdditionalSense, SenseData, SenseFormat, Status};
use lunette_store::{Completion, CompletionSink, Op, Outcome};

use super::Core;
use super::running::{RunningTask, TaskKey, Waiting};

/// The tag of these flushes. No slab key has this index.
pub(super) const LEAVE_TAG: u64 = u64::MAX - 1;

/// What leaves, and the flushes that have not ended.
#[derive(Default)]
pub(super) struct Leaving {
    targets: Vec<Arc<TargetDevice>>,
    units: Vec<Arc<LogicalUnit>>,
    flushes: usize,
}

impl Leaving {
    pub(super) fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.units.is_empty() && self.flushes == 0
    }
}

/// Whether the store of `unit` may hold what is not on stable storage. An initiator that sets software write protection
/// leaves what was written before it.
pub(super) fn needs_flush(unit: &LogicalUnit) -> bool {
    !unit.config().read_only && !unit.store().capabilities().read_only
}

impl Core {
    /// The target is gone when its last session is.
    pub(super) fn let_target_go(&mut self, device: Arc<TargetDevice>) {
        self.leaving.targets.push(device);
    }

    /// The unit is gone when its last command is. Those that wait for their initiator end now.
    pub(super) fn let_unit_go(&mut self, unit: Arc<LogicalUnit>) {
        let wait_for_initiator = |running: &RunningTask| {
            running.task.uses(&unit)
                && matches!(running.waiting, Waiting::Data | Waiting::Buffer { .. } | Waiting::DataBuffer { .. })
        };
        let waiting: Vec<TaskKey> = self.tasks_where(wait_for_initiator);
        for key in waiting {
            self.finish(key, not_supported());
        }
        self.leaving.units.push(unit);
    }

    /// Flushes the stores of what nobody works with any more.
    pub(super) fn part(&mut self) {
        if self.leaving.targets.is_empty() && self.leaving.units.is_empty() {
            return;
        }
        let (connections, tasks) = (&mut self.connections, &self.tasks);
        let mut in_use = |device: &Arc<TargetDevice>| {
            tasks.iter().any(|(_, running)| Arc::ptr_eq(&running.device, device))
                || connections.iter_mut().any(|(_, conn)| conn.is_of(device))
        };
        let gone: Vec<_> = self.leaving.targets.extract_if(.., |device| !in_use(device)).collect();
        let of_targets = gone.iter().flat_map(|device| device.units()).map(|(_, unit)| unit);
        let unused = |unit: &mut Arc<LogicalUnit>| !tasks.iter().any(|(_, running)| running.task.uses(unit));
        let units: Vec<_> = self.leaving.units.extract_if(.., unused).chain(of_targets).collect();
        for unit in units.iter().filter(|unit| needs_flush(unit)) {
            self.leaving.flushes += 1;
            let (sink, store) = (Arc::clone(&self.completions), Arc::clone(unit.store()));
            let done = move |outcome| {
                sink.complete(LEAVE_TAG, outcome);
                // Its file is open until now. Who wants it again takes over the store, for no second one can be opened.
                drop(store);
            };
            unit.store().submit(Op::Flush, &self.io, Completion::call(done));
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
        data_in: None,
        data_in_file: None,
        data_out_transfer_len: 0,
    }
}
