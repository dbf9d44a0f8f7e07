//! A target in this process, and what the tests ask it.

mod faulty;

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use lunette_device::{LogicalUnit, LogicalUnitConfig, TargetDevice};
use lunette_pdu::{InitiatorTaskTag, TaskManagementFunction, TaskManagementResponseCode};
use lunette_scsi::Lun;
use lunette_session::iscsi_target::Timers;
use lunette_store::filters::Delay;
use lunette_store::{MemoryStore, Store};
use lunette_target::{
    Control, IoBackend, Monitor, PortalConfig, Server, ServerConfig, Statistics, Stopper, TargetConfig,
};

pub(crate) use faulty::Faulty;
pub(crate) use lunette_testkit::{
    BLOCK_LEN, LIMIT, Outcome, Port, ScriptedInitiator as Initiator, TARGET, blocks, cdb_10,
};

pub(crate) const STORE_LEN: u64 = 64 << 20;

/// A server on a thread of its own.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) monitor: Monitor,
    pub(crate) control: Control,
    stopper: Stopper,
    ended: Mutex<Receiver<io::Result<()>>>,
}

/// `LUNETTE_TEST_IO=uring cargo test` runs all tests on io_uring.
fn io() -> IoBackend {
    match std::env::var("LUNETTE_TEST_IO").as_deref() {
        Ok("uring") => IoBackend::Uring,
        Ok("auto") => IoBackend::Auto,
        _ => IoBackend::default(),
    }
}

/// `LUNETTE_TEST_CORES=2 cargo test` runs all tests that do not choose themselves on two cores.
fn cores() -> usize {
    std::env::var("LUNETTE_TEST_CORES").map_or(1, |cores| cores.parse().expect("a number of cores"))
}

impl From<&Target> for SocketAddr {
    fn from(target: &Target) -> Self {
        target.address
    }
}

impl Target {
    /// One target with these stores as its logical units, from 0.
    pub(crate) fn over(stores: Vec<Arc<dyn Store>>) -> Self {
        Self::of(vec![device(TARGET, stores)], |_| {})
    }

    /// A target with one store, whose answers can be held back.
    pub(crate) fn over_delay() -> (Self, Arc<Delay>) {
        let delay = Arc::new(Delay::new(memory()));
        (Self::over(vec![delay.clone()]), delay)
    }

    /// One target where one core has it all: one pool, one task set.
    pub(crate) fn on_one_core(stores: Vec<Arc<dyn Store>>) -> Self {
        Self::of(vec![device(TARGET, stores)], |config| config.cores = 1)
    }

    pub(crate) fn of(devices: Vec<Arc<TargetDevice>>, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let portal = PortalConfig::new("127.0.0.1:0".parse().unwrap(), 1);
        let mut config = ServerConfig::new(vec![portal], devices.into_iter().map(TargetConfig::open).collect());
        // No timer comes to the help of a lost wake-up.
        let never = 20 * LIMIT;
        config.timers =
            Timers { login: never, ping_after: never, ping_answer: never, progress: never, ..Timers::default() };
        config.event_loop = io().into();
        config.cores = cores();
        change(&mut config);
        let (bound, ready) = channel();
        let (tx, ended) = channel();
        thread::spawn(move || {
            let server = Server::bind(config).unwrap();
            bound.send((server.portals()[0], server.monitor(), server.control(), server.stopper())).unwrap();
            // The test may have ended.
            let _ = tx.send(server.run());
        });
        let (address, monitor, control, stopper) = ready.recv_timeout(LIMIT).expect("the server is bound");
        Self { address, monitor, control, stopper, ended: Mutex::new(ended) }
    }

    /// Asks for an orderly end.
    pub(crate) fn begin_stop(&self) {
        self.stopper.stop();
    }

    /// Waits until the server knows that it was asked for an end: until then it goes on with what it is at.
    pub(crate) fn wait_until_it_stops(&self) {
        while self.control.grow(Vec::new()).is_ok() {
            thread::yield_now();
        }
    }

    /// How it ended.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.ended.lock().unwrap().recv_timeout(LIMIT).expect("the server ends")
    }

    /// Waits until its thread has ended by a panic.
    pub(crate) fn wait_for_panic(&self) {
        let ended = self.ended.lock().unwrap().recv_timeout(LIMIT);
        assert_eq!(ended.unwrap_err(), RecvTimeoutError::Disconnected);
    }

    pub(crate) fn stop(&self) -> io::Result<()> {
        self.begin_stop();
        self.end()
    }

    /// Looks until what the server has in hand is as `wanted`.
    pub(crate) fn wait_until(&self, what: &str, wanted: impl Fn(&Statistics) -> bool) -> Statistics {
        let give_up = Instant::now() + LIMIT;
        loop {
            let statistics = self.monitor.read();
            if wanted(&statistics) {
                return statistics;
            }
            assert!(Instant::now() < give_up, "{what} did not come about: {statistics:?}");
            thread::yield_now();
        }
    }
}

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(STORE_LEN).unwrap())
}

pub(crate) fn device(name: &str, stores: Vec<Arc<dyn Store>>) -> Arc<TargetDevice> {
    let device = TargetDevice::new(name);
    for (number, store) in stores.into_iter().enumerate() {
        device.add(Lun::new(number as u16).unwrap(), unit(store, &format!("{name}-{number}"))).unwrap();
    }
    Arc::new(device)
}

pub(crate) fn unit(store: Arc<dyn Store>, serial: &str) -> Arc<LogicalUnit> {
    Arc::new(LogicalUnit::new(LogicalUnitConfig::new(store, serial)).unwrap())
}

/// Sends a write of eight blocks to LUN 0, whose store has it then and keeps the answer back.
pub(crate) fn start_held_write(initiator: &mut Initiator, store: &Delay) -> InitiatorTaskTag {
    store.hold();
    let write = initiator.start_write(0, 0, blocks(8, 1), 4096);
    store.wait_until_held(1);
    write
}

/// A function that concerns a task of the store: its answer comes when the store is done with it, and not before.
pub(crate) fn manage_held(
    initiator: &mut Initiator,
    function: TaskManagementFunction,
    task: InitiatorTaskTag,
    store: &Delay,
) {
    let request = initiator.start_management(function, 0, Some(task));
    initiator.round_trip();
    initiator.round_trip();
    assert!(!initiator.has_answer(request), "the store still works on the task");
    store.release();
    assert_eq!(initiator.finish_management(request), TaskManagementResponseCode::FUNCTION_COMPLETE);
}
