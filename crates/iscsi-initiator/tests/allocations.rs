//! In a steady state neither side allocates: not the target, not the initiator, not for reads, not for writes, short or
//! long, not for disks in memory and not for disks in files.
//!
//! Both sides run in this process; the counting allocator sees them all. It is a test of its own, because others would
//! be counted too.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use lunette_buffer::SharedBuffer;
use lunette_device::{LogicalUnit, LogicalUnitConfig, TargetDevice};
use lunette_initiator::limits::DEFAULT_BUFFER_BYTES;
use lunette_initiator::{
    Completion, Disk, Initiator, IoBackend, Options, Outcome, Portal, Request, Session, Sink, wait,
};
use lunette_scsi::{Lun, requests};
use lunette_store::{FileStore, MemoryStore, OpenOptions, Store};
use lunette_target::{PortalConfig, Server, ServerConfig, TargetConfig};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const TARGET: &str = "iqn.2026-11.org.example:disk";
const BLOCK_LEN: usize = 512;
const STORE_LEN: u64 = 64 << 20;
const DEPTH: usize = 32;

/// Short, as long as a first burst, and longer; the last are 32 MiB in flight together.
const CHUNK_LENS: [usize; 4] = [4096, 64 << 10, 128 << 10, 1 << 20];

/// Bytes of one run: the same again before it, until every table and list has the room that it needs.
const RUN_BYTES: u64 = 160 << 20;

/// More than are tolerated.
const MIN_COMMANDS: u64 = 500;
const MAX_COMMANDS: u64 = 20_000;

/// Once in a while more comes at once than ever before; that depends on the scheduler. Then buffers are made, of two
/// allocations each, as many as there are commands and no more, and lists grow. An allocation for each command would be
/// many times as many.
const TOLERATED: u64 = 2 * 2 * DEPTH as u64 + 70;

/// Commands of one run.
fn commands_of(chunk_len: usize) -> u64 {
    (RUN_BYTES / chunk_len as u64).clamp(MIN_COMMANDS, MAX_COMMANDS)
}

/// Keeps `DEPTH` commands in flight until a number of them has ended.
struct Load {
    disk: Disk,
    chunk_len: usize,
    writes: bool,
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    to_submit: u64,
    in_flight: usize,
    next_chunk: u64,
    /// Memory that came back from writes. It goes out again as it is: shared memory cannot be filled, and need not be
    /// here.
    written: Vec<SharedBuffer>,
}

impl Load {
    fn run(disk: &Disk, chunk_len: usize, writes: bool) {
        let to_submit = commands_of(chunk_len);
        let state = State { to_submit, in_flight: 0, next_chunk: 0, written: Vec::with_capacity(DEPTH) };
        let (disk, state) = (disk.clone(), Mutex::new(state));
        let load = Arc::new(Self { disk, chunk_len, writes, state, ended: Condvar::new() });
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
            state.next_chunk = (state.next_chunk + 1) % (STORE_LEN / self.chunk_len as u64);
            (state.next_chunk, state.written.pop())
        };
        let blocks = (self.chunk_len / BLOCK_LEN) as u32;
        let (lba, session) = (chunk * u64::from(blocks), self.disk.session());
        let request = if self.writes {
            let data = written.unwrap_or_else(|| session.buffer(self.chunk_len).unwrap().share());
            Request::new(self.disk.lun(), requests::write(lba, blocks, false)).with_data_out(data)
        } else {
            let buffer = session.reserve(self.chunk_len).unwrap();
            Request::new(self.disk.lun(), requests::read(lba, blocks, false)).with_data_in(buffer)
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

/// A target with a disk in memory and one in a file.
fn serve(io: IoBackend, folder: &Path) -> Portal {
    let device = TargetDevice::new(TARGET);
    let options = OpenOptions { create: Some(STORE_LEN), ..OpenOptions::default() };
    let stores: [Arc<dyn Store>; 2] = [
        Arc::new(MemoryStore::new(STORE_LEN).unwrap()),
        Arc::new(FileStore::open(folder.join(format!("disk-{io}")), &options).unwrap()),
    ];
    for (lun, store) in (0..).zip(stores) {
        let unit = LogicalUnit::new(LogicalUnitConfig::new(store, format!("serial-{lun}"))).unwrap();
        device.add(Lun::new(lun).unwrap(), Arc::new(unit)).unwrap();
    }
    let portal = PortalConfig::new("127.0.0.1:0".parse().unwrap(), 1);
    let mut config = ServerConfig::new(vec![portal], vec![TargetConfig::open(Arc::new(device))]);
    config.event_loop = io.into();
    let (bound, ready) = channel();
    thread::spawn(move || {
        let server = Server::bind(config).unwrap();
        bound.send(server.portals()[0]).unwrap();
        server.run()
    });
    let address = ready.recv().unwrap();
    Portal { host: address.ip().to_string(), port: address.port() }
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
    let folder = tempfile::tempdir().unwrap();
    for io in [IoBackend::Epoll, IoBackend::Auto] {
        let portal = serve(io, folder.path());
        let initiator = Initiator::with(DEFAULT_BUFFER_BYTES, io).unwrap();
        let options = Options::new("iqn.2026-11.org.example:host");
        let session = wait(Session::connect(&initiator, &portal, TARGET, options)).unwrap();
        for lun in 0..2 {
            let disk = wait(Disk::open(session.clone(), Lun::new(lun).unwrap())).unwrap();
            for (chunk_len, writes) in CHUNK_LENS.into_iter().flat_map(|len| [(len, true), (len, false)]) {
                Load::run(&disk, chunk_len, writes);
                let blocks = allocations(|| Load::run(&disk, chunk_len, writes));
                let commands = commands_of(chunk_len);
                assert!(
                    blocks <= TOLERATED,
                    "{blocks} allocations for {commands} commands: {io}, LUN {lun}, {chunk_len} bytes, writes: {writes}"
                );
            }
        }
    }
}
