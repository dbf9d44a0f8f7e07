//! The initiator's session and several connections of the target, back to back over streams that move at random.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::{Buffer, Pool};
use lunette_pdu::{Cid, SerialNumber, TaskManagementFunction};
use lunette_session::iscsi_initiator::{Event, Session, SessionConfig};
use lunette_session::iscsi_target::{
    self, CloseReason, ConnectionConfig, ConnectionMut, Directory, LoginConnection, LoginEvent, SessionKey, Sessions,
    TargetNode, TaskManagementTicket, TaskTag,
};
use lunette_session::{Authentication, Time};
use lunette_testkit::Dice;

use super::disk::Disk;
use super::setup::{entropy, timers};

/// One connection.
pub(crate) struct Lane {
    pub(crate) cid: Cid,
    /// The target's end, until it is in a session.
    pub(super) login: Option<LoginConnection>,
    pub(crate) key: Option<SessionKey>,
    pub(super) to_target: VecDeque<u8>,
    pub(super) to_initiator: VecDeque<u8>,
    pub(crate) closed: Option<CloseReason>,
    /// The initiator has seen its end.
    pub(crate) gone: bool,
}

/// The work of the device.
struct Job {
    lane: usize,
    command: iscsi_target::Command,
    data: Option<Buffer>,
}

pub(crate) struct MultiPair {
    pub(crate) session: Session,
    pub(crate) lanes: Vec<Lane>,
    directory: Arc<Directory>,
    pub(crate) sessions: Sessions<usize>,
    pub(crate) disk: Disk,
    pub(crate) pool: Pool,
    pub(crate) now: Time,
    pub(crate) dice: Dice,
    waiting: Vec<Job>,
    jobs: Vec<Job>,
    /// The numbers of commands, as the device got them.
    pub(crate) delivered: Vec<SerialNumber>,
    /// How often the device ran each command, by its name.
    pub(crate) runs: HashMap<u64, u32>,
    pub(crate) events: VecDeque<Event>,
    /// The device leaves its jobs alone.
    pub(crate) idle: bool,
    /// The rest of the CDB of the last command that the device has run.
    pub(crate) last_cdb_rest: Box<[u8]>,
}

impl MultiPair {
    pub(crate) fn new(config: SessionConfig, target: TargetNode, discovery: Authentication, seed: u64) -> Self {
        Self {
            session: Session::new(config),
            lanes: Vec::new(),
            directory: Arc::new(Directory { targets: vec![Arc::new(target)], discovery }),
            sessions: Sessions::default(),
            disk: Disk { bytes: super::pattern(256 << 10) },
            pool: Pool::new(256 << 20),
            now: Time::new(Duration::from_secs(1000)),
            dice: Dice::new(seed),
            waiting: Vec::new(),
            jobs: Vec::new(),
            delivered: Vec::new(),
            runs: HashMap::new(),
            events: VecDeque::new(),
            idle: false,
            last_cdb_rest: Box::default(),
        }
    }

    /// A session with this number of connections, all logged in.
    pub(crate) fn connected(config: SessionConfig, target: TargetNode, seed: u64, connections: usize) -> Self {
        let mut lanes = Self::new(config, target, Authentication::None, seed);
        for _ in 0..connections {
            lanes.connect();
            lanes.run();
            let event = lanes.events.pop_front();
            assert!(matches!(event, Some(Event::LoggedIn(_))), "{event:?}");
        }
        lanes
    }

    /// Opens one more stream, and begins its login.
    pub(crate) fn connect(&mut self) -> usize {
        let seed = self.lanes.len() as u8;
        let cid = self.session.connect(entropy(0x40 + seed), self.now);
        let config = ConnectionConfig {
            directory: Arc::clone(&self.directory),
            local: "192.0.2.7:3260".parse().unwrap(),
            peer: [192, 0, 2, 77].into(),
            portal_group: 1,
            timers: timers(),
            entropy: entropy(0x90 + seed),
        };
        self.lanes.push(Lane {
            cid,
            login: Some(LoginConnection::new(config, self.now)),
            key: None,
            to_target: VecDeque::new(),
            to_initiator: VecDeque::new(),
            closed: None,
            gone: false,
        });
        self.lanes.len() - 1
    }

    /// Everything moves until nothing does.
    pub(crate) fn run(&mut self) {
        while (0..self.lanes.len()).any(|lane| self.turn(lane)) || self.work() {}
    }

    /// One connection does all that it can do at once.
    pub(crate) fn turn(&mut self, lane: usize) -> bool {
        let sent = self.send_initiator(lane, usize::MAX) | self.send_target(lane, usize::MAX);
        sent | self.receive_target(lane, usize::MAX) | self.receive_initiator(lane, usize::MAX)
    }

    /// One thing happens on one connection. False when nothing could.
    pub(crate) fn step(&mut self, lane: usize, most: usize) -> bool {
        match self.dice.below(4) {
            0 => self.send_initiator(lane, most),
            1 => self.send_target(lane, most),
            2 => self.receive_target(lane, most),
            _ => self.receive_initiator(lane, most),
        }
    }

    pub(crate) fn send_initiator(&mut self, lane: usize, most: usize) -> bool {
        let Lane { cid, to_target, gone, .. } = &mut self.lanes[lane];
        if *gone {
            return false;
        }
        let before = to_target.len();
        take(self.session.slices(*cid), most, to_target);
        let len = to_target.len() - before;
        self.session.sent(*cid, len);
        self.initiator_events(lane, &[]);
        len > 0
    }

    pub(crate) fn send_target(&mut self, lane: usize, most: usize) -> bool {
        let Lane { login, key, to_initiator, .. } = &mut self.lanes[lane];
        let before = to_initiator.len();
        if let Some(login) = login {
            take(login.slices(), most, to_initiator);
            login.sent(to_initiator.len() - before);
        } else {
            let mut target = key.and_then(|key| self.sessions.get_mut(key)?.connection_mut(lane)).unwrap();
            take(target.slices(), most, to_initiator);
            target.sent(to_initiator.len() - before);
        }
        let len = self.lanes[lane].to_initiator.len() - before;
        // Room in the outbox may let it go on.
        self.target_events(lane, &[]);
        len > 0
    }

    pub(crate) fn receive_target(&mut self, lane: usize, most: usize) -> bool {
        let wants_input = match &self.lanes[lane].login {
            Some(login) => login.wants_input(),
            None => self.target(lane).wants_input(),
        };
        let Lane { to_target, .. } = &mut self.lanes[lane];
        if to_target.is_empty() || !wants_input {
            return false;
        }
        let len = most.min(to_target.len());
        let bytes: Vec<u8> = to_target.drain(..len).collect();
        self.target_events(lane, &bytes);
        true
    }

    pub(super) fn receive_initiator(&mut self, lane: usize, most: usize) -> bool {
        let Lane { cid, to_initiator, gone, .. } = &mut self.lanes[lane];
        if to_initiator.is_empty() || *gone {
            return false;
        }
        let direct = self.dice.below(2) == 0;
        let len = most.min(to_initiator.len());
        if let Some(place) = self.session.direct(*cid).filter(|_| direct) {
            let len = len.min(place.len());
            for (to, from) in place.iter_mut().zip(to_initiator.drain(..len)) {
                *to = from;
            }
            self.session.direct_received(*cid, len, self.now);
            self.initiator_events(lane, &[]);
        } else {
            let bytes: Vec<u8> = to_initiator.drain(..len).collect();
            self.initiator_events(lane, &bytes);
        }
        true
    }

    pub(super) fn initiator_events(&mut self, lane: usize, mut input: &[u8]) {
        let cid = self.lanes[lane].cid;
        while let Some(event) = self.session.next_event(cid, &mut input, self.now) {
            if matches!(event, Event::Closed { .. }) {
                self.lanes[lane].gone = true;
            }
            self.events.push_back(event);
        }
        assert!(input.is_empty(), "everything is consumed");
    }

    pub(super) fn target_events(&mut self, lane: usize, mut input: &[u8]) {
        while let Some(login) = &mut self.lanes[lane].login {
            let Some(event) = login.next_event(&mut input) else {
                return login.hold(input);
            };
            self.login_event(lane, event);
        }
        let key = self.lanes[lane].key.unwrap();
        while let Some(event) = self.sessions.get_mut(key).unwrap().next_event(lane, &mut input, self.now) {
            self.target_event(lane, event);
        }
        self.target(lane).hold(input);
        let touched = self.sessions.get_mut(key).unwrap().take_touched();
        for other in touched.into_iter().filter(|other| *other != lane) {
            self.target_events(other, &[]);
        }
    }

    pub(crate) fn target_session(&mut self, lane: usize) -> &mut iscsi_target::Session<usize> {
        self.lanes[lane].key.and_then(|key| self.sessions.get_mut(key)).expect("the login has ended")
    }

    /// The target's end of a lane that has logged in.
    pub(crate) fn target(&mut self, lane: usize) -> ConnectionMut<'_> {
        self.target_session(lane).connection_mut(lane).unwrap()
    }

    fn login_event(&mut self, lane: usize, event: LoginEvent) {
        match event {
            LoginEvent::Admit(request) => match self.sessions.admit(&request, lane, self.now) {
                Ok(admitted) => {
                    for old in admitted.displaced {
                        self.end_lane(old);
                    }
                    let login = self.lanes[lane].login.take().unwrap();
                    self.lanes[lane].key = self.sessions.enter(admitted.ticket, login, self.now);
                }
                Err(status) => self.lanes[lane].login.as_mut().unwrap().refuse(status),
            },
            LoginEvent::Close(reason) => self.lanes[lane].closed = Some(reason),
        }
    }

    fn target_event(&mut self, lane: usize, event: iscsi_target::Event<usize>) {
        match event {
            iscsi_target::Event::Command(command) => {
                self.delivered.push(command.order.cmd_sn);
                match Disk::wants(&command) {
                    Some(len) if command.data_out_len > 0 => {
                        let buffer = self.pool.take(len).unwrap();
                        self.target(lane).want_data(command.task, buffer);
                        self.waiting.push(Job { lane, command, data: None });
                    }
                    _ => self.jobs.push(Job { lane, command, data: None }),
                }
            }
            iscsi_target::Event::DataOut { task, buffer } => {
                let is_it = |job: &Job| job.lane == lane && job.command.task == task;
                let at = self.waiting.iter().position(is_it).unwrap();
                let job = self.waiting.swap_remove(at);
                self.jobs.push(Job { data: Some(buffer), ..job });
            }
            iscsi_target::Event::Aborted(task) => self.forget(|job| job.lane == lane && job.command.task == task),
            iscsi_target::Event::TaskManagement(ticket) => self.manage_tasks(lane, ticket),
            iscsi_target::Event::Logout { ticket, connection } => {
                if connection != lane {
                    self.end_lane(connection);
                }
                self.target_session(lane).logged_out(lane, ticket);
            }
            iscsi_target::Event::Close(reason) => {
                self.lanes[lane].closed = Some(reason);
                self.forget(|job| job.lane == lane);
            }
            // The session was logged out of.
            iscsi_target::Event::Gone => self.forget(|job| job.lane == lane),
            event => panic!("{event:?} at recovery level 0"),
        }
    }

    /// Cut off by the target.
    fn end_lane(&mut self, lane: usize) {
        self.forget(|job| job.lane == lane);
        let key = self.lanes[lane].key.expect("the login has ended");
        self.sessions.leave(key, lane);
        self.lanes[lane].closed = Some(CloseReason::SessionLost);
    }

    fn forget(&mut self, doomed: impl Fn(&Job) -> bool) {
        self.jobs.retain(|job| !doomed(job));
        self.waiting.retain(|job| !doomed(job));
    }

    fn manage_tasks(&mut self, lane: usize, ticket: TaskManagementTicket<usize>) {
        let request = *ticket.request();
        let hit = |job: &Job| match request.function {
            TaskManagementFunction::ABORT_TASK => job.lane == lane && Some(job.command.task) == request.referenced,
            TaskManagementFunction::QUERY_TASK => false,
            _ => request.before.is_none_or(|before| job.command.order.is_covered_by(before)),
        };
        let doomed: Vec<(usize, TaskTag)> = self
            .jobs
            .iter()
            .chain(&self.waiting)
            .filter(|job| hit(job))
            .map(|job| (job.lane, job.command.task))
            .collect();
        self.forget(hit);
        for (lane, task) in doomed {
            self.target(lane).abort(task);
        }
        let now = self.now;
        self.target_session(lane).done(lane, ticket, now);
    }

    /// The device does one of its jobs.
    pub(crate) fn work(&mut self) -> bool {
        if self.jobs.is_empty() || self.idle {
            return false;
        }
        let job = self.jobs.swap_remove(self.dice.below(self.jobs.len()));
        self.last_cdb_rest.clone_from(&job.command.cdb_rest);
        let response = self.disk.run(&job.command, job.data, &self.pool);
        *self.runs.entry(Disk::name(&job.command)).or_default() += 1;
        self.target_session(job.lane).complete(job.lane, job.command.task, response);
        true
    }
}

/// Appends up to `most` bytes of what is ready.
fn take<'a>(slices: impl Iterator<Item = &'a [u8]>, most: usize, wire: &mut VecDeque<u8>) {
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
