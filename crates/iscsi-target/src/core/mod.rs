//! One core's share of the target: its connections, tasks and timers, driven by a reactor.

mod admission;
mod answers;
mod buffers;
mod connection;
mod dispatch;
mod homes;
mod leaving;
mod news;
mod orders;
mod pace;
mod places;
mod portals;
mod post;
mod queries;
mod quiesced;
mod recovery;
mod siblings;
mod stop;
mod table;
mod targetless;
mod task_management;
mod tasks;
mod timers;
mod updates;
mod watchdog;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lunette_buffer::Pool;
use lunette_device::{Entropy, TargetDevice};
use lunette_reactor::{Closed, ConnectionId, Context, FileRequest, Gather, Handler, ListenerId, ThreadPool, Waker};
use lunette_session::Time;
use lunette_session::iscsi_target::{CloseReason, Connection, Directory, Event, LoginEvent, SessionInfo, Timers};

use crate::control::Updates;
use crate::monitor::Counts;
pub(crate) use admission::port_name;
use buffers::BufferQueue;
use connection::{Conn, Sessions};
pub(crate) use homes::Homes;
use leaving::Leaving;
pub(crate) use orders::Order;
use pace::Pace;
pub(crate) use places::{Places, Source};
pub(crate) use portals::Portals;
pub(crate) use post::{FIRST, Mailbox};
use quiesced::OnQuiesced;
use stop::Stopping;
use table::ConnectionTable;
use targetless::Targetless;
use tasks::{Barriers, FileWork, TaskRunner};
use timers::Timetable;
use watchdog::{MAX_EVENTS, Verdict, Watchdog};

pub(crate) struct CoreConfig {
    pub(crate) post: Mailbox<Order>,
    pub(crate) homes: Arc<Homes>,
    pub(crate) places: Places,
    /// What time is counted from, by all cores.
    pub(crate) epoch: Instant,
    /// Where random numbers come from.
    pub(crate) entropy: Entropy,
    /// Of the first core, as are the updates and the wish to stop.
    pub(crate) portals: Portals,
    pub(crate) devices: Vec<Arc<TargetDevice>>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) timers: Timers,
    pub(crate) pool: Pool,
    pub(crate) file_threads: ThreadPool<FileWork>,
    /// The reactor takes file operations.
    pub(crate) files_on_ring: bool,
    pub(crate) waker: Waker,
    pub(crate) stop_asked: Arc<AtomicBool>,
    pub(crate) updates: Arc<Updates>,
    pub(crate) counts: Arc<Counts>,
}

pub(crate) struct Core {
    post: Mailbox<Order>,
    homes: Arc<Homes>,
    places: Places,
    targetless: Targetless<ConnectionId>,
    portals: Portals,
    devices: Vec<Arc<TargetDevice>>,
    directory: Arc<Directory>,
    timers: Timers,
    connections: ConnectionTable<Conn>,
    sessions: Sessions,
    tasks: TaskRunner,
    buffers: BufferQueue,
    /// Targets whose TARGET COLD RESET was not answered, for its connection is gone: their sessions end all the same.
    due_resets: Vec<Arc<TargetDevice>>,
    barriers: Barriers<OnQuiesced>,
    /// Connections that may have become able to go on since the batch began.
    touched: Vec<ConnectionId>,
    /// Empty: the memory of the one before, for the next one.
    touched_before: Vec<ConnectionId>,
    /// A connection ended after the batch was settled: what it held may let others go on.
    unsettled: bool,
    pace: Pace,
    timetable: Timetable,
    epoch: Instant,
    entropy: Entropy,
    stop_asked: Arc<AtomicBool>,
    stopping: Stopping,
    updates: Arc<Updates>,
    leaving: Leaving,
    /// Other cores that have nothing left to stop.
    quiet: usize,
    counts: Arc<Counts>,
}

impl Core {
    pub(crate) fn new(config: CoreConfig) -> Self {
        // The numbers of sessions tell their homes.
        let sessions = Sessions::sharing(config.post.me(), config.post.cores());
        let waker = config.waker.clone();
        config.pool.when_back(move || waker.wake());
        let mut core = Self {
            post: config.post,
            homes: config.homes,
            places: config.places,
            targetless: Targetless::default(),
            portals: config.portals,
            devices: config.devices,
            directory: config.directory,
            timers: config.timers,
            connections: ConnectionTable::default(),
            sessions,
            tasks: TaskRunner::new(config.waker, config.file_threads, config.files_on_ring, config.epoch),
            buffers: BufferQueue::new(config.pool),
            due_resets: Vec::new(),
            barriers: Barriers::default(),
            touched: Vec::new(),
            touched_before: Vec::new(),
            unsettled: false,
            pace: Pace::default(),
            timetable: Timetable::default(),
            epoch: config.epoch,
            entropy: config.entropy,
            stop_asked: config.stop_asked,
            stopping: Stopping::No,
            updates: config.updates,
            leaving: Leaving::default(),
            quiet: 0,
            counts: config.counts,
        };
        core.resume_all_background();
        core
    }

    /// Where connections come in, when there is a portal.
    pub(crate) fn first_listener(&self) -> Option<ListenerId> {
        self.portals.first_listener()
    }

    /// How the stop ended.
    pub(crate) fn into_stop_result(mut self) -> io::Result<()> {
        let stopping = std::mem::take(&mut self.stopping);
        if stopping.is_overdue() {
            self.abandon();
        }
        stopping.result()
    }

    /// Ends without waiting for what is in hand.
    pub(crate) fn abandon(mut self) {
        // An update that another core never took up: whoever waits for its answer must hear that there is none.
        self.barriers = Barriers::default();
        // Dropping the threads waits for them, and one may hang in the system for ever.
        std::mem::forget(self);
    }

    fn time(&self, cx: &Context<'_>) -> Time {
        Time::new(cx.now().duration_since(self.epoch))
    }

    /// Lets the connection's state machine go on: over `bytes`, and over what it held back.
    fn pump(&mut self, cx: &mut Context<'_>, id: ConnectionId, mut bytes: &[u8]) -> Pumped {
        let now = self.time(cx);
        let mut stops = false;
        let mut events = 0;
        while let Some(conn) = self.connections.get_mut(id) {
            stops = !bytes.is_empty() && self.pace.is_due(conn.under_way);
            if stops {
                break;
            }
            if let Some(login) = &mut conn.login {
                let Some(event) = login.next_event(&mut bytes) else { break };
                self.handle_login(cx, id, event);
            } else {
                let session = conn.key.and_then(|key| self.sessions.get_mut(key));
                let Some(event) = session.and_then(|session| session.next_event(id, &mut bytes, now)) else { break };
                self.handle(cx, id, event);
            }
            events += 1;
            if events > MAX_EVENTS {
                self.end_runaway(cx, id);
            }
        }
        let moved = events > 0;
        let left = self.rest(cx, id, bytes, stops);
        Pumped { left, moved }
    }

    /// Goes on with what an earlier process has left on the units that are served, unless another core does.
    fn resume_all_background(&mut self) {
        if self.post.me() == FIRST {
            for task in self.devices.iter().flat_map(|device| device.background()) {
                self.tasks.begin_background(task, &self.buffers);
            }
        }
    }

    /// Takes note of what the events of a connection have come to. Gives how many `bytes` are left for later.
    fn rest(&mut self, cx: &mut Context<'_>, id: ConnectionId, mut bytes: &[u8], stops: bool) -> usize {
        let Some(conn) = self.connections.get_mut(id) else { return 0 };
        if let Some(login) = &mut conn.login {
            if !stops {
                login.hold(std::mem::take(&mut bytes));
            }
            self.counts.traffic.add(login.take_traffic());
            let (wants_input, has_output, timeout) = (login.wants_input(), login.has_output(), login.next_timeout());
            conn.update_socket(cx, id, wants_input, has_output);
            self.timetable.watch(id, conn, timeout);
            return bytes.len();
        }
        let Some(mut protocol) = conn.protocol_mut(id, &mut self.sessions) else { return 0 };
        if !stops {
            protocol.hold(std::mem::take(&mut bytes));
            conn.under_way = conn.tasks.len() + protocol.unacknowledged_answers();
        }
        conn.count_answers(&mut protocol);
        self.counts.traffic.add(protocol.take_traffic());
        conn.update_socket(cx, id, protocol.wants_input(), protocol.has_output());
        let key = conn.key;
        let session = key.and_then(|key| self.sessions.get_mut(key));
        let (timeout, touched) =
            session.map_or((None, Vec::new()), |session| (session.next_timeout(id), session.take_touched()));
        self.timetable.watch(id, conn, timeout);
        for other in touched {
            self.touch(other);
        }
        bytes.len()
    }

    fn handle_login(&mut self, cx: &mut Context<'_>, id: ConnectionId, event: LoginEvent) {
        match event {
            LoginEvent::Admit(request) => self.admit(cx, id, request),
            LoginEvent::Close(reason) => self.close(cx, id, &reason),
        }
    }

    fn handle(&mut self, cx: &mut Context<'_>, id: ConnectionId, event: Event<ConnectionId>) {
        match event {
            Event::Command(command) => {
                self.pace.count();
                self.start_task(id, &command);
            }
            Event::DataOut { task, buffer } => self.data_arrived(id, task, buffer),
            Event::Aborted(task) => self.forget_task(id, task),
            Event::TaskManagement(ticket) => {
                self.pace.count();
                self.manage_tasks(id, ticket);
            }
            Event::Moved { from, old, new } => self.task_moved(id, from, old, new),
            Event::NexusReset => self.drop_session(cx, id),
            Event::TargetReset => self.reset_target(cx, id),
            Event::Logout { ticket, connection } => self.log_out(cx, id, connection, ticket),
            Event::Detached => self.detached(cx, id),
            Event::Gone => self.gone(id),
            Event::Close(reason) => self.close(cx, id, &reason),
        }
    }

    /// The connection is over: its answers still go out, its tasks end.
    fn close(&mut self, cx: &mut Context<'_>, id: ConnectionId, reason: &CloseReason) {
        let Some(conn) = self.connections.get_mut(id) else { return };
        conn.log_close(reason);
        let (session, key) = (conn.session.clone(), conn.key);
        let takes_along = session.as_ref().is_some_and(|session| takes_siblings_along(session, reason));
        if self.keep_failed(cx, id, reason) {
            return;
        }
        if self.connections.is_parked(id) {
            return self.end_unrecovered(id);
        }
        if takes_along {
            self.end_siblings(cx, id, reason);
        }
        self.end_session_part(id);
        // Who logs a connection out hears of the window in the answer.
        if let Some(key) = key.filter(|_| !takes_along && *reason != CloseReason::ConnectionLogout) {
            self.announce_window(key);
        }
        if *reason == CloseReason::LogoutTimeout && !self.stopping.is_no() {
            // It had its time to read what it was sent: the stop waits no longer for it.
            self.remove(id);
            return cx.close(id);
        }
        cx.close_after_send(id);
    }

    /// Ends what a connection has in this process beside its socket.
    fn end_session_part(&mut self, id: ConnectionId) {
        self.terminate_tasks(id, None);
        let Some(conn) = self.connections.get_mut(id) else { return };
        conn.nexus = None;
        conn.session = None;
        self.due_resets.extend(conn.target_reset.take());
        if let Some(key) = conn.key {
            self.sessions.leave(key, id);
            self.touch_members(key);
        }
    }

    /// Cuts a connection off: another one takes its place, or the target is reset.
    fn cut(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        self.end_session_part(id);
        self.remove(id);
        cx.close(id);
    }

    fn touch(&mut self, id: ConnectionId) {
        if let Some(conn) = self.connections.get_mut(id)
            && !std::mem::replace(&mut conn.touched, true)
        {
            self.touched.push(id);
        }
    }

    /// Carries on with everything that completions, freed buffers and answered events have made possible, until nothing
    /// moves.
    fn settle(&mut self, cx: &mut Context<'_>) {
        self.unsettled = false;
        self.bound_suspended();
        self.tasks.step_background(cx.now(), !self.stopping.is_no(), &self.buffers);
        let mut watchdog = Watchdog::default();
        let mut suspects: Vec<ConnectionId> = Vec::new();
        loop {
            let mut moved = self.take_completions();
            self.pass_barriers(cx);
            self.end_reset_targets(cx);
            self.feed_waiting();
            self.make_room(self.time(cx));
            self.begin_ready();
            self.give_up_stalled();
            // A store in memory may have answered one that was fed.
            if self.touched.is_empty() && !self.tasks.can_go_on() {
                break;
            }
            let mut touched = std::mem::replace(&mut self.touched, std::mem::take(&mut self.touched_before));
            if watchdog.is_suspicious() {
                suspects.clone_from(&touched);
            }
            for id in touched.drain(..) {
                if let Some(conn) = self.connections.get_mut(id) {
                    conn.touched = false;
                    moved |= self.pump(cx, id, &[]).moved;
                }
            }
            self.touched_before = touched;
            match watchdog.count_round(moved) {
                Verdict::GoOn => {}
                Verdict::Yield => {
                    self.unsettled = true;
                    break;
                }
                Verdict::Runaway => {
                    self.end_runaways(cx, suspects);
                    break;
                }
            }
        }
        self.part();
        self.continue_stop(cx);
        self.tasks.submit_files(cx);
        self.timetable.tidy(&mut self.connections);
        self.count();
    }

    /// Ends the connections whose work does not come to an end, so that the others are served: those that the last round looked
    /// at.
    fn end_runaways(&mut self, cx: &mut Context<'_>, suspects: Vec<ConnectionId>) {
        self.unsettled = true;
        for id in suspects {
            self.end_runaway(cx, id);
        }
    }

    fn end_runaway(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        let Some(conn) = self.connections.get_mut(id) else { return };
        tracing::error!(
            peer = %conn.peer,
            initiator = conn.initiator(),
            "a fault of this server: what the connection asked for does not come to an end, so the connection is ended"
        );
        debug_assert!(false, "a loop of the event loop's turn does not end");
        self.end_siblings(cx, id, &CloseReason::SessionLost);
        self.cut(cx, id);
    }

    /// Tells those who watch.
    fn count(&self) {
        self.counts.connections.store(self.connections.len(), Ordering::Release);
        self.counts.suspended.store(self.connections.parked().count(), Ordering::Release);
        self.counts.sessions.store(self.sessions.len(), Ordering::Release);
        self.counts.tasks.store(self.tasks.len(), Ordering::Release);
        self.counts.buffer_waits.store(self.buffers.waits(), Ordering::Release);
        self.counts.timers.store(self.timetable.len(), Ordering::Release);
    }
}

/// What [`Core::pump`] has done.
struct Pumped {
    /// Bytes that are left for later, for answers are to leave first.
    left: usize,
    /// There were events.
    moved: bool,
}

/// Whether the other connections of the session end with this one. At recovery level 2 they outlive a failure.
fn takes_siblings_along(session: &SessionInfo, reason: &CloseReason) -> bool {
    match reason {
        CloseReason::ConnectionLogout => false,
        CloseReason::Logout | CloseReason::LogoutTimeout | CloseReason::SessionLost => true,
        _ => !session.recovers_connections(),
    }
}

impl Handler for Core {
    fn accepted(
        &mut self,
        cx: &mut Context<'_>,
        listener: ListenerId,
        id: ConnectionId,
        peer: SocketAddr,
        local: SocketAddr,
    ) {
        let source = Source::of(peer);
        let (group, place) = (self.portals.group_of(listener), self.places.take(source));
        let (Some(portal_group), Some(place), true) = (group, place, self.stopping.is_no()) else {
            tracing::warn!(%peer, "connection refused: too many, or stopping");
            cx.close(id);
            return;
        };
        match self.new_connection(cx, place, portal_group, peer, local) {
            Ok(conn) => {
                self.connections.insert(id, conn);
                self.begin_targetless(cx, id, source);
                self.touch(id);
            }
            Err(error) => {
                tracing::error!(%peer, %error, "connection refused: no random numbers");
                cx.close(id);
            }
        }
    }

    fn direct(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        let session = self.sessions.get_mut(self.connections.get(id)?.key?)?;
        session.connection_mut(id)?.into_direct()
    }

    fn direct_received(&mut self, cx: &mut Context<'_>, id: ConnectionId, len: usize) {
        let now = self.time(cx);
        if let Some((_, mut protocol)) = self.link(id) {
            protocol.direct_received(len, now);
            // It may have been the end of the segment, and of all that the peer has to send for now.
            self.touch(id);
        }
    }

    fn received(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) -> usize {
        bytes.len() - self.pump(cx, id, bytes).left
    }

    fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
        if let Some(conn) = self.connections.get(id) {
            let of_login = conn.login.iter().flat_map(|login| login.pieces());
            let of_session = conn.protocol(id, &self.sessions).into_iter().flat_map(Connection::pieces);
            list.fill(of_login.chain(of_session));
        }
    }

    fn sent(&mut self, _: &mut Context<'_>, id: ConnectionId, len: usize) {
        if let Some(conn) = self.connections.get_mut(id) {
            if let Some(login) = &mut conn.login {
                login.sent(len);
            } else if let Some(mut protocol) = conn.protocol_mut(id, &mut self.sessions) {
                protocol.sent(len);
                conn.count_answers(&mut protocol);
            }
            if conn.is_held_up() || self.buffers.has_waiting() {
                self.touch(id);
            }
        }
    }

    fn closed(&mut self, cx: &mut Context<'_>, id: ConnectionId, why: Closed) {
        if let Some(conn) = self.connections.get_mut(id) {
            conn.log_closed(&why);
            self.connection_lost(cx, id);
            // It may have ended in the sends, which come after the batch's end.
            self.unsettled = true;
        }
    }

    fn file_done(&mut self, _: &mut Context<'_>, tag: u64, request: FileRequest, result: io::Result<usize>) {
        self.tasks.file_done(tag, request, result);
    }

    fn released(&mut self, _: &mut Context<'_>, id: ConnectionId, stream: TcpStream) {
        self.departed(id, stream);
    }

    fn woken(&mut self, cx: &mut Context<'_>) {
        self.obey_orders(cx);
        self.begin_stop_if_asked(cx);
        self.apply_updates(cx);
    }

    fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        // Sends come after the batch's end; what they made possible is due now. Background work takes a step in each batch.
        if self.unsettled || !self.touched.is_empty() || self.tasks.background_is_due() || self.tasks.has_queued_files()
        {
            return Some(self.epoch);
        }
        let connections = self.timetable.next().map(|time| self.epoch + time.since_epoch());
        let others = [self.stopping.deadline(), self.tasks.next_timeout(), self.buffers.next_timeout(now)];
        others.into_iter().flatten().chain(connections).min()
    }

    fn timeout(&mut self, cx: &mut Context<'_>) {
        let now = self.time(cx);
        while let Some((at, id)) = self.timetable.pop_due(now) {
            // Others were entered for an earlier time since.
            if let Some(conn) = self.connections.get_mut(id).filter(|conn| conn.watched_for == Some(at)) {
                conn.watched_for = None;
                if let Some(login) = &mut conn.login {
                    login.time_has_come(now);
                } else if let Some(mut protocol) = conn.protocol_mut(id, &mut self.sessions) {
                    protocol.time_has_come(now);
                }
                self.touch(id);
            }
        }
        self.buffers.time_has_come(cx.now());
        self.end_stop_if_overdue(cx);
    }

    fn batch_end(&mut self, cx: &mut Context<'_>) {
        self.pace.begin();
        self.settle(cx);
    }
}
