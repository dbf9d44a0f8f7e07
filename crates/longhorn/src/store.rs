//! A volume of an engine as a store.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lunette_store::{Capabilities, Completion, FileIo, Geometry, Op, Outcome, Run, Store, StoreError};

use crate::limits::{LOOK_INTERVAL, MAX_ERROR_BYTES, MAX_UNMAP_BYTES, MAX_ZEROES_BYTES, REQUEST_LIMIT};
use crate::name::LonghornName;
use crate::wire::{Answer, HEADER_LEN, Kind, Request, request};

/// Bytes of a logical block.
const BLOCK_BYTES: u32 = 512;

/// Bytes that an engine writes without reading first.
const PHYSICAL_BYTES: u32 = 4096;

static ZEROES: [u8; MAX_ZEROES_BYTES as usize] = [0; MAX_ZEROES_BYTES as usize];

/// A volume of an engine.
///
/// One thread sends requests and another one takes the answers. When the connection ends, or the engine does not answer
/// a request within [`REQUEST_LIMIT`], all requests fail as those of a device that is gone, until the store is opened
/// again.
///
/// # Durability
///
/// The protocol has no flush: the engine acknowledges a write when its replicas have it. So an acknowledged write is as
/// durable as the replicas make it, and a flush has nothing to add.
#[derive(Debug)]
pub struct LonghornStore {
    len_bytes: u64,
    read_only: bool,
    unmap: bool,
    told: Sender<Told>,
    connection: Arc<Connection>,
}

/// A message to the thread that sends requests.
#[derive(Debug)]
enum Told {
    Task(Task),
    /// The store is gone.
    End,
}

/// A request with its completion. Zeroes are written, and space is freed, piece by piece, of which some may be done.
#[derive(Debug)]
struct Task {
    op: Op,
    done: Completion,
    /// Bytes of pieces that are done.
    done_bytes: u64,
}

/// The message that is next for a task.
struct Message<'a> {
    request: Request,
    offset: u64,
    len_bytes: u32,
    data: &'a [u8],
}

impl Task {
    /// The message; `None` for a request that needs none.
    fn message(&self) -> Option<Message<'_>> {
        match &self.op {
            Op::Read { offset, into } => Some(Message {
                request: Request::Read,
                offset: *offset,
                len_bytes: u32::try_from(into.len()).ok()?,
                data: &[],
            }),
            Op::Write { offset, from, .. } => Some(Message {
                request: Request::Write,
                offset: *offset,
                len_bytes: u32::try_from(from.len()).ok()?,
                data: from,
            }),
            Op::WriteZeroes { offset, len, .. } => {
                let len_bytes = self.piece(*len, MAX_ZEROES_BYTES)?;
                let data = ZEROES.get(..usize::try_from(len_bytes).ok()?)?;
                Some(Message {
                    request: Request::Write,
                    offset: offset.saturating_add(self.done_bytes),
                    len_bytes,
                    data,
                })
            }
            Op::Unmap { offset, len } => Some(Message {
                request: Request::Unmap,
                offset: offset.saturating_add(self.done_bytes),
                len_bytes: self.piece(*len, MAX_UNMAP_BYTES)?,
                data: &[],
            }),
            Op::Allocation { .. } | Op::Copy { .. } | Op::Flush => None,
        }
    }

    /// The length of the next piece of `len` bytes.
    fn piece(&self, len: u64, most: u32) -> Option<u32> {
        u32::try_from(len.saturating_sub(self.done_bytes).min(most.into())).ok()
    }

    /// Notes that a piece is done. Whether another one follows.
    fn has_more(&mut self) -> bool {
        let (len, most) = match &self.op {
            Op::WriteZeroes { len, .. } => (*len, MAX_ZEROES_BYTES),
            Op::Unmap { len, .. } => (*len, MAX_UNMAP_BYTES),
            Op::Read { .. } | Op::Write { .. } | Op::Allocation { .. } | Op::Copy { .. } | Op::Flush => return false,
        };
        self.done_bytes = self.done_bytes.saturating_add(most.into());
        self.done_bytes < len
    }

    fn end(self, result: Result<(), StoreError>) {
        self.done.complete(Outcome::of(self.op, result));
    }
}

/// The requests that the engine has, by their sequence numbers.
#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<u32, (Task, Instant)>,
    /// The request that is being sent.
    sending: Option<u32>,
    has_ended: bool,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    /// The time that the engine has for a request.
    limit: Duration,
    table: Mutex<Table>,
    /// Told when a request has been sent.
    sent: Condvar,
}

impl LonghornStore {
    /// Connects to an engine.
    ///
    /// # Errors
    ///
    /// When no engine listens at the socket, or there is no thread left.
    pub fn open(name: &LonghornName, read_only: bool) -> io::Result<Self> {
        Self::open_with(name, read_only, REQUEST_LIMIT)
    }

    fn open_with(name: &LonghornName, read_only: bool, limit: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(&name.socket)?;
        stream.set_write_timeout(Some(limit))?;
        stream.set_read_timeout(Some(LOOK_INTERVAL.min(limit)))?;
        let connection = Arc::new(Connection { stream, limit, table: Mutex::default(), sent: Condvar::new() });
        let (told, tasks) = channel();
        let (sender, taker, again) = (Arc::clone(&connection), Arc::clone(&connection), told.clone());
        thread::Builder::new().name("lunette-longhorn".into()).spawn(move || sender.send_requests(&tasks))?;
        let store = Self { len_bytes: name.len_bytes, read_only, unmap: name.unmap, told, connection };
        // Without this thread, the end of the store ends the other one.
        thread::Builder::new().name("lunette-longhorn".into()).spawn(move || taker.take_answers(&again))?;
        Ok(store)
    }

    fn check(&self, op: &Op) -> Result<(), StoreError> {
        op.check(self.len_bytes, self.read_only)?;
        match op {
            Op::Copy { .. } => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
            _ => Ok(()),
        }
    }
}

impl Store for LonghornStore {
    fn geometry(&self) -> Geometry {
        Geometry {
            len_bytes: self.len_bytes,
            granularity_bytes: BLOCK_BYTES,
            physical_bytes: PHYSICAL_BYTES,
            unmap_bytes: PHYSICAL_BYTES,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { read_only: self.read_only, unmap: self.unmap, ..Capabilities::default() }
    }

    fn needs_file_io(&self) -> bool {
        false
    }

    fn submit(&self, op: Op, _: &dyn FileIo, done: Completion) {
        let checked = self.check(&op);
        let needs_no_message = match op {
            Op::Unmap { .. } => !self.unmap,
            Op::Allocation { .. } | Op::Flush => true,
            Op::Read { .. } | Op::Write { .. } | Op::WriteZeroes { .. } | Op::Copy { .. } => false,
        };
        let is_void = op.range().1 == 0 || needs_no_message;
        let task = Task { op, done, done_bytes: 0 };
        if checked.is_err() || is_void {
            if let (Ok(()), Op::Allocation { len, found, .. }) = (&checked, &task.op) {
                found.push(Run { len: *len, allocated: true });
            }
            return task.end(checked);
        }
        if let Err(unsent) = self.told.send(Told::Task(task))
            && let Told::Task(task) = unsent.0
        {
            task.end(Err(gone()));
        }
    }
}

impl Drop for LonghornStore {
    fn drop(&mut self) {
        // A thread that has ended needs no end, and one that waits for the engine is woken.
        let _ = self.told.send(Told::End);
        self.connection.end();
    }
}

impl Connection {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends requests until the store is gone.
    fn send_requests(&self, told: &Receiver<Told>) {
        let mut sequence: u32 = 0;
        while let Ok(Told::Task(task)) = told.recv() {
            sequence = sequence.wrapping_add(1);
            self.table().sending = Some(sequence);
            let sent = self.send(sequence, &task);
            let mut table = self.table();
            table.sending = None;
            self.sent.notify_all();
            // A request that was overtaken by 2^32 others still has its number.
            let is_new = !table.waiting.contains_key(&sequence);
            if sent.is_ok() && !table.has_ended && is_new {
                table.waiting.insert(sequence, (task, Instant::now()));
                continue;
            }
            drop(table);
            self.end();
            task.end(Err(gone()));
        }
        self.end();
        // The rest of a task may come back until the other thread has ended, too.
        while let Ok(told) = told.recv() {
            if let Told::Task(task) = told {
                task.end(Err(gone()));
            }
        }
    }

    fn send(&self, sequence: u32, task: &Task) -> io::Result<()> {
        let message = task.message().ok_or(io::ErrorKind::InvalidInput)?;
        let mut stream = &self.stream;
        stream.write_all(&request(sequence, message.request, message.offset, message.len_bytes))?;
        stream.write_all(message.data)
    }

    /// Takes answers until the connection ends. What is left of a task goes back to the other thread by `again`.
    fn take_answers(&self, again: &Sender<Told>) {
        while let Ok((mut task, result)) = self.take_answer() {
            if result.is_err() || !task.has_more() {
                task.end(result);
            } else if let Err(unsent) = again.send(Told::Task(task))
                && let Told::Task(task) = unsent.0
            {
                task.end(Err(gone()));
            }
        }
        self.end();
    }

    /// The next request that is answered, and how it ended.
    fn take_answer(&self) -> io::Result<(Task, Result<(), StoreError>)> {
        let mut header = [0; HEADER_LEN];
        self.read(&mut header)?;
        let answer = Answer::decode(&header).ok_or(io::ErrorKind::InvalidData)?;
        let mut task = self.take(answer.sequence).ok_or(io::ErrorKind::InvalidData)?;
        match self.take_data(answer, &mut task) {
            Ok(result) => Ok((task, result)),
            Err(error) => {
                task.end(Err(gone()));
                Err(error)
            }
        }
    }

    /// Reads what stands behind the header of an answer, as far as a task allows.
    fn take_data(&self, answer: Answer, task: &mut Task) -> io::Result<Result<(), StoreError>> {
        let len = usize::try_from(answer.data_bytes).unwrap_or(usize::MAX);
        match (answer.kind, &mut task.op) {
            (Kind::Done, Op::Read { into, .. }) if into.len() == len => self.read(into).map(Ok),
            // Engines repeat what was written, or do not.
            (Kind::Done, Op::Write { from, .. }) if len == 0 || len == from.len() => self.skip(len).map(Ok),
            (Kind::Done, Op::Unmap { .. }) if len == 0 => Ok(Ok(())),
            (Kind::Done, Op::WriteZeroes { .. }) if answer.data_bytes <= MAX_ZEROES_BYTES => self.skip(len).map(Ok),
            (Kind::Failed, _) if answer.data_bytes <= MAX_ERROR_BYTES => {
                let mut text = vec![0; len];
                self.read(&mut text)?;
                Ok(Err(io::Error::other(String::from_utf8_lossy(&text).into_owned()).into()))
            }
            (Kind::Beyond, Op::Read { into, .. }) if len <= into.len() => {
                self.skip(len)?;
                Ok(Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()))
            }
            (Kind::Beyond, _) if len == 0 => Ok(Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())),
            (Kind::Done | Kind::Failed | Kind::Beyond, _) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Reads all of `into`, as long as no request has waited beyond the limit.
    fn read(&self, into: &mut [u8]) -> io::Result<()> {
        let (mut stream, mut filled) = (&self.stream, 0);
        while let Some(rest @ [_, ..]) = into.get_mut(filled..) {
            match stream.read(rest) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => filled += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.is_late() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether a request has waited beyond the limit.
    fn is_late(&self) -> bool {
        self.table().waiting.values().any(|(_, since)| since.elapsed() > self.limit)
    }

    fn skip(&self, len: usize) -> io::Result<()> {
        let mut piece = [0; 4096];
        let mut left = len;
        while left > 0 {
            let next = left.min(piece.len());
            self.read(piece.get_mut(..next).unwrap_or_default())?;
            left -= next;
        }
        Ok(())
    }

    /// The request of a number. One that is being sent may have its answer before it is in the table.
    fn take(&self, sequence: u32) -> Option<Task> {
        let is_on_its_way = |table: &mut Table| table.sending == Some(sequence);
        let waited = self.sent.wait_timeout_while(self.table(), self.limit, is_on_its_way);
        let (mut table, _) = waited.unwrap_or_else(PoisonError::into_inner);
        table.waiting.remove(&sequence).map(|(task, _)| task)
    }

    /// Ends the connection, and all requests that the engine has.
    fn end(&self) {
        let mut table = self.table();
        table.has_ended = true;
        let waiting = std::mem::take(&mut table.waiting);
        drop(table);
        // The other thread notices. A socket that is closed already needs no end.
        let _ = self.stream.shutdown(Shutdown::Both);
        for (task, _) in waiting.into_values() {
            task.end(Err(gone()));
        }
    }
}

/// The error of a request that the engine did not answer.
fn gone() -> StoreError {
    StoreError::Gone(io::Error::new(io::ErrorKind::NotConnected, "the connection to the Longhorn engine has ended"))
}

#[cfg(test)]
mod tests;
