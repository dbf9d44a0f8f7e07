//! The full feature phase of one connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::Buffer;
use lunette_pdu::{
    Ahs, AsyncEvent, AsyncMessage, Bhs, Cid, DataOut, InitiatorPdu, InitiatorTaskTag, LogoutReason, LogoutRequest,
    LogoutResponse, LogoutResponseCode, LunField, NopIn, NopOut, PduError, R2t, RejectReason, ScsiCommand,
    SerialNumber, TargetTransferTag, TaskManagementFunction, TaskManagementRequest, TaskManagementResponse,
    TaskManagementResponseCode, TextRequest, TextResponse,
};

use super::connection::{Expect, Sender, Violation};
use super::data_out::Collector;
use super::directory::Directory;
use super::event::{Command, Event, Response, TaskManagement, TaskTag};
use super::login::Login;
use super::respond::{Answered, respond};
use super::session::Session;
use super::task::{Phase, Task, TaskTable};
use super::text::{Asker, Part, TextExchange};
use super::window::Arrival;
use crate::keys::Parameters;
use crate::limits::{MAX_IMMEDIATE_TASKS, MAX_OUTSTANDING_R2T, MAX_PENDING_TASK_MANAGEMENT};
use crate::outbox::Segment;

/// The transfer tag of text exchanges. A connection has one exchange at a time, so one tag is enough.
const TEXT_TAG: TargetTransferTag = TargetTransferTag(0x0007_e870);

/// A connection after its login.
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

    /// Whether the driver has yet to say where that is.
    pub(crate) fn waits_for_place(&self, expect: &Expect) -> bool {
        matches!(*expect, Expect::Data { task, .. } if self.tasks.get(task).is_some_and(Task::is_undecided))
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
            InitiatorPdu::DataOut(data) => self.data_out(&data),
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

    // SCSI commands.

    fn scsi_command(
        &mut self,
        pdu: &ScsiCommand,
        ahs: &[u8],
        events: &mut VecDeque<Event>,
    ) -> Result<Expect, Violation> {
        if !self.arrive(pdu.immediate, pdu.cmd_sn)? {
            return Ok(Expect::Nothing);
        }
        let extension = Extension::parse(ahs)?;
        let unsolicited_end = self.check_unsolicited(pdu)?;
        self.check_tags(pdu)?;
        let length = pdu.expected_data_transfer_length;
        let data_out_len = if pdu.write { length } else { 0 };
        let data_in_len = match (pdu.read, pdu.write) {
            (true, true) => extension.bidi_read_length,
            (true, false) => length,
            (false, _) => 0,
        };
        let task = Task {
            itt: pdu.itt,
            lun: pdu.lun,
            immediate: pdu.immediate,
            data_out_len,
            data_in_len,
            bidirectional: pdu.read && pdu.write,
            data: Collector::new(pdu.data_segment_len as u32, unsolicited_end),
            phase: Phase::Undecided,
        };
        let Some(tag) = self.tasks.insert(task) else {
            return Err(Violation::fatal(RejectReason::OUT_OF_RESOURCES, "more tasks than the window allows"));
        };
        if pdu.immediate {
            self.immediate_tasks += 1;
        } else {
            self.numbered_tasks += 1;
            self.session.window().task_started();
        }
        events.push_back(Event::Command(Command {
            task: tag,
            lun: pdu.lun,
            cdb: pdu.cdb,
            cdb_rest: extension.cdb_rest,
            attribute: pdu.attr,
            data_out_len,
            data_in_len,
        }));
        // Without immediate data nothing has to wait for the driver: other PDUs pass while the task runs.
        Ok(match pdu.data_segment_len as u32 {
            0 => Expect::Nothing,
            len => Expect::Data { task: tag, offset: 0, len },
        })
    }

    /// RFC 7143 sections 4.2.5.2, 13.10, 13.11 and 13.14: whether the data that comes with and after the command without
    /// being asked for is allowed. Gives the end of unsolicited Data-Out PDUs, when some are announced.
    fn check_unsolicited(&self, pdu: &ScsiCommand) -> Result<Option<u32>, Violation> {
        let broken = |why: &str| Violation::fatal(RejectReason::PROTOCOL_ERROR, why);
        let immediate_len = pdu.data_segment_len as u64;
        if immediate_len > 0 && (!pdu.write || !self.parameters.immediate_data) {
            return Err(broken("immediate data that is not allowed"));
        }
        let limit = self.parameters.effective_first_burst_len().min(pdu.expected_data_transfer_length);
        if immediate_len > u64::from(limit) {
            return Err(broken("more immediate data than FirstBurstLength or the expected length"));
        }
        if pdu.final_ {
            return Ok(None);
        }
        if !pdu.write || self.parameters.initial_r2t {
            return Err(broken("unsolicited data announced where none is allowed"));
        }
        Ok(Some(limit))
    }

    fn check_tags(&mut self, pdu: &ScsiCommand) -> Result<(), Violation> {
        if pdu.itt.is_reserved() {
            return Err(Violation::fatal(RejectReason::INVALID_PDU_FIELD, "the reserved initiator task tag"));
        }
        if let Some(tag) = self.tasks.find(pdu.itt) {
            if !self.tasks.get(tag).is_some_and(Task::is_silent) {
                return Err(Violation::harmless(RejectReason::TASK_IN_PROGRESS, "the initiator task tag is in use"));
            }
            self.tasks.remove(tag);
        }
        if pdu.immediate && self.immediate_tasks >= MAX_IMMEDIATE_TASKS {
            return Err(Violation::harmless(RejectReason::TOO_MANY_IMMEDIATE_COMMANDS, "too many immediate commands"));
        }
        Ok(())
    }

    pub(crate) fn want_data(
        &mut self,
        tag: TaskTag,
        buffer: Buffer,
        sender: &mut Sender,
        events: &mut VecDeque<Event>,
    ) {
        let Some(task) = self.tasks.get_mut(tag).filter(|task| task.is_undecided()) else { return };
        task.data.want(buffer, task.data_out_len);
        task.phase = Phase::Collecting;
        self.collect(tag, sender, events);
    }

    pub(crate) fn complete(&mut self, tag: TaskTag, response: Response, sender: &mut Sender) {
        let Some(task) = self.tasks.get(tag).filter(|task| !matches!(task.phase, Phase::Draining(_))) else { return };
        // RFC 7143 section 11.4.2: the answer waits for the last data that the initiator was allowed to send. The task keeps
        // its place in the window until then.
        if task.data.open() {
            self.tasks.end(tag, Some(response));
        } else if let Some(task) = self.tasks.remove(tag) {
            self.answer(&task, response, sender);
        }
    }

    fn answer(&mut self, task: &Task, response: Response, sender: &mut Sender) {
        self.release(task.immediate);
        respond(&Answered::from(task), response, &self.parameters, &self.session, sender);
    }

    pub(crate) fn abort(&mut self, tag: TaskTag, sender: &mut Sender) {
        let Some(immediate) = self.tasks.get(tag).map(|task| task.immediate) else { return };
        if !self.tasks.end(tag, None) {
            return;
        }
        let was_closed = self.session.window().is_closed();
        self.release(immediate);
        // No response tells the initiator that it may send again. A NOP-In without tags does (RFC 7143 section 11.19).
        if was_closed && !self.session.window().is_closed() {
            let reserved = TargetTransferTag::RESERVED;
            self.nop_in(InitiatorTaskTag::RESERVED, reserved, sender.stat_sn(), Vec::new(), sender);
        }
    }

    fn release(&mut self, immediate: bool) {
        if immediate {
            self.immediate_tasks -= 1;
        } else {
            self.numbered_tasks -= 1;
            self.session.window().task_ended();
        }
    }

    // Data-Out.

    fn data_out(&mut self, pdu: &DataOut) -> Result<Expect, Violation> {
        let found = if pdu.ttt.is_reserved() { self.tasks.find(pdu.itt) } else { self.tasks.find_by_ttt(pdu.ttt) };
        // Late data of a task that was aborted is nobody's fault (RFC 7143 section 4.2.3.3): dropped in silence.
        let Some((tag, task)) = found.and_then(|tag| Some((tag, self.tasks.get_mut(tag)?))) else {
            let named = self.tasks.find(pdu.itt).and_then(|tag| self.tasks.get(tag));
            if named.is_some_and(|task| !task.is_silent()) {
                let why = format!("transfer tag {} names no R2T of task {}", pdu.ttt, pdu.itt);
                return Err(Violation::fatal(RejectReason::PROTOCOL_ERROR, why));
            }
            return Ok(Expect::Nothing);
        };
        if task.itt != pdu.itt {
            return Err(Violation::fatal(RejectReason::INVALID_PDU_FIELD, "transfer tag and task tag do not match"));
        }
        task.data.accept(pdu).map_err(|error| Violation::fatal(RejectReason::PROTOCOL_ERROR, error.to_string()))?;
        Ok(Expect::Data { task: tag, offset: pdu.buffer_offset, len: pdu.data_segment_len as u32 })
    }

    fn data_verified(
        &mut self,
        tag: TaskTag,
        offset: u32,
        len: u32,
        sender: &mut Sender,
        events: &mut VecDeque<Event>,
    ) {
        let Some(task) = self.tasks.get_mut(tag) else { return };
        task.data.verified(offset, len);
        if matches!(task.phase, Phase::Draining(_)) {
            self.drain(tag, sender);
        } else {
            self.collect(tag, sender, events);
        }
    }

    /// Asks for what is missing, or hands over what is complete.
    fn collect(&mut self, tag: TaskTag, sender: &mut Sender, events: &mut VecDeque<Event>) {
        self.solicit(tag, sender);
        if let Some(buffer) = self.tasks.get_mut(tag).and_then(Task::start_running) {
            events.push_back(Event::DataOut { task: tag, buffer });
        }
    }

    fn solicit(&mut self, tag: TaskTag, sender: &mut Sender) {
        let at_most = self.parameters.max_outstanding_r2t.min(MAX_OUTSTANDING_R2T);
        let max_burst_len = self.parameters.max_burst_len;
        let asked = |tasks: &mut TaskTable| tasks.get_mut(tag)?.data.solicit(max_burst_len, at_most);
        while let Some(asked) = asked(&mut self.tasks) {
            let ttt = self.tasks.next_ttt(tag);
            let Some(task) = self.tasks.get_mut(tag) else { return };
            task.data.solicited(ttt, asked);
            let (exp_cmd_sn, max_cmd_sn) = self.session.command_numbers();
            let pdu = R2t {
                lun: task.lun,
                itt: task.itt,
                ttt,
                stat_sn: sender.stat_sn(),
                exp_cmd_sn,
                max_cmd_sn,
                r2t_sn: asked.r2t_sn,
                buffer_offset: asked.offset,
                desired_data_transfer_length: asked.len,
            };
            sender.outbox.push(pdu.emit(), Segment::Empty);
        }
    }

    fn drain(&mut self, tag: TaskTag, sender: &mut Sender) {
        if self.tasks.get(tag).is_none_or(|task| task.data.open()) {
            return;
        }
        let Some(mut task) = self.tasks.remove(tag) else { return };
        if let Phase::Draining(Some(response)) = std::mem::replace(&mut task.phase, Phase::Running) {
            self.answer(&task, response, sender);
        }
    }

    // Task management.

    fn task_management(
        &mut self,
        request: &TaskManagementRequest,
        sender: &mut Sender,
        events: &mut VecDeque<Event>,
    ) -> Result<Expect, Violation> {
        if !self.arrive(request.immediate, request.cmd_sn)? {
            return Ok(Expect::Nothing);
        }
        if self.pending_task_management.len() >= MAX_PENDING_TASK_MANAGEMENT {
            let why = "too many task management requests at a time";
            return Err(Violation::harmless(RejectReason::TOO_MANY_IMMEDIATE_COMMANDS, why));
        }
        self.pending_task_management.push(request.itt);
        let (at_once, referenced) = match request.function {
            TaskManagementFunction::ABORT_TASK => self.referenced_task(request),
            TaskManagementFunction::ABORT_TASK_SET
            | TaskManagementFunction::CLEAR_TASK_SET
            | TaskManagementFunction::LOGICAL_UNIT_RESET => {
                self.silence(|task| task.lun == request.lun);
                (None, None)
            }
            TaskManagementFunction::TARGET_WARM_RESET | TaskManagementFunction::TARGET_COLD_RESET => {
                self.silence(|_| true);
                (None, None)
            }
            TaskManagementFunction::TASK_REASSIGN => {
                (Some(TaskManagementResponseCode::REASSIGNMENT_NOT_SUPPORTED), None)
            }
            _ => (Some(TaskManagementResponseCode::FUNCTION_NOT_SUPPORTED), None),
        };
        match at_once {
            Some(response) => self.task_management_done(request.itt, response, sender),
            None => events.push_back(Event::TaskManagement(TaskManagement {
                itt: request.itt,
                function: request.function,
                lun: request.lun,
                referenced,
            })),
        }
        Ok(Expect::Nothing)
    }

    /// RFC 7143 section 11.6.1: a task that is gone but could still arrive counts as aborted; one that never was or has
    /// ended does not exist.
    fn referenced_task(
        &mut self,
        request: &TaskManagementRequest,
    ) -> (Option<TaskManagementResponseCode>, Option<TaskTag>) {
        let alive = |tag: &TaskTag| self.tasks.get(*tag).is_some_and(|t| !matches!(t.phase, Phase::Draining(_)));
        if let Some(tag) = self.tasks.find(request.referenced_task_tag).filter(alive) {
            return (None, Some(tag));
        }
        let response = if self.silence(|task| task.itt == request.referenced_task_tag) {
            TaskManagementResponseCode::FUNCTION_COMPLETE
        } else {
            TaskManagementResponseCode::TASK_DOES_NOT_EXIST
        };
        (Some(response), None)
    }

    /// For the driver these tasks have ended, but their responses still wait for data. None may follow the answer to their
    /// abort. True when there was one.
    fn silence(&mut self, concerned: impl Fn(&Task) -> bool) -> bool {
        let silenced = self.tasks.silence(concerned);
        for immediate in &silenced {
            self.release(*immediate);
        }
        !silenced.is_empty()
    }

    pub(crate) fn task_management_done(
        &mut self,
        itt: InitiatorTaskTag,
        response: TaskManagementResponseCode,
        sender: &mut Sender,
    ) {
        let Some(index) = self.pending_task_management.iter().position(|pending| *pending == itt) else { return };
        self.pending_task_management.swap_remove(index);
        let (exp_cmd_sn, max_cmd_sn) = self.session.command_numbers();
        let pdu = TaskManagementResponse {
            response,
            additional_response_information: [0; 3],
            itt,
            stat_sn: sender.next_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
        };
        sender.outbox.push(pdu.emit(), Segment::Empty);
    }

    // Pings, text, logout.

    fn nop_out(&self, nop: NopOut) -> Result<Expect, Violation> {
        // Without a task tag it answers our ping, or only carries numbers; nothing goes back (RFC 7143 section 11.18).
        let expect = if nop.itt.is_reserved() { Expect::Nothing } else { Expect::Ping(nop) };
        self.numbered(nop.immediate, nop.cmd_sn, expect)
    }

    fn echo(&self, nop: &NopOut, mut data: Vec<u8>, sender: &mut Sender) {
        data.truncate(self.parameters.send_data_segment_len as usize);
        let stat_sn = sender.next_stat_sn();
        self.nop_in(nop.itt, TargetTransferTag::RESERVED, stat_sn, data, sender);
    }

    /// Asks the initiator whether it is there. The next StatSN is reported, not used up (RFC 7143 section 11.19).
    pub(crate) fn ping(&mut self, sender: &mut Sender) {
        self.last_ping = (self.last_ping + 1) & 0x7fff_ffff;
        let stat_sn = sender.stat_sn();
        let ttt = TargetTransferTag(self.last_ping);
        self.nop_in(InitiatorTaskTag::RESERVED, ttt, stat_sn, Vec::new(), sender);
    }

    fn nop_in(
        &self,
        itt: InitiatorTaskTag,
        ttt: TargetTransferTag,
        stat_sn: SerialNumber,
        data: Vec<u8>,
        sender: &mut Sender,
    ) {
        let (exp_cmd_sn, max_cmd_sn) = self.session.command_numbers();
        let data_segment_len = data.len();
        let pdu = NopIn { lun: LunField([0; 8]), itt, ttt, stat_sn, exp_cmd_sn, max_cmd_sn, data_segment_len };
        sender.outbox.push(pdu.emit(), Segment::owned(data));
    }

    fn text_request(&mut self, request: &TextRequest, data: &[u8], sender: &mut Sender) -> Result<(), Violation> {
        let asker = Asker { directory: &self.directory, session: &self.session, local: self.local };
        let Part { text, continue_, final_ } = self
            .text
            .request(request, data, &asker, &mut self.parameters)
            .map_err(|error| Violation::harmless(RejectReason::PROTOCOL_ERROR, error.to_string()))?;
        let (exp_cmd_sn, max_cmd_sn) = self.session.command_numbers();
        let pdu = TextResponse {
            final_,
            continue_,
            lun: request.lun,
            itt: request.itt,
            ttt: if final_ { TargetTransferTag::RESERVED } else { TEXT_TAG },
            stat_sn: sender.next_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
            data_segment_len: text.len(),
        };
        sender.outbox.push(pdu.emit(), Segment::owned(text));
        Ok(())
    }

    fn logout(&mut self, request: &LogoutRequest, sender: &mut Sender) -> Result<Expect, Violation> {
        if !self.arrive(request.immediate, request.cmd_sn)? {
            return Ok(Expect::Nothing);
        }
        let response = match request.reason {
            LogoutReason::CLOSE_SESSION => LogoutResponseCode::CLOSED,
            LogoutReason::CLOSE_CONNECTION if request.cid == self.cid => LogoutResponseCode::CLOSED,
            LogoutReason::CLOSE_CONNECTION => LogoutResponseCode::CID_NOT_FOUND,
            LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY => LogoutResponseCode::RECOVERY_NOT_SUPPORTED,
            _ => return Err(Violation::fatal(RejectReason::INVALID_PDU_FIELD, "unknown logout reason")),
        };
        let (exp_cmd_sn, max_cmd_sn) = self.session.command_numbers();
        let pdu = LogoutResponse {
            response,
            itt: request.itt,
            stat_sn: sender.next_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
            time2wait: self.parameters.time2wait_s as u16,
            time2retain: self.parameters.time2retain_s as u16,
        };
        sender.outbox.push(pdu.emit(), Segment::Empty);
        self.logged_out = response == LogoutResponseCode::CLOSED;
        Ok(Expect::Nothing)
    }

    /// RFC 7143 section 11.9.1, event 1: the target asks for a logout; Parameter3 is the time that it gives, in seconds.
    pub(crate) fn request_logout(&mut self, grace: Duration, sender: &mut Sender) {
        let (exp_cmd_sn, max_cmd_sn) = self.session.command_numbers();
        let pdu = AsyncMessage {
            lun: LunField([0; 8]),
            stat_sn: sender.next_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
            event: AsyncEvent::LOGOUT_REQUEST,
            vcode: 0,
            parameter1: 0,
            parameter2: 0,
            parameter3: u16::try_from(grace.as_secs()).unwrap_or(u16::MAX),
            data_segment_len: 0,
        };
        sender.outbox.push(pdu.emit(), Segment::Empty);
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

/// What additional header segments say about a command.
struct Extension {
    cdb_rest: Box<[u8]>,
    bidi_read_length: u32,
}

impl Extension {
    fn parse(ahs: &[u8]) -> Result<Self, Violation> {
        let mut extension = Self { cdb_rest: Box::default(), bidi_read_length: 0 };
        for segment in Ahs::iter(ahs) {
            let invalid = |why: String| Violation::fatal(RejectReason::INVALID_PDU_FIELD, why);
            match segment.map_err(|error| invalid(error.to_string()))? {
                Ahs::ExtendedCdb(rest) if extension.cdb_rest.is_empty() => extension.cdb_rest = rest.into(),
                Ahs::BidiReadLength(length) => extension.bidi_read_length = length,
                Ahs::ExtendedCdb(_) => return Err(invalid("two extended CDBs".into())),
                Ahs::Unknown { ahs_type, .. } => return Err(invalid(format!("unknown AHS type {ahs_type}"))),
            }
        }
        Ok(extension)
    }
}
