//! Why an operation failed.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use lunette_pdu::{TaskManagementFunction, TaskManagementResponseCode};
use lunette_scsi::{SenseData, Status};
use lunette_session::iscsi_initiator::SessionError;

use crate::portal::{BadAddress, Portal};
use crate::url::UrlError;

/// Why an operation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A TCP connection could not be made.
    #[error("cannot connect to {portal}: {source}")]
    Connect {
        /// The portal, as `host:port`.
        portal: String,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// The session could not be made, or has ended: the login failed, the target broke a rule, or it dropped the
    /// session.
    #[error("{portal}: {why}")]
    Session {
        /// The portal, as `host:port`.
        portal: String,
        /// Why the session failed.
        why: SessionError,
    },
    /// The connection was lost, and no new one could be made in time.
    #[error("{portal}: connection lost, and no new one within {given_up_after:?}: {last}")]
    Lost {
        /// The portal, as `host:port`.
        portal: String,
        /// The time after which reconnecting was given up: [`Options::reconnect_for`](crate::Options::reconnect_for).
        given_up_after: Duration,
        /// The error of the last attempt.
        last: Box<Error>,
    },
    /// The target redirected too often; perhaps in a circle.
    #[error("{portal}: redirected more than {limit} times, at last to {last}")]
    TooManyRedirects {
        /// The first portal that redirected, as `host:port`.
        portal: String,
        /// The number of redirections that are followed.
        limit: usize,
        /// The portals of the last redirections, in order.
        last: String,
    },
    /// The target redirected to an address that no target can have.
    #[error("{portal}: redirected to {address:?}, where no target can be: {why}")]
    BadRedirect {
        /// The portal that redirected, as `host:port`.
        portal: String,
        /// The beginning of its TargetAddress.
        address: String,
        /// The mistake in the address.
        why: BadAddress,
    },
    /// The portal that a target redirected to failed.
    #[error("{error} (redirected there by {from})")]
    Redirected {
        /// The portal that redirected, as `host:port`.
        from: String,
        /// The error at the portal that it redirected to.
        error: Box<Error>,
    },
    /// The connection was lost while the command ran, and the command must not run twice.
    #[error("the connection was lost; it is not known whether {command} was carried out")]
    InDoubt {
        /// The name of the command.
        command: &'static str,
    },
    /// The target did not answer in time, and the task was aborted.
    #[error("{command}: no answer within {timeout:?}")]
    TimedOut {
        /// The name of the command.
        command: &'static str,
        /// The time that the request was given.
        timeout: Duration,
    },
    /// The command ended with sense data.
    #[error("{command}: {} ({})", sense_key(.sense), additional(.sense))]
    Sense {
        /// The name of the command.
        command: &'static str,
        /// The sense data of the logical unit.
        sense: SenseData,
    },
    /// The command ended with a status that is not GOOD, without sense data.
    #[error("{command}: {status:?}")]
    Status {
        /// The name of the command.
        command: &'static str,
        /// The SAM-5 status.
        status: Status,
    },
    /// The target could not carry the command to the logical unit (RFC 7143 section 11.4.3).
    #[error("{command}: target failure, iSCSI response {response:#04x}")]
    TargetFailure {
        /// The name of the command.
        command: &'static str,
        /// The iSCSI response code.
        response: u8,
    },
    /// The answer of the target contradicts itself or the command.
    #[error("{command}: the target's answer makes no sense: {what}")]
    BadAnswer {
        /// The name of the command.
        command: &'static str,
        /// The mistake in the answer.
        what: Cow<'static, str>,
    },
    /// The command ended with GOOD status, but only part of its data was transferred.
    #[error("{command}: GOOD status, but only {moved} of {asked} bytes were {direction}")]
    Short {
        /// The name of the command.
        command: &'static str,
        /// The direction of the transfer.
        direction: Direction,
        /// Bytes that were transferred.
        moved: u64,
        /// Bytes of the request.
        asked: u64,
    },
    /// The command ended with GOOD status, but wanted to transfer more data than the request has.
    #[error(
        "{command}: GOOD status, but {excess} bytes beyond the {asked} of the request; are the disk's blocks longer now?"
    )]
    Excess {
        /// The name of the command.
        command: &'static str,
        /// Bytes of the request.
        asked: u64,
        /// Bytes beyond those of the request.
        excess: u64,
    },
    /// COMPARE AND WRITE or VERIFY found other bytes.
    #[error("the blocks differ from what they were compared with, first at byte {offset}")]
    Miscompare {
        /// Byte offset of the first difference, from the start of the comparison.
        offset: u64,
    },
    /// The caller asked for blocks beyond the end of the disk, or for a length that is no whole number of blocks.
    #[error("{blocks} blocks at block {lba} are not on the disk of {disk_blocks} blocks, or not whole blocks")]
    OutOfRange {
        /// The first logical block.
        lba: u64,
        /// The number of blocks asked for.
        blocks: u64,
        /// The number of blocks of the disk.
        disk_blocks: u64,
    },
    /// The logical unit is no disk, or not there.
    #[error("LUN {lun}: {what}")]
    NotADisk {
        /// The logical unit number.
        lun: String,
        /// The type of the logical unit.
        what: String,
    },
    /// Two paths lead to different disks.
    #[error(
        "the path by {portal} leads to another disk: {found}, and {expected} by {other_portal}; leave out the portal that is wrong"
    )]
    OtherDisk {
        /// The portal of the path, as `host:port`.
        portal: String,
        /// The name of the disk behind it.
        found: String,
        /// The portal of the path that was checked first.
        other_portal: String,
        /// The name of the disk behind that one.
        expected: String,
    },
    /// No path to the disk existed for the time of the request, or for
    /// [`Options::reconnect_for`](crate::Options::reconnect_for); or the portal is none of its paths.
    #[error("no path to the disk: {paths}")]
    NoPath {
        /// The paths and why they are down.
        paths: String,
    },
    /// Discovery gave fewer portals than paths were asked for.
    #[error(
        "{portal} names {found} portals of {target}, fewer than the paths asked for; write paths=all, or name others with portals=HOST,HOST"
    )]
    TooFewPortals {
        /// The portal that was asked, as `host:port`.
        portal: String,
        /// The target.
        target: String,
        /// The number of portals.
        found: usize,
    },
    /// Initiators do not change the access states of this disk.
    #[error("the target alone changes the access states of this disk (no explicit asymmetric access)")]
    NotExplicit,
    /// The request exceeds a limit.
    #[error("{what} exceeds the limit of {limit}")]
    TooMuch {
        /// The quantity that exceeds it.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The pool of the event loop has no buffer left.
    #[error("no buffer of {len} bytes is free; keep fewer requests in flight, or allow more buffers")]
    NoBuffer {
        /// The length of the buffer, in bytes.
        len: usize,
    },
    /// The disk was powered on again after it had acknowledged writes and before it was told to flush them (SBC-5
    /// 4.16).
    #[error("the disk was reset with writes in its volatile cache; they may be lost")]
    CacheLost,
    /// The target did not do what a task management request asked for.
    #[error("{function}: {response}")]
    TaskManagement {
        /// The function that was asked for.
        function: TaskManagementFunction,
        /// The response of the target.
        response: TaskManagementResponseCode,
    },
    /// The operation needs a parameter that the login did not agree on.
    #[error("the target has not agreed to {what}; offer it, or do without")]
    NotAgreed {
        /// The parameter, as `Key=value`.
        what: &'static str,
    },
    /// The caller closed the session, or the event loop has ended.
    #[error("the session is closed")]
    Closed,
    /// The URL is malformed, or its secrets cannot be read.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The event loop could not be started.
    #[error("cannot start the event loop: {0}{remedy}", remedy = lunette_files::remedy_to_start(.0))]
    Reactor(#[source] Arc<io::Error>),
}

/// The direction of a transfer, in [`Error::Short`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Data-Out: to the target.
    Out,
    /// Data-In: from the target.
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
    /// Whether the error says that no session could be made at `portal`.
    pub(crate) fn is_of_portal(&self, of: &Portal) -> bool {
        matches!(self, Self::Connect { portal, .. } | Self::Session { portal, .. } if *portal == of.to_string())
    }

    /// Whether a logical unit or its target answered with this error. Then the session works, and other logical units
    /// of the target may be fine. All other errors are about the way there.
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

    /// The error itself, without the redirections that led to it.
    pub fn cause(&self) -> &Self {
        if let Self::Redirected { error, .. } = self { error.cause() } else { self }
    }

    /// The sense data of [`Error::Sense`].
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
