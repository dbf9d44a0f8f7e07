//! The tools of other targets, as clients of the control plane.

mod dashboard;

use std::path::PathBuf;
use std::sync::Arc;

use lunette_api::{Cause, Health, Server, Subject};
use lunette_tgt::Socket;

use super::control_plane::ControlPlane;
use crate::config::Config;
use crate::failure::Failure;

/// The ends of the names of the folders that adapters keep beside the state.
const OF_TGT: &str = ".tgt";
const OF_DASHBOARD: &str = ".dashboard";

/// Opens and serves the places of a configuration. In a strict one all of them are open, or it fails.
pub(crate) fn start(config: &Config, control_plane: &ControlPlane, health: &Health) -> Result<(), Failure> {
    let Some(state) = &config.state else { return Ok(()) };
    let folder = |end: &str| {
        let mut folder = state.as_os_str().to_owned();
        folder.push(end);
        PathBuf::from(folder)
    };
    let server: Arc<dyn Server> = Arc::new(control_plane.clone());
    if let Some(path) = &config.adapters.tgt {
        let name = "adapter for tgtadm";
        let started = Socket::open(path).and_then(|socket| socket.serve(Arc::clone(&server), &folder(OF_TGT)));
        told(name, started.map(|()| path.display().to_string()).map_err(|error| error.to_string()), config, health)?;
    }
    if let Some(dashboard) = &config.adapters.dashboard {
        let name = "adapter for Ceph's dashboard";
        let started = dashboard::start(dashboard, server, folder(OF_DASHBOARD));
        told(name, started.map(|at| at.to_string()).map_err(|failure| failure.to_string()), config, health)?;
    }
    Ok(())
}

/// Tells whether an adapter is open, and where. In a strict configuration one that is not is a failure.
fn told(name: &str, started: Result<String, String>, config: &Config, health: &Health) -> Result<(), Failure> {
    match started {
        Ok(at) => tracing::info!(at, "the {name} is open"),
        Err(error) if config.strict => return Err(Failure::Address(format!("{name}: {error}"))),
        Err(error) => {
            tracing::error!("{name}: {error}");
            health.report(Subject::Api(name.into()), Cause::NotOpened, error);
        }
    }
    Ok(())
}
