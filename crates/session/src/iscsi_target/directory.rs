//! The knowledge of a connection about the targets behind its portal. A snapshot: a changed configuration makes a new
//! one.

use std::net::SocketAddr;
use std::sync::Arc;

use lunette_pdu::LoginStatus;
use lunette_pdu::text::{TextError, TextWriter};

use super::hosts::{Host, host_of};
use super::origin::Origin;
use crate::chap::{Authentication, Secret};
use crate::keys::Offer;
use crate::limits::MAX_MOVED_ADDRESSES;
use crate::name::is_same_name;

/// The targets of a daemon.
#[derive(Debug, Default)]
pub struct Directory {
    /// All of them; names are unique.
    pub targets: Vec<Arc<TargetNode>>,
    /// The proof that a discovery session asks for.
    pub discovery: Authentication,
}

/// One iSCSI target node.
#[derive(Debug)]
pub struct TargetNode {
    /// The target's iSCSI name, lower case.
    pub name: String,
    /// TargetAlias, for people.
    pub alias: Option<String>,
    /// How initiators prove themselves whose host says nothing else.
    pub authentication: Authentication,
    /// The initiators that may see and use it, in the order in which they are looked through. Without any, no initiator
    /// may.
    pub hosts: Vec<Arc<Host>>,
    /// Where it can be reached.
    pub portals: Vec<Portal>,
    /// The target's offer in a negotiation.
    pub offer: Offer,
    /// Where it is served instead, when it is not served here any more.
    pub moved: Option<Moved>,
}

/// Where a target has gone: logins are sent there (RFC 7143 section 11.13.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// TargetAddress values (RFC 7143 section 13.8): `host[:port][,portal-group-tag]`. At most [`MAX_MOVED_ADDRESSES`]
    /// are told.
    pub addresses: Vec<String>,
    /// For good: initiators need not ask here again.
    pub permanent: bool,
}

/// A network portal and its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Portal {
    /// Address and port. An unspecified address stands for every address of the host.
    pub address: SocketAddr,
    /// Target portal group tag.
    pub group: u16,
    /// The transport of its sessions. All portals of a group have the same.
    pub transport: Transport,
}

/// The transport of PDUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// A stream of bytes, which is TCP.
    #[default]
    Stream,
    /// A stream within TLS: initiators that know plain streams alone are not told of such portals, and the other way
    /// round.
    Tls,
    /// Datagrams: initiators that know streams alone are not told of such portals, and the other way round.
    Datagrams,
    /// Frames of an Ethernet. Such portals have no address that a TargetAddress can say, so initiators are not told of
    /// them: one that came through one uses it again (RFC 7143 appendix C).
    Frames,
}

impl Directory {
    /// The target of that name. Names are compared without regard to case, as their preparation (RFC 3722) folds it.
    pub fn find(&self, name: &str) -> Option<&Arc<TargetNode>> {
        self.targets.iter().find(|target| is_same_name(&target.name, name))
    }

    /// Whether an initiator of any rule proves itself with this secret.
    pub(crate) fn is_proven_with(&self, secret: &Secret) -> bool {
        let of_hosts = |target: &Arc<TargetNode>| {
            target.hosts.iter().filter_map(|host| host.authentication.as_ref()).any(|rule| rule.is_proven_with(secret))
        };
        let of_target = |target: &Arc<TargetNode>| target.authentication.is_proven_with(secret) || of_hosts(target);
        self.discovery.is_proven_with(secret) || self.targets.iter().any(of_target)
    }
}

impl TargetNode {
    /// The portals that an initiator is told of which has come through that portal group.
    pub(crate) fn portals_beside(&self, group: u16) -> impl Iterator<Item = &Portal> {
        let own = self.portals.iter().find(|portal| portal.group == group);
        let transport = own.map_or(Transport::default(), |portal| portal.transport);
        self.portals.iter().filter(move |portal| portal.transport == transport && transport != Transport::Frames)
    }

    /// The host that an initiator belongs to; `None`: it may neither see nor use this target.
    pub fn host_of(&self, initiator: &str, origin: &Origin) -> Option<&Arc<Host>> {
        host_of(&self.hosts, initiator, origin)
    }

    /// The admission to a target, with the target.
    pub fn admit(self: &Arc<Self>, initiator: &str, origin: &Origin) -> Option<Admission> {
        let host = Arc::clone(self.host_of(initiator, origin)?);
        Some(Admission { target: Arc::clone(self), host })
    }

    /// Whether initiators of a host log in without CHAP.
    pub fn is_open(&self, host: &Host) -> bool {
        host.authentication.as_ref().unwrap_or(&self.authentication).lets_in(None)
    }

    /// Whether an initiator of any host could log in that proved to be `user`, or was asked for no proof.
    pub(crate) fn lets_in(&self, user: Option<&str>) -> bool {
        let policy = |host: &Arc<Host>| host.authentication.as_ref().unwrap_or(&self.authentication).lets_in(user);
        self.hosts.iter().any(policy)
    }
}

/// A target, and the host as which it lets an initiator in.
#[derive(Debug, Clone)]
pub struct Admission {
    /// The target.
    pub target: Arc<TargetNode>,
    /// The host of the target that fits.
    pub host: Arc<Host>,
}

impl Admission {
    /// How the initiator proves itself.
    pub fn authentication(&self) -> &Authentication {
        self.host.authentication.as_ref().unwrap_or(&self.target.authentication)
    }
}

impl Moved {
    /// The status of a login that is sent elsewhere.
    pub(crate) fn status(&self) -> LoginStatus {
        if self.permanent { LoginStatus::TARGET_MOVED_PERMANENTLY } else { LoginStatus::TARGET_MOVED_TEMPORARILY }
    }

    /// The keys that say where.
    pub(crate) fn keys(&self) -> Result<Vec<u8>, TextError> {
        let mut list = TextWriter::new();
        for address in self.addresses.iter().take(MAX_MOVED_ADDRESSES) {
            list.push("TargetAddress", address)?;
        }
        Ok(list.as_bytes().to_vec())
    }
}
