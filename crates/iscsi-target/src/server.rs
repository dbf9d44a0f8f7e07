//! Opening, running and stopping a target.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lunette_buffer::Pool;
use lunette_device::{Entropy, TargetDevice, system_entropy};
use lunette_reactor::{IoBackend, LoopConfig, Reactor, ThreadPool, Waker};
use lunette_session::iscsi_target::{Directory, Moved, Portal, TargetNode, Timers};
use lunette_session::keys::Offer;
use lunette_session::{Authentication, Credentials};

use crate::control::{Control, Updates, UpdatesEnd};
use crate::core::{ConnectionLimit, CoreConfig, CoreMessage, FIRST, Mailbox, Portals, SessionAffinity, port_name};
use crate::limits::{DEFAULT_BUFFER_BYTES, DEFAULT_FILE_THREADS, MAX_CORES, MAX_QUEUED_FILE_OPS, MIN_BUFFER_BYTES};
use crate::monitor::Monitor;
use crate::threads::{Seat, run_all};

/// One address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortalConfig {
    /// Address and port; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Target portal group tag.
    pub group: u16,
}

/// One target node.
pub struct TargetConfig {
    /// The device with its logical units. Its name is the iSCSI name.
    pub device: Arc<TargetDevice>,
    /// TargetAlias.
    pub alias: Option<String>,
    /// How initiators prove themselves.
    pub authentication: Authentication,
    /// Initiators that may see and use the target; `None` admits all.
    pub initiators: Option<Vec<String>>,
    /// What the target agrees to in a negotiation.
    pub offer: Offer,
    /// Where the target is served instead. Logins are sent there; its sessions are asked to log out.
    pub moved: Option<Moved>,
}

impl TargetConfig {
    /// A target that all initiators may use.
    pub fn open(device: Arc<TargetDevice>) -> Self {
        let authentication = Authentication::None;
        Self { device, alias: None, authentication, initiators: None, offer: Offer::default(), moved: None }
    }
}

/// Everything that a server serves.
pub struct ServerConfig {
    /// Where to listen. All targets are reached through all portals.
    pub portals: Vec<PortalConfig>,
    /// What to serve; names are unique.
    pub targets: Vec<TargetConfig>,
    /// How initiators prove themselves for a discovery session.
    pub discovery: Authentication,
    /// How long to wait for what.
    pub timers: Timers,
    /// Bytes of buffers for data in flight, of all cores together; [`MIN_BUFFER_BYTES`] for each at least.
    pub buffer_bytes: usize,
    /// Threads for file operations, of all cores together; one for each at least.
    pub file_threads: usize,
    /// How the event loops run.
    pub event_loop: LoopConfig,
    /// Event loops, each on a thread of its own, and on a CPU of its own when there are as many; from 1 to [`MAX_CORES`].
    /// Sessions are spread over them.
    pub cores: usize,
}

impl ServerConfig {
    /// Defaults around these portals and targets.
    pub fn new(portals: Vec<PortalConfig>, targets: Vec<TargetConfig>) -> Self {
        Self {
            portals,
            targets,
            discovery: Authentication::None,
            timers: Timers::default(),
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            file_threads: DEFAULT_FILE_THREADS,
            event_loop: LoopConfig::default(),
            cores: 1,
        }
    }
}

/// Why a server cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The portal's address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The event loop or its threads.
    #[error("cannot start the event loop: {0}")]
    Reactor(#[from] io::Error),
    /// No event loop, or too many.
    #[error("{0} cores are not possible; ask for 1 to {MAX_CORES}")]
    Cores(usize),
    /// Two targets of one name.
    #[error("two targets are named {0}; names must differ")]
    DuplicateName(String),
    /// CHAP in both directions with one secret (RFC 7143 section 9.2.1 forbids it).
    #[error("target {0}: the secret of the target must differ from those of its initiators")]
    SharedSecret(String),
}

/// A target that listens.
pub struct Server {
    seats: Vec<Seat>,
    portals: Vec<SocketAddr>,
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
        Self::bind_at(config, Instant::now(), system_entropy())
    }

    /// [`bind`](Self::bind), with the moment from which time is counted and the source of random numbers.
    pub(crate) fn bind_at(config: ServerConfig, epoch: Instant, entropy: Entropy) -> Result<Self, BindError> {
        check_targets(&config.targets)?;
        let mut reactors = open_reactors(&config)?;
        let mailboxes = Mailbox::between(reactors.iter().map(Reactor::waker));
        let first = &mut reactors[FIRST];
        tracing::info!(cores = config.cores, "the event loop runs on {}", first.backend());
        let stopper = Stopper { asked: Arc::default(), waker: first.waker() };
        let updates: Arc<Updates> = Arc::default();
        let control = Control::new(Arc::clone(&updates), first.waker());
        let mut open = Portals::default();
        open.change(&mut first.context(), &config.portals)?;
        let portals = open.to_vec();
        let devices: Vec<_> = config.targets.iter().map(|target| Arc::clone(&target.device)).collect();
        declare_ports(&devices, &portals);
        let targets = config.targets.into_iter().map(|target| Arc::new(node(target, &portals))).collect();
        let common = Common {
            affinity: SessionAffinity::new(config.cores),
            limit: ConnectionLimit::default(),
            epoch,
            entropy,
            devices,
            directory: Arc::new(Directory { targets, discovery: config.discovery }),
            timers: config.timers,
            pool_bytes: pool_bytes(config.buffer_bytes, config.cores),
            file_threads: config.file_threads.div_ceil(config.cores),
        };
        let seats = reactors.into_iter().zip(mailboxes).map(|(reactor, mailbox)| common.seat(reactor, mailbox));
        let mut seats = seats.collect::<io::Result<Vec<_>>>()?;
        let first = &mut seats[FIRST].config;
        first.portals = open;
        first.stop_asked = Arc::clone(&stopper.asked);
        first.updates = Arc::clone(&updates);
        let monitor = Monitor::new(seats.iter().map(Seat::watched).collect());
        let portals = portals.iter().map(|portal| portal.address).collect();
        Ok(Self { seats, portals, stopper, monitor, control, updates_end: UpdatesEnd(updates) })
    }

    /// The addresses that are listened on, in the order of the configuration.
    pub fn portals(&self) -> &[SocketAddr] {
        &self.portals
    }

    /// The way to watch this server.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
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

/// What all cores have in common.
struct Common {
    affinity: Arc<SessionAffinity>,
    limit: ConnectionLimit,
    epoch: Instant,
    entropy: Entropy,
    devices: Vec<Arc<TargetDevice>>,
    directory: Arc<Directory>,
    timers: Timers,
    /// Of each.
    pool_bytes: usize,
    /// Of each.
    file_threads: usize,
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
            directory: Arc::clone(&self.directory),
            timers: self.timers,
            pool: Pool::trimmed(self.pool_bytes),
            file_threads: ThreadPool::new("lunette-file", self.file_threads, MAX_QUEUED_FILE_OPS)?,
            files_on_ring: reactor.backend() == IoBackend::Uring,
            waker: reactor.waker(),
            stop_asked: Arc::default(),
            updates: Arc::default(),
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

/// Of one core.
fn pool_bytes(buffer_bytes: usize, cores: usize) -> usize {
    (buffer_bytes / cores).max(MIN_BUFFER_BYTES)
}

/// Lets each device know its target ports: one per portal group.
pub(crate) fn declare_ports(devices: &[Arc<TargetDevice>], portals: &[Portal]) {
    for device in devices {
        let target = device.name().to_ascii_lowercase();
        let ports: Vec<_> = portals.iter().map(|portal| (port_name(&target, portal.group), portal.group)).collect();
        device.set_ports(ports.iter().map(|(name, group)| (name.as_str(), *group)));
    }
}

pub(crate) fn node(target: TargetConfig, portals: &[Portal]) -> TargetNode {
    TargetNode {
        name: target.device.name().to_ascii_lowercase(),
        alias: target.alias,
        authentication: target.authentication,
        initiators: target.initiators,
        portals: portals.to_vec(),
        offer: target.offer,
        moved: target.moved,
    }
}

pub(crate) fn check_targets(targets: &[TargetConfig]) -> Result<(), BindError> {
    for (index, target) in targets.iter().enumerate() {
        let name = target.device.name();
        if targets[..index].iter().any(|other| other.device.name().eq_ignore_ascii_case(name)) {
            return Err(BindError::DuplicateName(name.into()));
        }
        if let Authentication::Chap { initiators, target: Some(Credentials { secret, .. }) } = &target.authentication
            && initiators.iter().any(|initiator| initiator.secret.same_as(secret))
        {
            return Err(BindError::SharedSecret(name.into()));
        }
    }
    Ok(())
}
