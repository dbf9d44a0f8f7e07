//! A gateway of Ceph's dashboard: its port, and the value in the cluster that all gateways share.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lunette_api::{Server, ServerTls, serve_apart};
use lunette_dashboard::{Adapter, Cluster, Options, account, routes};
use lunette_files::{Content, read_secret};
use lunette_rbd::limits::MANAGE_LIMIT;
use lunette_rbd::{Images, OpenError, PoolUrl, Register};

use crate::config::adapters::Dashboard;
use crate::failure::Failure;
use crate::server::certificates::{Certificates, Use};
use crate::server::control_plane::files;
use crate::system::listen_failure;
use crate::systemd::credentials;

/// The object with the configuration of all gateways.
const OBJECT: &str = "lunette_dashboard";

/// The time between two attempts to reach the cluster.
const PAUSE: Duration = Duration::from_secs(5);

/// The time between two attempts to follow the configuration there. Each one that fails is an entry of the audit log.
const KEEP_PAUSE: Duration = Duration::from_mins(1);

const PASSWORD: Content = Content { name: "the password of the dashboard", max_bytes: 1024 };

/// Opens the port, and gives its address. The cluster is reached later: until then calls are answered that it is not.
pub(super) fn start(config: &Dashboard, server: Arc<dyn Server>, folder: PathBuf) -> Result<SocketAddr, Failure> {
    let name = match &config.name {
        Some(name) => name.clone(),
        None => fs::read_to_string("/proc/sys/kernel/hostname").map_err(Failure::other)?.trim().to_owned(),
    };
    let path = credentials::found(&config.password_file).map_err(Failure::Configuration)?;
    let wrong = |error: &dyn std::fmt::Display| Failure::configuration(format!("{}: {error}", path.display()));
    let bytes = read_secret(&path, PASSWORD).map_err(|problem| Failure::configuration(problem.into_io()))?;
    let password = std::str::from_utf8(&bytes).map_err(|error| wrong(&error))?.trim_end_matches(['\n', '\r']);
    if password.is_empty() {
        return Err(wrong(&"it is empty; write the password that the dashboard has"));
    }
    let files = config.tls.as_ref().map(files).transpose()?;
    let tls = files.map(|files| Certificates::open(Use::Dashboard, files.without_clients()));
    let tls = tls.transpose().map_err(Failure::configuration)?;
    let listener = TcpListener::bind(config.listen).map_err(|error| listen_failure(config.listen, &error))?;
    let address = listener.local_addr().map_err(Failure::other)?;
    let addresses = config.addresses.iter().map(IpAddr::to_string).collect();
    let adapter = Adapter::new(server, Options { name, addresses, folder }).map_err(Failure::other)?;
    let (pool, reaching) = (config.cluster.clone(), adapter.clone());
    let reach = move || reach(&pool, &reaching);
    thread::Builder::new().name("lunette-cluster".into()).spawn(reach).map_err(Failure::other)?;
    let tls = tls.map(|tls| -> ServerTls { Box::new(move || Arc::clone(&tls.now().config)) });
    serve_apart(listener, tls, account(&config.user, password), routes(adapter)).map_err(Failure::other)?;
    Ok(address)
}

/// Connects an adapter to the cluster, as soon as that answers, and keeps it with the configuration there.
fn reach(pool: &PoolUrl, adapter: &Adapter) -> ! {
    let mut is_told = false;
    loop {
        match Register::open(pool, OBJECT, adapter.answered()) {
            Ok(register) => {
                adapter.connect(Arc::new(Shared { register, pool: pool.clone() }));
                tracing::info!(%pool, "the adapter for Ceph's dashboard has reached the cluster");
                break;
            }
            Err(error) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::error!(%pool, "the adapter for Ceph's dashboard does not reach the cluster: {error}");
                }
                thread::sleep(PAUSE);
            }
        }
    }
    loop {
        thread::sleep(KEEP_PAUSE);
        adapter.keep();
    }
}

/// The cluster of a pool.
struct Shared {
    register: Register,
    pool: PoolUrl,
}

impl Shared {
    /// Another pool of the same cluster.
    fn pool(&self, name: &str) -> PoolUrl {
        PoolUrl { pool: name.into(), namespace: None, ..self.pool.clone() }
    }
}

impl Cluster for Shared {
    fn read(&self) -> io::Result<(u64, Vec<u8>)> {
        self.register.read()
    }

    fn replace(&self, version: u64, value: &[u8]) -> io::Result<bool> {
        self.register.replace(version, value)
    }

    fn ask(&self, question: &[u8], limit: Duration) -> io::Result<Vec<Vec<u8>>> {
        self.register.ask(question, limit)
    }

    fn disk(&self, pool: &str, image: &str) -> String {
        self.pool(pool).image(image, None).to_string()
    }

    fn has_image(&self, pool: &str, image: &str) -> io::Result<bool> {
        let pool = self.pool(pool);
        let images = Images::connect(&pool, MANAGE_LIMIT).map_err(io::Error::other)?;
        match images.open(image, None).and_then(|image| image.has_lock()) {
            Ok(true) => Ok(true),
            // Sooner or later the target may have another gateway.
            Ok(false) => Err(io::Error::other(OpenError::unlockable(&pool.image(image, None)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
