//! The store over a table of functions that are not Ceph's.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lunette_buffer::{Buffer, MAX_BUFFER_LEN, Pool};
use lunette_store::{AllocationMap, Completion, InlineIo, MemoryStore, Op, Outcome, Run, Store, StoreError, execute};
use proptest::prelude::*;

use crate::librbd::fake::{OBJECT_LEN, World};
use crate::limits::{MAX_REQUEST_BYTES, MAX_REQUESTS, MAX_ZERO_BYTES};
use crate::{GatewayStore, OpenError, RbdStore};

const LEN: usize = 64 << 10;

/// Long enough for everything.
const LIMIT: Duration = Duration::from_secs(20);

fn buffer(len: usize, fill: u8) -> Buffer {
    let mut buffer = Pool::new(2 * MAX_BUFFER_LEN).take(len).unwrap();
    buffer.fill(fill);
    buffer
}

fn write(store: &dyn Store, offset: u64, len: usize, fill: u8) -> Outcome {
    execute(store, Op::Write { offset, from: buffer(len, fill), fua: false })
}

/// Submits `op`; its outcome comes through the channel.
fn submit(store: &RbdStore, op: Op) -> Receiver<Outcome> {
    let (tx, rx) = channel();
    let done = Completion::call(move |outcome| tx.send(outcome).unwrap());
    store.submit(op, &InlineIo, done);
    rx
}

fn submit_write(store: &RbdStore, offset: u64, fill: u8) -> Receiver<Outcome> {
    submit(store, Op::Write { offset, from: buffer(512, fill), fua: false })
}

/// Everything was given back: nothing but this test and the list of worlds knows the world.
fn all_is_closed(store: RbdStore, world: &Arc<World>) {
    store.close(LIMIT).unwrap();
    drop(store);
    assert_eq!(Arc::strong_count(world), 2);
    assert!(!world.is_watched());
}

#[test]
fn a_store_gives_back_all_that_it_opens() {
    let world = World::new("gives back", LEN);
    let store = World::open("gives back").unwrap();
    assert_eq!(store.geometry().len_bytes, LEN as u64);
    assert!(world.is_watched());
    write(&store, 512, 1024, 7).result.unwrap();
    assert_eq!(world.state().bytes[500..524], [[0; 12], [7; 12]].concat());
    all_is_closed(store, &world);
}

#[test]
fn one_thread_ends_requests_unless_the_file_or_a_journal_needs_more() {
    let world = World::new("options", LEN);
    let opened_with = |threads: Option<&str>, has_journal| {
        let file = threads.map(|threads| ("librados_thread_count".into(), threads.into()));
        (world.state().options, world.state().has_journal) = (file.into_iter().collect(), has_journal);
        drop(World::open("options").unwrap());
        world.state().options.get("librados_thread_count").cloned()
    };
    assert_eq!(opened_with(None, false).as_deref(), Some("1"));
    assert_eq!(opened_with(Some("4"), false).as_deref(), Some("4"));
    assert_eq!(opened_with(None, true), None);
}

#[test]
fn the_configuration_file_turns_no_cache_on() {
    let world = World::new("cache", LEN);
    world.state().options = [("rbd_cache".into(), "true".into())].into();
    drop(World::open("cache").unwrap());
    assert_eq!(world.state().options["rbd_cache"], "false");
}

#[test]
fn what_cannot_be_opened_leaves_nothing_behind() {
    let world = World::new("refuses", LEN);
    world.state().lock = -libc::EROFS;
    assert!(matches!(World::open("refuses"), Err(OpenError::InUse(_))));
    (world.state().lock, world.state().cache) = (0, true);
    assert!(matches!(World::open("refuses"), Err(OpenError::Caches { option }) if option == "rbd_cache"));
    assert_eq!(Arc::strong_count(&world), 2);
    assert!(matches!(World::open("nowhere"), Err(OpenError::Configuration { .. })));
}

#[test]
fn a_store_that_is_dropped_closes_when_the_last_request_has_ended() {
    let world = World::new("dropped", LEN);
    world.state().holds = true;
    let store = World::open("dropped").unwrap();
    let (first, second) = (submit_write(&store, 0, 1), submit_write(&store, 512, 2));
    let closer = store.closer();
    drop(store);
    world.let_one_go();
    assert!(first.recv().unwrap().result.is_ok());
    assert!(world.is_watched(), "the other request is under way");
    world.let_one_go();
    let outcome = second.recv().unwrap();
    assert!(outcome.result.is_ok());
    assert!(outcome.buffer.unwrap().iter().all(|byte| *byte == 2));
    closer.close(LIMIT).unwrap();
    assert!(closer.is_closed() && !world.is_watched());
    assert_eq!(Arc::strong_count(&world), 2);
}

#[test]
fn a_close_waits_for_the_cluster_no_longer_than_it_may() {
    let world = World::new("slow", LEN);
    world.state().holds = true;
    let store = World::open("slow").unwrap();
    let write = submit_write(&store, 0, 1);
    assert!(store.close(Duration::from_millis(1)).is_err());
    assert!(execute(&store, Op::Flush).result.is_err(), "it takes no more");
    world.let_all_go();
    assert!(write.recv().unwrap().result.is_ok());
    all_is_closed(store, &world);
}

#[test]
fn requests_that_are_abandoned_end_and_keep_their_buffers_until_librbd_ends_them() {
    let world = World::new("abandoned", LEN);
    world.state().holds = true;
    let store = World::open("abandoned").unwrap();
    let begun: Vec<_> = (0..MAX_REQUESTS as u64).map(|at| submit_write(&store, at % 8 * 512, 1)).collect();
    let waits = submit_write(&store, 0, 1);
    let closer = store.closer();
    assert!(closer.close(Duration::from_millis(1)).is_err());
    closer.abandon();
    for write in &begun {
        let outcome = write.try_recv().unwrap();
        assert!(matches!(outcome.result, Err(StoreError::ShutOut(_))) && outcome.buffer.is_none(), "{outcome:?}");
    }
    assert!(waits.try_recv().unwrap().buffer.is_some(), "librbd has never had it");
    world.let_all_go();
    assert!(begun.iter().all(|write| write.recv().is_err()), "a request ends once");
    all_is_closed(store, &world);
}

#[test]
fn requests_beyond_the_bound_wait_and_all_of_them_end() {
    let world = World::new("bound", LEN);
    (world.state().holds, world.state().threads) = (true, true);
    let store = World::open("bound").unwrap();
    let all = 3 * MAX_REQUESTS;
    let flushes: Vec<_> = (0..all).map(|_| submit(&store, Op::Flush)).collect();
    assert_eq!(world.held(), MAX_REQUESTS);
    world.let_one_go();
    assert_eq!(world.held(), MAX_REQUESTS, "one of those that waited has its place");
    world.let_all_go();
    assert!(flushes.iter().all(|flush| flush.recv().unwrap().result.is_ok()));
    assert_eq!(world.state().most_at_once, MAX_REQUESTS);
    all_is_closed(store, &world);
}

#[test]
fn bytes_beyond_the_bound_wait() {
    let world = World::new("bytes", 2 * MAX_BUFFER_LEN);
    world.state().holds = true;
    let store = World::open("bytes").unwrap();
    let longest = || submit(&store, Op::Read { offset: 0, into: buffer(MAX_BUFFER_LEN, 0) });
    let reads: Vec<_> = (0..6).map(|_| longest()).collect();
    assert_eq!(world.held(), MAX_REQUEST_BYTES / MAX_BUFFER_LEN);
    world.let_all_go();
    assert!(reads.iter().all(|read| read.recv().unwrap().result.is_ok()));
    all_is_closed(store, &world);
}

#[test]
fn requests_that_wait_end_when_the_store_closes() {
    let world = World::new("waiting", LEN);
    world.state().holds = true;
    let store = World::open("waiting").unwrap();
    let begun: Vec<_> = (0..MAX_REQUESTS).map(|_| submit(&store, Op::Flush)).collect();
    let waits = submit_write(&store, 0, 1);
    assert!(store.close(Duration::ZERO).is_err());
    let outcome = waits.recv().unwrap();
    assert!(matches!(outcome.result, Err(StoreError::Io(_))));
    assert!(outcome.buffer.is_some(), "the buffer comes back");
    world.let_all_go();
    assert!(begun.iter().all(|flush| flush.recv().unwrap().result.is_ok()));
    all_is_closed(store, &world);
}

#[test]
fn requests_that_are_not_taken_end_too() {
    let world = World::new("not taken", LEN);
    let store = World::open("not taken").unwrap();
    world.state().holds = true;
    let begun: Vec<_> = (0..MAX_REQUESTS).map(|_| submit(&store, Op::Flush)).collect();
    // Many, of which each makes room for the next.
    let waiting: Vec<_> = (0..20_000).map(|_| submit(&store, Op::Flush)).collect();
    world.state().refuses = -libc::ENOMEM;
    world.let_all_go();
    assert!(begun.iter().all(|flush| flush.recv().unwrap().result.is_ok()));
    assert!(waiting.iter().all(|flush| flush.recv().unwrap().result.is_err()));
    all_is_closed(store, &world);
}

#[test]
fn a_client_that_is_shut_out_stays_so() {
    let world = World::new("shut out", LEN);
    let store = World::open("shut out").unwrap();
    world.state().fails = -libc::ESHUTDOWN;
    assert!(matches!(write(&store, 0, 512, 1).result, Err(StoreError::ShutOut(_))));
    world.state().fails = 0;
    assert!(matches!(write(&store, 0, 512, 1).result, Err(StoreError::ShutOut(_))));
    let found = Arc::default();
    assert!(matches!(
        execute(&store, Op::Allocation { offset: 0, len: 512, found }).result,
        Err(StoreError::ShutOut(_))
    ));
    assert!(world.state().bytes.iter().all(|byte| *byte == 0), "nothing was tried again");
    all_is_closed(store, &world);
}

#[test]
fn requests_of_a_client_that_is_shut_out_end_though_librbd_ends_none() {
    let world = World::new("shut out meanwhile", LEN);
    let store = World::open("shut out meanwhile").unwrap();
    world.state().holds = true;
    let written = submit_write(&store, 0, 1);
    world.state().fails = -libc::ESHUTDOWN;
    world.notify();
    let outcome = written.recv_timeout(LIMIT).unwrap();
    assert!(matches!(outcome.result, Err(StoreError::ShutOut(_))));
    assert!(outcome.buffer.is_none(), "librbd has it");
    world.let_all_go();
    all_is_closed(store, &world);
}

#[test]
fn requests_end_that_librbd_does_not_end_after_one_has_told_of_the_blocklist() {
    let world = World::new("told by a request", LEN);
    let store = World::open("told by a request").unwrap();
    world.state().holds = true;
    let (told, left) = (submit_write(&store, 0, 1), submit_write(&store, 512, 1));
    world.state().fails = -libc::ESHUTDOWN;
    world.let_one_go();
    assert!(matches!(told.recv_timeout(LIMIT).unwrap().result, Err(StoreError::ShutOut(_))));
    world.notify();
    assert!(matches!(left.recv_timeout(LIMIT).unwrap().result, Err(StoreError::ShutOut(_))));
    world.let_all_go();
    all_is_closed(store, &world);
}

/// librbd holds the write, and tells nothing of the blocklist.
#[test]
fn a_client_that_is_told_nothing_asks_whether_it_is_shut_out() {
    let world = World::new("asks", LEN);
    let store = World::open_checked("asks", Duration::from_millis(1)).unwrap();
    world.state().holds = true;
    let written = submit_write(&store, 0, 1);
    world.state().fails = -libc::ESHUTDOWN;
    assert!(matches!(written.recv_timeout(LIMIT).unwrap().result, Err(StoreError::ShutOut(_))));
    world.let_all_go();
    all_is_closed(store, &world);
}

/// Asks for the allocation again and again, on the thread of the store itself: its next errand is always there.
fn ask_without_end(store: &Arc<RbdStore>, begun: Sender<()>) {
    let again = Arc::downgrade(store);
    let done = Completion::call(move |outcome| {
        // The first one has been answered.
        let _ = begun.send(());
        if let (true, Some(store)) = (outcome.result.is_ok(), again.upgrade()) {
            ask_without_end(&store, begun);
        }
    });
    store.submit(Op::Allocation { offset: 0, len: 512, found: Arc::default() }, &InlineIo, done);
}

#[test]
fn questions_without_end_do_not_put_off_the_look_at_the_blocklist() {
    let world = World::new("asked without end", LEN);
    let store = Arc::new(World::open_checked("asked without end", Duration::from_millis(1)).unwrap());
    world.state().holds = true;
    let written = submit_write(&store, 0, 1);
    let (begun, begins) = channel();
    ask_without_end(&store, begun);
    begins.recv_timeout(LIMIT).unwrap();
    world.state().fails = -libc::ESHUTDOWN;
    assert!(matches!(written.recv_timeout(LIMIT).unwrap().result, Err(StoreError::ShutOut(_))));
    world.let_all_go();
    store.close(LIMIT).unwrap();
}

#[test]
fn an_error_costs_the_request_alone() {
    let world = World::new("error", LEN);
    let store = World::open("error").unwrap();
    world.state().fails = -libc::EIO;
    let outcome = write(&store, 0, 512, 1);
    assert!(matches!(outcome.result, Err(StoreError::Io(_))));
    assert_eq!(outcome.buffer.unwrap().len(), 512);
    world.state().fails = -libc::EDQUOT;
    assert!(matches!(write(&store, 0, 512, 1).result, Err(StoreError::NoSpace)));
    world.state().fails = 0;
    assert!(write(&store, 0, 512, 1).result.is_ok());
    all_is_closed(store, &world);
}

#[test]
fn an_image_that_grows_serves_its_length_when_it_is_told_to() {
    let world = World::new("grows", LEN);
    let store = World::open("grows").unwrap();
    let (tx, rx) = channel();
    let tx = Mutex::new(tx);
    assert!(store.on_resize(move |len| tx.lock().unwrap().send(len).unwrap()));
    world.resize(2 * LEN + 100);
    let len = rx.recv().unwrap();
    assert_eq!((len, store.current_len()), (2 * LEN as u64, 2 * LEN as u64));
    assert!(matches!(write(&store, LEN as u64, 512, 1).result, Err(StoreError::OutOfRange { .. })));
    store.serve_len(len);
    assert!(write(&store, LEN as u64, 512, 1).result.is_ok());
    world.resize(512);
    assert_eq!(rx.recv().unwrap(), 512);
    let read = execute(&store, Op::Read { offset: 0, into: buffer(4096, 9) });
    assert!(matches!(read.result, Err(StoreError::OutOfRange { store_len: 512, .. })), "{read:?}");
    all_is_closed(store, &world);
}

#[test]
fn the_allocation_is_that_of_objects() {
    let world = World::new("allocation", LEN);
    let store = World::open("allocation").unwrap();
    write(&store, 3 * OBJECT_LEN as u64, 512, 1).result.unwrap();
    let found = Arc::new(AllocationMap::default());
    let (offset, len) = (512, 5 * OBJECT_LEN as u64);
    execute(&store, Op::Allocation { offset, len, found: Arc::clone(&found) }).result.unwrap();
    let run = |len, allocated| Run { len, allocated };
    let object = OBJECT_LEN as u64;
    assert_eq!(found.take(), [run(3 * object - 512, false), run(object, true), run(object + 512, false)]);
    all_is_closed(store, &world);
}

#[test]
fn zeroes_in_pieces_end_with_the_last_piece() {
    let len = 2 * MAX_ZERO_BYTES as usize + 4096;
    let world = World::new("pieces", len);
    for at in [0, MAX_ZERO_BYTES as usize, len - 1] {
        world.state().bytes[at] = 1;
    }
    world.state().holds = true;
    let store = World::open("pieces").unwrap();
    let ended = submit(&store, Op::Unmap { offset: 0, len: len as u64 });
    for _ in 0..3 {
        assert!(ended.try_recv().is_err());
        assert_eq!(world.held(), 1);
        world.let_one_go();
    }
    assert!(ended.recv().unwrap().result.is_ok());
    assert!(world.state().bytes.iter().all(|byte| *byte == 0));
    all_is_closed(store, &world);
}

/// A request of the property test: an operation, its range in sectors, and a byte.
type Drawn = (u8, u64, u64, u8);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Random requests, ended within the call or on other threads, leave what they leave in a store in memory.
    #[test]
    fn an_image_is_as_a_store_in_memory(
        drawn in proptest::collection::vec((0..6_u8, 0..140_u64, 0..140_u64, any::<u8>()), 1..60),
        threads in any::<bool>(),
        name in "[a-z]{20}",
    ) {
        let world = World::new(&name, LEN);
        world.state().threads = threads;
        let (image, memory) = (World::open(&name).unwrap(), MemoryStore::new(LEN as u64).unwrap());
        for request in drawn {
            let (ours, model) = (step(&image, request), step(&memory, request));
            prop_assert_eq!(ours, model, "{:?}", request);
        }
        all_is_closed(image, &world);
    }
}

/// The result of a request: whether it has succeeded, and the bytes read.
fn step(store: &dyn Store, (what, first, sectors, fill): Drawn) -> (bool, Option<Vec<u8>>) {
    let (offset, len) = (first * 512, sectors * 512);
    let op = match what {
        0 | 1 => Op::Write { offset, from: buffer(len as usize, fill), fua: fill % 2 == 0 },
        2 => Op::WriteZeroes { offset, len, may_unmap: fill % 2 == 0, fua: fill % 3 == 0 },
        3 => Op::Unmap { offset, len },
        4 => Op::Flush,
        _ => Op::Read { offset, into: buffer(len as usize, fill) },
    };
    let reads = matches!(op, Op::Read { .. });
    let outcome = execute(store, op);
    let ok = outcome.result.is_ok();
    (ok, outcome.buffer.filter(|_| ok && reads).map(|bytes| bytes.to_vec()))
}

#[test]
fn gateways_have_no_image_without_the_feature_of_a_lock() {
    let world = World::new("lacks lock", LEN);
    let look = || GatewayStore::of(World::open("lacks lock").unwrap(), false);
    assert!(look().is_ok());
    world.state().lacks_lock = true;
    let refused = look().err().unwrap().to_string();
    assert!(refused.ends_with("rbd feature enable pool/image exclusive-lock"), "{refused}");
}
