//! The command that the target does not acknowledge, and how far those before it have come.

use lunette_pdu::SerialNumber;

use super::attempts::Attempts;
use super::table::Table;
use super::task::Task;

/// The number that the target waits for, and since when.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    pub(super) cmd_sn: SerialNumber,
    pub(super) attempts: Attempts,
    /// The progress of the commands before it at the last request.
    pub(super) before: Progress,
}

/// How far commands have come. Any two moments between which one of them got something differ in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// The commands that have not ended.
    commands: usize,
    /// PDUs with data, or asking for data, that have come for them.
    pdus: u64,
}

impl Progress {
    /// The progress of the commands before `cmd_sn`. None is added to them, as their numbers have been given out.
    pub(super) fn before(cmd_sn: SerialNumber, tasks: &Table<Task>) -> Self {
        let tasks = tasks.iter().map(|(_, task)| task).filter(|task| task.cmd_sn.is_before(cmd_sn));
        let none = Self { commands: 0, pdus: 0 };
        tasks.fold(none, |sum, task| Self { commands: sum.commands + 1, pdus: sum.pdus + task.pdus_received() })
    }
}
