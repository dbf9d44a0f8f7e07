//! The initiators as they ship, stepped under the virtual clock: sessions are opened and kept open, and put load on the
//! target.

mod answers;
mod load;
mod management;
mod reader;
mod reservations;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use lunette_initiator::stepped::{Dial, SteppedLoop};
use lunette_initiator::{ClientTls, Error, Initiator, Options, Outcome, Portal, RandomBytes, Session, SessionError};
use lunette_pdu::Isid;
use lunette_reactor::{CarriedDatagram, DatagramFailure, DatagramPath, DatagramSocketId, Ecn};
use lunette_scsi::{Cdb, Lun};

use self::management::Asked;
use self::reservations::{Change, Reservation};
use crate::certificates::{Certificates, TARGET_ADDRESS};
use crate::datagrams::target_address;
use crate::dice::Dice;
use crate::env::{Env, Happening};
use crate::fault::Fault;
use crate::network::Network;
use crate::oracle::{Extent, Submission, User};
use crate::scenario::{Scenario, TARGET, UNITS, name};
use crate::server::Server;
use crate::store::Stores;
use crate::wire::Side;

/// Bytes of data that the initiators have at a time: more than any run needs.
const POOL_BYTES: usize = 256 << 20;

/// Before a session is opened again.
const PAUSE_US: u64 = 200_000;

/// How far the run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Load.
    Load,
    /// Everything is read once more.
    Check,
    /// The last sessions are on their way out.
    Leaving,
    Done,
}

/// The news of an event loop between two checks.
enum Told {
    Ended(User, Outcome),
    Connected(usize),
    /// A unit says that it was reset.
    Reset(usize, Lun),
    /// A connection or a session was lost.
    Lost(SessionError),
    /// The session is over for good.
    Over(usize, Error),
}

type Inbox<T> = Arc<Mutex<Vec<T>>>;

fn take<T>(inbox: &Inbox<T>) -> Vec<T> {
    std::mem::take(&mut inbox.lock().unwrap_or_else(PoisonError::into_inner))
}

fn put<T>(inbox: &Inbox<T>, item: T) {
    inbox.lock().unwrap_or_else(PoisonError::into_inner).push(item);
}

/// The result of a question.
enum Answer {
    Opened(usize, Result<Session, Error>),
    Managed(Asked, Result<lunette_pdu::TaskManagementResponseCode, Error>),
    Reserved(Change, Result<bool, Error>),
    /// A command that a host which may only read is refused, and its end.
    Refused(Cdb, Outcome),
    Pong(Result<bool, Error>),
    Text(Result<Vec<(String, String)>, Error>),
    Ended(User, Outcome),
    Closed(usize),
}

struct Question {
    /// The command that it waits for, which can be given up.
    user: Option<User>,
    answer: Pin<Box<dyn Future<Output = Answer>>>,
}

/// Tells that a future may go on.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// One initiator.
#[derive(Default)]
struct Client {
    session: Option<Session>,
    /// How it speaks TLS, if it does.
    tls: Option<ClientTls>,
    /// Whether its login or its logout is under way.
    is_busy: bool,
    /// How often it was logged in.
    connects: u32,
    /// How often each unit has said that it was reset.
    resets: BTreeMap<Lun, u32>,
}

pub(crate) struct Clients {
    // Sessions go before their event loop.
    all: Vec<Client>,
    questions: Vec<Question>,
    initiator: Initiator,
    event_loop: SteppedLoop,
    flag: Arc<Flag>,
    told: Inbox<Told>,
    new_dials: Inbox<Dial>,
    dials: BTreeMap<u64, Dial>,
    last_dial: u64,
    stage: Stage,
    /// Commands under way.
    open: BTreeMap<User, Submission>,
    issued: u32,
    reservations: [Reservation; UNITS],
    /// The extents that are still to be read at the end.
    to_check: VecDeque<Extent>,
    /// Faults that wait for commands to be issued.
    faults: Vec<Fault>,
}

impl Clients {
    pub(crate) fn new(env: &mut Env) -> Result<Self, Error> {
        let scenario = &env.scenario;
        let (blocks, step) = (scenario.load.blocks, scenario.load.longest);
        let of_unit =
            |unit| (0..blocks).step_by(step).map(move |first| Extent { unit, first, blocks: step.min(blocks - first) });
        let new_dials: Inbox<Dial> = Arc::default();
        let dialer = Arc::clone(&new_dials);
        let to_check = (0..UNITS).flat_map(of_unit).collect();
        let (faults, initiators) = (scenario.faults.clone(), scenario.initiators);
        let datagrams = scenario.air.datagrams();
        let tls = || env.certificates.as_ref().map(Certificates::client);
        let all = (0..initiators).map(|_| Client { tls: tls(), ..Client::default() }).collect();
        let entropy = entropy(env);
        let (event_loop, initiator) =
            SteppedLoop::new(POOL_BYTES, env.instant(), entropy, datagrams, move |dial| put(&dialer, dial))?;
        Ok(Self {
            all,
            questions: Vec::new(),
            initiator,
            event_loop,
            flag: Arc::default(),
            told: Arc::default(),
            new_dials,
            dials: BTreeMap::new(),
            last_dial: 0,
            stage: Stage::Load,
            open: BTreeMap::new(),
            issued: 0,
            reservations: [Reservation::default(); UNITS],
            to_check,
            faults,
        })
    }

    pub(crate) fn begin(&mut self, net: &mut Network, env: &mut Env) {
        self.arm_faults(net);
        for client in 0..self.all.len() {
            self.open(client, env);
            env.enter(env.now, Happening::Act(client));
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// The rest, in words.
    pub(crate) fn describe(&self) -> String {
        let open: Vec<User> = self.open.keys().copied().collect();
        let sessions = self.all.iter().filter(|client| client.session.is_some()).count();
        let (stage, questions, dials) = (self.stage, self.questions.len(), self.dials.len());
        format!("initiators: {stage:?}, {sessions} sessions, {dials} dials, commands {open:?}, {questions} questions")
    }

    pub(crate) fn bytes_in_use(&self) -> usize {
        self.initiator.pool().used_bytes()
    }

    fn arm_faults(&mut self, net: &mut Network) {
        let issued = self.issued;
        for fault in self.faults.extract_if(.., |fault| fault.after <= issued) {
            net.arm(fault);
        }
    }

    // Connections and sessions.

    /// Opens a session.
    pub(crate) fn open(&mut self, client: usize, env: &mut Env) {
        let leaves = matches!(self.stage, Stage::Leaving | Stage::Done);
        let slot = &mut self.all[client];
        if leaves || slot.session.is_some() || std::mem::replace(&mut slot.is_busy, true) {
            return;
        }
        env.note(|| format!("initiator {client} opens a session"));
        let options = self.options(client, &env.scenario);
        let initiator = self.initiator.clone();
        let portal = Portal::parse(TARGET_ADDRESS).expect("an address");
        self.ask(
            None,
            async move { Answer::Opened(client, Session::connect(&initiator, &portal, TARGET, options).await) },
        );
    }

    fn options(&self, client: usize, scenario: &Scenario) -> Options {
        let told = Arc::clone(&self.told);
        let mut options = Options::new(name(client));
        options.chap.clone_from(&scenario.chap);
        options.offer = scenario.offers.clone();
        options.timers = scenario.timers;
        options.transport = scenario.transport.of_initiator();
        options.tls.clone_from(&self.all[client].tls);
        options.request_timeout = Duration::from_mins(10);
        options.reconnect_for = Duration::from_mins(5);
        options.isid = Some(Isid::random(0x0012_3456, client as u16));
        options.listener = Some(Arc::new(move |event| {
            if let Some(news) = answers::news(client, event) {
                put(&told, news);
            }
        }));
        options
    }

    /// An attempt to connect has come to its end.
    pub(crate) fn dialed(&mut self, dial: u64, net: &mut Network, server: &mut Server, env: &mut Env) {
        let Some(dial) = self.dials.remove(&dial) else { return };
        if env.scenario.transport.is_of_datagrams() {
            return dial.end_with_association(target_address());
        }
        let streams = if server.is_up() { net.connect(env) } else { None };
        match streams {
            Some([target, initiator]) => {
                server.accept(target);
                dial.end(Ok(initiator));
            }
            None => dial.end(Err(io::ErrorKind::ConnectionRefused.into())),
        }
    }

    // Datagrams.

    pub(crate) fn arrive(&mut self, socket: DatagramSocketId, path: DatagramPath, ecn: Ecn, bytes: Vec<u8>) {
        self.event_loop.arrive(socket, path, ecn, bytes);
    }

    pub(crate) fn fail_datagram(&mut self, socket: DatagramSocketId, failure: DatagramFailure) {
        self.event_loop.fail_datagram(socket, failure);
    }

    pub(crate) fn take_datagrams(&mut self) -> Vec<CarriedDatagram> {
        self.event_loop.take_datagrams()
    }

    /// Associations, and handshakes of them.
    pub(crate) fn associations(&self) -> usize {
        self.event_loop.associations()
    }

    // Questions.

    fn ask(&mut self, user: Option<User>, answer: impl Future<Output = Answer> + 'static) {
        self.questions.push(Question { user, answer: Box::pin(answer) });
        self.flag.0.store(true, Ordering::Release);
    }

    /// The event loop takes a turn, and what it tells is looked at. `false` when no other turn is needed at this
    /// moment.
    pub(crate) fn turn(
        &mut self,
        next: &mut Option<Instant>,
        busy: &mut bool,
        net: &mut Network,
        stores: &mut Stores,
        env: &mut Env,
    ) -> bool {
        let mut moved = match self.event_loop.step(env.instant()) {
            Ok(step) => {
                *next = [*next, step.next].into_iter().flatten().min();
                *busy |= step.active;
                step.again
            }
            Err(error) => {
                env.fail(format!("the event loop of the initiators ends: {error}"));
                return true;
            }
        };
        for dial in take(&self.new_dials) {
            moved = true;
            self.last_dial += 1;
            self.dials.insert(self.last_dial, dial);
            let at = env.now + env.dice.micros(0, env.scenario.weather.latency_us);
            env.enter(at, Happening::Dialed(self.last_dial));
        }
        for told in take(&self.told) {
            moved = true;
            self.hear(told, net, env);
        }
        if self.flag.0.swap(false, Ordering::AcqRel) {
            moved = true;
            for answer in self.poll() {
                self.answered(answer, stores, env);
            }
        }
        self.end_stage(env);
        moved
    }

    fn poll(&mut self) -> Vec<Answer> {
        let waker = Waker::from(Arc::clone(&self.flag));
        let mut cx = Context::from_waker(&waker);
        let mut answers = Vec::new();
        self.questions.retain_mut(|question| match question.answer.as_mut().poll(&mut cx) {
            Poll::Ready(answer) => {
                answers.push(answer);
                false
            }
            Poll::Pending => true,
        });
        answers
    }

    /// Goes on to the next stage when nothing of one is left.
    fn end_stage(&mut self, env: &mut Env) {
        match self.stage {
            Stage::Load
                if self.issued >= env.scenario.load.commands && self.open.is_empty() && self.questions.is_empty() =>
            {
                env.note(|| "all is read once more".into());
                self.stage = Stage::Check;
            }
            Stage::Check if self.to_check.is_empty() && self.open.is_empty() => {
                env.note(|| "the sessions are closed".into());
                self.stage = Stage::Leaving;
                for client in 0..self.all.len() {
                    self.close(client);
                }
            }
            Stage::Leaving if self.all.iter().all(|client| client.session.is_none() && !client.is_busy) => {
                self.stage = Stage::Done;
            }
            _ => {}
        }
    }

    /// Logs an initiator out.
    fn close(&mut self, client: usize) {
        if let Some(session) = self.all[client].session.take() {
            self.all[client].is_busy = true;
            self.ask(None, async move {
                // It is over in any case.
                let _ = session.close().await;
                Answer::Closed(client)
            });
        }
    }

    /// Whether a fault of the target's stream may be why the initiator finds fault.
    fn check_blame(why: &SessionError, net: &Network, env: &mut Env) {
        if matches!(why, SessionError::Protocol { .. }) && !net.has_damaged(Side::Initiator) {
            env.fail(format!("the initiator finds fault with an honest target: {why}"));
        }
    }
}

fn entropy(env: &mut Env) -> RandomBytes {
    let dice = Mutex::new(Dice::new(u64::from_le_bytes(env.dice.bytes())));
    Arc::new(move |bytes| {
        dice.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
        Ok(())
    })
}
