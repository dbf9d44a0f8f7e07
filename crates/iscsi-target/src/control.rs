//! Changing a server while it runs.

mod freeze;
mod standstill;

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lunette_device::{BackgroundTask, LogicalUnit, PortGroupsChange, TargetDevice};
use lunette_reactor::Waker;
use lunette_scsi::Lun;
use lunette_session::Authentication;
use lunette_tls::Peer;

use crate::config::{BindError, DatagramPortalConfig, PortalConfig, TargetConfig, check_targets};
use crate::sessions::{HostRequest, SessionQuery, SessionStatus};
pub(crate) use freeze::{Asker, FreezeAnswer, FreezeQuestion};
pub use freeze::{FreezeError, Frozen, PendingFreeze};
pub use standstill::{LeftSession, PendingStandstill, Standstill, StandstillError};
pub(crate) use standstill::{Part, RestMark, Told};

/// The longest time that all cores have to answer a question about sessions. A batch of events is shorter.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The targets and disks that a server is to serve from now on.
///
/// Sessions that it does not concern see nothing of it. The others are told by unit attention and by asynchronous
/// message, or are asked to log out: those of a target that goes, and of an initiator that its target admits no longer.
pub struct Update {
    /// Where to listen. Portals that are open already stay open; sessions that came through one that goes stay too.
    pub portals: Vec<PortalConfig>,
    /// Where to answer associations of the Effective Cross Layer. The same goes for these; the socket of one that goes
    /// is closed when the last of its sessions has ended.
    pub datagram_portals: Vec<DatagramPortalConfig>,
    /// Leaves a portal closed that cannot be opened, and applies the rest. The next update tries it again.
    pub leaves_closed: bool,
    /// Portals without which nothing is applied, although others may be closed.
    pub required_portals: Vec<PortalConfig>,
    /// All targets. Those that stay bring the device that they have.
    pub targets: Vec<TargetConfig>,
    /// How initiators prove themselves for a discovery session.
    pub discovery: Authentication,
    /// Other target port groups of targets that stay.
    pub port_groups: Vec<PortGroupsChange>,
    /// Logical units of targets that stay. The stores of those that go are flushed when their last command has ended.
    pub units: Vec<UnitChange>,
    /// Logical units whose stores grow.
    pub growth: Vec<Growth>,
}

/// Where a server listens after an update.
#[derive(Debug)]
pub struct Listening {
    /// The addresses, in the order of the update.
    pub portals: Vec<SocketAddr>,
    /// The portals that are closed, because they cannot be opened.
    pub closed: Vec<BindError>,
}

/// A logical unit whose store grows, or gets shorter.
pub struct Growth {
    /// The unit.
    pub unit: Arc<LogicalUnit>,
    /// Lets its store serve the new length. Called on the server's thread, so it must not wait for anything.
    pub grow: Box<dyn FnOnce() + Send>,
}

/// A logical unit that comes, goes, or takes the place of another.
pub struct UnitChange {
    /// The target.
    pub device: Arc<TargetDevice>,
    /// The number of the LUN.
    pub lun: Lun,
    /// The unit of the number from now on; `None` for nothing.
    pub unit: Option<Arc<LogicalUnit>>,
}

/// A connection that another front end of this process has made, for an initiator that it speaks for.
#[derive(Debug)]
pub struct Adopted {
    /// The target's end: of TCP, or of a pair of sockets.
    pub stream: TcpStream,
    /// Where the initiator is. Rules for networks go by it.
    pub peer: SocketAddr,
    /// Where it came in.
    pub local: SocketAddr,
    /// The certificate that it has shown to the front end.
    pub certificate: Option<Peer>,
}

/// An initiator that another front end speaks for.
#[derive(Debug)]
pub struct Viewer {
    /// The iSCSI name.
    pub initiator: String,
    /// Where it is.
    pub peer: IpAddr,
    /// The certificate that it has shown.
    pub certificate: Option<Peer>,
}

/// A logical unit that an initiator would see.
pub struct Seen {
    /// The name of its target.
    pub target: String,
    /// The number under which the initiator would see it.
    pub lun: Lun,
    /// The unit.
    pub unit: Arc<LogicalUnit>,
}

/// Why an update was not applied. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// A portal cannot be opened, or the targets contradict each other.
    #[error(transparent)]
    Refused(#[from] BindError),
    /// A logical unit that goes is being sanitized, which another unit over its store would know nothing of.
    #[error("target {target}: LUN {lun} is being sanitized; change it when that has ended")]
    Sanitizing {
        /// The target.
        target: String,
        /// The number of the unit.
        lun: Lun,
    },
    /// The server has ended, or is about to.
    #[error("the server is stopping")]
    Stopping,
}

/// Changes a [`Server`](crate::Server) that runs, from any other thread.
#[derive(Clone)]
pub struct Control {
    updates: Arc<Updates>,
    waker: Waker,
}

impl Control {
    pub(crate) fn new(updates: Arc<Updates>, waker: Waker) -> Self {
        Self { updates, waker }
    }

    /// Applies an update as a whole, or not at all. Gives the addresses that are listened on then. Waits for the
    /// server's thread; what has to be waited for longer (logouts, flushes) goes on behind it.
    ///
    /// # Errors
    ///
    /// [`UpdateError`]; then nothing has changed.
    pub fn apply(&self, update: Update) -> Result<Listening, UpdateError> {
        self.begin(update)?.wait()
    }

    /// Begins an update, for callers that cannot wait here: [`apply`](Self::apply) on the server's own thread would
    /// never end.
    ///
    /// # Errors
    ///
    /// [`UpdateError`]; then nothing has changed.
    pub fn begin(&self, update: Update) -> Result<PendingUpdate, UpdateError> {
        check_targets(&update.targets, &update.discovery)?;
        let (answer, answered) = channel();
        self.updates.push(Asked::Update { update: Box::new(update), answer })?;
        self.waker.wake();
        Ok(PendingUpdate(answered))
    }

    /// Lets the stores of logical units serve another length, and tells initiators. All else stays as it is. Waits for
    /// the server's thread.
    ///
    /// # Errors
    ///
    /// [`UpdateError::Stopping`]; then nothing has changed.
    pub fn grow(&self, growth: Vec<Growth>) -> Result<(), UpdateError> {
        let (answer, answered) = channel();
        self.updates.push(Asked::Growth { growth, answer })?;
        self.waker.wake();
        PendingUpdate(answered).wait().map(drop)
    }

    /// All sessions that are in the full feature phase or about to be, in the order of their targets, initiators and
    /// numbers. Waits for all cores.
    ///
    /// # Errors
    ///
    /// [`UpdateError::Stopping`].
    pub fn sessions(&self) -> Result<Vec<SessionStatus>, UpdateError> {
        let mut list = self.ask(SessionQuery::List)?;
        list.sort_by(|a, b| (&a.target, &a.initiator, a.tsih).cmp(&(&b.target, &b.initiator, b.tsih)));
        Ok(list)
    }

    /// Asks the initiator of a session to log out, and ends the session when it does not within the grace period of a
    /// stop. Whether there is such a session. Its initiator may log in again at once: rules keep it out, not this.
    ///
    /// # Errors
    ///
    /// [`UpdateError::Stopping`].
    pub fn end_session(&self, tsih: u16) -> Result<bool, UpdateError> {
        Ok(!self.ask(|found| SessionQuery::End { tsih, found })?.is_empty())
    }

    /// Refuses the logins that wait for a host, which cannot be made now: SERVICE UNAVAILABLE. Their initiator may try
    /// again.
    ///
    /// # Errors
    ///
    /// [`UpdateError::Stopping`].
    pub fn refuse_host(&self, request: HostRequest) -> Result<(), UpdateError> {
        self.updates.push(Asked::RefuseHost(request))?;
        self.waker.wake();
        Ok(())
    }

    /// The logical units that an initiator would see if it logged in without CHAP. No login is made for it.
    ///
    /// # Errors
    ///
    /// [`UpdateError::Stopping`].
    pub fn view(&self, viewer: Viewer) -> Result<Vec<Seen>, UpdateError> {
        let (answer, answered) = channel();
        self.updates.push(Asked::View { viewer, answer })?;
        self.waker.wake();
        answered.recv_timeout(QUERY_TIMEOUT).map_err(|_| UpdateError::Stopping)
    }

    /// Takes on a connection as if it had come in at the first portal: it logs in, and the rules for hosts hold.
    ///
    /// # Errors
    ///
    /// [`UpdateError::Stopping`]; then the connection is closed.
    pub fn adopt(&self, connection: Adopted) -> Result<(), UpdateError> {
        self.updates.push(Asked::Adopt(connection))?;
        self.waker.wake();
        Ok(())
    }

    /// Drives background work of a unit to its end, on the first core. A server that stops drops it.
    ///
    /// # Errors
    ///
    /// [`UpdateError::Stopping`]; then the work is dropped.
    pub fn run_background(&self, task: BackgroundTask) -> Result<(), UpdateError> {
        self.updates.push(Asked::Background(task))?;
        self.waker.wake();
        Ok(())
    }

    /// Whether the server takes changes: it has not ended.
    pub fn is_open(&self) -> bool {
        !self.updates.queue().closed
    }

    /// The answers of all cores.
    fn ask<T>(&self, query: impl FnOnce(Sender<T>) -> SessionQuery) -> Result<Vec<T>, UpdateError> {
        let (answer, answers) = channel();
        self.updates.push(Asked::Sessions(query(answer)))?;
        self.waker.wake();
        let deadline = Instant::now() + QUERY_TIMEOUT;
        let next = || answers.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        Ok(std::iter::from_fn(next).collect())
    }
}

/// An update that the server's thread has not answered yet.
pub struct PendingUpdate(Receiver<Result<Listening, UpdateError>>);

impl PendingUpdate {
    /// Waits for the server's thread.
    ///
    /// # Errors
    ///
    /// The errors of [`Control::apply`].
    pub fn wait(self) -> Result<Listening, UpdateError> {
        // A server that ends drops what it has not answered.
        self.0.recv().unwrap_or(Err(UpdateError::Stopping))
    }

    /// The answer, if it has come; `None` before.
    pub fn poll(&self) -> Option<Result<Listening, UpdateError>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(UpdateError::Stopping)),
        }
    }
}

/// A request to the server's thread, and the place of its answer.
pub(crate) enum Asked {
    Update {
        update: Box<Update>,
        answer: UpdateAnswer,
    },
    Growth {
        growth: Vec<Growth>,
        answer: UpdateAnswer,
    },
    Sessions(SessionQuery),
    RefuseHost(HostRequest),
    Freeze(FreezeQuestion),
    Background(BackgroundTask),
    Adopt(Adopted),
    View {
        viewer: Viewer,
        answer: Sender<Vec<Seen>>,
    },
    ComeToRest(Arc<RestMark>, Sender<Told>),
    HandOver(Sender<Part>),
    /// Another process has taken the sessions.
    Leave(Arc<RestMark>),
    /// The sender learns what kept sessions from a standstill.
    GoOn(Arc<RestMark>, Option<Sender<Vec<String>>>),
}

/// Where the result of an update goes.
pub(crate) type UpdateAnswer = Sender<Result<Listening, UpdateError>>;

/// Updates on their way to the server's thread.
#[derive(Default)]
pub(crate) struct Updates {
    /// All that the server's thread reads while there is none.
    waiting: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    asked: Vec<Asked>,
    closed: bool,
}

impl Updates {
    fn push(&self, asked: Asked) -> Result<(), UpdateError> {
        let mut queue = self.queue();
        if queue.closed {
            return Err(UpdateError::Stopping);
        }
        queue.asked.push(asked);
        self.waiting.store(true, Ordering::Release);
        Ok(())
    }

    /// The requests since the last call; while sessions stand still, those alone that concern that.
    pub(crate) fn take(&self, stands_still: bool) -> Vec<Asked> {
        if !self.waiting.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut queue = self.queue();
        if stands_still {
            let concerns = |asked: &mut Asked| match asked {
                Asked::ComeToRest(..) | Asked::HandOver(_) | Asked::GoOn(..) | Asked::Leave(_) => true,
                Asked::Update { .. }
                | Asked::Growth { .. }
                | Asked::Sessions(_)
                | Asked::RefuseHost(_)
                | Asked::Freeze(_)
                | Asked::Background(_)
                | Asked::Adopt(_)
                | Asked::View { .. } => false,
            };
            return queue.asked.extract_if(.., concerns).collect();
        }
        self.waiting.store(false, Ordering::Release);
        std::mem::take(&mut queue.asked)
    }

    fn close(&self) {
        let asked = {
            let mut queue = self.queue();
            queue.closed = true;
            std::mem::take(&mut queue.asked)
        };
        // Without the lock: the owner of work that is dropped may ask for other work.
        drop(asked);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by the server: when it is dropped, updates that were not applied end with [`UpdateError::Stopping`].
pub(crate) struct UpdatesEnd(pub(crate) Arc<Updates>);

impl Drop for UpdatesEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}
