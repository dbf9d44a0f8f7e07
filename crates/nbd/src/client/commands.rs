//! The commands under way on a connection, and the parser of the replies to them: a machine without I/O.
//!
//! The machine says which bytes to [send](Commands::gather), and takes those that were [received](Commands::receive). A
//! long payload may be received straight into its [room](Commands::room).

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Instant;

use arrayvec::ArrayVec;
use lunette_store::Op;

use super::coverage::Coverage;
use super::facts::Facts;
use super::limits::{COMMAND_TIMEOUT, MAX_CHUNKS, MAX_COMMANDS, MAX_ERROR_LEN, MAX_TRIES, REPLY_TIMEOUT};
use super::task::Task;
use crate::wire::{Errno, Fields, REQUEST_LEN, ReplyHeader, Request, chunk, command};

/// The most pieces of one send.
pub(crate) const MAX_SLICES: usize = 64;

/// The length of the fields before the payload of a chunk with data, of all of one with a hole, and of the fields of
/// one with an error before its text.
const DATA_FIELDS: u32 = 8;
const HOLE_FIELDS: u32 = 12;
const ERROR_FIELDS: u32 = 6;

/// The room for a header and the fields behind it.
const HEAD_LEN: usize = 32;

/// Why a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReplyError {
    /// The server broke a rule of the protocol.
    #[error("the server broke the protocol: {0}")]
    Protocol(&'static str),
    /// The server answers requests no more.
    #[error("the server is shutting down")]
    Shutdown,
}

/// A request of the store that has ended.
#[derive(Debug)]
pub(crate) struct Ended<T> {
    pub(crate) op: Op,
    pub(crate) owner: T,
    pub(crate) result: Result<(), Failed>,
}

/// The error of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) errno: Errno,
    /// The command was a flush.
    pub(crate) is_flush: bool,
}

/// A request of the store that waits for a connection.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub(crate) task: Task,
    pub(crate) owner: T,
    /// The number of connections that were lost with it.
    pub(crate) tries: u32,
}

impl<T> Waiting<T> {
    pub(crate) fn new(op: Op, owner: T) -> Self {
        Self { task: Task::new(op), owner, tries: 0 }
    }

    /// Whether it has been tried as often as a request may be.
    pub(crate) fn is_tried_out(&self) -> bool {
        self.tries >= MAX_TRIES
    }
}

/// A command under way, for a request of the store.
struct Command<T> {
    waiting: Waiting<T>,
    request: Request,
    head: [u8; REQUEST_LEN],
    /// Bytes of head and payload that were sent.
    sent: usize,
    is_sent: bool,
    /// The time when it began.
    since: Instant,
    /// The parts of a read that have arrived.
    coverage: Coverage,
    chunks: u32,
    /// The first error of a structured reply.
    error: Option<Errno>,
}

impl<T> Command<T> {
    fn len(&self) -> usize {
        REQUEST_LEN + self.waiting.task.payload(&self.request).len()
    }

    /// The room for `len` bytes at the offset `offset` of the export, which must not have arrived yet.
    fn claim(&mut self, offset: u64, len: u32) -> Option<u32> {
        let at = offset.checked_sub(self.request.offset).and_then(|at| u32::try_from(at).ok())?;
        let fits = at.checked_add(len).is_some_and(|end| end <= self.request.len);
        (self.request.command == command::READ && fits && self.coverage.add(at, len)).then_some(at)
    }
}

/// The part of the stream that is awaited.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    Header,
    /// The fields of a chunk, behind its header.
    Fields(Chunk),
    /// Data for a read, from the byte `at` of the command.
    Data {
        index: usize,
        at: u32,
        left: u32,
        is_last: bool,
    },
    /// A text for people.
    Text {
        index: usize,
        left: u32,
        is_last: bool,
    },
}

/// The header of a chunk that concerns a command.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    index: usize,
    kind: u16,
    len: u32,
    is_last: bool,
}

impl Chunk {
    /// The length of the fields that are awaited first.
    fn fields(self) -> u32 {
        match self.kind {
            chunk::OFFSET_DATA => DATA_FIELDS,
            chunk::OFFSET_HOLE => HOLE_FIELDS,
            _ => ERROR_FIELDS,
        }
    }
}

/// The commands under way on a connection, each for a request of the store with an owner.
pub(crate) struct Commands<T> {
    facts: Facts,
    slots: Vec<Option<Command<T>>>,
    free: Vec<usize>,
    /// The commands that are not sent as a whole, in order.
    to_send: VecDeque<usize>,
    /// The number of commands so far.
    count: u64,
    now: Instant,
    /// The time when the last reply ended.
    last_reply: Instant,
    awaited: Awaited,
    /// The header that has arrived in part, and its fields.
    head: ArrayVec<u8, HEAD_LEN>,
}

/// Bits of a cookie that tell the slot of its command. The others make it differ from all earlier ones.
const SLOT_BITS: u32 = 16;

impl<T> Commands<T> {
    pub(crate) fn new(facts: Facts, now: Instant) -> Self {
        Self {
            facts,
            slots: Vec::new(),
            free: Vec::new(),
            to_send: VecDeque::new(),
            count: 0,
            now,
            last_reply: now,
            awaited: Awaited::Header,
            head: ArrayVec::new(),
        }
    }

    /// Begins a connection. All commands of the last one must have been [taken back](Self::take_back).
    pub(crate) fn begin(&mut self, facts: Facts) {
        self.facts = facts;
        self.awaited = Awaited::Header;
        self.head.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < MAX_COMMANDS
    }

    pub(crate) fn has_to_send(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Adds a request. There must be room.
    pub(crate) fn add(&mut self, waiting: Waiting<T>) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.start(index, waiting);
    }

    /// Starts the next command of a request.
    fn start(&mut self, index: usize, waiting: Waiting<T>) {
        self.count = self.count.wrapping_add(1);
        let cookie = self.count << SLOT_BITS | index as u64;
        let request = waiting.task.request(&self.facts, cookie);
        self.slots[index] = Some(Command {
            waiting,
            request,
            head: request.emit(),
            sent: 0,
            is_sent: false,
            since: self.now,
            coverage: Coverage::default(),
            chunks: 0,
            error: None,
        });
        self.to_send.push_back(index);
    }

    /// Puts into `slices` what is to be sent next.
    pub(crate) fn gather<'a>(&'a self, slices: &mut ArrayVec<IoSlice<'a>, MAX_SLICES>) {
        for command in self.to_send.iter().filter_map(|index| self.slots.get(*index)?.as_ref()) {
            let payload = command.waiting.task.payload(&command.request);
            let (head_sent, payload_sent) = (command.sent.min(REQUEST_LEN), command.sent.saturating_sub(REQUEST_LEN));
            for rest in [command.head.get(head_sent..), payload.get(payload_sent..)] {
                let rest = rest.unwrap_or_default();
                if !rest.is_empty() && slices.try_push(IoSlice::new(rest)).is_err() {
                    return;
                }
            }
        }
    }

    /// Says that `bytes` of what was gathered have been sent.
    pub(crate) fn sent(&mut self, mut bytes: usize) {
        while let Some(index) = self.to_send.front() {
            let Some(command) = self.slots.get_mut(*index).and_then(Option::as_mut) else { return };
            let taken = (command.len() - command.sent).min(bytes);
            command.sent += taken;
            bytes -= taken;
            if command.sent < command.len() {
                return;
            }
            command.is_sent = true;
            self.to_send.pop_front();
        }
    }

    /// Says what time it is.
    pub(crate) fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// Whether the server owes a reply for longer than it may.
    pub(crate) fn is_overdue(&self) -> bool {
        let Some(oldest) = self.slots.iter().flatten().map(|command| command.since).min() else { return false };
        let passed = |since| self.now.saturating_duration_since(since);
        passed(oldest.max(self.last_reply)) >= REPLY_TIMEOUT || passed(oldest) >= COMMAND_TIMEOUT
    }

    /// The room for the payload that is awaited, if any. What was put there is told to [`filled`](Self::filled).
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        let Awaited::Data { index, at, left, .. } = self.awaited else { return None };
        self.slots.get_mut(index)?.as_mut()?.waiting.task.room(at, left)
    }

    /// Says that `bytes` were received into the room.
    pub(crate) fn filled(&mut self, bytes: usize, ended: &mut Vec<Ended<T>>) -> Result<(), ReplyError> {
        let Awaited::Data { index, at, left, is_last } = self.awaited else { return Ok(()) };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(left);
        if bytes < left {
            self.awaited = Awaited::Data { index, at: at + bytes, left: left - bytes, is_last };
            return Ok(());
        }
        self.chunk_ended(index, is_last, ended)
    }

    /// Takes bytes of the stream.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], ended: &mut Vec<Ended<T>>) -> Result<(), ReplyError> {
        while !bytes.is_empty() {
            match self.awaited {
                Awaited::Header => {
                    let Some(header) = self.header(&mut bytes)? else { continue };
                    self.head.clear();
                    self.reply(header, ended)?;
                }
                Awaited::Fields(chunk) => {
                    if self.collect(&mut bytes, chunk.fields() as usize) {
                        self.fields(chunk, ended)?;
                    }
                }
                Awaited::Data { .. } => {
                    let broken = ReplyError::Protocol("data without room for it");
                    let room = self.room().ok_or(broken)?;
                    let len = room.len().min(bytes.len());
                    let (taken, rest) = bytes.split_at(len);
                    room[..len].copy_from_slice(taken);
                    bytes = rest;
                    self.filled(len, ended)?;
                }
                Awaited::Text { index, left, is_last } => {
                    let len = bytes.len().min(left as usize);
                    bytes = &bytes[len..];
                    if len < left as usize {
                        self.awaited = Awaited::Text { index, left: left - len as u32, is_last };
                    } else {
                        self.chunk_ended(index, is_last, ended)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Moves bytes into the head until it has `len` of them. Whether it has.
    fn collect(&mut self, bytes: &mut &[u8], len: usize) -> bool {
        let missing = len.saturating_sub(self.head.len()).min(bytes.len());
        let (taken, rest) = bytes.split_at(missing);
        // A head has room for the longest header.
        let _ = self.head.try_extend_from_slice(taken);
        *bytes = rest;
        self.head.len() >= len
    }

    /// Takes bytes of a header; gives it when it is whole.
    fn header(&mut self, bytes: &mut &[u8]) -> Result<Option<ReplyHeader>, ReplyError> {
        const MAGIC_LEN: usize = 4;
        if !self.collect(bytes, MAGIC_LEN) {
            return Ok(None);
        }
        let wrong = ReplyError::Protocol("a reply that does not start with a magic number");
        let magic = self.head.first_chunk().copied().ok_or(wrong)?;
        let len = ReplyHeader::len_of(magic).ok_or(wrong)?;
        if !self.collect(bytes, len) {
            return Ok(None);
        }
        ReplyHeader::parse(&self.head).map(Some).ok_or(wrong)
    }

    /// The command that a reply is for.
    fn find(&mut self, cookie: u64) -> Result<(usize, &mut Command<T>), ReplyError> {
        let index = (cookie & ((1 << SLOT_BITS) - 1)) as usize;
        let command = self.slots.get_mut(index).and_then(Option::as_mut);
        let command = command.filter(|command| command.request.cookie == cookie && command.is_sent);
        Ok((index, command.ok_or(ReplyError::Protocol("a reply to a request that is not under way"))?))
    }

    /// Takes the header of a reply.
    fn reply(&mut self, header: ReplyHeader, ended: &mut Vec<Ended<T>>) -> Result<(), ReplyError> {
        let structured = self.facts.structured;
        match header {
            ReplyHeader::Simple { cookie, error } => {
                let (index, command) = self.find(cookie)?;
                let is_read = command.request.command == command::READ;
                if is_read && structured {
                    return Err(ReplyError::Protocol("a simple reply to a read, after structured replies were agreed"));
                }
                if command.chunks > 0 {
                    return Err(ReplyError::Protocol("a simple reply in the middle of a structured one"));
                }
                match Errno::of_number(error) {
                    None if is_read => {
                        let (len, offset) = (command.request.len, command.request.offset);
                        let at = command.claim(offset, len).ok_or(ReplyError::Protocol("a second reply to a read"))?;
                        self.awaited = Awaited::Data { index, at, left: len, is_last: true };
                        Ok(())
                    }
                    error => {
                        command.error = error;
                        self.reply_ended(index, ended)
                    }
                }
            }
            ReplyHeader::Chunk { .. } if !structured => {
                Err(ReplyError::Protocol("a structured reply, which was not agreed"))
            }
            ReplyHeader::Chunk { cookie, flags, kind, len } => {
                let (index, command) = self.find(cookie)?;
                command.chunks += 1;
                if command.chunks > MAX_CHUNKS {
                    return Err(ReplyError::Protocol("a reply in too many chunks"));
                }
                let is_read = command.request.command == command::READ;
                let is_last = flags & chunk::DONE != 0;
                let is_right = match kind {
                    chunk::NONE => len == 0 && is_last,
                    chunk::OFFSET_DATA => is_read && len > DATA_FIELDS && len - DATA_FIELDS <= command.request.len,
                    chunk::OFFSET_HOLE => is_read && len == HOLE_FIELDS,
                    _ => kind & chunk::ERR != 0 && (ERROR_FIELDS..=MAX_ERROR_LEN).contains(&len),
                };
                if !is_right {
                    return Err(ReplyError::Protocol("a chunk of the wrong type or length"));
                }
                if kind == chunk::NONE {
                    return self.chunk_ended(index, is_last, ended);
                }
                self.awaited = Awaited::Fields(Chunk { index, kind, len, is_last });
                Ok(())
            }
        }
    }

    /// Takes the fields of a chunk, which are in the head.
    fn fields(&mut self, chunk: Chunk, ended: &mut Vec<Ended<T>>) -> Result<(), ReplyError> {
        let Chunk { index, kind, len, is_last } = chunk;
        let head = std::mem::take(&mut self.head);
        let mut fields = Fields(&head);
        let short = ReplyError::Protocol("a chunk that is too short");
        let outside = ReplyError::Protocol("bytes that were not asked for, or that come twice");
        let command = self.slots.get_mut(index).and_then(Option::as_mut).ok_or(short)?;
        if kind == chunk::OFFSET_DATA || kind == chunk::OFFSET_HOLE {
            let offset = fields.u64().ok_or(short)?;
            let is_hole = kind == chunk::OFFSET_HOLE;
            let left = if is_hole { fields.u32().ok_or(short)? } else { len - DATA_FIELDS };
            let at = command.claim(offset, left).ok_or(outside)?;
            if is_hole {
                command.waiting.task.room(at, left).ok_or(outside)?.fill(0);
                return self.chunk_ended(index, is_last, ended);
            }
            self.awaited = Awaited::Data { index, at, left, is_last };
            return Ok(());
        }
        let error = fields.u32().and_then(Errno::of_number).ok_or(ReplyError::Protocol("an error without a number"))?;
        if fields.u16().is_none_or(|text| u32::from(text) > len - ERROR_FIELDS) {
            return Err(ReplyError::Protocol("an error with a text of absurd length"));
        }
        command.error.get_or_insert(error);
        match len - ERROR_FIELDS {
            0 => self.chunk_ended(index, is_last, ended),
            left => {
                self.awaited = Awaited::Text { index, left, is_last };
                Ok(())
            }
        }
    }

    /// A chunk has ended, and with the last one the reply.
    fn chunk_ended(&mut self, index: usize, is_last: bool, ended: &mut Vec<Ended<T>>) -> Result<(), ReplyError> {
        self.awaited = Awaited::Header;
        if !is_last {
            return Ok(());
        }
        let is_short = self.slots.get(index).and_then(Option::as_ref).is_some_and(|command| {
            let is_read = command.request.command == command::READ;
            is_read && command.error.is_none() && !command.coverage.is_whole(command.request.len)
        });
        if is_short {
            return Err(ReplyError::Protocol("a reply that leaves bytes out"));
        }
        self.reply_ended(index, ended)
    }

    /// A reply has ended, of which no bytes are missing.
    fn reply_ended(&mut self, index: usize, ended: &mut Vec<Ended<T>>) -> Result<(), ReplyError> {
        self.awaited = Awaited::Header;
        self.last_reply = self.now;
        let Some(slot) = self.slots.get_mut(index) else { return Ok(()) };
        if slot.as_ref().is_some_and(|command| command.error == Some(Errno::Shutdown)) {
            return Err(ReplyError::Shutdown);
        }
        let Some(Command { mut waiting, request, error, .. }) = slot.take() else { return Ok(()) };
        let result = match error {
            None if !waiting.task.advance(&request, &self.facts) => {
                self.start(index, waiting);
                return Ok(());
            }
            None => Ok(()),
            Some(errno) => Err(Failed { errno, is_flush: waiting.task.is_flush() }),
        };
        self.free.push(index);
        ended.push(Ended { op: waiting.task.op, owner: waiting.owner, result });
        Ok(())
    }

    /// Takes all requests back, because the connection is lost: in the order in which they began, to be done again.
    pub(crate) fn take_back(&mut self) -> Vec<Waiting<T>> {
        let mut commands: Vec<Command<T>> = self.slots.drain(..).flatten().collect();
        self.free.clear();
        self.to_send.clear();
        commands.sort_by_key(|command| command.request.cookie);
        let again = |mut command: Command<T>| {
            command.waiting.task.restart();
            command.waiting.tries += 1;
            command.waiting
        };
        commands.into_iter().map(again).collect()
    }
}

#[cfg(test)]
mod tests;
