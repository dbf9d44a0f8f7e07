//! Opening, running and stopping a target.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lunette_buffer::Pool;
use lunette_device::TargetDevice;
use lunette_reactor::{IoBackend, LoopConfig, Reactor, ThreadPool, Waker};
use lunette_session::keys::Willing;
use lunette_session::target::{Directory, Moved, Portal, TargetNode, Timers};
use lunette_session::{Authentication, Credentials};

use crate::control::{Control, Updates, UpdatesEnd};
use crate::core::{Core, CoreConfig, Portals, port_name};
use crate::limits::{DEFAULT_BUFFER_BYTES, DEFAULT_FILE_THREADS, MAX_QUEUED_FILE_OPS, MIN_BUFFER_BYTES};
use crate::monitor::{Counts, Monitor};

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
    pub willing: Willing,
    /// Where the target is served instead. Logins are sent there; its sessions are asked to log out.
    pub moved: Option<Moved>,
}

impl TargetConfig {
    /// A target that everybody may use.
    pub fn open(device: Arc<TargetDevice>) -> Self {
        let authentication = Authentication::None;
        Self { device, alias: None, authentication, initiators: None, willing: Willing::default(), moved: None }
    }
}

/// Everything that a server serves.
pub struct ServerConfig {
    /// Where to listen. All targets are reached through all portals.
    pub portals: Vec<PortalConfig>,
    /// What to serve; names are unique.
    pub targets: Vec<TargetConfig>,
    /// Who may open a discovery session.
    pub discovery: Authentication,
    /// How long to wait for what.
    pub timers: Timers,
    /// Bytes of buffers for data in flight; [`MIN_BUFFER_BYTES`] at least.
    pub buffer_bytes: usize,
    /// Threads for file operations.
    pub file_threads: usize,
    /// How the event loop runs.
    pub event_loop: LoopConfig,
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
    /// Two targets of one name.
    #[error("two targets are named {0}; names must differ")]
    DuplicateName(String),
    /// CHAP in both directions with one secret (RFC 7143 section 9.2.1 forbids it).
    #[error("target {0}: the secret of the target must differ from those of its initiators")]
    SharedSecret(String),
}

/// A target that listens.
pub struct Server {
    reactor: Reactor,
    core: Core,
    portals: Vec<SocketAddr>,
    stopper: Stopper,
    monitor: Monitor,
    control: Control,
    _updates_end: UpdatesEnd,
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
        check_targets(&config.targets)?;
        let mut reactor = Reactor::with(config.event_loop)?;
        tracing::info!("the event loop runs on {}", reactor.backend());
        let stopper = Stopper { asked: Arc::default(), waker: reactor.waker() };
        let updates: Arc<Updates> = Arc::default();
        let mut open = Portals::default();
        open.change(&mut reactor.context(), &config.portals)?;
        let portals = open.to_vec();
        let devices: Vec<_> = config.targets.iter().map(|target| Arc::clone(&target.device)).collect();
        declare_ports(&devices, &portals);
        let targets = config.targets.into_iter().map(|target| Arc::new(node(target, &portals))).collect();
        let pool = Pool::new(config.buffer_bytes.max(MIN_BUFFER_BYTES));
        let counts: Arc<Counts> = Arc::default();
        let monitor = Monitor::new(Arc::clone(&counts), reactor.counts(), pool.clone());
        let core = Core::new(CoreConfig {
            portals: open,
            devices,
            directory: Arc::new(Directory { targets, discovery: config.discovery }),
            timers: config.timers,
            pool,
            counts,
            files_on_ring: reactor.backend() == IoBackend::Uring,
            file_threads: ThreadPool::new("lunette-file", config.file_threads, MAX_QUEUED_FILE_OPS)?,
            waker: reactor.waker(),
            stop_asked: Arc::clone(&stopper.asked),
            updates: Arc::clone(&updates),
        });
        let control = Control::new(Arc::clone(&updates), reactor.waker());
        let portals = portals.iter().map(|portal| portal.address).collect();
        Ok(Self { reactor, core, portals, stopper, monitor, control, _updates_end: UpdatesEnd(updates) })
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
    /// When the event loop fails, or a store could not be flushed at the end.
    pub fn run(mut self) -> io::Result<()> {
        self.reactor.run(&mut self.core)?;
        self.core.into_stop_result()
    }
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
        willing: target.willing,
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
