//! The disk against an oracle, with power cuts between any two operations of its media.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lunette_buffer::Pool;
use lunette_store::filters::{Fault, PowerLoss, Rule};
use lunette_store::{
    AllocationMap, Capabilities, Completion, FileIo, Geometry, MemoryStore, Op, OpKind, Outcome, Store, StoreError,
    execute,
};
use proptest::prelude::*;

use crate::{CHUNK_BYTES, MAX_LEN_BYTES, OpenError, Stores, TakeOver, is_whole, map_len};

const SECTOR: u64 = 512;
const SECTORS: u64 = 6 * CHUNK_BYTES / SECTOR;
/// The source ends within a chunk, and before the target.
const SOURCE_SECTORS: u64 = 4 * CHUNK_BYTES / SECTOR + 5;

/// Target and map as one medium with one cache, which is cut at once.
#[derive(Clone)]
struct Part {
    medium: Arc<Medium>,
    from: u64,
    len: u64,
}

struct Medium {
    disk: PowerLoss,
    /// After how many more changes a copy of it is made as a power cut leaves it, and with which seed.
    cut: Mutex<Option<(usize, u64)>>,
    left: Mutex<Option<PowerLoss>>,
}

impl Medium {
    fn new(disk: PowerLoss) -> Arc<Self> {
        Arc::new(Self { disk, cut: Mutex::default(), left: Mutex::default() })
    }

    fn parts(self: &Arc<Self>) -> (Part, Part) {
        let (disk, map) = (SECTORS * SECTOR, map_len(SOURCE_SECTORS * SECTOR));
        let part = |from, len| Part { medium: Arc::clone(self), from, len };
        (part(0, disk), part(disk, map))
    }

    fn count(&self) {
        let mut cut = self.cut.lock().unwrap();
        match &mut *cut {
            Some((0, seed)) => {
                *self.left.lock().unwrap() = Some(self.disk.cut(*seed));
                *cut = None;
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
    }
}

impl Store for Part {
    fn geometry(&self) -> Geometry {
        Geometry { len_bytes: self.len, ..self.medium.disk.geometry() }
    }

    fn capabilities(&self) -> Capabilities {
        self.medium.disk.capabilities()
    }

    fn submit(&self, mut op: Op, io: &dyn FileIo, done: Completion) {
        op.check(self.len, false).unwrap();
        match &mut op {
            Op::Read { offset, .. }
            | Op::Write { offset, .. }
            | Op::WriteZeroes { offset, .. }
            | Op::Unmap { offset, .. }
            | Op::Allocation { offset, .. }
            | Op::Copy { offset, .. } => *offset += self.from,
            Op::Flush => {}
        }
        let counts = !matches!(op.kind(), OpKind::Read | OpKind::Allocation);
        self.medium.disk.submit(op, io, done);
        if counts {
            self.medium.count();
        }
    }
}

fn source() -> Arc<MemoryStore> {
    let source = MemoryStore::new(SOURCE_SECTORS * SECTOR).unwrap();
    for sector in 0..SOURCE_SECTORS {
        // One chunk is zeroes.
        let byte = if sector * SECTOR / CHUNK_BYTES == 2 { 0 } else { 1 + u8::try_from(sector % 100).unwrap() };
        source.write(sector * SECTOR, &[byte; SECTOR as usize]).unwrap();
    }
    Arc::new(source)
}

fn byte_of(source: &MemoryStore, sector: u64) -> u8 {
    let mut byte = [0];
    if sector < SOURCE_SECTORS {
        source.read(sector * SECTOR, &mut byte).unwrap();
    }
    byte[0]
}

/// Executes a request on a disk without threads.
fn run(disk: &TakeOver, op: Op) -> Outcome {
    let answer = Arc::new(Mutex::new(None));
    let told = Arc::clone(&answer);
    let done = Completion::call(move |outcome| *told.lock().unwrap() = Some(outcome));
    disk.store().submit(op, &lunette_store::InlineIo, done);
    while answer.lock().unwrap().is_none() {
        assert!(disk.0.step(0), "a request waits for nothing");
    }
    answer.lock().unwrap().take().unwrap()
}

fn buffer(len: u64, byte: u8) -> lunette_buffer::Buffer {
    let mut buffer = Pool::new(1 << 20).take(usize::try_from(len).unwrap()).unwrap();
    buffer.fill(byte);
    buffer
}

#[derive(Debug, Clone)]
enum Step {
    Read {
        at: u64,
        count: u64,
    },
    Write {
        at: u64,
        count: u64,
        fua: bool,
    },
    Zero {
        at: u64,
        count: u64,
    },
    Unmap {
        at: u64,
        count: u64,
    },
    Flush,
    Copy,
    /// Reopens the disk after a power cut with this seed, which comes after this many more changes.
    Cut {
        after: usize,
        seed: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..SECTORS, 1..300_u64).prop_map(|(at, count)| (at, count.min(SECTORS - at)));
    prop_oneof![
        3 => range.clone().prop_map(|(at, count)| Step::Read { at, count }),
        4 => (range.clone(), any::<bool>()).prop_map(|((at, count), fua)| Step::Write { at, count, fua }),
        1 => range.clone().prop_map(|(at, count)| Step::Zero { at, count }),
        1 => range.prop_map(|(at, count)| Step::Unmap { at, count }),
        2 => Just(Step::Flush),
        3 => Just(Step::Copy),
        3 => (0..6_usize, any::<u64>()).prop_map(|(after, seed)| Step::Cut { after, seed }),
    ]
}

/// The bytes that each sector may have after a power cut, of which the last is what it has now.
struct Oracle(Vec<Vec<u8>>);

impl Oracle {
    fn change(&mut self, at: u64, count: u64, byte: u8) {
        (at..at + count).for_each(|sector| self.0[sector as usize].push(byte));
    }

    fn flushed(&mut self) {
        self.0.iter_mut().for_each(|bytes| drop(bytes.drain(..bytes.len() - 1)));
    }

    fn stable(&mut self, at: u64, count: u64) {
        (at..at + count).for_each(|sector| {
            let bytes = &mut self.0[sector as usize];
            bytes.drain(..bytes.len() - 1);
        });
    }
}

fn read(disk: &TakeOver, at: u64, count: u64) -> Vec<u8> {
    let outcome = run(disk, Op::Read { offset: at * SECTOR, into: buffer(count * SECTOR, 0xee) });
    outcome.result.unwrap();
    outcome
        .buffer
        .unwrap()
        .chunks(SECTOR as usize)
        .map(|sector| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
            sector[0]
        })
        .collect()
}

fn open(medium: &Arc<Medium>, source: &Arc<MemoryStore>) -> TakeOver {
    let (target, map) = medium.parts();
    let stores = Stores { source: Some(Arc::clone(source) as _), target: Arc::new(target), map: Arc::new(map) };
    TakeOver::without_threads(stores, SOURCE_SECTORS * SECTOR).unwrap()
}

fn total() -> u64 {
    SECTORS * SECTOR + map_len(SOURCE_SECTORS * SECTOR)
}

fn walk(steps: &[Step]) {
    let source = source();
    let mut medium = Medium::new(PowerLoss::new(total()).unwrap());
    let mut disk = open(&medium, &source);
    let mut oracle = Oracle((0..SECTORS).map(|sector| vec![byte_of(&source, sector)]).collect());
    for (number, step) in steps.iter().enumerate() {
        let byte = 101 + u8::try_from(number % 150).unwrap();
        match *step {
            Step::Read { at, count } => {
                let expected: Vec<u8> =
                    (at..at + count).map(|sector| *oracle.0[sector as usize].last().unwrap()).collect();
                assert_eq!(read(&disk, at, count), expected);
            }
            Step::Write { at, count, fua } => {
                oracle.change(at, count, byte);
                let write = Op::Write { offset: at * SECTOR, from: buffer(count * SECTOR, byte), fua };
                run(&disk, write).result.unwrap();
                if fua && medium.left.lock().unwrap().is_none() {
                    oracle.stable(at, count);
                }
            }
            Step::Zero { at, count } => {
                oracle.change(at, count, 0);
                let zero = Op::WriteZeroes { offset: at * SECTOR, len: count * SECTOR, may_unmap: true, fua: false };
                run(&disk, zero).result.unwrap();
            }
            Step::Unmap { at, count } => {
                oracle.change(at, count, 0);
                run(&disk, Op::Unmap { offset: at * SECTOR, len: count * SECTOR }).result.unwrap();
            }
            Step::Flush => {
                run(&disk, Op::Flush).result.unwrap();
                if medium.left.lock().unwrap().is_none() {
                    oracle.flushed();
                }
            }
            Step::Copy => drop(disk.0.step(1)),
            Step::Cut { after, seed } => *medium.cut.lock().unwrap() = Some((after, seed)),
        }
        let left = medium.left.lock().unwrap().take();
        if let Some(left) = left {
            medium = Medium::new(left);
            disk = open(&medium, &source);
            let found = read(&disk, 0, SECTORS);
            for (sector, (byte, may)) in found.iter().zip(&mut oracle.0).enumerate() {
                assert!(may.contains(byte), "sector {sector} has {byte} after a power cut, and may have {may:?}");
                *may = vec![*byte];
            }
        }
    }
    while disk.0.step(1) {}
    assert!(disk.status().is_whole, "{:?}", disk.status());
    let (target, _) = medium.parts();
    let outcome = execute(&target, Op::Read { offset: 0, into: buffer(SECTORS * SECTOR, 0) });
    let bytes = outcome.buffer.unwrap();
    for (sector, may) in oracle.0.iter().enumerate() {
        assert_eq!(bytes[sector * SECTOR as usize], *may.last().unwrap(), "sector {sector}");
    }
}

proptest! {
    #[test]
    fn no_byte_is_wrong_whenever_the_power_fails(steps in proptest::collection::vec(step(), 1..60)) {
        walk(&steps);
    }
}

fn plain(len: u64) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(len).unwrap())
}

#[test]
fn each_byte_of_the_source_is_read_once_however_many_ask() {
    let source = source();
    let trace = Arc::new(lunette_store::filters::Trace::new(Arc::clone(&source) as _));
    let len = SOURCE_SECTORS * SECTOR;
    let stores = Stores { source: Some(Arc::clone(&trace) as _), target: plain(len), map: plain(map_len(len)) };
    let disk = TakeOver::open(stores, len).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, source) = (disk.store(), &source);
            scope.spawn(move || {
                for sector in (thread..SOURCE_SECTORS).step_by(4) {
                    let outcome = execute(&*store, Op::Read { offset: sector * SECTOR, into: buffer(SECTOR, 0) });
                    assert_eq!(outcome.buffer.unwrap()[0], byte_of(source, sector));
                }
            });
        }
    });
    while !disk.status().is_whole {
        disk.wait(Duration::from_secs(1));
    }
    let read: u64 = trace.records().iter().map(|record| record.len).sum();
    assert_eq!(read, len);
    assert!(disk.stop(Duration::from_mins(1)));
    assert_eq!(Arc::strong_count(&trace), 1, "the source is closed");
}

#[test]
fn after_the_end_of_the_copy_requests_that_need_the_source_fail() {
    let len = 4 * CHUNK_BYTES;
    let source = Arc::new(Fault::new(plain(len)));
    source.add(Rule::always(|| StoreError::Gone(std::io::ErrorKind::NotConnected.into())));
    let stores = Stores { source: Some(source as _), target: plain(len), map: plain(map_len(len)) };
    let disk = TakeOver::open(stores, len).unwrap();
    let store = disk.store();
    let write = |offset| Op::Write { offset, from: buffer(CHUNK_BYTES, 1), fua: false };
    execute(&*store, write(0)).result.unwrap();
    assert!(disk.stop(Duration::from_mins(1)));
    drop(disk);
    execute(&*store, write(0)).result.unwrap();
    assert!(matches!(execute(&*store, write(CHUNK_BYTES)).result, Err(StoreError::Gone(_))));
}

#[test]
fn a_source_that_fails_is_tried_again_and_keeps_no_write_back() {
    let len = 2 * CHUNK_BYTES;
    let source: Arc<dyn Store> = plain(len);
    let failing = Arc::new(Fault::new(source));
    failing.add(Rule::always(|| StoreError::Gone(std::io::ErrorKind::NotConnected.into())));
    let target = plain(len);
    let stores = Stores { source: Some(failing), target: Arc::clone(&target) as _, map: plain(map_len(len)) };
    let disk = TakeOver::without_threads(stores, len).unwrap();
    assert!(disk.0.step(1));
    let status = disk.status();
    assert_eq!((status.done_bytes, status.trouble.is_some()), (0, true), "{status:?}");
    let failed = run(&disk, Op::Read { offset: 0, into: buffer(SECTOR, 0) });
    assert!(failed.result.is_err());
    let part = Op::Write { offset: SECTOR, from: buffer(SECTOR, 1), fua: false };
    assert!(run(&disk, part).result.is_err(), "the rest of the chunk is not there");
    let whole = Op::Write { offset: CHUNK_BYTES, from: buffer(CHUNK_BYTES, 2), fua: false };
    run(&disk, whole).result.unwrap();
    assert_eq!(disk.status().done_bytes, CHUNK_BYTES);
}

#[test]
fn a_target_that_is_full_keeps_no_read_from_its_bytes() {
    let (source, target) = (source(), Arc::new(Fault::new(plain(SECTORS * SECTOR))));
    let map = plain(map_len(SOURCE_SECTORS * SECTOR));
    let stores = Stores { source: Some(Arc::clone(&source) as _), target: Arc::clone(&target) as _, map };
    let disk = TakeOver::without_threads(stores, SOURCE_SECTORS * SECTOR).unwrap();
    let write = Op::Write { offset: CHUNK_BYTES, from: buffer(CHUNK_BYTES, 200), fua: false };
    run(&disk, write).result.unwrap();
    for kind in [OpKind::Write, OpKind::WriteZeroes] {
        target.add(Rule { kind: Some(kind), ..Rule::always(|| StoreError::NoSpace) });
    }
    let sectors_of_chunk = CHUNK_BYTES / SECTOR;
    let expected: Vec<u8> = (0..SECTORS)
        .map(|sector| if sector / sectors_of_chunk == 1 { 200 } else { byte_of(&source, sector) })
        .collect();
    assert_eq!(read(&disk, 0, SECTORS), expected);
    assert_eq!(read(&disk, 3, 1), expected[3..4]);
    let refused = run(&disk, Op::Write { offset: 0, from: buffer(SECTOR, 1), fua: false });
    assert!(matches!(refused.result, Err(StoreError::NoSpace)), "{:?}", refused.result);
    target.clear();
    while disk.0.step(1) {}
    assert!(disk.status().is_whole);
}

#[test]
fn what_a_failed_flush_has_lost_is_copied_again() {
    let len = 4 * CHUNK_BYTES;
    let source = plain(len);
    source.write(0, &vec![1; usize::try_from(len).unwrap()]).unwrap();
    let (medium, map) = (plain(len), plain(map_len(len)));
    let target = Arc::new(Fault::new(Arc::clone(&medium) as _));
    let stores = Stores { source: Some(source), target: Arc::clone(&target) as _, map };
    let disk = TakeOver::without_threads(stores, len).unwrap();
    assert!(disk.0.step(1));
    assert_eq!(disk.status().done_bytes, len);
    target.add(Rule { kind: Some(OpKind::Flush), times: 2, ..Rule::always(|| StoreError::NoSpace) });
    assert!(disk.0.step(1), "the map is due");
    medium.zero(0, len).unwrap();
    assert!(disk.status().trouble.is_some() && disk.status().done_bytes == 0, "{:?}", disk.status());
    let write = |byte| Op::Write { offset: 0, from: buffer(CHUNK_BYTES, byte), fua: false };
    assert!(run(&disk, write(2)).result.is_err());
    run(&disk, write(3)).result.unwrap();
    while disk.0.step(1) {}
    assert!(disk.status().is_whole, "{:?}", disk.status());
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    medium.read(0, &mut bytes).unwrap();
    let (first, others) = bytes.split_at(usize::try_from(CHUNK_BYTES).unwrap());
    assert!(first.iter().all(|byte| *byte == 3) && others.iter().all(|byte| *byte == 1));
}

#[test]
fn a_bad_block_keeps_no_other_from_being_copied_and_is_told_until_it_is() {
    let len = 16 * CHUNK_BYTES;
    let source = Arc::new(Fault::new(plain(len)));
    let bad = Some(5 * CHUNK_BYTES..5 * CHUNK_BYTES + SECTOR);
    source.add(Rule { range: bad, ..Rule::always(|| StoreError::Io(std::io::ErrorKind::InvalidData.into())) });
    let stores = Stores { source: Some(Arc::clone(&source) as _), target: plain(len), map: plain(map_len(len)) };
    let disk = TakeOver::without_threads(stores, len).unwrap();
    (0..8).for_each(|_| assert!(disk.0.step(1)));
    let status = disk.status();
    assert_eq!((status.done_bytes, status.trouble.is_some()), (12 * CHUNK_BYTES, true), "{status:?}");
    let read = |sector: u64| run(&disk, Op::Read { offset: sector * SECTOR, into: buffer(SECTOR, 9) });
    let first = 5 * CHUNK_BYTES / SECTOR;
    assert!(read(first).result.is_err());
    read(first + 1).result.unwrap();
    source.clear();
    while disk.0.step(1) {}
    let status = disk.status();
    assert!(status.is_whole && status.trouble.is_none(), "{status:?}");
}

#[test]
fn a_disk_that_is_copied_needs_no_source() {
    let len = CHUNK_BYTES;
    let (target, map): (Arc<dyn Store>, Arc<dyn Store>) = (plain(len), plain(map_len(len)));
    let open = |source| {
        let stores = Stores { source, target: Arc::clone(&target), map: Arc::clone(&map) };
        TakeOver::without_threads(stores, len)
    };
    assert!(matches!(open(None), Err(OpenError::NoSource)) && !is_whole(&map, len).unwrap());
    let disk = open(Some(plain(len) as _)).unwrap();
    while disk.0.step(1) {}
    assert!(is_whole(&map, len).unwrap());
    assert!(open(None).unwrap().status().is_whole);
}

#[test]
fn holes_of_the_target_are_none_of_the_disk() {
    let len = 8 * CHUNK_BYTES;
    let source = plain(len);
    source.write(0, &[1; 512]).unwrap();
    let stores = Stores { source: Some(source), target: plain(len), map: plain(map_len(len)) };
    let disk = TakeOver::without_threads(stores, len).unwrap();
    let allocated = || {
        let found = Arc::new(AllocationMap::default());
        run(&disk, Op::Allocation { offset: 0, len, found: Arc::clone(&found) }).result.unwrap();
        found.take().iter().filter(|run| run.allocated).map(|run| run.len).sum::<u64>()
    };
    assert_eq!(allocated(), len);
    while disk.0.step(1) {}
    assert!(allocated() < len);
}

/// A store that says that it has this length.
struct Long(u64);

impl Store for Long {
    fn geometry(&self) -> Geometry {
        Geometry { len_bytes: self.0, granularity_bytes: 512, physical_bytes: 512, unmap_bytes: 512 }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn submit(&self, op: Op, _: &dyn FileIo, done: Completion) {
        done.complete(Outcome::of(op, Err(StoreError::ReadOnly)));
    }
}

#[test]
fn a_disk_that_is_too_long_is_not_taken_over() {
    let open = |len| {
        let stores = Stores { source: Some(Arc::new(Long(len))), target: Arc::new(Long(len)), map: plain(4096) };
        TakeOver::without_threads(stores, len).map(drop)
    };
    assert!(matches!(open(MAX_LEN_BYTES), Err(OpenError::MapLength { needed, .. }) if needed == 32 << 20));
    assert!(matches!(open(MAX_LEN_BYTES + 512), Err(OpenError::TooLong(_))));
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let open = |source: u64, target: u64, map: u64, expected: u64| {
        let stores = Stores { source: Some(plain(source)), target: plain(target), map: plain(map) };
        TakeOver::without_threads(stores, expected).map(drop)
    };
    assert!(open(4096, 8192, 4096, 4096).is_ok());
    assert!(matches!(open(4096, 8192, 4096, 8192), Err(OpenError::SourceLength { .. })));
    assert!(matches!(open(8192, 4096, 4096, 8192), Err(OpenError::TargetLength { .. })));
    assert!(matches!(open(8192, 8192, 512, 8192), Err(OpenError::MapLength { .. })));
}
