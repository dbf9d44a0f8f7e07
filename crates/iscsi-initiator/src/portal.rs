//! Portals of targets, as text.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use lunette_reactor::Mac;

use crate::limits::MAX_HOST_BYTES;

/// The TCP port of iSCSI (RFC 7143 section 15).
pub const DEFAULT_PORT: u16 = 3260;

/// A network portal of a target: host and TCP or UDP port, or a station on an Ethernet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Portal {
    /// The host's name or address; IPv6 without brackets. Of a station on an Ethernet our interface and its MAC
    /// address, `eth0/02:00:00:00:00:01`.
    pub host: String,
    /// The port; 0 for a station on an Ethernet.
    pub port: u16,
}

/// The port of portals on an Ethernet.
const NO_PORT: u16 = 0;

/// Why an address cannot be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadAddress {
    /// The host is empty.
    #[error("it has no host")]
    NoHost,
    /// The host is neither a name nor an address.
    #[error("its host is neither a domain name nor an address")]
    Host,
    /// An IPv6 address without brackets.
    #[error("an IPv6 address stands in brackets, as in [2001:db8::1]:3260")]
    Bare,
    /// The bracket is not closed, or does not hold an IPv6 address.
    #[error("there is no IPv6 address in its brackets")]
    Brackets,
    /// The host is the unspecified address, 0.0.0.0 or `[::]`.
    #[error("its host is the unspecified address, which belongs to no host")]
    Unspecified,
    /// The port is no number from 1 to 65535.
    #[error("its port is no number from 1 to 65535")]
    Port,
    /// The address is that of the portal that redirects to it.
    #[error("it is the portal that redirects")]
    Itself,
}

impl Portal {
    /// Parses `host`, `host:port`, `[v6]` or `[v6]:port`; without a port, it is [`DEFAULT_PORT`]. A portal group tag
    /// after a comma, as in TargetAddress (RFC 7143 section 13.8), is ignored.
    ///
    /// # Errors
    ///
    /// [`BadAddress`] says what is wrong with `text`.
    pub fn parse(text: &str) -> Result<Self, BadAddress> {
        let text = text.split_once(',').map_or(text, |(portal, _)| portal);
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or(BadAddress::Brackets)?;
            let port = rest.strip_prefix(':').or(rest.is_empty().then_some(""));
            (check_bracketed(host)?, port.ok_or(BadAddress::Brackets)?)
        } else {
            if text.parse::<Ipv6Addr>().is_ok() {
                return Err(BadAddress::Bare);
            }
            let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
            (check_host(host)?, port)
        };
        let address = host.split('%').next().unwrap_or_default();
        if address.parse().is_ok_and(|address: IpAddr| address.is_unspecified()) {
            return Err(BadAddress::Unspecified);
        }
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = match port.parse() {
            _ if port.is_empty() => DEFAULT_PORT,
            Ok(port) if is_number && port > 0 => port,
            _ => return Err(BadAddress::Port),
        };
        Ok(Self { host: host.into(), port })
    }

    /// The portal of an address that the target behind `from` has told. A zone is known on this machine alone, so a
    /// link-local address has that of the portal that told it.
    ///
    /// # Errors
    ///
    /// [`BadAddress`], as [`parse`](Self::parse).
    pub fn told(text: &str, from: &Self) -> Result<Self, BadAddress> {
        let portal = Self::parse(text)?;
        let is_local = portal.host.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local());
        match from.host.split_once('%') {
            Some((_, zone)) if is_local => Ok(Self { host: format!("{}%{zone}", portal.host), ..portal }),
            _ => Ok(portal),
        }
    }

    /// A station that our interface reaches.
    pub fn on_ethernet(interface: &str, station: Mac) -> Self {
        Self { host: format!("{interface}/{station}"), port: NO_PORT }
    }

    /// The interface and the station, if it is one on an Ethernet.
    pub(crate) fn station(&self) -> Option<(&str, Mac)> {
        let (interface, mac) = self.host.split_once('/').filter(|_| self.port == NO_PORT)?;
        Some((interface, mac.parse().ok()?))
    }
}

/// Checks an IPv6 address, which may name its zone (`fe80::1%eth0`).
pub(crate) fn check_bracketed(host: &str) -> Result<&str, BadAddress> {
    let (address, zone) = host.split_once('%').unwrap_or((host, "0"));
    let is_plain = !zone.is_empty() && zone.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    if address.parse::<Ipv6Addr>().is_ok() && is_plain { Ok(host) } else { Err(BadAddress::Brackets) }
}

fn check_host(host: &str) -> Result<&str, BadAddress> {
    let is_plain = host.chars().all(|c| c.is_alphanumeric() || "-._".contains(c));
    match host {
        "" => Err(BadAddress::NoHost),
        _ if is_plain && host.len() <= MAX_HOST_BYTES => Ok(host),
        _ => Err(BadAddress::Host),
    }
}

impl fmt::Display for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.port == NO_PORT {
            f.write_str(&self.host)
        } else if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portals_are_read_as_people_and_targets_write_them() {
        for (text, host, port) in [
            ("disks.example", "disks.example", 3260),
            ("192.0.2.1:860", "192.0.2.1", 860),
            ("[2001:db8::1]", "2001:db8::1", 3260),
            ("[2001:db8::1]:3261,7", "2001:db8::1", 3261),
            ("192.0.2.1:860,1", "192.0.2.1", 860),
        ] {
            let portal = Portal::parse(text).unwrap();
            assert_eq!((portal.host.as_str(), portal.port), (host, port), "{text}");
            assert_eq!(Portal::parse(&portal.to_string()), Ok(portal));
        }
        assert_eq!(Portal::parse("[fe80::1%eth0]:3260").unwrap().host, "fe80::1%eth0");
    }

    #[test]
    fn a_link_local_address_that_was_told_is_in_the_zone_of_its_teller() {
        for (from, told, expected) in [
            ("[fe80::9%eth0]:1", "[fe80::1]:3260,1", "[fe80::1%eth0]:3260"),
            ("[fe80::9%7]", "fe80--1.example:3260,1", "fe80--1.example:3260"),
            ("[fe80::9%eth0]", "[2001:db8::1]", "[2001:db8::1]:3260"),
            ("[fe80::9%eth0]", "[fe80::1%eth1]", "[fe80::1%eth1]:3260"),
            ("[2001:db8::9]", "[fe80::1]", "[fe80::1]:3260"),
        ] {
            let portal = Portal::told(told, &Portal::parse(from).unwrap()).unwrap();
            assert_eq!(portal.to_string(), expected, "{told} from {from}");
        }
    }

    #[test]
    fn what_cannot_be_connected_to_is_no_portal() {
        let long = "x".repeat(256);
        for (text, why) in [
            ("", BadAddress::NoHost),
            (":3260", BadAddress::NoHost),
            (",1", BadAddress::NoHost),
            ("host:port", BadAddress::Port),
            ("host:65536", BadAddress::Port),
            ("host:0", BadAddress::Port),
            ("host:-1", BadAddress::Port),
            ("host:+1", BadAddress::Port),
            ("192.0.2.1:0,1", BadAddress::Port),
            ("[::1", BadAddress::Brackets),
            ("[::1]x", BadAddress::Brackets),
            ("[]:3260", BadAddress::Brackets),
            ("[host]:3260", BadAddress::Brackets),
            ("[::1%a b]", BadAddress::Brackets),
            ("2001:db8::1", BadAddress::Bare),
            ("a b:3260", BadAddress::Host),
            ("iscsi://host", BadAddress::Port),
            ("iscsi://host:3260", BadAddress::Host),
            ("host\u{202e}", BadAddress::Host),
            ("../etc", BadAddress::Host),
            (&long, BadAddress::Host),
            ("0.0.0.0:3260", BadAddress::Unspecified),
            ("[::]:3260", BadAddress::Unspecified),
            ("[::%eth0]", BadAddress::Unspecified),
            ("[fe80::1%]", BadAddress::Brackets),
        ] {
            assert_eq!(Portal::parse(text), Err(why), "{text}");
        }
    }
}
