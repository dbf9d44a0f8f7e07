//! A target, and a client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use lunette_device::{LogicalUnit, LogicalUnitConfig, TargetDevice};
use lunette_initiator::limits::DEFAULT_BUFFER_BYTES;
use lunette_initiator::{Disk, Initiator, IoBackend, Options, Portal, Session, wait};
use lunette_scsi::Lun;
use lunette_store::{MemoryStore, Store};
use lunette_target::{Monitor, PortalConfig, Server, ServerConfig, Stopper, TargetConfig};

pub(crate) use lunette_testkit::{BLOCK_LEN, LIMIT, Relay, TARGET, blocks};

pub(crate) const HOST: &str = "iqn.2026-11.org.example:host";
pub(crate) const STORE_LEN: u64 = 64 << 20;

/// A server on a thread of its own, which stops when it is dropped.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) monitor: Monitor,
    stopper: Stopper,
}

impl Target {
    pub(crate) fn new() -> Self {
        Self::over(memory())
    }

    pub(crate) fn over(store: Arc<dyn Store>) -> Self {
        Self::with(store, |_| {})
    }

    /// One disk on one target, after `change`.
    pub(crate) fn with(store: Arc<dyn Store>, change: impl FnOnce(&mut ServerConfig) + Send + 'static) -> Self {
        let device = TargetDevice::new(TARGET);
        let unit = LogicalUnit::new(LogicalUnitConfig::new(store, "serial-1")).unwrap();
        device.add(Lun::ZERO, Arc::new(unit)).unwrap();
        let portal = PortalConfig::new("127.0.0.1:0".parse().unwrap(), 1);
        let mut config = ServerConfig::new(vec![portal], vec![TargetConfig::open(Arc::new(device))]);
        config.event_loop = io().into();
        change(&mut config);
        let (bound, ready) = channel();
        thread::spawn(move || {
            let server = Server::bind(config).unwrap();
            bound.send((server.portals()[0], server.monitor(), server.stopper())).unwrap();
            server.run()
        });
        let (address, monitor, stopper) = ready.recv_timeout(LIMIT).expect("the server is bound");
        Self { address, monitor, stopper }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(STORE_LEN).unwrap())
}

pub(crate) fn portal(address: SocketAddr) -> Portal {
    Portal { host: address.ip().to_string(), port: address.port() }
}

/// The backend for both sides: `LUNETTE_TEST_IO=uring cargo test` runs all tests on io_uring.
pub(crate) fn io() -> IoBackend {
    match std::env::var("LUNETTE_TEST_IO").as_deref() {
        Ok("uring") => IoBackend::Uring,
        Ok("auto") => IoBackend::Auto,
        _ => IoBackend::default(),
    }
}

pub(crate) fn event_loop() -> Initiator {
    Initiator::with(DEFAULT_BUFFER_BYTES, io()).unwrap()
}

pub(crate) fn options() -> Options {
    Options::new(HOST)
}

pub(crate) fn connect(address: SocketAddr, options: Options) -> Session {
    let initiator = event_loop();
    wait(Session::connect(&initiator, &portal(address), TARGET, options)).unwrap()
}

pub(crate) fn disk(address: SocketAddr, options: Options) -> Disk {
    wait(Disk::open(connect(address, options), Lun::ZERO)).unwrap()
}

/// Polls `so` until it holds; fails at [`LIMIT`].
pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    let give_up = Instant::now() + LIMIT;
    while !so() {
        assert!(Instant::now() < give_up, "{what} did not come about");
        thread::yield_now();
    }
}
