//! Announcements of aborts: connections learn that their tasks were ended by a function that came another way (RFC 7143
//! sections 4.2.3.4 and 4.2.3.5).

use lunette_pdu::{LunField, SerialNumber};
use lunette_reactor::ConnectionId;

use super::Core;
use super::tasks::TaskKey;

/// A connection that has tasks on a logical unit that were ended by a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Affected {
    connection: ConnectionId,
    lun: LunField,
    /// The tasks with smaller CmdSNs.
    before: SerialNumber,
}

impl Core {
    /// The connections that have tasks among these, which a request of connection `issuing` aborts.
    pub(super) fn affected_by(
        &self,
        keys: &[TaskKey],
        issuing: Option<ConnectionId>,
        before: Option<SerialNumber>,
    ) -> Vec<Affected> {
        let session_of = |id| self.session_of(id);
        let issuer = issuing.and_then(session_of).map(|session| session.info().tsih);
        let tasks = keys.iter().filter_map(|key| self.tasks.get(*key)).filter(|task| !task.is_orphan());
        let affected = tasks.filter_map(|task| {
            let session = session_of(task.address().0)?;
            let before = before.filter(|_| issuer == Some(session.info().tsih));
            let (connection, lun) = (task.address().0, LunField(task.lun().encode()));
            Some(Affected { connection, lun, before: before.unwrap_or_else(|| session.exp_cmd_sn()) })
        });
        let mut affected: Vec<Affected> = affected.collect();
        affected.sort_unstable_by_key(|affected| (affected.connection.index(), affected.lun.0));
        affected.dedup();
        affected
    }

    /// Tells these connections that their tasks were aborted. On the `issuing` one no more data comes.
    pub(super) fn announce_aborts(&mut self, issuing: Option<ConnectionId>, affected: &[Affected]) {
        for Affected { connection, lun, before } in affected {
            self.connections
                .in_session(*connection, |session| session.tasks_terminated(*connection, issuing, *lun, *before));
        }
    }
}
