//! Short requests of one turn, which are sealed and opened together.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use lunette_buffer::Pool;
use lunette_quanta::{QuantumSize, SLOT_LEN};
use lunette_reactor::Turn;
use lunette_store::{Completion, InlineIo, MemoryStore, Op, Outcome, Store};
use lunette_volume::Volume;

use crate::common::{Kind, fresh, refused_at};

const SIZE: QuantumSize = QuantumSize::B512;
const Q: usize = SIZE.bytes();

/// Submits a request, whose end comes later.
fn begin(volume: &Volume, op: Op) -> Receiver<Outcome> {
    let (tx, rx) = channel();
    volume.submit(op, &InlineIo, Completion::call(move |outcome| drop(tx.send(outcome))));
    rx
}

fn write(volume: &Volume, position: u64, quanta: usize) -> Receiver<Outcome> {
    let mut from = Pool::new(usize::MAX).take(quanta * Q).unwrap();
    for (at, bytes) in from.chunks_mut(Q).enumerate() {
        bytes.fill(content(position + at as u64));
    }
    begin(volume, Op::Write { offset: position * Q as u64, from, fua: false })
}

fn read(volume: &Volume, position: u64, quanta: usize) -> Receiver<Outcome> {
    let into = Pool::new(usize::MAX).take(quanta * Q).unwrap();
    begin(volume, Op::Read { offset: position * Q as u64, into })
}

fn content(position: u64) -> u8 {
    position as u8 + 1
}

/// Whether the bytes of a read are those that were written.
fn is_right(position: u64, outcome: Outcome) -> bool {
    outcome.result.unwrap();
    let bytes = outcome.buffer.unwrap();
    let mut quanta = bytes.chunks(Q).zip(position..);
    quanta.all(|(bytes, position)| bytes.iter().all(|byte| *byte == content(position)))
}

fn slot_at(memory: &MemoryStore, position: u64) -> [u8; SLOT_LEN] {
    let mut slot = [0; SLOT_LEN];
    let block = SIZE.edu_len() as u64;
    memory.read((2 + position) * block + Q as u64, &mut slot).unwrap();
    slot
}

/// Requests of 1, 2, 3, ... quanta, from quantum 0 on: their positions and lengths.
fn runs() -> Vec<(u64, usize)> {
    let lengths = [1, 1, 1, 2, 3, 1, 7, 7, 8, 1, 9, 1, 1, 1];
    let end_of = |at: usize| lengths[..at].iter().sum::<usize>() as u64;
    lengths.iter().enumerate().map(|(at, len)| (end_of(at), *len)).collect()
}

#[test]
fn requests_of_one_turn_are_what_they_would_be_alone() {
    let (memory, _unit, volume) = fresh(Kind::Native(SIZE), 64);
    let turn = Turn::begin();
    let written: Vec<_> = runs().into_iter().map(|(position, len)| write(&volume, position, len)).collect();
    assert!(written[0].try_recv().is_ok(), "eight quanta were there");
    assert!(written[13].try_recv().is_err(), "the last ones wait for others");
    Turn::part_ends();
    assert!(written.into_iter().skip(1).all(|end| end.try_recv().unwrap().result.is_ok()));
    let count: u64 = runs().iter().map(|(_, len)| *len as u64).sum();
    let nonces: HashSet<_> = (0..count).map(|position| slot_at(&memory, position)[..32].to_vec()).collect();
    assert_eq!(nonces.len() as u64, count, "no nonce twice");
    assert_eq!(volume.counts().sealed, count);

    let reads: Vec<_> = runs().into_iter().map(|(position, len)| (position, read(&volume, position, len))).collect();
    assert!(reads[13].1.try_recv().is_err());
    drop(turn);
    assert!(reads.into_iter().all(|(position, end)| is_right(position, end.try_recv().unwrap())));
    assert_eq!(volume.counts().opened, count);
    assert!(is_right(3, read(&volume, 3, 2).try_recv().unwrap()), "outside of a turn nothing waits");
}

#[test]
fn a_quantum_that_cannot_be_opened_fails_its_own_request_alone() {
    let (memory, _unit, volume) = fresh(Kind::Native(SIZE), 64);
    for position in 0..8 {
        write(&volume, position, 1).recv().unwrap().result.unwrap();
    }
    let block = SIZE.edu_len() as u64;
    memory.write((2 + 5) * block + 100, &[0xee]).unwrap();
    let turn = Turn::begin();
    let reads: Vec<_> = (0..8).map(|position| (position, read(&volume, position, 1))).collect();
    drop(turn);
    for (position, end) in reads {
        let outcome = end.recv().unwrap();
        if position == 5 {
            assert_eq!(refused_at(&outcome.result.unwrap_err()), Some(5 * Q as u64));
            assert!(outcome.buffer.unwrap().iter().all(|byte| *byte == 0));
        } else {
            assert!(is_right(position, outcome));
        }
    }
    assert_eq!((volume.counts().opened, volume.counts().refused_damaged), (7, 1));
}

#[test]
fn threads_with_turns_of_their_own_share_a_batch_and_lose_nothing() {
    let (_, _unit, volume) = fresh(Kind::Native(SIZE), 64);
    let volume = Arc::new(volume);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let volume = Arc::clone(&volume);
            scope.spawn(move || {
                for round in 0..100 {
                    let (position, len) = (thread * 16 + round % 8, 1 + (round % 4) as usize);
                    let turn = Turn::begin();
                    let written = write(&volume, position, len);
                    Turn::part_ends();
                    written.recv().unwrap().result.unwrap();
                    let read = read(&volume, position, len);
                    drop(turn);
                    assert!(is_right(position, read.recv().unwrap()));
                }
            });
        }
    });
}
