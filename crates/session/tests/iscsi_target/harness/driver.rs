//! The target's driver: bytes in, events to a scripted device, bytes out.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::{Payload, Pool, Run};
use lunette_handover::Handover;
use lunette_pdu::{InitiatorTaskTag, LoginStatus, TaskManagementResponseCode};
use lunette_session::iscsi_target::{
    AdmitRequest, BufferShare, CloseReason, Command, ConnectionMut, Directory, Event, InheritError, LoginConnection,
    LoginEvent, LogoutTicket, Response, Session, SessionInfo, SessionKey, Sessions, TargetNode, TaskManagement,
    TaskManagementTicket, TaskTag, Timers,
};
use lunette_session::{Authentication, Time};

use super::pattern;
use super::setup::PEER;

/// How the stream arrives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// Bytes in one receive.
    pub(crate) piece: usize,
    /// Whether large data segments are received straight into their place.
    pub(crate) direct: bool,
}

impl Cut {
    pub(crate) const WHOLE: Self = Self { piece: usize::MAX, direct: false };
}

/// Bounds the calls that one piece of input may cost: a machine that spins fails its test.
const MAX_EVENTS_PER_PIECE: usize = 100_000;

/// Bytes of the pieces in which a store lends. It divides no length of a PDU.
const LENT_RUN_LEN: usize = 777;

pub(crate) struct Driver {
    /// Until it is in a session.
    login: Option<LoginConnection>,
    session: Option<SessionKey>,
    /// The sessions of all connections of a test.
    pub(crate) sessions: Rc<RefCell<Sessions<u32>>>,
    pub(crate) pool: Pool,
    pub(crate) now: Time,
    pub(crate) cut: Cut,
    /// Whether admission, commands, data and task management are answered at once, in the obvious way.
    pub(crate) automatic: bool,
    /// How this connection is called in `sessions`.
    pub(crate) handle: u32,
    pub(crate) displaced: Vec<u32>,
    /// Bytes that the connection does not want yet: they wait in the socket.
    unread: Vec<u8>,
    pub(crate) commands: Vec<Command>,
    pub(crate) data_out: Vec<(TaskTag, Vec<u8>)>,
    pub(crate) aborted: Vec<TaskTag>,
    pub(crate) task_management: Vec<TaskManagement>,
    tickets: Vec<TaskManagementTicket<u32>>,
    logouts: Vec<LogoutTicket>,
    /// The connections that they name.
    pub(crate) leaving: Vec<u32>,
    pub(crate) admissions: usize,
    pub(crate) admit_requests: Vec<AdmitRequest>,
    pub(crate) closed: Option<CloseReason>,
    /// Tasks of other connections that this one has taken over: from where, and what they were called there and are
    /// here.
    pub(crate) moved: Vec<(u32, TaskTag, TaskTag)>,
    /// The connection has ended by itself, and its tasks wait.
    pub(crate) suspended: Option<CloseReason>,
    pub(crate) detached: bool,
    pub(crate) gone: bool,
    /// How often data was asked for again that is damaged.
    pub(crate) data_damaged: usize,
    /// Tasks that the device has ended with a response.
    pub(crate) completed: RefCell<Vec<TaskTag>>,
    /// Whether the next answer is lent.
    pub(crate) lends: Cell<bool>,
}

impl Driver {
    pub(crate) fn new(login: LoginConnection, now: Time) -> Self {
        Self {
            login: Some(login),
            session: None,
            sessions: Rc::default(),
            pool: Pool::new(64 << 20),
            now,
            cut: Cut::WHOLE,
            automatic: true,
            handle: 1,
            displaced: Vec::new(),
            unread: Vec::new(),
            commands: Vec::new(),
            data_out: Vec::new(),
            aborted: Vec::new(),
            task_management: Vec::new(),
            tickets: Vec::new(),
            logouts: Vec::new(),
            leaving: Vec::new(),
            admissions: 0,
            admit_requests: Vec::new(),
            closed: None,
            moved: Vec::new(),
            suspended: None,
            detached: false,
            gone: false,
            data_damaged: 0,
            completed: RefCell::default(),
            lends: Cell::new(false),
        }
    }

    /// The initiator's bytes arrive at the socket.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        self.pump();
    }

    /// The connection finds the sessions of `other`, and comes after it.
    pub(crate) fn share(&mut self, other: &Self) {
        (self.sessions, self.handle, self.now) = (Rc::clone(&other.sessions), other.handle + 1, other.now);
    }

    /// Lets the command window follow its use, within a share of the buffers of which nothing is held.
    pub(crate) fn fit_window(&self) {
        self.fit_window_within(|_| BufferShare { held_bytes: 0, most_bytes: 1 << 20 });
    }

    /// Fits the window within these shares of the session's connections.
    pub(crate) fn fit_window_within(&self, share_of: impl Fn(u32) -> BufferShare) {
        let key = self.session.expect("it is in a session");
        let used_again = self.sessions.borrow_mut().fit_window(key, |handle| Some(share_of(handle)));
        assert!(used_again > 0, "each look is for some commands");
    }

    /// Looks whether the command window has been used of late.
    pub(crate) fn narrow_unused_window(&self) {
        let key = self.session.expect("it is in a session");
        let used_again = self.sessions.borrow_mut().narrow_unused_window(key, self.now);
        assert!(used_again > 0, "each look is for some commands");
    }

    /// Does something with the connection, which is in a session.
    pub(crate) fn act<R>(&self, act: impl FnOnce(&mut ConnectionMut<'_>) -> R) -> R {
        let mut sessions = self.sessions.borrow_mut();
        let session = self.session.and_then(|key| sessions.get_mut(key)).expect("the login has ended");
        act(&mut session.connection_mut(self.handle).expect("it is there"))
    }

    /// The socket of the connection is gone. True when its tasks wait.
    pub(crate) fn stream_lost(&mut self) -> bool {
        let now = self.now;
        let waits = self.in_session(|session, handle| session.stream_lost(handle, now));
        if !waits {
            self.remove();
        }
        waits
    }

    /// The target asks for the logout.
    pub(crate) fn request_logout(&self, grace: Duration) {
        self.in_session(|session, _| session.request_logout(grace, self.now));
    }

    /// The targets are others now.
    pub(crate) fn set_directory(&self, directory: &Arc<Directory>, grace: Duration) {
        self.in_session(|session, _| session.set_directory(directory, grace));
    }

    /// No request is begun any more.
    pub(crate) fn come_to_rest(&mut self) {
        self.in_session(|session, _| session.come_to_rest());
        self.pump();
    }

    /// The session goes on.
    pub(crate) fn go_on(&mut self) {
        self.in_session(|session, _| session.go_on(self.now));
        self.pump();
    }

    /// The reason why the session is not at rest.
    pub(crate) fn restless(&self) -> Option<&'static str> {
        self.in_session(|session, _| session.restless())
    }

    /// Another process takes the session on, as bytes, with `targets`.
    pub(crate) fn hand_over(&mut self, targets: Vec<TargetNode>) -> Result<(), InheritError> {
        let (session, handles) = self.in_session(|session, _| session.hand_over());
        let written = Handover { sessions: vec![session], ..Handover::default() }.encode().unwrap();
        let mut read = Handover::decode(&written).unwrap();
        let connection = &mut read.sessions[0].connections[0];
        connection.peer = SocketAddr::new(PEER, 1234);
        let directory =
            Directory { targets: targets.into_iter().map(Arc::new).collect(), discovery: Authentication::None };
        let mut sessions = Sessions::default();
        let key = sessions.inherit(&read.sessions[0], &handles, &directory.into(), Timers::default(), self.now)?;
        *self.sessions.borrow_mut() = sessions;
        self.session = Some(key);
        self.pump();
        Ok(())
    }

    /// Ends a task with its response.
    pub(crate) fn complete(&self, task: TaskTag, response: Response) {
        self.completed.borrow_mut().push(task);
        self.in_session(|session, handle| session.complete(handle, task, response));
    }

    /// The connection is gone.
    pub(crate) fn remove(&mut self) {
        let key = self.session.take().expect("the login has ended");
        self.sessions.borrow_mut().remove(key, self.handle);
    }

    fn is_removed(&self) -> bool {
        self.login.is_none() && self.session.is_none()
    }

    pub(crate) fn wants_input(&self) -> bool {
        if self.is_removed() {
            return false;
        }
        self.login.as_ref().map_or_else(|| self.act(|c| c.wants_input()), LoginConnection::wants_input)
    }

    pub(crate) fn has_output(&self) -> bool {
        if self.is_removed() {
            return false;
        }
        self.login.as_ref().map_or_else(|| self.act(|c| c.has_output()), LoginConnection::has_output)
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let of_session = || self.in_session(|session, handle| session.next_timeout(handle));
        self.login.as_ref().map_or_else(of_session, LoginConnection::next_timeout)
    }

    pub(crate) fn login_bytes(&self) -> usize {
        self.login.as_ref().map_or(0, LoginConnection::login_bytes)
    }

    pub(crate) fn session(&self) -> Option<Arc<SessionInfo>> {
        self.session?;
        Some(self.in_session(|session, _| Arc::clone(session.info())))
    }

    /// Bytes that are ready to be sent.
    pub(crate) fn ready(&self) -> Vec<Vec<u8>> {
        match &self.login {
            Some(login) => login.slices().map(<[u8]>::to_vec).collect(),
            None => self.act(|c| c.slices().map(<[u8]>::to_vec).collect()),
        }
    }

    /// How many these are.
    pub(crate) fn ready_bytes(&self) -> usize {
        match &self.login {
            Some(login) => login.slices().map(<[u8]>::len).sum(),
            None => self.act(|c| c.slices().map(<[u8]>::len).sum()),
        }
    }

    pub(crate) fn sent(&mut self, len: usize) {
        match &mut self.login {
            Some(login) => login.sent(len),
            None => self.act(|c| c.sent(len)),
        }
    }

    fn time_has_come(&mut self) {
        match &mut self.login {
            Some(login) => login.time_has_come(self.now),
            None => self.act(|c| c.time_has_come(self.now)),
        }
    }

    /// Reads from the socket as long as the connection wants.
    pub(crate) fn pump(&mut self) {
        self.drain(&[]);
        while !self.unread.is_empty() && self.wants_input() {
            let piece_len = self.cut.piece.min(self.unread.len());
            if self.receive_directly(piece_len) {
                self.drain(&[]);
            } else {
                let piece: Vec<u8> = self.unread.drain(..piece_len).collect();
                self.drain(&piece);
            }
        }
    }

    fn receive_directly(&mut self, most: usize) -> bool {
        if !self.cut.direct || self.login.is_some() {
            return false;
        }
        let received = self.act(|connection| {
            let place = connection.direct()?;
            let len = most.min(place.len());
            place[..len].copy_from_slice(&self.unread[..len]);
            connection.direct_received(len, self.now);
            Some(len)
        });
        self.unread.drain(..received.unwrap_or(0));
        received.is_some()
    }

    /// How much the socket still holds.
    pub(crate) fn unread(&self) -> usize {
        self.unread.len()
    }

    fn drain(&mut self, mut input: &[u8]) {
        for _ in 0..MAX_EVENTS_PER_PIECE {
            if self.is_removed() || !self.next(&mut input) {
                return;
            }
        }
        panic!("the machine spins");
    }

    /// Deals with the next event. False when there is none, and the connection holds what is left.
    fn next(&mut self, input: &mut &[u8]) -> bool {
        if let Some(login) = &mut self.login {
            let Some(event) = login.next_event(input) else {
                login.hold(input);
                return false;
            };
            self.login_event(event);
            return true;
        }
        let mut sessions = self.sessions.borrow_mut();
        let session = self.session.and_then(|key| sessions.get_mut(key)).expect("the login has ended");
        let Some(event) = session.next_event(self.handle, input, self.now) else {
            session.connection_mut(self.handle).expect("it is there").hold(input);
            return false;
        };
        drop(sessions);
        self.happened(event);
        true
    }

    fn login_event(&mut self, event: LoginEvent) {
        assert!(self.closed.is_none(), "{event:?} after the end");
        match event {
            LoginEvent::Admit(request) => {
                self.admissions += 1;
                self.admit_requests.push((*request).clone());
                if self.automatic {
                    self.admit(&request);
                }
            }
            LoginEvent::Close(reason) => self.closed = Some(reason),
        }
    }

    fn admit(&mut self, request: &AdmitRequest) {
        let mut sessions = self.sessions.borrow_mut();
        match sessions.admit(request, self.handle, self.now) {
            Ok(admitted) => {
                self.displaced.extend(admitted.displaced);
                let login = self.login.take().expect("the login has just passed");
                self.session = sessions.enter(admitted.ticket, login, self.now);
            }
            Err(status) => self.login.as_mut().expect("it is refused").refuse(status),
        }
    }

    fn happened(&mut self, event: Event<u32>) {
        assert!(self.closed.is_none(), "{event:?} after the end");
        match event {
            Event::Command(command) => {
                self.commands.push(command.clone());
                if self.automatic {
                    self.run(&command);
                }
            }
            Event::DataOut { task, buffer } => {
                self.data_out.push((task, buffer.to_vec()));
                if self.automatic {
                    self.complete(task, wrote(buffer.len()));
                }
            }
            Event::Aborted(task) => self.aborted.push(task),
            Event::TaskManagement(ticket) => {
                let request = *ticket.request();
                self.task_management.push(request);
                self.tickets.push(ticket);
                if self.automatic {
                    if let Some(task) = request.referenced {
                        self.act(|c| c.abort(task));
                    }
                    self.done(request.itt);
                }
            }
            Event::Logout { ticket, connection } => {
                self.logouts.push(ticket);
                self.leaving.push(connection);
                if self.automatic {
                    self.log_out();
                }
            }
            Event::Moved { from, old, new } => self.moved.push((from, old, new)),
            Event::Suspended(reason) => self.suspended = Some(reason),
            Event::Detached => self.detached = true,
            Event::Gone => {
                self.gone = true;
                self.remove();
            }
            Event::DataDamaged => self.data_damaged += 1,
            Event::TargetReset => panic!("no test asks for the reset of the target"),
            Event::Close(reason) => self.closed = Some(reason),
        }
    }

    /// Answers a task management request, once.
    pub(crate) fn answer(&mut self, itt: InitiatorTaskTag, answer: TaskManagementResponseCode) {
        if let Some(ticket) = self.ticket(itt) {
            self.in_session(|session, handle| session.answer(handle, ticket, answer));
        }
    }

    /// Tells that the work of a task management request is done.
    pub(crate) fn done(&mut self, itt: InitiatorTaskTag) {
        let now = self.now;
        if let Some(ticket) = self.ticket(itt) {
            self.in_session(|session, handle| session.done(handle, ticket, now));
        }
    }

    /// Answers one that asks: yes.
    pub(crate) fn succeed(&mut self, itt: InitiatorTaskTag, information: [u8; 3]) {
        if let Some(ticket) = self.ticket(itt) {
            self.in_session(|session, handle| session.succeed(handle, ticket, information));
        }
    }

    /// Answers the first logout that waits.
    pub(crate) fn log_out(&mut self) {
        let ticket = self.logouts.remove(0);
        self.in_session(|session, handle| session.logged_out(handle, ticket));
    }

    fn ticket(&mut self, itt: InitiatorTaskTag) -> Option<TaskManagementTicket<u32>> {
        let at = self.tickets.iter().position(|ticket| ticket.request().itt == itt)?;
        Some(self.tickets.remove(at))
    }

    /// Does something with the session.
    pub(crate) fn in_session<R>(&self, act: impl FnOnce(&mut Session<u32>, u32) -> R) -> R {
        let mut sessions = self.sessions.borrow_mut();
        act(self.session.and_then(|key| sessions.get_mut(key)).expect("the login has ended"), self.handle)
    }

    /// Takes all data that is offered, gives all data that is taken.
    fn run(&mut self, command: &Command) {
        if command.data_out_len > 0 {
            self.want_data(command.task, command.data_out_len as usize);
        } else if command.data_in_len > 0 {
            self.give_data(command.task, command.data_in_len as usize);
        } else {
            self.complete(command.task, Response::default());
        }
    }

    pub(crate) fn want_data(&mut self, task: TaskTag, len: usize) {
        let buffer = self.pool.take(len).expect("the pool of the tests is large");
        self.act(|c| c.want_data(task, buffer));
    }

    pub(crate) fn give_data(&mut self, task: TaskTag, len: usize) {
        self.complete(task, self.read_response(len));
    }

    /// GOOD with that much data; each second time as a store lends it, if it is not too long.
    pub(crate) fn read_response(&self, len: usize) -> Response {
        let mut buffer = self.pool.reserve(len).expect("the pool of the tests is large");
        let lends = self.lends.replace(!self.lends.get());
        let pattern = pattern(len);
        let runs = pattern.chunks(LENT_RUN_LEN).map(|run| Run { memory: Arc::new(run.to_vec()), range: 0..run.len() });
        if lends {
            buffer.allow_loan();
        }
        let data_in = buffer.lend(runs).map_or_else(
            |mut buffer| {
                buffer.copy_from_slice(&pattern);
                buffer.into()
            },
            Payload::Lent,
        );
        Response { data_in, ..Response::default() }
    }

    /// The daemon ends.
    pub(crate) fn stop(&mut self) {
        self.login.as_mut().expect("the login has not ended").stop();
    }

    pub(crate) fn refuse(&mut self, status: LoginStatus) {
        self.login.as_mut().expect("the login has not ended").refuse(status);
        self.pump();
    }

    /// Lets time pass, doing what is due on the way, as a reactor would.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.time_has_come();
            self.drain(&[]);
            let next = self.next_timeout();
            assert!(next.is_none_or(|next| next > self.now), "a timeout that stays due");
        }
        self.now = end;
    }

    /// Takes what is ready to be sent, `piece` bytes at a time.
    pub(crate) fn take_output(&mut self, piece: usize) -> Vec<u8> {
        let mut wire = Vec::new();
        while self.has_output() {
            let before = wire.len();
            for slice in self.ready() {
                assert!(!slice.is_empty(), "an empty slice");
                let room = piece.saturating_sub(wire.len() - before);
                wire.extend_from_slice(&slice[..room.min(slice.len())]);
                if room <= slice.len() {
                    break;
                }
            }
            self.sent(wire.len() - before);
        }
        wire
    }
}

/// GOOD, and that much was wanted.
pub(crate) fn wrote(len: usize) -> Response {
    Response { data_out_transfer_len: len as u64, ..Response::default() }
}
