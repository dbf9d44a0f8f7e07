//! A target, a wire to it, and a client.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lunette_device::{LogicalUnit, LogicalUnitConfig, TargetDevice};
use lunette_initiator::limits::DEFAULT_BUFFER_BYTES;
use lunette_initiator::{Disk, Initiator, IoBackend, Options, Portal, Session, wait};
use lunette_scsi::Lun;
use lunette_store::{MemoryStore, Store};
use lunette_target::{Monitor, PortalConfig, Server, ServerConfig, Stopper, TargetConfig};

pub(crate) const TARGET: &str = "iqn.2026-11.org.example:disk";
pub(crate) const HOST: &str = "iqn.2026-11.org.example:host";
pub(crate) const BLOCK_LEN: usize = 512;
pub(crate) const STORE_LEN: u64 = 64 << 20;

/// The time after which a test fails. No test passes because of it.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

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
        let portal = PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 };
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

/// Blocks that differ from those of another seed and of other places.
pub(crate) fn blocks(count: usize, seed: u8) -> Vec<u8> {
    (0..count * BLOCK_LEN).map(|at| (at / BLOCK_LEN) as u8 ^ (at as u8).wrapping_mul(7) ^ seed).collect()
}

/// Polls `so` until it holds; fails at [`LIMIT`].
pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    let give_up = Instant::now() + LIMIT;
    while !so() {
        assert!(Instant::now() < give_up, "{what} did not come about");
        thread::yield_now();
    }
}

/// A listener that passes bytes on to a target. It can cut its connections, and let none through.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The address to pass bytes on to. Without one, connections are accepted and closed.
    target: Mutex<Option<SocketAddr>>,
    open: Mutex<HashMap<u64, [TcpStream; 2]>>,
    accepted: AtomicU64,
    /// Bytes that clients sent.
    from_clients: AtomicUsize,
    /// Damages the next piece of data from the target that is longer than this many bytes; 0: none.
    damage_above: AtomicUsize,
    /// Connections beyond these are accepted and closed; 0: all are let through.
    only: AtomicU64,
    /// Nothing is taken from the clients of connections before this one.
    stalled: Mutex<u64>,
    goes_on: Condvar,
}

impl Wire {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        *shared.target.lock().unwrap() = Some(target);
        let behind = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let number = behind.accepted.fetch_add(1, Ordering::SeqCst);
                let only = behind.only.load(Ordering::SeqCst);
                let target = behind.target.lock().unwrap().filter(|_| only == 0 || number < only);
                if let Some(server) = target.and_then(|target| TcpStream::connect(target).ok()) {
                    let _ = behind.join(number, client, server);
                }
            }
        });
        Self { address, shared }
    }

    /// How many connections there have been.
    pub(crate) fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many bytes clients have sent.
    pub(crate) fn bytes_of_clients(&self) -> usize {
        self.shared.from_clients.load(Ordering::SeqCst)
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for (_, ends) in self.shared.open.lock().unwrap().drain() {
            for end in ends {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }

    /// From now on nothing is read from the clients that are connected.
    pub(crate) fn stall(&self) {
        *self.shared.stalled.lock().unwrap() = self.accepted();
    }

    /// Ends that.
    pub(crate) fn go_on(&self) {
        *self.shared.stalled.lock().unwrap() = 0;
        self.shared.goes_on.notify_all();
    }

    /// Damages one byte of the next long piece that the target sends.
    pub(crate) fn damage(&self) {
        self.shared.damage_above.store(1000, Ordering::SeqCst);
    }

    /// Whether that has happened.
    pub(crate) fn has_damaged(&self) -> bool {
        self.shared.damage_above.load(Ordering::SeqCst) == 0
    }

    /// Cuts one connection, by the order in which they came.
    pub(crate) fn cut_one(&self, number: u64) {
        for end in self.shared.open.lock().unwrap().remove(&number).expect("it is open") {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Cuts one of those that are open, chosen by a number.
    pub(crate) fn cut_any(&self, chosen: usize) {
        let mut open: Vec<u64> = self.shared.open.lock().unwrap().keys().copied().collect();
        open.sort_unstable();
        self.cut_one(open[chosen % open.len()]);
    }

    /// Lets this number of connections through, and closes all later ones.
    pub(crate) fn lead_only(&self, connections: u64) {
        self.shared.only.store(connections, Ordering::SeqCst);
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        let mut open = self.shared.open.lock().unwrap();
        open.retain(|_, ends| ends[0].peek(&mut [0]).is_ok_and(|len| len > 0));
        open.len()
    }

    /// Where later connections lead.
    pub(crate) fn lead(&self, target: Option<SocketAddr>) {
        *self.shared.target.lock().unwrap() = target;
    }
}

impl Shared {
    fn join(self: &Arc<Self>, number: u64, client: TcpStream, server: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let shared = Arc::clone(self);
        pass(client.try_clone()?, server.try_clone()?, move |bytes| {
            shared.from_clients.fetch_add(bytes.len(), Ordering::SeqCst);
            drop(shared.goes_on.wait_while(shared.stalled.lock().unwrap(), |stalled| number < *stalled).unwrap());
        });
        let shared = Arc::clone(self);
        pass(server.try_clone()?, client.try_clone()?, move |bytes| shared.maybe_damage(bytes));
        self.open.lock().unwrap().insert(number, [client, server]);
        Ok(())
    }
}

impl Shared {
    fn maybe_damage(&self, bytes: &mut [u8]) {
        let above = self.damage_above.load(Ordering::SeqCst);
        if above > 0 && bytes.len() > above {
            bytes[above / 2] ^= 1;
            self.damage_above.store(0, Ordering::SeqCst);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, look: impl Fn(&mut [u8]) + Send + 'static) {
    thread::spawn(move || {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            look(&mut bytes[..len]);
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}
