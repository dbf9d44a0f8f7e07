//! Addresses to listen on, in each form that people write.
//!
//! | text | means |
//! |---|---|
//! | `192.0.2.1:860`, `[2001:db8::1]:860` | this address and port |
//! | `192.0.2.1`, `2001:db8::1`, `[2001:db8::1]` | the default port |
//! | `[fe80::1%eth0]:3260`, `fe80::1%2` | an address in a zone, by the name or number of its interface (RFC 4007) |
//! | `localhost:3260`, `san.example` | all addresses of the name |
//! | `*:3260`, `:3260`, `*` | every address of this machine, of both families |
//!
//! Names and zones are looked up when the text is read. They are looked up again when the configuration is, and while
//! they have no address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::questions::Rounds;

/// Addresses that one name may have: each becomes a portal.
const MAX_ADDRESSES: usize = 16;

/// The time that a name has to be found: more than a second server of names needs, when the first one is silent.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(8);

/// The longest name (RFC 1035 section 2.3.4).
const MAX_NAME_BYTES: usize = 255;

/// Why a text means no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoAddress {
    /// The address has none of the forms.
    Form(String),
    /// The system does not know the name or the zone now.
    Unknown(String),
}

impl NoAddress {
    /// The message.
    pub(crate) fn into_message(self) -> String {
        let (Self::Form(message) | Self::Unknown(message)) = self;
        message
    }
}

/// The addresses that a text means, in the order in which the system gives them.
pub(crate) fn resolve(text: &str, default_port: u16) -> Result<Vec<SocketAddr>, NoAddress> {
    let (host, port) = read(text, default_port).map_err(NoAddress::Form)?;
    if matches!(host, "" | "*") {
        let every: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        return Ok(every.map(|ip| SocketAddr::new(ip, port)).into());
    }
    if let Ok(ip) = host.parse() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    // The system knows names and zones.
    let unknown = |why: &dyn std::fmt::Display| {
        NoAddress::Unknown(format!("{text:?}: {host} has no address here ({why}); write an address"))
    };
    let mut addresses: Vec<SocketAddr> = Vec::new();
    let found = look_up(host).map_err(|why| unknown(&why))?;
    for address in found.into_iter().map(|mut found| {
        found.set_port(port);
        found
    }) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err(unknown(&"the answer is empty")) } else { Ok(addresses) }
}

/// Asks the system for the addresses of a name or a zone. A name that has found no answer in time is not asked for
/// again before that comes.
fn look_up(host: &str) -> Result<Vec<SocketAddr>, String> {
    static ROUNDS: Rounds = Rounds::new();
    let asked = host.to_owned();
    let ask = move |_: usize| {
        let found = (asked.as_str(), 0).to_socket_addrs().map_err(|error| error.to_string())?;
        Ok(found.take(MAX_ADDRESSES).collect())
    };
    let answer = ROUNDS.within(LOOK_UP_LIMIT, LOOK_UP_LIMIT, vec![format!("address of {host}")], ask).pop().flatten();
    answer.unwrap_or_else(|| Err("no server of names has answered".into()))
}

/// Whether a text has the name of a host, and no address.
pub(crate) fn is_name_of_host(text: &str) -> bool {
    read(text, 0).is_ok_and(|(host, _)| is_name(host))
}

/// The host and the port of a text, which may be one of a name that nothing knows.
fn read(text: &str, default_port: u16) -> Result<(&str, u16), String> {
    let (host, port) = split(text).filter(|_| !has_scheme(text)).ok_or_else(|| wrong(text))?;
    let port = match port {
        None => default_port,
        Some(port) => {
            port.parse().map_err(|_| format!("{text:?}: {port:?} is no port; write a number from 0 to 65535"))?
        }
    };
    let is_address = matches!(host, "" | "*") || host.parse::<IpAddr>().is_ok();
    if is_address || is_zoned(host) || is_name(host) { Ok((host, port)) } else { Err(wrong(text)) }
}

/// The address of a text, for a server with one socket. A wildcard becomes `[::]`, which accepts IPv4 too.
pub(crate) fn one(text: &str) -> Result<SocketAddr, String> {
    if has_scheme(text) || is_port(text) {
        return Err(wrong(text));
    }
    if !matches!(split(text), Some((_, Some(_)))) {
        return Err(format!("{text:?} has no port; write ADDR:PORT, such as 127.0.0.1:10809 or [::1]:10809"));
    }
    match &*resolve(text, 0).map_err(NoAddress::into_message)? {
        [address] => Ok(*address),
        [any, _] if any.ip().is_unspecified() => Ok(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), any.port())),
        several => {
            let several: Vec<_> = several.iter().map(SocketAddr::to_string).collect();
            Err(format!("{text:?} has several addresses; write one of {}", several.join(", ")))
        }
    }
}

/// Host and port. `None` when the brackets are wrong.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        let is_v6 = host.parse::<Ipv6Addr>().is_ok() || is_zoned(host);
        return match rest.strip_prefix(':') {
            _ if !is_v6 => None,
            None if rest.is_empty() => Some((host, None)),
            port => Some((host, Some(port?))),
        };
    }
    // Without brackets it is IPv6 alone, and has no port: its last group could not be told from one.
    if text.parse::<Ipv6Addr>().is_ok() || is_zoned(text) {
        return Some((text, None));
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => None,
        Some((host, port)) => Some((host, Some(port))),
        None if text.is_empty() => None,
        None => Some((text, None)),
    }
}

/// Whether it is an IPv6 address in a zone, `fe80::1%eth0`.
fn is_zoned(host: &str) -> bool {
    let zoned = host.split_once('%').and_then(|(address, zone)| Some((address.parse::<Ipv6Addr>().ok()?, zone)));
    zoned.is_some_and(|(_, zone)| {
        !zone.is_empty() && zone.chars().all(|c| c.is_ascii_alphanumeric() || "-._@".contains(c))
    })
}

/// Whether it may be the name of a host. A number is none: it is a port, or an address that is not finished.
fn is_name(host: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_numeric = host.chars().all(|c| c.is_ascii_digit() || c == '.');
    host.len() <= MAX_NAME_BYTES && host.chars().all(is_plain) && !is_numeric
}

/// Whether it is the number of a port, alone.
fn is_port(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a scheme stands before the address, `tcp://192.0.2.1:860`.
fn has_scheme(text: &str) -> bool {
    text.contains("://")
}

fn wrong(text: &str) -> String {
    let advice = match text.matches(':').count() {
        _ if has_scheme(text) => "leave out what ends with ://, and write ADDR:PORT, such as 192.0.2.1:3260".into(),
        0 if is_port(text) => format!("write :{text} for this port at every address, or 127.0.0.1:{text}"),
        2.. if !text.contains('[') => "an IPv6 address with a port stands in brackets, such as [::1]:3260".into(),
        _ => "write ADDR:PORT, such as 192.0.2.1:3260, [::1]:3260 or *:3260".into(),
    };
    format!("{text:?} is not an address; {advice}")
}

/// An address that clients on this machine can connect to: the loopback address in place of "any address".
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_means_its_addresses() {
        for (text, expected) in [
            ("192.0.2.1:860", &["192.0.2.1:860"][..]),
            ("192.0.2.1", &["192.0.2.1:3260"]),
            ("192.0.2.1:0", &["192.0.2.1:0"]),
            ("0.0.0.0", &["0.0.0.0:3260"]),
            ("[2001:db8::1]:860", &["[2001:db8::1]:860"]),
            ("[2001:db8::1]", &["[2001:db8::1]:3260"]),
            ("2001:db8::1", &["[2001:db8::1]:3260"]),
            ("::", &["[::]:3260"]),
            ("[::]", &["[::]:3260"]),
            ("[fe80::1%1]:860", &["[fe80::1%1]:860"]),
            ("[fe80::1%lo]:860", &["[fe80::1%1]:860"]),
            ("fe80::1%lo", &["[fe80::1%1]:3260"]),
            ("*:860", &["0.0.0.0:860", "[::]:860"]),
            (":860", &["0.0.0.0:860", "[::]:860"]),
            ("*", &["0.0.0.0:3260", "[::]:3260"]),
        ] {
            let addresses: Vec<String> = resolve(text, 3260).unwrap().iter().map(SocketAddr::to_string).collect();
            assert_eq!(addresses, expected, "{text}");
        }
        let localhost = resolve("localhost:3260", 1).unwrap();
        assert!(
            !localhost.is_empty()
                && localhost.iter().all(|address| address.ip().is_loopback() && address.port() == 3260)
        );
    }

    #[test]
    fn what_is_no_address_is_told_with_a_remedy() {
        for (text, expected) in [
            ("", "is not an address"),
            ("3260", "write :3260 for this port"),
            ("192.0.2", "is not an address"),
            ("192.0.2.256:3260", "is not an address"),
            ("192.0.2.1:port", "\"port\" is no port"),
            ("192.0.2.1:65536", "\"65536\" is no port"),
            ("192.0.2.1:", "\"\" is no port"),
            ("::1:3260:x", "stands in brackets"),
            ("fe80::1%eth0:3260", "stands in brackets"),
            ("[::1", "is not an address"),
            ("[::1]3260", "is not an address"),
            ("[192.0.2.1]:3260", "is not an address"),
            ("[fe80::1%]:3260", "is not an address"),
            ("[fe80::1%no-such-zone]:3260", "has no address here"),
            ("no-such-host.invalid:3260", "has no address here"),
            ("a b:3260", "is not an address"),
            ("eth:lab0", "\"lab0\" is no port"),
            ("tcp://127.0.0.1:1", "leave out what ends with ://"),
            ("iscsi://127.0.0.1", "leave out what ends with ://"),
        ] {
            let error = resolve(text, 3260).unwrap_err().into_message();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn one_socket_has_one_address() {
        assert_eq!(one("*:80"), Ok("[::]:80".parse().unwrap()));
        assert_eq!(one("127.0.0.1:80"), Ok("127.0.0.1:80".parse().unwrap()));
        assert_eq!(one("[fe80::1%lo]:80"), Ok("[fe80::1%1]:80".parse().unwrap()));
        for (text, expected) in [
            ("127.0.0.1", "has no port; write ADDR:PORT"),
            ("10809", "write :10809 for this port at every address"),
            ("tcp://127.0.0.1:80", "leave out what ends with ://"),
        ] {
            let error = one(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
