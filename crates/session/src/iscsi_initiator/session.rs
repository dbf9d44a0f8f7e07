//! The session: the driver's face of the protocol.

mod lost;
mod retry;

use std::collections::VecDeque;
use std::ops::ControlFlow;

use lunette_buffer::PayloadRef;
use lunette_pdu::{AsyncEvent, BHS_LEN, Cid, LunField, TaskManagementFunction, Tsih};

use super::config::SessionConfig;
use super::connection::Connection;
use super::connection::placing::Placement;
use super::error::SessionError;
use super::event::{Command, Event, Response, TaskTag};
use super::full_feature::FullFeature;
use super::full_feature::task_management::manage_tasks;
use super::lost::Stage;
use super::recoveries::Recoveries;
use super::shared::Shared;
use crate::keys::Parameters;
use crate::limits::{RUN_COMMANDS, RUN_DATA_BYTES};
use crate::outbox::Pieces;
use crate::{Entropy, OutgoingPdu, ProvenSecrets, Time, Traffic};

/// One session with all of its connections. See the module's documentation for the contract.
pub struct Session {
    shared: Shared,
    connections: Vec<Connection>,
    /// Where the last command went.
    last_used: usize,
    /// Commands that went there in a row.
    run: u32,
    /// Events that belong to no connection.
    news: VecDeque<Event>,
}

impl Session {
    /// A session without connections.
    pub fn new(config: SessionConfig) -> Self {
        Self { shared: Shared::new(config), connections: Vec::new(), last_used: 0, run: 0, news: VecDeque::new() }
    }

    /// Begins the login of a connection over a stream that has just been opened. The first one leads; when it is logged
    /// in, others may join it, as many as `MaxConnections` allows. One that may not is closed at once.
    pub fn connect(&mut self, entropy: Entropy, now: Time) -> Cid {
        let place = if self.wants_connection() { self.place_to_fill() } else { None };
        let is_free = |connection: &Connection| connection.is_done() && !self.shared.lost.holds(connection.cid());
        let free = place.map(|cid| cid.0.into()).or_else(|| self.connections.iter().position(is_free));
        let cid = Cid(free.unwrap_or(self.connections.len()) as u16);
        let open = self.connections.iter().filter(|connection| !connection.is_closed()).count();
        let may_lead = !self.shared.agreed.is_begun() && self.connections.is_empty();
        let may_join = self.shared.agreed.is_begun() && open < self.shared.agreed.parameters().max_connections as usize;
        let connection = if may_lead || (may_join && self.shared.over.is_none() && !self.shared.logging_out) {
            Connection::new(cid, &mut self.shared, entropy, now)
        } else {
            Connection::refused(cid, self.shared.config.timers, now)
        };
        self.shared.lost.set(cid, Stage::LoggingOut);
        match free {
            Some(index) => self.connections[index] = connection.into_successor(),
            None => self.connections.push(connection),
        }
        cid
    }

    /// Whether the session was asked to end. The target closes all connections then, some perhaps before it answers
    /// (RFC 7143 section 11.14), and none is lost by that.
    pub fn is_logging_out(&self) -> bool {
        self.shared.logging_out
    }

    /// Whether the session has ended: by a logout, or because a connection was lost, which only recovery level 2
    /// survives (RFC 7143 sections 7.14 and 7.1.4.4). A connection that could not join changes nothing.
    pub fn is_over(&self) -> bool {
        self.shared.over.is_some()
    }

    /// Why the session has ended. A session whose wait for a connection fails ends without an event.
    pub fn why_over(&self) -> Option<&SessionError> {
        self.shared.over.as_ref()
    }

    /// Takes a connection out of the session: no more commands go over it, and when those under way have ended it is
    /// logged out. [`Event::Closed`] with [`SessionError::ConnectionRemoved`] follows. False when there is no other
    /// connection.
    pub fn remove_connection(&mut self, cid: Cid) -> bool {
        let others = self.connections.iter().filter(|other| other.cid() != cid && other.takes_requests()).count();
        let Some((connection, shared)) = self.connection_mut(cid).filter(|(known, _)| known.takes_requests()) else {
            return false;
        };
        if others > 0 {
            connection.leave(shared);
        }
        others > 0
    }

    /// The stream of a connection is gone. [`Event::Closed`] follows, unless it came before.
    pub fn disconnected(&mut self, cid: Cid, _now: Time) {
        if let Some((connection, _)) = self.connection_mut(cid) {
            connection.disconnected();
        }
    }

    /// The negotiated parameters of a connection, once it is in full feature phase.
    pub fn parameters(&self, cid: Cid) -> Option<&Parameters> {
        self.connection(cid)?.full_feature().map(FullFeature::parameters)
    }

    /// Whether the features of RFC 7144 may be used: iSCSIProtocolLevel 2 was agreed on.
    pub fn has_sam5_features(&self) -> bool {
        self.shared.agreed.parameters().has_sam5_features()
    }

    /// The secrets that the first login has proven.
    pub fn proven_secrets(&self) -> &ProvenSecrets {
        self.shared.agreed.secrets()
    }

    /// TargetAlias, as the login told it.
    pub fn target_alias(&self) -> Option<&str> {
        self.shared.agreed.alias()
    }

    /// The target portal group tag, as the login told it.
    pub fn target_portal_group(&self) -> Option<u16> {
        self.shared.agreed.portal_group()
    }

    /// The target's part of the session's name; [`Tsih::NEW`] before the first login has ended.
    pub fn tsih(&self) -> Tsih {
        self.shared.agreed.tsih()
    }

    /// The losses and recoveries so far, by kind.
    pub fn recoveries(&self) -> &Recoveries {
        &self.shared.recoveries
    }

    // Bytes and time.

    /// Consumes bytes from the front of `input` up to the next event of any kind.
    pub fn next_event(&mut self, cid: Cid, input: &mut &[u8], now: Time) -> Option<Event> {
        let mut completed = None;
        let event = self.advance(cid, input, now, |command, response| {
            completed = Some(Event::completed(command, response));
            ControlFlow::Break(())
        });
        completed.or(event)
    }

    /// Gives the next event as [`next_event`](Self::next_event) does, but for commands that have ended at the target:
    /// `ended` is told of each on the way, and takes the memory out of the command where it is. No [`Event::Completed`]
    /// is made.
    #[inline]
    pub fn next_other_event(
        &mut self,
        cid: Cid,
        input: &mut &[u8],
        now: Time,
        mut ended: impl FnMut(&mut Command, &mut Response),
    ) -> Option<Event> {
        loop {
            let event = self.advance(cid, input, now, |command, response| {
                ended(command, response);
                ControlFlow::Continue(())
            });
            match event {
                Some(Event::Completed { mut command, mut response }) => ended(&mut command, &mut response),
                event => return event,
            }
        }
    }

    /// Consumes bytes up to the next event. The ends of commands that go the straight way are `told`, until that breaks
    /// off.
    #[inline]
    fn advance(
        &mut self,
        cid: Cid,
        input: &mut &[u8],
        now: Time,
        mut told: impl FnMut(&mut Command, &mut Response) -> ControlFlow<()>,
    ) -> Option<Event> {
        loop {
            if self.news.is_empty() {
                let recovers = self.shared.agreed.parameters().error_recovery_level > 0;
                let (connection, shared) = self.connection_mut(cid)?;
                if !input.is_empty() {
                    connection.heard(now);
                }
                if connection.straight(shared, input, &mut told).is_break() {
                    return None;
                }
                if !recovers && connection.waits_for_bytes(input) {
                    return None;
                }
            }
            if let ControlFlow::Break(event) = self.step(cid, input, now) {
                return event;
            }
        }
    }

    /// Moves on by what does not go the straight way. Breaks with an event, or when all that can be done is done.
    #[inline(never)]
    fn step(&mut self, cid: Cid, input: &mut &[u8], now: Time) -> ControlFlow<Option<Event>> {
        if let Some(news) = self.news.pop_front() {
            return ControlFlow::Break(Some(news));
        }
        let Some((connection, shared)) = self.connection_mut(cid) else { return ControlFlow::Break(None) };
        let ControlFlow::Break(event) = connection.step(shared, input, now) else { return ControlFlow::Continue(()) };
        if let Some(event) = &event {
            self.note(cid, event, now);
        }
        if self.shared.agreed.parameters().error_recovery_level > 0 {
            self.watch(now);
        }
        if self.shared.lost.is_idle() {
            return ControlFlow::Break(event);
        }
        self.recover(now);
        ControlFlow::Break(match event.or_else(|| self.news.pop_front()) {
            // Its end may have come of that.
            None if self.is_over() => self.connection_mut(cid).and_then(|(connection, _)| connection.take_event()),
            event => event,
        })
    }

    /// Notes the meaning of a connection's event for the others.
    fn note(&mut self, cid: Cid, event: &Event, now: Time) {
        match event {
            Event::Closed { why, .. } => self.closed(cid, why, now),
            // The login of a connection with its CID has logged the lost one out.
            Event::LoggedIn(_) => self.shared.lost.set(cid, Stage::LoggedOut),
            Event::Redirected { .. } => self.shared.lost.set(cid, Stage::Lost),
            Event::Async { message, .. } if message.event == AsyncEvent::CONNECTION_DROP => {
                self.dropped(cid, message, now);
            }
            _ => {}
        }
    }

    /// A connection is over: is the session?
    fn closed(&mut self, cid: Cid, why: &SessionError, now: Time) {
        let carried = self.connection(cid).is_some_and(Connection::carries_session);
        let others = self.connections.iter().any(|other| !other.is_closed() && other.carries_session());
        let expected = match why {
            SessionError::ConnectionRemoved => true,
            // The target closes all connections; the answer to the logout may come last.
            SessionError::Disconnected | SessionError::Dropped => self.shared.logging_out,
            _ => false,
        };
        if !carried {
            return self.login_failed(cid, why);
        }
        // A lost connection is one that can come back.
        if expected && (others || !self.shared.lost.is_idle()) {
            return;
        }
        if self.is_recoverable(why) {
            return self.begin_recovery(cid, now);
        }
        self.end(why.clone());
    }

    fn end(&mut self, why: SessionError) {
        for connection in &mut self.connections {
            connection.close(why.clone());
        }
        self.shared.lost.clear();
        self.shared.over.get_or_insert(why);
    }

    /// Where the next bytes of the connection should be received into, when they belong to a large data segment.
    pub fn direct(&mut self, cid: Cid) -> Option<&mut [u8]> {
        let (connection, shared) = self.connection_mut(cid)?;
        connection.direct(shared)
    }

    /// `len` bytes were received where [`direct`](Self::direct) said.
    pub fn direct_received(&mut self, cid: Cid, len: usize, now: Time) {
        if let Some((connection, shared)) = self.connection_mut(cid) {
            connection.direct_received(shared, len, now);
        }
    }

    /// The place of `len` bytes that stand `pdu_offset` bytes behind the basic header segment of a PDU that is not due
    /// yet: for a transport whose packets may overtake each other. `None`: they have no place now. The caller keeps
    /// them until their turn.
    pub fn place_early(
        &mut self,
        cid: Cid,
        bhs: &[u8; BHS_LEN],
        pdu_offset: u32,
        len: usize,
    ) -> Option<(Placement, &mut [u8])> {
        let (connection, shared) = self.connection_mut(cid)?;
        connection.place_early(shared, bhs, pdu_offset, len)
    }

    /// The next `len` bytes of the stream were placed, `skipped` bytes behind the front of what
    /// [`place_early`](Self::place_early) gave. False when they are due elsewhere: then the peer has sent two headers
    /// for them, and the connection has to end.
    pub fn placed(&mut self, cid: Cid, placement: Placement, skipped: usize, len: usize, now: Time) -> bool {
        self.connection_mut(cid).is_some_and(|(connection, _)| connection.placed(placement, skipped, len, now))
    }

    /// Takes the first PDU that is ready to be sent, for a transport that keeps PDUs apart: instead of
    /// [`pieces`](Self::pieces) and [`sent`](Self::sent), on a connection without digests and markers.
    pub fn take_pdu(&mut self, cid: Cid) -> Option<OutgoingPdu> {
        let (connection, shared) = self.connection_mut(cid)?;
        connection.take_pdu(shared)
    }

    /// The bytes that are ready to be sent, in order.
    pub fn slices(&self, cid: Cid) -> impl Iterator<Item = &[u8]> {
        self.connection(cid).into_iter().flat_map(Connection::slices)
    }

    /// The pieces with the buffers that their data lies in, for a driver that may keep them. Nothing of it lies in
    /// files.
    #[inline]
    pub fn pieces(&self, cid: Cid) -> impl Iterator<Item = PayloadRef<'_>> {
        self.connection(cid).map_or_else(Pieces::default, Connection::pieces)
    }

    /// The first `len` of these bytes are on their way. More may be ready then.
    pub fn sent(&mut self, cid: Cid, len: usize) {
        if let Some((connection, shared)) = self.connection_mut(cid) {
            connection.sent(shared, len);
        }
    }

    /// The traffic of the connection since the last call.
    pub fn take_traffic(&mut self, cid: Cid) -> Traffic {
        self.connection_mut(cid).map(|(connection, _)| connection.take_traffic()).unwrap_or_default()
    }

    /// Whether there is anything to send on the connection.
    pub fn has_output(&self, cid: Cid) -> bool {
        self.connection(cid).is_some_and(Connection::has_output)
    }

    /// When [`time_has_come`](Self::time_has_come) wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        let of_connections = self.connections.iter().filter_map(Connection::next_timeout);
        let of_requests = self.acknowledgement_timeout().into_iter().chain(self.answer_timeout());
        of_connections.chain(self.shared.lost.next_timeout()).chain(of_requests).min()
    }

    /// Does what is due at `now`.
    pub fn time_has_come(&mut self, now: Time) {
        for connection in &mut self.connections {
            connection.time_has_come(&mut self.shared, now);
        }
        self.retry_unacknowledged(now);
        if !self.shared.lost.is_idle() {
            self.recover(now);
        }
    }

    // Work.

    /// How many commands [`submit`](Self::submit) takes now: the target's window, and our own bound.
    pub fn room(&self) -> usize {
        if self.connections.iter().any(Connection::takes_requests) { self.shared.room() } else { 0 }
    }

    /// How many commands have been submitted and have not ended.
    pub fn commands(&self) -> usize {
        self.shared.tasks.len()
    }

    /// Sends a command. Its tag names it for task management.
    ///
    /// # Errors
    ///
    /// Gives the command back when there is no [`room`](Self::room), no connection, or when the CDB is longer than a
    /// header can hold.
    pub fn submit(&mut self, mut command: Command, now: Time) -> Result<TaskTag, Command> {
        self.try_submit(&mut command, now).ok_or(command)
    }

    /// Submits a command as [`submit`](Self::submit) does, but leaves it where it is when it cannot be sent: it is
    /// taken with its memory when it is sent.
    pub fn try_submit(&mut self, command: &mut Command, _now: Time) -> Option<TaskTag> {
        if self.shared.room() == 0 {
            return None;
        }
        let index = self.connection_for(command)?;
        let connection = &mut self.connections[index];
        let (full, mut context) = connection.for_requests(&mut self.shared)?;
        let tag = full.submit(command, &mut context);
        connection.fill(&mut self.shared);
        tag
    }

    /// Where a command goes. When all connections have work, short ones go in runs: what goes together over one
    /// connection costs both sides fewer system calls than the same spread over several.
    #[inline]
    fn connection_for(&mut self, command: &Command) -> Option<usize> {
        if self.connections.len() == 1 {
            return Some(0);
        }
        self.one_of_many(command)
    }

    fn one_of_many(&mut self, command: &Command) -> Option<usize> {
        let is_short = command.data_len() <= RUN_DATA_BYTES;
        let is_open = |connection: &Connection| connection.takes_requests();
        let all_have_work = self.shared.tasks.len() >= 2 * self.connections.len();
        let goes_on = is_short && self.run < RUN_COMMANDS && all_have_work;
        if goes_on && self.connections.get(self.last_used).is_some_and(is_open) {
            self.run += 1;
            return Some(self.last_used);
        }
        self.run = 1;
        self.least_loaded()
    }

    /// The connection with the fewest commands under way; of several, the one whose turn it is.
    fn least_loaded(&mut self) -> Option<usize> {
        let len = self.connections.len();
        let first = self.last_used + 1;
        let candidates = (first..first + len).map(|index| index % len);
        let chosen = candidates
            .filter(|index| self.connections[*index].takes_requests())
            .min_by_key(|index| self.shared.load(self.connections[*index].cid()))?;
        self.last_used = chosen;
        Some(chosen)
    }

    /// Asks for a task management function, as an immediate request. `referenced` is the task of ABORT TASK and QUERY
    /// TASK. False when there is no connection, when too many wait for their answer, or when the function is one of RFC
    /// 7144 and iSCSIProtocolLevel 2 was not agreed on.
    pub fn manage_tasks(
        &mut self,
        user: u64,
        function: TaskManagementFunction,
        lun: LunField,
        referenced: Option<TaskTag>,
    ) -> bool {
        if self.shared.is_discovery() {
            return false;
        }
        let shared = &mut self.shared;
        // RFC 7143 section 11.5.1: ABORT TASK goes where its task is.
        let home = referenced.and_then(|tag| shared.tasks.get(tag)).map(|task| task.cid);
        let takes = |c: &&mut Connection| c.takes_requests() && home.is_none_or(|home| home == c.cid());
        let Some(connection) = self.connections.iter_mut().find(takes) else { return false };
        let Some((_, mut context)) = connection.for_requests(shared) else { return false };
        manage_tasks(user, function, lun, referenced, &mut context)
    }

    /// Sends a NOP-Out that the target echoes. False when there is no such connection, when too many requests wait for
    /// their answer, or when the data is longer than a data segment of either side.
    pub fn ping(&mut self, user: u64, cid: Cid, data: Vec<u8>) -> bool {
        let Some((connection, shared)) = self.connection_mut(cid) else { return false };
        let Some((full, mut context)) = connection.for_requests(shared) else { return false };
        full.ping(user, data, &mut context)
    }

    /// Sends a text request, such as `SendTargets=All`, and collects the whole answer. False when there is no
    /// connection, when another one is under way, or when a key belongs to the login. `MaxRecvDataSegmentLength` is
    /// refused too, though RFC 7143 section 13.12 lets it be declared again.
    pub fn text(&mut self, user: u64, pairs: &[(&str, &str)]) -> bool {
        let shared = &mut self.shared;
        let Some(connection) = self.connections.iter_mut().find(|c| c.takes_requests()) else { return false };
        let Some((full, mut context)) = connection.for_requests(shared) else { return false };
        full.text(user, pairs, &mut context)
    }

    /// Ends the session in order. [`Event::Closed`] with [`SessionError::LoggedOut`] follows.
    /// Commands under way are not waited for. False when there is no connection, or when it was asked for already.
    pub fn logout(&mut self) -> bool {
        let shared = &mut self.shared;
        let Some(connection) = self.connections.iter_mut().find(|c| c.takes_requests()) else { return false };
        let Some((full, mut context)) = connection.for_requests(shared) else { return false };
        let asked = full.logout(&mut context);
        if asked {
            self.shared.lost.clear();
            connection.expect_logout();
            for connection in &mut self.connections {
                connection.stop_data();
            }
        }
        asked
    }

    /// The commands that have not ended, in the order of their submission: for a session that is over. Those in events
    /// of connections that were not taken are lost.
    pub fn into_unfinished(self) -> Vec<Command> {
        let aborted = |event| if let Event::Aborted(command) = event { Some(command) } else { None };
        let mut tasks: Vec<_> = self.shared.tasks.into_entries().collect();
        tasks.sort_unstable_by_key(|task| task.order);
        self.news.into_iter().filter_map(aborted).chain(tasks.into_iter().map(|task| task.command)).collect()
    }

    /// A connection's number is its place.
    fn connection(&self, cid: Cid) -> Option<&Connection> {
        self.connections.get(usize::from(cid.0))
    }

    fn connection_mut(&mut self, cid: Cid) -> Option<(&mut Connection, &mut Shared)> {
        Some((self.connections.get_mut(usize::from(cid.0))?, &mut self.shared))
    }
}
