//! The count of a command: in flight until it ends, then by what it came to.

use std::sync::Arc;
use std::time::Duration;

use lunette_scsi::{SenseData, Status};

use crate::commands::row::Row;
use crate::counts::{CommandKind, Field};
use crate::unit::itl_nexus::ItlNexus;

/// A command that has begun on a logical unit. One that is dropped before its end was aborted.
pub(super) struct InFlight {
    itl: Arc<ItlNexus>,
    kind: CommandKind,
    ended: bool,
}

impl InFlight {
    pub(super) fn begin(itl: Arc<ItlNexus>, row: Option<&Row>) -> Self {
        itl.counters.add(Field::IN_FLIGHT, 1);
        Self { itl, kind: row.map_or(CommandKind::Other, Row::kind), ended: false }
    }

    pub(super) fn itl(&self) -> &Arc<ItlNexus> {
        &self.itl
    }

    /// Counts the end of the command.
    pub(super) fn end(&mut self, status: Status, sense: Option<&SenseData>) {
        if !std::mem::replace(&mut self.ended, true) {
            self.itl.counters.take(Field::IN_FLIGHT, 1);
            self.itl.counters.ended(self.kind, status, sense);
        }
    }

    /// Counts the blocks that the command has transferred.
    pub(super) fn transferred(&self, data_in_len: u64, data_out_len: u64) {
        match self.kind {
            CommandKind::Read => self.itl.counters.add(Field::READ_BYTES, data_in_len),
            CommandKind::Write => self.itl.counters.add(Field::WRITTEN_BYTES, data_out_len),
            CommandKind::Unmap | CommandKind::Flush | CommandKind::Other => {}
        }
    }

    /// Counts the latency of the command.
    pub(super) fn took(&self, took: Duration) {
        self.itl.counters.took(self.kind, 1, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.ended {
            self.itl.counters.take(Field::IN_FLIGHT, 1);
            self.itl.counters.add(Field::ABORTED, 1);
        }
    }
}
