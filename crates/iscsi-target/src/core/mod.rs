//! One core's share of the target: its connections, tasks and timers, driven by a reactor.
//!
//! [`Core`] is composed of owners, each in a folder of its own, which know nothing of it and import each other in one
//! direction: [`buffers`], [`tasks`], [`lifecycle`], [`mesh`], [`connections`]. The files beside this one say what
//! happens between them.

mod admission;
mod affected;
mod buffers;
mod connections;
mod dispatch;
mod events;
mod freezes;
mod handler;
mod host_requests;
mod identity;
mod lifecycle;
mod mesh;
mod messages;
mod queries;
mod quiesced;
mod recovery;
mod sessions;
mod siblings;
mod standstill;
mod stop;
mod task_management;
mod tasks;
mod updates;
mod views;
mod watchdog;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lunette_buffer::Pool;
use lunette_device::{Entropy, TargetDevice};
use lunette_ecl_endpoint::{Config as DatagramConfig, Endpoint};
use lunette_reactor::{ConnectionId, Context, DatagramSocketId, ListenerId, ThreadPool, Waker};
use lunette_session::Time;
use lunette_session::iscsi_target::{Directory, Timers};
use lunette_tls::Handshakes;

use crate::control::Updates;
use crate::monitor::{Counts, Logins, SharedDevices, SharedSessions};
use crate::sessions::{HostMaker, SessionObserver};
use buffers::BufferQueue;
use connections::Connections;
use host_requests::HostRequests;
pub use lifecycle::DatagramPortal;
use lifecycle::Lifecycle;
pub(crate) use lifecycle::{Portals, declare_ports};
use mesh::Mesh;
pub(crate) use mesh::{ConnectionLimit, CoreMessage, FIRST, Mailbox, SessionAffinity};
use quiesced::OnQuiesced;
use standstill::Resting;
pub(crate) use standstill::{nexuses_of, spread};
pub(crate) use tasks::Timing;
use tasks::{Barriers, FileWork, TaskRunner};
use watchdog::{Verdict, Watchdog};

/// The values that a core needs to start.
pub(crate) struct CoreConfig {
    pub(crate) mailbox: Mailbox<CoreMessage>,
    pub(crate) affinity: Arc<SessionAffinity>,
    pub(crate) limit: ConnectionLimit,
    /// The moment from which all cores count time.
    pub(crate) epoch: Instant,
    /// The source of random numbers.
    pub(crate) entropy: Entropy,
    /// The first core has them, the updates and the wish to stop. Those of other cores stay empty.
    pub(crate) portals: Portals,
    pub(crate) devices: Vec<Arc<TargetDevice>>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) timers: Timers,
    /// How commands are timed.
    pub(crate) timing: Timing,
    /// Pairs of sockets stand for connections of the network, so another process can go on with them.
    pub(crate) leaves_pairs: bool,
    /// How connections over datagrams are carried.
    pub(crate) datagrams: DatagramConfig,
    pub(crate) pool: Pool,
    pub(crate) file_threads: ThreadPool<FileWork>,
    /// The reactor takes file operations.
    pub(crate) files_on_ring: bool,
    pub(crate) waker: Waker,
    pub(crate) stop_asked: Arc<AtomicBool>,
    pub(crate) updates: Arc<Updates>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) logins: Arc<Logins>,
    pub(crate) shared_sessions: Arc<SharedSessions>,
    /// Where the first core says what is served.
    pub(crate) shared_devices: SharedDevices,
    pub(crate) observer: Option<SessionObserver>,
    pub(crate) host_maker: Option<HostMaker>,
}

pub(crate) struct Core {
    mesh: Mesh,
    lifecycle: Lifecycle,
    connections: Connections,
    tasks: TaskRunner,
    buffers: BufferQueue,
    barriers: Barriers<OnQuiesced>,
    /// Targets whose TARGET COLD RESET was not answered, for its connection is gone: their sessions end all the same.
    due_resets: Vec<Arc<TargetDevice>>,
    /// A connection ended after the batch was settled: what it held may let others go on.
    unsettled: bool,
    epoch: Instant,
    timers: Timers,
    entropy: Entropy,
    counts: Arc<Counts>,
    logins: Arc<Logins>,
    shared_sessions: Arc<SharedSessions>,
    observer: Option<SessionObserver>,
    host_requests: HostRequests,
    handshakes: Handshakes,
    /// On the way to a standstill.
    resting: Option<Resting>,
    /// See [`CoreConfig::leaves_pairs`].
    leaves_pairs: bool,
}

impl Core {
    /// A core, and below it what carries connections in datagrams.
    pub(crate) fn on_endpoint(config: CoreConfig) -> Endpoint<Self> {
        let (datagrams, epoch, entropy) = (config.datagrams.clone(), config.epoch, Arc::clone(&config.entropy));
        let fill = move |bytes: &mut [u8]| entropy(bytes).expect("the system has random numbers");
        Endpoint::new(Self::new(config), datagrams, epoch, Box::new(fill))
    }

    pub(crate) fn new(config: CoreConfig) -> Self {
        let CoreConfig { portals, devices, directory, updates, stop_asked, waker, mailbox, .. } = config;
        let wakes = waker.clone();
        config.pool.when_back(move || wakes.wake());
        let mut core = Self {
            connections: Connections::new(mailbox.me(), mailbox.cores()),
            mesh: Mesh::new(mailbox, config.affinity, config.limit),
            lifecycle: Lifecycle::new(portals, devices, config.shared_devices, directory, updates, stop_asked),
            tasks: TaskRunner::new(waker, config.file_threads, config.files_on_ring, config.epoch, &config.timing),
            buffers: BufferQueue::new(config.pool),
            barriers: Barriers::default(),
            due_resets: Vec::new(),
            unsettled: false,
            epoch: config.epoch,
            timers: config.timers,
            entropy: config.entropy,
            counts: config.counts,
            logins: config.logins,
            shared_sessions: config.shared_sessions,
            observer: config.observer,
            host_requests: HostRequests::new(config.host_maker),
            handshakes: Handshakes::default(),
            resting: None,
            leaves_pairs: config.leaves_pairs,
        };
        core.resume_all_background();
        core
    }

    /// Where connections come in, when there is a portal.
    pub(crate) fn first_listener(&self) -> Option<ListenerId> {
        self.lifecycle.portals().first_listener()
    }

    /// Where associations come in, when there is such a portal.
    pub(crate) fn first_datagram_socket(&self) -> Option<DatagramSocketId> {
        self.lifecycle.portals().first_datagram_socket()
    }

    /// How the stop ended.
    pub(crate) fn into_stop_result(mut self) -> io::Result<()> {
        let result = self.lifecycle.take_stop_result();
        if matches!(&result, Err(error) if error.kind() == io::ErrorKind::TimedOut) {
            self.abandon();
        }
        result
    }

    /// Ends without waiting for tasks or flushes.
    pub(crate) fn abandon(mut self) {
        // An update that another core never took up is answered by the end of its channel.
        self.barriers = Barriers::default();
        // Dropping the threads waits for them, and one may hang in the system for ever.
        std::mem::forget(self);
    }

    fn time(&self, cx: &Context<'_>) -> Time {
        Time::new(cx.now().duration_since(self.epoch))
    }

    fn touch(&mut self, id: ConnectionId) {
        self.connections.touch(id);
    }

    /// Goes on with what an earlier process has left on the units that are served, unless another core does.
    fn resume_all_background(&mut self) {
        if self.mesh.is_first() {
            for task in self.lifecycle.devices().iter().flat_map(|device| device.background()) {
                self.tasks.begin_background(task, &self.buffers);
            }
        }
    }

    /// Carries on with everything that the batch has made possible.
    fn settle(&mut self, cx: &mut Context<'_>) {
        self.tasks.stopwatch().begin(cx.now());
        self.unsettled = false;
        self.bound_suspended(cx);
        if self.resting.is_none() {
            self.tasks.step_background(cx.now(), self.lifecycle.is_stopping(), &self.buffers);
        }
        self.abort_for_background();
        self.settle_rounds(cx);
        self.finish_removals();
        self.continue_stop(cx);
        self.tasks.submit_files(cx);
        self.connections.tidy_timers();
        self.look_for_rest(cx);
        self.publish_counts();
    }

    /// Repeats what completions, freed buffers and answered events have made possible, until nothing moves.
    fn settle_rounds(&mut self, cx: &mut Context<'_>) {
        let mut watchdog = Watchdog::default();
        let mut suspects: Vec<ConnectionId> = Vec::new();
        loop {
            let mut moved = self.take_completions();
            self.pass_barriers(cx);
            self.end_reset_targets();
            self.feed_waiting();
            self.make_room(self.time(cx));
            self.begin_ready();
            self.give_up_stalled();
            // A store in memory may have answered one that was fed.
            if !self.connections.are_touched() && !self.tasks.can_go_on() {
                return;
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
                Verdict::Yield => return self.unsettled = true,
                Verdict::Runaway => return self.end_runaways(cx, suspects),
            }
        }
    }

    /// Ends the connections whose work does not come to an end, so that the others are served: those that the last
    /// round looked at.
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
        self.connections.in_session(id, |session| session.reset(None));
        self.close_now(cx, id);
    }

    /// Tells monitors how much there is.
    fn publish_counts(&self) {
        self.counts.connections.store(self.connections.len(), Ordering::Release);
        self.counts.suspended.store(self.connections.parked().count(), Ordering::Release);
        self.counts.sessions.store(self.connections.sessions_len(), Ordering::Release);
        self.counts.tasks.store(self.tasks.len(), Ordering::Release);
        self.counts.buffer_waits.store(self.buffers.waits(), Ordering::Release);
        self.counts.timers.store(self.connections.timers_len(), Ordering::Release);
    }
}
