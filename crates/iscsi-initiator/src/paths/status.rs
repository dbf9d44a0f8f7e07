//! The state of paths, for callers.

use std::fmt;

use lunette_scsi::port_groups::AccessState;

use crate::{Error, Portal};

/// A path to a disk, as it is at the moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PathStatus {
    /// The portal that it leads through.
    pub portal: Portal,
    /// The target port group of that portal, when the target tells it.
    pub port_group: Option<u16>,
    /// The state of the path.
    pub state: PathState,
}

/// The state of a path.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PathState {
    /// The path is logged in, and its port is in this access state. It carries commands if that is an active one.
    Up(AccessState),
    /// The path is being made for the first time.
    Connecting,
    /// The path is tried again from time to time.
    Down(Error),
}

impl PathState {
    /// The name of the state: `active/optimized`, `active/non-optimized`, `standby`, `unavailable`, `offline`,
    /// `transitioning`, `connecting` or `down`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Up(AccessState::ActiveOptimized) => "active/optimized",
            Self::Up(AccessState::ActiveNonOptimized) => "active/non-optimized",
            Self::Up(AccessState::Standby) => "standby",
            Self::Up(AccessState::Unavailable) => "unavailable",
            Self::Up(AccessState::Offline) => "offline",
            Self::Up(AccessState::Transitioning) => "transitioning",
            Self::Connecting => "connecting",
            Self::Down(_) => "down",
        }
    }
}

impl fmt::Display for PathStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            PathState::Down(error) => write!(f, "{}: {error}", self.portal),
            state => write!(f, "{}: {}", self.portal, state.name()),
        }
    }
}
