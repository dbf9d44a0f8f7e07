//! The target's driver: bytes in, events to a scripted device, bytes out.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::{Pool, Run};
use lunette_pdu::{LoginStatus, LogoutResponseCode};
use lunette_session::Time;
use lunette_session::iscsi_target::{
    AdmitRequest, AnswerData, CloseReason, Command, Connection, Event, Response, Sessions, TaskManagement, TaskTag,
};

use super::pattern;

/// How the stream arrives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// Bytes in one receive.
    pub(crate) piece: usize,
    /// Whether large data segments are received straight into their place.
    pub(crate) direct: bool,
}

impl Cut {
    pub(crate) const WHOLE: Self = Self { piece: usize::MAX, direct: false };
}

/// Bounds the calls that one piece of input may cost: a machine that spins fails its test.
const MAX_EVENTS_PER_PIECE: usize = 100_000;

/// Bytes of the pieces in which a store lends. It divides no length of a PDU.
const LENT_RUN_LEN: usize = 777;

pub(crate) struct Driver {
    pub(crate) connection: Connection,
    pub(crate) sessions: Sessions<u32>,
    pub(crate) pool: Pool,
    pub(crate) now: Time,
    pub(crate) cut: Cut,
    /// Whether admission, commands, data and task management are answered at once, in the obvious way.
    pub(crate) automatic: bool,
    /// How this connection is called in `sessions`.
    pub(crate) handle: u32,
    pub(crate) displaced: Vec<u32>,
    /// Bytes that the connection does not want yet: they wait in the socket.
    unread: Vec<u8>,
    pub(crate) commands: Vec<Command>,
    pub(crate) data_out: Vec<(TaskTag, Vec<u8>)>,
    pub(crate) aborted: Vec<TaskTag>,
    pub(crate) task_management: Vec<TaskManagement>,
    pub(crate) admissions: usize,
    pub(crate) admit_requests: Vec<AdmitRequest>,
    pub(crate) closed: Option<CloseReason>,
    /// Whether the next answer is lent.
    pub(crate) lends: Cell<bool>,
}

impl Driver {
    pub(crate) fn new(connection: Connection, now: Time) -> Self {
        Self {
            connection,
            sessions: Sessions::default(),
            pool: Pool::new(64 << 20),
            now,
            cut: Cut::WHOLE,
            automatic: true,
            handle: 1,
            displaced: Vec::new(),
            unread: Vec::new(),
            commands: Vec::new(),
            data_out: Vec::new(),
            aborted: Vec::new(),
            task_management: Vec::new(),
            admissions: 0,
            admit_requests: Vec::new(),
            closed: None,
            lends: Cell::new(false),
        }
    }

    /// The initiator's bytes arrive at the socket.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        self.pump();
    }

    /// Reads from the socket as long as the connection wants.
    pub(crate) fn pump(&mut self) {
        self.drain(&[]);
        while !self.unread.is_empty() && self.connection.wants_input() {
            let piece_len = self.cut.piece.min(self.unread.len());
            let place = self.connection.direct().filter(|_| self.cut.direct);
            if let Some(place) = place {
                let len = piece_len.min(place.len());
                place[..len].copy_from_slice(&self.unread[..len]);
                self.unread.drain(..len);
                self.connection.direct_received(len, self.now);
                self.drain(&[]);
            } else {
                let piece: Vec<u8> = self.unread.drain(..piece_len).collect();
                self.drain(&piece);
            }
        }
    }

    /// How much the socket still holds.
    pub(crate) fn unread(&self) -> usize {
        self.unread.len()
    }

    fn drain(&mut self, mut input: &[u8]) {
        for _ in 0..MAX_EVENTS_PER_PIECE {
            let Some(event) = self.connection.next_event(&mut input, self.now) else {
                self.connection.hold(input);
                return;
            };
            self.happened(event);
        }
        panic!("the machine spins");
    }

    fn happened(&mut self, event: Event) {
        assert!(self.closed.is_none(), "{event:?} after the end");
        match event {
            Event::Admit(request) => {
                self.admissions += 1;
                self.admit_requests.push((*request).clone());
                if self.automatic {
                    match self.sessions.admit(&request, self.handle) {
                        Ok(admitted) => {
                            self.displaced.extend(admitted.displaced);
                            self.connection.admit(admitted.session, self.now);
                        }
                        Err(status) => self.connection.refuse(status),
                    }
                }
            }
            Event::Command(command) => {
                self.commands.push(command.clone());
                if self.automatic {
                    self.run(&command);
                }
            }
            Event::DataOut { task, buffer } => {
                self.data_out.push((task, buffer.to_vec()));
                if self.automatic {
                    self.connection.complete(task, wrote(buffer.len()));
                }
            }
            Event::Aborted(task) => self.aborted.push(task),
            Event::TaskManagement(request) => {
                self.task_management.push(request);
                if self.automatic {
                    if let Some(task) = request.referenced {
                        self.connection.abort(task);
                    }
                    self.connection.task_management_done(request.itt, request.done());
                }
            }
            Event::Logout(cid) | Event::LogoutForRecovery { cid, .. } if self.automatic => {
                let known = self.sessions.connections(self.connection.session().unwrap().tsih);
                let is_known = known.iter().any(|(other, _)| *other == cid);
                let answer = if is_known { LogoutResponseCode::CLOSED } else { LogoutResponseCode::CID_NOT_FOUND };
                self.connection.logout_done(answer);
            }
            Event::Logout(_) | Event::LogoutForRecovery { .. } | Event::Resume(_) => {}
            Event::Close(reason) => self.closed = Some(reason),
        }
    }

    /// Takes all data that is offered, gives all data that is taken.
    fn run(&mut self, command: &Command) {
        if command.data_out_len > 0 {
            self.want_data(command.task, command.data_out_len as usize);
        } else if command.data_in_len > 0 {
            self.give_data(command.task, command.data_in_len as usize);
        } else {
            self.connection.complete(command.task, Response::default());
        }
    }

    pub(crate) fn want_data(&mut self, task: TaskTag, len: usize) {
        let buffer = self.pool.take(len).expect("the pool of the tests is large");
        self.connection.want_data(task, buffer);
    }

    pub(crate) fn give_data(&mut self, task: TaskTag, len: usize) {
        self.connection.complete(task, self.read_response(len));
    }

    /// GOOD with that much data; each second time as a store lends it, if it is not too long.
    pub(crate) fn read_response(&self, len: usize) -> Response {
        let mut buffer = self.pool.reserve(len).expect("the pool of the tests is large");
        let lends = self.lends.replace(!self.lends.get());
        let pattern = pattern(len);
        let runs = pattern.chunks(LENT_RUN_LEN).map(|run| Run { memory: Arc::new(run.to_vec()), range: 0..run.len() });
        if lends {
            buffer.allow_loan();
        }
        let data_in = buffer.lend(runs).map_or_else(
            |mut buffer| {
                buffer.copy_from_slice(&pattern);
                buffer.into()
            },
            AnswerData::Loan,
        );
        Response { data_in: Some(data_in), ..Response::default() }
    }

    pub(crate) fn refuse(&mut self, status: LoginStatus) {
        self.connection.refuse(status);
        self.pump();
    }

    /// Lets time pass, doing what is due on the way, as a reactor would.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.connection.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.connection.time_has_come(self.now);
            self.drain(&[]);
            let next = self.connection.next_timeout();
            assert!(next.is_none_or(|next| next > self.now), "a timeout that stays due");
        }
        self.now = end;
    }

    /// Takes what is ready to be sent, `piece` bytes at a time.
    pub(crate) fn take_output(&mut self, piece: usize) -> Vec<u8> {
        let mut wire = Vec::new();
        while self.connection.has_output() {
            let before = wire.len();
            for slice in self.connection.slices() {
                assert!(!slice.is_empty(), "an empty slice");
                let room = piece.saturating_sub(wire.len() - before);
                wire.extend_from_slice(&slice[..room.min(slice.len())]);
                if room <= slice.len() {
                    break;
                }
            }
            self.connection.sent(wire.len() - before);
        }
        wire
    }
}

/// GOOD, and that much was wanted.
pub(crate) fn wrote(len: usize) -> Response {
    Response { data_out_transfer_len: len as u64, ..Response::default() }
}
