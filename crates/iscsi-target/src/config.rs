//! The configuration of a server.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use lunette_device::{LunMap, LunMaps, TargetDevice};
use lunette_ecl_endpoint::Config as DatagramConfig;
use lunette_reactor::{LoopConfig, TlsSource};
use lunette_session::iscsi_target::{Host, Moved, Portal, TargetNode, Timers};
use lunette_session::keys::Offer;
use lunette_session::{Authentication, SharedSecret, check_secrets, folded_name, is_same_name};

use crate::control::LeftSession;
use crate::limits::{DEFAULT_BUFFER_BYTES, DEFAULT_FILE_THREADS, DEFAULT_SLOW_COMMAND, MAX_CORES};
use crate::sessions::{HostMaker, SessionObserver};

/// One address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortalConfig {
    /// Address and port; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Target portal group tag. Portals with TLS and portals without it are of different groups.
    pub group: u16,
    /// The TLS that all connections speak; `None`: they do not.
    pub tls: Option<PortalTls>,
}

impl PortalConfig {
    /// A portal without TLS.
    pub fn new(address: SocketAddr, group: u16) -> Self {
        Self { address, group, tls: None }
    }
}

/// The TLS of a portal. Two are equal by their names.
#[derive(Clone)]
pub struct PortalTls {
    /// Tells it from others: the place of its certificates.
    pub name: Arc<str>,
    /// The configuration, as [`lunette_tls::stream_server`] makes it; or why there is none. Such a portal cannot be
    /// opened; one that is open goes on with what it has.
    pub source: Result<TlsSource, String>,
}

impl fmt::Debug for PortalTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PortalTls").field(&self.name).finish()
    }
}

impl PartialEq for PortalTls {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for PortalTls {}

/// A place at which associations of the Effective Cross Layer begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatagramPortalConfig {
    /// Where that is.
    pub place: DatagramPlace,
    /// Target portal group tag.
    pub group: u16,
}

/// Where datagrams come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatagramPlace {
    /// A UDP port; port 0 lets the system choose.
    Udp(SocketAddr),
    /// An interface, by its name: the payloads of Ethernet frames. Needs `CAP_NET_RAW`.
    Ethernet(String),
}

/// One target node.
pub struct TargetConfig {
    /// The device with its logical units. Its name is the iSCSI name.
    pub device: Arc<TargetDevice>,
    /// The value of TargetAlias.
    pub alias: Option<String>,
    /// How initiators prove themselves.
    pub authentication: Authentication,
    /// The initiators that may see and use the target, and what they see of it. The names of hosts are unique. Without
    /// any, no initiator may.
    pub hosts: Vec<HostConfig>,
    /// The target's offer in a negotiation.
    pub offer: Offer,
    /// Where the target is served instead. Logins are sent there; its sessions are asked to log out.
    pub moved: Option<Moved>,
}

impl TargetConfig {
    /// A target that all initiators may use.
    pub fn open(device: Arc<TargetDevice>) -> Self {
        let authentication = Authentication::None;
        let hosts = vec![HostConfig::everyone()];
        Self { device, alias: None, authentication, hosts, offer: Offer::default(), moved: None }
    }
}

/// Initiators that a target lets in under the same rules.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Which initiators they are, and how they prove themselves.
    pub host: Host,
    /// The logical units that they see.
    pub luns: LunMap,
}

impl HostConfig {
    /// All initiators, which see all logical units.
    pub fn everyone() -> Self {
        Self { host: Host::everyone(), luns: LunMap::default() }
    }
}

/// Everything that a server serves.
pub struct ServerConfig {
    /// Where to listen. All targets are reached through all portals.
    pub portals: Vec<PortalConfig>,
    /// Sockets that listen already, of a service manager for example. The portal at the address of one uses it and
    /// opens none.
    pub listeners: Vec<TcpListener>,
    /// Whether they stay open when their portals are removed, so that these can come back although another process has
    /// the addresses.
    pub keeps_listeners: bool,
    /// Where to answer associations of the Effective Cross Layer. Their groups are not those of
    /// [`portals`](Self::portals): a session lives on the core of its portal.
    pub datagram_portals: Vec<DatagramPortalConfig>,
    /// Leaves a portal closed that cannot be opened, and serves the others. The next update tries it again.
    pub leaves_closed: bool,
    /// How they are carried.
    pub datagrams: DatagramConfig,
    /// The targets; names are unique.
    pub targets: Vec<TargetConfig>,
    /// How initiators prove themselves for a discovery session.
    pub discovery: Authentication,
    /// How long to wait for what.
    pub timers: Timers,
    /// A command that takes longer is logged, with what it has waited for.
    pub slow_command: Duration,
    /// Bytes of buffers for data in flight, of all cores together; [`MIN_BUFFER_BYTES`](crate::MIN_BUFFER_BYTES) for
    /// each at least.
    pub buffer_bytes: usize,
    /// Threads for file operations, of all cores together; one for each at least.
    pub file_threads: usize,
    /// How the event loops run.
    pub event_loop: LoopConfig,
    /// Event loops, each on a thread of its own, and on a CPU of its own when there are as many; from 1 to
    /// [`MAX_CORES`]. Sessions are spread over them.
    pub cores: usize,
    /// Is told of sessions that begin and end.
    pub observer: Option<SessionObserver>,
    /// Sessions that an earlier process has left. Those that their targets still admit go on.
    pub inherited: Vec<LeftSession>,
    /// Makes the hosts of initiators that belong to a template. Without it, their logins are refused.
    pub host_maker: Option<HostMaker>,
}

impl ServerConfig {
    /// Defaults around these portals and targets.
    pub fn new(portals: Vec<PortalConfig>, targets: Vec<TargetConfig>) -> Self {
        Self {
            portals,
            listeners: Vec::new(),
            keeps_listeners: true,
            datagram_portals: Vec::new(),
            leaves_closed: false,
            datagrams: DatagramConfig::default(),
            targets,
            discovery: Authentication::None,
            timers: Timers::default(),
            slow_command: DEFAULT_SLOW_COMMAND,
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            file_threads: DEFAULT_FILE_THREADS,
            event_loop: LoopConfig::default(),
            cores: 1,
            observer: None,
            inherited: Vec::new(),
            host_maker: None,
        }
    }
}

/// Why a server cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The portal's address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The interface of a portal on Ethernet.
    #[error("cannot use interface {interface}: {source}")]
    Interface {
        /// The interface that was asked for.
        interface: String,
        /// The error of the system.
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
    #[error(transparent)]
    SharedSecret(#[from] SharedSecret),
}

/// The entry of a target in the directory.
pub(crate) fn node(target: TargetConfig, portals: &[Portal]) -> TargetNode {
    TargetNode {
        name: folded_name(target.device.name()),
        alias: target.alias,
        authentication: target.authentication,
        hosts: target.hosts.into_iter().map(|host| Arc::new(host.host)).collect(),
        portals: portals.to_vec(),
        offer: target.offer,
        moved: target.moved,
    }
}

/// The views of the hosts of a target.
pub(crate) fn lun_maps(target: &TargetConfig) -> LunMaps {
    target.hosts.iter().map(|host| (Arc::clone(&host.host.name), host.luns.clone())).collect()
}

/// The rules by which initiators and server prove themselves to each other, with their names for people.
fn rules<'a>(targets: &'a [TargetConfig], discovery: &'a Authentication) -> Vec<(String, &'a Authentication)> {
    let mut rules = vec![("discovery".to_owned(), discovery)];
    for target in targets {
        let name = target.device.name();
        rules.push((format!("target {name}"), &target.authentication));
        let of_hosts =
            target.hosts.iter().filter_map(|host| Some((&host.host.name, host.host.authentication.as_ref()?)));
        rules.extend(of_hosts.map(|(host, rule)| (format!("target {name}, host {host}"), rule)));
    }
    rules
}

/// Refuses targets that contradict each other.
pub(crate) fn check_targets(targets: &[TargetConfig], discovery: &Authentication) -> Result<(), BindError> {
    for (index, target) in targets.iter().enumerate() {
        let name = target.device.name();
        if targets[..index].iter().any(|other| is_same_name(other.device.name(), name)) {
            return Err(BindError::DuplicateName(name.into()));
        }
    }
    Ok(check_secrets(&rules(targets, discovery))?)
}
