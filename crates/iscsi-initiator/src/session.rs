//! The handles of callers: an event loop and its sessions.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use lunette_buffer::{Buffer, Pool, Trimmer};
use lunette_ecl_endpoint::Config as DatagramConfig;
use lunette_pdu::LunField;
use lunette_reactor::{Counts, CountsView, LoopConfig, Reactor, Turn};
use lunette_scsi::Lun;
use lunette_session::iscsi_initiator::Recoveries;
use lunette_session::keys::Parameters;
use lunette_session::{SharedTraffic, Traffic};

use crate::Error;
use crate::engine::Engine;
use crate::engine::host::Host;
use crate::engine::message::{Done, Message, Opened, Question};
use crate::engine::queue::{Owner, Queue};
use crate::limits::{DEFAULT_BUFFER_BYTES, MAX_REQUEST_BYTES};
use crate::options::Options;
use crate::pending::{Answer, Filler, Slot};
use crate::portal::Portal;
use crate::request::{Completion, Outcome, Request, RequestId, Sink, Submission};
use crate::session_event::Observation;

/// An event loop on a thread of its own, which serves any number of sessions. Clones are handles to the same; it ends
/// with the last handle, those of sessions and disks included.
#[derive(Clone)]
pub struct Initiator(Arc<Running>);

pub(crate) struct Running {
    pub(crate) queue: Arc<Queue>,
    pub(crate) pool: Pool,
    pub(crate) counts: CountsView,
    pub(crate) traffic: Arc<SharedTraffic>,
    /// `None` when its caller steps the event loop.
    pub(crate) thread: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl Initiator {
    pub(crate) fn of(running: Running) -> Self {
        Self(Arc::new(running))
    }

    /// Starts a thread with an event loop, and a pool of [`DEFAULT_BUFFER_BYTES`].
    ///
    /// # Errors
    ///
    /// [`Error::Reactor`].
    pub fn start() -> Result<Self, Error> {
        Self::with_buffers(DEFAULT_BUFFER_BYTES)
    }

    /// Starts an event loop with a pool of `buffer_bytes` for data in flight.
    ///
    /// # Errors
    ///
    /// [`Error::Reactor`].
    pub fn with_buffers(buffer_bytes: usize) -> Result<Self, Error> {
        Self::with(buffer_bytes, LoopConfig::default())
    }

    /// Starts an event loop that runs as `config` says, with a pool of `buffer_bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::Reactor`], also when the system does not support or allow the backend of `config`.
    pub fn with(buffer_bytes: usize, config: impl Into<LoopConfig>) -> Result<Self, Error> {
        let failed = |error| Error::Reactor(Arc::new(error));
        let config = config.into();
        let (started, start) = mpsc::channel();
        let traffic = Arc::new(SharedTraffic::default());
        let counted = Arc::clone(&traffic);
        let pool = Pool::trimmed(buffer_bytes);
        let pool_of_loop = pool.clone();
        let thread = thread::Builder::new()
            .name("lunette-client".into())
            .spawn(move || run(config, &started, counted, &pool_of_loop))
            .map_err(failed)?;
        let (queue, counts) =
            start.recv().map_err(|_| failed(io::Error::other("its thread ended")))?.map_err(failed)?;
        Ok(Self(Arc::new(Running { queue, pool, counts, traffic, thread: Mutex::new(Some(thread)) })))
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.0.queue
    }

    /// The pool of all buffers of this event loop.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Counters of the event loop since its start: batches, system calls, bytes.
    pub fn counts(&self) -> Counts {
        self.0.counts.counts()
    }

    /// Counters of all sessions since the start: PDUs and copies.
    pub fn traffic(&self) -> Traffic {
        self.0.traffic.read()
    }
}

/// The main function of the event loop's thread. The reactor is made on the thread that it runs on; `started` takes the
/// queue to the thread that started it.
fn run(
    config: LoopConfig,
    started: &mpsc::Sender<io::Result<(Arc<Queue>, CountsView)>>,
    traffic: Arc<SharedTraffic>,
    pool: &Pool,
) -> io::Result<()> {
    let (_warm, trimmer) = (pool.keep_warm(), Trimmer::new(pool.clone()));
    let mut reactor = match Reactor::with(config) {
        Ok(reactor) => reactor,
        Err(error) => {
            let _ = started.send(Err(error));
            return Ok(());
        }
    };
    let queue = Queue::new(reactor.waker());
    let engine = Engine::new(Arc::clone(&queue), traffic, trimmer, Instant::now(), Host::system());
    let mut endpoint = engine.on_endpoint(DatagramConfig::default());
    let _ = started.send(Ok((queue, reactor.counts())));
    // A batch is a turn: what its completions put off is done at its end.
    let _turn = Turn::begin();
    let ended = catch_unwind(AssertUnwindSafe(|| reactor.run(&mut endpoint)));
    // A completion or a listener of the caller may have panicked. Requests that are under way end all the same.
    endpoint.upper_mut().end();
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

impl Drop for Running {
    fn drop(&mut self) {
        self.queue.push(Message::Stop);
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // No caller is left to take the result.
            let _ = thread.join();
        }
    }
}

/// A session with one target. Clones are handles to the same; the last one logs out when it is dropped.
///
/// A session that loses its connection makes a new one and sends again what may be sent again (see
/// [`Repeat`](crate::Repeat)), for as long as [`Options::reconnect_for`] says.
#[derive(Clone)]
pub struct Session(Arc<Handle>);

struct Handle {
    /// Closes the session. Declared before `initiator`, so it is dropped before the event loop.
    owner: Owner,
    initiator: Initiator,
    next_request: AtomicU64,
    parameters: Parameters,
    target_alias: Option<String>,
    portal_group: Option<u16>,
}

impl Session {
    /// Logs in to `target` at `portal`.
    ///
    /// # Errors
    ///
    /// [`Error::Connect`], [`Error::Session`] and [`Error::TooManyRedirects`]. A first attempt that fails is not
    /// repeated.
    pub async fn connect(
        initiator: &Initiator,
        portal: &Portal,
        target: &str,
        options: Options,
    ) -> Result<Self, Error> {
        Self::open(initiator, portal, Some(target.into()), options).await
    }

    pub(crate) async fn open(
        initiator: &Initiator,
        portal: &Portal,
        target: Option<String>,
        options: Options,
    ) -> Result<Self, Error> {
        let opened = ask(&initiator.0.queue, |done| Message::Open {
            portal: portal.clone(),
            target,
            options: Arc::new(options),
            done,
        });
        let Opened { owner, parameters, target_alias, portal_group } = opened.await?;
        let (initiator, next_request) = (initiator.clone(), AtomicU64::new(0));
        Ok(Self(Arc::new(Handle { owner, initiator, next_request, parameters, target_alias, portal_group })))
    }

    /// The parameters that were negotiated at the first login.
    pub fn parameters(&self) -> &Parameters {
        &self.0.parameters
    }

    /// TargetAlias, if the target has one.
    pub fn target_alias(&self) -> Option<&str> {
        self.0.target_alias.as_deref()
    }

    /// TargetPortalGroupTag of the first login.
    pub fn target_portal_group(&self) -> Option<u16> {
        self.0.portal_group
    }

    /// The event loop of this session.
    pub fn initiator(&self) -> &Initiator {
        &self.0.initiator
    }

    /// A buffer for data of a request.
    ///
    /// # Errors
    ///
    /// [`Error::NoBuffer`], and [`Error::TooMuch`] above [`MAX_REQUEST_BYTES`].
    pub fn buffer(&self, len: usize) -> Result<Buffer, Error> {
        self.get(len, Pool::take)
    }

    /// A buffer for Data-In that gets its memory when the data comes ([`Pool::reserve`]).
    ///
    /// # Errors
    ///
    /// The errors of [`buffer`](Self::buffer).
    pub fn reserve(&self, len: usize) -> Result<Buffer, Error> {
        self.get(len, Pool::reserve)
    }

    fn get(&self, len: usize, from: impl FnOnce(&Pool, usize) -> Option<Buffer>) -> Result<Buffer, Error> {
        if len > MAX_REQUEST_BYTES {
            return Err(Error::TooMuch { what: "the length of a request", limit: MAX_REQUEST_BYTES });
        }
        from(self.0.initiator.pool(), len).ok_or(Error::NoBuffer { len })
    }

    /// Sends a command; `completion` is told of its end. Neither allocates nor waits, so it is the fastest way to send
    /// one.
    pub fn submit(&self, request: Request, completion: Completion) {
        self.push_request(request, completion);
    }

    fn push_request(&self, request: Request, completion: Completion) -> RequestId {
        let id = RequestId(self.0.next_request.fetch_add(1, Ordering::Relaxed));
        let session = self.0.owner.key;
        let make = || Message::Submit { session, submission: Submission::new(id, request, completion) };
        self.0.initiator.0.queue.push_with(make);
        id
    }

    /// Sends a command at once, and gives a future of its end. Dropping the future aborts the task; the session keeps
    /// the buffers until the target no longer uses them.
    pub fn execute(&self, request: Request) -> Pending {
        let slot = Slot::new();
        let sink: Arc<dyn Sink> = Arc::clone(&slot) as _;
        let id = self.push_request(request, Completion::new(sink, 0));
        Pending { session: self.clone(), slot, id, done: false }
    }

    /// Sends `data` in a NOP-Out and waits for the echo. `false` when other bytes came back.
    ///
    /// # Errors
    ///
    /// [`Error::Session`] when the session has no connection, or loses it before the answer; [`Error::TimedOut`].
    pub async fn ping(&self, data: Vec<u8>) -> Result<bool, Error> {
        self.question(|done| Question::Ping { data, done }).await
    }

    /// Sends keys in a Text Request, and gives the keys of the response.
    ///
    /// # Errors
    ///
    /// [`Error::Session`] when the session has no connection, or loses it before the answer; [`Error::TimedOut`].
    pub async fn text(&self, pairs: Vec<(String, String)>) -> Result<Vec<(String, String)>, Error> {
        self.question(|done| Question::Text { pairs, done }).await
    }

    /// Counts of what was lost in transit and recovered, by kind, since the session was opened; zero at recovery
    /// level 0.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] when the event loop has ended.
    pub async fn recoveries(&self) -> Result<Recoveries, Error> {
        let session = self.0.owner.key;
        ask(&self.0.initiator.0.queue, |done| Message::Recoveries { session, done }).await
    }

    /// How the session stands: its TCP connections and its command window. Empty while it has no connection.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] when the event loop has ended.
    pub async fn observe(&self) -> Result<Observation, Error> {
        let session = self.0.owner.key;
        ask(&self.0.initiator.0.queue, |done| Message::Observe { session, done }).await
    }

    /// Counts up `power_ons` whenever the logical unit reports that it was powered on.
    pub(crate) fn watch(&self, lun: Lun, power_ons: &Arc<AtomicU64>) {
        let (lun, power_ons) = (LunField(lun.encode()), Arc::downgrade(power_ons));
        self.push(Message::Watch { session: self.0.owner.key, lun, power_ons });
    }

    /// Logs out and closes the session. Requests under way end with [`Error::Closed`].
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] when the event loop has ended. The session is over in any case.
    pub async fn close(self) -> Result<(), Error> {
        let key = self.0.owner.key;
        ask(&self.0.initiator.0.queue, |done| Message::Close { session: key, done: Some(done) }).await
    }

    pub(crate) async fn question<T: Send + 'static>(
        &self,
        question: impl FnOnce(Done<T>) -> Question,
    ) -> Result<T, Error> {
        let session = self.0.owner.key;
        ask(&self.0.initiator.0.queue, |done| Message::Ask { session, question: question(done) }).await
    }

    fn push(&self, message: Message) {
        self.0.initiator.0.queue.push(message);
    }
}

/// Sends a message and waits for its `done`.
fn ask<T: Send + 'static>(
    queue: &Arc<Queue>,
    message: impl FnOnce(Done<T>) -> Message,
) -> impl Future<Output = Result<T, Error>> {
    let slot = Slot::new();
    let filler = Filler(Arc::clone(&slot));
    queue.push(message(Box::new(move |result| filler.fill(result))));
    Answer(slot)
}

/// A future of the end of a command that was sent.
#[must_use = "dropping it aborts the command"]
pub struct Pending {
    pub(crate) session: Session,
    slot: Arc<Slot<Outcome>>,
    pub(crate) id: RequestId,
    done: bool,
}

impl Pending {
    /// A future of what fills `slot`. There is no task of `session` to be aborted.
    pub(crate) fn without_task(session: Session, slot: Arc<Slot<Outcome>>) -> Self {
        Self { session, slot, id: RequestId::NONE, done: false }
    }
}

impl Future for Pending {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let polled = self.slot.poll(cx);
        self.done |= polled.is_ready();
        polled
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.done && self.slot.is_empty() {
            self.session.push(Message::Cancel { session: self.session.0.owner.key, id: self.id });
        }
    }
}
