//! Addresses of portals, as LIO writes them and as the API does.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use lunette_api::objects::Document;

use crate::failure::Failure;

/// The port of iSCSI (RFC 7143 section 15).
pub(crate) const DEFAULT_PORT: u16 = 3260;

/// The name of a portal in the API.
pub(crate) fn address(ip: &str, port: u16) -> Result<String, Failure> {
    let parsed: Result<IpAddr, _> = ip.trim_matches(['[', ']']).parse();
    let ip = parsed.map_err(|_| Failure::new("Could not create NetworkPortal in configFS"))?;
    Ok(SocketAddr::new(ip, port).to_string())
}

/// The address, in brackets for IPv6, and the port of a portal.
pub(crate) fn split(name: &str) -> Option<(&str, u16)> {
    let (ip, port) = name.rsplit_once(':')?;
    Some((ip, port.parse().ok()?))
}

/// Adds a portal, unless one listens at all addresses with this port already.
pub(crate) fn add(portals: &mut BTreeMap<String, Document>, address: &str) {
    if !is_covered(portals, address) {
        portals.insert(address.into(), Document::new());
    }
}

/// Whether a portal listens at this address, alone or among all.
pub(crate) fn is_covered(portals: &BTreeMap<String, Document>, address: &str) -> bool {
    let Ok(wanted) = address.parse::<SocketAddr>() else { return portals.contains_key(address) };
    portals.keys().filter_map(|name| name.parse::<SocketAddr>().ok()).any(|known| {
        let is_for_all = known.ip().is_unspecified() && known.is_ipv4() == wanted.is_ipv4();
        known.port() == wanted.port() && (known.ip() == wanted.ip() || is_for_all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portal_for_all_addresses_covers_each() {
        let portals = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), Document::new())).collect();
        for (known, wanted, expected) in [
            (&["0.0.0.0:3260"][..], "192.0.2.1:3260", true),
            (&["0.0.0.0:3260"], "192.0.2.1:860", false),
            (&["0.0.0.0:3260"], "[::]:3260", false),
            (&["192.0.2.1:3260"], "0.0.0.0:3260", false),
            (&["192.0.2.1:3260"], "192.0.2.1:3260", true),
            (&[], "192.0.2.1:3260", false),
        ] {
            assert_eq!(is_covered(&portals(known), wanted), expected, "{known:?} {wanted}");
        }
    }

    #[test]
    fn addresses_have_one_form() {
        assert_eq!(address("::0", 3260).as_deref(), Ok("[::]:3260"));
        assert_eq!(address("[::0]", 860).as_deref(), Ok("[::]:860"));
        assert_eq!(address("192.0.2.1", 3260).as_deref(), Ok("192.0.2.1:3260"));
        assert!(address("host", 3260).is_err());
        assert_eq!(split("[::]:3260"), Some(("[::]", 3260)));
    }
}
