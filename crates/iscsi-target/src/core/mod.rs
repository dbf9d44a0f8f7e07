//! One core's share of the target: its connections, tasks and timers, driven by a reactor.

mod admission;
mod buffers;
mod connections;
mod dispatch;
mod homes;
mod leaving;
mod news;
mod orders;
mod portals;
mod post;
mod queries;
mod quiesced;
mod recovery;
mod siblings;
mod stop;
mod task_management;
mod tasks;
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
use lunette_session::iscsi_target::{CloseReason, Directory, Event, LoginEvent, SessionInfo, Timers};

use crate::control::Updates;
use crate::monitor::Counts;
pub(crate) use admission::port_name;
use buffers::BufferQueue;
use connections::{Conn, Connections, Next};
pub(crate) use connections::{ConnectionLimit, Source};
pub(crate) use homes::Homes;
use leaving::Leaving;
pub(crate) use orders::Order;
pub(crate) use portals::Portals;
pub(crate) use post::{FIRST, Mailbox};
use quiesced::OnQuiesced;
use stop::Stopping;
use tasks::{Barriers, FileWork, TaskRunner};
use watchdog::{MAX_EVENTS, Verdict, Watchdog};

pub(crate) struct CoreConfig {
    pub(crate) post: Mailbox<Order>,
    pub(crate) homes: Arc<Homes>,
    pub(crate) limit: ConnectionLimit,
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
    portals: Portals,
    devices: Vec<Arc<TargetDevice>>,
    directory: Arc<Directory>,
    timers: Timers,
    connections: Connections,
    tasks: TaskRunner,
    buffers: BufferQueue,
    /// Targets whose TARGET COLD RESET was not answered, for its connection is gone: their sessions end all the same.
    due_resets: Vec<Arc<TargetDevice>>,
    barriers: Barriers<OnQuiesced>,
    /// A connection ended after the batch was settled: what it held may let others go on.
    unsettled: bool,
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
        let connections = Connections::new(config.limit, config.post.me(), config.post.cores());
        let waker = config.waker.clone();
        config.pool.when_back(move || waker.wake());
        let mut core = Self {
            post: config.post,
            homes: config.homes,
            portals: config.portals,
            devices: config.devices,
            directory: config.directory,
            timers: config.timers,
            connections,
            tasks: TaskRunner::new(config.waker, config.file_threads, config.files_on_ring, config.epoch),
            buffers: BufferQueue::new(config.pool),
            due_resets: Vec::new(),
            barriers: Barriers::default(),
            unsettled: false,
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
        let mut events = 0;
        let answers_first = loop {
            match self.connections.next_event(id, &mut bytes, now) {
                Next::Login(event) => self.handle_login(cx, id, event),
                Next::Session(event) => self.handle(cx, id, event),
                Next::Nothing => break false,
                Next::AnswersFirst => break true,
            }
            events += 1;
            if events > MAX_EVENTS {
                self.end_runaway(cx, id);
            }
        };
        let left = self.connections.end_events(cx, id, bytes, answers_first, &self.counts.traffic);
        Pumped { left, moved: events > 0 }
    }

    /// Goes on with what an earlier process has left on the units that are served, unless another core does.
    fn resume_all_background(&mut self) {
        if self.post.me() == FIRST {
            for task in self.devices.iter().flat_map(|device| device.background()) {
                self.tasks.begin_background(task, &self.buffers);
            }
        }
    }

    fn handle_login(&mut self, cx: &mut Context<'_>, id: ConnectionId, event: LoginEvent) {
        match event {
            LoginEvent::Admit(request) => self.admit(cx, id, request),
            LoginEvent::Close(reason) => self.close(cx, id, &reason),
        }
    }

    fn handle(&mut self, cx: &mut Context<'_>, id: ConnectionId, event: Event<ConnectionId>) {
        match event {
            Event::Command(command) => self.start_task(id, &command),
            Event::DataOut { task, buffer } => self.data_arrived(id, task, buffer),
            Event::Aborted(task) => self.forget_task(id, task),
            Event::TaskManagement(ticket) => self.manage_tasks(id, ticket),
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
            self.connections.remove(id);
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
            self.connections.leave(key, id);
        }
    }

    /// Cuts a connection off: another one takes its place, or the target is reset.
    fn cut(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        self.end_session_part(id);
        self.connections.remove(id);
        cx.close(id);
    }

    fn touch(&mut self, id: ConnectionId) {
        self.connections.touch(id);
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
            if !self.connections.are_touched() && !self.tasks.can_go_on() {
                break;
            }
            let touched = self.connections.take_touched();
            if watchdog.is_suspicious() {
                suspects.clone_from(&touched);
            }
            for id in &touched {
                moved |= self.pump(cx, *id, &[]).moved;
            }
            self.connections.recycle(touched);
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
        self.connections.tidy_timers();
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
        self.counts.sessions.store(self.connections.sessions_len(), Ordering::Release);
        self.counts.tasks.store(self.tasks.len(), Ordering::Release);
        self.counts.buffer_waits.store(self.buffers.waits(), Ordering::Release);
        self.counts.timers.store(self.connections.timers_len(), Ordering::Release);
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
        let (group, permit) = (self.portals.group_of(listener), self.connections.permit(source));
        let (Some(portal_group), Some(permit), true) = (group, permit, self.stopping.is_no()) else {
            tracing::warn!(%peer, "connection refused: too many, or stopping");
            return cx.close(id);
        };
        match self.new_login(cx, portal_group, local) {
            Ok(login) => {
                let conn = Conn::new(Box::new(login), peer, permit);
                if let Some(evicted) = self.connections.insert_targetless(id, conn, source) {
                    if let Some(conn) = self.connections.get(evicted) {
                        tracing::warn!(peer = %conn.peer, "connection ended: too many others have no target");
                    }
                    self.cut(cx, evicted);
                }
                self.touch(id);
            }
            Err(error) => {
                tracing::error!(%peer, %error, "connection refused: no random numbers");
                cx.close(id);
            }
        }
    }

    fn direct(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        self.connections.direct(id)
    }

    fn direct_received(&mut self, cx: &mut Context<'_>, id: ConnectionId, len: usize) {
        self.connections.direct_received(id, len, self.time(cx));
    }

    fn received(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) -> usize {
        bytes.len() - self.pump(cx, id, bytes).left
    }

    fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
        self.connections.gather(id, list);
    }

    fn sent(&mut self, _: &mut Context<'_>, id: ConnectionId, len: usize) {
        self.connections.sent(id, len, self.buffers.has_waiting());
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
        if self.unsettled
            || self.connections.are_touched()
            || self.tasks.background_is_due()
            || self.tasks.has_queued_files()
        {
            return Some(self.epoch);
        }
        let connections = self.connections.next_timeout().map(|time| self.epoch + time.since_epoch());
        let others = [self.stopping.deadline(), self.tasks.next_timeout(), self.buffers.next_timeout(now)];
        others.into_iter().flatten().chain(connections).min()
    }

    fn timeout(&mut self, cx: &mut Context<'_>) {
        self.connections.time_has_come(self.time(cx));
        self.buffers.time_has_come(cx.now());
        self.end_stop_if_overdue(cx);
    }

    fn batch_end(&mut self, cx: &mut Context<'_>) {
        self.connections.begin_batch();
        self.settle(cx);
    }
}
