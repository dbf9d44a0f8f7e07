//! The target as it ships, under a clock that the input moves.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lunette_session::Authentication;
use lunette_session::keys::Offer;
use lunette_target::stepped::{CoreStep, SteppedServer};
use lunette_target::{
    Entropy, Host, HostConfig, IoBackend, LogicalUnit, LogicalUnitConfig, Lun, MIN_BUFFER_BYTES, Moved, PortalConfig,
    ServerConfig, TargetConfig, TargetDevice, Update,
};

use super::TARGET;
use super::store::HeldStore;
use crate::input::ENTROPY;

/// Batches at one moment. More would mean that the target never comes to rest.
const MAX_BATCHES: usize = 1000;

thread_local! {
    /// A server without targets and connections, and its time. Opening one costs more than most inputs.
    static IDLE: RefCell<Option<(SteppedServer, Instant)>> = const { RefCell::new(None) };
    /// The address of its portal, which lists of targets name. Later servers have the same one.
    static PORTAL: Cell<SocketAddr> = const { Cell::new(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))) };
}

/// A server of one target with one logical unit, both made for one input.
pub(crate) struct Server {
    stepped: SteppedServer,
    device: Arc<TargetDevice>,
    pub(crate) store: Arc<HeldStore>,
    offer: Offer,
    pub(super) now: Instant,
    /// When it wants to be stepped again.
    pub(super) next: Option<Instant>,
    /// Whether it has ended with a stop.
    pub(super) stopped: bool,
}

impl Server {
    pub(super) fn new(
        authentication: Authentication,
        initiators: Option<Vec<String>>,
        moved: Option<Moved>,
        offer: Offer,
    ) -> Self {
        let store = Arc::new(HeldStore::new());
        let unit = LogicalUnitConfig {
            clock: Arc::new(|| Duration::ZERO),
            entropy: entropy(),
            ..LogicalUnitConfig::new(Arc::clone(&store) as _, "fuzz")
        };
        let device = Arc::new(TargetDevice::new(TARGET));
        device.add(Lun::ZERO, Arc::new(LogicalUnit::new(unit).expect("a unit that can be served"))).expect("the first");
        let open = TargetConfig::open(Arc::clone(&device));
        let hosts = vec![HostConfig { host: Host::of_initiators(initiators), ..HostConfig::everyone() }];
        let target = TargetConfig { authentication, hosts, moved, offer: offer.clone(), ..open };
        let (stepped, now) = IDLE.take().unwrap_or_else(server);
        let mut server = Self { stepped, device, store, offer, now, next: None, stopped: false };
        assert!(server.update(vec![target]), "the target is refused");
        server
    }

    /// Serves these targets from now on. `false`: they are refused.
    fn update(&mut self, targets: Vec<TargetConfig>) -> bool {
        let update = Update {
            portals: vec![portal()],
            datagram_portals: Vec::new(),
            leaves_closed: false,
            required_portals: Vec::new(),
            targets,
            discovery: Authentication::None,
            port_groups: Vec::new(),
            units: Vec::new(),
            growth: Vec::new(),
        };
        let Ok(pending) = self.stepped.control().begin(update) else { return false };
        (0..MAX_BATCHES).take_while(|_| self.step()).for_each(drop);
        let Some(Ok(listening)) = pending.poll() else { return false };
        PORTAL.set(listening.portals[0]);
        true
    }

    /// The target declares another segment length.
    pub(super) fn declare(&mut self, recv_data_segment_len: u32) {
        self.offer.recv_data_segment_len = recv_data_segment_len;
        let open = TargetConfig::open(Arc::clone(&self.device));
        self.update(vec![TargetConfig { offer: self.offer.clone(), ..open }]);
    }

    /// The target is removed.
    pub(crate) fn remove(&mut self) {
        self.update(Vec::new());
    }

    pub(crate) fn stop(&mut self) {
        self.stepped.stopper().stop();
    }

    /// The initiator's end of a new connection.
    pub(super) fn connect(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        ours.set_nonblocking(true).expect("a mode that sockets have");
        let addresses = [([192, 0, 2, 1], 50_000).into(), ([127, 0, 0, 1], 3260).into()];
        self.stepped.accept(TcpStream::from(OwnedFd::from(theirs)), addresses);
        ours
    }

    /// One batch. `false` when there was nothing to do.
    pub(super) fn step(&mut self) -> bool {
        match self.stepped.step(0, self.now) {
            CoreStep::Runs { active, again, next } => {
                self.next = next;
                active || again
            }
            CoreStep::Stopped(result) => {
                (self.stopped, self.next) = (true, None);
                // A store that holds requests makes it late.
                let late = result.map_err(|error| error.kind()).err();
                assert!(late.is_none_or(|kind| kind == io::ErrorKind::TimedOut), "the server stops with {late:?}");
                false
            }
        }
    }

    /// Checks that nothing is left of any connection, and keeps the server for the next input.
    pub(super) fn retire(mut self) {
        if self.stopped {
            return;
        }
        let left = self.stepped.monitor().read();
        let kept = (left.connections, left.suspended, left.sessions, left.tasks, left.timers, left.buffer_bytes);
        assert_eq!(kept, (0, 0, 0, 0, 0, 0), "connections, suspended, sessions, tasks, timers, bytes of buffers");
        // A unit that is being sanitized cannot be removed. Then the next input gets another server.
        if self.update(Vec::new()) {
            IDLE.set(Some((self.stepped, self.now)));
        }
    }
}

/// The next input gets a new server.
pub(crate) fn forget_idle_server() {
    IDLE.take();
}

fn server() -> (SteppedServer, Instant) {
    let config = ServerConfig {
        buffer_bytes: MIN_BUFFER_BYTES,
        file_threads: 1,
        event_loop: IoBackend::Epoll.into(),
        ..ServerConfig::new(vec![portal()], Vec::new())
    };
    let stepped = SteppedServer::bind(config, Instant::now(), entropy()).expect("a server");
    // No earlier than any moment that the server knows of.
    (stepped, Instant::now())
}

fn portal() -> PortalConfig {
    // The system chooses its port and opens it; nothing connects to it.
    PortalConfig::new(PORTAL.get(), 1)
}

fn entropy() -> Entropy {
    Arc::new(|bytes| -> io::Result<()> {
        bytes.fill(ENTROPY);
        Ok(())
    })
}
