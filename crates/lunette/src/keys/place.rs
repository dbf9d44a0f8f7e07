//! Where keys are: in a key file, or in a key server.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use lunette_keys::TlsFiles;
use lunette_keys::client::{Client, PORT};

use crate::failure::Failure;

/// A key file, or `kmip://HOST[:PORT][/NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    Kmip(KmipUrl),
}

/// A key server, and the name of an object there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KmipUrl {
    /// As `HOST:PORT`.
    pub(super) server: String,
    pub(super) name: Option<String>,
}

const SCHEME: &str = "kmip://";

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(SCHEME) { text.parse().map(Self::Kmip) } else { Ok(Self::File(text.into())) }
    }
}

impl FromStr for KmipUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or("write kmip://HOST[:PORT][/NAME]")?;
        let (host, name) = rest.split_once('/').map_or((rest, None), |(host, name)| (host, Some(name)));
        if host.is_empty() || name == Some("") {
            return Err("write kmip://HOST[:PORT][/NAME]".into());
        }
        // A colon behind the last bracket of an IPv6 address begins the port.
        let has_port = host.rsplit_once(']').map_or(host, |(_, port)| port).contains(':');
        let server = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
        Ok(Self { server, name: name.map(Into::into) })
    }
}

impl KmipUrl {
    /// The name of the object.
    pub(super) fn name(&self) -> Result<&str, Failure> {
        let missing = || Failure::Usage(format!("name an object: kmip://{}/NAME", self.server));
        self.name.as_deref().ok_or_else(missing)
    }
}

/// The certificates for a key server.
#[derive(Args)]
pub(super) struct Tls {
    /// The folder with ca-cert.pem, client-cert.pem and client-key.pem, for key servers
    #[arg(long, value_name = "DIR")]
    pub(super) tls: Option<PathBuf>,
}

impl Tls {
    pub(super) fn connect(&self, server: &str) -> Result<Client, Failure> {
        let missing = || Failure::Usage("a key server needs --tls, the folder with this client's certificate".into());
        let folder = self.tls.as_ref().ok_or_else(missing)?;
        Client::connect(server, &TlsFiles::in_folder(folder)).map_err(Failure::configuration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kmip(server: &str, name: Option<&str>) -> Place {
        Place::Kmip(KmipUrl { server: server.into(), name: name.map(Into::into) })
    }

    #[test]
    fn places_are_files_or_key_servers() {
        assert_eq!("a/b.keys".parse(), Ok(Place::File("a/b.keys".into())));
        assert_eq!("kmip://h".parse(), Ok(kmip("h:5696", None)));
        assert_eq!("kmip://h:1/a/b".parse(), Ok(kmip("h:1", Some("a/b"))));
        assert_eq!("kmip://[::1]/a".parse(), Ok(kmip("[::1]:5696", Some("a"))));
        assert_eq!("kmip://[::1]:7".parse(), Ok(kmip("[::1]:7", None)));
        for text in ["kmip://", "kmip:///a", "kmip://h/"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
