//! Short commands that are answered while they are read: see [`lunette_session::iscsi_target::CommandsAtOnce`] and
//! [`lunette_device::AtOnce`].

use std::time::Instant;

use lunette_device::AtOnce;
use lunette_reactor::ConnectionId;
use lunette_session::Time;
use lunette_session::iscsi_target::Transfer;

use super::Connections;
use crate::core::buffers::BufferQueue;
use crate::core::tasks::Stopwatch;
use crate::limits::ANSWER_BUFFER_LEN;

impl Connections {
    /// Answers the commands at the front of `bytes` for which nothing has to be waited for, until answers are to leave.
    /// Gives how many.
    pub(in crate::core) fn answer_at_once(
        &mut self,
        id: ConnectionId,
        bytes: &mut &[u8],
        now: Time,
        buffers: &BufferQueue,
        stopwatch: &Stopwatch,
    ) -> u32 {
        // Packets leave as PDUs, so nothing is gained by PDUs in one buffer.
        if id.is_virtual() {
            return 0;
        }
        let Some(conn) = self.table.get(id) else { return 0 };
        let (Some(nexus), Some(key)) = (&conn.nexus, conn.key) else { return 0 };
        let session = self.sessions.get_mut(key);
        let Some(mut commands) = session.and_then(|session| session.commands_at_once(id, now)) else { return 0 };
        let mut device = nexus.at_once(|| stopwatch.read());
        let mut answered = 0;
        while !self.pace.is_due(&conn.under_way)
            && let Some(command) = commands.peek(bytes, |lun, is_write| device.serves(lun, is_write))
        {
            // Room for the answers to all, if those that follow are like this one.
            let commands_left = bytes.len() / command.pdu_len();
            let memory = |answer_len: usize| {
                let len = answer_len.saturating_mul(commands_left).min(ANSWER_BUFFER_LEN).max(answer_len);
                buffers.take_for_answers(&conn.account, len)
            };
            let execute = |lun, cdb, transfer: Transfer<'_>| execute(&mut device, lun, cdb, transfer);
            if !commands.answer(command, bytes, memory, execute) {
                break;
            }
            self.pace.count();
            answered += 1;
        }
        answered
    }
}

#[inline]
fn execute(device: &mut AtOnce<'_, impl Fn() -> Instant>, lun: [u8; 8], cdb: [u8; 16], transfer: Transfer<'_>) -> bool {
    match transfer {
        Transfer::In(place) => device.read(lun, cdb, place),
        Transfer::Out(data) => device.write(lun, cdb, data),
    }
}
