//! Reads of quanta whose key comes later.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use lunette_buffer::Pool;
use lunette_quanta::{Holes, QuantumSize};
use lunette_store::{Completion, InlineIo, Op, Outcome, Store, StoreError};
use lunette_volume::limits::MAX_WAITING_FOR_KEYS;
use lunette_volume::{OpenOptions, Volume, find};

use crate::common::{Kind, keys, make, memory, open_with, refused_at, write};

const KINDS: [Kind; 2] = [Kind::Native(QuantumSize::B512), Kind::Packed(QuantumSize::B512, 512)];
const Q: u64 = 512;

fn begin(volume: &Volume, position: u64) -> Receiver<Outcome> {
    let (tx, rx) = channel();
    let into = Pool::new(usize::MAX).take(Q as usize).unwrap();
    let done = Completion::call(move |outcome| drop(tx.send(outcome)));
    volume.submit(Op::Read { offset: position * Q, into }, &InlineIo, done);
    rx
}

/// A volume that is open with the first key, and quantum 3 of which another client has written with the second; quantum
/// 4 has the first key.
fn volume_behind(kind: Kind, await_keys: bool) -> (Arc<dyn Store>, Volume) {
    let unit = kind.blocks(memory(kind.unit_bytes(16)));
    make(&unit, kind, Holes::Allowed);
    let first = open_with(&unit, keys(&[1]));
    write(&first, 4 * Q, &[4; Q as usize], false).unwrap();
    first.close().unwrap();
    let found = find(&unit).unwrap();
    let other = open_with(&unit, keys(&[1, 2]));
    write(&other, 3 * Q, &[3; Q as usize], false).unwrap();
    other.close().unwrap();
    // As the header was found before: this client has looked at it earlier.
    let options = OpenOptions { await_keys, read_only: true, ..OpenOptions::default() };
    let volume = Volume::open(Arc::clone(&unit), &found, keys(&[1]), options).unwrap();
    (unit, volume)
}

/// The error of a read that was refused for its key.
fn is_refused(outcome: Outcome) -> bool {
    let error: StoreError = outcome.result.unwrap_err();
    refused_at(&error) == Some(3 * Q) && error.to_string().contains("epoch 2")
}

#[test]
fn a_read_waits_for_its_key_and_known_epochs_go_on() {
    for kind in KINDS {
        let (_unit, volume) = volume_behind(kind, true);
        let waits = begin(&volume, 3);
        assert_eq!(begin(&volume, 4).recv().unwrap().buffer.unwrap()[..], [4; Q as usize]);
        assert_eq!(waits.try_recv().unwrap_err(), TryRecvError::Empty, "{kind:?}");
        assert_eq!(volume.waiting_for_keys().unwrap().0, 1);
        volume.set_keys(keys(&[1, 2])).unwrap();
        assert_eq!(waits.recv().unwrap().buffer.unwrap()[..], [3; Q as usize]);
        assert!(volume.waiting_for_keys().is_none());
        assert_eq!(volume.counts().refused_unknown_epoch, 0);
    }
}

#[test]
fn a_read_whose_key_does_not_come_in_time_is_refused() {
    for kind in KINDS {
        let (_unit, volume) = volume_behind(kind, true);
        let waits = begin(&volume, 3);
        let (_, since) = volume.waiting_for_keys().unwrap();
        assert_eq!(volume.refuse_waiting(since.checked_sub(Duration::from_nanos(1)).unwrap()), 0, "not yet");
        assert_eq!(volume.refuse_waiting(since), 1);
        assert!(is_refused(waits.recv().unwrap()), "{kind:?}");
        assert_eq!(volume.counts().refused_unknown_epoch, 1);
    }
}

#[test]
fn where_no_one_fetches_keys_a_read_is_refused_at_once() {
    for kind in KINDS {
        let (_unit, volume) = volume_behind(kind, false);
        assert!(is_refused(begin(&volume, 3).recv().unwrap()), "{kind:?}");
    }
}

#[test]
fn so_many_reads_wait_and_the_next_is_refused() {
    let (_unit, volume) = volume_behind(KINDS[0], true);
    let waiting: Vec<_> = (0..MAX_WAITING_FOR_KEYS).map(|_| begin(&volume, 3)).collect();
    assert!(is_refused(begin(&volume, 3).recv().unwrap()));
    assert_eq!(volume.refuse_waiting(Instant::now()), MAX_WAITING_FOR_KEYS);
    assert!(waiting.into_iter().all(|end| is_refused(end.recv().unwrap())));
}

#[test]
fn reads_that_wait_end_with_their_volume() {
    let (_unit, volume) = volume_behind(KINDS[0], true);
    let waits = begin(&volume, 3);
    drop(volume);
    assert!(is_refused(waits.recv().unwrap()));
}
