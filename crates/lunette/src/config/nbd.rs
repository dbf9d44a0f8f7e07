//! The table `nbd`: where the disks are served by NBD, too.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::check_initiator_name;

/// The iSCSI name of clients that have not proven another one.
pub(crate) const INITIATOR_NAME: &str = "iqn.2026-11.lunette:nbd";

/// The values of the table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nbd {
    pub(crate) listen: Vec<SocketAddr>,
    /// The folder with the certificates of a server that speaks TLS and nothing else.
    pub(crate) tls: Option<PathBuf>,
    /// The name by which rules for hosts know clients that have not proven another one.
    #[serde(default = "initiator_name")]
    pub(crate) initiator: String,
}

fn initiator_name() -> String {
    INITIATOR_NAME.into()
}

impl Nbd {
    /// A server at these addresses.
    pub(crate) fn at(listen: Vec<SocketAddr>, tls: Option<PathBuf>) -> Self {
        Self { listen, tls, initiator: initiator_name() }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.listen.is_empty() {
            return Err("listen is empty; write an address, such as \"127.0.0.1:10809\"".into());
        }
        check_initiator_name(&self.initiator).map_err(|why| format!("initiator: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_needs_an_address_and_an_iscsi_name() {
        let checked = |text: &str| toml::from_str::<Nbd>(text).map_err(|error| error.to_string())?.check();
        assert_eq!(checked("listen = [\"127.0.0.1:10809\"]"), Ok(()));
        assert!(checked("listen = []").is_err_and(|why| why.contains("10809")));
        assert!(checked("listen = [\"[::]:10809\"]\ninitiator = \"db 1\"").is_err_and(|why| why.contains("initiator")));
        assert!(checked("listen = [\"localhost\"]").is_err());
    }
}
