//! The table `api`: where the API is served, and which clients may use it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use crate::address;
use crate::systemd::credentials;
use crate::text;

/// The values of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Api {
    pub(crate) listen: Vec<Place>,
    /// The group of the system whose members may use Unix sockets, too.
    pub(crate) group: Option<String>,
    /// Tokens of clients that come over TCP.
    #[serde(default, deserialize_with = "credentials::read_optional_path")]
    pub(crate) tokens: Option<PathBuf>,
    pub(crate) tls: Option<Tls>,
}

/// A Unix socket or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// How the server proves its identity to clients that come over TCP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    /// The certificate and those that lead to its authority, in PEM.
    #[serde(deserialize_with = "credentials::read_path")]
    pub(crate) certificates: PathBuf,
    /// The private key in PEM.
    #[serde(deserialize_with = "credentials::read_path")]
    pub(crate) key: PathBuf,
}

impl Api {
    /// Checks that every place has what it needs.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.listen.is_empty() {
            return Err("listen is empty; write a place, such as \"unix:/run/lunette/api.sock\"".into());
        }
        let has_tcp = self.listen.iter().any(|place| matches!(place, Place::Tcp(_)));
        match (has_tcp, self.tls.is_some() && self.tokens.is_some()) {
            (true, false) => Err("a place on TCP needs tls and tokens".into()),
            (false, _) if self.tls.is_some() || self.tokens.is_some() => {
                Err("tls and tokens are for places on TCP, and listen has none".into())
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(path) => Err(format!("unix:{path}: write the whole path, from /")),
            // The path of a file is no address.
            None if text.contains('/') && !text.contains("://") => Err(format!(
                "{text:?} is not an address; a Unix socket is written unix:PATH, with the whole path, from /"
            )),
            None => address::one(text).map(Self::Tcp).map_err(|why| format!("{why}, or unix:PATH")),
        }
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        text::read(from)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<Api, String> {
        let api: Api = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        api.check().map(|()| api)
    }

    #[test]
    fn places_are_paths_or_addresses() {
        let api = checked("listen = [\"unix:/run/api.sock\"]\ngroup = \"disk\"").unwrap();
        assert_eq!(api.listen, [Place::Unix("/run/api.sock".into())]);
        let rest = "tokens = \"/t\"\ntls = { certificates = \"/c\", key = \"/k\" }";
        let api = checked(&format!("listen = [\"[::1]:8443\", \"unix:/a\"]\n{rest}")).unwrap();
        assert_eq!(api.listen.iter().map(Place::to_string).collect::<Vec<_>>(), ["[::1]:8443", "unix:/a"]);
    }

    #[test]
    fn what_would_be_open_to_all_is_refused() {
        for (text, expected) in [
            ("listen = []", "listen is empty"),
            ("listen = [\"127.0.0.1:80\"]", "needs tls and tokens"),
            ("listen = [\"127.0.0.1:80\"]\ntokens = \"/t\"", "needs tls and tokens"),
            ("listen = [\"unix:/a\"]\ntokens = \"/t\"", "listen has none"),
            ("listen = [\"unix:a\"]", "from /"),
            ("listen = [\"127.0.0.1\"]", "has no port; write ADDR:PORT"),
            ("listen = [\"/run/api.sock\"]", "a Unix socket is written unix:PATH"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
