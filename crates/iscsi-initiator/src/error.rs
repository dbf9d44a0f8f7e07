//! What can go wrong, in the caller's words.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use lunette_pdu::{TaskManagementFunction, TaskManagementResponseCode};
use lunette_scsi::{SenseData, Status};
use lunette_session::iscsi_initiator::SessionError;

use crate::{BadAddress, Portal, UrlError};

/// Why something was not done.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No TCP connection.
    #[error("cannot connect to {portal}: {source}")]
    Connect {
        /// `host:port`.
        portal: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// No session, or no longer: the login failed, the target broke a rule, or it dropped us.
    #[error("{portal}: {why}")]
    Session {
        /// `host:port`.
        portal: String,
        /// Why.
        why: SessionError,
    },
    /// The connection was lost, and no new one could be made in time.
    #[error("{portal}: connection lost, and no new one within {given_up_after:?}: {last}")]
    Lost {
        /// `host:port`.
        portal: String,
        /// How long it was tried.
        given_up_after: Duration,
        /// What the last attempt ended with.
        last: Box<Error>,
    },
    /// The target sends us in circles.
    #[error("{portal}: redirected more than {limit} times, at last to {last}")]
    TooManyRedirects {
        /// `host:port`, the first one.
        portal: String,
        /// How many are followed.
        limit: usize,
        /// The portals of the last redirections, in their order.
        last: String,
    },
    /// The target redirects to where no target can be.
    #[error("{portal}: redirected to {address:?}, where no target can be: {why}")]
    BadRedirect {
        /// `host:port` of the portal that redirects.
        portal: String,
        /// The beginning of its TargetAddress.
        address: String,
        /// What is wrong with that.
        why: BadAddress,
    },
    /// The portal that a target redirects to was no better.
    #[error("{error} (redirected there by {from})")]
    Redirected {
        /// `host:port` of the portal that redirected.
        from: String,
        /// What went wrong there.
        error: Box<Error>,
    },
    /// The connection was lost while the command ran, and running it twice could do harm.
    #[error("the connection was lost; it is not known whether {command} was carried out")]
    InDoubt {
        /// Its name.
        command: &'static str,
    },
    /// The target did not answer in time, and the task was aborted.
    #[error("{command}: no answer within {timeout:?}")]
    TimedOut {
        /// Its name.
        command: &'static str,
        /// How long it was waited.
        timeout: Duration,
    },
    /// The command ended with sense data.
    #[error("{command}: {} ({})", sense_key(.sense), additional(.sense))]
    Sense {
        /// Its name.
        command: &'static str,
        /// What the logical unit says.
        sense: SenseData,
    },
    /// The command ended with a status that is not GOOD, without sense data.
    #[error("{command}: {status:?}")]
    Status {
        /// Its name.
        command: &'static str,
        /// The status.
        status: Status,
    },
    /// The target could not carry the command to the logical unit (RFC 7143 section 11.4.3).
    #[error("{command}: target failure, iSCSI response {response:#04x}")]
    TargetFailure {
        /// Its name.
        command: &'static str,
        /// The response code.
        response: u8,
    },
    /// The answer cannot be what the command asked for.
    #[error("{command}: the target's answer makes no sense: {what}")]
    BadAnswer {
        /// Its name.
        command: &'static str,
        /// What is wrong with it.
        what: Cow<'static, str>,
    },
    /// The command ended with GOOD status, and a part of its data did not move.
    #[error("{command}: GOOD status, but only {moved} of {asked} bytes were {direction}")]
    Short {
        /// Its name.
        command: &'static str,
        /// Which way.
        direction: Direction,
        /// Bytes that moved.
        moved: u64,
        /// Bytes of the request.
        asked: u64,
    },
    /// The command ended with GOOD status, and would have moved more data than the request has.
    #[error(
        "{command}: GOOD status, but {excess} bytes beyond the {asked} of the request; are the disk's blocks longer now?"
    )]
    Excess {
        /// Its name.
        command: &'static str,
        /// Bytes of the request.
        asked: u64,
        /// Bytes that the target had, or wanted, beyond.
        excess: u64,
    },
    /// COMPARE AND WRITE or VERIFY found other bytes.
    #[error("the blocks differ from what they were compared with, first at byte {offset}")]
    Miscompare {
        /// From the start of the comparison.
        offset: u64,
    },
    /// The caller asked for blocks that the disk does not have, or for a length that is no whole number of blocks.
    #[error("{blocks} blocks at block {lba} are not on the disk of {disk_blocks} blocks, or not whole blocks")]
    OutOfRange {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u64,
        /// How many the disk has.
        disk_blocks: u64,
    },
    /// The logical unit is no disk that is ready.
    #[error("LUN {lun}: {what}")]
    NotADisk {
        /// Its number.
        lun: String,
        /// What it is instead.
        what: String,
    },
    /// What was asked for exceeds a limit.
    #[error("{what} exceeds the limit of {limit}")]
    TooMuch {
        /// What.
        what: &'static str,
        /// How much there may be.
        limit: usize,
    },
    /// All buffers are in use.
    #[error("no buffer of {len} bytes is free; keep fewer requests in flight, or allow more buffers")]
    NoBuffer {
        /// Bytes.
        len: usize,
    },
    /// The disk was powered on again after it had acknowledged writes and before it was told to flush them (SBC-5 4.16).
    #[error("the disk was reset with writes in its volatile cache; they may be lost")]
    CacheLost,
    /// The target did not do what a task management request asked for.
    #[error("{function}: {response}")]
    TaskManagement {
        /// What was asked.
        function: TaskManagementFunction,
        /// What it answered.
        response: TaskManagementResponseCode,
    },
    /// What was asked for needs a parameter that the login did not agree on.
    #[error("the target has not agreed to {what}; offer it, or do without")]
    NotAgreed {
        /// The parameter.
        what: &'static str,
    },
    /// The session was closed by us.
    #[error("the session is closed")]
    Closed,
    /// The URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The client's own machinery failed.
    #[error("cannot start the event loop: {0}")]
    Reactor(#[source] Arc<io::Error>),
}

/// Which way data moves, as [`Error::Short`] calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the target.
    Out,
    /// From the target.
    In,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Out => "taken by the target",
            Self::In => "sent by the target",
        })
    }
}

impl Error {
    /// Whether it says that no session came about at `portal`.
    pub(crate) fn is_of_portal(&self, of: &Portal) -> bool {
        matches!(self, Self::Connect { portal, .. } | Self::Session { portal, .. } if *portal == of.to_string())
    }

    /// Whether it is what a logical unit answers, or how: others of the same target may fare better. Everything else is about the
    /// way there.
    pub fn is_an_answer(&self) -> bool {
        matches!(
            self,
            Self::Sense { .. }
                | Self::Status { .. }
                | Self::TargetFailure { .. }
                | Self::BadAnswer { .. }
                | Self::Short { .. }
                | Self::Excess { .. }
                | Self::Miscompare { .. }
                | Self::NotADisk { .. }
        )
    }

    /// Without the redirections that led to it.
    pub fn cause(&self) -> &Self {
        if let Self::Redirected { error, .. } = self { error.cause() } else { self }
    }

    /// What the logical unit said, when it is about sense data.
    pub fn sense(&self) -> Option<&SenseData> {
        if let Self::Sense { sense, .. } = self { Some(sense) } else { None }
    }
}

fn sense_key(sense: &SenseData) -> String {
    format!("{:?}", sense.key)
}

fn additional(sense: &SenseData) -> String {
    sense.code.name().map_or_else(|| format!("{:?}", sense.code), Into::into)
}
