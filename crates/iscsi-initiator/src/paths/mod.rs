//! Several paths to one disk: several portals of its target, each with a session of its own.
//!
//! `machine` is the rule (which path a request takes, when it takes another, in which order writes go), without I/O and
//! clock; `claims` is its part about writes. `multipath` drives it over sessions that do not reconnect by themselves.
//! `check` tells which disk is behind a path, `portals` where paths lead, `command` what a command changes,
//! `registration` what persistent reservations need on each path.
//!
//! # When a command may be sent again
//!
//! A command that went over a lost path has run, runs, or will run later: only its answer would tell. Its copies can be
//! in five places.
//!
//! | place | what ends the copy |
//! |---|---|
//! | a queue of this process | the session of the path is over before its requests are moved, so nothing is taken from there any more |
//! | the send buffer of our system | the connection is closed with a reset (`lunette_reactor::connect`), which drops it |
//! | the network | time: a second ([`CLEAR_PAUSE`](crate::limits)) before LOGICAL UNIT RESET; segments that come after our reset reach no socket |
//! | the receive buffer of the target, not read yet | reinstatement: the target closes the old connection before it answers the login (RFC 7143 section 6.3.5) |
//! | a task of the target | reinstatement, or LOGICAL UNIT RESET over another path. ABORT TASK does not do: it reaches tasks of its own session alone |
//!
//! It follows:
//!
//! - A command that may run twice ([`Repeat::Always`](crate::Repeat)) goes over another path at once. When it changes
//!   blocks, younger commands that change them wait until its older copies are ended; so the last one that runs is the
//!   last one that was submitted.
//! - A command that must not run twice (COMPARE AND WRITE, a raw command) is never sent again after its path was lost,
//!   not even when its copies are ended: one of them may have run before. It ends with [`Error::InDoubt`]. It is sent
//!   again only when a port has refused it because of its access state, for then it did not run.
//! - A reset ends tasks, not what the target has not read. So reinstatement comes first wherever it is possible, and a
//!   target that stands still for longer than a second between two portal groups can carry out an old write after the
//!   reset. Its gateways must shut each other out.

mod attempt;
mod check;
mod claims;
mod command;
mod machine;
pub(crate) mod multipath;
mod portals;
mod registration;
mod request;
pub(crate) mod status;

use self::multipath::Multipath;
use self::status::PathStatus;
use crate::{Error, Initiator, Options, Paths, Portal, Url};

/// Makes the target port group of the path by `portal` active/optimized (SET TARGET PORT GROUPS), and gives the paths
/// as they are then: those that the URL asks for, or all that discovery gives. What becomes of the other groups is the
/// target's to decide. The disk need not be active on any path.
///
/// # Errors
///
/// [`Error::NotExplicit`] when only the target changes access states; [`Error::NoPath`] when there is no such path, or
/// the error for which it is down; the errors of the command, and of [`Disk::of_url`](crate::Disk::of_url).
pub async fn activate(
    initiator: &Initiator,
    url: &Url,
    portal: &Portal,
    options: Options,
) -> Result<Vec<PathStatus>, Error> {
    let paths = url.paths.clone().unwrap_or(Paths::Discovered(None));
    let multipath = Multipath::open(initiator, url, &paths, options).await?;
    multipath.activate(portal).await?;
    Ok(multipath.status())
}
