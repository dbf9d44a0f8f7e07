//! The driver of the target: what a target process owes to `session`, and no more.

mod buffers;
mod fences;
mod management;
mod news;
mod recovery;
mod tasks;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lunette_buffer::Pool;
use lunette_pdu::{LogoutResponseCode, SerialNumber};
use lunette_session::iscsi_target::{
    AdmitRequest, CloseReason, Connection, ConnectionConfig, Directory, Event, Session, Sessions,
};
use lunette_session::{Authentication, Entropy, Time};

use self::fences::Fence;
use self::management::Behind;
pub(crate) use self::management::EVENT;
use self::tasks::Job;
pub(crate) use self::tasks::SENSE;
use crate::env::Env;
use crate::scenario::Scenario;
use crate::wire::{Network, Side, WireId};

struct Conn {
    protocol: Connection,
    session: Option<Arc<Session>>,
    /// It may have become able to go on.
    touched: bool,
    /// Its socket is to be closed once what is ready has gone out.
    closing: bool,
    /// It has no socket: it waits for another connection to take over its tasks.
    parked: bool,
}

pub(crate) struct Server {
    directory: Arc<Directory>,
    connections: BTreeMap<WireId, Conn>,
    sessions: Sessions<WireId>,
    jobs: BTreeMap<u64, Job>,
    last_job: u64,
    barriers: BTreeMap<u64, (usize, Behind)>,
    last_barrier: u64,
    fences: Vec<Fence>,
    /// The number of the last command that was delivered, by session.
    delivered: BTreeMap<u16, SerialNumber>,
    pool: Pool,
    /// Jobs that wait for their buffers.
    starving: VecDeque<u64>,
    /// Messages that are still to be sent.
    news: u32,
}

impl Server {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let directory = Directory { targets: vec![Arc::new(scenario.node())], discovery: Authentication::None };
        Self {
            directory: Arc::new(directory),
            connections: BTreeMap::new(),
            sessions: Sessions::default(),
            jobs: BTreeMap::new(),
            last_job: 0,
            barriers: BTreeMap::new(),
            last_barrier: 0,
            fences: Vec::new(),
            delivered: BTreeMap::new(),
            pool: Pool::new(scenario.load.target_pool_bytes),
            starving: VecDeque::new(),
            news: scenario.load.news,
        }
    }

    /// Whether nothing is left of any session.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections.is_empty() && self.sessions.is_empty() && self.jobs.is_empty() && self.barriers.is_empty()
    }

    /// What is left.
    pub(crate) fn describe(&self) -> String {
        let (connections, sessions) = (self.connections.len(), self.sessions.len());
        let (jobs, barriers, fences) = (self.jobs.len(), self.barriers.len(), self.fences.len());
        format!(
            "target: {connections} connections, {sessions} sessions, {jobs} jobs, {barriers} barriers, {fences} fences"
        )
    }

    pub(crate) fn bytes_in_use(&self) -> usize {
        self.pool.used_bytes()
    }

    pub(crate) fn accept(&mut self, id: WireId, env: &mut Env) {
        let config = ConnectionConfig {
            directory: Arc::clone(&self.directory),
            local: ([192, 0, 2, 7], 3260).into(),
            portal_group: 1,
            timers: env.scenario.config.timers,
            entropy: Entropy(env.dice.bytes()),
        };
        let protocol = Connection::new(config, env.now);
        self.connections.insert(id, Conn { protocol, session: None, touched: true, closing: false, parked: false });
    }

    /// All connections, those without a socket among them.
    pub(crate) fn ids(&self) -> Vec<WireId> {
        self.connections.keys().copied().collect()
    }

    fn touch(&mut self, id: WireId) {
        if let Some(conn) = self.connections.get_mut(&id) {
            conn.touched = true;
        }
    }

    // Time.

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let connections = self.connections.values().filter_map(|conn| conn.protocol.next_timeout());
        connections.chain(self.next_fence_timeout()).min()
    }

    pub(crate) fn time_has_come(&mut self, now: Time) {
        for conn in self.connections.values_mut() {
            if conn.protocol.next_timeout().is_some_and(|at| at <= now) {
                conn.protocol.time_has_come(now);
                conn.touched = true;
            }
        }
    }

    // Bytes.

    /// One connection does what it can: false when that is nothing.
    pub(crate) fn turn(&mut self, id: WireId, net: &mut Network, env: &mut Env) -> bool {
        let Some(conn) = self.connections.get_mut(&id) else { return false };
        let mut moved = false;
        if std::mem::replace(&mut conn.touched, false) {
            self.pump(id, &[], net, env);
            moved = true;
        }
        moved | self.receive(id, net, env) | self.send(id, net, env)
    }

    fn receive(&mut self, id: WireId, net: &mut Network, env: &mut Env) -> bool {
        let Some(conn) = self.connections.get_mut(&id).filter(|conn| !conn.parked) else { return false };
        if net.has_ended(id, Side::Target) {
            env.note(|| format!("wire {id}: the target sees its end"));
            self.lose(id, net, env);
            return true;
        }
        if !conn.protocol.wants_input() {
            return false;
        }
        let Some(mut bytes) = net.receive(id, Side::Target) else { return false };
        let place = if env.dice.coin() { conn.protocol.direct() } else { None };
        if let Some(place) = place {
            let len = bytes.len().min(place.len());
            place[..len].copy_from_slice(&bytes[..len]);
            conn.protocol.direct_received(len, env.now);
            net.unreceive(id, Side::Target, bytes.split_off(len));
            bytes.clear();
        }
        self.pump(id, &bytes, net, env);
        true
    }

    fn send(&mut self, id: WireId, net: &mut Network, env: &mut Env) -> bool {
        let Some(conn) = self.connections.get_mut(&id).filter(|conn| !conn.parked) else { return false };
        let room = if conn.closing { usize::MAX } else { net.room(id, Side::Target, env) };
        let bytes = gather(conn.protocol.slices(), room);
        let sent = !bytes.is_empty();
        if sent {
            conn.protocol.sent(bytes.len());
            conn.touched = true;
            net.send(id, Side::Target, bytes, env);
        }
        if conn.closing {
            self.lose(id, net, env);
            return true;
        }
        sent
    }

    fn pump(&mut self, id: WireId, mut bytes: &[u8], net: &mut Network, env: &mut Env) {
        while let Some(conn) = self.connections.get_mut(&id) {
            let Some(event) = conn.protocol.next_event(&mut bytes, env.now) else {
                conn.protocol.hold(bytes);
                return;
            };
            self.handle(id, event, net, env);
        }
    }

    fn handle(&mut self, id: WireId, event: Event, net: &mut Network, env: &mut Env) {
        match event {
            Event::Admit(request) => self.admit(id, &request, net, env),
            Event::Command(command) => self.start(id, &command, env),
            Event::DataOut { task, buffer } => self.data_arrived(id, task, buffer, env),
            Event::Aborted(task) => self.forget(id, task, env),
            Event::TaskManagement(request) => self.manage_tasks(id, &request, net, env),
            Event::Resume(cid) => {
                let Some(session) = self.session_of(id) else { return };
                let all = self.sessions.connections(session.tsih).to_vec();
                for (_, other) in all.into_iter().filter(|(known, _)| cid.is_none_or(|cid| cid == *known)) {
                    self.touch(other);
                }
            }
            Event::Logout(cid) => self.log_out(id, cid, net, env),
            Event::LogoutForRecovery { cid, received } => {
                self.log_out_for_recovery(id, cid, received, net, env);
            }
            Event::Close(reason) => self.close(id, &reason, net, env),
        }
    }

    // Sessions.

    fn session_of(&self, id: WireId) -> Option<Arc<Session>> {
        self.connections.get(&id)?.session.clone()
    }

    fn siblings(&self, id: WireId) -> Vec<WireId> {
        let Some(session) = self.session_of(id) else { return Vec::new() };
        let all = self.sessions.connections(session.tsih).iter();
        all.map(|(_, other)| *other).filter(|other| *other != id).collect()
    }

    /// A login is answered when nothing that its initiator has lost still runs.
    fn admit(&mut self, id: WireId, request: &AdmitRequest, net: &mut Network, env: &mut Env) {
        let admitted = match self.sessions.admit(request, id) {
            Ok(admitted) => admitted,
            Err(status) => {
                env.note(|| format!("wire {id}: login refused, {status}"));
                if let Some(conn) = self.connections.get_mut(&id) {
                    conn.protocol.refuse(status);
                }
                return;
            }
        };
        for displaced in admitted.displaced {
            env.note(|| format!("wire {id} takes the place of wire {displaced}"));
            self.cut(displaced, net, env);
        }
        if let Some(detached) = admitted.detached {
            env.note(|| format!("wire {id} logs out wire {detached} for recovery"));
            self.detach(detached, request.exp_stat_sn, None, net, env);
        }
        if let Some(conn) = self.connections.get_mut(&id) {
            conn.session = Some(admitted.session);
        }
        let barrier = self.open_barrier(Behind::Login(id));
        for job in self.orphans() {
            self.hold_up(barrier, job);
        }
        self.pass(barrier, env);
    }

    fn finish_login(&mut self, id: WireId, env: &mut Env) {
        let Some(session) = self.session_of(id) else { return };
        env.note(|| format!("wire {id} is admitted to session {}", session.tsih.0));
        if let Some(conn) = self.connections.get_mut(&id) {
            conn.protocol.admit(session, env.now);
            conn.touched = true;
        }
    }

    /// The initiator logs out of a connection of its session, this one or another one.
    fn log_out(&mut self, id: WireId, cid: lunette_pdu::Cid, net: &mut Network, env: &mut Env) {
        let Some(session) = self.session_of(id) else { return };
        let Some(leaving) = self.sessions.find(session.tsih, cid) else {
            return self.answer_logout(id, LogoutResponseCode::CID_NOT_FOUND);
        };
        let barrier = self.open_barrier(Behind::Logout(id));
        self.abandon(leaving, Some(barrier), env);
        if leaving != id {
            self.cut(leaving, net, env);
        }
        self.pass(barrier, env);
    }

    fn answer_logout(&mut self, id: WireId, response: LogoutResponseCode) {
        if let Some(conn) = self.connections.get_mut(&id) {
            conn.protocol.logout_done(response);
            conn.touched = true;
        }
    }

    /// The protocol has ended the connection.
    fn close(&mut self, id: WireId, reason: &CloseReason, net: &mut Network, env: &mut Env) {
        env.note(|| format!("wire {id}: the target closes it, {reason}"));
        let honest = matches!(reason, CloseReason::Protocol(_)) && !net.has_damaged(Side::Target);
        if honest {
            env.fail(format!("the target finds fault with an honest initiator: {reason}"));
        }
        if self.keeps(id) {
            self.suspended(id, Some(reason), net, env);
            return self.close_after_send(id);
        }
        if self.is_parked(id) {
            return self.end_unrecovered(id, net, env);
        }
        if self.takes_siblings_along(id, reason) {
            self.end_siblings(id, reason, net, env);
        }
        self.end_session_part(id, env);
        self.close_after_send(id);
    }

    fn close_after_send(&mut self, id: WireId) {
        if let Some(conn) = self.connections.get_mut(&id) {
            conn.closing = true;
        }
    }

    /// The other connections of the session end with this one. After a logout there is nothing to tell.
    fn end_siblings(&mut self, id: WireId, reason: &CloseReason, net: &mut Network, env: &mut Env) {
        let Some(session) = self.session_of(id) else { return };
        let siblings = self.sessions.end(session.tsih);
        for other in siblings.into_iter().filter(|other| *other != id) {
            if *reason == CloseReason::Logout || self.is_parked(other) {
                self.cut(other, net, env);
            } else if let Some(conn) = self.connections.get_mut(&other) {
                conn.protocol.drop_session();
                conn.touched = true;
            }
        }
    }

    fn end_session_part(&mut self, id: WireId, env: &mut Env) {
        self.abandon(id, None, env);
        let Some(conn) = self.connections.get_mut(&id) else { return };
        if let Some(session) = conn.session.take() {
            self.sessions.remove(session.tsih, id);
        }
    }

    /// Ends a connection without another word.
    fn cut(&mut self, id: WireId, net: &mut Network, env: &mut Env) {
        self.end_session_part(id, env);
        self.connections.remove(&id);
        net.close(id, Side::Target, env);
    }
}

/// Up to `most` bytes of what is ready to be sent.
pub(crate) fn gather<'a>(slices: impl Iterator<Item = &'a [u8]>, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for slice in slices {
        let len = slice.len().min(most - bytes.len());
        bytes.extend_from_slice(&slice[..len]);
        if bytes.len() == most {
            break;
        }
    }
    bytes
}
