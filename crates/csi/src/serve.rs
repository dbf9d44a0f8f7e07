//! The socket of the driver.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::controller::Controller;
use crate::identity::Identity;
use crate::limits::MAX_CALLS;
use crate::lunette::Lunette;
use crate::node::{Node, System};
use crate::options::{Options, Socket};
use crate::proto::v1::controller_server::ControllerServer;
use crate::proto::v1::group_controller_server::GroupControllerServer;
use crate::proto::v1::identity_server::IdentityServer;
use crate::proto::v1::node_server::NodeServer;

/// The services of a process.
pub struct Driver {
    identity: Identity,
    controller: Option<Controller>,
    node: Option<Node>,
}

/// Says why the driver does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The options contradict each other, or name what cannot be read.
    #[error("{0}")]
    Options(String),
    /// The socket cannot be made.
    #[error("{}: {source}; {remedy}", .path.display())]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// The remedy.
        remedy: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The system has no resources left.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The connection to callers has failed as a whole.
    #[error("{0}")]
    Transport(#[from] tonic::transport::Error),
}

impl Driver {
    /// The services that the options name. Nothing is asked of the server or the node yet.
    ///
    /// # Errors
    ///
    /// When the options contradict each other, or a file that they name cannot be read.
    pub fn new(options: &Options, system: impl System) -> Result<Self, DriverError> {
        let has_controller = options.mode.has_controller();
        let lunette =
            has_controller.then(|| options.server()).transpose()?.map(Lunette::new).transpose()?.map(Arc::new);
        let topology = options.topology || !options.reachable_pools.is_empty();
        Ok(Self {
            identity: Identity::new(options.driver_name.clone(), lunette.clone(), topology),
            controller: lunette.map(|lunette| Controller::new(lunette, options.controller())),
            node: options.mode.has_node().then(|| Node::new(options.node(), system)),
        })
    }
}

/// Serves at a Unix socket until SIGTERM or SIGINT, and ends the calls that are under way.
///
/// # Errors
///
/// [`DriverError`].
pub fn serve(endpoint: &Socket, driver: Driver) -> Result<(), DriverError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let listener = listen(&endpoint.0)?;
        tracing::info!(
            controller = driver.controller.is_some(),
            node = driver.node.is_some(),
            "listening at {}",
            endpoint.0.display()
        );
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let end = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let Driver { identity, controller, node } = driver;
        let served = Server::builder()
            .concurrency_limit_per_connection(MAX_CALLS)
            .add_service(IdentityServer::new(identity))
            .add_optional_service(controller.clone().map(ControllerServer::new))
            .add_optional_service(controller.map(GroupControllerServer::new))
            .add_optional_service(node.map(NodeServer::new))
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), end)
            .await;
        // The socket may be gone with its folder.
        let _ = fs::remove_file(&endpoint.0);
        Ok(served?)
    })
}

/// A socket at a path, in the place of one that is not served any more.
fn listen(path: &Path) -> Result<UnixListener, DriverError> {
    let failed = |remedy| move |source| DriverError::Socket { path: path.into(), remedy, source };
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            let error = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(failed("it is no socket; name another path with --endpoint")(error));
        }
        if UnixStream::connect(path).is_ok() {
            let error = io::Error::from(io::ErrorKind::AddrInUse);
            return Err(failed("another driver serves it; end that one first")(error));
        }
        fs::remove_file(path).map_err(failed("it is left from an earlier driver; remove it"))?;
    }
    UnixListener::bind(path).map_err(failed("does its folder exist, and may this user write to it?"))
}
