//! Tasks: commands on their way.

mod gate;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseFormat, Status, TaskAttribute};

use crate::command::{Command, Response};
use crate::commands::context::{Cx, INTERNAL};
use crate::commands::opcodes::{Direction, Range, Row};
use crate::commands::sanitize::work;
use crate::coroutine::workspace::Handling;
use crate::coroutine::{BackgroundTask, Input, Step};
use crate::reservations::Refusal;
use crate::target_device::nexus::NexusState;
use crate::target_device::{Nexus, TargetDevice};
use crate::task::gate::Admitted;
use crate::unit::LogicalUnit;
use crate::unit::itl_nexus::Link;
use crate::unit::medium::Medium;

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
        handling: Handling,
        link: Option<Arc<Link>>,
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
    /// ERROR, INTERNAL TARGET FAILURE.
    pub fn step(&mut self, input: Input) -> Step {
        // In place, for what runs is long.
        if let State::Running { handling, .. } = &mut self.state {
            handling.exchange().answer(input);
            return self.run();
        }
        match (std::mem::replace(&mut self.state, State::Ended), input) {
            (State::Ready { device, nexus, command }, Input::Start) => self.start(device, nexus, command),
            _ => broken(),
        }
    }

    /// Whether the task works on `unit`.
    pub fn uses(&self, unit: &Arc<LogicalUnit>) -> bool {
        match &self.state {
            State::Running { link, handling, .. } => {
                link.as_ref().is_some_and(|link| Arc::ptr_eq(&link.unit, unit)) || handling.exchange().uses(unit)
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
        let admitted = gate::admit(&nexus, lun, &command.cdb);
        let Admitted { row, link, extent, era } = match admitted {
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
        let seen = link.clone();
        let mut handling = Handling::new();
        let Command { cdb, data_out_len, .. } = command;
        let claim = OnceLock::new();
        let exchange = Arc::clone(handling.exchange());
        let cx = Cx { row, device, nexus, link, cdb, extent, era, data_out_len, exchange, claim };
        (row.handler)(cx, handling.place());
        self.state = State::Running { row, handling, link: seen };
        self.run()
    }

    /// Lets the handler go on until it asks for something or ends.
    fn run(&mut self) -> Step {
        let State::Running { handling, .. } = &mut self.state else { return broken() };
        let reply = match handling.poll() {
            Poll::Ready(reply) => reply,
            Poll::Pending => match handling.exchange().asked() {
                Some(step) => return step,
                None => Err(INTERNAL),
            },
        };
        let ended = std::mem::replace(&mut self.state, State::Ended);
        let State::Running { row, handling, link } = ended else { return broken() };
        let exchange = handling.exchange();
        let response = match reply {
            Ok(data_in) => {
                let (status, status_qualifier) = exchange.status();
                Response { status, status_qualifier, data_in, data_in_file: exchange.take_file(), ..Response::good() }
            }
            Err(sense) => {
                tracing::debug!(command = row.name, ?sense, "failed");
                Response::check(&sense, format_of(link.as_ref()))
            }
        };
        let response = Response { data_out_transfer_len: exchange.data_out_transfer_len(), ..response };
        if let Some(link) = link.filter(|_| response.sense.is_none() && row.range == Range::Transfer) {
            count(row, &link.unit, &response);
        }
        Step::Done(response)
    }
}

/// The answer to a driver that does not keep the order of steps.
fn broken() -> Step {
    Step::Done(Response::check(&INTERNAL, SenseFormat::Fixed))
}

/// An ACA task where no auto contingent allegiance is in force, which it never is (SAM-5 8.6.5; NACA is not supported).
const NO_ACA: SenseData = SenseData::illegal_request(AdditionalSense::INVALID_MESSAGE_ERROR);

/// The format of sense data where `link` leads.
fn format_of(link: Option<&Arc<Link>>) -> SenseFormat {
    link.map_or(SenseFormat::Fixed, |link| link.unit.sense_format())
}

/// Counts a command that has transferred blocks.
fn count(row: &Row, unit: &LogicalUnit, response: &Response) {
    let (counters, block_size) = (unit.counters(), u64::from(unit.block_size()));
    if row.medium == Medium::Writes {
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
