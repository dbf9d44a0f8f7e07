//! The event loop of the initiator, which runs all sessions of one reactor thread.

mod coalescing;
pub(crate) mod dial;
mod driver;
mod env;
pub(crate) mod host;
pub(crate) mod message;
pub(crate) mod queue;
mod reconnect;
mod redirect;
mod requests;
pub(crate) mod retry;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use lunette_buffer::Trimmer;
use lunette_ecl::protection::Binding;
use lunette_ecl_endpoint::{Config as DatagramConfig, DatagramOptions, Endpoint, Upper};
use lunette_pdu::BHS_LEN;
use lunette_reactor::{Closed, ConnectionId, Context, DatagramSocketId, Gather, Handler, ListenerId, Slab, Turn};
use lunette_session::iscsi_initiator::Placement;
use lunette_session::{OutgoingPdu, SharedTraffic, Time, Timetable};

use self::driver::SessionDriver;
use self::env::Env;
use self::host::Host;
use self::message::{Bell, Message, SessionKey};
use self::queue::Queue;
use crate::error::Error;

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
