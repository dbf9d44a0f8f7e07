//! The table `metrics`: where the numbers of the server are read without TLS and tokens.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use serde::Deserialize;

use super::hosts::Network;

/// The values of the table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Metrics {
    pub(crate) listen: Vec<SocketAddr>,
    /// The clients that are answered. Without it, those of this machine.
    networks: Option<Vec<Network>>,
}

impl Metrics {
    /// Checks that what is open to other machines says to which.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.listen.is_empty() {
            return Err("listen is empty; write an address, such as \"127.0.0.1:9860\"".into());
        }
        let is_open = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
        match self.listen.iter().find(is_open) {
            Some(address) if self.networks.is_none() => Err(format!(
                "{address} can be reached by other machines, and there is no TLS; name those that may read in networks, or let them use api.listen"
            )),
            _ => Ok(()),
        }
    }

    /// The clients that are answered.
    pub(crate) fn networks(&self) -> Vec<IpNet> {
        match &self.networks {
            Some(networks) => networks.iter().map(|Network(network)| *network).collect(),
            None => vec![IpNet::from(IpAddr::from(Ipv6Addr::LOCALHOST)), loopback()],
        }
    }
}

/// All addresses of IPv4 that are this machine (RFC 1122 section 3.2.1.3).
fn loopback() -> IpNet {
    IpNet::new_assert([127, 0, 0, 0].into(), 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<Metrics, String> {
        let metrics: Metrics = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        metrics.check().map(|()| metrics)
    }

    #[test]
    fn without_networks_this_machine_alone_reads_the_numbers() {
        let metrics = checked("listen = [\"127.0.0.1:9860\", \"[::1]:9860\"]").unwrap();
        let may =
            |address: &str| metrics.networks().iter().any(|net| net.contains(&address.parse::<IpAddr>().unwrap()));
        assert!(may("127.0.0.1") && may("127.1.2.3") && may("::1"));
        assert!(!may("192.0.2.1") && !may("::2"));
        let metrics = checked("listen = [\"0.0.0.0:9860\"]\nnetworks = [\"192.0.2.0/24\"]").unwrap();
        assert_eq!(metrics.networks(), ["192.0.2.0/24".parse::<IpNet>().unwrap()]);
    }

    #[test]
    fn what_other_machines_reach_says_which_may_read() {
        for (text, expected) in [
            ("listen = []", "listen is empty"),
            ("listen = [\"0.0.0.0:9860\"]", "can be reached by other machines"),
            ("listen = [\"127.0.0.1:1\", \"192.0.2.1:9860\"]", "192.0.2.1:9860 can be reached"),
            ("listen = [\"127.0.0.1:1\"]\ntokens = \"/t\"", "unknown field"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
