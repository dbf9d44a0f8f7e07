//! All sessions at a standstill, so that another process can take the place of this one.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use lunette_handover as handover;
use lunette_reactor::Waker;

use super::{Asked, Control, Updates};

/// The time that cores have to answer when nothing holds them up: a batch of events is shorter.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the sessions did not come to a standstill. They go on as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StandstillError {
    /// Tasks, or other things that have begun, did not end in time.
    #[error("the sessions did not come to a standstill within {limit:?}: {}; try again", reasons.join(", "))]
    Busy {
        /// The things that did not end.
        reasons: Vec<String>,
        /// The time that it had.
        limit: Duration,
    },
    /// Another caller has asked for it, or the server has ended or is about to.
    #[error("the server is stopping, or its sessions stand still for another caller")]
    Unavailable,
}

/// A session that is left to another process.
#[derive(Debug)]
pub struct LeftSession {
    /// The state.
    pub value: handover::Session,
    /// The sockets of its connections, in their order.
    pub sockets: Vec<TcpStream>,
}

/// The mark of one standstill among all that are asked for.
#[derive(Debug)]
pub(crate) struct RestMark;

/// The words of a core on the way.
#[derive(Clone, Copy)]
pub(crate) enum Told {
    /// The number of cores that will say that they are at rest.
    Cores(usize),
    AtRest,
}

/// The part of one core.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) sessions: Vec<LeftSession>,
    pub(crate) listeners: Vec<TcpListener>,
    /// Sessions that end with this process.
    pub(crate) lost: usize,
}

/// Sessions on their way to a standstill. Dropped, they go on.
#[must_use = "sessions go on when it is dropped"]
pub struct PendingStandstill {
    hold: Hold,
    told: Receiver<Told>,
    cores: Option<usize>,
    at_rest: usize,
    parts: Option<(Receiver<Part>, Vec<Part>)>,
}

/// All sessions, at a standstill: no task has begun that has not ended, and nothing is read or sent. Dropped, they go
/// on.
#[must_use = "sessions go on when it is dropped"]
pub struct Standstill {
    hold: Hold,
    sessions: Vec<LeftSession>,
    listeners: Vec<TcpListener>,
    lost: usize,
}

/// Lets sessions go on when it is dropped.
struct Hold {
    updates: Arc<Updates>,
    waker: Waker,
    mark: Arc<RestMark>,
    began: Instant,
    is_taken: bool,
}

impl Hold {
    fn go_on(&self, reasons: Option<Sender<Vec<String>>>) {
        // A server that has ended has nothing to go on with.
        if self.updates.push(Asked::GoOn(Arc::clone(&self.mark), reasons)).is_ok() {
            self.waker.wake();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_taken {
            self.go_on(None);
        }
    }
}

impl Control {
    /// Brings all sessions to a standstill, within `limit`. It waits for all cores, so it must not be called on a
    /// thread of the server.
    ///
    /// No request is begun from now on. The tasks that have begun end as always, with data that their initiators still
    /// have to send. Initiators notice nothing but the pause.
    ///
    /// # Errors
    ///
    /// [`StandstillError`]; then everything goes on.
    pub fn stand_still(&self, limit: Duration) -> Result<Standstill, StandstillError> {
        self.begin_standstill()?.wait(limit)
    }

    /// Begins a standstill, for callers that cannot wait here.
    ///
    /// # Errors
    ///
    /// [`StandstillError::Unavailable`].
    pub fn begin_standstill(&self) -> Result<PendingStandstill, StandstillError> {
        let (tell, told) = channel();
        let mark = Arc::new(RestMark);
        self.updates.push(Asked::ComeToRest(Arc::clone(&mark), tell)).map_err(|_| StandstillError::Unavailable)?;
        self.waker.wake();
        let (updates, waker) = (Arc::clone(&self.updates), self.waker.clone());
        let hold = Hold { updates, waker, mark, began: Instant::now(), is_taken: false };
        Ok(PendingStandstill { hold, told, cores: None, at_rest: 0, parts: None })
    }
}

impl PendingStandstill {
    /// Waits for the standstill, for `limit` since the beginning at most.
    ///
    /// # Errors
    ///
    /// [`StandstillError`]; then everything goes on.
    pub fn wait(mut self, limit: Duration) -> Result<Standstill, StandstillError> {
        while !self.is_at_rest() {
            match self.told.recv_timeout(limit.saturating_sub(self.hold.began.elapsed())) {
                Ok(told) => self.heard(told),
                Err(RecvTimeoutError::Timeout) => return Err(self.give_up(limit)),
                Err(RecvTimeoutError::Disconnected) => return Err(StandstillError::Unavailable),
            }
        }
        let (parts, mut all) = self.collect()?;
        while all.len() < self.cores.unwrap_or(0) {
            all.push(parts.recv_timeout(ANSWER_TIMEOUT).map_err(|_| StandstillError::Unavailable)?);
        }
        Ok(self.into_standstill(all))
    }

    /// The standstill, if it is there by now.
    ///
    /// # Errors
    ///
    /// The standstill that is under way, or `None` when the server has ended.
    #[expect(clippy::result_large_err, reason = "what is under way is no error, and goes back to its owner")]
    pub fn poll(mut self) -> Result<Standstill, Option<Self>> {
        while !self.is_at_rest() {
            match self.told.try_recv() {
                Ok(told) => self.heard(told),
                Err(TryRecvError::Empty) => return Err(Some(self)),
                Err(TryRecvError::Disconnected) => return Err(None),
            }
        }
        let Ok((parts, mut all)) = self.collect() else { return Err(None) };
        all.extend(parts.try_iter());
        if all.len() < self.cores.unwrap_or(0) {
            self.parts = Some((parts, all));
            return Err(Some(self));
        }
        Ok(self.into_standstill(all))
    }

    fn is_at_rest(&self) -> bool {
        self.cores.is_some_and(|cores| self.at_rest >= cores)
    }

    fn heard(&mut self, told: Told) {
        match told {
            Told::Cores(cores) => self.cores = Some(cores),
            Told::AtRest => self.at_rest += 1,
        }
    }

    /// Asks all cores for their sessions, once. It is asked when all are at rest: until then, a task of one core may
    /// change what sessions of another one have to be told.
    fn collect(&mut self) -> Result<(Receiver<Part>, Vec<Part>), StandstillError> {
        if let Some(asked) = self.parts.take() {
            return Ok(asked);
        }
        let (answer, parts) = channel();
        self.hold.updates.push(Asked::HandOver(answer)).map_err(|_| StandstillError::Unavailable)?;
        self.hold.waker.wake();
        Ok((parts, Vec::new()))
    }

    fn into_standstill(self, parts: Vec<Part>) -> Standstill {
        let mut standstill = Standstill { hold: self.hold, sessions: Vec::new(), listeners: Vec::new(), lost: 0 };
        for part in parts {
            standstill.sessions.extend(part.sessions);
            standstill.listeners.extend(part.listeners);
            standstill.lost += part.lost;
        }
        standstill
    }

    fn give_up(mut self, limit: Duration) -> StandstillError {
        let (tell, told) = channel();
        self.hold.is_taken = true;
        self.hold.go_on(Some(tell));
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let next = || told.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        StandstillError::Busy { reasons: std::iter::from_fn(next).flatten().collect(), limit }
    }
}

impl Standstill {
    /// The sessions that another process can go on with. Taken out, they still go on here when this is dropped.
    pub fn take_sessions(&mut self) -> Vec<LeftSession> {
        std::mem::take(&mut self.sessions)
    }

    /// The sockets of the portals.
    pub fn listeners(&self) -> &[TcpListener] {
        &self.listeners
    }

    /// How many sessions end with this process: those within TLS, over datagrams, with markers, and of clients that
    /// this process speaks for.
    pub fn lost(&self) -> usize {
        self.lost
    }

    /// When requests were kept waiting from. Until the sessions go on it is the pause that initiators notice.
    pub fn began(&self) -> Instant {
        self.hold.began
    }

    /// Another process goes on with the sessions: here they never do, and [`Server::run`](crate::Server::run) returns.
    /// Nothing is flushed, and no initiator is told anything.
    pub fn taken(mut self) {
        self.hold.is_taken = true;
        // A server that has ended has nothing to leave.
        if self.hold.updates.push(Asked::Leave(Arc::clone(&self.hold.mark))).is_ok() {
            self.hold.waker.wake();
        }
    }
}
