//! A remote disk as a store.

use std::sync::Arc;

use lunette_buffer::Pool;
use lunette_initiator::RemoteStore;
use lunette_store::filters::{Fault, Rule};
use lunette_store::{AllocationMap, Op, OpKind, Run, Store, StoreError, execute};

use crate::fixture::{STORE_LEN, Target, disk, memory, options};

fn filled(pool: &Pool, len: usize, with: u8) -> lunette_buffer::Buffer {
    let mut buffer = pool.take(len).unwrap();
    buffer.fill(with);
    buffer
}

#[test]
fn every_operation_reaches_the_store_behind() {
    let target = Target::new();
    let store = RemoteStore::new(disk(target.address, options()));
    let pool = Pool::new(64 << 20);
    assert_eq!(store.geometry().len_bytes, STORE_LEN);
    assert!(store.capabilities().unmap && store.capabilities().unmap_zeroes);

    let done = execute(&store, Op::Write { offset: 4096, from: filled(&pool, 8192, 7), fua: true });
    done.result.unwrap();
    assert!(done.buffer.is_some(), "the buffer comes back");
    let done = execute(&store, Op::Read { offset: 0, into: filled(&pool, 16_384, 1) });
    done.result.unwrap();
    let data = done.buffer.unwrap();
    assert!(data[..4096].iter().all(|byte| *byte == 0) && data[4096..12_288].iter().all(|byte| *byte == 7));

    let mib = 1 << 20;
    execute(&store, Op::Write { offset: 0, from: filled(&pool, 4 * mib, 3), fua: false }).result.unwrap();
    execute(&store, Op::Unmap { offset: mib as u64, len: mib as u64 }).result.unwrap();
    execute(&store, Op::WriteZeroes { offset: 0, len: 4096, may_unmap: false, fua: true }).result.unwrap();
    let found = Arc::new(AllocationMap::default());
    let ask = Op::Allocation { offset: 0, len: 8 * mib as u64, found: Arc::clone(&found) };
    execute(&store, ask).result.unwrap();
    let run = |mib_count: u64, allocated| Run { len: mib_count << 20, allocated };
    assert_eq!(found.take(), [run(1, true), run(1, false), run(2, true), run(4, false)]);
    execute(&store, Op::Flush).result.unwrap();
}

#[test]
fn requests_longer_than_a_command_are_split() {
    let target = Target::new();
    let store = RemoteStore::new(disk(target.address, options()));
    let pool = Pool::new(128 << 20);
    let len = 16 << 20;
    execute(&store, Op::Write { offset: 0, from: filled(&pool, len, 5), fua: false }).result.unwrap();
    let done = execute(&store, Op::Read { offset: 0, into: filled(&pool, len, 0) });
    done.result.unwrap();
    assert!(done.buffer.unwrap().iter().all(|byte| *byte == 5));
}

#[test]
fn what_is_no_block_or_not_there_is_refused() {
    let target = Target::new();
    let store = RemoteStore::new(disk(target.address, options()));
    let pool = Pool::new(1 << 20);
    let beyond = execute(&store, Op::Read { offset: STORE_LEN, into: filled(&pool, 512, 0) });
    assert!(matches!(beyond.result, Err(StoreError::OutOfRange { .. })));
    assert!(beyond.buffer.is_some());
    let askew = execute(&store, Op::Read { offset: 100, into: filled(&pool, 512, 0) });
    assert!(matches!(askew.result, Err(StoreError::Io(_))), "{askew:?}");
}

#[test]
fn a_full_medium_and_a_failed_flush_are_told_apart() {
    let faulty = Arc::new(Fault::new(memory()));
    let target = Target::over(Arc::clone(&faulty) as _);
    let store = RemoteStore::new(disk(target.address, options()));
    let pool = Pool::new(1 << 20);
    faulty.add(Rule { kind: Some(OpKind::Write), times: 1, ..Rule::always(|| StoreError::NoSpace) });
    let full = execute(&store, Op::Write { offset: 0, from: filled(&pool, 512, 1), fua: false });
    assert!(matches!(full.result, Err(StoreError::NoSpace)), "{full:?}");
    faulty.add(Rule {
        kind: Some(OpKind::Flush),
        times: 1,
        ..Rule::always(|| StoreError::Io(std::io::ErrorKind::Other.into()))
    });
    assert!(matches!(execute(&store, Op::Flush).result, Err(StoreError::FlushFailed(_))));
    assert!(matches!(execute(&store, Op::Flush).result, Err(StoreError::FlushFailed(_))), "no flush after it succeeds");
}
