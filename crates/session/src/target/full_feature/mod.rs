//! The full feature phase of one connection.

mod commands;
mod control;
mod data_out;
mod task_management;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use lunette_pdu::{Bhs, Cid, InitiatorPdu, InitiatorTaskTag, PduError, RejectReason, SerialNumber};

use super::connection::{Expect, Sender, Violation};
use super::directory::Directory;
use super::event::{Event, TaskTag};
use super::login::Login;
use super::session::Session;
use super::task::{Task, TaskTable};
use super::text::TextExchange;
use super::window::Arrival;
use crate::keys::Parameters;

pub(crate) struct FullFeature {
    session: Arc<Session>,
    parameters: Parameters,
    directory: Arc<Directory>,
    local: SocketAddr,
    cid: Cid,
    tasks: TaskTable,
    immediate_tasks: u32,
    /// Tasks that hold a place in the session's command window.
    numbered_tasks: u32,
    pending_task_management: Vec<InitiatorTaskTag>,
    text: TextExchange,
    last_ping: u32,
    logged_out: bool,
}

impl FullFeature {
    /// Takes over from a login that has been admitted.
    pub(crate) fn new(login: &mut Login, session: Arc<Session>) -> Option<Self> {
        let (cid, parameters) = login.take_result()?;
        Some(Self {
            parameters: parameters.within(&session.parameters),
            directory: Arc::clone(login.directory()),
            local: login.local(),
            cid,
            session,
            tasks: TaskTable::default(),
            immediate_tasks: 0,
            numbered_tasks: 0,
            pending_task_management: Vec::new(),
            text: TextExchange::new(),
            last_ping: 0,
            logged_out: false,
        })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    pub(crate) fn set_directory(&mut self, directory: Arc<Directory>) {
        self.directory = directory;
    }

    pub(crate) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    pub(crate) fn logged_out(&self) -> bool {
        self.logged_out
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

    /// Whether the driver has yet to say where the data of a task goes.
    pub(crate) fn is_undecided(&self, task: TaskTag) -> bool {
        self.tasks.get(task).is_some_and(Task::is_undecided)
    }

    /// Deals with a header and says what its data segment is for.
    pub(crate) fn header(
        &mut self,
        bhs: &Bhs,
        ahs: &[u8],
        sender: &mut Sender,
        events: &mut VecDeque<Event>,
    ) -> Result<Expect, Violation> {
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
        match pdu {
            InitiatorPdu::ScsiCommand(command) => self.scsi_command(&command, ahs, events),
            InitiatorPdu::DataOut(data) => self.data_out(&data, sender, events),
            InitiatorPdu::NopOut(nop) => self.nop_out(nop),
            InitiatorPdu::TextRequest(text) => self.numbered(text.immediate, text.cmd_sn, Expect::Text(text)),
            InitiatorPdu::TaskManagementRequest(request) => self.task_management(&request, sender, events),
            InitiatorPdu::LogoutRequest(logout) => self.logout(&logout, sender),
            // Recovery within a connection needs ErrorRecoveryLevel 1.
            InitiatorPdu::SnackRequest(_) => {
                Err(Violation::harmless(RejectReason::SNACK_REJECT, "SNACK at recovery level 0"))
            }
            InitiatorPdu::LoginRequest(_) => {
                Err(Violation::fatal(RejectReason::PROTOCOL_ERROR, "a login request after the login"))
            }
        }
    }

    /// Deals with a data segment that has arrived and been verified.
    pub(crate) fn data(
        &mut self,
        expect: &Expect,
        segment: Vec<u8>,
        sender: &mut Sender,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Violation> {
        match expect {
            Expect::Data { task, offset, len } => self.data_verified(*task, *offset, *len, sender, events),
            Expect::Ping(nop) => self.echo(nop, segment, sender),
            Expect::Text(request) => return self.text_request(request, &segment, sender),
            Expect::Login(_) | Expect::Nothing => {}
        }
        Ok(())
    }

    // Order.

    /// Counts the number of a PDU that carries CmdSN. A PDU outside the window is ignored.
    fn numbered(&self, immediate: bool, cmd_sn: SerialNumber, expect: Expect) -> Result<Expect, Violation> {
        Ok(if self.arrive(immediate, cmd_sn)? { expect } else { Expect::Nothing })
    }

    fn arrive(&self, immediate: bool, cmd_sn: SerialNumber) -> Result<bool, Violation> {
        if immediate {
            return Ok(true);
        }
        match self.session.window().arrive(cmd_sn) {
            Arrival::Next => Ok(true),
            Arrival::Ignored => Ok(false),
            // Only another connection could bring what is missing, and there is none.
            Arrival::Early => Err(Violation::fatal(
                RejectReason::PROTOCOL_ERROR,
                format!("CmdSN {} leaves a gap on the only connection of the session", cmd_sn.0),
            )),
        }
    }
}

/// The session may outlive its connection: another one takes its place (RFC 7143 section 6.3.4). The tasks that ended with
/// this one leave the command window.
impl Drop for FullFeature {
    fn drop(&mut self) {
        let mut window = self.session.window();
        for _ in 0..self.numbered_tasks {
            window.task_ended();
        }
    }
}
