//! The words between the machine and its driver: what is to be done, and how an attempt has ended.

use std::time::Duration;

use lunette_reactor::Key;
use lunette_scsi::port_groups::AccessState;

/// The actions of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::paths) enum Action {
    /// Send a request over a path. It has this much time left.
    Send { request: Key, path: usize, timeout: Duration },
    /// End a request, which no path has.
    End { request: Key, why: EndReason },
    /// Count a power-on: what the disk had in its cache may be lost.
    PowerOn,
    /// Do something with this path that is not a request.
    OnPath(usize, PathAction),
}

/// An action on one path. Each is rare beside requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::paths) enum PathAction {
    /// Log in, and check the disk behind the path. `generation` tells this login's events from those of earlier ones.
    Connect { generation: u64 },
    /// Close the session of the path.
    Close,
    /// Send TEST UNIT READY over `witness`. An answer shows that its nexus survived, so the POWER ON of the path only
    /// announced a new nexus.
    CheckPowerOn { generation: u64, witness: usize },
    /// Ask for the access states of all target port groups.
    AskStates,
    /// Make sure that nothing that was sent over the path can run any more.
    Clear(Clearing),
}

/// How a lost path is cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::paths) enum Clearing {
    /// Reinstate its nexus by a login through the portal of this path, which is in the same portal group.
    Reinstate { portal_of: usize },
    /// LOGICAL UNIT RESET over this path.
    Reset { over: usize },
    /// ABORT TASK SET over the path itself, which is up.
    Abort,
}

/// Why a request ends that no path has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::paths) enum EndReason {
    /// The time of the request is over.
    TimedOut,
    /// No path existed for as long as the disk waits for one.
    NoPath,
}

/// The end of an attempt over a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::paths) enum AttemptResult {
    /// An answer or an error that is for the caller.
    Answered,
    /// The port is in this state, and the command did not run.
    NotActive(AccessState),
    /// The session was lost.
    Lost,
    /// The request was given up, and may still run.
    GivenUp,
}

/// The consequence of an attempt for its request.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::paths) enum Outcome<T> {
    /// The request goes over another path; an action follows.
    Continues,
    /// The request ends with the result of the attempt.
    Ended(T),
    /// The attempt was lost, and the request must not run twice.
    InDoubt(T),
}

/// A request that was not accepted.
#[derive(Debug)]
pub(in crate::paths) enum Refused<T> {
    TooMany(T),
    NoPath(T),
}
