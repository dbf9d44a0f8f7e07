//! The events of a connection for its driver, and the driver's answers.

use std::time::Duration;

use lunette_buffer::{Buffer, Payload};
use lunette_pdu::{
    Cid, InitiatorTaskTag, LunField, SerialNumber, TaskAttribute, TaskManagementFunction, TaskManagementResponseCode,
};

/// A task of one connection, until it ends. Tags of ended tasks are recognised as such and harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskTag {
    pub(crate) slot: u16,
    pub(crate) generation: u32,
}

impl TaskTag {
    /// Where it stands in a table of the connection's tasks: a small number, which no other living task of the
    /// connection has.
    pub fn index(self) -> usize {
        usize::from(self.slot)
    }
}

/// Something that the driver has to deal with before it calls the session again. Where no connection is named, it
/// concerns the one whose bytes brought it. `H` is how the driver calls a connection.
#[derive(Debug)]
pub enum Event<H> {
    /// A SCSI command: answer with `want_data`, then or later `complete`.
    Command(Command),
    /// All data that was wanted is here and verified. The task may run.
    DataOut {
        /// The task of the data.
        task: TaskTag,
        /// The buffer given to `want_data`. When the initiator announced less than its length, only the first bytes are
        /// its.
        buffer: Buffer,
    },
    /// The task has ended without the device: its data could not be used, or it is gone with its connection. Forget it.
    Aborted(TaskTag),
    /// The connection has taken over a task of one that was lost.
    Moved {
        /// The connection that has lost the task.
        from: H,
        /// The name of the task there.
        old: TaskTag,
        /// The name of the task from now on.
        new: TaskTag,
    },
    /// Do what it says, then answer with [`done`](super::Session::done), or with [`answer`](super::Session::answer)
    /// when there is nothing to wait for.
    TaskManagement(TaskManagementTicket<H>),
    /// The initiator has asked again for data whose [known digest](KnownDigests) is not that of its bytes. They are not
    /// sent again.
    DataDamaged,
    /// TARGET COLD RESET has been answered: [reset](super::Session::reset) all sessions of the target (RFC 7143 section
    /// 11.5.1).
    TargetReset,
    /// End the tasks of a connection, and it, too, unless it is this one. Then answer with
    /// [`logged_out`](super::Session::logged_out).
    Logout {
        /// Consumed by the answer.
        ticket: LogoutTicket,
        /// The connection to end; it may be the one of the event, which then ends by itself.
        connection: H,
    },
    /// The connection has failed, or the initiator has logged out of it for recovery. Send what is ready, and close its
    /// socket; its tasks wait for another connection.
    Suspended(CloseReason),
    /// The connection is logged out for recovery over another one. Close its socket at once; its tasks wait.
    Detached,
    /// The connection ends with its session, or nothing of it is left to be taken over. End its tasks, close its socket
    /// and [remove](super::Sessions::remove) it.
    Gone,
    /// The connection is over. End its tasks and let it [leave](super::Sessions::leave); send what is ready, and close
    /// its socket.
    Close(CloseReason),
}

/// The messages of a connection to its session.
#[derive(Debug)]
pub(crate) enum Signal {
    Command(Command),
    DataOut {
        task: TaskTag,
        buffer: Buffer,
    },
    Aborted(TaskTag),
    TaskManagement(TaskManagement),
    DataDamaged,
    /// Commands of this connection have made way for others of its session: that connection may go on, or all others
    /// when none is named.
    Resume(Option<Cid>),
    /// The initiator logs out of the connection of that number.
    Logout(Cid),
    /// A logout for recovery.
    LogoutForRecovery {
        cid: Cid,
        /// The number up to which the initiator has received there: its ExpStatSN.
        received: SerialNumber,
    },
    Close(CloseReason),
}

/// A task management request that the driver works on. The answer consumes it.
#[derive(Debug)]
pub struct TaskManagementTicket<H> {
    pub(crate) request: TaskManagement,
    /// The connection that has the task of ABORT TASK.
    pub(crate) at: H,
}

impl<H: Copy> TaskManagementTicket<H> {
    /// The request.
    pub fn request(&self) -> &TaskManagement {
        &self.request
    }

    /// The task to abort, for ABORT TASK, and its connection: that of the request, or one that was lost.
    pub fn referenced(&self) -> Option<(H, TaskTag)> {
        Some((self.at, self.request.referenced?))
    }
}

/// A logout that the driver works on. The answer consumes it.
#[derive(Debug)]
pub struct LogoutTicket(pub(crate) ());

/// Where a command stands in the order of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandOrder {
    /// The command's number; of an immediate command, that of the next one.
    pub cmd_sn: SerialNumber,
    /// Whether the command is immediate and uses up no number.
    pub immediate: bool,
}

impl CommandOrder {
    /// Whether a task management request with that CmdSN concerns the command: it was sent before.
    pub fn is_covered_by(self, request: SerialNumber) -> bool {
        if self.immediate { !self.cmd_sn.is_after(request) } else { self.cmd_sn.is_before(request) }
    }
}

/// A SCSI command, as the device server wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Names the task from now on.
    pub task: TaskTag,
    /// The command's place among the commands of the session.
    pub order: CommandOrder,
    /// The LUN as it stands in the header.
    pub lun: LunField,
    /// The first 16 bytes of the CDB; `cdb_rest` has the others.
    pub cdb: [u8; 16],
    /// The rest of an extended CDB; mostly empty.
    pub cdb_rest: Box<[u8]>,
    /// How the task stands to others of its set.
    pub attribute: TaskAttribute,
    /// From 1, the most urgent, to 15; 0 when none was given (SAM-5 8.7). Comes with iSCSIProtocolLevel 2.
    pub priority: u8,
    /// Bytes that the initiator will send at most.
    pub data_out_len: u32,
    /// Bytes that the initiator will take at most.
    pub data_in_len: u32,
    /// How long the command waited for those before it, which came later: over another connection, or again after they
    /// were damaged.
    pub window_wait: Duration,
}

/// How a task ended, in the device server's words.
#[derive(Debug, Default)]
pub struct Response {
    /// SAM-5 status code.
    pub status: u8,
    /// The addition of SAM-5 5.3.2 to BUSY, TASK SET FULL and others; 0 adds nothing. It is sent with
    /// iSCSIProtocolLevel 2.
    pub status_qualifier: u16,
    /// Sense data; empty when there is none.
    pub sense: Vec<u8>,
    /// Bytes for the initiator. When they are more than it takes, the rest counts as overflow. Of a file, only where
    /// [`super::Connection::sends_files`].
    pub data_in: Payload,
    /// The driver's knowledge of the digests of that data, if any.
    pub digests: Option<KnownDigests>,
    /// The length of the blocks that the data is made of, of a unit whose blocks are worth nothing in parts; else 0.
    /// Data segments are cut between blocks where that is possible.
    pub block_len: u16,
    /// Bytes that the CDB asked the initiator to send, for the residual.
    pub data_out_transfer_len: u64,
    /// The command has aborted tasks of others (PREEMPT AND ABORT).
    pub aborted_others: bool,
}

/// Data digests that the driver knows, so that nothing reads the data to compute them: those of whole blocks of the
/// data.
///
/// Data segments are then cut between blocks, where the initiator takes segments of a block at least. A digest is sent
/// as the driver gives it. It may be wrong, because the data is not what the driver takes it for; the initiator then
/// finds the data damaged. When it asks for the data again, the connection computes the digest, refuses to send what is
/// damaged, and says so ([`Event::DataDamaged`]).
#[derive(Debug, Clone, Copy)]
pub struct KnownDigests {
    /// Bytes of a block, more than zero.
    pub block_len: u32,
    /// The number of the block that the data begins with.
    pub first_block: u64,
    /// The CRC32C of a segment, from the length of a block, the number of the segment's first block, and the segment.
    pub crc32c: fn(u32, u64, &Payload) -> u32,
}

/// A task management function that concerns tasks, or asks about them or their logical unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskManagement {
    /// Names the request in the answer.
    pub itt: InitiatorTaskTag,
    /// The function.
    pub function: TaskManagementFunction,
    /// The logical unit; not used by target resets and I_T NEXUS RESET.
    pub lun: LunField,
    /// The task to abort, for ABORT TASK. `None`: it may wait on a suspended connection of the session, or it is gone.
    /// Perhaps an earlier request aborted it and its store still works, so the answer waits for what was aborted
    /// before.
    pub referenced: Option<TaskTag>,
    /// The initiator's name for the task, for ABORT TASK, QUERY TASK and TASK REASSIGN.
    pub referenced_itt: InitiatorTaskTag,
    /// The DataSN up to which the initiator has received it, for TASK REASSIGN.
    pub exp_data_sn: u32,
    /// The bound of the tasks of this session that are concerned ([`CommandOrder::is_covered_by`]); `None`: all of
    /// them.
    pub before: Option<SerialNumber>,
}

impl TaskManagement {
    /// The answer once everything is done that the request waits for. Of a task that is nowhere: it does not exist.
    pub(crate) fn response(&self) -> TaskManagementResponseCode {
        match self.function {
            TaskManagementFunction::ABORT_TASK | TaskManagementFunction::TASK_REASSIGN if self.referenced.is_none() => {
                TaskManagementResponseCode::TASK_DOES_NOT_EXIST
            }
            _ => TaskManagementResponseCode::FUNCTION_COMPLETE,
        }
    }
}

/// Why a connection ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The initiator logged out.
    #[error("the initiator logged out")]
    Logout,
    /// The initiator logged out of this connection; the session goes on with others.
    #[error("the initiator logged out of the connection")]
    ConnectionLogout,
    /// The initiator logged out of the connection to go on with its tasks on another one.
    #[error("the initiator logged out of the connection for recovery")]
    RecoveryLogout,
    /// The tasks of the lost connection were not taken over in time.
    #[error("the connection was not recovered in time")]
    NotRecovered,
    /// The target or the nexus was reset.
    #[error("the session was reset")]
    Reset,
    /// Another connection of the session was lost, which at recovery level 0 ends the session.
    #[error("the session was lost with another of its connections")]
    SessionLost,
    /// Commands that came before their turn have waited too long for those before them.
    #[error("commands are missing that other connections should have brought")]
    Gap,
    /// The login was refused; the answer is in the outbox.
    #[error("login refused: {0}")]
    LoginRefused(String),
    /// The login took too long.
    #[error("the login was not finished in time")]
    LoginTimeout,
    /// The initiator does not answer.
    #[error("no answer to a ping")]
    PingTimeout,
    /// Data that was announced or asked for does not come.
    #[error("the data of a command stopped coming")]
    DataTimeout,
    /// The initiator does not take the sent bytes.
    #[error("the initiator does not read what is sent to it")]
    NotReading,
    /// The initiator does not acknowledge PDUs for which other connections of the session wait.
    #[error("the initiator does not acknowledge what was sent to it")]
    NotAcknowledged,
    /// We asked for a logout and it did not come.
    #[error("no logout came within the time that was given")]
    LogoutTimeout,
    /// The initiator broke a rule that cannot be repaired at this recovery level.
    #[error("protocol error: {0}")]
    Protocol(String),
}

impl CloseReason {
    /// Whether this is a failure that recovery level 2 recovers from: the tasks wait for another connection. Everything
    /// else is the end that one side wanted.
    pub(crate) fn is_recoverable(&self) -> bool {
        matches!(
            self,
            Self::RecoveryLogout
                | Self::Gap
                | Self::PingTimeout
                | Self::DataTimeout
                | Self::NotReading
                | Self::NotAcknowledged
                | Self::Protocol(_)
        )
    }
}
