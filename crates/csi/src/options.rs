//! The command line, and the environment where an option is not given.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use lunette_api::address::{self, Url};
use lunette_api::client::{Endpoint, Token};

use crate::controller::{Settings, parse_portals};
use crate::names;
use crate::node::NodeSettings;
use crate::serve::DriverError;

/// The CSI driver of Lunette: volumes of its pools for Kubernetes, over iSCSI
#[derive(Debug, Clone, Parser)]
#[command(name = "lunette-csi", version)]
pub struct Options {
    /// The socket at which the driver is called
    #[arg(long, value_name = "unix:///PATH", env = "CSI_ENDPOINT", default_value = "unix:///csi/csi.sock")]
    pub endpoint: Socket,
    /// The services that this process has, beside Identity
    #[arg(long, env = "LUNETTE_CSI_MODE", default_value = "all")]
    pub mode: Mode,
    /// The name of the driver, as in the CSIDriver object and the StorageClass
    #[arg(long, env = "LUNETTE_CSI_DRIVER_NAME", default_value = "csi.lunette.example.org", value_parser = driver_name)]
    pub driver_name: String,

    /// Controller: the API of the server, a socket of this machine or an address
    #[arg(
        long,
        value_name = "unix:PATH or https://HOST[:PORT]",
        env = "LUNETTE_API",
        default_value = "unix:/run/lunette/api.sock"
    )]
    pub api: Api,
    /// Controller: the file that holds the token for an https address; its role has to be admin
    #[arg(long, value_name = "FILE", env = "LUNETTE_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Controller: the certificates that an https address may have, or those of its authorities, in PEM
    #[arg(long, value_name = "FILE", env = "LUNETTE_CA")]
    pub ca: Option<PathBuf>,
    /// Controller: a folder with ca-cert.pem instead of --ca, and client-cert.pem with client-key.pem instead of
    /// --token-file
    #[arg(long, value_name = "DIR", env = "LUNETTE_TLS", conflicts_with = "ca")]
    pub tls: Option<PathBuf>,
    /// Controller: the beginning of the names of targets; the pool and the volume follow
    #[arg(long, value_name = "IQN", env = "LUNETTE_CSI_TARGET_PREFIX", default_value = "iqn.2026-11.org.example.csi", value_parser = target_prefix)]
    pub target_prefix: String,
    /// Controller: where nodes reach the targets, in this order [default: the portals among the server's objects]
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        env = "LUNETTE_CSI_PORTALS",
        default_value = "",
        hide_default_value = true
    )]
    pub portals: Portals,
    /// Controller: the pool of volumes whose StorageClass names none [default: the only pool]
    #[arg(long, value_name = "NAME", env = "LUNETTE_CSI_POOL", value_parser = pool)]
    pub pool: Option<String>,
    /// Controller: give volumes the topology of their pools; all nodes need --reachable-pools then
    #[arg(long, env = "LUNETTE_CSI_TOPOLOGY")]
    pub topology: bool,

    /// Node: the name of its initiator [default: the one in /etc/iscsi/initiatorname.iscsi]
    #[arg(long, value_name = "IQN", env = "LUNETTE_CSI_NODE_ID", value_parser = initiator)]
    pub node_id: Option<String>,
    /// Node: the folder for records of staged volumes [default: the folder of the socket, with /staged]
    #[arg(long, value_name = "FOLDER", env = "LUNETTE_CSI_STATE")]
    pub state: Option<PathBuf>,
    /// Node: where the root of the host is, when the driver runs in a container; iscsiadm and multipath run there
    #[arg(long, value_name = "FOLDER", env = "LUNETTE_CSI_HOST_ROOT")]
    pub host_root: Option<PathBuf>,
    /// Node: the pools whose portals it reaches, for --topology of the controller
    #[arg(long, value_name = "NAME,...", env = "LUNETTE_CSI_REACHABLE_POOLS", value_delimiter = ',', value_parser = pool)]
    pub reachable_pools: Vec<String>,
    /// Node: the volumes that it takes at most; 0 for no bound
    #[arg(long, value_name = "NUMBER", env = "LUNETTE_CSI_MAX_VOLUMES", default_value_t = 0)]
    pub max_volumes: u32,
}

/// The services of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Volumes and snapshots, once in a cluster
    Controller,
    /// Sessions and mounts, on each node
    Node,
    /// Controller and node
    All,
}

impl Mode {
    pub(crate) fn has_controller(self) -> bool {
        matches!(self, Self::Controller | Self::All)
    }

    pub(crate) fn has_node(self) -> bool {
        matches!(self, Self::Node | Self::All)
    }
}

/// A Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket(pub PathBuf);

impl FromStr for Socket {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix("unix:").map(|path| path.strip_prefix("//").unwrap_or(path));
        match path.or_else(|| text.starts_with('/').then_some(text)) {
            Some(path) if path.starts_with('/') => Ok(Self(path.into())),
            _ => Err(format!("{text:?} is no socket; write unix:///PATH, such as unix:///csi/csi.sock")),
        }
    }
}

/// Where the API is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Api {
    /// A Unix socket of this machine.
    Unix(PathBuf),
    /// A server, which proves its identity by a certificate.
    Https(Url),
}

impl FromStr for Api {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(_) => Err("write the whole path of the socket, from /, as in unix:/run/lunette/api.sock".into()),
            None => text.parse().map(Self::Https).map_err(|why| format!("{why}, or unix:PATH")),
        }
    }
}

/// A list of portals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Portals(pub Vec<String>);

impl FromStr for Portals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_portals(text).map(Self)
    }
}

impl Options {
    /// The server of the controller.
    ///
    /// # Errors
    ///
    /// When the options contradict each other, or a file that they name cannot be read.
    pub fn server(&self) -> Result<Endpoint, DriverError> {
        let url = match &self.api {
            Api::Unix(path) if self.token_file.is_none() && self.ca.is_none() && self.tls.is_none() => {
                return Ok(Endpoint::Unix(path.clone()));
            }
            Api::Unix(_) => {
                return Err(DriverError::Options(
                    "--token-file, --ca and --tls are for --api https://HOST[:PORT]".into(),
                ));
            }
            Api::Https(url) => url,
        };
        let needs =
            |option: &str, what: &str| DriverError::Options(format!("--api https://HOST needs {option} FILE, {what}"));
        let unreadable = |error: &dyn std::fmt::Display| DriverError::Options(error.to_string());
        let config = match (&self.tls, &self.ca) {
            (Some(folder), _) => lunette_tls::web_client(folder),
            (None, Some(ca)) => lunette_tls::client(ca, None).map(|config| (config, false)),
            (None, None) => {
                return Err(needs("--ca", "with its certificate or that of its authority, or --tls DIR"));
            }
        };
        let (config, has_certificate) = config.map_err(|error| unreadable(&error))?;
        if self.token_file.is_none() && !has_certificate {
            return Err(needs("--token-file", "with a token of the server's api.tokens, or a certificate in --tls"));
        }
        let read = |file: &PathBuf| address::read_token(file).map(|value| Token { value, file: file.clone() });
        let token = self.token_file.as_ref().map(read).transpose().map_err(|error| unreadable(&error))?;
        Ok(Endpoint::Tls { host: url.host.clone(), port: url.port, trusted: Arc::new(config), token })
    }

    /// The settings of the controller.
    pub fn controller(&self) -> Settings {
        Settings {
            driver_name: self.driver_name.clone(),
            target_prefix: self.target_prefix.clone(),
            portals: self.portals.0.clone(),
            pool: self.pool.clone(),
            topology: self.topology,
        }
    }

    /// The settings of the node.
    pub fn node(&self) -> NodeSettings {
        let beside = || self.endpoint.0.with_file_name("staged");
        NodeSettings {
            driver_name: self.driver_name.clone(),
            node_id: self.node_id.clone(),
            state: self.state.clone().unwrap_or_else(beside),
            reachable_pools: self.reachable_pools.clone(),
            max_volumes: self.max_volumes,
        }
    }
}

/// Checks a name of a driver (CSI, `GetPluginInfoResponse`).
fn driver_name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let is_plain = label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        is_plain && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    if text.len() <= 63 && text.split('.').all(is_label) {
        return Ok(text.into());
    }
    Err("a driver has the form of a domain name, in lower case and of up to 63 letters".into())
}

fn target_prefix(text: &str) -> Result<String, String> {
    names::check_prefix(text).map(|()| text.into())
}

fn initiator(text: &str) -> Result<String, String> {
    names::check_initiator(text).map(|()| text.into())
}

fn pool(text: &str) -> Result<String, String> {
    if names::is_pool(text) {
        Ok(text.into())
    } else {
        Err(format!("{text:?} is no name of a pool that the driver uses"))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Options, String> {
        Options::try_parse_from([&["lunette-csi"], arguments].concat()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_options_are_consistent() {
        Options::command().debug_assert();
        let options = parsed(&[]).unwrap();
        assert_eq!(options.node().state, PathBuf::from("/csi/staged"));
        assert!(matches!(options.server(), Ok(Endpoint::Unix(path)) if path.ends_with("api.sock")));
    }

    #[test]
    fn sockets_are_written_as_kubernetes_and_lunette_write_them() {
        for text in ["unix:///csi/csi.sock", "unix:/csi/csi.sock", "/csi/csi.sock"] {
            assert_eq!(text.parse(), Ok(Socket("/csi/csi.sock".into())), "{text}");
        }
        for text in ["", "csi.sock", "unix:csi.sock", "tcp://127.0.0.1:1"] {
            assert!(text.parse::<Socket>().is_err(), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_remedy() {
        for (arguments, why) in [
            (&["--api", "http://x"][..], "https://HOST"),
            (&["--portals", "192.0.2.1"], "HOST:PORT"),
            (&["--target-prefix", "x"], "iqn.YEAR-MONTH"),
            (&["--node-id", "worker-1"], "initiatorname.iscsi"),
            (&["--driver-name", "CSI"], "lower case"),
            (&["--mode", "both"], "controller"),
        ] {
            let refused = parsed(arguments).unwrap_err();
            assert!(refused.contains(why), "{arguments:?}: {refused}");
        }
        let remote = parsed(&["--api", "https://host"]).unwrap();
        assert!(remote.server().err().unwrap().to_string().contains("--tls DIR"));
        let local = parsed(&["--ca", "/ca"]).unwrap();
        assert!(local.server().err().unwrap().to_string().contains("are for --api https"));
    }
}
