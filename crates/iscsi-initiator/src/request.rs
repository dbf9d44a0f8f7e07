//! SCSI commands as callers submit them, and how they end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::{Buffer, SharedBuffer};
use lunette_pdu::{LunField, Residual, TaskAttribute};
use lunette_scsi::{Lun, OpCode, SenseData, SenseKey, Status};
use lunette_session::iscsi_initiator::Command;

use crate::error::{Direction, Error};

/// When a request may be sent to the target again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Repeat {
    /// Never: the caller gets the outcome of the only attempt.
    #[default]
    Never,
    /// When the target says that the command did not run: unit attention, BUSY, TASK SET FULL.
    IfNotRun,
    /// Repeats the command as [`IfNotRun`](Self::IfNotRun) does, and also when it may have run: after a lost connection
    /// or a reset. For commands that may run twice.
    Always,
}

/// A SCSI command with its buffers.
#[derive(Debug)]
#[non_exhaustive]
pub struct Request {
    /// The logical unit.
    pub lun: Lun,
    /// The first 16 bytes of the CDB.
    pub cdb: [u8; 16],
    /// The bytes of the CDB after the first 16; mostly empty.
    pub cdb_rest: Box<[u8]>,
    /// The task attribute: how the task is ordered among those of its task set.
    pub attribute: TaskAttribute,
    /// The command priority, from 1, the most urgent, to 15; 0 for none (SAM-5 8.7). It is sent when iSCSIProtocolLevel
    /// 2 was negotiated.
    pub priority: u8,
    /// The bytes that are sent to the logical unit.
    pub data_out: Option<SharedBuffer>,
    /// The buffer for what the logical unit sends.
    pub data_in: Option<Buffer>,
    /// The length of the blocks that `data_out` is made of, or 0. PDUs are cut between blocks where that is possible.
    pub block_len: u16,
    /// When the command may be sent again.
    pub repeat: Repeat,
    /// The time limit from submission to end; if absent, [`Options::request_timeout`](crate::Options::request_timeout).
    pub timeout: Option<Duration>,
}

impl Request {
    /// A command without data that is never repeated. `scsi::requests` makes such CDBs.
    pub fn new(lun: Lun, cdb: [u8; 16]) -> Self {
        Self {
            lun,
            cdb,
            cdb_rest: Box::default(),
            attribute: TaskAttribute::SIMPLE,
            priority: 0,
            data_out: None,
            data_in: None,
            block_len: 0,
            repeat: Repeat::Never,
            timeout: None,
        }
    }

    /// A command whose CDB is `cdb`, of any length up to [`MAX_CDB_BYTES`](crate::limits::MAX_CDB_BYTES), without data
    /// and never repeated. A longer one ends with [`Error::TooMuch`] when it is submitted.
    pub fn from_cdb(lun: Lun, cdb: &[u8]) -> Self {
        let (first, rest) = cdb.split_at(cdb.len().min(16));
        let mut padded = [0; 16];
        padded[..first.len()].copy_from_slice(first);
        Self { cdb_rest: rest.into(), ..Self::new(lun, padded) }
    }

    /// Receives Data-In into `buffer`.
    #[must_use]
    pub fn with_data_in(mut self, buffer: Buffer) -> Self {
        self.data_in = Some(buffer);
        self
    }

    /// Sends `buffer` as Data-Out.
    #[must_use]
    pub fn with_data_out(mut self, buffer: SharedBuffer) -> Self {
        self.data_out = Some(buffer);
        self
    }

    /// Lets the session send the command again when `repeat` allows it.
    #[must_use]
    pub fn with_repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }

    /// Limits the time from submission to the end, in place of
    /// [`Options::request_timeout`](crate::Options::request_timeout).
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The name of the command, for messages.
    pub fn name(&self) -> &'static str {
        name(&self.cdb)
    }
}

/// Identifies a request of a session, for its cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId(pub(crate) u64);

impl RequestId {
    /// The number of no request.
    pub(crate) const NONE: Self = Self(u64::MAX);
}

/// A request on its way to the event loop, with its command as the protocol takes it.
pub(crate) struct Submission {
    pub(crate) id: RequestId,
    pub(crate) command: Command,
    /// `None` once it was taken.
    pub(crate) completion: Option<Completion>,
    pub(crate) repeat: Repeat,
    pub(crate) timeout: Option<Duration>,
}

impl Submission {
    #[inline]
    pub(crate) fn new(id: RequestId, request: Request, completion: Completion) -> Self {
        let Request { lun, cdb, cdb_rest, attribute, priority, data_out, data_in, block_len, repeat, timeout } =
            request;
        let lun = LunField(lun.encode());
        // The event loop's name for it comes later.
        let command = Command { user: 0, lun, cdb, cdb_rest, attribute, priority, data_out, data_in, block_len };
        Self { id, command, completion: Some(completion), repeat, timeout }
    }

    /// Ends a request that was never sent.
    pub(crate) fn refuse(&mut self, error: Error) {
        if let Some(completion) = self.completion.take() {
            completion.end(&mut self.command, Err(error));
        }
    }
}

pub(crate) fn name(cdb: &[u8; 16]) -> &'static str {
    OpCode(cdb[0]).name().unwrap_or("a command")
}

/// The answer of a logical unit to a command, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// The name of the command.
    pub command: &'static str,
    /// The SAM-5 status.
    pub status: Status,
    /// The status qualifier (SAM-5 5.3.2); 0 without iSCSIProtocolLevel 2.
    pub status_qualifier: u16,
    /// The bytes of the sense data; empty if there is none.
    pub sense: Vec<u8>,
    /// The number of bytes of the Data-In buffer that were filled, from its start.
    pub data_in_len: usize,
    /// The residual: by how many bytes the transfer missed the announced length. For a bidirectional command, that of
    /// Data-Out.
    pub residual: Option<Residual>,
    /// The residual of Data-In of a bidirectional command.
    pub read_residual: Option<Residual>,
}

impl Reply {
    /// The sense data, if there is any that can be decoded.
    pub fn sense_data(&self) -> Option<SenseData> {
        SenseData::decode(&self.sense).ok()
    }

    /// The number of bytes received, if the command ended with GOOD or CONDITION MET.
    ///
    /// # Errors
    ///
    /// [`Error::Miscompare`], [`Error::Sense`] or [`Error::Status`].
    pub fn ok(&self) -> Result<usize, Error> {
        let command = self.command;
        if matches!(self.status, Status::GOOD | Status::CONDITION_MET) {
            return Ok(self.data_in_len);
        }
        match (self.status, self.sense_data()) {
            (Status::CHECK_CONDITION, Some(sense)) if sense.key == SenseKey::MISCOMPARE => {
                Err(Error::Miscompare { offset: sense.information.unwrap_or(0) })
            }
            (Status::CHECK_CONDITION, Some(sense)) => Err(Error::Sense { command, sense }),
            (status, _) => Err(Error::Status { command, status }),
        }
    }
}

/// The end of a request. Its buffers come back, unless the event loop has failed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The answer of the logical unit, or why there is none.
    pub result: Result<Reply, Error>,
    /// The Data-In buffer of the request; [`Reply::data_in_len`] bytes are filled.
    pub data_in: Option<Buffer>,
    /// The Data-Out buffer of the request.
    pub data_out: Option<SharedBuffer>,
}

impl Outcome {
    /// Checks that the command ended well and transferred every byte of its buffers.
    ///
    /// GOOD status alone does not say so: a target may report a residual with it (RFC 7143 section 11.4.5).
    ///
    /// # Errors
    ///
    /// The errors of the request and of [`Reply::ok`], [`Error::Short`] and [`Error::Excess`].
    pub fn check_whole(&self) -> Result<(), Error> {
        let reply = self.result.as_ref().map_err(Clone::clone)?;
        let received = reply.ok()? as u64;
        let read_residual = if self.data_out.is_some() { reply.read_residual } else { reply.residual };
        if let Some(data) = &self.data_out {
            let asked = data.len() as u64;
            let missing = underflow(reply.residual).min(asked);
            check_moved(reply.command, Direction::Out, asked - missing, asked, reply.residual)?;
        }
        match &self.data_in {
            Some(data) => check_moved(reply.command, Direction::In, received, data.len() as u64, read_residual),
            None => Ok(()),
        }
    }

    /// The Data-In buffer, truncated to the bytes received, if the command ended well.
    ///
    /// # Errors
    ///
    /// The errors of the request and of [`Reply::ok`].
    pub fn into_data(self) -> Result<Option<Buffer>, Error> {
        let len = self.result?.ok()?;
        Ok(self.data_in.map(|mut buffer| {
            buffer.truncate(len);
            buffer
        }))
    }
}

fn underflow(residual: Option<Residual>) -> u64 {
    if let Some(Residual::Underflow(missing)) = residual { missing.into() } else { 0 }
}

fn check_moved(
    command: &'static str,
    direction: Direction,
    moved: u64,
    asked: u64,
    residual: Option<Residual>,
) -> Result<(), Error> {
    match residual {
        _ if moved < asked => Err(Error::Short { command, direction, moved, asked }),
        Some(Residual::Overflow(excess)) if excess > 0 => Err(Error::Excess { command, asked, excess: excess.into() }),
        _ => Ok(()),
    }
}

/// Receives the outcomes of requests. One sink serves many requests; a tag of the caller's choice tells them apart.
pub trait Sink: Send + Sync {
    /// Called exactly once per request, on the event loop's thread or before `submit` returns. Must not block.
    fn complete(self: Arc<Self>, tag: u64, outcome: Outcome);
}

/// Takes the outcome of one request to the caller.
pub struct Completion(Option<Inner>);

enum Inner {
    Sink { sink: Arc<dyn Sink>, tag: u64 },
    Call(Box<dyn FnOnce(Outcome) + Send>),
}

impl Completion {
    /// Ends the request of a command, and gives its buffers back.
    #[expect(clippy::inline_always, reason = "outcomes are large to be moved")]
    #[inline(always)]
    pub(crate) fn end(self, command: &mut Command, result: Result<Reply, Error>) {
        self.complete(Outcome { result, data_in: command.data_in.take(), data_out: command.data_out.take() });
    }

    #[cold]
    fn tell_closed(self) {
        self.complete(Outcome { result: Err(Error::Closed), data_in: None, data_out: None });
    }

    /// A completion that reports to `sink` under `tag`. It does not allocate.
    pub fn new(sink: Arc<dyn Sink>, tag: u64) -> Self {
        Self(Some(Inner::Sink { sink, tag }))
    }

    /// A completion that calls `f`, on the event loop's thread or before `submit` returns. `f` must not block.
    pub fn call(f: impl FnOnce(Outcome) + Send + 'static) -> Self {
        Self(Some(Inner::Call(Box::new(f))))
    }

    #[expect(clippy::inline_always, reason = "outcomes are large to be moved")]
    #[inline(always)]
    pub(crate) fn complete(mut self, outcome: Outcome) {
        match self.0.take() {
            Some(Inner::Sink { sink, tag }) => sink.complete(tag, outcome),
            Some(Inner::Call(f)) => f(outcome),
            None => {}
        }
    }
}

/// Reports [`Error::Closed`] when the event loop ended before the request did. The buffers are lost with it.
impl Drop for Completion {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() {
            let told = Self(self.0.take());
            told.tell_closed();
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(Inner::Sink { tag, .. }) => write!(f, "Completion(tag {tag})"),
            Some(Inner::Call(_)) => f.write_str("Completion(call)"),
            None => f.write_str("Completion(told)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use lunette_buffer::Pool;

    use super::*;

    /// An outcome of a command that sends `out` bytes, receives `in_` bytes, and ends with GOOD status.
    fn good(out: usize, in_: usize, moved_in: usize, residual: Option<Residual>) -> Outcome {
        let pool = Pool::new(1 << 20);
        let buffer = |len: usize| (len > 0).then(|| pool.take(len).unwrap());
        let reply = Reply {
            command: "X",
            status: Status::GOOD,
            status_qualifier: 0,
            sense: Vec::new(),
            data_in_len: moved_in,
            residual,
            read_residual: None,
        };
        Outcome { result: Ok(reply), data_in: buffer(in_), data_out: buffer(out).map(Buffer::share) }
    }

    #[test]
    fn good_status_counts_when_all_bytes_have_moved() {
        let (under, over) = (|count| Some(Residual::Underflow(count)), |count| Some(Residual::Overflow(count)));
        for (outcome, expected) in [
            (good(0, 0, 0, None), Ok(())),
            (good(0, 0, 0, under(9)), Ok(())),
            (good(512, 0, 0, None), Ok(())),
            (good(512, 0, 0, under(512)), Err("only 0 of 512 bytes were taken by the target")),
            (good(512, 0, 0, under(1)), Err("only 511 of 512 bytes were taken")),
            (good(512, 0, 0, under(u32::MAX)), Err("only 0 of 512 bytes were taken")),
            (good(512, 0, 0, over(7)), Err("7 bytes beyond the 512 of the request")),
            (good(0, 512, 512, None), Ok(())),
            (good(0, 512, 100, under(412)), Err("only 100 of 512 bytes were sent by the target")),
            (good(0, 512, 0, under(512)), Err("only 0 of 512 bytes were sent")),
            (good(0, 512, 512, over(3584)), Err("3584 bytes beyond the 512")),
        ] {
            match (outcome.check_whole(), expected) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
                (result, expected) => panic!("{result:?} where {expected:?} was due"),
            }
        }
    }

    #[test]
    fn each_direction_of_a_bidirectional_command_counts() {
        let with = |residual, read_residual, moved_in| {
            let mut outcome = good(512, 256, moved_in, residual);
            outcome.result.as_mut().unwrap().read_residual = read_residual;
            outcome.check_whole()
        };
        assert!(with(None, None, 256).is_ok());
        let error = with(Some(Residual::Underflow(12)), None, 256).unwrap_err();
        assert!(matches!(error, Error::Short { direction: Direction::Out, moved: 500, asked: 512, .. }), "{error}");
        let error = with(None, Some(Residual::Underflow(56)), 200).unwrap_err();
        assert!(matches!(error, Error::Short { direction: Direction::In, moved: 200, asked: 256, .. }), "{error}");
    }
}
