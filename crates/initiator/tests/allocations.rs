//! In a steady state neither side allocates: not the target, not the initiator, not for reads, not for writes.
//!
//! Both sides run in this process; the counting allocator sees them all. It is a test of its own, because others would be
//! counted too.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use lunette_buffer::SharedBuffer;
use lunette_device::{LogicalUnit, LogicalUnitConfig, TargetDevice};
use lunette_initiator::{Completion, Disk, Initiator, Options, Outcome, Portal, Request, Session, Sink, wait};
use lunette_scsi::{Lun, requests};
use lunette_store::MemoryStore;
use lunette_target::{PortalConfig, Server, ServerConfig, TargetConfig};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const TARGET: &str = "iqn.2026-11.org.example:disk";
const BLOCK_LEN: usize = 512;
const CHUNK_LEN: usize = 4096;
const CHUNKS: u64 = 1024;
const DEPTH: usize = 32;

/// Until every table and list has the room that it needs.
const WARM_UP: u64 = 20_000;

const COUNTED: u64 = 20_000;

/// Lists may still grow once in a while, when more than ever comes at once: that depends on who gets the CPU when. An allocation
/// for each command would be a hundred times as many.
const TOLERATED: u64 = COUNTED / 100;

/// Keeps `DEPTH` commands in flight until so many have ended.
struct Load {
    disk: Disk,
    writes: bool,
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    to_submit: u64,
    in_flight: usize,
    next_chunk: u64,
    /// Memory that came back from writes. It goes out again as it is: one who has it shared cannot fill it, and need not here.
    written: Vec<SharedBuffer>,
}

impl Load {
    fn run(disk: &Disk, writes: bool, commands: u64) {
        let state = State { to_submit: commands, in_flight: 0, next_chunk: 0, written: Vec::with_capacity(DEPTH) };
        let load = Arc::new(Self { disk: disk.clone(), writes, state: Mutex::new(state), ended: Condvar::new() });
        for _ in 0..DEPTH {
            load.submit();
        }
        let state = load.state.lock().unwrap();
        drop(load.ended.wait_while(state, |state| state.in_flight > 0).unwrap());
    }

    fn submit(self: &Arc<Self>) {
        let (chunk, written) = {
            let mut state = self.state.lock().unwrap();
            if state.to_submit == 0 {
                return;
            }
            state.to_submit -= 1;
            state.in_flight += 1;
            state.next_chunk = (state.next_chunk + 1) % CHUNKS;
            (state.next_chunk, state.written.pop())
        };
        let blocks = (CHUNK_LEN / BLOCK_LEN) as u32;
        let (lba, session) = (chunk * u64::from(blocks), self.disk.session());
        let request = if self.writes {
            let data = written.unwrap_or_else(|| session.buffer(CHUNK_LEN).unwrap().share());
            Request { data_out: Some(data), ..Request::new(Lun::ZERO, requests::write(lba, blocks, false)) }
        } else {
            let buffer = session.reserve(CHUNK_LEN).unwrap();
            Request { data_in: Some(buffer), ..Request::new(Lun::ZERO, requests::read(lba, blocks, false)) }
        };
        let sink: Arc<dyn Sink> = Arc::clone(self) as _;
        session.submit(request, Completion::new(sink, 0));
    }
}

impl Sink for Load {
    fn complete(self: Arc<Self>, _tag: u64, outcome: Outcome) {
        self.state.lock().unwrap().written.extend(outcome.data_out);
        assert_eq!(outcome.result.expect("the session lives").ok().expect("the command ends well") > 0, !self.writes);
        self.submit();
        let mut state = self.state.lock().unwrap();
        state.in_flight -= 1;
        if state.in_flight == 0 {
            self.ended.notify_all();
        }
    }
}

fn serve() -> String {
    let device = TargetDevice::new(TARGET);
    let store = Arc::new(MemoryStore::new(CHUNKS * CHUNK_LEN as u64).unwrap());
    let unit = LogicalUnit::new(LogicalUnitConfig::new(store, "serial-1")).unwrap();
    device.add(Lun::ZERO, Arc::new(unit)).unwrap();
    let portal = PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 };
    let config = ServerConfig::new(vec![portal], vec![TargetConfig::open(Arc::new(device))]);
    let (bound, ready) = channel();
    thread::spawn(move || {
        let server = Server::bind(config).unwrap();
        bound.send(server.portals()[0].to_string()).unwrap();
        server.run()
    });
    ready.recv().unwrap()
}

/// Blocks that are allocated while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = dhat::HeapStats::get().total_blocks;
    work();
    dhat::HeapStats::get().total_blocks - before
}

#[test]
fn a_command_allocates_nothing() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let address = serve();
    let (host, port) = address.rsplit_once(':').unwrap();
    let portal = Portal { host: host.into(), port: port.parse().unwrap() };
    let initiator = Initiator::start().unwrap();
    let options = Options::new("iqn.2026-11.org.example:host");
    let session = wait(Session::connect(&initiator, &portal, TARGET, options)).unwrap();
    let disk = wait(Disk::open(session, Lun::ZERO)).unwrap();
    for writes in [true, false] {
        Load::run(&disk, writes, WARM_UP);
        let blocks = allocations(|| Load::run(&disk, writes, COUNTED));
        assert!(blocks <= TOLERATED, "{blocks} allocations for {COUNTED} commands, writes: {writes}");
    }
}
