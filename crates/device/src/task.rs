//! Tasks: one for each SCSI command, from admission to the response.

mod admission;
mod at_once;
mod in_flight;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use lunette_buffer::Payload;
use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseFormat, Status, TaskAttribute};

use crate::command::{Command, Response};
use crate::commands::context::{Cx, INTERNAL_FAILURE};
use crate::commands::opcodes;
use crate::commands::row::{RangeRule, Row};
use crate::commands::sanitize::work;
use crate::coroutine::workspace::RunningHandler;
use crate::coroutine::{BackgroundTask, Input, Step};
use crate::preemption;
use crate::reservations::Refusal;
use crate::scrub;
use crate::target_device::nexus::NexusState;
use crate::target_device::{Nexus, TargetDevice};
use crate::task::admission::Admitted;
use crate::unit::LogicalUnit;
use crate::unit::itl_nexus::ItlNexus;

pub use at_once::AtOnce;
use in_flight::InFlight;

/// The execution of one command. The crate's documentation explains how to drive it.
pub struct Task {
    state: State,
}

enum State {
    /// Not started yet.
    Ready { device: Arc<TargetDevice>, nexus: Arc<NexusState>, command: Command },
    /// The handler waits for an answer.
    Running { row: &'static Row, handler: RunningHandler, in_flight: Option<InFlight> },
    /// The latency may still be told.
    Ended(Option<InFlight>),
}

impl TargetDevice {
    /// Creates the task of a command. Nothing happens before its first [`Task::step`].
    pub fn start(&self, nexus: &Nexus, command: Command) -> Task {
        Task::new(Arc::clone(&nexus.device), Arc::clone(&nexus.state), command)
    }

    /// The background work of the logical units: what an earlier process did not finish, and what never ends, as
    /// scrubs. Each piece of work is returned once; the caller drives it to its end, or to its own.
    pub fn background(&self) -> Vec<BackgroundTask> {
        self.units()
            .iter()
            .flat_map(|(_, unit)| [work::resume(unit), scrub::begin(unit), preemption::begin(unit)])
            .flatten()
            .collect()
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
        match (std::mem::replace(&mut self.state, State::Ended(None)), input) {
            (State::Ready { device, nexus, command }, Input::Start) => self.start(device, nexus, command),
            _ => out_of_sequence(),
        }
    }

    /// Whether the command was sent to `unit`.
    pub fn is_for(&self, unit: &Arc<LogicalUnit>) -> bool {
        match &self.state {
            State::Ready { nexus, command, .. } => {
                nexus.find(Lun::decode(command.lun)).is_some_and(|itl| Arc::ptr_eq(&itl.unit, unit))
            }
            State::Running { in_flight, .. } => {
                in_flight.as_ref().is_some_and(|command| Arc::ptr_eq(&command.itl().unit, unit))
            }
            State::Ended(_) => false,
        }
    }

    /// Whether the task accesses `unit`.
    pub fn uses(&self, unit: &Arc<LogicalUnit>) -> bool {
        match &self.state {
            State::Running { handler, .. } => self.is_for(unit) || handler.channel().uses(unit),
            State::Ready { .. } | State::Ended(_) => false,
        }
    }

    /// The driver answers the command itself, with this status. Nothing after the end of the task.
    pub fn end_with(&mut self, status: Status) {
        let mut in_flight = match std::mem::replace(&mut self.state, State::Ended(None)) {
            State::Ready { nexus, command, .. } => {
                let itl = nexus.find(Lun::decode(command.lun));
                itl.map(|itl| InFlight::begin(itl, opcodes::find(&command.cdb).ok()))
            }
            State::Running { in_flight, .. } | State::Ended(in_flight) => in_flight,
        };
        if let Some(command) = &mut in_flight {
            command.end(status, None);
        }
        self.state = State::Ended(in_flight);
    }

    /// Tells how long the command took, from the moment at which it was decoded until its answer was queued. Call it
    /// once, after the end.
    pub fn took(&self, took: Duration) {
        if let State::Ended(Some(command)) = &self.state {
            command.took(took);
        }
    }

    /// Admits the command and starts its handler.
    fn start(&mut self, device: Arc<TargetDevice>, nexus: Arc<NexusState>, command: Command) -> Step {
        let (itl, row) = (nexus.find(Lun::decode(command.lun)), opcodes::find(&command.cdb));
        let mut in_flight = itl.clone().map(|itl| InFlight::begin(itl, row.ok()));
        let admitted = if command.attribute == TaskAttribute::Aca {
            Err(Refusal::Check(NO_ACA))
        } else {
            admission::admit(row, itl, &command.cdb, &nexus.it_nexus)
        };
        let Admitted { row, itl, extent, epoch } = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => {
                let response = refused(&refusal, &command, in_flight.as_ref());
                if let Some(command) = &mut in_flight {
                    command.end(response.status, refusal.sense());
                }
                self.state = State::Ended(in_flight);
                return Step::Done(response);
            }
        };
        let mut handler = RunningHandler::new();
        let Command { cdb, data_out_len, .. } = command;
        let claim = OnceLock::new();
        let channel = Arc::clone(handler.channel());
        let cx = Cx { row, device, nexus, itl, cdb, extent, epoch, data_out_len, channel, claim };
        (row.handler)(cx, handler.slot());
        self.state = State::Running { row, handler, in_flight };
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
        let ended = std::mem::replace(&mut self.state, State::Ended(None));
        let State::Running { row, handler, mut in_flight } = ended else { return out_of_sequence() };
        let channel = handler.channel();
        let itl = in_flight.as_ref().map(InFlight::itl);
        let (response, sense) = match reply {
            Ok(buffer) => {
                let (status, status_qualifier) = channel.status();
                let data_in = buffer.map_or_else(|| channel.take_reply(), Payload::from);
                (Response { status, status_qualifier, data_in, ..Response::good() }, None)
            }
            Err(sense) => {
                tracing::debug!(command = row.name, ?sense, "failed");
                (Response::check(&sense, format_of(itl)), Some(sense))
            }
        };
        let mut response = Response { data_out_transfer_len: channel.data_out_transfer_len(), ..response };
        if let Some(command) = in_flight.as_mut() {
            command.end(response.status, sense.as_ref());
            if sense.is_none() {
                command.transferred(response.data_in.len() as u64, response.data_out_transfer_len);
            }
            let unit = &command.itl().unit;
            if sense.is_none() && row.range == RangeRule::Transfer {
                response.edu_len = unit.edu_len();
                if unit.quanta().is_some() {
                    response.digests = channel.take_digests();
                }
            }
        }
        self.state = State::Ended(in_flight);
        Step::Done(response)
    }
}

/// The response to a command that is not admitted.
fn refused(refusal: &Refusal, command: &Command, in_flight: Option<&InFlight>) -> Response {
    let (opcode, lun) = (command.cdb.opcode(), Lun::decode(command.lun));
    match refusal {
        Refusal::Conflict => {
            tracing::debug!(?opcode, %lun, "reservation conflict");
            Response { status: Status::RESERVATION_CONFLICT, ..Response::good() }
        }
        Refusal::Check(sense) => {
            tracing::debug!(?opcode, %lun, ?sense, "refused");
            Response::check(sense, format_of(in_flight.map(InFlight::itl)))
        }
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

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Ready { command, .. } => write!(f, "Task(ready, {:?})", command.cdb.opcode()),
            State::Running { row, .. } => write!(f, "Task(running, {})", row.name),
            State::Ended(_) => f.write_str("Task(ended)"),
        }
    }
}
