//! The disk under a job's load: a remote disk as it is, or the plain text of an encrypted one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_buffer::{Buffer, Pool, SharedBuffer};
use lunette_initiator::{Completion, Disk, Error, Repeat, Request, Sink, limits};
use lunette_scsi::requests;
use lunette_store::{CompletionSink, Op, Outcome, Store};

use super::job::{Ended, Job, JobError};
use crate::commands::io::PoolIo;

/// The disk under a job's load. Requests end on the thread of the event loop, which sends the next ones.
pub(crate) enum Medium {
    /// A remote disk.
    Disk(Disk),
    /// A store.
    Store(StoreMedium),
}

/// A store under load.
pub(crate) struct StoreMedium {
    store: Arc<dyn Store>,
    pool: Pool,
    io: PoolIo,
    ended: EndedRequests,
}

/// Requests that have ended, and that the job has not dealt with.
///
/// A store may end a request before its submission returns, and the job submits the next one when one has ended: it
/// would call itself. So one thread at a time deals with what has ended, one request after another, and other threads,
/// and calls from within, leave theirs to it.
#[derive(Default)]
struct EndedRequests(Mutex<EndedQueue>);

#[derive(Default)]
struct EndedQueue {
    requests: VecDeque<(usize, Outcome)>,
    /// Whether a thread deals with them.
    is_busy: bool,
}

impl EndedRequests {
    /// Takes note of a request. `deal_with` gets it, and those that come meanwhile, unless another call does that.
    fn add(&self, slot: usize, outcome: Outcome, mut deal_with: impl FnMut(usize, Outcome)) {
        let mut queue = self.lock();
        queue.requests.push_back((slot, outcome));
        if std::mem::replace(&mut queue.is_busy, true) {
            return;
        }
        while let Some((slot, outcome)) = queue.requests.pop_front() {
            drop(queue);
            deal_with(slot, outcome);
            queue = self.lock();
        }
        queue.is_busy = false;
    }

    fn lock(&self) -> MutexGuard<'_, EndedQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is ready.
pub(super) enum Prepared {
    Request(Request),
    Op(Op),
}

/// The bytes of one request on the medium.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) len: usize,
}

impl StoreMedium {
    pub(super) fn new(store: Arc<dyn Store>, io: PoolIo) -> Self {
        Self { store, pool: Pool::new(limits::DEFAULT_BUFFER_BYTES), io, ended: EndedRequests::default() }
    }
}

impl Medium {
    /// A buffer for the data of a write.
    pub(super) fn buffer(&self, len: usize) -> Result<Buffer, JobError> {
        match self {
            Self::Disk(disk) => Ok(disk.session().buffer(len)?),
            Self::Store(medium) => Ok(medium.pool.take(len).ok_or(Error::NoBuffer { len })?),
        }
    }

    pub(super) fn read(&self, extent: Extent) -> Result<Prepared, JobError> {
        match self {
            Self::Disk(disk) => {
                let (lba, blocks) = blocks(disk, extent);
                // The buffer takes its memory when the read begins to fill it: warm memory of a read that has just
                // ended.
                let buffer = disk.session().reserve(extent.len)?;
                let request = Request::new(disk.lun(), requests::read(lba, blocks, false));
                Ok(Prepared::Request(request.with_data_in(buffer).with_repeat(Repeat::Always)))
            }
            Self::Store(medium) => {
                let len = extent.len;
                let into = medium.pool.reserve(len).ok_or(Error::NoBuffer { len })?;
                Ok(Prepared::Op(Op::Read { offset: extent.offset, into }))
            }
        }
    }

    pub(super) fn write(&self, extent: Extent, data: SharedBuffer) -> Prepared {
        match self {
            Self::Disk(disk) => {
                let (lba, blocks) = blocks(disk, extent);
                let request = Request::new(disk.lun(), requests::write(lba, blocks, false));
                Prepared::Request(request.with_data_out(data).with_repeat(Repeat::Always))
            }
            Self::Store(_) => {
                let from = data.try_into_buffer().expect("the data of a slot has one owner");
                Prepared::Op(Op::Write { offset: extent.offset, from, fua: false })
            }
        }
    }

    /// Sends a request. Its end goes to the job.
    pub(super) fn submit(&self, job: &Arc<Job>, slot: usize, prepared: Prepared) {
        match (self, prepared) {
            (Self::Disk(disk), Prepared::Request(request)) => {
                let sink: Arc<dyn Sink> = Arc::clone(job) as _;
                disk.submit(request, Completion::new(sink, slot as u64));
            }
            (Self::Store(medium), Prepared::Op(op)) => {
                let sink: Arc<dyn CompletionSink> = Arc::clone(job) as _;
                medium.store.submit(op, &medium.io, lunette_store::Completion::new(sink, slot as u64));
            }
            _ => unreachable!("each medium prepares its own requests"),
        }
    }
}

impl StoreMedium {
    /// A request has ended. `deal_with` gets it here or on another thread.
    pub(super) fn ended(&self, slot: usize, outcome: Outcome, deal_with: impl FnMut(usize, Outcome)) {
        self.ended.add(slot, outcome, deal_with);
    }
}

fn blocks(disk: &Disk, extent: Extent) -> (u64, u32) {
    let block_len = disk.facts().block_len();
    (extent.offset / u64::from(block_len), extent.len as u32 / block_len)
}

impl Ended {
    /// The end of a request to a store.
    pub(super) fn of(outcome: Outcome, writes: bool) -> Self {
        let result = outcome.result.map_err(|error| JobError::Store(error.to_string()));
        if writes {
            Self { result, data_in: None, data_out: outcome.buffer.map(Buffer::share) }
        } else {
            Self { result, data_in: outcome.buffer, data_out: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_end_while_another_is_dealt_with_wait_for_it() {
        let (ended, order) = (EndedRequests::default(), Mutex::new(Vec::new()));
        let note = |slot| order.lock().unwrap().push(slot);
        let outcome = || Outcome::new(Ok(()), None);
        ended.add(1, outcome(), |slot, _| {
            note(slot);
            if slot < 4 {
                ended.add(slot + 1, outcome(), |_, _| unreachable!("it would call itself"));
            }
        });
        assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4]);
        ended.add(9, outcome(), |slot, _| note(slot));
        assert_eq!(order.lock().unwrap().last(), Some(&9), "nothing is under way any more");
    }
}
