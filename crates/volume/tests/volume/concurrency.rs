//! Many requests at once, on threads, over units that answer later and in any order.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lunette_buffer::Pool;
use lunette_quanta::{Holes, QuantumSize};
use lunette_store::filters::{Delay, Trace};
use lunette_store::{Capabilities, Completion, FileIo, Geometry, InlineIo, Op, OpKind, Outcome, Store};
use lunette_volume::{FormatOptions, Volume, format, limits, rekey, verify};

use crate::common::{Kind, VOLUME, fresh, keys, make, memory, open, open_with, read, refused_at, write};

/// A unit that ends its requests on another thread.
fn slow(kind: Kind, quanta: u64) -> Arc<dyn Store> {
    let delay = Delay::with_time(memory(kind.unit_bytes(quanta)), Duration::from_micros(20)).unwrap();
    kind.blocks(Arc::new(delay))
}

const THREADS: u64 = 4;
const OWN: u64 = 8;
const SHARED: u64 = THREADS * OWN;

/// Each thread writes quanta of its own, which it reads back, and quanta of all, which must be of one writer.
fn load(volume: &Volume, kind: Kind, rounds: u8) {
    let len = kind.size().bytes();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 1..=rounds {
                    let at = thread * OWN + u64::from(round) % OWN;
                    let quanta = 1 + usize::from(round) % (OWN - u64::from(round) % OWN) as usize;
                    let content = vec![round; quanta * len];
                    write(volume, at * len as u64, &content, false).unwrap();
                    assert!(read(volume, at * len as u64, content.len()).unwrap() == content, "an acknowledged write");
                    let mark = vec![0x80 | thread as u8; 2 * len];
                    write(volume, SHARED * len as u64, &mark, false).unwrap();
                    let shared = read(volume, SHARED * len as u64, 2 * len).unwrap();
                    for quantum in shared.chunks(len) {
                        assert!(quantum.iter().all(|byte| *byte == quantum[0]), "one writer's");
                    }
                }
            });
        }
    });
}

#[test]
fn threads_write_and_read_while_checkpoints_are_made() {
    for kind in
        [Kind::Native(QuantumSize::B512), Kind::Packed(QuantumSize::B512, 512), Kind::Packed(QuantumSize::B4096, 4096)]
    {
        let unit = slow(kind, SHARED + 8);
        make(&unit, kind, Holes::Allowed);
        let volume = open(&unit);
        load(&volume, kind, 100);
        if matches!(kind, Kind::Packed(..)) {
            assert!(volume.counts().checkpoints > 0, "{:?}", volume.counts());
        }
        volume.close().unwrap();
        drop(volume);
        let found = lunette_volume::find(&unit).unwrap();
        assert!(verify(&unit, &found, Some(&keys(&[1])), None, &mut |_| {}).unwrap().is_whole());
    }
}

#[test]
fn threads_write_while_keys_are_changed_and_quanta_rewritten() {
    for kind in [Kind::Native(QuantumSize::B512), Kind::Packed(QuantumSize::B512, 512)] {
        let unit = slow(kind, SHARED + 8);
        make(&unit, kind, Holes::Allowed);
        let volume = open(&unit);
        load(&volume, kind, 20);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                load(&volume, kind, 60);
                done.store(true, Ordering::Release);
            });
            volume.set_keys(keys(&[1, 2])).unwrap();
            let mut passes = 0;
            while passes == 0 || !done.load(Ordering::Acquire) {
                let rekeyed = rekey(&volume, 0, &mut |_| ControlFlow::Continue(())).unwrap();
                assert_eq!((rekeyed.refused, rekeyed.next, rekeyed.first_epoch), (0, None, 2));
                passes += 1;
            }
            worker.join().unwrap();
        });
        assert_eq!(volume.header().first_epoch, 2);
        drop(volume);
        // Nothing needs the first key any more.
        let report =
            verify(&unit, &lunette_volume::find(&unit).unwrap(), Some(&keys(&[2])), None, &mut |_| {}).unwrap();
        assert!(report.is_whole() && report.older_epochs == 0, "{report:?}");
        assert!(read(&open_with(&unit, keys(&[2])), 0, 512).is_ok());
    }
}

/// Submits requests and returns what tells of their ends.
fn submit_all(volume: &Volume, ops: impl Iterator<Item = Op>) -> std::sync::mpsc::Receiver<Outcome> {
    let (tx, rx) = channel();
    for op in ops {
        let tx = tx.clone();
        volume.submit(op, &InlineIo, Completion::call(move |outcome| drop(tx.send(outcome))));
    }
    rx
}

#[test]
fn requests_beyond_the_buffers_wait_and_all_are_served() {
    const LEN: usize = 512 << 10;
    const REQUESTS: usize = 100;
    for kind in [Kind::Native(QuantumSize::B4096), Kind::Packed(QuantumSize::B4096, 512)] {
        let delay = Arc::new(Delay::new(memory(kind.unit_bytes(256))));
        let unit = kind.blocks(Arc::<Delay>::clone(&delay));
        make(&unit, kind, Holes::Allowed);
        let volume = open(&unit);
        write(&volume, 0, &vec![5; LEN], false).unwrap();
        volume.close().unwrap();
        let pool = Pool::new(usize::MAX);
        for writes in [false, true] {
            delay.hold();
            let op = |_| {
                let mut buffer = pool.take(LEN).unwrap();
                buffer.fill(5);
                if writes {
                    Op::Write { offset: 0, from: buffer, fua: false }
                } else {
                    Op::Read { offset: 0, into: buffer }
                }
            };
            let ended = submit_all(&volume, (0..REQUESTS).map(op));
            // A piece holds its ciphertext and more, in a buffer of up to twice that or in two.
            assert!(delay.held() <= 2 * limits::POOL_BYTES / limits::MAX_PIECE_BYTES, "{}", delay.held());
            delay.release();
            for _ in 0..REQUESTS {
                let outcome = ended.recv().unwrap();
                assert!(outcome.result.is_ok() && outcome.buffer.unwrap().iter().all(|byte| *byte == 5));
            }
        }
    }
}

/// A unit that holds back all reads from a moment on.
struct HeldReads {
    inner: Arc<dyn Store>,
    held: Mutex<Option<Vec<(Op, Completion)>>>,
}

impl Store for HeldReads {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        if let (OpKind::Read, Some(held)) = (op.kind(), &mut *self.held.lock().unwrap()) {
            return held.push((op, done));
        }
        self.inner.submit(op, io, done);
    }
}

#[test]
fn reads_that_have_all_buffers_do_not_keep_records_from_being_written() {
    const LEN: usize = 256 << 10;
    let kind = Kind::Packed(QuantumSize::B4096, 512);
    let reads = Arc::new(HeldReads { inner: memory(kind.unit_bytes(256)), held: Mutex::new(None) });
    let unit = kind.blocks(Arc::<HeldReads>::clone(&reads));
    make(&unit, kind, Holes::Allowed);
    let volume = open(&unit);
    *reads.held.lock().unwrap() = Some(Vec::new());
    let pool = Pool::new(usize::MAX);
    let count = 2 * limits::POOL_BYTES / LEN;
    let read_op = |_| Op::Read { offset: 0, into: pool.take(LEN).unwrap() };
    let ended = submit_all(&volume, (0..count).map(read_op));
    write(&volume, 0, &[5; 4096], false).unwrap();
    let held = reads.held.lock().unwrap().take().unwrap();
    assert!(held.len() < 2 * count, "some reads wait for buffers");
    for (op, done) in held {
        reads.submit(op, &InlineIo, done);
    }
    assert!((0..count).all(|_| ended.recv().unwrap().result.is_ok()));
}

#[test]
fn small_writes_that_come_together_share_records() {
    let kind = Kind::Packed(QuantumSize::B4096, 512);
    let delay = Arc::new(Delay::new(memory(kind.unit_bytes(64))));
    let unit = kind.blocks(Arc::<Delay>::clone(&delay));
    make(&unit, kind, Holes::Allowed);
    let volume = open(&unit);
    delay.hold();
    let pool = Pool::new(usize::MAX);
    let op = |at: u64| {
        let mut from = pool.take(4096).unwrap();
        from.fill(at as u8);
        Op::Write { offset: at * 2 * 4096, from, fua: false }
    };
    let ended = submit_all(&volume, (0..12).map(op));
    assert_eq!(volume.counts().records, limits::MAX_RECORDS_UNDER_WAY as u64);
    delay.release();
    (0..12).for_each(|_| assert!(ended.recv().unwrap().result.is_ok()));
    let records = volume.counts().records;
    assert!(records < 12, "{records} records for 12 writes");
    for at in 0..12 {
        assert_eq!(read(&volume, at * 8192, 4096).unwrap(), [at as u8; 4096]);
    }
}

/// Bytes written to a packed volume's unit for each 100 bytes of plain text, with this many single quanta under way,
/// far from each other.
fn bytes_written(depth: usize, block_len: u32) -> u64 {
    const WRITES: u64 = 1024;
    let kind = Kind::Packed(QuantumSize::B4096, block_len);
    let delay = Delay::with_time(memory(64 << 20), Duration::from_micros(20)).unwrap();
    let trace = Arc::new(Trace::new(Arc::new(delay)));
    let unit = kind.blocks(Arc::<Trace>::clone(&trace));
    let options = FormatOptions { journal_bytes: Some(8 << 20), ..kind.options(Holes::Allowed) };
    format(&unit, VOLUME, &keys(&[1]), &options, &mut |_| {}).unwrap();
    let volume = open(&unit);
    drop(trace.take());
    let pool = Pool::new(usize::MAX);
    let write = |at: u64| {
        // Far apart: no two slots share a block of 512 bytes.
        let (offset, from) = (at * 8 % 13_000 * 4096, pool.take(4096).unwrap());
        submit_all(&volume, std::iter::once(Op::Write { offset, from, fua: false }))
    };
    let mut under_way: VecDeque<_> = (0..depth as u64).map(write).collect();
    for at in depth as u64..WRITES {
        assert!(under_way.pop_front().unwrap().recv().unwrap().result.is_ok());
        under_way.push_back(write(at));
    }
    for ended in under_way {
        assert!(ended.recv().unwrap().result.is_ok());
    }
    volume.close().unwrap();
    let written = trace.take().into_iter().filter(|record| record.kind == OpKind::Write);
    written.map(|record| record.len).sum::<u64>() * 100 / (WRITES * 4096)
}

#[test]
fn a_packed_write_costs_little_more_than_two() {
    println!("| block | depth 1 | depth 8 | depth 32 |");
    for (block_len, most) in [(512, 230), (4096, 410)] {
        let costs = [1, 8, 32].map(|depth| bytes_written(depth, block_len));
        println!("| {block_len} | {} % | {} % | {} % |", costs[0], costs[1], costs[2]);
        assert!(costs.iter().all(|cost| (200..most).contains(cost)), "{costs:?}");
    }
}

/// A unit whose reads are torn while a write is held back.
struct Torn {
    inner: Arc<dyn Store>,
    held: Mutex<Option<Vec<Completion>>>,
}

impl Torn {
    fn hold(&self) {
        *self.held.lock().unwrap() = Some(Vec::new());
    }

    fn release(&self) {
        for done in self.held.lock().unwrap().take().unwrap() {
            done.complete(Outcome::new(Ok(()), None));
        }
    }
}

impl Store for Torn {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let is_write = op.kind() == OpKind::Write;
        if !is_write && self.held.lock().unwrap().is_some() {
            let torn = |mut outcome: Outcome| {
                outcome.buffer.as_mut().unwrap()[..100].fill(0x77);
                done.complete(outcome);
            };
            return self.inner.submit(op, io, Completion::call(torn));
        }
        let done = match (&mut *self.held.lock().unwrap(), is_write) {
            (Some(held), true) => {
                held.push(done);
                Completion::call(|_| {})
            }
            _ => done,
        };
        self.inner.submit(op, io, done);
    }
}

#[test]
fn a_read_that_meets_a_torn_quantum_is_made_again_when_the_write_has_ended() {
    let kind = Kind::Native(QuantumSize::B512);
    let torn = Arc::new(Torn { inner: memory(kind.unit_bytes(16)), held: Mutex::new(None) });
    let unit = kind.blocks(Arc::<Torn>::clone(&torn));
    make(&unit, kind, Holes::Allowed);
    let volume = open(&unit);
    write(&volume, 0, &[1; 2048], false).unwrap();
    torn.hold();
    let pool = Pool::new(1 << 20);
    let mut from = pool.take(512).unwrap();
    from.fill(2);
    let written = submit_all(&volume, std::iter::once(Op::Write { offset: 512, from, fua: false }));
    let into = pool.take(2048).unwrap();
    let ended = submit_all(&volume, std::iter::once(Op::Read { offset: 0, into }));
    assert_eq!(volume.counts().read_again, 0);
    assert!(ended.try_recv().is_err(), "it waits for the write");
    torn.release();
    assert!(written.recv().unwrap().result.is_ok());
    let outcome = ended.recv().unwrap();
    assert!(outcome.result.is_ok());
    assert_eq!(outcome.buffer.unwrap()[512..1024], [2; 512]);
    assert_eq!((volume.counts().read_again, volume.counts().refused_damaged), (1, 0));
}

#[test]
fn a_quantum_that_stays_damaged_is_refused_after_two_reads() {
    let (memory, _, volume) = fresh(Kind::Native(QuantumSize::B512), 16);
    write(&volume, 0, &[1; 2048], false).unwrap();
    let mut byte = [0];
    memory.read((2 + 3) * 576 + 9, &mut byte).unwrap();
    memory.write((2 + 3) * 576 + 9, &[!byte[0]]).unwrap();
    let (error, _) = read(&volume, 0, 2048).unwrap_err();
    assert_eq!(refused_at(&error), Some(3 * 512));
    assert_eq!((volume.counts().read_again, volume.counts().refused_damaged), (1, 1));
}
