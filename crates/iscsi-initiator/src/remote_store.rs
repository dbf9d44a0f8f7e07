//! A remote disk as a [`Store`].

use std::io;
use std::sync::{Arc, OnceLock};

use lunette_scsi::{AdditionalSense, requests};
use lunette_store::{
    AllocationMap, Capabilities, Completion, FileIo, Geometry, Op, Outcome as StoreOutcome, Run, Store, StoreError,
    Unflushed,
};

use crate::detached::detach;
use crate::request::{self, Outcome};
use crate::{Disk, Error, Repeat, Request};

/// A [`Disk`] behind the trait of all stores, so that code for files and memory works on it.
///
/// Offsets and lengths are multiples of the disk's block length.
#[derive(Clone)]
pub struct RemoteStore {
    disk: Disk,
    /// The error of the first flush that failed. What the disk lost stays lost, so no later flush succeeds.
    failed_flush: Arc<OnceLock<Arc<io::Error>>>,
    /// The lives of its cache are the counts of power-ons ([`Disk::power_ons`]).
    unflushed: Arc<Unflushed>,
}

impl RemoteStore {
    /// A store over `disk`.
    pub fn new(disk: Disk) -> Self {
        Self { disk, failed_flush: Arc::default(), unflushed: Arc::new(Unflushed::new()) }
    }

    /// The disk below the store.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    fn check(&self, op: &Op) -> Result<(), StoreError> {
        op.check(self.disk.facts().len_bytes(), self.disk.facts().read_only)?;
        let ((offset, len), block_len) = (op.range(), u64::from(self.disk.facts().block_len()));
        if offset.is_multiple_of(block_len) && len.is_multiple_of(block_len) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not whole blocks of the remote disk").into())
    }

    /// The first block and the number of blocks of a byte range.
    fn blocks(&self, (offset, len): (u64, u64)) -> (u64, u64) {
        let block_len = u64::from(self.disk.facts().block_len());
        (offset / block_len, len / block_len)
    }

    /// The request of a read or write that fits one command.
    fn request(&self, op: &Op) -> Option<Request> {
        let (lba, blocks) = self.blocks(op.range());
        let blocks =
            u32::try_from(blocks).ok().filter(|blocks| (1..=self.disk.max_transfer_blocks()).contains(blocks))?;
        let cdb = match op {
            Op::Read { .. } => requests::read(lba, blocks, false),
            Op::Write { fua, .. } => requests::write(lba, blocks, *fua),
            _ => return None,
        };
        Some(Request { repeat: Repeat::Always, ..Request::new(self.disk.lun(), cdb) })
    }

    /// Runs an operation that takes more than one command, or may.
    async fn run(self, op: Op) -> StoreOutcome {
        let range = self.blocks(op.range());
        // No command of the operation is acknowledged before this moment.
        let power_ons = self.disk.power_ons();
        match op {
            Op::Read { offset, mut into } => {
                let result = self.disk.read_into(range.0, &mut into).await;
                StoreOutcome::of(Op::Read { offset, into }, result.map_err(store_error))
            }
            Op::Write { offset, from, fua } => {
                let result = self.disk.write(range.0, &from, fua).await;
                self.wrote(fua, power_ons);
                StoreOutcome::of(Op::Write { offset, from, fua }, result.map_err(store_error))
            }
            Op::WriteZeroes { may_unmap, fua, .. } => {
                let mut result = self.disk.write_zeroes(range.0, range.1, may_unmap).await.map_err(store_error);
                self.wrote(false, power_ons);
                if fua && result.is_ok() {
                    result = self.flush().await;
                }
                StoreOutcome::new(result, None)
            }
            Op::Unmap { .. } if !self.disk.facts().can_unmap() => StoreOutcome::new(Ok(()), None),
            Op::Unmap { .. } => {
                let result = self.disk.unmap(range.0, range.1).await.map_err(store_error);
                self.wrote(false, power_ons);
                StoreOutcome::new(result, None)
            }
            Op::Allocation { found, .. } => StoreOutcome::new(self.find_allocation(range, &found).await, None),
            Op::Flush => StoreOutcome::new(self.flush().await, None),
            // Only stores that can copy are asked to.
            Op::Copy { .. } => StoreOutcome::of(op, Err(io::Error::from(io::ErrorKind::Unsupported).into())),
        }
    }

    /// Tells which of the blocks are allocated, as far as `found` has room.
    async fn find_allocation(&self, (lba, blocks): (u64, u64), found: &AllocationMap) -> Result<(), StoreError> {
        let runs = self.disk.allocation(lba, blocks).await.map_err(store_error)?;
        let block_len = u64::from(self.disk.facts().block_len());
        for (blocks, allocated) in runs {
            if !found.push(Run { len: blocks * block_len, allocated }) {
                break;
            }
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), StoreError> {
        if let Some(earlier) = self.failed_flush.get() {
            return Err(StoreError::FlushFailed(Arc::clone(earlier)));
        }
        let flush = self.unflushed.begin();
        let mut result = self.disk.flush().await;
        // A power-on before the flush may have emptied the cache.
        if result.is_ok() && !self.unflushed.end(flush, self.disk.power_ons()) {
            result = Err(Error::CacheLost);
        }
        result.map_err(|error| {
            let error = self.failed_flush.get_or_init(|| Arc::new(io::Error::other(error)));
            StoreError::FlushFailed(Arc::clone(error))
        })
    }

    /// A write has ended that began when the disk had been powered on `power_ons` times.
    fn wrote(&self, fua: bool, power_ons: u64) {
        if !fua && self.disk.facts().volatile_cache {
            self.unflushed.add(power_ons);
        }
    }
}

impl Store for RemoteStore {
    fn geometry(&self) -> Geometry {
        let facts = self.disk.facts();
        let (len_bytes, block_len) = (facts.len_bytes(), facts.block_len());
        let physical_bytes = u32::try_from(facts.physical_block_len()).unwrap_or(block_len);
        let unmap_bytes = block_len.saturating_mul(facts.limits.unmap_granularity.max(1));
        Geometry { len_bytes, granularity_bytes: block_len, physical_bytes: physical_bytes.max(block_len), unmap_bytes }
    }

    fn capabilities(&self) -> Capabilities {
        let facts = self.disk.facts();
        let unmap = facts.can_unmap();
        Capabilities {
            read_only: facts.read_only,
            volatile_cache: facts.volatile_cache,
            unmap,
            unmap_zeroes: unmap && facts.provisioning.unmapped_zero,
            write_zeroes: true,
            anchors: false,
            memory: false,
        }
    }

    fn needs_file_io(&self) -> bool {
        false
    }

    fn submit(&self, op: Op, _: &dyn FileIo, done: Completion) {
        if let Err(error) = self.check(&op) {
            return done.complete(StoreOutcome::of(op, Err(error)));
        }
        let Some(mut request) = self.request(&op) else {
            let store = self.clone();
            return detach(async move { done.complete(store.run(op).await) });
        };
        match op {
            Op::Read { into, .. } => {
                request.data_in = Some(into);
                self.disk.submit(request, request::Completion::call(move |outcome| done.complete(read_done(outcome))));
            }
            Op::Write { from, fua, .. } => {
                request.data_out = Some(from.share());
                let store = self.clone();
                let ended = move |outcome| {
                    store.wrote(fua, store.disk.power_ons());
                    done.complete(write_done(outcome));
                };
                self.disk.submit(request, request::Completion::call(ended));
            }
            // `request` gives `None` for all others.
            other => done.complete(StoreOutcome::of(other, Err(io::Error::from(io::ErrorKind::Unsupported).into()))),
        }
    }
}

fn read_done(outcome: Outcome) -> StoreOutcome {
    StoreOutcome::new(outcome.check_whole().map_err(store_error), outcome.data_in)
}

fn write_done(outcome: Outcome) -> StoreOutcome {
    let result = outcome.check_whole().map_err(store_error);
    let buffer = outcome.data_out.and_then(|shared| shared.try_into_buffer().ok());
    StoreOutcome::new(result, buffer)
}

fn store_error(error: Error) -> StoreError {
    match error.sense().map(|sense| sense.code) {
        Some(AdditionalSense::SPACE_ALLOCATION_FAILED) => StoreError::NoSpace,
        Some(AdditionalSense::WRITE_PROTECTED) => StoreError::ReadOnly,
        _ => StoreError::Io(io::Error::other(error)),
    }
}
