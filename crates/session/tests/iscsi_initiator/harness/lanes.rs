//! The initiator's session and several connections of the target, back to back over streams that move at random.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::{Buffer, Pool};
use lunette_pdu::{Cid, LogoutResponseCode, SerialNumber, TaskManagementFunction};
use lunette_session::iscsi_initiator::{Event, Session, SessionConfig};
use lunette_session::iscsi_target::{
    self, CloseReason, Connection, ConnectionConfig, Directory, Sessions, TargetNode, TaskManagement, TaskTag,
};
use lunette_session::{Authentication, Time};

use super::disk::Disk;
use super::pair::{Dice, take};
use super::setup::{entropy, timers};

/// One connection.
pub(crate) struct Lane {
    pub(crate) cid: Cid,
    pub(crate) target: Connection,
    to_target: VecDeque<u8>,
    to_initiator: VecDeque<u8>,
    pub(crate) closed: Option<CloseReason>,
    /// The initiator has seen its end.
    pub(crate) gone: bool,
}

/// What the device has to do.
struct Job {
    lane: usize,
    command: iscsi_target::Command,
    data: Option<Buffer>,
}

/// A task management answer that waits until other lanes have acknowledged what was sent before.
struct Fence {
    lane: usize,
    request: TaskManagement,
    behind: Vec<(usize, SerialNumber)>,
}

pub(crate) struct Bundle {
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
    fences: Vec<Fence>,
    /// The numbers of commands, as the device got them.
    pub(crate) delivered: Vec<SerialNumber>,
    /// How often the device ran each command, by its name.
    pub(crate) runs: HashMap<u64, u32>,
    pub(crate) events: VecDeque<Event>,
}

impl Bundle {
    pub(crate) fn new(config: SessionConfig, target: TargetNode, seed: u64) -> Self {
        Self {
            session: Session::new(config),
            lanes: Vec::new(),
            directory: Arc::new(Directory { targets: vec![Arc::new(target)], discovery: Authentication::None }),
            sessions: Sessions::default(),
            disk: Disk { bytes: super::pattern(256 << 10) },
            pool: Pool::new(256 << 20),
            now: Time::new(Duration::from_secs(1000)),
            dice: Dice::new(seed),
            waiting: Vec::new(),
            jobs: Vec::new(),
            fences: Vec::new(),
            delivered: Vec::new(),
            runs: HashMap::new(),
            events: VecDeque::new(),
        }
    }

    /// A session with so many connections, all logged in.
    pub(crate) fn connected(config: SessionConfig, target: TargetNode, seed: u64, connections: usize) -> Self {
        let mut lanes = Self::new(config, target, seed);
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
            portal_group: 1,
            timers: timers(),
            entropy: entropy(0x90 + seed),
        };
        self.lanes.push(Lane {
            cid,
            target: Connection::new(config, self.now),
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
        let Lane { target, to_initiator, .. } = &mut self.lanes[lane];
        let before = to_initiator.len();
        take(target.slices(), most, to_initiator);
        let len = to_initiator.len() - before;
        target.sent(len);
        // Room in the outbox may let it go on.
        self.target_events(lane, &[]);
        len > 0
    }

    pub(crate) fn receive_target(&mut self, lane: usize, most: usize) -> bool {
        let Lane { target, to_target, .. } = &mut self.lanes[lane];
        if to_target.is_empty() || !target.wants_input() {
            return false;
        }
        let len = most.min(to_target.len());
        let bytes: Vec<u8> = to_target.drain(..len).collect();
        self.target_events(lane, &bytes);
        true
    }

    fn receive_initiator(&mut self, lane: usize, most: usize) -> bool {
        let direct = self.dice.below(2) == 0;
        let Lane { cid, to_initiator, gone, .. } = &mut self.lanes[lane];
        if to_initiator.is_empty() || *gone {
            return false;
        }
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

    fn initiator_events(&mut self, lane: usize, mut input: &[u8]) {
        let cid = self.lanes[lane].cid;
        while let Some(event) = self.session.next_event(cid, &mut input, self.now) {
            if matches!(event, Event::Closed { .. }) {
                self.lanes[lane].gone = true;
            }
            self.events.push_back(event);
        }
    }

    fn target_events(&mut self, lane: usize, mut input: &[u8]) {
        while let Some(event) = self.lanes[lane].target.next_event(&mut input, self.now) {
            self.target_event(lane, event);
        }
        self.lanes[lane].target.hold(input);
        self.pass_fences();
    }

    fn target_event(&mut self, lane: usize, event: iscsi_target::Event) {
        match event {
            iscsi_target::Event::Admit(request) => match self.sessions.admit(&request, lane) {
                Ok(admitted) => {
                    for old in admitted.displaced {
                        self.end_lane(old);
                    }
                    self.lanes[lane].target.admit(admitted.session, self.now);
                }
                Err(status) => self.lanes[lane].target.refuse(status),
            },
            iscsi_target::Event::Command(command) => {
                self.delivered.push(command.order.cmd_sn);
                match Disk::wants(&command) {
                    Some(len) if command.data_out_len > 0 => {
                        self.lanes[lane].target.want_data(command.task, self.pool.take(len).unwrap());
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
            iscsi_target::Event::TaskManagement(request) => self.manage_tasks(lane, request),
            iscsi_target::Event::Resume(cid) => {
                let tsih = self.session.tsih();
                let all = self.sessions.connections(tsih).iter();
                let others: Vec<usize> =
                    all.filter(|(known, _)| cid.is_none_or(|cid| *known == cid)).map(|(_, lane)| *lane).collect();
                for other in others {
                    self.target_events(other, &[]);
                }
            }
            iscsi_target::Event::LogoutForRecovery { .. } => panic!("recovery level 0"),
            iscsi_target::Event::Logout(cid) => {
                let tsih = self.session.tsih();
                let named = self.sessions.connections(tsih).iter().find(|(known, _)| *known == cid).copied();
                if let Some((_, named)) = named.filter(|(_, named)| *named != lane) {
                    self.end_lane(named);
                }
                let known = named.map_or(LogoutResponseCode::CID_NOT_FOUND, |_| LogoutResponseCode::CLOSED);
                self.lanes[lane].target.logout_done(known);
            }
            iscsi_target::Event::Close(reason) => {
                self.lanes[lane].closed = Some(reason);
                self.forget(|job| job.lane == lane);
            }
        }
    }

    /// Cut off by the target.
    fn end_lane(&mut self, lane: usize) {
        self.forget(|job| job.lane == lane);
        self.lanes[lane].target.drop_session();
        self.lanes[lane].closed = Some(CloseReason::SessionLost);
    }

    fn forget(&mut self, doomed: impl Fn(&Job) -> bool) {
        self.jobs.retain(|job| !doomed(job));
        self.waiting.retain(|job| !doomed(job));
    }

    fn manage_tasks(&mut self, lane: usize, request: TaskManagement) {
        let names_one =
            matches!(request.function, TaskManagementFunction::ABORT_TASK | TaskManagementFunction::QUERY_TASK);
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
            self.lanes[lane].target.abort(task);
        }
        let mut behind = Vec::new();
        for other in (0..self.lanes.len()).filter(|other| *other != lane) {
            if let Some(before) = request.before.filter(|_| !names_one) {
                self.lanes[other].target.silence(None, before);
            }
            if let Some(stat_sn) = self.lanes[other].target.ask_acknowledgement() {
                behind.push((other, stat_sn));
            }
        }
        self.fences.push(Fence { lane, request, behind });
    }

    fn pass_fences(&mut self) {
        let lanes = &self.lanes;
        let is_passed = |fence: &mut Fence| {
            fence.behind.iter().all(|(lane, stat_sn)| lanes[*lane].target.has_acknowledged(*stat_sn))
        };
        let passed: Vec<Fence> = self.fences.extract_if(.., is_passed).collect();
        for fence in passed {
            self.lanes[fence.lane].target.task_management_done(fence.request.itt, fence.request.done());
        }
    }

    /// The device does one of its jobs.
    pub(crate) fn work(&mut self) -> bool {
        if self.jobs.is_empty() {
            return false;
        }
        let job = self.jobs.swap_remove(self.dice.below(self.jobs.len()));
        let response = self.disk.run(&job.command, job.data, &self.pool);
        *self.runs.entry(Disk::name(&job.command)).or_default() += 1;
        self.lanes[job.lane].target.complete(job.command.task, response);
        true
    }
}
