//! The names of places where keys are.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::client::PORT;

/// Where the key file of a volume is: `file:PATH`, or `kmip://HOST[:PORT]/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPlace {
    /// A file.
    File(PathBuf),
    /// An object of a key server, which `lunette keys publish` makes of a key file.
    Kmip {
        /// The server, as `HOST:PORT`.
        server: String,
        /// The name of the object.
        name: String,
    },
}

/// A key server, and perhaps the name of an object there: `kmip://HOST[:PORT][/NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KmipUrl {
    /// The server, as `HOST:PORT`.
    pub server: String,
    /// The name of the object.
    pub name: Option<String>,
}

/// Says how a place is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write {0}")]
pub struct PlaceError(&'static str);

const FILE: &str = "file:";
const SCHEME: &str = "kmip://";

impl FromStr for KeyPlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        const FORMS: PlaceError = PlaceError("file:PATH or kmip://HOST[:PORT]/NAME");
        match text.strip_prefix(FILE) {
            Some("") => Err(FORMS),
            Some(path) => Ok(Self::File(path.into())),
            None => {
                let KmipUrl { server, name } = text.parse().map_err(|_| FORMS)?;
                Ok(Self::Kmip { server, name: name.ok_or(FORMS)? })
            }
        }
    }
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Kmip { server, name } => write!(f, "{SCHEME}{server}/{name}"),
        }
    }
}

impl KmipUrl {
    /// Whether `text` is meant to be a key server, rather than a path.
    pub fn is_one(text: &str) -> bool {
        text.starts_with(SCHEME)
    }
}

impl FromStr for KmipUrl {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        const FORM: PlaceError = PlaceError("kmip://HOST[:PORT][/NAME]");
        let rest = text.strip_prefix(SCHEME).ok_or(FORM)?;
        let (host, name) = rest.split_once('/').map_or((rest, None), |(host, name)| (host, Some(name)));
        if host.is_empty() || name == Some("") {
            return Err(FORM);
        }
        // A colon behind the last bracket of an IPv6 address begins the port.
        let has_port = host.rsplit_once(']').map_or(host, |(_, port)| port).contains(':');
        let server = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
        Ok(Self { server, name: name.map(Into::into) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kmip(server: &str, name: Option<&str>) -> KmipUrl {
        KmipUrl { server: server.into(), name: name.map(Into::into) }
    }

    #[test]
    fn servers_have_a_port_and_perhaps_an_object() {
        assert_eq!("kmip://h".parse(), Ok(kmip("h:5696", None)));
        assert_eq!("kmip://h:1/a/b".parse(), Ok(kmip("h:1", Some("a/b"))));
        assert_eq!("kmip://[::1]/a".parse(), Ok(kmip("[::1]:5696", Some("a"))));
        assert_eq!("kmip://[::1]:7".parse(), Ok(kmip("[::1]:7", None)));
        for text in ["kmip://", "kmip:///a", "kmip://h/", "h/a"] {
            assert!(text.parse::<KmipUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn key_files_are_in_files_or_in_key_servers() {
        assert_eq!("file:a/b.keys".parse(), Ok(KeyPlace::File("a/b.keys".into())));
        let object = KeyPlace::Kmip { server: "h:5696".into(), name: "vm1".into() };
        assert_eq!("kmip://h/vm1".parse(), Ok(object.clone()));
        assert_eq!(object.to_string(), "kmip://h:5696/vm1");
        for text in ["", "a.keys", "file:", "kmip://h", "kmip://h/", "https://h/a"] {
            let message = text.parse::<KeyPlace>().unwrap_err().to_string();
            assert_eq!(message, "write file:PATH or kmip://HOST[:PORT]/NAME", "{text}");
        }
    }
}
