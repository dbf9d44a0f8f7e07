//! The event loop of the initiator, which runs all sessions of one reactor thread.

mod coalescing;
mod dial;
mod driver;
mod reconnect;
mod redirect;
mod requests;
mod retry;

pub(crate) use retry::may_lose_cache;

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use lunette_buffer::Trimmer;
use lunette_ecl::protection::Binding;
use lunette_ecl_endpoint::{Config as DatagramConfig, DatagramOptions, Endpoint, Upper};
use lunette_pdu::{BHS_LEN, LunField, TaskManagementFunction, TaskManagementResponseCode};
use lunette_reactor::{
    Closed, ConnectionId, Context, DatagramSocketId, Gather, Handler, Key, ListenerId, Slab, Turn, TurnEnd, Waker,
    at_turn_end,
};
use lunette_scsi::Lun;
use lunette_session::iscsi_initiator::{Placement, Recoveries};
use lunette_session::{OutgoingPdu, SharedTraffic, Time, Timetable};
use std::net::SocketAddr;

use crate::options::{Options, Portal};
use crate::request::Submission;
use crate::{Error, Observation, Opened};
pub(crate) use dial::{Dialer, Report, ThreadDialer, Wire};
use driver::SessionDriver;

/// A session of this event loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionKey(Key);

/// Identifies a request of a session, for its cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId(pub(crate) u64);

impl RequestId {
    /// The number of no request.
    pub(crate) const NONE: Self = Self(u64::MAX);
}

/// Takes the result of an operation that is not a SCSI command to its caller.
pub(crate) type Done<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

/// The messages of other threads to the event loop.
pub(crate) enum Message {
    Open {
        portal: Portal,
        target: Option<String>,
        options: Arc<Options>,
        done: Done<Opened>,
    },
    Submit {
        session: SessionKey,
        submission: Submission,
    },
    Cancel {
        session: SessionKey,
        id: RequestId,
    },
    Ask {
        session: SessionKey,
        question: Question,
    },
    /// Adds one to `power_ons` for every POWER ON that the logical unit reports.
    Watch {
        session: SessionKey,
        lun: LunField,
        power_ons: Weak<AtomicU64>,
    },
    /// Asks for the counts of what was lost and recovered.
    Recoveries {
        session: SessionKey,
        done: Done<Recoveries>,
    },
    /// Asks how the session stands.
    Observe {
        session: SessionKey,
        done: Done<Observation>,
    },
    Close {
        session: SessionKey,
        done: Option<Done<()>>,
    },
    /// Rings a bell after a time.
    Alarm {
        after: Duration,
        bell: Bell,
    },
    Dialed {
        session: SessionKey,
        attempt: u64,
        result: Result<Wire, Error>,
    },
    Stop,
}

impl Message {
    /// The session of a request.
    #[inline]
    fn submits_to(&self) -> Option<SessionKey> {
        if let Self::Submit { session, .. } = self { Some(*session) } else { None }
    }
}

/// The response to a task management request.
#[derive(Clone, Copy)]
pub(crate) struct TmfResult {
    pub(crate) response: TaskManagementResponseCode,
    /// The additional response information of QUERY ASYNCHRONOUS EVENT.
    pub(crate) information: [u8; 3],
}

/// Rings when it is dropped: when its time has come, or the event loop ends.
pub(crate) struct Bell(Option<Box<dyn FnOnce() + Send>>);

impl Bell {
    pub(crate) fn new(ring: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(ring)))
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if let Some(ring) = self.0.take() {
            ring();
        }
    }
}

/// Requests of callers other than SCSI commands.
pub(crate) enum Question {
    /// A function for a logical unit or the target, or for one task if a request is named.
    TaskManagement {
        function: TaskManagementFunction,
        lun: Lun,
        task: Option<RequestId>,
        done: Done<TmfResult>,
    },
    Ping {
        data: Vec<u8>,
        done: Done<bool>,
    },
    Text {
        pairs: Vec<(String, String)>,
        done: Done<Vec<(String, String)>>,
    },
}

impl Question {
    fn name(&self) -> &'static str {
        match self {
            Self::TaskManagement { .. } => "a task management function",
            Self::Ping { .. } => "a ping",
            Self::Text { .. } => "a text request",
        }
    }

    /// Answers a question about a task that is not at the target.
    fn no_task(self) {
        if let Self::TaskManagement { done, .. } = self {
            done(Ok(TmfResult { response: TaskManagementResponseCode::FUNCTION_COMPLETE, information: [0; 3] }));
        }
    }

    fn refuse(self, error: Error) {
        match self {
            Self::TaskManagement { done, .. } => done(Err(error)),
            Self::Ping { done, .. } => done(Err(error)),
            Self::Text { done, .. } => done(Err(error)),
        }
    }
}

/// The queue of messages to an event loop.
pub(crate) struct Queue {
    inbox: Mutex<Inbox>,
    waker: Waker,
}

#[derive(Default)]
struct Inbox {
    messages: Vec<Message>,
    /// Whether the event loop has ended. Messages are then dropped, which tells their senders.
    closed: bool,
}

impl Queue {
    pub(crate) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self { inbox: Mutex::default(), waker })
    }

    /// Sends a message. The event loop is woken at the end of the caller's turn, if it sleeps.
    pub(crate) fn push(self: &Arc<Self>, message: Message) {
        self.push_with(|| message);
    }

    /// Sends the message that `make` makes in the queue: requests are large to be moved.
    #[inline]
    pub(crate) fn push_with(self: &Arc<Self>, make: impl FnOnce() -> Message) {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.closed {
            // The drop may call a completion that pushes again, so the lock is released before.
            drop(inbox);
            return drop(make());
        }
        inbox.messages.push(make());
        drop(inbox);
        if self.waker.is_asleep() {
            at_turn_end(Arc::<Self>::clone(self));
        } else {
            // It may have fallen asleep by now, and is woken then.
            self.waker.wake();
        }
    }

    /// Whether the event loop has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Swaps the messages for an empty list.
    fn swap(&self, list: &mut Vec<Message>) {
        std::mem::swap(&mut self.inbox.lock().unwrap_or_else(PoisonError::into_inner).messages, list);
    }

    fn close(&self) -> Vec<Message> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.closed = true;
        std::mem::take(&mut inbox.messages)
    }
}

impl TurnEnd for Queue {
    fn turn_ended(&self) {
        self.waker.wake();
    }
}

/// Closes its session when it is dropped.
pub(crate) struct Owner {
    queue: Arc<Queue>,
    pub(crate) key: SessionKey,
}

impl Owner {
    fn new(queue: &Arc<Queue>, key: SessionKey) -> Self {
        Self { queue: Arc::clone(queue), key }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.queue.push(Message::Close { session: self.key, done: None });
    }
}

/// The parts of the event loop that a session driver uses.
pub(super) struct Env<'a, 'b> {
    pub(super) cx: &'a mut Context<'b>,
    pub(super) now: Time,
    pub(super) queue: &'a Arc<Queue>,
    /// Connections that were adopted and are not in `by_connection` yet.
    pub(super) adopted: &'a mut Vec<ConnectionId>,
    pub(super) traffic: &'a SharedTraffic,
    pub(super) host: &'a Host,
}

/// The outside of an event loop.
pub(crate) struct Host {
    pub(crate) dialer: Arc<dyn Dialer>,
    pub(crate) entropy: RandomBytes,
}

/// Fills a buffer with random bytes.
pub type RandomBytes = Arc<dyn Fn(&mut [u8]) -> io::Result<()> + Send + Sync>;

impl Host {
    /// Threads that connect, and the random numbers of the system.
    pub(crate) fn system() -> Self {
        let entropy: RandomBytes = Arc::new(|bytes| getrandom::fill(bytes).map_err(io::Error::other));
        Self { dialer: Arc::new(ThreadDialer), entropy }
    }
}

pub(crate) struct Engine {
    queue: Arc<Queue>,
    sessions: Slab<SessionDriver>,
    /// The session of each connection, by the index of its id.
    by_connection: Vec<Option<(ConnectionId, SessionKey)>>,
    timetable: Timetable<SessionKey>,
    messages: Vec<Message>,
    adopted: Vec<ConnectionId>,
    /// Sessions that have received bytes in this batch.
    received: Vec<SessionKey>,
    /// Sessions that have received bytes or requests in this batch, of which nothing has been sent yet.
    unsettled: Vec<SessionKey>,
    /// Sessions whose answers are let come, and until when.
    held: Vec<(Time, SessionKey)>,
    alarms: Vec<(Time, Bell)>,
    epoch: Instant,
    traffic: Arc<SharedTraffic>,
    /// Trims the pool of all sessions.
    trimmer: Trimmer,
    host: Host,
    /// No handle is left. The event loop ends once no session waits for the answer to its logout.
    is_stopping: bool,
}

impl Engine {
    /// An event loop that counts time from `epoch` on.
    pub(crate) fn new(
        queue: Arc<Queue>,
        traffic: Arc<SharedTraffic>,
        trimmer: Trimmer,
        epoch: Instant,
        host: Host,
    ) -> Self {
        Self {
            queue,
            sessions: Slab::default(),
            by_connection: Vec::new(),
            timetable: Timetable::default(),
            messages: Vec::new(),
            adopted: Vec::new(),
            received: Vec::new(),
            unsettled: Vec::new(),
            held: Vec::new(),
            alarms: Vec::new(),
            epoch,
            traffic,
            trimmer,
            host,
            is_stopping: false,
        }
    }

    /// Ends everything that callers wait for. The event loop has ended, for whatever reason.
    pub(crate) fn end(&mut self) {
        for driver in self.sessions.drain() {
            driver.end();
        }
        drop(self.queue.close());
        self.alarms.clear();
    }

    /// Lets a session driver `act`, then sends and schedules what follows from it.
    fn with(&mut self, cx: &mut Context<'_>, key: SessionKey, act: impl FnOnce(&mut SessionDriver, &mut Env<'_, '_>)) {
        self.act(cx, key, act);
        self.settle(cx, key);
    }

    /// Lets a session driver `act`. It is to be [settled](Self::settle) in this batch.
    #[inline]
    fn act(&mut self, cx: &mut Context<'_>, key: SessionKey, act: impl FnOnce(&mut SessionDriver, &mut Env<'_, '_>)) {
        let now = self.now(cx);
        let Some(driver) = self.sessions.get_mut(key.0) else { return };
        let mut env =
            Env { cx, now, queue: &self.queue, adopted: &mut self.adopted, traffic: &self.traffic, host: &self.host };
        act(driver, &mut env);
    }

    /// Has what follows for a session done once, at the end of the batch.
    #[inline]
    fn settle_later(&mut self, key: SessionKey) {
        if self.unsettled.last() != Some(&key) {
            self.unsettled.push(key);
        }
    }

    fn settle_all(&mut self, cx: &mut Context<'_>) {
        while let Some(key) = self.unsettled.pop() {
            self.settle(cx, key);
        }
    }

    /// Sends and schedules what follows from what a session driver has done.
    fn settle(&mut self, cx: &mut Context<'_>, key: SessionKey) {
        let now = self.now(cx);
        let Some(driver) = self.sessions.get_mut(key.0) else { return };
        let mut env =
            Env { cx, now, queue: &self.queue, adopted: &mut self.adopted, traffic: &self.traffic, host: &self.host };
        driver.settle(&mut env);
        if driver.is_gone() {
            self.sessions.remove(key.0);
            self.stop_if_done(cx);
        } else if let Some(at) = driver.next_timeout() {
            self.timetable.watch(key, at, &mut driver.watched_for);
        }
        for id in self.adopted.drain(..) {
            let index = id.index();
            if self.by_connection.len() <= index {
                self.by_connection.resize(index + 1, None);
            }
            self.by_connection[index] = Some((id, key));
        }
    }

    fn now(&self, cx: &Context<'_>) -> Time {
        Time::new(cx.now().saturating_duration_since(self.epoch))
    }

    fn session_of(&self, id: ConnectionId) -> Option<SessionKey> {
        let (owner, key) = (*self.by_connection.get(id.index())?)?;
        (owner == id).then_some(key)
    }

    fn driver_of(&mut self, id: ConnectionId) -> Option<&mut SessionDriver> {
        let key = self.session_of(id)?;
        self.sessions.get_mut(key.0)
    }

    /// Lets the answers of sessions that have received in this batch come in groups, or no longer.
    fn coalesce(&mut self, cx: &mut Context<'_>) {
        let now = self.now(cx);
        for key in self.received.drain(..) {
            self.held.retain(|(_, held)| *held != key);
            if let Some(until) = self.sessions.get_mut(key.0).and_then(|driver| driver.coalesce(cx, now)) {
                self.held.push((until, key));
            }
        }
    }

    /// Looks at answers that were let come for long enough. Those that have come in this batch were not: it is late
    /// itself.
    fn end_holds(&mut self, cx: &mut Context<'_>, now: Time) {
        let Self { held, received, .. } = self;
        for (_, key) in held.extract_if(.., |(until, key)| *until <= now && !received.contains(key)) {
            if let Some(driver) = self.sessions.get_mut(key.0) {
                driver.end_hold(cx);
            }
        }
    }

    fn take_messages(&mut self, cx: &mut Context<'_>) {
        let mut messages = std::mem::take(&mut self.messages);
        self.queue.swap(&mut messages);
        let now = self.now(cx);
        // Requests of a session that come together are sent together.
        for run in
            messages.chunk_by_mut(|one, next| one.submits_to().is_some() && one.submits_to() == next.submits_to())
        {
            match run {
                [Message::Submit { session, .. }, ..] => self.submit(*session, run, now),
                [message] => {
                    // What was submitted before comes before.
                    self.settle_all(cx);
                    self.take_message(cx, std::mem::replace(message, Message::Stop));
                }
                _ => {}
            }
        }
        messages.clear();
        self.messages = messages;
    }

    /// Accepts requests of a session. They are taken from where they lie: requests are large to be moved.
    fn submit(&mut self, session: SessionKey, messages: &mut [Message], now: Time) {
        let submissions = messages.iter_mut().filter_map(|message| match message {
            Message::Submit { submission, .. } => Some(submission),
            _ => None,
        });
        match self.sessions.get_mut(session.0) {
            Some(driver) => driver.accept(submissions, now),
            None => submissions.for_each(|submission| submission.refuse(Error::Closed)),
        }
        self.settle_later(session);
    }

    #[inline(never)]
    fn take_message(&mut self, cx: &mut Context<'_>, message: Message) {
        match message {
            // They are taken together.
            Message::Submit { .. } => {}
            Message::Open { portal, target, options, done } => {
                let key = SessionKey(self.sessions.next_key());
                self.sessions.insert(SessionDriver::new(key, portal, target, options, done));
                self.with(cx, key, SessionDriver::dial);
            }
            Message::Cancel { session, id } => self.with(cx, session, |driver, env| driver.cancel(id, env)),
            Message::Ask { session, question } => {
                if self.sessions.get(session.0).is_some() {
                    self.with(cx, session, |driver, env| driver.ask(question, env));
                } else {
                    question.refuse(Error::Closed);
                }
            }
            Message::Watch { session, lun, power_ons } => {
                self.with(cx, session, |driver, _| driver.watch(lun, power_ons));
            }
            Message::Recoveries { session, done } => {
                done(self.sessions.get(session.0).map(SessionDriver::recoveries).ok_or(Error::Closed));
            }
            Message::Observe { session, done } => {
                done(self.sessions.get(session.0).map(|driver| driver.observe(cx)).ok_or(Error::Closed));
            }
            Message::Close { session, done } => {
                if self.sessions.get(session.0).is_some() {
                    self.with(cx, session, |driver, env| driver.close(done, env));
                } else if let Some(done) = done {
                    done(Ok(()));
                }
            }
            Message::Alarm { after, bell } => self.alarms.push((self.now(cx) + after, bell)),
            Message::Dialed { session, attempt, result } => {
                self.with(cx, session, |driver, env| driver.dialed(attempt, result, env));
            }
            Message::Stop => {
                self.is_stopping = true;
                self.stop_if_done(cx);
            }
        }
    }

    /// Ends the event loop when it is to, and no logout is under way. Each has its time limit, so this comes.
    fn stop_if_done(&self, cx: &mut Context<'_>) {
        if self.is_stopping && !self.sessions.iter().any(|(_, driver)| driver.is_closing()) {
            cx.stop();
        }
    }
}

impl Handler for Engine {
    fn accepted(&mut self, cx: &mut Context<'_>, _: ListenerId, id: ConnectionId, _: SocketAddr, _: SocketAddr) {
        // The initiator has no listeners.
        cx.close(id);
    }

    fn direct(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        self.driver_of(id)?.direct(id)
    }

    fn direct_received(&mut self, cx: &mut Context<'_>, id: ConnectionId, len: usize) {
        let Some(key) = self.session_of(id) else { return };
        self.act(cx, key, |driver, env| driver.direct_received(id, len, env));
        self.settle_later(key);
    }

    fn received(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) -> usize {
        if let Some(key) = self.session_of(id) {
            self.act(cx, key, |driver, env| driver.received(id, bytes, env));
            self.settle_later(key);
            if self.received.last() != Some(&key) {
                self.received.push(key);
            }
        }
        bytes.len()
    }

    fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
        if let Some(driver) = self.session_of(id).and_then(|key| self.sessions.get(key.0)) {
            driver.gather(id, list);
        }
    }

    fn sent(&mut self, _: &mut Context<'_>, id: ConnectionId, len: usize) {
        if let Some(driver) = self.driver_of(id) {
            driver.sent(id, len);
        }
    }

    fn closed(&mut self, cx: &mut Context<'_>, id: ConnectionId, why: Closed) {
        let Some(key) = self.session_of(id) else { return };
        self.by_connection[id.index()] = None;
        self.with(cx, key, |driver, env| driver.connection_closed(id, &why, env));
    }

    fn woken(&mut self, cx: &mut Context<'_>) {
        self.take_messages(cx);
    }

    fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        let held = self.held.iter().map(|(until, _)| *until).chain(self.alarms.iter().map(|(at, _)| *at));
        let sessions = held.chain(self.timetable.next()).min().map(|at| self.epoch + at.since_epoch());
        // Callers may give buffers back while the loop sleeps. The trimmer then waits for the next wake-up of a
        // session.
        sessions.into_iter().chain(self.trimmer.next_timeout(now)).min()
    }

    fn timeout(&mut self, cx: &mut Context<'_>) {
        self.trimmer.time_has_come(cx.now());
        let now = self.now(cx);
        self.end_holds(cx, now);
        drop(self.alarms.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>());
        while let Some((at, key)) = self.timetable.pop_due(now) {
            if let Some(driver) = self.sessions.get_mut(key.0)
                && driver.watched_for == Some(at)
            {
                driver.watched_for = None;
                self.with(cx, key, SessionDriver::time_has_come);
            }
        }
    }

    fn batch_end(&mut self, cx: &mut Context<'_>) {
        Turn::part_ends();
        // What callers have submitted by now leaves with this batch.
        self.take_messages(cx);
        self.settle_all(cx);
        self.coalesce(cx);
    }
}

impl Upper for Engine {
    type Place = Placement;

    fn datagram_options(&self, id: ConnectionId) -> DatagramOptions {
        let driver = self.session_of(id).and_then(|key| self.sessions.get(key.0));
        driver.map_or_else(DatagramOptions::default, SessionDriver::datagram_options)
    }

    fn accepted_datagrams(
        &mut self,
        cx: &mut Context<'_>,
        _: DatagramSocketId,
        id: ConnectionId,
        _: SocketAddr,
        _: SocketAddr,
    ) {
        // The initiator has no portals.
        cx.close(id);
    }

    fn takes(&self, id: ConnectionId) -> bool {
        let driver = self.session_of(id).and_then(|key| self.sessions.get(key.0));
        driver.is_some_and(|driver| driver.takes(id))
    }

    fn place_early(
        &mut self,
        id: ConnectionId,
        bhs: &[u8; BHS_LEN],
        pdu_offset: u32,
        len: usize,
    ) -> Option<(Placement, &mut [u8])> {
        self.driver_of(id)?.place_early(id, bhs, pdu_offset, len)
    }

    fn placed(&mut self, cx: &mut Context<'_>, id: ConnectionId, place: Placement, skipped: usize, len: usize) -> bool {
        let Some(key) = self.session_of(id) else { return false };
        let mut placed = false;
        self.with(cx, key, |driver, env| placed = driver.placed(id, place, [skipped, len], env));
        placed
    }

    fn take_pdu(&mut self, id: ConnectionId) -> Option<OutgoingPdu> {
        self.driver_of(id)?.take_pdu(id)
    }

    fn binding(&mut self, id: ConnectionId) -> Option<Binding> {
        self.driver_of(id)?.binding(id)
    }
}

impl Engine {
    /// Builds the handler of a reactor: the engine, and below it the layer that carries connections in datagrams.
    pub(crate) fn on_endpoint(self, datagrams: DatagramConfig) -> Endpoint<Self> {
        let (epoch, entropy) = (self.epoch, Arc::clone(&self.host.entropy));
        let fill = move |bytes: &mut [u8]| entropy(bytes).expect("the system has random numbers");
        Endpoint::new(self, datagrams, epoch, Box::new(fill))
    }
}
