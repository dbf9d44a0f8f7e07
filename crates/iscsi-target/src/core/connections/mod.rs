//! The connections of one core and their sessions.

mod at_once;
mod connection;
mod pace;
mod standstill;
mod table;
mod targetless;

use std::collections::HashSet;
use std::sync::Arc;

use lunette_device::Nexus;
use lunette_pdu::{BHS_LEN, LoginStatus};
use lunette_reactor::{ConnectionId, Context, Gather};
use lunette_session::iscsi_target::{
    AdmitRequest, Admitted, BufferShare, Connection, ConnectionMut, Event, LoginConnection, LoginEvent, LoginTicket,
    Placement, Response, Session, SessionKey, TaskTag,
};
use lunette_session::{OutgoingPdu, SharedTraffic, Time, Timetable, Unacknowledged};
use lunette_tls::Source;

use super::buffers::{BufferQueue, Share};
use connection::Sessions;
pub(super) use connection::{Conn, Departure};
use pace::Pace;
use table::ConnectionTable;
use targetless::Targetless;

/// Entries beyond two for each connection that are not worth looking at.
const MIN_TIDY: usize = 64;

/// The connections of one core, their sessions, and when they want to be called. The core brings them what happens on
/// their sockets, and takes their events.
pub(super) struct Connections {
    table: ConnectionTable<Conn>,
    sessions: Sessions,
    /// Connections that may have become able to go on since the batch began.
    touched: Vec<ConnectionId>,
    /// Empty: spare memory for `touched`.
    spare_touched: Vec<ConnectionId>,
    timetable: Timetable<ConnectionId>,
    targetless: Targetless<ConnectionId>,
    pace: Pace,
    /// Nothing is read, sent or called.
    stands_still: bool,
}

/// The next state of a connection.
pub(super) enum Next {
    Login(LoginEvent),
    Session(Event<ConnectionId>),
    /// More bytes, or time, have to come first.
    Nothing,
    /// Answers leave first. There are bytes left.
    AnswersFirst,
}

impl Connections {
    /// The connections of core number `core` of `cores`: the numbers of sessions tell their core.
    pub(super) fn new(core: usize, cores: usize) -> Self {
        Self {
            table: ConnectionTable::default(),
            sessions: Sessions::sharing(core, cores),
            touched: Vec::new(),
            spare_touched: Vec::new(),
            timetable: Timetable::default(),
            targetless: Targetless::default(),
            pace: Pace::default(),
            stands_still: false,
        }
    }

    // The table.

    pub(super) fn insert(&mut self, id: ConnectionId, conn: Conn) {
        self.table.insert(id, conn);
    }

    /// Takes in a connection that has no target yet. Gives one that has to end for it when there are too many.
    pub(super) fn insert_targetless(&mut self, id: ConnectionId, conn: Conn, source: Source) -> Option<ConnectionId> {
        self.table.insert(id, conn);
        let table = &self.table;
        let evicted = self.targetless.make_room(|id| table.get(id).is_some_and(Conn::is_targetless));
        self.targetless.push(id, source);
        evicted
    }

    /// The connection of an event that was just taken from it. It is there.
    pub(super) fn of_event(&mut self, id: ConnectionId) -> Option<&mut Conn> {
        let conn = self.table.get_mut(id);
        debug_assert!(conn.is_some(), "an event of a connection that is gone");
        conn
    }

    /// A connection, unless it is gone: an id may be older than the batch.
    #[inline]
    pub(super) fn get(&self, id: ConnectionId) -> Option<&Conn> {
        self.table.get(id)
    }

    /// A connection, unless it is gone.
    #[inline]
    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Conn> {
        self.table.get_mut(id)
    }

    /// Removes a connection that is gone, and its place in its session.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Conn> {
        let conn = self.table.remove(id)?;
        if let Some(key) = conn.key {
            self.sessions.remove(key, id);
            self.touch_members(key);
        }
        Some(conn)
    }

    /// Keeps a connection beyond the end of its stream.
    pub(super) fn park(&mut self, id: ConnectionId) {
        self.table.park(id);
    }

    pub(super) fn is_parked(&self, id: ConnectionId) -> bool {
        self.table.is_parked(id)
    }

    /// The connections that were parked, the longest here first.
    pub(super) fn parked(&self) -> impl Iterator<Item = (ConnectionId, &Conn)> {
        self.table.parked()
    }

    /// The number of connections that are not parked.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn any(&self, concerns: impl Fn(&Conn) -> bool) -> bool {
        self.table.iter().any(|(_, conn)| concerns(conn))
    }

    /// The connections that `concerns` holds for, parked ones too.
    pub(super) fn ids_where(&self, concerns: impl Fn(&Conn) -> bool) -> Vec<ConnectionId> {
        self.table.iter().filter(|(_, conn)| concerns(conn)).map(|(id, _)| id).collect()
    }

    // Sessions.

    pub(super) fn sessions_len(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn session(&self, key: SessionKey) -> Option<&Session<ConnectionId>> {
        self.sessions.get(key)
    }

    /// The nexus of a session, which each of its connections has until its end.
    pub(super) fn nexus_of(&self, session: SessionKey) -> Option<Arc<Nexus>> {
        let mut members = self.table.iter().filter(|(_, conn)| conn.key == Some(session));
        members.find_map(|(_, conn)| conn.nexus.clone())
    }

    /// Lets a login into its session.
    ///
    /// # Errors
    ///
    /// The status to refuse it with.
    pub(super) fn admit(
        &mut self,
        request: &AdmitRequest,
        id: ConnectionId,
        now: Time,
    ) -> Result<Admitted<ConnectionId>, LoginStatus> {
        let admitted = self.sessions.admit(request, id, now)?;
        self.touch_members(admitted.ticket.session());
        Ok(admitted)
    }

    /// A connection whose login is answered enters its session. `None` when its place is gone.
    pub(super) fn enter(
        &mut self,
        ticket: LoginTicket<ConnectionId>,
        login: LoginConnection,
        now: Time,
    ) -> Option<SessionKey> {
        self.sessions.enter(ticket, login, now)
    }

    /// A connection is over for its session.
    pub(super) fn leave(&mut self, key: SessionKey, id: ConnectionId) {
        self.sessions.leave(key, id);
        self.touch_members(key);
    }

    /// Changes a session, which may be gone.
    pub(super) fn change_session(&mut self, key: SessionKey, change: impl FnOnce(&mut Session<ConnectionId>)) {
        if let Some(session) = self.sessions.get_mut(key) {
            change(session);
        }
        self.touch_members(key);
    }

    /// The sessions of the connections that `concerns` holds for, in the order of their first connections.
    pub(super) fn sessions_where(&self, concerns: impl Fn(&Conn) -> bool) -> Vec<SessionKey> {
        let all = self.sessions_with(|conn| concerns(conn).then_some(()));
        all.into_iter().map(|(key, ())| key).collect()
    }

    /// The sessions of the connections that `find` finds something for, with that of their first connection.
    pub(super) fn sessions_with<T>(&self, find: impl Fn(&Conn) -> Option<T>) -> Vec<(SessionKey, T)> {
        let mut seen = HashSet::new();
        let found = self.table.iter().filter_map(|(_, conn)| Some((conn.key?, find(conn)?)));
        found.filter(|(key, _)| seen.insert(*key)).collect()
    }

    /// Does something with the session of a connection.
    pub(super) fn in_session<R>(
        &mut self,
        id: ConnectionId,
        act: impl FnOnce(&mut Session<ConnectionId>) -> R,
    ) -> Option<R> {
        let key = self.table.get(id)?.key?;
        let result = act(self.sessions.get_mut(key)?);
        self.touch_members(key);
        Some(result)
    }

    /// A connection with the protocol's side of it.
    #[inline]
    pub(super) fn link(&mut self, id: ConnectionId) -> Option<(&mut Conn, ConnectionMut<'_>)> {
        let conn = self.table.get_mut(id)?;
        let protocol = conn.protocol_mut(id, &mut self.sessions)?;
        Some((conn, protocol))
    }

    /// The protocol's side of a connection that is in its session.
    #[inline]
    pub(super) fn protocol(&self, id: ConnectionId) -> Option<&Connection> {
        self.table.get(id)?.protocol(id, &self.sessions)
    }

    // Tasks.

    /// Gives a task the buffer for its data.
    #[inline]
    pub(super) fn want_data(&mut self, id: ConnectionId, tag: TaskTag, buffer: lunette_buffer::Buffer) {
        if let Some((_, mut protocol)) = self.link(id) {
            protocol.want_data(tag, buffer);
        }
        self.touch(id);
    }

    /// Answers a task that has ended. The session may hold the response back.
    #[inline]
    pub(super) fn answer(&mut self, id: ConnectionId, tag: TaskTag, response: Response) {
        let conn = self.table.get_mut(id).and_then(|conn| Some((conn.key?, conn)));
        let Some((key, conn, session)) = conn.and_then(|(key, conn)| Some((key, conn, self.sessions.get_mut(key)?)))
        else {
            debug_assert!(false, "a task outlives its connection");
            return;
        };
        conn.tasks.remove(tag);
        session.complete(id, tag, response);
        if let Some(mut protocol) = session.connection_mut(id) {
            conn.answers.resize(protocol.answer_bytes());
        }
        self.touch_members(key);
        self.touch(id);
    }

    /// Answers a command that has not become a task.
    pub(super) fn refuse(&mut self, id: ConnectionId, tag: TaskTag, response: Response) {
        self.in_session(id, |session| session.complete(id, tag, response));
    }

    /// Forgets a task that is aborted. Gives the connection.
    pub(super) fn forget_task(&mut self, id: ConnectionId, tag: TaskTag) -> Option<&Conn> {
        let Some(conn) = self.table.get_mut(id) else {
            debug_assert!(false, "a task outlives its connection");
            return None;
        };
        if let Some(mut protocol) = conn.protocol_mut(id, &mut self.sessions) {
            protocol.abort(tag);
        }
        conn.tasks.remove(tag);
        Some(conn)
    }

    // Connections that may go on.

    #[inline]
    pub(super) fn touch(&mut self, id: ConnectionId) {
        if let Some(conn) = self.table.get_mut(id)
            && !std::mem::replace(&mut conn.touched, true)
        {
            self.touched.push(id);
        }
    }

    /// Connections of a session may go on after something has changed for them.
    pub(super) fn touch_members(&mut self, key: SessionKey) {
        let touched = self.sessions.get_mut(key).map(Session::take_touched).unwrap_or_default();
        for id in touched {
            self.touch(id);
        }
    }

    pub(super) fn are_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Takes the connections that may go on. Give the list back with [`recycle`](Self::recycle).
    pub(super) fn take_touched(&mut self) -> Vec<ConnectionId> {
        let touched = std::mem::replace(&mut self.touched, std::mem::take(&mut self.spare_touched));
        for id in &touched {
            if let Some(conn) = self.table.get_mut(*id) {
                conn.touched = false;
            }
        }
        touched
    }

    pub(super) fn recycle(&mut self, mut touched: Vec<ConnectionId>) {
        touched.clear();
        self.spare_touched = touched;
    }

    // Events.

    /// Answers are about to leave.
    pub(super) fn begin_batch(&mut self) {
        self.pace.begin();
    }

    /// The next event of a connection, over `bytes` and over what it held back.
    #[inline]
    pub(super) fn next_event(&mut self, id: ConnectionId, bytes: &mut &[u8], now: Time) -> Next {
        if self.stands_still {
            return Next::Nothing;
        }
        // A connection may have ended by its last event.
        let Some(conn) = self.table.get_mut(id) else { return Next::Nothing };
        if !bytes.is_empty() && self.pace.is_due(&conn.under_way) {
            return Next::AnswersFirst;
        }
        if let Some(login) = &mut conn.login {
            return login.next_event(bytes).map_or(Next::Nothing, Next::Login);
        }
        let session = conn.key.and_then(|key| self.sessions.get_mut(key));
        match session.and_then(|session| session.next_event(id, bytes, now)) {
            Some(event) => {
                if matches!(event, Event::Command(_) | Event::TaskManagement(_)) {
                    self.pace.count();
                }
                Next::Session(event)
            }
            None => Next::Nothing,
        }
    }

    /// Takes note of what the events of a connection have come to. It holds back the `bytes` that are left, unless
    /// answers leave first: then it gives how many are left for later.
    pub(super) fn end_events(
        &mut self,
        cx: &mut Context<'_>,
        id: ConnectionId,
        mut bytes: &[u8],
        answers_first: bool,
        traffic: &SharedTraffic,
        buffers: &BufferQueue,
    ) -> usize {
        let Some(conn) = self.table.get_mut(id) else { return 0 };
        if let Some(login) = &mut conn.login {
            if !answers_first {
                login.hold(std::mem::take(&mut bytes));
            }
            traffic.add(login.take_traffic());
            let (wants_input, has_output, timeout) = (login.wants_input(), login.has_output(), login.next_timeout());
            if !self.stands_still {
                conn.update_socket(cx, id, wants_input, has_output);
            }
            self.watch(id, timeout);
            return bytes.len();
        }
        let Some(mut protocol) = conn.protocol_mut(id, &mut self.sessions) else { return 0 };
        if !answers_first {
            protocol.hold(std::mem::take(&mut bytes));
            conn.under_way.note(conn.tasks.len() + protocol.unacknowledged_answers(), &self.pace);
        }
        conn.answers.resize(protocol.answer_bytes());
        traffic.add(protocol.take_traffic());
        if !self.stands_still {
            conn.update_socket(cx, id, protocol.wants_input(), protocol.has_output());
        }
        let key = conn.key;
        if conn.under_way.now() >= conn.window_used
            && let Some(key) = key
        {
            let share_of = |member| {
                let Share { held_bytes, most_bytes } = buffers.share_of(&self.table.get(member)?.account);
                Some(BufferShare { held_bytes, most_bytes })
            };
            let window_used = self.sessions.fit_window(key, share_of);
            if let Some(conn) = self.table.get_mut(id) {
                conn.window_used = window_used;
            }
        }
        let session = key.and_then(|key| self.sessions.get_mut(key));
        let (timeout, touched) =
            session.map_or((None, Vec::new()), |session| (session.next_timeout(id), session.take_touched()));
        self.watch(id, timeout);
        for other in touched {
            self.touch(other);
        }
        bytes.len()
    }

    // Sockets.

    /// Where the next bytes of a data segment go.
    pub(super) fn direct(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        let session = self.sessions.get_mut(self.table.get(id)?.key?)?;
        session.connection_mut(id)?.into_direct()
    }

    pub(super) fn direct_received(&mut self, id: ConnectionId, len: usize, now: Time) {
        if let Some((_, mut protocol)) = self.link(id) {
            protocol.direct_received(len, now);
            // It may have been the end of the segment, and of all that the peer has to send for now.
            self.touch(id);
        }
    }

    /// Lists what is ready to be sent.
    pub(super) fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
        let Some(conn) = self.table.get(id).filter(|_| !self.stands_still) else { return };
        let of_login = conn.login.iter().flat_map(|login| login.pieces());
        let of_session = conn.protocol(id, &self.sessions).into_iter().flat_map(Connection::pieces);
        list.fill(of_login.chain(of_session));
    }

    /// Bytes were sent. `buffers_are_short`: tasks wait for what the connection may have given back.
    pub(super) fn sent(&mut self, id: ConnectionId, len: usize, buffers_are_short: bool) {
        let Some(conn) = self.table.get_mut(id) else { return };
        if let Some(login) = &mut conn.login {
            login.sent(len);
        } else if let Some(mut protocol) = conn.protocol_mut(id, &mut self.sessions) {
            protocol.sent(len);
            conn.answers.resize(protocol.answer_bytes());
        }
        if conn.is_held_up() || buffers_are_short {
            self.touch(id);
        }
    }

    // Datagrams, which carry PDUs apart.

    /// Whether a connection takes bytes.
    pub(super) fn takes(&self, id: ConnectionId) -> bool {
        let Some(conn) = self.table.get(id) else { return false };
        if let Some(login) = &conn.login {
            return login.wants_input() && !login.holds_bytes();
        }
        let protocol = conn.protocol(id, &self.sessions);
        protocol.is_some_and(|protocol| protocol.wants_input() && !protocol.holds_bytes())
    }

    /// The place of data that comes ahead of its turn.
    pub(super) fn place_early(
        &mut self,
        id: ConnectionId,
        bhs: &[u8; BHS_LEN],
        pdu_offset: u32,
        len: usize,
    ) -> Option<(Placement, &mut [u8])> {
        let session = self.sessions.get_mut(self.table.get(id)?.key?)?;
        session.connection_mut(id)?.into_place_early(bhs, pdu_offset, len)
    }

    /// Data that was placed is due. False when it is due elsewhere.
    pub(super) fn placed(&mut self, id: ConnectionId, place: Placement, skipped: usize, len: usize, now: Time) -> bool {
        let placed = self.link(id).is_some_and(|(_, mut protocol)| protocol.placed(place, skipped, len, now));
        self.touch(id);
        placed
    }

    /// The next PDU of a connection. `buffers_are_short`: tasks wait for what the connection may have given back.
    pub(super) fn take_pdu(&mut self, id: ConnectionId, buffers_are_short: bool) -> Option<OutgoingPdu> {
        let conn = self.table.get_mut(id)?;
        if let Some(login) = &mut conn.login {
            return login.take_pdu();
        }
        let mut protocol = conn.protocol_mut(id, &mut self.sessions)?;
        let pdu = protocol.take_pdu()?;
        conn.answers.resize(protocol.answer_bytes());
        if conn.is_held_up() || buffers_are_short {
            self.touch(id);
        }
        Some(pdu)
    }

    /// Notes how much the transport of a connection keeps of the PDUs that it has taken. `buffers_are_short`: tasks
    /// wait for what it may have given back.
    pub(super) fn set_unacknowledged(&mut self, id: ConnectionId, kept: Unacknowledged, buffers_are_short: bool) {
        let Some((conn, mut protocol)) = self.link(id) else { return };
        protocol.set_unacknowledged(kept);
        conn.answers.resize(protocol.answer_bytes());
        if conn.is_held_up() || buffers_are_short {
            self.touch(id);
        }
    }

    // Timers.

    /// Makes sure that a connection is called in time.
    fn watch(&mut self, id: ConnectionId, timeout: Option<Time>) {
        if let Some(at) = timeout
            && let Some(conn) = self.table.get_mut(id)
        {
            self.timetable.watch(id, at, &mut conn.watched_for);
        }
    }

    pub(super) fn timers_len(&self) -> usize {
        self.timetable.len()
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        if self.stands_still { None } else { self.timetable.next() }
    }

    /// Calls the connections that are due.
    pub(super) fn time_has_come(&mut self, now: Time) {
        if self.stands_still {
            return;
        }
        while let Some((at, id)) = self.timetable.pop_due(now) {
            // The connection may be gone, or have been entered for an earlier time since.
            let Some(conn) = self.table.get_mut(id).filter(|conn| conn.watched_for == Some(at)) else { continue };
            conn.watched_for = None;
            if let Some(login) = &mut conn.login {
                login.time_has_come(now);
            } else if let Some(mut protocol) = conn.protocol_mut(id, &mut self.sessions) {
                protocol.time_has_come(now);
                self.narrow_unused_window(id, now);
            }
            self.touch(id);
        }
    }

    /// Takes places of the command window back that the session of a connection has not used for long. Each connection
    /// is called when it is silent, and from time to time when it is not.
    fn narrow_unused_window(&mut self, id: ConnectionId, now: Time) {
        let Some(key) = self.table.get(id).and_then(|conn| conn.key) else { return };
        let window_used = self.sessions.narrow_unused_window(key, now);
        for member in self.sessions.get(key).into_iter().flat_map(Session::members) {
            if let Some(conn) = self.table.get_mut(member) {
                conn.window_used = window_used;
            }
        }
    }

    /// Drops the timers of connections that are gone, when they have become many: one may lie far in the future.
    pub(super) fn tidy_timers(&mut self) {
        if self.timetable.len() > MIN_TIDY + 2 * (self.table.len() + self.table.parked().count()) {
            self.timetable.retain(|id| self.table.get(*id).is_some());
        }
    }
}
