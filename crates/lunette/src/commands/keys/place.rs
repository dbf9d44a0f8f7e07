//! Where keys are: in a key file, or in a key server.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use lunette_keys::client::Client;
use lunette_keys::source::{KmipUrl, Opening};

use crate::failure::Failure;

/// A key file, or `kmip://HOST[:PORT][/NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    Kmip(KmipUrl),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if KmipUrl::is_one(text) {
            return text.parse().map(Self::Kmip).map_err(|error: lunette_keys::source::PlaceError| error.to_string());
        }
        Ok(Self::File(text.into()))
    }
}

/// The name of the object.
pub(super) fn object_name(url: &KmipUrl) -> Result<&str, Failure> {
    let missing = || Failure::Usage(format!("name an object: kmip://{}/NAME", url.server));
    url.name.as_deref().ok_or_else(missing)
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
        if self.tls.is_none() {
            return Err(Failure::Usage("a key server needs --tls, the folder with this client's certificate".into()));
        }
        Opening { passphrase: None, tls: self.tls.clone() }.connect(server).map_err(Failure::configuration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_files_or_key_servers() {
        assert_eq!("a/b.keys".parse(), Ok(Place::File("a/b.keys".into())));
        assert_eq!("kmip://h/a".parse(), Ok(Place::Kmip(KmipUrl { server: "h:5696".into(), name: Some("a".into()) })));
        assert!("kmip://".parse::<Place>().is_err());
    }
}
