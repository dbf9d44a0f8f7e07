//! Requests that must wait for each other, over a unit that makes one of its requests late.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use lunette_buffer::Pool;
use lunette_quanta::packed::Layout;
use lunette_quanta::{Holes, QuantumSize};
use lunette_store::{Capabilities, Completion, FileIo, Geometry, InlineIo, MemoryStore, Op, OpKind, Outcome, Store};
use lunette_volume::{Volume, rekey};

use crate::common::{Kind, keys, make, memory, open, read, wait_for_the_thread_of_the_volume, write};

/// A unit that makes one request when it is told to, and not before.
struct Late {
    inner: Arc<MemoryStore>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The next request of this kind that touches this range is held.
    wanted: Option<(OpKind, Range<u64>)>,
    held: VecDeque<(Op, Completion)>,
}

impl Late {
    fn new(kind: Kind) -> (Arc<Self>, Arc<dyn Store>, Volume) {
        let inner = memory(kind.unit_bytes(400));
        let late = Arc::new(Self { inner, state: Mutex::default(), changed: Condvar::new() });
        let unit = kind.blocks(Arc::<Self>::clone(&late));
        make(&unit, kind, Holes::Allowed);
        let volume = open(&unit);
        (late, unit, volume)
    }

    fn hold_next(&self, kind: OpKind, range: Range<u64>) {
        self.state.lock().unwrap().wanted = Some((kind, range));
    }

    fn wait_until_held(&self, count: usize) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |state| state.held.len() < count).unwrap());
    }

    /// Makes the request that was held first.
    fn release(&self) {
        let (op, done) = self.state.lock().unwrap().held.pop_front().unwrap();
        self.inner.submit(op, &InlineIo, done);
    }
}

impl Store for Late {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let mut state = self.state.lock().unwrap();
        let (offset, len) = op.range();
        let matches = |(kind, range): &mut (OpKind, Range<u64>)| {
            *kind == op.kind() && offset < range.end && range.start < offset + len
        };
        if state.wanted.take_if(matches).is_some() {
            state.held.push_back((op, done));
            self.changed.notify_all();
            return;
        }
        drop(state);
        self.inner.submit(op, io, done);
    }
}

fn submit(volume: &Volume, op: Op) -> Receiver<Outcome> {
    let (tx, rx) = channel();
    volume.submit(op, &InlineIo, Completion::call(move |outcome| drop(tx.send(outcome))));
    rx
}

fn read_later(volume: &Volume) -> Receiver<Outcome> {
    submit(volume, Op::Read { offset: 0, into: Pool::new(4096).take(512).unwrap() })
}

/// Lets other threads come as far as they can, or as far as a right program does not. How far they come never changes
/// what a right one does.
fn let_others_run(too_far: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if too_far() {
            break;
        }
        thread::yield_now();
    }
}

const PACKED: Kind = Kind::Packed(QuantumSize::B512, 512);

fn layout(unit: &Arc<dyn Store>, volume: &Volume) -> Layout {
    Layout::of(&volume.header(), unit.geometry().len_bytes).unwrap()
}

#[test]
fn a_checkpoint_does_not_overwrite_places_that_are_being_read() {
    let (late, unit, volume) = Late::new(PACKED);
    write(&volume, 0, &[1; 512], false).unwrap();
    volume.close().unwrap();
    let layout = layout(&unit, &volume);
    // The ciphertext is read at once, and its slot later.
    late.hold_next(OpKind::Read, layout.slot(0)..layout.slot(1));
    let ended = read_later(&volume);
    late.wait_until_held(1);
    write(&volume, 0, &[2; 512], false).unwrap();
    assert_eq!(read(&volume, 0, 512).unwrap(), [2; 512]);
    thread::scope(|scope| {
        let closing = scope.spawn(|| volume.close().unwrap());
        let_others_run(|| closing.is_finished());
        late.release();
        closing.join().unwrap();
    });
    let outcome = ended.recv().unwrap();
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!(outcome.buffer.unwrap()[..], [1; 512]);
    assert_eq!(read(&volume, 0, 512).unwrap(), [2; 512]);
}

#[test]
fn records_that_are_being_read_are_not_used_again() {
    let (late, unit, volume) = Late::new(PACKED);
    write(&volume, 0, &[1; 512], false).unwrap();
    let layout = layout(&unit, &volume);
    thread::scope(|scope| {
        // The reader comes when the checkpoint has begun, and finds the quantum in the journal.
        late.hold_next(OpKind::Write, layout.data(0)..layout.data(1));
        let closing = scope.spawn(|| volume.close().unwrap());
        late.wait_until_held(1);
        late.hold_next(OpKind::Read, layout.journal_offset()..layout.slot(0));
        let ended = read_later(&volume);
        late.wait_until_held(2);
        late.release();
        // More than the journal holds.
        let write_all = || (1..200).for_each(|at| write(&volume, at * 512, &[9; 512], false).unwrap());
        let writing = scope.spawn(write_all);
        let_others_run(|| writing.is_finished());
        late.release();
        closing.join().unwrap();
        writing.join().unwrap();
        let outcome = ended.recv().unwrap();
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        assert_eq!(outcome.buffer.unwrap()[..], [1; 512]);
    });
}

#[test]
fn a_write_that_comes_while_a_quantum_is_rewritten_is_not_lost() {
    for kind in [Kind::Native(QuantumSize::B512), PACKED] {
        let (late, _, volume) = Late::new(kind);
        write(&volume, 0, &[1; 4 * 512], false).unwrap();
        volume.close().unwrap();
        volume.set_keys(keys(&[1, 2])).unwrap();
        thread::scope(|scope| {
            // What was read is about to be written again.
            late.hold_next(OpKind::Write, 0..u64::MAX / 2);
            let rewriting = scope.spawn(|| rekey(&volume, 0, &mut |_| ControlFlow::Continue(())).unwrap());
            late.wait_until_held(1);
            let mut from = Pool::new(4096).take(512).unwrap();
            from.fill(2);
            let written = submit(&volume, Op::Write { offset: 512, from, fua: false });
            late.release();
            assert!(written.recv().unwrap().result.is_ok());
            assert_eq!(rewriting.join().unwrap().refused, 0);
        });
        assert_eq!(read(&volume, 512, 512).unwrap(), [2; 512], "{kind:?}");
    }
}

#[test]
fn a_volume_is_dropped_while_a_checkpoint_waits_for_what_the_same_thread_ends() {
    let (late, unit, volume) = Late::new(PACKED);
    let layout = layout(&unit, &volume);
    late.hold_next(OpKind::Write, layout.data(0)..layout.data(1));
    // More than half of the journal, so a checkpoint begins on the volume's thread.
    (0..36).for_each(|at| write(&volume, at * 512, &[5; 512], false).unwrap());
    late.wait_until_held(1);
    drop(volume);
    late.release();
    wait_for_the_thread_of_the_volume(&unit);
    assert_eq!(read(&open(&unit), 0, 36 * 512).unwrap(), vec![5; 36 * 512]);
}
