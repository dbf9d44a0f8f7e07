//! The names of exports: URIs as `uri.md` of the NetworkBlockDevice project has them.

use std::fmt::{self, Write};
use std::str::FromStr;

use super::limits::MAX_URI_LEN;
use crate::limits::MAX_STRING_LEN;

/// The port of servers ("NBD URI authority").
const DEFAULT_PORT: u16 = 10809;

/// The schemes of NBD, with TLS and without.
const SCHEMES: [&str; 6] = ["nbd", "nbd+unix", "nbds", "nbds+unix", "nbd+vsock", "nbds+vsock"];

/// The name of an export: `nbd://HOST[:PORT]/NAME`, or `nbd+unix:///NAME?socket=PATH`.
///
/// `%XX` stands for a byte in the name of the export and in the path.
///
/// ```
/// use lunette_nbd::client::{NbdUrl, Place};
///
/// let url: NbdUrl = "nbd://192.0.2.1/disk".parse()?;
/// assert_eq!(url.place, Place::Tcp { host: "192.0.2.1".into(), port: 10809 });
/// assert_eq!(url.export, "disk");
/// let url: NbdUrl = "nbd+unix:///?socket=/run/disk.sock".parse()?;
/// assert_eq!((url.place, &*url.export), (Place::Unix("/run/disk.sock".into()), ""));
/// # Ok::<(), lunette_nbd::client::UrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdUrl {
    /// The place where the server listens.
    pub place: Place,
    /// The name of the export. The empty one is the server's default.
    pub export: String,
}

/// The place where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A TCP port.
    Tcp {
        /// A name or an address; IPv6 without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(String),
}

/// Why a text is no name of an export.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme is not one of NBD without TLS.
    #[error("an NBD URI begins with nbd:// or nbd+unix://")]
    Scheme,
    /// The scheme asks for TLS.
    #[error("NBD with TLS (nbds://) is not supported; write nbd:// or nbd+unix://, and use a network that you trust")]
    Tls,
    /// The URI is longer than [`MAX_URI_LEN`].
    #[error("an NBD URI has up to {MAX_URI_LEN} bytes")]
    Length,
    /// The host is missing, or is none.
    #[error("{0:?} is no host; write nbd://HOST[:PORT]/NAME, with an IPv6 address in brackets")]
    Host(String),
    /// The port is none.
    #[error("{0:?} is no port")]
    Port(String),
    /// A user stands before the host.
    #[error("an NBD URI without TLS has no user; leave out all before the @")]
    User,
    /// The path of the Unix socket is missing, or a host stands before it.
    #[error("nbd+unix:// needs the path of a socket and no host; write nbd+unix:///NAME?socket=PATH")]
    Socket,
    /// A parameter is not known, or has no value.
    #[error("{0:?} is no parameter of this URI; the only one is socket=PATH, with nbd+unix://")]
    Parameter(String),
    /// A parameter is there twice.
    #[error("the parameter {0} is there twice")]
    Twice(String),
    /// A `%` does not stand before two hexadecimal digits, or a part is not UTF-8 or holds a NUL byte.
    #[error("{0:?} cannot be decoded: after % come two hexadecimal digits, and names are UTF-8 without NUL bytes")]
    Escape(String),
    /// The name of the export is longer than the protocol allows.
    #[error("the name of an export has up to {MAX_STRING_LEN} bytes")]
    Export,
    /// A `#` begins a fragment.
    #[error("an NBD URI has no fragment; write %23 for #")]
    Fragment,
}

impl NbdUrl {
    /// Whether `text` is meant as such a URI, with TLS or without.
    pub fn is_meant(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
    }
}

impl FromStr for NbdUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.len() > MAX_URI_LEN {
            return Err(UrlError::Length);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let is_unix = match scheme {
            "nbd" => false,
            "nbd+unix" => true,
            "nbds" | "nbds+unix" | "nbds+vsock" => return Err(UrlError::Tls),
            _ => return Err(UrlError::Scheme),
        };
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let socket = socket(query)?;
        let place = match (is_unix, socket) {
            (true, Some(socket)) if authority.is_empty() => Place::Unix(socket),
            (true, _) => return Err(UrlError::Socket),
            (false, Some(_)) => return Err(UrlError::Parameter("socket".into())),
            (false, None) => tcp(authority)?,
        };
        let export = decode(path)?;
        if export.len() > MAX_STRING_LEN { Err(UrlError::Export) } else { Ok(Self { place, export }) }
    }
}

/// The value of the parameter `socket`.
fn socket(query: Option<&str>) -> Result<Option<String>, UrlError> {
    let mut socket = None;
    for parameter in query.into_iter().flat_map(|query| query.split('&')) {
        match parameter.split_once('=') {
            Some(("socket", value)) if !value.is_empty() => {
                if socket.replace(decode(value)?).is_some() {
                    return Err(UrlError::Twice("socket".into()));
                }
            }
            _ => return Err(UrlError::Parameter(parameter.split('=').next().unwrap_or_default().into())),
        }
    }
    Ok(socket)
}

fn tcp(authority: &str) -> Result<Place, UrlError> {
    if authority.contains('@') {
        return Err(UrlError::User);
    }
    let wrong = || UrlError::Host(authority.into());
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(wrong)?;
            let port = if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or_else(wrong)?) };
            (host.replacen("%25", "%", 1), port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (decode(host)?, Some(port)),
            None => (decode(authority)?, None),
        },
    };
    if host.is_empty() || host.contains(['/', ' ']) || (host.contains(':') != authority.starts_with('[')) {
        return Err(wrong());
    }
    let port = match port {
        None | Some("") => DEFAULT_PORT,
        Some(port) => port.parse().map_err(|_| UrlError::Port(port.into()))?,
    };
    Ok(Place::Tcp { host, port })
}

impl fmt::Display for NbdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp { host, port } if host.contains(':') => {
                write!(f, "nbd://[{}]:{port}/", host.replacen('%', "%25", 1))?;
                encode(f, &self.export)
            }
            Place::Tcp { host, port } => {
                f.write_str("nbd://")?;
                encode(f, host)?;
                write!(f, ":{port}/")?;
                encode(f, &self.export)
            }
            Place::Unix(path) => {
                f.write_str("nbd+unix:///")?;
                encode(f, &self.export)?;
                f.write_str("?socket=")?;
                encode(f, path)
            }
        }
    }
}

/// Writes a part of a URI. Slashes stand for themselves in paths and in parameters.
fn encode(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                f.write_char(char::from(byte))?;
            }
            byte => write!(f, "%{byte:02x}")?,
        }
    }
    Ok(())
}

/// Puts bytes in the place of `%XX`.
fn decode(text: &str) -> Result<String, UrlError> {
    let bytes = decode_bytes(text).filter(|bytes| !bytes.contains(&0));
    let wrong = || UrlError::Escape(text.into());
    String::from_utf8(bytes.ok_or_else(wrong)?).map_err(|_| wrong())
}

fn decode_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(match byte {
            b'%' => (digit(rest.next()?)? * 16 + digit(rest.next()?)?) as u8,
            byte => byte,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<NbdUrl, UrlError> {
        text.parse()
    }

    #[test]
    fn the_examples_of_the_specification_are_read() {
        for (text, export) in [
            ("nbd://example.com/disk", "disk"),
            ("nbd+unix:///disk?socket=sock", "disk"),
            ("nbd://example.com/", ""),
            ("nbd://example.com", ""),
            ("nbd://example.com//disk", "/disk"),
            ("nbd://example.com/hello%20world", "hello world"),
        ] {
            assert_eq!(parse(text).unwrap().export, export, "{text}");
        }
        let place = |text| parse(text).unwrap().place;
        assert_eq!(place("nbd://h:1/"), Place::Tcp { host: "h".into(), port: 1 });
        assert_eq!(place("nbd://[::1]/"), Place::Tcp { host: "::1".into(), port: 10809 });
        assert_eq!(place("nbd://[fe80::1%25eth0]:1"), Place::Tcp { host: "fe80::1%eth0".into(), port: 1 });
        assert_eq!(place("nbd+unix:///?socket=/a%20b"), Place::Unix("/a b".into()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let text = |text: &str| text.to_owned();
        for (url, error) in [
            ("nbds://h/disk", UrlError::Tls),
            ("nbds+unix:///?socket=/s", UrlError::Tls),
            ("nbd+vsock://2/", UrlError::Scheme),
            ("iscsi://h", UrlError::Scheme),
            ("nbd:///disk", UrlError::Host(text(""))),
            ("nbd://::1/disk", UrlError::Host(text("::1"))),
            ("nbd://[::1/disk", UrlError::Host(text("[::1"))),
            ("nbd://[h]/disk", UrlError::Host(text("[h]"))),
            ("nbd://h:0x1/disk", UrlError::Port(text("0x1"))),
            ("nbd://h:65536/disk", UrlError::Port(text("65536"))),
            ("nbd://u@h/disk", UrlError::User),
            ("nbd+unix:///disk", UrlError::Socket),
            ("nbd+unix://h/disk?socket=/s", UrlError::Socket),
            ("nbd+unix:///disk?socket=", UrlError::Parameter(text("socket"))),
            ("nbd+unix:///disk?socket=/s&socket=/t", UrlError::Twice(text("socket"))),
            ("nbd+unix:///disk?socket=/s&tls-type=psk", UrlError::Parameter(text("tls-type"))),
            ("nbd+unix:///?socket=%00abstract", UrlError::Escape(text("%00abstract"))),
            ("nbd://h/a%2", UrlError::Escape(text("a%2"))),
            ("nbd://h/a?socket=/s", UrlError::Parameter(text("socket"))),
            ("nbd://h/a#b", UrlError::Fragment),
        ] {
            assert_eq!(parse(url), Err(error), "{url}");
        }
        assert_eq!(parse(&format!("nbd://h/{}", "n".repeat(MAX_URI_LEN))), Err(UrlError::Length));
        assert_eq!(parse(&format!("nbd://h/{}", "n".repeat(MAX_STRING_LEN + 1))), Err(UrlError::Export));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            export in "[a-z/@?&%#:=ä ]{0,8}",
            place in prop_oneof![
                ("[a-z][a-z.-]{0,8}|[0-9a-f]{1,4}::1", any::<u16>()).prop_map(|(host, port)| Place::Tcp { host, port }),
                "[a-z/@?&%#:=ä ]{1,8}".prop_map(Place::Unix),
            ],
        ) {
            let url = NbdUrl { place, export };
            prop_assert_eq!(url.to_string().parse(), Ok(url));
        }

        #[test]
        fn no_text_makes_it_panic(text in "(nbd|nbd[+]unix)://.{0,40}") {
            drop(parse(&text));
        }
    }
}
