//! One connection: its stream, its phases, its patience.

use std::collections::VecDeque;

use lunette_pdu::{AsyncMessage, Cid, DataIn, DataInStatus, LoginResponse, SerialNumber, TargetPdu, Tsih};

use super::error::{LoginError, SessionError, broken};
use super::event::{Event, TaskTag};
use super::full_feature::{Context, FullFeature, data_in_ended};
use super::login::{Login, Outcome, Step};
use super::sender::Sender;
use super::shared::Shared;
use super::table::Table;
use super::task::Task;
use super::window::Window;
use crate::keys::Digest;
use crate::limits::LOGIN_DATA_SEGMENT_BYTES;
use crate::outbox::{Outbox, Piece, Segment};
use crate::receiver::{FrameError, Receiver, Stage};
use crate::{Entropy, Time, Timers, Traffic};

/// What the data segment of the header that has just been read is for.
pub(super) enum Expect {
    /// Nothing.
    Nothing,
    /// It is collected, and handled with its header.
    Segment(TargetPdu),
    /// Bytes `offset..offset + len` of a task; with the status when it ends there.
    Data { task: TaskTag, offset: u32, len: u32, status: Option<DataInStatus> },
    /// The same at a recovery level above 0: only what arrives undamaged counts.
    Recoverable(DataIn),
}

impl Expect {
    /// Where the bytes go, when they belong to a task.
    fn place<'a>(&self, tasks: &'a mut Table<Task>) -> Option<&'a mut [u8]> {
        let (task, offset, len) = match self {
            Self::Data { task, offset, len, .. } => (*task, *offset, *len),
            Self::Recoverable(pdu) => (TaskTag::from_itt(pdu.itt), pdu.buffer_offset, pdu.data_segment_len as u32),
            Self::Nothing | Self::Segment(_) => return None,
        };
        tasks.get_mut(task).map(|task| task.place(offset, len))
    }
}

enum Phase {
    Login(Box<Login>),
    FullFeature(Box<FullFeature>),
    Closed,
}

pub(super) struct Connection {
    cid: Cid,
    receiver: Receiver,
    sender: Sender,
    phase: Phase,
    expect: Expect,
    /// Data segments of PDUs that are not for a task. Kept for the next one.
    segment: Vec<u8>,
    events: VecDeque<Event>,
    timers: Timers,
    deadline: Option<(Time, SessionError)>,
    last_received: Time,
    /// Its end is one of the session: it leads, or has carried commands.
    carries_session: bool,
    /// Another one had its number before.
    is_successor: bool,
    /// A Data-In whose segment had not come whole when the connection ended.
    cut_short: Option<DataIn>,
    /// Time2Wait and Time2Retain in seconds, when the target has announced the end of the connection.
    announced: Option<(u32, u32)>,
}

impl Connection {
    /// Begins a login.
    pub(super) fn new(cid: Cid, shared: &mut Shared, entropy: Entropy, now: Time) -> Self {
        let timers = shared.config.timers;
        let leads = shared.tsih == Tsih::NEW;
        let mut connection = Self {
            cid,
            receiver: Receiver::new(LOGIN_DATA_SEGMENT_BYTES),
            sender: Sender::default(),
            phase: Phase::Closed,
            expect: Expect::Nothing,
            segment: Vec::new(),
            events: VecDeque::new(),
            timers,
            deadline: Some((now + timers.login, LoginError::Timeout.into())),
            last_received: now,
            carries_session: leads,
            is_successor: false,
            cut_short: None,
            announced: None,
        };
        if let Some(lost) = shared.lost.get(cid) {
            // RFC 7143 section 11.12.9: the first request of a login that restarts a connection says what came on the old one.
            connection.sender.expect_status(lost.exp_stat_sn);
        }
        shared.add_connection(cid);
        if leads {
            shared.window = Window::new(entropy.first_serial_number());
        }
        match Login::start(&shared.config, cid, shared.tsih, shared.window.cmd_sn(), entropy) {
            Ok((login, first)) => {
                connection.phase = Phase::Login(Box::new(login));
                connection.login_step(first, shared, now);
            }
            Err(error) => connection.end(error),
        }
        connection
    }

    /// A connection that the session cannot have: [`Event::Closed`] is all that comes of it.
    pub(super) fn refused(cid: Cid, timers: Timers, now: Time) -> Self {
        let why = LoginError::Incompatible("MaxConnections".into()).into();
        Self {
            cid,
            receiver: Receiver::new(LOGIN_DATA_SEGMENT_BYTES),
            sender: Sender::default(),
            phase: Phase::Closed,
            expect: Expect::Nothing,
            segment: Vec::new(),
            events: VecDeque::from([Event::Closed { cid, why }]),
            timers,
            deadline: None,
            last_received: now,
            carries_session: false,
            is_successor: false,
            cut_short: None,
            announced: None,
        }
    }

    /// Another one had its number before.
    pub(super) fn into_successor(self) -> Self {
        Self { is_successor: true, ..self }
    }

    pub(super) fn is_successor(&self) -> bool {
        self.is_successor
    }

    pub(super) fn cid(&self) -> Cid {
        self.cid
    }

    /// Whether it is closed, and its driver knows.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed() && self.events.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// The full feature phase with what it works on.
    fn split<'a>(&'a mut self, shared: &'a mut Shared) -> Option<(&'a mut FullFeature, Context<'a>)> {
        let Phase::FullFeature(full) = &mut self.phase else { return None };
        let (sender, events) = (&mut self.sender, &mut self.events);
        Some((full, Context { cid: self.cid, shared, sender, events, now: self.last_received }))
    }

    /// The same, while requests may be sent.
    pub(super) fn for_requests<'a>(&'a mut self, shared: &'a mut Shared) -> Option<(&'a mut FullFeature, Context<'a>)> {
        let (full, context) = self.split(shared)?;
        let takes = full.takes_requests() && !context.shared.logging_out;
        takes.then_some((full, context))
    }

    /// The same for what another connection leaves behind. It is no work of this one, so its events go elsewhere.
    pub(super) fn for_recovery<'a>(
        &'a mut self,
        shared: &'a mut Shared,
        events: &'a mut VecDeque<Event>,
    ) -> Option<(&'a mut FullFeature, Context<'a>)> {
        let (full, context) = self.for_requests(shared)?;
        Some((full, Context { events, ..context }))
    }

    /// The connection is lost: nothing more is sent on it, and what came in part did not come. Gives the next StatSN that was
    /// expected.
    pub(super) fn clear(&mut self, shared: &mut Shared) -> SerialNumber {
        self.sender.outbox = Outbox::default();
        if let Some(pdu) = self.cut_short.take()
            && let Some(task) = shared.tasks.get_mut(TaskTag::from_itt(pdu.itt))
        {
            // As good as damaged. An error would be one of the target, which is gone.
            let _ = task.data_in_damaged(&pdu);
        }
        self.sender.exp_stat_sn()
    }

    /// Time2Wait and Time2Retain in seconds, when the target has announced the end of the connection.
    pub(super) fn announced_times(&self) -> Option<(u32, u32)> {
        self.announced
    }

    /// It does not leave, for there is no other connection any more.
    pub(super) fn stay(&mut self) {
        if let Phase::FullFeature(full) = &mut self.phase {
            full.stay();
        }
    }

    /// The target says over another connection that it has dropped this one.
    pub(super) fn dropped(&mut self, message: &AsyncMessage) -> VecDeque<Event> {
        let Phase::FullFeature(full) = &mut self.phase else { return VecDeque::new() };
        full.drop_announced(message);
        self.close(SessionError::Dropped);
        std::mem::take(&mut self.events)
    }

    /// Whether the target still has this connection is not certain: it has to give a sign of life.
    pub(super) fn doubt(&mut self, shared: &mut Shared, now: Time) {
        let Some((full, mut context)) = self.split(shared) else { return };
        full.keep_alive(&mut context);
        self.deadline.get_or_insert((now + self.timers.ping_answer, SessionError::PingTimeout));
    }

    pub(super) fn takes_requests(&self) -> bool {
        matches!(&self.phase, Phase::FullFeature(full) if full.takes_requests())
    }

    pub(super) fn carries_session(&self) -> bool {
        self.carries_session
    }

    /// No more commands go over the connection; when those under way have ended, it logs out.
    pub(super) fn leave(&mut self, shared: &mut Shared) {
        if let Phase::FullFeature(full) = &mut self.phase {
            full.leave();
            self.log_out_if_idle(shared);
        }
    }

    fn log_out_if_idle(&mut self, shared: &mut Shared) {
        let Some((full, mut context)) = self.split(shared) else { return };
        if full.log_out_if_idle(&mut context) {
            self.expect_logout();
        }
    }

    /// The end of the session was asked for: no more data follows.
    pub(super) fn stop_data(&mut self) {
        self.sender.stop_data();
    }

    pub(super) fn full_feature(&self) -> Option<&FullFeature> {
        if let Phase::FullFeature(full) = &self.phase { Some(full) } else { None }
    }

    // Bytes in.

    pub(super) fn next_event(&mut self, shared: &mut Shared, input: &mut &[u8], now: Time) -> Option<Event> {
        if !input.is_empty() {
            self.heard(now);
        }
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let moved = match self.advance(shared, input, now) {
                Ok(moved) => moved,
                Err(error) => {
                    self.close(error);
                    true
                }
            };
            if !moved {
                self.fill(shared);
                self.log_out_if_idle(shared);
                return None;
            }
        }
    }

    /// An event that has not been told.
    pub(super) fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn direct<'a>(&mut self, shared: &'a mut Shared) -> Option<&'a mut [u8]> {
        let place = self.expect.place(&mut shared.tasks)?;
        self.receiver.direct(place)
    }

    pub(super) fn direct_received(&mut self, shared: &mut Shared, len: usize, now: Time) {
        self.heard(now);
        if let Some(place) = self.expect.place(&mut shared.tasks) {
            self.receiver.direct_filled(place, len);
        }
    }

    // Bytes out.

    pub(super) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.sender.outbox.slices()
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        self.sender.outbox.pieces()
    }

    pub(super) fn sent(&mut self, shared: &mut Shared, len: usize) {
        self.sender.outbox.sent(len);
        self.fill(shared);
    }

    pub(super) fn take_traffic(&mut self) -> Traffic {
        Traffic { sent_pdus: self.sender.outbox.take_queued_pdus(), ..self.receiver.take_traffic() }
    }

    /// When bytes came last.
    pub(super) fn heard_at(&self) -> Time {
        self.last_received
    }

    pub(super) fn has_output(&self) -> bool {
        !self.sender.outbox.is_empty()
    }

    /// Cuts waiting data to PDUs, as far as there is room.
    pub(super) fn fill(&mut self, shared: &mut Shared) {
        if let Phase::FullFeature(full) = &self.phase {
            self.sender.fill(&mut shared.tasks, full.parameters().send_data_segment_len);
        }
    }

    // Time, and the end.

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let resend = self.full_feature().and_then(|full| full.resend_timeout(self.timers.resend));
        self.patience().into_iter().chain(resend).min()
    }

    /// When the silence of the target means something.
    fn patience(&self) -> Option<Time> {
        let silence = match &self.phase {
            Phase::FullFeature(_) if self.deadline.is_none() => Some(self.last_received + self.timers.ping_after),
            _ => None,
        };
        silence.or(self.deadline.as_ref().map(|(at, _)| *at))
    }

    pub(super) fn time_has_come(&mut self, shared: &mut Shared, now: Time) {
        if let Err(error) = self.ask_again(shared, now) {
            return self.close(error);
        }
        if self.patience().is_none_or(|at| at > now) {
            return;
        }
        if let Some((_, why)) = self.deadline.take() {
            self.close(why);
        } else if let Some((full, mut context)) = self.split(shared) {
            full.keep_alive(&mut context);
            self.deadline = Some((now + self.timers.ping_answer, SessionError::PingTimeout));
        }
    }

    /// Asks again for what was lost and has not come in time.
    fn ask_again(&mut self, shared: &mut Shared, now: Time) -> Result<(), SessionError> {
        match self.split(shared) {
            Some((full, mut context)) if full.recovers() => {
                let heard = std::mem::replace(&mut context.now, now);
                full.ask_again(heard, &mut context)
            }
            _ => Ok(()),
        }
    }

    /// A logout is out: it has the time of a ping to be answered. The target was heard at most `ping_after` ago.
    pub(super) fn expect_logout(&mut self) {
        let silence = self.timers.ping_after + self.timers.ping_answer;
        self.deadline = Some((self.last_received + silence, SessionError::PingTimeout));
    }

    pub(super) fn disconnected(&mut self) {
        match &self.phase {
            Phase::Login(_) => self.close(SessionError::Disconnected),
            Phase::FullFeature(full) => self.close(full.lost()),
            Phase::Closed => {}
        }
    }

    // Inside.

    /// Whatever comes is a sign of life.
    fn heard(&mut self, now: Time) {
        self.last_received = now;
        if matches!(&self.phase, Phase::FullFeature(full) if !full.is_logging_out()) {
            self.deadline = None;
        }
    }

    pub(super) fn close(&mut self, why: SessionError) {
        if !self.is_closed() {
            self.end(why);
        }
    }

    fn end(&mut self, why: SessionError) {
        self.over();
        self.events.push_back(Event::Closed { cid: self.cid, why });
    }

    fn over(&mut self) {
        if let Phase::FullFeature(full) = &self.phase {
            self.announced = full.announced();
        }
        if let Expect::Recoverable(pdu) = self.expect {
            self.cut_short = Some(pdu);
        }
        self.phase = Phase::Closed;
        self.deadline = None;
        self.expect = Expect::Nothing;
        self.sender.stop_data();
    }

    /// Moves on by one header or one data segment. False when that needs more bytes.
    fn advance(&mut self, shared: &mut Shared, input: &mut &[u8], now: Time) -> Result<bool, SessionError> {
        if self.is_closed() {
            *input = &[];
            return Ok(false);
        }
        match self.receiver.stage() {
            Stage::Header => self.advance_header(shared, input),
            Stage::Data => self.advance_data(shared, input, now),
        }
    }

    fn advance_header(&mut self, shared: &mut Shared, input: &mut &[u8]) -> Result<bool, SessionError> {
        if let Phase::FullFeature(full) = &self.phase {
            self.receiver.limit_segments(full.receive_limit());
        }
        let complete = self.receiver.header(input)?;
        let lost = self.receiver.take_lost_headers();
        if lost > 0 {
            shared.recoveries.lost_headers += lost;
            self.probe(shared);
        }
        if !complete {
            return Ok(false);
        }
        let bhs = self.receiver.bhs();
        let pdu = TargetPdu::parse(bhs).map_err(|error| broken("7.7", error.to_string()))?;
        let (opcode, segment_len) = (bhs.opcode(), bhs.data_segment_len());
        self.expect = match (self.split(shared), pdu) {
            (Some((full, mut context)), pdu) => full.header(pdu, &mut context)?,
            (None, TargetPdu::LoginResponse(_)) => Expect::Segment(pdu),
            _ => return Err(broken("6.3", format!("{opcode} before the login has ended"))),
        };
        if matches!(self.expect, Expect::Segment(_)) {
            self.segment.clear();
            self.segment.resize(segment_len, 0);
        }
        Ok(true)
    }

    fn advance_data(&mut self, shared: &mut Shared, input: &mut &[u8], now: Time) -> Result<bool, SessionError> {
        let place = match &self.expect {
            Expect::Segment(_) => &mut self.segment[..],
            expect => expect.place(&mut shared.tasks).unwrap_or_default(),
        };
        match self.receiver.data(input, place) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(FrameError::DataDigest) if self.recovers() => return self.damaged(shared).map(|()| true),
            Err(error) => return Err(error.into()),
        }
        let expect = std::mem::replace(&mut self.expect, Expect::Nothing);
        match (&expect, &self.phase) {
            (Expect::Nothing | Expect::Data { status: None, .. }, _) => {}
            (Expect::Segment(TargetPdu::LoginResponse(response)), Phase::Login(_)) => {
                self.login_response(response, shared, now)?;
            }
            (expect, _) => self.pdu(expect, shared)?,
        }
        Ok(true)
    }

    /// A PDU of the full feature phase has come to its end.
    fn pdu(&mut self, expect: &Expect, shared: &mut Shared) -> Result<(), SessionError> {
        let segment = std::mem::take(&mut self.segment);
        let Some((full, mut context)) = self.split(shared) else { return Ok(()) };
        let outcome = match expect {
            Expect::Data { task, status: Some(status), .. } => data_in_ended(*task, *status, &mut context),
            Expect::Recoverable(pdu) => full.data_in_arrived(pdu, &mut context),
            Expect::Segment(pdu) => full.pdu(pdu, &segment, &mut context),
            Expect::Data { .. } | Expect::Nothing => Ok(()),
        };
        self.segment = segment;
        outcome
    }

    /// A PDU was lost, and nobody knows which: the answer to a ping has a status number, so it tells of all responses before.
    fn probe(&mut self, shared: &mut Shared) {
        if let Some((full, mut context)) = self.split(shared)
            && full.recovers()
        {
            full.keep_alive(&mut context);
        }
    }

    fn recovers(&self) -> bool {
        matches!(&self.phase, Phase::FullFeature(full) if full.recovers())
    }

    /// The data segment that has just ended is damaged.
    fn damaged(&mut self, shared: &mut Shared) -> Result<(), SessionError> {
        let expect = std::mem::replace(&mut self.expect, Expect::Nothing);
        let Some((full, mut context)) = self.split(shared) else { return Ok(()) };
        context.shared.recoveries.damaged_pdus += 1;
        match expect {
            Expect::Segment(pdu) => full.damaged(&pdu, &mut context),
            Expect::Recoverable(pdu) => full.data_in_damaged(&pdu, &mut context),
            Expect::Data { .. } | Expect::Nothing => Ok(()),
        }
    }

    fn login_response(&mut self, pdu: &LoginResponse, shared: &mut Shared, now: Time) -> Result<(), SessionError> {
        let Phase::Login(login) = &mut self.phase else { return Ok(()) };
        if pdu.status.is_success() {
            if login.is_first_response() {
                self.sender.first_status(pdu.stat_sn);
            } else {
                self.sender.status(pdu.stat_sn)?;
            }
        }
        let step = login.response(pdu, &self.segment)?;
        if matches!(step, Step::Done(_)) {
            shared.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
        }
        self.login_step(step, shared, now);
        Ok(())
    }

    fn login_step(&mut self, step: Step, shared: &mut Shared, now: Time) {
        match step {
            Step::Send(mut request, text) => {
                request.exp_stat_sn = self.sender.exp_stat_sn();
                self.sender.outbox.push(request.emit(), Segment::owned(text));
            }
            Step::Redirected { addresses, permanent } => {
                self.over();
                self.events.push_back(Event::Redirected { cid: self.cid, addresses, permanent });
            }
            Step::Done(outcome) => {
                if let Err(error) = self.logged_in(*outcome, shared, now) {
                    self.close(error);
                }
            }
        }
    }

    fn logged_in(&mut self, outcome: Outcome, shared: &mut Shared, now: Time) -> Result<(), SessionError> {
        let Outcome { tsih, mut parameters, alias, portal_group } = outcome;
        if shared.tsih == Tsih::NEW {
            (shared.tsih, shared.alias, shared.portal_group) = (tsih, alias, portal_group);
            shared.parameters = parameters.clone();
        } else {
            if portal_group.is_some() && portal_group != shared.portal_group {
                return Err(broken("13.9", "a connection of the session leads to another portal group"));
            }
            parameters = parameters.within(&shared.parameters);
        }
        self.carries_session = true;
        let digests = (parameters.header_digest == Digest::Crc32c, parameters.data_digest == Digest::Crc32c);
        self.receiver.configure(digests.0, digests.1, parameters.recv_data_segment_len);
        self.sender.outbox.configure(digests.0, digests.1);
        let markers = parameters.marker_intervals();
        self.receiver.start_markers(markers.in_, parameters.error_recovery_level > 0);
        self.sender.outbox.start_markers(markers.out);
        self.phase = Phase::FullFeature(Box::new(FullFeature::new(self.cid, parameters)));
        self.deadline = None;
        self.last_received = now;
        self.events.push_back(Event::LoggedIn(self.cid));
        Ok(())
    }
}
