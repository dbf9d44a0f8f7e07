//! Tasks: one for each SCSI command, from admission to the response.

mod admission;
mod at_once;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use lunette_buffer::Payload;
use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseFormat, Status, TaskAttribute};

use crate::command::{Command, Response};
use crate::commands::context::{Cx, INTERNAL_FAILURE};
use crate::commands::row::{Direction, RangeRule, Row};
use crate::commands::sanitize::work;
use crate::coroutine::workspace::RunningHandler;
use crate::coroutine::{BackgroundTask, Input, Step};
use crate::reservations::Refusal;
use crate::scrub;
use crate::target_device::nexus::NexusState;
use crate::target_device::{Nexus, TargetDevice};
use crate::task::admission::Admitted;
use crate::unit::LogicalUnit;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::medium::MediumUse;

pub use at_once::AtOnce;

/// The execution of one command. The crate's documentation explains how to drive it.
pub struct Task {
    state: State,
}

enum State {
    /// Not started yet.
    Ready {
        device: Arc<TargetDevice>,
        nexus: Arc<NexusState>,
        command: Command,
    },
    /// The handler waits for an answer.
    Running {
        row: &'static Row,
        handler: RunningHandler,
        itl: Option<Arc<ItlNexus>>,
    },
    Ended,
}

impl TargetDevice {
    /// Creates the task of a command. Nothing happens before its first [`Task::step`].
    pub fn start(&self, nexus: &Nexus, command: Command) -> Task {
        Task::new(Arc::clone(&nexus.device), Arc::clone(&nexus.state), command)
    }

    /// The background work of the logical units: what an earlier process did not finish, and what never ends, as scrubs. Each piece of work is
    /// returned once; the caller drives it to its end, or to its own.
    pub fn background(&self) -> Vec<BackgroundTask> {
        self.units().iter().flat_map(|(_, unit)| [work::resume(unit), scrub::begin(unit)]).flatten().collect()
    }
}

impl Task {
    pub(crate) fn new(device: Arc<TargetDevice>, nexus: Arc<NexusState>, command: Command) -> Self {
        Self { state: State::Ready { device, nexus, command } }
    }

    /// Passes the answer to the last step ([`Input::Start`] first) and returns the next step.
    ///
    /// An input that does not answer the last step, and every call after the end, produces CHECK CONDITION with
    /// HARDWARE ERROR, INTERNAL TARGET FAILURE.
    pub fn step(&mut self, input: Input) -> Step {
        // In place, because a running state is large to move.
        if let State::Running { handler, .. } = &mut self.state {
            handler.channel().answer(input);
            return self.run();
        }
        match (std::mem::replace(&mut self.state, State::Ended), input) {
            (State::Ready { device, nexus, command }, Input::Start) => self.start(device, nexus, command),
            _ => out_of_sequence(),
        }
    }

    /// Whether the task accesses `unit`.
    pub fn uses(&self, unit: &Arc<LogicalUnit>) -> bool {
        match &self.state {
            State::Running { itl, handler, .. } => {
                itl.as_ref().is_some_and(|itl| Arc::ptr_eq(&itl.unit, unit)) || handler.channel().uses(unit)
            }
            State::Ready { .. } | State::Ended => false,
        }
    }

    /// Admits the command and starts its handler.
    fn start(&mut self, device: Arc<TargetDevice>, nexus: Arc<NexusState>, command: Command) -> Step {
        let lun = Lun::decode(command.lun);
        if command.attribute == TaskAttribute::Aca {
            return Step::Done(Response::check(&NO_ACA, format_of(nexus.find(lun).as_ref())));
        }
        let admitted = admission::admit(&nexus, lun, &command.cdb);
        let Admitted { row, itl, extent, epoch } = match admitted {
            Ok(admitted) => admitted,
            Err(Refusal::Conflict) => {
                tracing::debug!(opcode = ?command.cdb.opcode(), %lun, "reservation conflict");
                return Step::Done(Response { status: Status::RESERVATION_CONFLICT, ..Response::good() });
            }
            Err(Refusal::Check(sense)) => {
                tracing::debug!(opcode = ?command.cdb.opcode(), %lun, ?sense, "refused");
                return Step::Done(Response::check(&sense, format_of(nexus.find(lun).as_ref())));
            }
        };
        let seen = itl.clone();
        let mut handler = RunningHandler::new();
        let Command { cdb, data_out_len, .. } = command;
        let claim = OnceLock::new();
        let channel = Arc::clone(handler.channel());
        let cx = Cx { row, device, nexus, itl, cdb, extent, epoch, data_out_len, channel, claim };
        (row.handler)(cx, handler.slot());
        self.state = State::Running { row, handler, itl: seen };
        self.run()
    }

    /// Resumes the handler until it asks for something or ends.
    fn run(&mut self) -> Step {
        let State::Running { handler, .. } = &mut self.state else { return out_of_sequence() };
        let reply = match handler.poll() {
            Poll::Ready(reply) => reply,
            Poll::Pending => match handler.channel().asked() {
                Some(step) => return step,
                None => Err(INTERNAL_FAILURE),
            },
        };
        let ended = std::mem::replace(&mut self.state, State::Ended);
        let State::Running { row, handler, itl } = ended else { return out_of_sequence() };
        let channel = handler.channel();
        let response = match reply {
            Ok(buffer) => {
                let (status, status_qualifier) = channel.status();
                let data_in = buffer.map_or_else(|| channel.take_reply(), Payload::from);
                Response { status, status_qualifier, data_in, ..Response::good() }
            }
            Err(sense) => {
                tracing::debug!(command = row.name, ?sense, "failed");
                Response::check(&sense, format_of(itl.as_ref()))
            }
        };
        let mut response = Response { data_out_transfer_len: channel.data_out_transfer_len(), ..response };
        if let Some(itl) = itl.filter(|_| response.sense.is_none() && row.range == RangeRule::Transfer) {
            response.edu_len = itl.unit.edu_len();
            if itl.unit.quanta().is_some() {
                response.digests = channel.take_digests();
            }
            count(row, &itl.unit, response.data_in.len() as u64, response.data_out_transfer_len);
        }
        Step::Done(response)
    }
}

/// The response to a driver that breaks the order of steps.
fn out_of_sequence() -> Step {
    Step::Done(Response::check(&INTERNAL_FAILURE, SenseFormat::Fixed))
}

/// The response to an ACA task: no auto contingent allegiance ever exists (SAM-5 8.6.5), because NACA is not supported.
const NO_ACA: SenseData = SenseData::illegal_request(AdditionalSense::INVALID_MESSAGE_ERROR);

/// The sense data format of the logical unit behind `itl`.
fn format_of(itl: Option<&Arc<ItlNexus>>) -> SenseFormat {
    itl.map_or(SenseFormat::Fixed, |itl| itl.unit.sense_format())
}

/// Counts a command that transferred blocks.
fn count(row: &Row, unit: &LogicalUnit, data_in_len: u64, data_out_len: u64) {
    let (counters, block_size) = (unit.counters(), u64::from(unit.block_size()));
    if row.medium == MediumUse::Writes {
        counters.write_commands.add(1);
        counters.blocks_received.add(data_out_len / block_size);
    } else if row.direction == Direction::In {
        counters.read_commands.add(1);
        counters.blocks_transmitted.add(data_in_len / block_size);
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Ready { command, .. } => write!(f, "Task(ready, {:?})", command.cdb.opcode()),
            State::Running { row, .. } => write!(f, "Task(running, {})", row.name),
            State::Ended => f.write_str("Task(ended)"),
        }
    }
}
