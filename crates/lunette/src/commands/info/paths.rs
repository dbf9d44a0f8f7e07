//! The paths to a disk, as `info` and `bench` show them.

use std::fmt;

use lunette_initiator::{PathState, PathStatus};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct PathReport {
    portal: String,
    state: &'static str,
    /// The target port group, when the target tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    port_group: Option<u16>,
    /// Why the path is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl PathReport {
    pub(crate) fn new(path: &PathStatus) -> Self {
        let error = if let PathState::Down(error) = &path.state { Some(error.to_string()) } else { None };
        Self { portal: path.portal.to_string(), state: path.state.name(), port_group: path.port_group, error }
    }
}

impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.portal, self.state)?;
        if let Some(group) = self.port_group {
            write!(f, ", target port group {group}")?;
        }
        self.error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}
