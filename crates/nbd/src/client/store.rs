//! A foreign export as a store.

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use lunette_store::{Capabilities, Completion, FileIo, Geometry, Op, Outcome, Run, Store, StoreError};

use super::commands::Waiting;
use super::driver::{Driver, Job, Owner};
use super::durability::Durability;
use super::facts::Facts;
use super::inbox::Inbox;
use super::limits::FAREWELL_TIMEOUT;
use super::task::Task;
use super::tls::Security;
use super::{NbdUrl, OpenError, connect};

/// An export of a server of NBD, as a store.
///
/// A thread has the connection, and makes it again when it is lost. Requests that were not answered are then sent
/// again. They wait for the connection for [`RECONNECT_TIMEOUT`](super::limits::RECONNECT_TIMEOUT) and fail then; later
/// requests fail at once until the server is there again.
///
/// The store has the length, the block size and the abilities that it had when it was opened. An export with less is no
/// successor of the lost one.
///
/// # Durability
///
/// An acknowledged flush means that the server has acknowledged a flush for all writes that were acknowledged before.
/// A server that was lost may have lost what was in its cache, and the protocol does not tell. So a flush fails when a
/// connection was lost between a write and the flush, and no later flush succeeds until the store is opened again. A
/// write with `fua` is on stable storage whatever happens to the connection.
///
/// To a server without FUA, a flush follows such a write. To one that cannot flush, all writes go with FUA.
#[derive(Debug)]
pub struct NbdStore {
    url: NbdUrl,
    facts: Facts,
    inbox: Arc<Inbox<Job>>,
    durability: Arc<Durability>,
    /// The thread of the connection.
    thread: ThreadId,
    /// Closed at the end of that thread.
    ended: Mutex<Receiver<()>>,
}

impl NbdStore {
    /// Connects to the server and opens the export, with `read_only` for reading alone. The files of a URI with TLS are
    /// read now, and again for later connections when they have changed.
    ///
    /// # Errors
    ///
    /// [`OpenError`]. The call waits as long as the limits of a connection say.
    pub fn open(url: &NbdUrl, read_only: bool) -> Result<Self, OpenError> {
        let security = Security::of(url)?;
        let (connection, agreed) = connect::open(url, security.as_ref())?;
        let facts = Facts::new(&agreed, read_only)?;
        let inbox = Arc::new(Inbox::new().map_err(OpenError::Thread)?);
        let durability = Arc::new(Durability::new(facts.capabilities().volatile_cache));
        let driver = Driver::new(url.clone(), security, facts, Arc::clone(&inbox), Arc::clone(&durability));
        let (ends, ended) = mpsc::channel();
        let thread = thread::Builder::new().name("lunette-nbd-client".into());
        let thread = thread.spawn(move || {
            driver.run(connection);
            drop(ends);
        });
        let thread = thread.map_err(OpenError::Thread)?.thread().id();
        Ok(Self { url: url.clone(), facts, inbox, durability, thread, ended: Mutex::new(ended) })
    }

    /// The name of the export.
    pub fn url(&self) -> &NbdUrl {
        &self.url
    }

    fn check(&self, op: &Op) -> Result<(), StoreError> {
        op.check(self.facts.len_bytes, self.facts.read_only())?;
        let ((offset, len), block_len) = (op.range(), u64::from(self.facts.block_len));
        if !offset.is_multiple_of(block_len) || !len.is_multiple_of(block_len) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not whole blocks of the export").into());
        }
        match op {
            Op::Copy { .. } => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
            _ => Ok(()),
        }
    }
}

impl Store for NbdStore {
    fn geometry(&self) -> Geometry {
        self.facts.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.facts.capabilities()
    }

    fn needs_file_io(&self) -> bool {
        false
    }

    fn submit(&self, op: Op, _: &dyn FileIo, done: Completion) {
        let begun = self.check(&op).and_then(|()| self.durability.begin(&op));
        match begun {
            Err(error) => done.complete(Outcome::of(op, Err(error))),
            Ok(_) if Task::is_void(&op, &self.facts) => {
                if let Op::Allocation { len, found, .. } = &op {
                    found.push(Run { len: *len, allocated: true });
                }
                done.complete(Outcome::of(op, Ok(())));
            }
            Ok(flush) => self.inbox.push(Waiting::new(op, Owner { done, flush })),
        }
    }
}

impl Drop for NbdStore {
    /// Takes leave of the server, which would take the end of the process for a cut in TLS.
    fn drop(&mut self) {
        self.inbox.close();
        // The last request of the store may drop it on the thread of the connection.
        if thread::current().id() != self.thread
            && let Ok(ended) = self.ended.get_mut()
        {
            let _ = ended.recv_timeout(FAREWELL_TIMEOUT);
        }
    }
}
