//! Hosts: the initiators that a target admits, and how they prove themselves.

use std::sync::Arc;

use ipnet::IpNet;

use super::origin::Origin;
use crate::chap::Authentication;
use crate::name::is_same_name;

/// Initiators that a target admits under the same rules.
///
/// A session belongs to one host of its target ([`TargetNode::host_of`](super::TargetNode::host_of)).
#[derive(Debug, Clone)]
pub struct Host {
    /// The host's name, unique within the target.
    pub name: Arc<str>,
    /// The iSCSI names of its initiators; `None`: any.
    pub initiators: Option<Vec<String>>,
    /// The networks that its connections come from; `None`: any.
    pub networks: Option<Vec<IpNet>>,
    /// The identities of which one is proven by a certificate: as [`Origin::identities`] has them; `None`: no
    /// certificate is asked for.
    pub certificates: Option<Vec<String>>,
    /// How its initiators prove themselves; `None`: as the target says.
    pub authentication: Option<Authentication>,
    /// Whether it is a template: each of its initiators gets a host of its own, for which its first login waits.
    pub is_template: bool,
}

impl Host {
    /// The host that all initiators belong to.
    pub fn everyone() -> Self {
        Self::of_initiators(None)
    }

    /// The host of these initiators, wherever they are.
    pub fn of_initiators(initiators: Option<Vec<String>>) -> Self {
        Self {
            name: "".into(),
            initiators,
            networks: None,
            certificates: None,
            authentication: None,
            is_template: false,
        }
    }

    /// Whether an initiator of this name, on a connection of this origin, belongs to the host. Names are compared
    /// without regard to case, as their preparation (RFC 3722) folds it. An IPv4 address within an IPv6 one counts as
    /// IPv4.
    fn fits(&self, initiator: &str, origin: &Origin) -> bool {
        let peer = origin.peer.to_canonical();
        (self.initiators.is_none() || self.lists(initiator))
            && self.certificates.as_ref().is_none_or(|names| names.iter().any(|name| origin.is(name)))
            && self.networks.as_ref().is_none_or(|networks| networks.iter().any(|network| network.contains(&peer)))
    }

    fn lists(&self, initiator: &str) -> bool {
        self.initiators.iter().flatten().any(|name| is_same_name(name, initiator))
    }

    /// Whether the name is listed, or a certificate with it is asked for.
    fn names(&self, initiator: &str) -> bool {
        let of_certificates = || self.certificates.iter().flatten().any(|name| is_same_name(name, initiator));
        self.lists(initiator) || of_certificates()
    }
}

/// The host that an initiator of this name, on a connection of this origin, belongs to: the first that fits. A name
/// that a host lists belongs to such hosts alone, so a host of all names takes in none that pretends to be of another.
/// A certificate that names iSCSI nodes speaks for these alone.
pub fn host_of<'a>(hosts: &'a [Arc<Host>], initiator: &str, origin: &Origin) -> Option<&'a Arc<Host>> {
    if !origin.may_be(initiator) {
        return None;
    }
    let is_listed = hosts.iter().any(|host| host.names(initiator));
    hosts.iter().find(|host| host.fits(initiator, origin) && (host.names(initiator) || !is_listed))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn from(peer: &str) -> Origin {
        peer.parse::<IpAddr>().unwrap().into()
    }

    fn host(initiators: Option<&[&str]>, networks: Option<&[&str]>) -> Host {
        Host {
            initiators: initiators.map(|names| names.iter().map(|name| (*name).into()).collect()),
            networks: networks.map(|networks| networks.iter().map(|network| network.parse().unwrap()).collect()),
            ..Host::everyone()
        }
    }

    #[test]
    fn the_first_host_that_fits_is_taken_and_a_listed_name_belongs_to_its_host_alone() {
        let named = |name: &str, host: Host| Arc::new(Host { name: name.into(), ..host });
        let hosts = [
            named("lab", host(None, Some(&["192.0.2.0/24"]))),
            named("db", host(Some(&["iqn.db"]), Some(&["198.51.100.0/24"]))),
            named("rest", host(None, None)),
        ];
        let found = |initiator, peer: &str| host_of(&hosts, initiator, &from(peer)).map(|host| &*host.name);
        assert_eq!(found("iqn.a", "192.0.2.1"), Some("lab"));
        assert_eq!(found("iqn.a", "203.0.113.1"), Some("rest"));
        assert_eq!(found("iqn.db", "198.51.100.1"), Some("db"));
        assert_eq!(found("IQN.DB", "192.0.2.1"), None);
        assert_eq!(host_of(&[], "iqn.a", &from("192.0.2.1")).map(|host| &*host.name), None);
    }

    #[test]
    fn a_host_is_told_by_name_and_network_together() {
        let near: IpAddr = "192.0.2.77".parse().unwrap();
        let mapped: IpAddr = "::ffff:192.0.2.77".parse().unwrap();
        let far: IpAddr = "198.51.100.1".parse().unwrap();
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        for (host, initiator, peer, fits) in [
            (host(None, None), "iqn.a", far, true),
            (host(Some(&["iqn.a", "iqn.b"]), None), "iqn.B", far, true),
            (host(Some(&["iqn.a"]), None), "iqn.ab", near, false),
            (host(Some(&[]), None), "iqn.a", near, false),
            (host(None, Some(&["192.0.2.0/24"])), "iqn.a", near, true),
            (host(None, Some(&["192.0.2.0/24"])), "iqn.a", mapped, true),
            (host(None, Some(&["192.0.2.0/24"])), "iqn.a", far, false),
            (host(None, Some(&["192.0.2.0/24", "2001:db8::/32"])), "iqn.a", v6, true),
            (host(None, Some(&["0.0.0.0/0"])), "iqn.a", v6, false),
            (host(None, Some(&[])), "iqn.a", near, false),
            (host(Some(&["iqn.a"]), Some(&["192.0.2.77/32"])), "iqn.a", near, true),
            (host(Some(&["iqn.a"]), Some(&["192.0.2.77/32"])), "iqn.b", near, false),
            (host(Some(&["iqn.a"]), Some(&["192.0.2.76/32"])), "iqn.a", near, false),
        ] {
            assert_eq!(host.fits(initiator, &peer.into()), fits, "{host:?}, {initiator} from {peer}");
        }
    }
    #[test]
    fn a_host_may_ask_for_a_certificate_which_speaks_for_the_nodes_that_it_names() {
        let certificates = Some(["db.example", "sha256:ab", "iqn.own"].map(str::to_owned).to_vec());
        let hosts = [
            Arc::new(Host { name: "db".into(), certificates, ..Host::everyone() }),
            Arc::new(Host { name: "rest".into(), ..Host::everyone() }),
        ];
        for (identities, initiator, expected) in [
            (&[][..], "iqn.a", Some("rest")),
            (&["DB.example"], "iqn.a", Some("db")),
            (&["web.example", "sha256:ab"], "iqn.a", Some("db")),
            (&["web.example", "SHA256:ab"], "iqn.a", Some("rest")),
            (&["web.example"], "iqn.a", Some("rest")),
            (&["iqn.a", "db.example"], "IQN.A", Some("db")),
            (&["iqn.b", "db.example"], "iqn.a", None),
            // The name of a node whose certificate is asked for is no other's.
            (&[], "iqn.own", None),
            (&["web.example"], "iqn.own", None),
            (&["iqn.own"], "iqn.own", Some("db")),
        ] {
            let identities = identities.iter().map(|name| (*name).to_owned()).collect();
            let origin = Origin { identities, ..from("192.0.2.1") };
            let found = host_of(&hosts, initiator, &origin).map(|host| &*host.name);
            assert_eq!(found, expected, "{initiator} as {origin:?}");
        }
    }
}
