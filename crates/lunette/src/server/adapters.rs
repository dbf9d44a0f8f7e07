//! The tools of other targets, as clients of the control plane.

use std::path::PathBuf;
use std::sync::Arc;

use lunette_api::{Cause, Health, Server, Subject};
use lunette_tgt::Socket;

use super::control_plane::ControlPlane;
use crate::config::Config;
use crate::failure::Failure;

/// The end of the name of the folder that the adapter for tgt keeps beside the state.
const OF_TGT: &str = ".tgt";

/// Opens and serves the sockets of a configuration. In a strict one all of them are open, or it fails.
pub(crate) fn start(config: &Config, control_plane: &ControlPlane, health: &Health) -> Result<(), Failure> {
    let (Some(path), Some(state)) = (&config.adapters.tgt, &config.state) else { return Ok(()) };
    let mut folder = state.as_os_str().to_owned();
    folder.push(OF_TGT);
    let server: Arc<dyn Server> = Arc::new(control_plane.clone());
    let started = Socket::open(path).and_then(|socket| socket.serve(server, &PathBuf::from(folder)));
    match started {
        Ok(()) => tracing::info!(path = %path.display(), "the adapter for tgtadm is open"),
        Err(error) => {
            let name = format!("adapter for tgtadm at {}", path.display());
            if config.strict {
                return Err(Failure::Address(format!("{name}: {error}")));
            }
            tracing::error!("{name}: {error}");
            health.report(Subject::Api(name), Cause::NotOpened, error.to_string());
        }
    }
    Ok(())
}
