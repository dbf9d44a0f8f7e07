//! Disks in memory that go from process to process. A process can share its memory once, so each test has its own.

#![expect(clippy::unwrap_used, reason = "a test ends with the first surprise")]

mod common;

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{Oracle, Request, requests};
use lunette_buffer::Pool;
use lunette_store::{LeavingMemory, LeftMemory, LeftMemoryError, MemoryStore, Op, execute};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CHUNK: usize = MemoryStore::CHUNK_BYTES as usize;
const SLAB: u64 = 2 << 20;

/// Names the test that runs in this process.
const ALONE: &str = "LUNETTE_TEST_ALONE";

/// The folder in which a predecessor has left the lists of places.
const LEFT: &str = "LUNETTE_TEST_LEFT";

/// Whether this process is that of `test` alone; otherwise such a process has passed it.
fn alone(test: &str) -> bool {
    if env::var(ALONE).is_ok_and(|name| name == test) {
        return true;
    }
    let status = this_program(test).env(ALONE, test).status().unwrap();
    assert!(status.success(), "{test} has failed in its process");
    false
}

fn this_program(test: &str) -> Command {
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(["--exact", test, "--nocapture"]);
    program
}

/// The processes through which the disks go.
const GENERATIONS: u64 = 4;
const DISKS: usize = 24;
const DISK_LEN: u64 = 400_000;

/// The requests of a process to a disk.
fn drawn(runner: &mut TestRunner) -> Vec<Request> {
    requests(DISK_LEN, 1).new_tree(runner).unwrap().current()
}

/// Each process finds what its predecessor has left, changes it, and leaves it to the next one, which runs this test,
/// too.
#[test]
fn disks_go_through_processes_and_have_all_bytes() {
    let test = "disks_go_through_processes_and_have_all_bytes";
    if !alone(test) {
        return;
    }
    let left = env::var(LEFT).ok();
    let folder = tempfile::tempdir().unwrap();
    let (generation, mut disks) = match &left {
        Some(folder) => inherited(Path::new(folder)),
        None => (0, (0..DISKS).map(|_| (MemoryStore::new(DISK_LEN).unwrap(), Oracle::new(DISK_LEN))).collect()),
    };
    // Other requests than those of the generations before.
    let mut runner = TestRunner::deterministic();
    (0..generation).for_each(|_| drop(drawn(&mut runner)));
    for (store, oracle) in &mut disks {
        oracle.compare(store);
        for request in drawn(&mut runner) {
            oracle.step(store, &request);
        }
    }
    if generation == GENERATIONS {
        return;
    }
    for (store, oracle) in &mut disks {
        store.make_shareable().unwrap();
        // Loans from before are still held.
        oracle.compare(store);
        for request in drawn(&mut runner) {
            oracle.step(store, &request);
        }
        oracle.compare(store);
    }
    let memory = LeavingMemory::leave().unwrap();
    for (number, (store, oracle)) in disks.iter().enumerate() {
        let places = store.places(&memory).unwrap();
        assert_eq!(places.len() as u64 * CHUNK as u64, store.allocated_bytes());
        let lines: Vec<_> = places.iter().map(|(chunk, place)| format!("{chunk} {place}")).collect();
        fs::write(folder.path().join(format!("places{number}")), lines.join("\n")).unwrap();
        fs::write(folder.path().join(format!("bytes{number}")), &oracle.bytes).unwrap();
    }
    fs::write(folder.path().join("generation"), (generation + 1).to_string()).unwrap();
    // To end changes nothing, with loans or without.
    let (dropped, lent): (Vec<_>, Vec<_>) = disks.into_iter().unzip();
    drop(dropped);
    drop(lent);
    let descriptor = memory.as_fd().try_clone_to_owned().unwrap();
    drop(memory);
    let mut successor = this_program(test);
    successor.env(ALONE, test).env(LEFT, folder.path()).stdin(Stdio::from(descriptor));
    assert!(successor.status().unwrap().success(), "the successor of generation {generation} has failed");
}

/// The number of this generation, and its disks with what they should hold.
fn inherited(folder: &Path) -> (u64, Vec<(MemoryStore, Oracle)>) {
    let read = |name: String| fs::read(folder.join(name)).unwrap();
    let memory = LeftMemory::open(std::io::stdin().as_fd().try_clone_to_owned().unwrap()).unwrap();
    let disk = |number| {
        let text = String::from_utf8(read(format!("places{number}"))).unwrap();
        let numbers = text.lines().filter_map(|line| line.split_once(' '));
        let places: Vec<_> = numbers.map(|(chunk, place)| (chunk.parse().unwrap(), place.parse().unwrap())).collect();
        let store = MemoryStore::inherit(DISK_LEN, &memory, &places).unwrap();
        let mut oracle = Oracle::new(DISK_LEN);
        oracle.bytes = read(format!("bytes{number}"));
        oracle.compare(&store);
        (store, oracle)
    };
    let disks = (0..DISKS).map(disk).collect();
    memory.own();
    (String::from_utf8(read("generation".into())).unwrap().parse().unwrap(), disks)
}

#[test]
fn a_disk_is_moved_under_writes_and_reads() {
    const CHUNKS: usize = 96;
    const WRITERS: usize = 3;
    if !alone("a_disk_is_moved_under_writes_and_reads") {
        return;
    }
    let store = MemoryStore::new((CHUNKS * CHUNK) as u64).unwrap();
    let pool = Pool::new(64 << 20);
    let has_moved = AtomicBool::new(false);
    // Each writer has chunks of its own, and says what it has written to each last.
    let write = |writer: usize| {
        let mut last = vec![0; CHUNKS];
        let mut round = 0_usize;
        while !has_moved.load(Ordering::Relaxed) || round < 100 {
            round += 1;
            for chunk in (writer..CHUNKS).step_by(WRITERS) {
                let fill = (round * 31 + chunk) as u8;
                let offset = (chunk * CHUNK) as u64;
                let is_zeroed = (round + chunk).is_multiple_of(4);
                match (round + chunk) % 4 {
                    _ if is_zeroed => store.zero(offset, CHUNK as u64).unwrap(),
                    1 => store.write(offset, &vec![fill; CHUNK]).unwrap(),
                    _ => (0..CHUNK).step_by(8192).for_each(|at| {
                        store.write(offset + at as u64, &[fill; 8192]).unwrap();
                    }),
                }
                last[chunk] = if is_zeroed { 0 } else { fill };
            }
        }
        last
    };
    let read = || {
        while !has_moved.load(Ordering::Relaxed) {
            for chunk in 0..CHUNKS {
                let mut block = [0; 4096];
                store.read((chunk * CHUNK + 4096) as u64, &mut block).unwrap();
                assert!(block.iter().all(|byte| *byte == block[0]), "a block is half written");
                let mut into = pool.reserve(CHUNK).unwrap();
                into.allow_loan();
                let loan = execute(&store, Op::Read { offset: (chunk * CHUNK) as u64, into }).loan.unwrap();
                let first = loan.runs().collect::<Vec<_>>().concat();
                thread::yield_now();
                assert!(loan.runs().collect::<Vec<_>>().concat() == first, "lent bytes have changed");
            }
        }
    };
    let last = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        let reader = scope.spawn(read);
        // There has to be something to move.
        while store.allocated_bytes() < (CHUNKS / 2 * CHUNK) as u64 {
            thread::yield_now();
        }
        store.make_shareable().unwrap();
        has_moved.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    let memory = LeavingMemory::leave().unwrap();
    let places = store.places(&memory).unwrap();
    let file = File::from(memory.as_fd().try_clone_to_owned().unwrap());
    for chunk in 0..CHUNKS {
        let mut expected = vec![last[chunk % WRITERS][chunk]; CHUNK];
        let mut found = vec![1; CHUNK];
        store.read((chunk * CHUNK) as u64, &mut found).unwrap();
        assert!(found == expected, "chunk {chunk}");
        let place = places.iter().find(|(number, _)| *number == chunk as u64);
        match place {
            Some((_, place)) => file.read_exact_at(&mut found, place * CHUNK as u64).unwrap(),
            None => expected.fill(0),
        }
        assert!(found == expected, "chunk {chunk} in the file");
    }
    memory.take_back();
    drop(pool);
}

/// Bytes of the process's own memory that no other process can have.
fn anonymous_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn memory_is_given_back() {
    const CHUNKS: u64 = 1000;
    /// The most chunks that the process keeps for the next write.
    const KEPT: u64 = 64;
    let len = CHUNKS * CHUNK as u64;
    if !alone("memory_is_given_back") {
        return;
    }
    let store = MemoryStore::new(1 << 40).unwrap();
    store.write(1 << 39, &vec![7; len as usize]).unwrap();
    let before = anonymous_bytes();
    store.make_shareable().unwrap();
    assert!(anonymous_bytes() + len * 9 / 10 < before, "what was moved is given back");

    let memory = LeavingMemory::leave().unwrap();
    let file = File::from(memory.as_fd().try_clone_to_owned().unwrap());
    let held_bytes = || file.metadata().unwrap().blocks() * 512;
    assert_eq!(held_bytes(), len);
    let places = store.places(&memory).unwrap();
    assert_eq!(places.len() as u64, CHUNKS);
    store.zero(1 << 39, len / 2).unwrap();
    assert_eq!(held_bytes(), len, "another process may have it");
    assert!(matches!(store.make_shareable(), Err(LeftMemoryError::AlreadyLeft)));
    assert!(matches!(LeavingMemory::leave(), Err(LeftMemoryError::AlreadyLeft)));
    memory.take_back();
    assert_eq!(held_bytes(), len / 2);

    // And it goes on.
    store.write(1 << 39, &vec![8; CHUNK]).unwrap();
    assert_eq!(held_bytes(), len / 2 + CHUNK as u64);
    let other = MemoryStore::new(len).unwrap();
    other.write(0, &vec![9; 10 * CHUNK]).unwrap();
    assert_eq!(held_bytes(), len / 2 + 11 * CHUNK as u64, "other stores of the process share their memory too");
    store.zero(0, 1 << 40).unwrap();
    drop(other);
    assert!(held_bytes() <= KEPT * CHUNK as u64, "{} bytes are held", held_bytes());
    let mut bytes = vec![1; len as usize];
    store.write((1 << 39) + 10, b"x").unwrap();
    store.read(1 << 39, &mut bytes).unwrap();
    assert!(bytes[10] == b'x' && bytes.iter().filter(|byte| **byte != 0).count() == 1, "the rest reads as zero");
}

/// The memory that a server would have left: a file of whole slabs, filled with 7.
fn left_by_other(len: u64) -> File {
    let file = unsealed(len);
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    file
}

fn unsealed(len: u64) -> File {
    let mut file = File::from(memfd_create("left", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap());
    file.write_all(&vec![7; len as usize]).unwrap();
    file
}

fn open(file: &File) -> Result<LeftMemory, LeftMemoryError> {
    LeftMemory::open(file.try_clone().unwrap().into())
}

#[test]
fn other_descriptors_are_refused() {
    if !alone("other_descriptors_are_refused") {
        return;
    }
    let read_only_seals = unsealed(SLAB);
    fcntl_add_seals(&read_only_seals, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let refused: [(&str, OwnedFd); 7] = [
        ("a regular file", tempfile::tempfile().unwrap().into()),
        ("a folder", File::open("/").unwrap().into()),
        ("a device", File::open("/dev/null").unwrap().into()),
        ("a pipe", reader.into()),
        ("what could become shorter", unsealed(SLAB).into()),
        ("what cannot be written to", read_only_seals.into()),
        ("an odd length", left_by_other(SLAB + 1).into()),
    ];
    for (what, descriptor) in refused {
        assert!(matches!(LeftMemory::open(descriptor), Err(LeftMemoryError::NotMemory(_))), "{what}");
    }
    let file = left_by_other(SLAB);
    let for_reading = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))).unwrap();
    assert!(matches!(open(&for_reading), Err(LeftMemoryError::System(_))), "opened for reading");
    open(&file).unwrap().own();
    assert!(matches!(open(&file), Err(LeftMemoryError::OtherMemory)));
    assert!(matches!(LeavingMemory::leave(), Err(LeftMemoryError::NotShared)));
}

#[test]
fn places_that_cannot_be_are_refused_and_nothing_is_lost() {
    if !alone("places_that_cannot_be_are_refused_and_nothing_is_lost") {
        return;
    }
    let file = left_by_other(2 * SLAB);
    let memory = open(&file).unwrap();
    let len = 10 * CHUNK as u64;
    let inherit = |places: &[_]| MemoryStore::inherit(len, &memory, places);
    for (chunk, len) in [(10, len), (u64::MAX, len), (10, len - 1), (11, len + 1)] {
        let result = MemoryStore::inherit(len, &memory, &[(1, 1), (chunk, 2)]);
        assert!(matches!(result, Err(LeftMemoryError::NoSuchChunk { .. })), "{chunk}");
    }
    for place in [64, u64::MAX / CHUNK as u64, u64::MAX] {
        assert!(
            matches!(inherit(&[(1, 1), (2, place)]), Err(LeftMemoryError::NoSuchPlace { places: 64, .. })),
            "{place}"
        );
    }
    assert!(matches!(inherit(&[(1, 1), (2, 1)]), Err(LeftMemoryError::PlaceTwice { place: 1 })));
    assert!(matches!(inherit(&[(1, 1), (1, 2)]), Err(LeftMemoryError::ChunkTwice { chunk: 1 })));
    let result = MemoryStore::inherit(u64::MAX, &memory, &[]);
    assert!(matches!(result, Err(LeftMemoryError::TooLong { .. })));

    let one = inherit(&[(1, 1), (9, 63)]).unwrap();
    assert!(matches!(inherit(&[(0, 63)]), Err(LeftMemoryError::PlaceTwice { place: 63 })));
    assert!(matches!(one.make_shareable(), Err(LeftMemoryError::NotOwned)));
    assert!(matches!(LeavingMemory::leave(), Err(LeftMemoryError::NotOwned)));
    drop(inherit(&[(0, 5)]).unwrap());
    let held_bytes = || file.metadata().unwrap().blocks() * 512;
    let mut bytes = vec![0; 2 * SLAB as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(held_bytes() == 2 * SLAB && bytes.iter().all(|byte| *byte == 7), "the earlier process may go on");

    memory.own();
    assert_eq!(held_bytes(), 2 * CHUNK as u64, "nothing else is in use");
    let mut block = [0; 512];
    for (chunk, fill) in [(0, 0), (1, 7), (5, 0), (9, 7)] {
        one.read(chunk * CHUNK as u64, &mut block).unwrap();
        assert!(block.iter().all(|byte| *byte == fill), "chunk {chunk}");
    }
    one.write(CHUNK as u64 * 5, b"new").unwrap();
    one.make_shareable().unwrap();
    let memory = LeavingMemory::leave().unwrap();
    let places = one.places(&memory).unwrap();
    assert_eq!(places.iter().map(|(chunk, _)| *chunk).collect::<Vec<_>>(), [1, 5, 9]);
    assert_eq!((places[0].1, places[2].1), (1, 63), "what lies there already is not moved");
    memory.take_back();
}

#[test]
fn a_disk_that_was_not_moved_is_not_left() {
    if !alone("a_disk_that_was_not_moved_is_not_left") {
        return;
    }
    let [early, moved] = [1 << 20, 2 << 20].map(|len| MemoryStore::new(len).unwrap());
    early.write(0, b"early").unwrap();
    moved.write(0, b"moved").unwrap();
    assert!(matches!(LeavingMemory::leave(), Err(LeftMemoryError::NotShared)));
    moved.make_shareable().unwrap();
    let memory = LeavingMemory::leave().unwrap();
    assert_eq!(moved.places(&memory).unwrap().len(), 1);
    assert!(matches!(early.places(&memory), Err(LeftMemoryError::NotShared)));
    memory.take_back();
    early.make_shareable().unwrap();
    let memory = LeavingMemory::leave().unwrap();
    assert_eq!(early.places(&memory).unwrap().len(), 1);
    memory.take_back();
}

#[test]
fn a_system_without_such_memory_changes_nothing() {
    if !alone("a_system_without_such_memory_changes_nothing") {
        return;
    }
    let store = MemoryStore::new(1 << 30).unwrap();
    store.write(0, &vec![3; 5 * CHUNK]).unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
    let refused = store.make_shareable();
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(matches!(refused, Err(LeftMemoryError::System(_))), "{refused:?}");
    store.write(3 * CHUNK as u64, &vec![4; 4 * CHUNK]).unwrap();

    // One that grants a file, but no bytes in it.
    let limit = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(SLAB - 1), ..limit }).unwrap();
    let refused = store.make_shareable();
    assert!(matches!(refused, Err(LeftMemoryError::System(_))), "{refused:?}");
    store.write(7 * CHUNK as u64, &vec![5; CHUNK]).unwrap();
    assert!(matches!(LeavingMemory::leave(), Err(LeftMemoryError::NotShared)));

    // One that grants some bytes, and then no more.
    setrlimit(Resource::Fsize, Rlimit { current: Some(SLAB), ..limit }).unwrap();
    store.make_shareable().unwrap();
    store.write(8 * CHUNK as u64, &vec![6; 40 * CHUNK]).unwrap();
    let memory = LeavingMemory::leave().unwrap();
    assert!(matches!(store.places(&memory), Err(LeftMemoryError::NotShared)));
    memory.take_back();
    setrlimit(Resource::Fsize, limit).unwrap();
    store.make_shareable().unwrap();
    let memory = LeavingMemory::leave().unwrap();
    assert_eq!(store.places(&memory).unwrap().len(), 48);
    memory.take_back();
    let mut bytes = vec![0; 48 * CHUNK];
    store.read(0, &mut bytes).unwrap();
    let fills: Vec<u8> = bytes.chunks(CHUNK).map(|chunk| chunk[0]).collect();
    assert!(bytes.chunks(CHUNK).all(|chunk| chunk.iter().all(|byte| *byte == chunk[0])));
    assert_eq!(fills, [&[3; 3][..], &[4; 4], &[5], &[6; 40]].concat());
}
