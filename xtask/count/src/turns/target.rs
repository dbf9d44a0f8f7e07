//! A whole target, asked by a script.

use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use lunette_buffer::Pool;
use lunette_device::{LogicalUnit, LogicalUnitConfig, TargetDevice};
use lunette_pdu::{Cid, Isid, LunField, TaskAttribute};
use lunette_scsi::{Lun, requests};
use lunette_session::iscsi_initiator::{Command, Event, Session, SessionConfig};
use lunette_session::{Entropy, Time};
use lunette_store::{Capabilities, Completion, FileIo, Geometry, MemoryStore, Op, OpKind, Store, execute};
use lunette_target::{IoBackend, PortalConfig, Server, ServerConfig, TargetConfig};

use crate::wire::{LIMIT, Wire, until};
use crate::{DISK_LEN, HOST, Load, Progress, TARGET, timers};

const NOW: Time = Time::new(std::time::Duration::ZERO);

/// Works through a load.
pub(crate) fn run(load: Load) {
    let store = Arc::new(Scripted { memory: disk(), script: Mutex::default() });
    let address = serve(Arc::clone(&store) as _);
    let mut initiator = ScriptedInitiator::log_in(address, load);
    initiator.submit_batch();
    let (over, is_over) = channel();
    // The script is in its place before the loop sees the first batch.
    let mut script = store.lock();
    initiator.send();
    *script = Some(Script { initiator, stored: 0, progress: Progress::default(), over });
    drop(script);
    let mut initiator = is_over.recv_timeout(LIMIT).expect("the script comes to its end");
    until("all commands have ended", || {
        initiator.receive();
        initiator.ended == initiator.submitted
    });
    load.tell("target");
}

/// Each byte of it was written before.
fn disk() -> MemoryStore {
    let memory = MemoryStore::new(DISK_LEN as u64).expect("a length in blocks");
    let buffer = Pool::new(DISK_LEN).take(DISK_LEN).expect("the pool is large enough");
    execute(&memory, Op::Write { offset: 0, from: buffer, fua: false }).result.expect("memory can be written to");
    memory
}

fn serve(store: Arc<dyn Store>) -> SocketAddr {
    let device = TargetDevice::new(TARGET);
    let unit = LogicalUnit::new(LogicalUnitConfig::new(store, "serial")).expect("a usable store");
    device.add(Lun::new(0).expect("a LUN"), Arc::new(unit)).expect("a free LUN");
    let portal = PortalConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)), 1);
    let mut config = ServerConfig::new(vec![portal], vec![TargetConfig::open(Arc::new(device))]);
    config.timers = timers();
    config.event_loop = IoBackend::Epoll.into();
    let server = Server::bind(config).expect("a free port");
    let address = server.portals()[0];
    thread::spawn(|| server.run());
    address
}

/// A disk in memory that plays the script after the last request of each batch.
struct Scripted {
    memory: MemoryStore,
    script: Mutex<Option<Script>>,
}

impl Scripted {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Script>> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Scripted {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn answers_at_once(&self, kind: OpKind) -> bool {
        self.memory.answers_at_once(kind)
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        let done = self.memory.read_at_once(offset, into);
        self.play();
        done
    }

    fn write_at_once(&self, offset: u64, from: &[u8], fua: bool) -> bool {
        let done = self.memory.write_at_once(offset, from, fua);
        self.play();
        done
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        self.memory.submit(op, io, done);
        self.play();
    }
}

impl Scripted {
    /// A request has ended.
    fn play(&self) {
        let mut script = self.lock();
        let Some(now) = script.as_mut() else { return };
        now.stored += 1;
        if now.stored == now.initiator.load.batch && !now.scripted_turn() {
            let Script { initiator, over, .. } = script.take().expect("it was there");
            over.send(initiator).expect("somebody waits");
        }
    }
}

struct Script {
    initiator: ScriptedInitiator,
    /// Requests of this batch that came to the store.
    stored: usize,
    progress: Progress,
    over: Sender<ScriptedInitiator>,
}

impl Script {
    /// The turn of the initiator, which is not counted. `false` when it does nothing more.
    #[inline(never)]
    fn scripted_turn(&mut self) -> bool {
        self.stored = 0;
        self.initiator.receive();
        if !self.progress.goes_on() {
            return false;
        }
        self.initiator.submit_batch();
        let sent = self.initiator.send();
        if self.progress.is_warm() {
            self.initiator.wire.arrived(sent);
        }
        true
    }
}

/// The initiator's side of the protocol, without a loop.
struct ScriptedInitiator {
    load: Load,
    wire: Wire,
    session: Session,
    cid: Cid,
    pool: Pool,
    submitted: usize,
    ended: usize,
    last_status: u8,
}

impl ScriptedInitiator {
    fn log_in(address: SocketAddr, load: Load) -> Self {
        let wire = Wire::new(TcpStream::connect(address).expect("somebody listens"));
        let mut session = Session::new(SessionConfig {
            initiator_name: HOST.into(),
            initiator_alias: None,
            target_name: Some(TARGET.into()),
            isid: Isid::random(1, 1),
            chap: None,
            offer: load.offer(),
            timers: timers(),
        });
        let cid = session.connect(Entropy([0; _]), NOW);
        let pool = Pool::new(64 << 20);
        let mut initiator = Self { load, wire, session, cid, pool, submitted: 0, ended: 0, last_status: 0 };
        until("the login is over", || {
            initiator.send();
            initiator.receive();
            initiator.session.room() > 0
        });
        // The first one is told that the disk was switched on.
        until("the disk is ready", || {
            initiator.submit(requests::test_unit_ready(), 0);
            initiator.send();
            until("an answer comes", || {
                initiator.receive();
                initiator.ended == initiator.submitted
            });
            initiator.last_status == 0
        });
        initiator
    }

    fn submit(&mut self, cdb: [u8; 16], len: usize) {
        let buffer = (len > 0).then(|| self.pool.take(len).expect("the pool is large enough"));
        let (data_in, data_out) = if self.load.reads { (buffer, None) } else { (None, buffer) };
        let command = Command {
            user: 0,
            lun: LunField::default(),
            cdb,
            cdb_rest: Box::default(),
            attribute: TaskAttribute::SIMPLE,
            priority: 0,
            data_out: data_out.map(lunette_buffer::Buffer::share),
            data_in,
            block_len: 0,
        };
        self.session.submit(command, NOW).expect("there is room");
        self.submitted += 1;
    }

    fn submit_batch(&mut self) {
        let Load { reads, len, batch, .. } = self.load;
        let request = if reads { requests::read } else { requests::write };
        for _ in 0..batch {
            self.submit(request(self.load.lba(self.submitted), self.load.blocks(), false), len);
        }
    }

    fn send(&mut self) -> usize {
        let len = self.wire.send(self.session.slices(self.cid));
        self.session.sent(self.cid, len);
        len
    }

    /// Looks at what has come.
    fn receive(&mut self) {
        loop {
            let mut input = self.wire.receive();
            if input.is_empty() {
                return;
            }
            while let Some(event) = self.session.next_event(self.cid, &mut input, NOW) {
                match event {
                    Event::LoggedIn(_) => {}
                    Event::Completed { response, .. } => {
                        assert_eq!(response.response, 0);
                        self.last_status = response.status;
                        self.ended += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}
