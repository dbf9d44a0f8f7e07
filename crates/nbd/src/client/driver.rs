//! The thread of a connection: it moves bytes between the socket and [`Commands`], and makes a lost connection again.
//!
//! The thread owns the socket and all requests that it has taken, so nothing is locked while it sends or receives.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use lunette_reactor::Turn;
use lunette_store::{Completion, Op, Outcome, StoreError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as SystemErrno;

use super::commands::{Commands, Ended, Failed, ReplyError, Waiting};
use super::connection::Connection;
use super::durability::Durability;
use super::facts::Facts;
use super::inbox::Inbox;
use super::limits::{FIRST_RECONNECT_PAUSE, MAX_RECONNECT_PAUSE, RECONNECT_TIMEOUT};
use super::tls::Security;
use super::{NbdUrl, OpenError, connect};
use crate::limited::looked_up;
use crate::wire::{Errno, Request, command};

/// Bytes that are received at a time.
const RECEIVE_BYTES: usize = 64 << 10;

/// Payloads from this length on are received straight into their buffer.
const DIRECT_BYTES: usize = 16 << 10;

/// The longest wait before time limits are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// A request that a thread has submitted.
pub(crate) type Job = Waiting<Owner>;

/// The submitter of a request.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) done: Completion,
    /// The number of a flush.
    pub(crate) flush: Option<u64>,
}

/// Why a connection was lost.
#[derive(Debug, thiserror::Error)]
enum Loss {
    #[error("the server has closed the connection")]
    Closed,
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Reply(#[from] ReplyError),
    #[error("the server takes too long to answer")]
    Overdue,
}

pub(crate) struct Driver {
    url: NbdUrl,
    /// The side of TLS, for a URI that demands it.
    security: Option<Security>,
    /// The properties that the store has told.
    facts: Facts,
    inbox: Arc<Inbox<Job>>,
    durability: Arc<Durability>,
    commands: Commands<Owner>,
    /// Requests for which there is no room, or no connection.
    waiting: VecDeque<Job>,
    /// The number of the present connection.
    connection: u64,
    /// Room that is used again and again.
    taken: Vec<Job>,
    ended: Vec<Ended<Owner>>,
    received: Box<[u8]>,
    /// The time for which requests wait for a new connection.
    patience: Duration,
}

impl Driver {
    pub(crate) fn new(
        url: NbdUrl,
        security: Option<Security>,
        facts: Facts,
        inbox: Arc<Inbox<Job>>,
        durability: Arc<Durability>,
    ) -> Self {
        Self {
            url,
            security,
            facts,
            inbox,
            durability,
            commands: Commands::new(facts, Instant::now()),
            waiting: VecDeque::new(),
            connection: 1,
            taken: Vec::new(),
            ended: Vec::new(),
            received: vec![0; RECEIVE_BYTES].into(),
            patience: RECONNECT_TIMEOUT,
        }
    }

    /// Serves requests until no more can come and all have ended.
    pub(crate) fn run(mut self, mut connection: Connection) {
        let _turn = Turn::begin();
        loop {
            let Err(loss) = self.converse(&mut connection) else {
                let request = Request { flags: 0, command: command::DISC, cookie: 0, offset: 0, len: 0 };
                return connection.end(&request.emit());
            };
            drop(connection);
            tracing::warn!(url = %self.url, error = %loss, "a connection to an NBD server was lost");
            let Some(next) = self.reconnect(&loss) else { return };
            connection = next;
            self.connection += 1;
            tracing::info!(url = %self.url, "the connection to the NBD server is there again");
        }
    }

    /// Sends and receives, until the connection is lost or all is done.
    fn converse(&mut self, connection: &mut Connection) -> Result<(), Loss> {
        let mut next_check = Instant::now() + CHECK_INTERVAL;
        loop {
            self.commands.set_time(Instant::now());
            let may_come = self.admit();
            let has_sent = self.send(connection)?;
            let has_received = self.receive(connection)?;
            if has_sent || has_received {
                continue;
            }
            if !may_come && self.commands.is_empty() && self.waiting.is_empty() {
                return Ok(());
            }
            Turn::part_ends();
            self.wait(Some(connection), (!self.commands.is_empty()).then_some(CHECK_INTERVAL))?;
            let now = Instant::now();
            if now >= next_check {
                next_check = now + CHECK_INTERVAL;
                self.commands.set_time(now);
                if self.commands.is_overdue() {
                    return Err(Loss::Overdue);
                }
            }
        }
    }

    /// Takes requests out of the inbox, and starts those for which there is room. Whether more may come.
    fn admit(&mut self) -> bool {
        let may_come = self.inbox.take(&mut self.taken);
        self.waiting.extend(self.taken.drain(..));
        while self.commands.has_room() {
            let Some(job) = self.waiting.pop_front() else { break };
            self.commands.add(job);
        }
        may_come
    }

    /// Sends what the socket takes. Whether it has taken anything.
    fn send(&mut self, connection: &mut Connection) -> Result<bool, Loss> {
        let mut has_sent = false;
        while self.commands.has_to_send() || connection.has_unsent() {
            let mut slices = ArrayVec::new();
            self.commands.gather(&mut slices);
            let sent = match connection.write_now(&slices) {
                Err(error) if looked_up(&error) => break,
                other => other?,
            };
            drop(slices);
            self.commands.sent(sent);
            has_sent = true;
        }
        Ok(has_sent)
    }

    /// Receives once, and ends the requests that are answered. Whether anything was there.
    fn receive(&mut self, connection: &mut Connection) -> Result<bool, Loss> {
        let direct = self.commands.room().filter(|room| room.len() >= DIRECT_BYTES);
        let is_direct = direct.is_some();
        let len = match connection.read_now(direct.unwrap_or(&mut self.received)) {
            Ok(0) => return Err(Loss::Closed),
            Ok(len) => len,
            Err(error) if looked_up(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let received = if is_direct {
            self.commands.filled(len, &mut self.ended)
        } else {
            self.commands.receive(&self.received[..len], &mut self.ended)
        };
        // What was answered before an error is answered.
        let mut ended = std::mem::take(&mut self.ended);
        ended.drain(..).for_each(|ended| self.end(ended));
        self.ended = ended;
        Turn::part_ends();
        received?;
        Ok(true)
    }

    /// Ends a request that the server has answered.
    fn end(&self, ended: Ended<Owner>) {
        let Ended { op, owner, result } = ended;
        let result = match result {
            Ok(()) => self.durability.succeeded(&op, owner.flush, self.connection),
            Err(Failed { errno, is_flush: true }) => Err(self.durability.flush_failed(system_error(errno))),
            Err(Failed { errno, .. }) => Err(store_error(errno)),
        };
        owner.done.complete(Outcome::of(op, result));
    }

    /// Waits for requests, and for the connection.
    fn wait(&self, connection: Option<&Connection>, limit: Option<Duration>) -> io::Result<()> {
        if !self.inbox.fall_asleep() {
            return Ok(());
        }
        let mut fds = ArrayVec::<PollFd<'_>, 2>::new();
        fds.push(PollFd::new(&*self.inbox, PollFlags::IN));
        if let Some(connection) = connection {
            let has_to_send = self.commands.has_to_send() || connection.has_unsent();
            let out = if has_to_send { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::new(connection, PollFlags::IN | out));
        }
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let waited = poll(&mut fds, limit.as_ref());
        self.inbox.wake_up();
        match waited {
            Ok(_) | Err(SystemErrno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the connection again, however long that takes; `None` when no one needs it. Requests wait for it, for as
    /// long as they may, and then they fail.
    fn reconnect(&mut self, loss: &Loss) -> Option<Connection> {
        for job in self.commands.take_back().into_iter().rev() {
            if job.is_tried_out() {
                self.fail(job, loss);
            } else {
                self.waiting.push_front(job);
            }
        }
        let (mut pause, give_up) = (FIRST_RECONNECT_PAUSE, Instant::now() + self.patience);
        let mut told = None;
        loop {
            let error = match self.connect() {
                Ok(connection) => return Some(connection),
                Err(error) => error,
            };
            // Each change of the reason: an attempt follows every few seconds.
            let reason = error.to_string();
            if told.replace(reason.clone()) != Some(reason) {
                tracing::warn!(url = %self.url, %error, "no connection to the NBD server; it is tried again");
            }
            let until = Instant::now() + pause;
            pause = (pause * 2).min(MAX_RECONNECT_PAUSE);
            loop {
                let may_come = self.inbox.take(&mut self.taken);
                self.waiting.extend(self.taken.drain(..));
                let now = Instant::now();
                if now >= give_up || !may_come {
                    while let Some(job) = self.waiting.pop_front() {
                        self.fail(job, &error);
                    }
                }
                Turn::part_ends();
                if !may_come {
                    return None;
                }
                if now >= until {
                    break;
                }
                if let Err(error) = self.wait(None, Some(until - now)) {
                    tracing::debug!(%error, "a wait failed");
                }
            }
        }
    }

    fn connect(&mut self) -> Result<Connection, OpenError> {
        let (connection, agreed) = connect::open(&self.url, self.security.as_ref())?;
        let facts = Facts::new(&agreed, self.facts.read_only())?;
        self.facts.check_same(&facts)?;
        self.commands.begin(facts);
        Ok(connection)
    }

    /// Ends a request that the server could not be asked for.
    fn fail(&self, job: Job, why: &dyn std::fmt::Display) {
        let error = io::Error::new(io::ErrorKind::NotConnected, format!("{}: {why}", self.url));
        let is_flush = matches!(job.task.op, Op::Flush);
        let error = if is_flush { self.durability.flush_failed(error) } else { StoreError::Io(error) };
        job.owner.done.complete(Outcome::of(job.task.op, Err(error)));
    }
}

/// The error of the store for an error number of the server.
fn store_error(errno: Errno) -> StoreError {
    match errno {
        Errno::Perm => StoreError::ReadOnly,
        Errno::NoSpc => StoreError::NoSpace,
        _ => StoreError::Io(system_error(errno)),
    }
}

/// The error of the system with this number: the numbers of the protocol are those of Linux.
fn system_error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno as i32)
}

#[cfg(test)]
mod tests;
