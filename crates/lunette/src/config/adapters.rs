//! The table `adapters`: sockets at which tools of other targets manage this one.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use lunette_rbd::PoolUrl;
use serde::{Deserialize, Deserializer};

use super::Config;
use super::api::Tls;
use crate::systemd::credentials;
use crate::{address, text};

/// The values of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Adapters {
    /// The socket at which tgtadm finds tgtd.
    pub(crate) tgt: Option<PathBuf>,
    /// The port at which Ceph's dashboard finds a gateway.
    pub(crate) dashboard: Option<Dashboard>,
}

/// A gateway of Ceph's dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dashboard {
    #[serde(deserialize_with = "read_address")]
    pub(crate) listen: SocketAddr,
    /// The name of the gateway. Without it, that of the machine.
    pub(crate) name: Option<String>,
    /// The addresses that portals may have.
    pub(crate) addresses: Vec<IpAddr>,
    /// The pool with the configuration of all gateways.
    #[serde(deserialize_with = "text::read")]
    pub(crate) cluster: PoolUrl,
    pub(crate) user: String,
    #[serde(deserialize_with = "credentials::read_path")]
    pub(crate) password_file: PathBuf,
    pub(crate) tls: Option<Tls>,
}

fn read_address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    address::one(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

impl Adapters {
    /// Checks that the adapters have what they need.
    pub(super) fn check(&self, config: &Config) -> Result<(), String> {
        let tgt = self.tgt.as_ref().map(|path| {
            if !path.is_absolute() {
                return Err(format!("tgt: {}: write the whole path, from /", path.display()));
            }
            check_places(config, "tgt", "numbers of targets and passwords")
        });
        let dashboard = self.dashboard.as_ref().map(|dashboard| {
            check_places(config, "dashboard", "passwords")?;
            dashboard.check(config)
        });
        tgt.unwrap_or(Ok(())).and(dashboard.unwrap_or(Ok(())))
    }
}

/// Checks that an adapter has the API, and a place for what it keeps.
fn check_places(config: &Config, name: &str, kept: &str) -> Result<(), String> {
    match (&config.api, &config.state) {
        (None, _) => Err(format!("{name} is a client of the API; add [api] with a place to listen at")),
        (Some(_), None) => Err(format!("{name} keeps {kept} beside the state; write the path of a file as state")),
        (Some(_), Some(_)) => Ok(()),
    }
}

impl Dashboard {
    fn check(&self, config: &Config) -> Result<(), String> {
        let Self { listen, name, addresses, user, tls, .. } = self;
        if addresses.is_empty() {
            return Err("dashboard: addresses is empty; write those of this machine that initiators reach".into());
        }
        if user.is_empty() || user.contains(':') {
            return Err("dashboard: user is a name without a colon".into());
        }
        if name.as_ref().is_some_and(|name| !lunette_dashboard::is_gateway_name(name)) {
            return Err("dashboard: name is a name as a host has it, such as gw1.example".into());
        }
        if tls.is_none() && !listen.ip().is_loopback() {
            return Err("dashboard: the password needs tls, but for an address of this machine alone".into());
        }
        if !config.listen.as_ref().is_some_and(Vec::is_empty) {
            return Err(
                "dashboard: it makes the portals, each in a portal group of the gateway; write listen = []".into()
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A whole configuration with the dashboard, in which one text is replaced.
    fn dashboard(from: &str, to: &str) -> String {
        let text = "listen = []\nstate = \"/s\"\n[api]\nlisten = [\"unix:/run/api.sock\"]\n[adapters.dashboard]\n\
                    listen = \"127.0.0.1:5000\"\nname = \"gw1\"\naddresses = [\"192.0.2.1\"]\ncluster = \"rbd:rbd\"\n\
                    user = \"admin\"\npassword_file = \"/p\"\n";
        match (from, to) {
            ("", _) => text.into(),
            ("listen = []", _) => text.replacen("state = \"/s\"\n", "", 1),
            ("state", _) => text.replacen("listen = []\n", "", 1),
            _ => text.replacen(from, to, 1),
        }
    }

    #[test]
    fn an_adapter_has_what_it_needs() {
        let tgt = "[adapters]\ntgt = \"/run/tgtd/socket.0\"\n";
        let api = "[api]\nlisten = [\"unix:/run/api.sock\"]\n";
        for (text, expected) in [
            (tgt.to_owned(), Some("add [api]")),
            (format!("{api}{tgt}"), Some("as state")),
            (format!("state = \"/s\"\n{api}[adapters]\ntgt = \"socket.0\""), Some("from /")),
            (format!("state = \"/s\"\n{api}{tgt}"), None),
            (format!("{api}[adapters]"), None),
            (dashboard("", ""), None),
            (dashboard("listen = []", ""), Some("as state")),
            (dashboard("state", "#"), Some("it makes the portals")),
            (dashboard("127.0.0.1", "192.0.2.1"), Some("needs tls")),
            (dashboard("\"192.0.2.1\"", ""), Some("addresses is empty")),
            (dashboard("admin", "a:b"), Some("without a colon")),
            (dashboard("gw1", "gw/1"), Some("as a host has it")),
        ] {
            let config: Config = toml::from_str(&text).unwrap();
            let refused = config.adapters.check(&config).err();
            assert_eq!(refused.is_some(), expected.is_some(), "{text}: {refused:?}");
            assert!(refused.unwrap_or_default().contains(expected.unwrap_or_default()), "{text}");
        }
    }
}
