//! The initiator's session and the target's connection back to back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::{Buffer, Pool};
use lunette_pdu::{Cid, TaskManagementFunction};
use lunette_session::iscsi_initiator::{self, Session, SessionConfig};
use lunette_session::iscsi_target::{
    self, CloseReason, ConnectionConfig, ConnectionMut, Directory, LoginConnection, LoginEvent, SessionKey, Sessions,
    TargetNode, TaskTag,
};
use lunette_session::{Authentication, Time};
use lunette_testkit::Dice;

use super::disk::Disk;
use super::setup::{config, entropy, node, timers};
use super::storm::Storm;

/// What the device has to do.
struct Job {
    command: iscsi_target::Command,
    data: Option<Buffer>,
}

pub(crate) struct Pair {
    pub(crate) session: Session,
    pub(crate) cid: Cid,
    /// The target's end, until it is in a session.
    login: Option<LoginConnection>,
    key: Option<SessionKey>,
    sessions: Sessions<()>,
    pub(crate) disk: Disk,
    pub(crate) pool: Pool,
    pub(crate) now: Time,
    pub(crate) dice: Dice,
    /// Longest piece that a socket hands over.
    pub(crate) piece: usize,
    to_target: VecDeque<u8>,
    to_initiator: VecDeque<u8>,
    waiting: Vec<(TaskTag, iscsi_target::Command)>,
    jobs: Vec<Job>,
    /// The device leaves its jobs alone.
    pub(crate) idle: bool,
    /// Damages one byte of what the target sends: which, and the bits that flip.
    pub(crate) flip: Option<(usize, u8)>,
    /// What damages data segments: those to the target, and those to the initiator.
    pub(crate) storms: Option<[Storm; 2]>,
    /// Bytes that the target has sent.
    pub(crate) sent_by_target: usize,
    /// The same for what the initiator sends.
    pub(crate) flip_to_target: Option<(usize, u8)>,
    pub(crate) sent_by_initiator: usize,
    pub(crate) events: VecDeque<iscsi_initiator::Event>,
    pub(crate) closed: Option<CloseReason>,
    /// Of the last command that the device has run.
    pub(crate) last_cdb_rest: Box<[u8]>,
}

impl Pair {
    pub(crate) fn new(config: SessionConfig, target: TargetNode, discovery: Authentication) -> Self {
        let now = Time::new(Duration::from_secs(1000));
        let mut session = Session::new(config);
        let cid = session.connect(entropy(0x40), now);
        let directory = Arc::new(Directory { targets: vec![Arc::new(target)], discovery });
        let local = "192.0.2.7:3260".parse().unwrap();
        let config = ConnectionConfig { directory, local, portal_group: 1, timers: timers(), entropy: entropy(0x90) };
        Self {
            session,
            cid,
            login: Some(LoginConnection::new(config, now)),
            key: None,
            sessions: Sessions::default(),
            disk: Disk { bytes: super::pattern(256 << 10) },
            pool: Pool::new(256 << 20),
            now,
            dice: Dice::new(0x9e37_79b9_7f4a_7c15),
            piece: usize::MAX,
            to_target: VecDeque::new(),
            to_initiator: VecDeque::new(),
            waiting: Vec::new(),
            jobs: Vec::new(),
            idle: false,
            flip: None,
            storms: None,
            sent_by_target: 0,
            flip_to_target: None,
            sent_by_initiator: 0,
            events: VecDeque::new(),
            closed: None,
            last_cdb_rest: Box::default(),
        }
    }

    /// In full feature phase.
    pub(crate) fn logged_in() -> Self {
        let mut pair = Self::new(config(), node(Authentication::None, <_>::default()), Authentication::None);
        pair.run();
        pair.expect_login();
        pair
    }

    pub(crate) fn expect_login(&mut self) {
        let event = self.events.pop_front();
        assert!(matches!(event, Some(iscsi_initiator::Event::LoggedIn(_))), "{event:?}, target: {:?}", self.closed);
    }

    /// Both sides do what they can.
    pub(crate) fn run(&mut self) {
        while self.step() {}
    }

    /// One round. False when nothing moved.
    pub(crate) fn step(&mut self) -> bool {
        let mut moved = self.initiator_events(&[]);
        moved |= self.target_events(&[]);
        moved |= self.send_initiator();
        moved |= self.send_target();
        moved |= self.receive_target();
        moved |= self.receive_initiator();
        moved | self.work()
    }

    /// How much a socket takes or gives this time.
    fn some(&mut self) -> usize {
        if self.piece == usize::MAX { usize::MAX } else { 1 + self.dice.below(self.piece) }
    }

    fn send_initiator(&mut self) -> bool {
        let most = self.some();
        let before = self.to_target.len();
        take(self.session.slices(self.cid), most, &mut self.to_target);
        let len = self.to_target.len() - before;
        assert_eq!(len > 0, self.session.has_output(self.cid));
        flip(self.flip_to_target, self.sent_by_initiator, &mut self.to_target, before);
        if let Some([storm, _]) = &mut self.storms {
            storm.pass(&mut self.to_target, before, &mut self.dice);
        }
        self.sent_by_initiator += len;
        self.session.sent(self.cid, len);
        len > 0
    }

    fn send_target(&mut self) -> bool {
        let most = self.some();
        let before = self.to_initiator.len();
        match (&self.login, self.key.and_then(|key| self.sessions.get(key))) {
            (Some(login), _) => take(login.slices(), most, &mut self.to_initiator),
            (_, Some(session)) => take(session.connection(()).unwrap().slices(), most, &mut self.to_initiator),
            _ => {}
        }
        let len = self.to_initiator.len() - before;
        flip(self.flip, self.sent_by_target, &mut self.to_initiator, before);
        if let Some([_, storm]) = &mut self.storms {
            storm.pass(&mut self.to_initiator, before, &mut self.dice);
        }
        self.sent_by_target += len;
        match &mut self.login {
            Some(login) => login.sent(len),
            None => self.target().sent(len),
        }
        len > 0
    }

    fn receive_target(&mut self) -> bool {
        let wants_input = match &self.login {
            Some(login) => login.wants_input(),
            None => self.target().wants_input(),
        };
        if self.to_target.is_empty() || !wants_input {
            return false;
        }
        let len = self.some().min(self.to_target.len());
        let bytes: Vec<u8> = self.to_target.drain(..len).collect();
        self.target_events(&bytes);
        true
    }

    fn receive_initiator(&mut self) -> bool {
        if self.to_initiator.is_empty() {
            return false;
        }
        let len = self.some().min(self.to_initiator.len());
        let direct = self.dice.below(2) == 0;
        if let Some(place) = self.session.direct(self.cid).filter(|_| direct) {
            let len = len.min(place.len());
            for (to, from) in place.iter_mut().zip(self.to_initiator.drain(..len)) {
                *to = from;
            }
            self.session.direct_received(self.cid, len, self.now);
        } else {
            let bytes: Vec<u8> = self.to_initiator.drain(..len).collect();
            self.initiator_events(&bytes);
        }
        true
    }

    fn initiator_events(&mut self, mut input: &[u8]) -> bool {
        let before = self.events.len();
        while let Some(event) = self.session.next_event(self.cid, &mut input, self.now) {
            self.events.push_back(event);
        }
        assert!(input.is_empty(), "everything is consumed");
        self.events.len() > before
    }

    fn target_events(&mut self, mut input: &[u8]) -> bool {
        let mut any = false;
        while let Some(login) = &mut self.login {
            let Some(event) = login.next_event(&mut input) else {
                login.hold(input);
                return any;
            };
            any = true;
            match event {
                LoginEvent::Admit(request) => {
                    let admitted = self.sessions.admit(&request, ()).unwrap();
                    let login = self.login.take().unwrap();
                    self.key = self.sessions.enter(admitted.place, login, self.now);
                }
                LoginEvent::Close(reason) => self.closed = Some(reason),
            }
        }
        let key = self.key.unwrap();
        while let Some(event) = self.sessions.get_mut(key).unwrap().next_event((), &mut input, self.now) {
            any = true;
            self.target_event(event);
        }
        self.target().hold(input);
        any
    }

    fn target_session(&mut self) -> &mut iscsi_target::Session<()> {
        self.key.and_then(|key| self.sessions.get_mut(key)).expect("the login has ended")
    }

    /// The target's end, in its session.
    pub(crate) fn target(&mut self) -> ConnectionMut<'_> {
        self.target_session().connection_mut(()).expect("it is there")
    }

    fn target_event(&mut self, event: iscsi_target::Event<()>) {
        match event {
            iscsi_target::Event::Command(command) => match Disk::wants(&command) {
                Some(len) if command.data_out_len > 0 => {
                    let buffer = self.pool.take(len).unwrap();
                    self.target().want_data(command.task, buffer);
                    self.waiting.push((command.task, command));
                }
                _ => self.jobs.push(Job { command, data: None }),
            },
            iscsi_target::Event::DataOut { task, buffer } => {
                let at = self.waiting.iter().position(|(tag, _)| *tag == task).unwrap();
                let command = self.waiting.swap_remove(at).1;
                self.jobs.push(Job { command, data: Some(buffer) });
            }
            iscsi_target::Event::Aborted(task) => self.waiting.retain(|(tag, _)| *tag != task),
            iscsi_target::Event::TaskManagement(ticket) => {
                let request = *ticket.request();
                let one = request.referenced;
                let all = !matches!(
                    request.function,
                    TaskManagementFunction::ABORT_TASK | TaskManagementFunction::QUERY_TASK
                );
                let hit = |task: TaskTag| all || one == Some(task);
                let jobs = self.jobs.iter().map(|job| job.command.task);
                let tasks: Vec<_> =
                    jobs.chain(self.waiting.iter().map(|(tag, _)| *tag)).filter(|task| hit(*task)).collect();
                for task in tasks {
                    self.target().abort(task);
                }
                self.jobs.retain(|job| !hit(job.command.task));
                self.waiting.retain(|(tag, _)| !hit(*tag));
                self.target_session().answer((), ticket, request.done());
            }
            iscsi_target::Event::Close(reason) => self.closed = Some(reason),
            event => panic!("{event:?} in a session of one connection"),
        }
    }

    fn work(&mut self) -> bool {
        if self.jobs.is_empty() || self.idle {
            return false;
        }
        let job = self.jobs.swap_remove(self.dice.below(self.jobs.len()));
        self.last_cdb_rest.clone_from(&job.command.cdb_rest);
        let response = self.disk.run(&job.command, job.data, &self.pool);
        self.target().complete(job.command.task, response);
        true
    }

    /// Lets time pass, doing what is due on either side on the way.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.run();
            let of_target = match &self.login {
                Some(login) => login.next_timeout(),
                None => self.target().next_timeout(),
            };
            let due = self.session.next_timeout().into_iter().chain(of_target).min();
            let Some(at) = due.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            self.session.time_has_come(self.now);
            let now = self.now;
            match &mut self.login {
                Some(login) => login.time_has_come(now),
                None => self.target().time_has_come(now),
            }
        }
        self.now = end;
    }
}

/// Damages a byte of the stream if it is among those behind the first `before` of `wire`, which `sent` others came before.
fn flip(which: Option<(usize, u8)>, sent: usize, wire: &mut VecDeque<u8>, before: usize) {
    let Some((at, mask)) = which else { return };
    if let Some(byte) = at.checked_sub(sent).and_then(|at| wire.get_mut(before + at)) {
        *byte ^= mask;
    }
}

/// Appends up to `most` bytes of what is ready.
pub(crate) fn take<'a>(slices: impl Iterator<Item = &'a [u8]>, most: usize, wire: &mut VecDeque<u8>) {
    let mut left = most;
    for slice in slices {
        let len = left.min(slice.len());
        wire.extend(&slice[..len]);
        left -= len;
        if left == 0 {
            break;
        }
    }
}
