//! The initiator's event loop, answered by a script.

use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use lunette_buffer::{Payload, Pool, SharedBuffer};
use lunette_initiator::{Completion, Initiator, IoBackend, Options, Outcome, Portal, Request, Session, Sink, wait};
use lunette_scsi::{Lun, requests};
use lunette_session::iscsi_target::{
    ConnectionConfig, ConnectionMut, Directory, Event, Host, LoginConnection, LoginEvent, Response, SessionKey,
    Sessions, TargetNode, TaskTag, Transport,
};
use lunette_session::{Authentication, Entropy, Time};

use crate::wire::{LIMIT, Wire, until};
use crate::{HOST, Load, Progress, TARGET, timers};

const NOW: Time = Time::new(std::time::Duration::ZERO);
const BUFFER_BYTES: usize = 64 << 20;

/// Works through a load.
pub(crate) fn run(load: Load) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("a TCP socket").port();
    let accepted = thread::spawn(move || ScriptedTarget::log_in(listener.accept().expect("a connection").0, load));
    let initiator = Initiator::with(BUFFER_BYTES, IoBackend::Epoll).expect("an event loop");
    let mut options = Options::new(HOST);
    (options.offer, options.timers, options.request_timeout) = (load.offer(), timers(), LIMIT * 100);
    let portal = Portal { host: "127.0.0.1".into(), port };
    let session = wait(Session::connect(&initiator, &portal, TARGET, options)).expect("a session");
    let target = accepted.join().expect("a login");
    let (over, is_over) = channel();
    let turn = Turn { target, progress: Progress::default(), submitted: 0, ended: 0, written: Vec::new(), over };
    let user = Arc::new(User { load, session, turn: Mutex::new(turn) });
    let mut turn = user.turn.lock().expect("nobody had it");
    // Two batches take turns: when one has ended, the other one has been sent.
    user.submit_batch(&mut turn);
    user.submit_batch(&mut turn);
    turn.target.receive_commands(2 * load.batch);
    turn.target.answer(load.batch);
    drop(turn);
    is_over.recv_timeout(LIMIT).expect("the load comes to its end");
    load.tell("initiator");
}

/// Submits requests, and again when a batch has ended.
struct User {
    load: Load,
    session: Session,
    turn: Mutex<Turn>,
}

struct Turn {
    target: ScriptedTarget,
    progress: Progress,
    submitted: usize,
    /// Requests of this batch.
    ended: usize,
    /// Memory of writes that have ended, for the next ones.
    written: Vec<SharedBuffer>,
    over: Sender<()>,
}

impl User {
    fn submit_batch(self: &Arc<Self>, turn: &mut Turn) {
        let Load { reads, len, batch, .. } = self.load;
        let lun = Lun::new(0).expect("a LUN");
        for _ in 0..batch {
            let (lba, blocks) = (self.load.lba(turn.submitted), self.load.blocks());
            let request = if reads {
                let buffer = self.session.reserve(len).expect("the pool is large enough");
                Request::new(lun, requests::read(lba, blocks, false)).with_data_in(buffer)
            } else {
                let new = || self.session.buffer(len).expect("the pool is large enough").share();
                let data = turn.written.pop().unwrap_or_else(new);
                Request::new(lun, requests::write(lba, blocks, false)).with_data_out(data)
            };
            turn.submitted += 1;
            let sink: Arc<dyn Sink> = Arc::clone(self) as _;
            self.session.submit(request, Completion::new(sink, 0));
        }
    }
}

impl Sink for User {
    fn complete(self: Arc<Self>, _tag: u64, outcome: Outcome) {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // What is still under way when the event loop ends.
        if turn.progress.is_over() {
            return;
        }
        turn.written.extend(outcome.data_out);
        outcome.result.expect("the session lives").ok().expect("the command ends well");
        turn.ended += 1;
        if turn.ended < self.load.batch {
            return;
        }
        turn.ended = 0;
        if turn.scripted_turn() {
            self.submit_batch(&mut turn);
        }
    }
}

impl Turn {
    /// The turn of the target, which is not counted: it answers the batch that it has. `false` after the last one.
    #[inline(never)]
    fn scripted_turn(&mut self) -> bool {
        let goes_on = self.progress.goes_on();
        if !goes_on {
            self.over.send(()).expect("somebody waits");
            return false;
        }
        let batch = self.target.load.batch;
        self.target.receive_commands(batch);
        let answers = self.target.answer(batch);
        if self.progress.is_warm() {
            self.target.wire.arrived(answers);
        }
        true
    }
}

/// The target's side of the protocol, without a loop and a disk.
struct ScriptedTarget {
    load: Load,
    wire: Wire,
    sessions: Sessions<()>,
    session: SessionKey,
    pool: Pool,
    /// Tasks that wait for their answer.
    waiting: Vec<TaskTag>,
}

impl ScriptedTarget {
    fn log_in(stream: TcpStream, load: Load) -> Self {
        let local = stream.local_addr().expect("a TCP socket");
        let node = TargetNode {
            name: TARGET.into(),
            alias: None,
            authentication: Authentication::None,
            hosts: vec![Arc::new(Host::everyone())],
            portals: vec![lunette_session::iscsi_target::Portal {
                address: local,
                group: 1,
                transport: Transport::Stream,
            }],
            offer: load.offer(),
            moved: None,
        };
        let directory = Directory { targets: vec![Arc::new(node)], discovery: Authentication::None };
        let config = ConnectionConfig {
            directory: Arc::new(directory),
            local,
            peer: [192, 0, 2, 2].into(),
            portal_group: 1,
            timers: timers(),
            entropy: Entropy([0; _]),
        };
        let mut wire = Wire::new(stream);
        let mut sessions = Sessions::default();
        let mut login = LoginConnection::new(config, NOW);
        let mut request = None;
        until("the login is over", || {
            let mut input = wire.receive();
            if let Some(LoginEvent::Admit(asked)) = login.next_event(&mut input) {
                request = Some(asked);
            }
            let len = wire.send(login.slices());
            login.sent(len);
            request.is_some()
        });
        let request = request.expect("it is there");
        let admitted = sessions.admit(&request, (), NOW).expect("there is room");
        let session = sessions.enter(admitted.ticket, login, NOW).expect("nothing has taken its place");
        let mut target = Self { load, wire, sessions, session, pool: Pool::new(BUFFER_BYTES), waiting: Vec::new() };
        target.send();
        target
    }

    fn connection(&mut self) -> ConnectionMut<'_> {
        self.sessions.get_mut(self.session).and_then(|session| session.connection_mut(())).expect("it lives")
    }

    fn receive(&mut self) {
        let session = self.sessions.get_mut(self.session).expect("it lives");
        let mut input = self.wire.receive();
        while let Some(event) = session.next_event((), &mut input, NOW) {
            match event {
                Event::Command(command) if command.data_out_len > 0 => {
                    let buffer = self.pool.take(command.data_out_len as usize).expect("the pool is large enough");
                    session.connection_mut(()).expect("it lives").want_data(command.task, buffer);
                }
                Event::Command(command) => self.waiting.push(command.task),
                Event::DataOut { task, .. } => self.waiting.push(task),
                other => panic!("{other:?}"),
            }
        }
    }

    fn receive_commands(&mut self, commands: usize) {
        until("the commands come", || {
            self.receive();
            self.waiting.len() >= commands
        });
        assert_eq!(self.waiting.len(), commands);
    }

    /// Answers the first `tasks` of those that wait. Gives the length of the answers.
    fn answer(&mut self, tasks: usize) -> usize {
        let Load { reads, len, .. } = self.load;
        for task in self.waiting.drain(..tasks).collect::<Vec<_>>() {
            let buffer = || self.pool.take(len).expect("the pool is large enough");
            let data_in = if reads { buffer().into() } else { Payload::Empty };
            let data_out_transfer_len = if reads { 0 } else { len as u64 };
            let response = Response { data_in, data_out_transfer_len, ..Response::default() };
            self.sessions.get_mut(self.session).expect("it lives").complete((), task, response);
        }
        self.send()
    }

    fn send(&mut self) -> usize {
        let connection = self.sessions.get(self.session).and_then(|session| session.connection(())).expect("it lives");
        let len = self.wire.send(connection.slices());
        self.connection().sent(len);
        len
    }
}
