//! What a job puts its load on: a remote disk as it is, or the plain text of an encrypted one.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use lunette_buffer::{Buffer, Pool, SharedBuffer};
use lunette_initiator::{Completion, Disk, Error, Repeat, Request, Sink, limits};
use lunette_scsi::requests;
use lunette_store::{Op, Outcome, Store};

use super::job::{Ended, Job, JobError};
use crate::io::PoolIo;

/// What a job puts its load on.
pub(crate) enum Medium {
    /// A remote disk. Its requests end on the thread of the event loop, which sends the next ones.
    Disk(Disk),
    /// A store. The job's thread sends its requests.
    Store(StoreMedium),
}

/// A store under load.
pub(crate) struct StoreMedium {
    store: Arc<dyn Store>,
    pool: Pool,
    io: PoolIo,
    sender: Sender<(usize, Outcome)>,
    /// The job's thread takes it, and sends the requests: a store that answers at once would otherwise call itself.
    receiver: Mutex<Option<Receiver<(usize, Outcome)>>>,
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
        let (sender, receiver) = mpsc::channel();
        Self { store, pool: Pool::new(limits::DEFAULT_BUFFER_BYTES), io, sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Medium {
    /// The outcomes that the job's thread must deal with, where it does.
    pub(super) fn outcomes(&self) -> Option<Receiver<(usize, Outcome)>> {
        match self {
            Self::Disk(_) => None,
            Self::Store(medium) => medium.receiver.lock().unwrap_or_else(PoisonError::into_inner).take(),
        }
    }

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
                // The buffer takes its memory when the read begins to fill it: warm memory of a read that has just ended.
                let buffer = disk.session().reserve(extent.len)?;
                let request = Request::new(disk.lun(), requests::read(lba, blocks, false));
                Ok(Prepared::Request(request.with_data_in(buffer).with_repeat(Repeat::Always)))
            }
            Self::Store(_) => Ok(Prepared::Op(Op::Read { offset: extent.offset, into: self.buffer(extent.len)? })),
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

    /// Sends a request. Its end goes to the job, or to [`outcomes`](Self::outcomes).
    pub(super) fn submit(&self, job: &Arc<Job>, slot: usize, prepared: Prepared) {
        match (self, prepared) {
            (Self::Disk(disk), Prepared::Request(request)) => {
                let sink: Arc<dyn Sink> = Arc::clone(job) as _;
                disk.session().submit(request, Completion::new(sink, slot as u64));
            }
            (Self::Store(medium), Prepared::Op(op)) => {
                let sender = medium.sender.clone();
                // The job's thread is gone when all of its requests have ended.
                let done = lunette_store::Completion::call(move |outcome| drop(sender.send((slot, outcome))));
                medium.store.submit(op, &medium.io, done);
            }
            _ => unreachable!("each medium prepares its own requests"),
        }
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
