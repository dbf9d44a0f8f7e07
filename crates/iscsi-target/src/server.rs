//! Opening, running and stopping a target.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lunette_buffer::Pool;
use lunette_device::{Entropy, TargetDevice, system_entropy};
use lunette_ecl_endpoint::Config as DatagramConfig;
use lunette_reactor::{IoBackend, Reactor, ThreadPool, Waker};
use lunette_session::iscsi_target::{Directory, Timers};

use crate::config::{BindError, ServerConfig, check_targets, lun_maps, node};
use crate::control::{Control, Updates, UpdatesEnd};
pub use crate::core::DatagramPortal;
use crate::core::{
    ConnectionLimit, CoreConfig, CoreMessage, FIRST, Mailbox, Portals, SessionAffinity, Timing, declare_ports,
    nexuses_of, spread,
};
use crate::limits::{MAX_CORES, MAX_QUEUED_FILE_OPS, MIN_BUFFER_BYTES};
use crate::monitor::{Logins, Monitor, SharedDevices, SharedSessions};
use crate::pulse::Pulse;
use crate::sessions::{HostMaker, SessionObserver};
use crate::threads::{Seat, run_all};

/// A target that listens.
pub struct Server {
    seats: Vec<Seat>,
    portals: Vec<SocketAddr>,
    datagram_portals: Vec<DatagramPortal>,
    closed: Vec<BindError>,
    stopper: Stopper,
    monitor: Monitor,
    control: Control,
    updates_end: UpdatesEnd,
}

/// Asks a [`Server`] to stop, from any thread.
#[derive(Clone)]
pub struct Stopper {
    asked: Arc<AtomicBool>,
    waker: Waker,
}

impl Stopper {
    /// Begins an orderly stop; [`Server::run`] returns when it is done.
    pub fn stop(&self) {
        self.asked.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Server {
    /// Opens the portals. Initiators can connect from now on; they are answered once the server runs.
    ///
    /// # Errors
    ///
    /// When a portal cannot be opened, or the targets contradict each other.
    pub fn bind(config: ServerConfig) -> Result<Self, BindError> {
        Self::bind_at(config, Instant::now(), system_entropy(), false)
    }

    /// [`bind`](Self::bind), with the moment from which time is counted and the source of random numbers. `is_stepped`:
    /// time stands still within a batch.
    pub(crate) fn bind_at(
        config: ServerConfig,
        epoch: Instant,
        entropy: Entropy,
        is_stepped: bool,
    ) -> Result<Self, BindError> {
        check_targets(&config.targets, &config.discovery)?;
        let mut reactors = open_reactors(&config)?;
        let mailboxes = Mailbox::between(reactors.iter().map(Reactor::waker));
        let first = &mut reactors[FIRST];
        tracing::info!(cores = config.cores, "the event loop runs on {}", first.backend());
        let stopper = Stopper { asked: Arc::default(), waker: first.waker() };
        let updates: Arc<Updates> = Arc::default();
        let control = Control::new(Arc::clone(&updates), first.waker());
        let mut open = Portals::new(config.listeners, config.datagrams.sockets);
        let required = config.leaves_closed.then_some(&[][..]);
        let closed = open.change(&mut first.context(), &config.portals, &config.datagram_portals, required)?;
        if !config.keeps_listeners {
            open.let_go();
        }
        let (portals, datagram_portals) = (open.to_vec(), open.datagram_portals());
        let devices: Vec<_> = config.targets.iter().map(|target| Arc::clone(&target.device)).collect();
        let ports = open.ports();
        declare_ports(&devices, &ports);
        let going_on = nexuses_of(&config.inherited);
        for (_, unit) in devices.iter().flat_map(|device| device.units()) {
            unit.lose_all_but(&going_on);
        }
        for target in &config.targets {
            target.device.set_lun_maps(lun_maps(target));
        }
        let targets = config.targets.into_iter().map(|target| Arc::new(node(target, &ports))).collect();
        let common = Common {
            affinity: SessionAffinity::new(config.cores),
            limit: ConnectionLimit::default(),
            epoch,
            entropy,
            shared_devices: SharedDevices::default(),
            logins: Arc::default(),
            shared_sessions: Arc::default(),
            devices,
            directory: Arc::new(Directory { targets, discovery: config.discovery }),
            timers: config.timers,
            timing: Timing { stands_still: is_stepped, slow_command: config.slow_command },
            leaves_pairs: is_stepped,
            datagrams: config.datagrams,
            pool_bytes: pool_bytes(config.buffer_bytes, config.cores),
            file_threads: config.file_threads.div_ceil(config.cores),
            observer: config.observer,
            host_maker: config.host_maker,
        };
        let seats = reactors.into_iter().zip(mailboxes).map(|(reactor, mailbox)| common.seat(reactor, mailbox));
        let mut seats = seats.collect::<io::Result<Vec<_>>>()?;
        let first = &mut seats[FIRST].config;
        first.portals = open;
        first.stop_asked = Arc::clone(&stopper.asked);
        first.updates = Arc::clone(&updates);
        common.shared_devices.set(&common.devices);
        let watched = seats.iter().map(Seat::watched).collect();
        let monitor = Monitor::new(
            watched,
            common.shared_devices.clone(),
            Arc::clone(&common.logins),
            Arc::clone(&common.shared_sessions),
        );
        for (core, sessions) in spread(config.inherited, config.cores).into_iter().enumerate() {
            // Before its first batch, so before any login.
            seats[core].config.mailbox.send(core, CoreMessage::Inherit(sessions));
        }
        let portals = portals.iter().map(|portal| portal.address).collect();
        Ok(Self {
            seats,
            portals,
            datagram_portals,
            closed,
            stopper,
            monitor,
            control,
            updates_end: UpdatesEnd(updates),
        })
    }

    /// The addresses that are listened on, in the order of the configuration.
    pub fn portals(&self) -> &[SocketAddr] {
        &self.portals
    }

    /// Where associations of the Effective Cross Layer begin, in the order of the configuration.
    pub fn datagram_portals(&self) -> &[DatagramPortal] {
        &self.datagram_portals
    }

    /// The portals that could not be opened.
    pub fn closed_portals(&self) -> &[BindError] {
        &self.closed
    }

    /// The way to watch this server.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// The way to see whether its event loops turn.
    pub fn pulse(&self) -> Pulse {
        Pulse::new(self.seats.iter().map(Seat::pulse))
    }

    /// The way to stop this server.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// The way to change what this server serves.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Serves until stopped.
    ///
    /// # Errors
    ///
    /// When an event loop fails, or a store could not be flushed at the end.
    pub fn run(self) -> io::Result<()> {
        run_all(self.seats)
    }

    /// Gives up the server for its cores, which no thread runs yet.
    pub(crate) fn into_seats(self) -> (Vec<Seat>, UpdatesEnd) {
        (self.seats, self.updates_end)
    }
}

/// The values that all cores have in common.
struct Common {
    affinity: Arc<SessionAffinity>,
    limit: ConnectionLimit,
    epoch: Instant,
    entropy: Entropy,
    devices: Vec<Arc<TargetDevice>>,
    shared_devices: SharedDevices,
    logins: Arc<Logins>,
    shared_sessions: Arc<SharedSessions>,
    directory: Arc<Directory>,
    timers: Timers,
    timing: Timing,
    leaves_pairs: bool,
    datagrams: DatagramConfig,
    /// The bytes of each pool.
    pool_bytes: usize,
    /// The file threads of each core.
    file_threads: usize,
    observer: Option<SessionObserver>,
    host_maker: Option<HostMaker>,
}

impl Common {
    /// A core on `reactor`.
    fn seat(&self, mut reactor: Reactor, mailbox: Mailbox<CoreMessage>) -> io::Result<Seat> {
        let config = CoreConfig {
            counts: Arc::default(),
            mailbox,
            affinity: Arc::clone(&self.affinity),
            limit: self.limit.clone(),
            epoch: self.epoch,
            entropy: Arc::clone(&self.entropy),
            portals: Portals::default(),
            devices: self.devices.clone(),
            shared_devices: self.shared_devices.clone(),
            logins: Arc::clone(&self.logins),
            shared_sessions: Arc::clone(&self.shared_sessions),
            directory: Arc::clone(&self.directory),
            timers: self.timers,
            timing: self.timing,
            leaves_pairs: self.leaves_pairs,
            datagrams: self.datagrams.clone(),
            pool: Pool::trimmed(self.pool_bytes),
            file_threads: ThreadPool::new("lunette-file", self.file_threads, MAX_QUEUED_FILE_OPS)?,
            files_on_ring: reactor.backend() == IoBackend::Uring,
            waker: reactor.waker(),
            stop_asked: Arc::default(),
            updates: Arc::default(),
            observer: self.observer.clone(),
            host_maker: self.host_maker.clone(),
        };
        Ok(Seat { reactor, config })
    }
}

fn open_reactors(config: &ServerConfig) -> Result<Vec<Reactor>, BindError> {
    let cores = config.cores;
    if !(1..=MAX_CORES).contains(&cores) {
        return Err(BindError::Cores(cores));
    }
    Ok((0..cores).map(|_| Reactor::with(config.event_loop)).collect::<io::Result<_>>()?)
}

/// The bytes of one core's pool.
fn pool_bytes(buffer_bytes: usize, cores: usize) -> usize {
    (buffer_bytes / cores).max(MIN_BUFFER_BYTES)
}
