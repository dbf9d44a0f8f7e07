//! Tasks: commands on their way.

mod admission;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseFormat, Status, TaskAttribute};

use crate::command::{Command, Response};
use crate::commands::context::{Cx, INTERNAL_FAILURE};
use crate::commands::opcodes::{Direction, RangeRule, Row};
use crate::commands::sanitize::work;
use crate::coroutine::workspace::RunningHandler;
use crate::coroutine::{BackgroundTask, Input, Step};
use crate::reservations::Refusal;
use crate::target_device::nexus::NexusState;
use crate::target_device::{Nexus, TargetDevice};
use crate::task::admission::Admitted;
use crate::unit::LogicalUnit;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::medium::MediumUse;

/// One command on its way. See the crate's documentation for how to drive it.
pub struct Task {
    state: State,
}

enum State {
    /// Not begun.
    Ready {
        device: Arc<TargetDevice>,
        nexus: Arc<NexusState>,
        command: Command,
    },
    /// The handler has asked for something.
    Running {
        row: &'static Row,
        handling: RunningHandler,
        itl: Option<Arc<ItlNexus>>,
    },
    Ended,
}

impl TargetDevice {
    /// Starts a task. Nothing happens before its first [`Task::step`].
    pub fn start(&self, nexus: &Nexus, command: Command) -> Task {
        Task::new(Arc::clone(&nexus.device), Arc::clone(&nexus.state), command)
    }

    /// What an earlier process did not finish on the logical units. Each is given once, to whoever drives it to its end.
    pub fn background(&self) -> Vec<BackgroundTask> {
        self.units().iter().filter_map(|(_, unit)| work::resume(unit)).collect()
    }
}

impl Task {
    pub(crate) fn new(device: Arc<TargetDevice>, nexus: Arc<NexusState>, command: Command) -> Self {
        Self { state: State::Ready { device, nexus, command } }
    }

    /// Gives the task what it asked for ([`Input::Start`] first) and learns what it wants next.
    ///
    /// An input that does not answer the last step, and every step after the end, ends in CHECK CONDITION with HARDWARE
    /// ERROR, INTERNAL_FAILURE TARGET FAILURE.
    pub fn step(&mut self, input: Input) -> Step {
        // In place, for what runs is long.
        if let State::Running { handling, .. } = &mut self.state {
            handling.channel().answer(input);
            return self.run();
        }
        match (std::mem::replace(&mut self.state, State::Ended), input) {
            (State::Ready { device, nexus, command }, Input::Start) => self.start(device, nexus, command),
            _ => out_of_sequence(),
        }
    }

    /// Whether the task works on `unit`.
    pub fn uses(&self, unit: &Arc<LogicalUnit>) -> bool {
        match &self.state {
            State::Running { itl, handling, .. } => {
                itl.as_ref().is_some_and(|itl| Arc::ptr_eq(&itl.unit, unit)) || handling.channel().uses(unit)
            }
            State::Ready { .. } | State::Ended => false,
        }
    }

    /// Select, check, begin.
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
        let mut handling = RunningHandler::new();
        let Command { cdb, data_out_len, .. } = command;
        let claim = OnceLock::new();
        let channel = Arc::clone(handling.channel());
        let cx = Cx { row, device, nexus, itl, cdb, extent, epoch, data_out_len, channel, claim };
        (row.handler)(cx, handling.slot());
        self.state = State::Running { row, handling, itl: seen };
        self.run()
    }

    /// Lets the handler go on until it asks for something or ends.
    fn run(&mut self) -> Step {
        let State::Running { handling, .. } = &mut self.state else { return out_of_sequence() };
        let reply = match handling.poll() {
            Poll::Ready(reply) => reply,
            Poll::Pending => match handling.channel().asked() {
                Some(step) => return step,
                None => Err(INTERNAL_FAILURE),
            },
        };
        let ended = std::mem::replace(&mut self.state, State::Ended);
        let State::Running { row, handling, itl } = ended else { return out_of_sequence() };
        let channel = handling.channel();
        let response = match reply {
            Ok(data_in) => {
                let (status, status_qualifier) = channel.status();
                let data_in_place = channel.take_in_place();
                Response { status, status_qualifier, data_in, data_in_place, ..Response::good() }
            }
            Err(sense) => {
                tracing::debug!(command = row.name, ?sense, "failed");
                Response::check(&sense, format_of(itl.as_ref()))
            }
        };
        let response = Response { data_out_transfer_len: channel.data_out_transfer_len(), ..response };
        if let Some(itl) = itl.filter(|_| response.sense.is_none() && row.range == RangeRule::Transfer) {
            count(row, &itl.unit, &response);
        }
        Step::Done(response)
    }
}

/// The answer to a driver that does not keep the order of steps.
fn out_of_sequence() -> Step {
    Step::Done(Response::check(&INTERNAL_FAILURE, SenseFormat::Fixed))
}

/// An ACA task where no auto contingent allegiance is in force, which it never is (SAM-5 8.6.5; NACA is not supported).
const NO_ACA: SenseData = SenseData::illegal_request(AdditionalSense::INVALID_MESSAGE_ERROR);

/// The format of sense data where `itl` leads.
fn format_of(itl: Option<&Arc<ItlNexus>>) -> SenseFormat {
    itl.map_or(SenseFormat::Fixed, |itl| itl.unit.sense_format())
}

/// Counts a command that has transferred blocks.
fn count(row: &Row, unit: &LogicalUnit, response: &Response) {
    let (counters, block_size) = (unit.counters(), u64::from(unit.block_size()));
    if row.medium == MediumUse::Writes {
        counters.write_commands.add(1);
        counters.blocks_received.add(response.data_out_transfer_len / block_size);
    } else if row.direction == Direction::In {
        let bytes = response.data_in_len() as u64;
        counters.read_commands.add(1);
        counters.blocks_transmitted.add(bytes / block_size);
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
