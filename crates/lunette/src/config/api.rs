//! The table `api`: where the API is served, and which clients may use it.

mod clients;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::address;
use crate::systemd::credentials;
use crate::text;
pub(crate) use clients::Client;

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
    /// Clients that prove themselves by certificates. The first one that a certificate is for counts.
    #[serde(default, rename = "client")]
    pub(crate) clients: Vec<Client>,
}

/// A Unix socket or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// How the server proves its identity to clients that come over TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tls {
    /// The files of a folder, under the names that QEMU and libvirt use.
    Folder(PathBuf),
    /// Two files.
    Files(TlsFiles),
}

/// The files of a server's own identity.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsFiles {
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
        let has_clients = self.tokens.is_some() || !self.clients.is_empty();
        match (has_tcp, self.tls.is_some() && has_clients) {
            (true, false) => return Err("a place on TCP needs tls and tokens, or clients with certificates".into()),
            (false, _) if self.tls.is_some() || has_clients => {
                return Err("tls, tokens and client are for places on TCP, and listen has none".into());
            }
            _ => {}
        }
        if !self.clients.is_empty() && matches!(self.tls, Some(Tls::Files(_))) {
            return Err("client needs a folder with ca-cert.pem; write tls = \"DIR\"".into());
        }
        Client::check_all(&self.clients)
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

impl<'de> Deserialize<'de> for Tls {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(FolderOrFiles)
    }
}

struct FolderOrFiles;

impl<'de> Visitor<'de> for FolderOrFiles {
    type Value = Tls;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a folder, or certificates and key")
    }

    fn visit_str<E: Error>(self, folder: &str) -> Result<Tls, E> {
        Ok(Tls::Folder(folder.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Tls, A::Error> {
        TlsFiles::deserialize(MapAccessDeserializer::new(map)).map(Tls::Files)
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
            ("listen = [\"127.0.0.1:80\"]\ntls = \"/tls\"", "or clients with certificates"),
            ("listen = [\"127.0.0.1:80\"]\ntls = 1\ntokens = \"/t\"", "expected a folder, or certificates and key"),
            ("listen = [\"127.0.0.1:80\"]\ntls = { certificates = \"/c\" }", "missing field `key`"),
            ("listen = [\"127.0.0.1\"]", "has no port; write ADDR:PORT"),
            ("listen = [\"/run/api.sock\"]", "a Unix socket is written unix:PATH"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_client_with_a_certificate_has_a_name_and_a_role() {
        let good = "name = \"a\", certificates = [\"CN=a\"], role = \"read\"";
        let with = |clients: &str, tls: &str| {
            checked(&format!("listen = [\"127.0.0.1:80\"]\ntls = {tls}\nclient = [{clients}]")).map(|api| api.clients)
        };
        let clients = with(&format!("{{ {good}, targets = [\"iqn.a\"] }}"), "\"/tls\"").unwrap();
        assert_eq!(
            (clients[0].role, clients[0].targets.as_deref()),
            (lunette_api::Role::Read, Some(&["iqn.a".into()][..]))
        );
        for (from, to, expected) in [
            ("\"read\"", "\"root\"", "\"root\" is no role"),
            (", role = \"read\"", "", "missing field `role`"),
            ("\"a\"", "\"a b\"", "client a b: a name has 1 to 64 letters"),
            ("\"CN=a\"", "", "certificates is empty"),
            ("CN=a", "a b", "is no identity"),
            ("\"read\"", "\"read\", targets = []", "targets is empty"),
            ("\"read\"", "\"read\", targets = [\"a\"]", "client a: "),
            ("\"read\"", "\"read\", rights = 1", "unknown field"),
        ] {
            let error = with(&format!("{{ {} }}", good.replacen(from, to, 1)), "\"/tls\"").unwrap_err();
            assert!(error.contains(expected), "{to}: {error}");
        }
        let twice = with(&format!("{{ {good} }}, {{ {good} }}"), "\"/tls\"").unwrap_err();
        assert!(twice.contains("client a: the name is there twice"), "{twice}");
        let files = with(&format!("{{ {good} }}"), "{ certificates = \"/c\", key = \"/k\" }").unwrap_err();
        assert!(files.contains("needs a folder with ca-cert.pem"), "{files}");
    }
}
