//! Commands that are answered while they are read.
//!
//! Most commands of a busy connection are short, come one behind the other with all of their data, and could be
//! answered at once. As long as nothing else goes on there, such a command becomes no task: its header is looked at
//! where it was received, its data goes from there to the device, and the answer is written where it will be sent from.
//! Nothing changes before the device has done its part; a command that it cannot answer at once, and all else that
//! comes, takes the way of all bytes ([`Session::next_event`](crate::iscsi_target::Session::next_event)), from its
//! first byte on.

use lunette_buffer::Buffer;
use lunette_pdu::ScsiCommand;

use super::{ConnectionMut, Phase};
use crate::Time;
use crate::iscsi_target::full_feature::FullFeature;
use crate::iscsi_target::turn_context::TurnContext;
use crate::limits::{MAX_AT_ONCE_BYTES, MAX_OUTBOX_PDUS};
use crate::markers::MarkedReceiver;
use crate::receiver::FrontPdu;

/// The commands at the front of a connection's bytes, while nothing is awaited but the next PDU.
pub struct CommandsAtOnce<'a> {
    full: &'a mut FullFeature,
    receiver: &'a mut MarkedReceiver,
    cx: TurnContext<'a>,
}

/// A command that lies in the received bytes as a whole, and whose answer is one PDU.
#[derive(Debug)]
pub struct CommandAtOnce<'i> {
    pdu: FrontPdu<'i>,
    command: ScsiCommand,
}

impl CommandAtOnce<'_> {
    /// Bytes of the input that it takes, its data included.
    pub fn pdu_len(&self) -> usize {
        self.pdu.len()
    }
}

/// The data of a command, on its way from or to the device.
#[derive(Debug)]
pub enum Transfer<'a> {
    /// The place of all bytes that the initiator expects.
    In(&'a mut [u8]),
    /// All bytes that the initiator has announced, verified.
    Out(&'a [u8]),
}

impl<'a> ConnectionMut<'a> {
    /// The commands of bytes that have come now. `None` while the connection waits for something, or where a PDU may
    /// have to be sent again or be looked for between markers.
    pub(in crate::iscsi_target) fn into_commands_at_once(mut self, now: Time) -> Option<CommandsAtOnce<'a>> {
        if !self.is_plain() {
            return None;
        }
        self.heard(now);
        self.watch_progress(now);
        let Self { connection, window } = self;
        let super::Connection { phase, receiver, sender, events, .. } = connection;
        match phase {
            Phase::FullFeature(full) => {
                Some(CommandsAtOnce { full, receiver, cx: TurnContext { window, sender, events } })
            }
            _ => None,
        }
    }

    /// Whether nothing goes on but commands and their answers.
    fn is_plain(&self) -> bool {
        let Phase::FullFeature(full) = &self.phase else { return false };
        self.events.is_empty()
            && self.held.is_empty()
            && self.resting.is_none()
            && self.gap_ends.is_none()
            && self.receiver.is_between_pdus()
            && !self.receiver.has_markers()
            && !self.sender.outbox.has_markers()
            && full.answers_at_once()
            && self.wants_input()
    }
}

impl CommandsAtOnce<'_> {
    /// The command at the front of `input`, if it can be answered at once as far as the connection is concerned. `may`
    /// looks at the LUN first, and whether it is a write.
    #[inline]
    pub fn peek<'i>(&self, input: &'i [u8], may: impl FnOnce([u8; 8], bool) -> bool) -> Option<CommandAtOnce<'i>> {
        let pdu = self.receiver.front_pdu(input).filter(FrontPdu::is_whole)?;
        let command = ScsiCommand::parse(pdu.bhs()).ok()?;
        let is_meant = command.expected_data_transfer_length <= MAX_AT_ONCE_BYTES
            && self.cx.sender.outbox.pdus() <= MAX_OUTBOX_PDUS
            && self.full.is_at_once(&command)
            && self.cx.window.is_next(command.cmd_sn)
            && may(command.lun.0, command.write);
        (is_meant && self.receiver.verifies(&pdu)).then_some(CommandAtOnce { pdu, command })
    }

    /// Lets `execute` carry the command out, and answers with GOOD when that is true; then the command is taken from
    /// `input`. Data for the initiator is put where it will be sent from: when there is no room, `memory` is asked for
    /// a buffer of at least that many bytes. False when nothing has happened.
    #[inline]
    pub fn answer(
        &mut self,
        CommandAtOnce { pdu, command }: CommandAtOnce<'_>,
        input: &mut &[u8],
        memory: impl FnOnce(usize) -> Option<Buffer>,
        execute: impl FnOnce([u8; 8], [u8; 16], Transfer<'_>) -> bool,
    ) -> bool {
        let outbox = &mut self.cx.sender.outbox;
        let data_in_len = if command.read { command.expected_data_transfer_length as usize } else { 0 };
        let Some(place) = outbox.place(data_in_len, memory) else { return false };
        let transfer = if command.read { Transfer::In(place) } else { Transfer::Out(pdu.data().unwrap_or_default()) };
        if !execute(command.lun.0, command.cdb, transfer) {
            outbox.leave_place();
            return false;
        }
        self.receiver.took_whole(command.data_segment_len);
        self.full.answer_at_once(&command, &mut self.cx);
        *input = &input[pdu.len()..];
        true
    }
}
