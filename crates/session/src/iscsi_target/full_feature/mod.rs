//! The full feature phase of one connection.

mod at_once;
mod commands;
mod control;
mod data_out;
mod early;
mod functions;
mod handover;
mod logout;
mod numbering;
mod query;
mod receive_limit;
mod recovery;
mod resting;
mod snack;
pub(crate) mod suspended;
mod task_management;
mod terminated;
mod text;

use std::net::SocketAddr;
use std::sync::Arc;

use lunette_pdu::{Bhs, Cid, DataOut, InitiatorPdu, LogoutReason, PduError, RejectReason, SerialNumber};

use self::functions::Functions;
use self::logout::Logout;
use self::numbering::{Numbering, Turn, Waiting};
use self::receive_limit::ReceiveLimit;
use super::directory::Directory;
use super::event::{CloseReason, TaskTag};
use super::expect::Expect;
use super::login::Login;
use super::origin::Origin;
use super::session_info::SessionInfo;
use super::tasks::task::{Task, TaskTable};
use super::text::TextExchanges;
use super::turn_context::TurnContext;
use super::violation::Violation;
use crate::keys::Parameters;

pub(crate) struct FullFeature {
    session: Arc<SessionInfo>,
    parameters: Parameters,
    directory: Arc<Directory>,
    local: SocketAddr,
    origin: Origin,
    cid: Cid,
    tasks: TaskTable,
    immediate_tasks: u32,
    /// Some tasks may have ended with an answer that waits for the rest of their data.
    may_keep_answers: bool,
    text: TextExchanges,
    receive_limit: ReceiveLimit,
    last_ping: u32,
    numbering: Numbering,
    functions: Functions,
    logout: Logout,
    /// The task that came last with data of its own, at recovery level 1 and above.
    brought_data: Option<TaskTag>,
}

impl FullFeature {
    /// Takes over from a login that has been admitted.
    pub(crate) fn new(login: &mut Login, session: &Arc<SessionInfo>) -> Option<Self> {
        let (cid, parameters) = login.take_result()?;
        let recv_data_segment_len = parameters.recv_data_segment_len;
        Some(Self {
            parameters: parameters.within(&session.parameters),
            directory: Arc::clone(login.directory()),
            local: login.local(),
            origin: login.origin().clone(),
            cid,
            session: Arc::clone(session),
            tasks: TaskTable::default(),
            immediate_tasks: 0,
            may_keep_answers: false,
            text: TextExchanges::default(),
            receive_limit: ReceiveLimit::new(recv_data_segment_len),
            last_ping: 0,
            numbering: Numbering::new(cid, session.may_have_gaps()),
            functions: Functions::default(),
            logout: Logout::default(),
            brought_data: None,
        })
    }

    pub(crate) fn session(&self) -> &Arc<SessionInfo> {
        &self.session
    }

    /// Whether the session reaches no target.
    pub(crate) fn is_discovery(&self) -> bool {
        self.session.target.is_none()
    }

    pub(crate) fn set_directory(&mut self, directory: Arc<Directory>) {
        self.directory = directory;
    }

    pub(crate) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Tasks that hold a place in the session's command window.
    pub(crate) fn numbered_tasks(&self) -> u32 {
        self.numbering.tasks()
    }

    /// How the connection ends, when the initiator has logged out of it.
    pub(crate) fn logged_out(&self) -> Option<&CloseReason> {
        self.logout.close_reason()
    }

    /// Whether a logout waits for the driver. Nothing may follow it.
    pub(crate) fn is_logging_out(&self) -> bool {
        self.logout.is_asked()
    }

    /// Where the data segment that is being received goes; empty when it is dropped.
    pub(crate) fn place(&mut self, expect: &Expect) -> &mut [u8] {
        match *expect {
            Expect::Data { task, offset, len } => {
                self.tasks.get_mut(task).map(|task| task.data.place(offset, len)).unwrap_or_default()
            }
            _ => &mut [],
        }
    }

    /// The place of bytes of a Data-Out PDU whose turn has not come.
    pub(crate) fn place_early(&mut self, pdu: &DataOut, offset: u32, len: usize) -> Option<(TaskTag, &mut [u8])> {
        let tag = self.data_out_task(pdu)?;
        let task = self.tasks.get_mut(tag).filter(|task| task.itt == pdu.itt)?;
        let place = task.data.place(offset, u32::try_from(len).ok()?);
        (place.len() == len).then_some((tag, place))
    }

    /// Whether the driver has yet to say where the data of a task goes.
    pub(crate) fn is_undecided(&self, task: TaskTag) -> bool {
        self.tasks.get(task).is_some_and(Task::is_undecided)
    }

    /// Whether what is at the front of the stream came before its turn.
    pub(crate) fn waits_for_turn(&self, expect: &Expect) -> bool {
        matches!(expect, Expect::Ping(_) | Expect::Text(_)) && self.numbering.stream_is_early()
    }

    /// Deals with a header and says what its data segment is for.
    pub(crate) fn header(&mut self, bhs: &Bhs, ahs: &[u8], cx: &mut TurnContext<'_>) -> Result<Expect, Violation> {
        let pdu = InitiatorPdu::parse(bhs).map_err(|error| match error {
            PduError::UnknownOpcode { .. } => {
                Violation::harmless(RejectReason::COMMAND_NOT_SUPPORTED, error.to_string())
            }
            PduError::WrongDirection { .. } => Violation::fatal(RejectReason::PROTOCOL_ERROR, error.to_string()),
            _ => Violation::fatal(RejectReason::INVALID_PDU_FIELD, error.to_string()),
        })?;
        let reaches_a_target = matches!(
            pdu,
            InitiatorPdu::ScsiCommand(_) | InitiatorPdu::DataOut(_) | InitiatorPdu::TaskManagementRequest(_)
        );
        if reaches_a_target && self.session.target.is_none() {
            let why = format!("{} in a discovery session", bhs.opcode());
            return Err(Violation::fatal(RejectReason::PROTOCOL_ERROR, why));
        }
        if !self.is_logout_of_another(&pdu) {
            cx.sender.acknowledge(exp_stat_sn(bhs));
        }
        let expect = match pdu {
            InitiatorPdu::ScsiCommand(command) => self.command_header(command, ahs, cx),
            InitiatorPdu::DataOut(data) => self.data_out(&data, cx),
            InitiatorPdu::NopOut(nop) => self.nop_out(nop, cx),
            InitiatorPdu::TextRequest(text) => self.numbered(text.immediate, text.cmd_sn, Expect::Text(text), cx),
            InitiatorPdu::TaskManagementRequest(request) => self.task_management(&request, cx),
            InitiatorPdu::LogoutRequest(logout) => self.logout_request(&logout, cx),
            InitiatorPdu::SnackRequest(snack) => self.snack(&snack, cx),
            InitiatorPdu::LoginRequest(_) => {
                Err(Violation::fatal(RejectReason::PROTOCOL_ERROR, "a login request after the login"))
            }
        };
        self.numbering.resume_waiters(cx);
        expect
    }

    /// Whether ExpStatSN is not that of this connection: a logout has that of the connection to be closed (RFC 7143
    /// section 11.14.4).
    fn is_logout_of_another(&self, pdu: &InitiatorPdu) -> bool {
        matches!(pdu, InitiatorPdu::LogoutRequest(logout)
            if logout.reason != LogoutReason::CLOSE_SESSION && logout.cid != self.cid)
    }

    /// Deals with a data segment that has arrived and been verified.
    pub(crate) fn data(
        &mut self,
        expect: &Expect,
        segment: Vec<u8>,
        ahs: &[u8],
        cx: &mut TurnContext<'_>,
    ) -> Result<(), Violation> {
        match expect {
            Expect::Data { task, offset, len } => self.data_verified(*task, *offset, *len, cx),
            Expect::Ping(_) | Expect::Text(_) | Expect::Command(_) if self.recovers() => {
                return self.verified(expect, segment, ahs, cx);
            }
            Expect::Ping(nop) => self.echo(nop, segment, cx),
            Expect::Text(request) => return self.text_request(request, &segment, cx),
            Expect::Lost { task, offset, len } => self.data_lost(*task, *offset, *len, cx),
            Expect::Command(_) | Expect::Kept | Expect::Nothing => {}
        }
        Ok(())
    }

    /// The connection is over. The session may outlive it: another one takes its place (RFC 7143 section 6.3.4). The
    /// tasks that ended with this one leave the command window.
    pub(crate) fn end(&mut self, cx: &mut TurnContext<'_>) {
        self.discard_early(cx);
        self.numbering.tasks_lost(cx);
    }

    /// Counts the number of a PDU that acts when its data segment is here.
    fn numbered(
        &mut self,
        immediate: bool,
        cmd_sn: SerialNumber,
        expect: Expect,
        cx: &mut TurnContext<'_>,
    ) -> Result<Expect, Violation> {
        if self.recovers() && !matches!(expect, Expect::Nothing) {
            return Ok(expect);
        }
        Ok(match self.numbering.arrive(immediate, cmd_sn, cx)? {
            Turn::Now => expect,
            Turn::Later if matches!(expect, Expect::Nothing) => {
                // A NOP-Out that only brings numbers.
                self.numbering.pass_over(cmd_sn, cmd_sn.next(), cx);
                expect
            }
            Turn::Later => {
                self.numbering.hold(cmd_sn, Waiting::Stream, cx);
                expect
            }
            Turn::Never => Expect::Nothing,
        })
    }
}

/// ExpStatSN stands at the same place in every PDU of an initiator.
fn exp_stat_sn(bhs: &Bhs) -> SerialNumber {
    let [.., a, b, c, d] = *bhs.as_array().first_chunk::<32>().expect("a header has 48 bytes");
    SerialNumber(u32::from_be_bytes([a, b, c, d]))
}
