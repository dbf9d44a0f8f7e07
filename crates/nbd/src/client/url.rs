//! The names of exports: URIs as `uri.md` of the NetworkBlockDevice project has them.

use std::fmt::{self, Write};
use std::str::FromStr;

use super::limits::MAX_URI_LEN;
use crate::limits::MAX_STRING_LEN;

/// The port of servers ("NBD URI authority").
const DEFAULT_PORT: u16 = 10809;

/// The schemes of NBD, with TLS and without.
const SCHEMES: [&str; 6] = ["nbd", "nbd+unix", "nbds", "nbds+unix", "nbd+vsock", "nbds+vsock"];

/// The names of parameters ("NBD URI query parameters related to TLS", and those of libnbd).
const SOCKET: &str = "socket";
const CERTIFICATES: &str = "tls-certificates";
const HOSTNAME: &str = "tls-hostname";
const VERIFY_PEER: &str = "tls-verify-peer";
const TYPE: &str = "tls-type";
const PSK_FILE: &str = "tls-psk-file";
const PARAMETERS: [&str; 6] = [SOCKET, CERTIFICATES, HOSTNAME, VERIFY_PEER, TYPE, PSK_FILE];

/// The name of an export: `nbd://HOST[:PORT]/NAME`, or `nbd+unix:///NAME?socket=PATH`. With `nbds` in the place of
/// `nbd` the connection is in TLS.
///
/// `%XX` stands for a byte in the name of the export and in the values of parameters.
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
    /// TLS, which `nbds://` and `nbds+unix://` demand.
    pub tls: Option<Tls>,
}

/// TLS as a URI asks for it. Without it there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The folder with `ca-cert.pem`, and with `ca-crl.pem`, `client-cert.pem` and `client-key.pem` if there are any.
    pub certificates: Option<String>,
    /// The name that the certificate of the server must have. Without it, that is the host, or `localhost` behind a
    /// Unix socket.
    pub hostname: Option<String>,
    /// Whether the server must prove itself.
    pub verify_peer: bool,
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
    /// The scheme is none of NBD over TCP or Unix sockets.
    #[error("an NBD URI begins with nbd://, nbds://, nbd+unix:// or nbds+unix://")]
    Scheme,
    /// A parameter of TLS stands in a URI without TLS.
    #[error("{0:?} needs a URI that begins with nbds:// or nbds+unix://")]
    NotTls(String),
    /// The server cannot be verified.
    #[error(
        "TLS needs tls-certificates=DIR, a folder with ca-cert.pem, to verify the server; tls-verify-peer=0 does not"
    )]
    Certificates,
    /// Pre-shared keys.
    #[error("pre-shared keys (tls-psk-file) are not supported, because rustls has none; use tls-certificates=DIR")]
    Psk,
    /// The value of a parameter is none that it can have.
    #[error("{1:?} is no value of {0}")]
    Value(&'static str, String),
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
    #[error("an NBD URI has a user for pre-shared keys alone, which are not supported; leave out all before the @")]
    User,
    /// The path of the Unix socket is missing, or a host stands before it.
    #[error("nbd+unix:// needs the path of a socket and no host; write nbd+unix:///NAME?socket=PATH, or nbds+unix")]
    Socket,
    /// A parameter is not known, or has no value.
    #[error(
        "{0:?} is no parameter of this URI; there are socket=PATH with nbd+unix:// and nbds+unix://, and \
         tls-certificates=DIR, tls-hostname=NAME and tls-verify-peer=0 with nbds:// and nbds+unix://"
    )]
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
        let (is_unix, is_tls) = match scheme {
            "nbd" => (false, false),
            "nbd+unix" => (true, false),
            "nbds" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(UrlError::Scheme),
        };
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut values = Values::of(query)?;
        let socket = values.take(SOCKET);
        let place = match (is_unix, socket) {
            (true, Some(socket)) if authority.is_empty() => Place::Unix(socket),
            (true, _) => return Err(UrlError::Socket),
            (false, Some(_)) => return Err(UrlError::Parameter(SOCKET.into())),
            (false, None) => tcp(authority)?,
        };
        let tls = values.tls(is_tls)?;
        let export = decode(path)?;
        if export.len() > MAX_STRING_LEN { Err(UrlError::Export) } else { Ok(Self { place, export, tls }) }
    }
}

/// The values of the parameters, in the order of [`PARAMETERS`].
struct Values([Option<String>; PARAMETERS.len()]);

impl Values {
    fn of(query: Option<&str>) -> Result<Self, UrlError> {
        let mut values = Self(Default::default());
        for parameter in query.into_iter().flat_map(|query| query.split('&')) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let at = PARAMETERS.iter().position(|known| *known == name).filter(|_| !value.is_empty());
            let at = at.ok_or_else(|| UrlError::Parameter(name.into()))?;
            if values.0[at].replace(decode(value)?).is_some() {
                return Err(UrlError::Twice(name.into()));
            }
        }
        Ok(values)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        PARAMETERS.iter().zip(&mut self.0).find(|(known, _)| **known == name).and_then(|(_, value)| value.take())
    }

    /// All but the socket.
    fn tls(mut self, is_tls: bool) -> Result<Option<Tls>, UrlError> {
        if !is_tls {
            let given = PARAMETERS.iter().zip(&self.0).find(|(_, value)| value.is_some());
            return given.map_or(Ok(None), |(name, _)| Err(UrlError::NotTls((*name).into())));
        }
        if self.take(PSK_FILE).is_some() {
            return Err(UrlError::Psk);
        }
        match self.take(TYPE) {
            None => {}
            Some(kind) if kind == "x509" => {}
            Some(kind) if kind == "psk" => return Err(UrlError::Psk),
            Some(kind) => return Err(UrlError::Value(TYPE, kind)),
        }
        let verify_peer = match self.take(VERIFY_PEER) {
            None => true,
            Some(value) => match &*value {
                "1" | "true" => true,
                "0" | "false" => false,
                _ => return Err(UrlError::Value(VERIFY_PEER, value)),
            },
        };
        let (certificates, hostname) = (self.take(CERTIFICATES), self.take(HOSTNAME));
        if verify_peer && certificates.is_none() {
            return Err(UrlError::Certificates);
        }
        Ok(Some(Tls { certificates, hostname, verify_peer }))
    }
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
        f.write_str(if self.tls.is_some() { "nbds" } else { "nbd" })?;
        let mut parameters = Vec::new();
        match &self.place {
            Place::Tcp { host, port } if host.contains(':') => {
                write!(f, "://[{}]:{port}/", host.replacen('%', "%25", 1))?;
            }
            Place::Tcp { host, port } => {
                f.write_str("://")?;
                encode(f, host)?;
                write!(f, ":{port}/")?;
            }
            Place::Unix(path) => {
                f.write_str("+unix:///")?;
                parameters.push((SOCKET, path.as_str()));
            }
        }
        encode(f, &self.export)?;
        if let Some(Tls { certificates, hostname, verify_peer }) = &self.tls {
            parameters.extend(certificates.iter().map(|folder| (CERTIFICATES, folder.as_str())));
            parameters.extend(hostname.iter().map(|name| (HOSTNAME, name.as_str())));
            parameters.extend((!verify_peer).then_some((VERIFY_PEER, "0")));
        }
        for (index, (name, value)) in parameters.into_iter().enumerate() {
            write!(f, "{}{name}=", if index == 0 { '?' } else { '&' })?;
            encode(f, value)?;
        }
        Ok(())
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
            ("nbds://example.com/disk?tls-certificates=/d", "disk"),
        ] {
            let url = parse(text).unwrap();
            assert_eq!((&*url.export, url.tls.is_some()), (export, text.starts_with("nbds")), "{text}");
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
            ("nbds://h/disk", UrlError::Certificates),
            ("nbds+unix:///?socket=/s&tls-verify-peer=1", UrlError::Certificates),
            ("nbds+unix:///?tls-certificates=/d", UrlError::Socket),
            ("nbds://h/?tls-psk-file=/k", UrlError::Psk),
            ("nbds://h/?tls-certificates=/d&tls-type=psk", UrlError::Psk),
            ("nbds://h/?tls-certificates=/d&tls-type=anon", UrlError::Value("tls-type", text("anon"))),
            ("nbds://h/?tls-verify-peer=no", UrlError::Value("tls-verify-peer", text("no"))),
            ("nbds://h/?tls-certificates=/d&tls-priority=NORMAL", UrlError::Parameter(text("tls-priority"))),
            ("nbd://h/?tls-certificates=/d", UrlError::NotTls(text("tls-certificates"))),
            ("nbd+vsock://2/", UrlError::Scheme),
            ("nbds+vsock://2/", UrlError::Scheme),
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
            ("nbd+unix:///disk?socket=/s&tls-type=psk", UrlError::NotTls(text("tls-type"))),
            ("nbd+unix:///disk?socket=/s&sokcet=/t", UrlError::Parameter(text("sokcet"))),
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
            tls in proptest::option::of((
                proptest::option::of("[a-z/@?&%#:=ä ]{1,8}"), proptest::option::of("[a-z.&]{1,8}"), any::<bool>(),
            )),
        ) {
            let tls = tls.map(|(certificates, hostname, is_verified)| {
                let verify_peer = is_verified && certificates.is_some();
                Tls { certificates, hostname, verify_peer }
            });
            let url = NbdUrl { place, export, tls };
            prop_assert_eq!(url.to_string().parse(), Ok(url));
        }

        #[test]
        fn no_text_makes_it_panic(text in "(nbd|nbds|nbd[+]unix|nbds[+]unix)://.{0,40}") {
            drop(parse(&text));
        }
    }
}
