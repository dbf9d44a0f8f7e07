//! Stores compared with a vector of bytes, over random requests.

mod common;

use common::{Oracle, Request, contents, requests};
use lunette_store::filters::PowerLoss;
use lunette_store::{FileStore, MemoryStore, OpKind, OpenOptions, Store};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const MEMORY_LEN: u64 = 400_000;
const FILE_LEN: u64 = 512 << 8;

/// A configuration with this number of cases; failed cases are saved beside the test.
fn config(cases: u32) -> ProptestConfig {
    let failure_persistence = Some(Box::new(FileFailurePersistence::WithSource("regressions")) as _);
    ProptestConfig { failure_persistence, ..ProptestConfig::with_cases(cases) }
}

fn run(store: &dyn Store, requests: &[Request]) -> Oracle {
    let mut oracle = Oracle::new(store.geometry().len_bytes);
    for request in requests {
        oracle.step(store, request);
    }
    oracle.compare(store);
    oracle
}

proptest! {
    #![proptest_config(config(128))]

    #[test]
    fn memory(requests in requests(MEMORY_LEN, 1)) {
        run(&MemoryStore::new(MEMORY_LEN).unwrap(), &requests);
    }

    #[test]
    fn power_loss_without_a_cut(requests in requests(MEMORY_LEN, 1)) {
        run(&PowerLoss::new(MEMORY_LEN).unwrap(), &requests);
    }

    #[test]
    fn a_cut_after_a_flush_loses_nothing(mut requests in requests(FILE_LEN, 512), seed in any::<u64>()) {
        let flush = Request { kind: OpKind::Flush, ..requests[0].clone() };
        requests.push(flush);
        let store = PowerLoss::new(FILE_LEN).unwrap();
        run(&store, &requests).compare(&store.cut(seed));
    }

    /// Every byte after a power cut is the flushed one, or one that was written later.
    #[test]
    fn a_cut_leaves_only_bytes_that_were_written(
        before in requests(FILE_LEN, 512),
        after in requests(FILE_LEN, 512),
        seed in any::<u64>(),
    ) {
        let store = PowerLoss::new(FILE_LEN).unwrap();
        let mut oracle = run(&store, &before);
        let last_flush = before.iter().rposition(|request| request.kind == OpKind::Flush).map_or(0, |at| at + 1);
        let mut possible: Vec<Vec<u8>> = {
            let mut flushed = Oracle::new(FILE_LEN);
            let replay = PowerLoss::new(FILE_LEN).unwrap();
            before[..last_flush].iter().for_each(|request| flushed.step(&replay, request));
            flushed.bytes.iter().map(|byte| vec![*byte]).collect()
        };
        let unflushed = before[last_flush..].iter().chain(after.iter().filter(|request| request.kind != OpKind::Flush));
        for request in unflushed {
            let Some(end) = request.offset.checked_add(request.len).filter(|end| *end <= FILE_LEN) else { continue };
            let byte = match request.kind {
                OpKind::Write => request.fill,
                OpKind::WriteZeroes | OpKind::Unmap => 0,
                OpKind::Read | OpKind::Allocation | OpKind::Copy | OpKind::Flush => continue,
            };
            let stable = request.fua && request.kind != OpKind::Unmap;
            for possible in &mut possible[request.offset as usize..end as usize] {
                if stable {
                    possible.clear();
                }
                possible.push(byte);
            }
        }
        for request in after.iter().filter(|request| request.kind != OpKind::Flush) {
            oracle.step(&store, request);
        }
        let found = contents(&store.cut(seed));
        prop_assert!(found.iter().zip(&possible).all(|(byte, possible)| possible.contains(byte)));
    }
}

proptest! {
    #![proptest_config(config(48))]

    #[test]
    fn file(requests in requests(FILE_LEN, 512)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let store = FileStore::open(&path, &OpenOptions { create: Some(FILE_LEN), ..OpenOptions::default() }).unwrap();
        let oracle = run(&store, &requests);
        drop(store);
        prop_assert!(std::fs::read(&path).unwrap() == oracle.bytes);
    }
}
