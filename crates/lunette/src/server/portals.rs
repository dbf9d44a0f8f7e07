//! Portals that cannot be opened.

use lunette_target::BindError;

use crate::failure::Failure;
use crate::system;

/// The name of a portal that cannot be opened, and why.
pub(crate) fn closed_portal(error: &BindError) -> (String, Failure) {
    match error {
        BindError::Listen { address, source } => (address.to_string(), system::listen_failure(*address, source)),
        BindError::Interface { interface, .. } => (format!("eth:{interface}"), Failure::Address(error.to_string())),
        other => (String::new(), Failure::other(other)),
    }
}

/// The failure of a server whose portals cannot be opened.
pub(crate) fn bind_failure(error: BindError) -> Failure {
    match error {
        BindError::Listen { address, source } => system::listen_failure(address, &source),
        BindError::Interface { .. } => Failure::Address(error.to_string()),
        BindError::Cores(_) | BindError::DuplicateName(_) | BindError::SharedSecret(_) => Failure::configuration(error),
        BindError::Reactor(ref source) => {
            let remedy = lunette_files::remedy_to_start(source);
            Failure::Other(format!("{error}{remedy}"))
        }
    }
}
