//! A vector of bytes that models a store, and random requests to compare the two.

#![expect(clippy::unwrap_used, reason = "a test ends with the first surprise")]

use std::sync::Arc;

use lunette_buffer::{Buffer, Loan, Pool};
use lunette_store::{AllocationMap, Op, OpKind, Store, StoreError, execute};
use proptest::prelude::*;

/// A random request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) kind: OpKind,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The byte that a write fills its buffer with.
    pub(crate) fill: u8,
    pub(crate) fua: bool,
    pub(crate) may_unmap: bool,
}

/// The longest buffer of a request, in bytes. Requests without a buffer may be longer.
const MAX_BUFFER: u64 = 200_000;

/// Requests to a store of `store_len` bytes at multiples of `granularity`: most inside, some across its end, some near
/// the largest offset.
pub(crate) fn requests(store_len: u64, granularity: u64) -> impl Strategy<Value = Vec<Request>> {
    let kind = prop_oneof![
        3 => Just(OpKind::Read),
        4 => Just(OpKind::Write),
        2 => Just(OpKind::WriteZeroes),
        2 => Just(OpKind::Unmap),
        1 => Just(OpKind::Allocation),
        1 => Just(OpKind::Flush),
    ];
    let offset = prop_oneof![
        8 => 0..=store_len / granularity,
        1 => Just(u64::MAX / granularity),
        1 => (0..=8_u64).prop_map(move |back| (store_len / granularity).saturating_sub(back)),
    ];
    let len = prop_oneof![4 => 0..=16_u64, 4 => 0..=store_len / granularity, 1 => Just(u64::MAX / granularity)];
    let request = (kind, offset, len, any::<u8>(), any::<bool>(), any::<bool>()).prop_map(
        move |(kind, offset, len, fill, fua, may_unmap)| {
            let has_buffer = matches!(kind, OpKind::Read | OpKind::Write);
            let len = if has_buffer { len.min(MAX_BUFFER / granularity) } else { len };
            Request { kind, offset: offset * granularity, len: len * granularity, fill, fua, may_unmap }
        },
    );
    proptest::collection::vec(request, 1..60)
}

/// The bytes that a store should hold.
pub(crate) struct Oracle {
    pub(crate) bytes: Vec<u8>,
    /// The loans of reads, each with the bytes that it must keep.
    lent: Vec<(Loan, Vec<u8>)>,
    pool: Pool,
}

impl Oracle {
    pub(crate) fn new(len: u64) -> Self {
        Self { bytes: vec![0; len as usize], lent: Vec::new(), pool: Pool::new(64 << 20) }
    }

    fn buffer(&self, request: &Request, fill: u8) -> Buffer {
        let mut buffer = self.pool.take(request.len as usize).unwrap();
        buffer.fill(fill);
        buffer
    }

    /// Executes `request` on the store and on the model, and compares.
    pub(crate) fn step(&mut self, store: &dyn Store, request: &Request) {
        let Request { offset, len, fua, may_unmap, .. } = *request;
        let op = match request.kind {
            // Without memory, so that the store may lend its own.
            OpKind::Read if request.fua => {
                let mut into = self.pool.reserve(len as usize).unwrap();
                into.allow_loan();
                Op::Read { offset, into }
            }
            // Filled with bytes that a read has to overwrite.
            OpKind::Read => Op::Read { offset, into: self.buffer(request, !request.fill) },
            OpKind::Write => Op::Write { offset, from: self.buffer(request, request.fill), fua },
            OpKind::WriteZeroes => Op::WriteZeroes { offset, len, may_unmap, fua },
            OpKind::Unmap => Op::Unmap { offset, len },
            OpKind::Allocation => Op::Allocation { offset, len, found: Arc::default() },
            OpKind::Copy => unreachable!("none is drawn"),
            OpKind::Flush => Op::Flush,
        };
        let (offset, len) = op.range();
        let outcome = execute(store, op);
        let has_buffer = matches!(request.kind, OpKind::Read | OpKind::Write);
        assert_eq!(outcome.buffer.is_some() || outcome.loan.is_some(), has_buffer, "the buffer comes back");
        let end = offset.checked_add(len).filter(|end| *end <= self.bytes.len() as u64);
        let Some(end) = end else {
            assert!(matches!(outcome.result, Err(StoreError::OutOfRange { .. })), "{request:?}: {outcome:?}");
            return;
        };
        outcome.result.unwrap();
        let expected = &mut self.bytes[offset as usize..end as usize];
        match request.kind {
            OpKind::Read => match outcome.loan {
                Some(loan) => self.lent.push((loan, expected.to_vec())),
                None => assert!(outcome.buffer.unwrap()[..] == *expected, "{request:?} read other bytes"),
            },
            OpKind::Write => expected.fill(request.fill),
            OpKind::WriteZeroes => expected.fill(0),
            OpKind::Unmap if store.capabilities().unmap_zeroes => expected.fill(0),
            OpKind::Unmap | OpKind::Allocation | OpKind::Copy | OpKind::Flush => {}
        }
    }

    /// Checks that the whole store reads as the model, and that earlier loans have not changed.
    pub(crate) fn compare(&self, store: &dyn Store) {
        for (loan, expected) in &self.lent {
            assert!(loan.runs().collect::<Vec<_>>().concat() == *expected, "lent bytes have changed");
        }
        assert!(contents(store) == self.bytes, "the store holds other bytes");
        let found = Arc::new(AllocationMap::default());
        let len = self.bytes.len() as u64;
        execute(store, Op::Allocation { offset: 0, len, found: Arc::clone(&found) }).result.unwrap();
        let mut rest = &self.bytes[..];
        for run in found.take() {
            let (bytes, later) = rest.split_at(run.len as usize);
            assert!(run.allocated || bytes.iter().all(|byte| *byte == 0), "bytes without space are zero");
            rest = later;
        }
        assert!(rest.is_empty(), "every byte has space or none");
    }
}

/// All bytes of a short store.
pub(crate) fn contents(store: &dyn Store) -> Vec<u8> {
    let into = Pool::new(64 << 20).take(store.geometry().len_bytes as usize).unwrap();
    let outcome = execute(store, Op::Read { offset: 0, into });
    outcome.result.unwrap();
    outcome.buffer.unwrap().to_vec()
}
