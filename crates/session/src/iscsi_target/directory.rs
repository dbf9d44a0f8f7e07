//! What a connection may know of the targets behind its portal. A snapshot: a changed configuration makes a new one.

use std::net::SocketAddr;
use std::sync::Arc;

use lunette_pdu::text::{TextError, TextWriter};
use lunette_pdu::{LoginStatus, Tsih};

use super::sessions::AdmitRequest;
use crate::chap::Authentication;
use crate::keys::Offer;
use crate::limits::MAX_MOVED_ADDRESSES;

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
    /// Its iSCSI name, lower case.
    pub name: String,
    /// TargetAlias, for people.
    pub alias: Option<String>,
    /// How initiators prove themselves.
    pub authentication: Authentication,
    /// The initiator names that may see and use it; `None` admits all.
    pub initiators: Option<Vec<String>>,
    /// Where it can be reached.
    pub portals: Vec<Portal>,
    /// What it agrees to in a negotiation.
    pub offer: Offer,
    /// Where it is served instead, when it is not served here any more.
    pub moved: Option<Moved>,
}

/// Where a target has gone: logins are sent there (RFC 7143 section 11.13.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// TargetAddress values (RFC 7143 section 13.8): `host[:port][,portal-group-tag]`. At most [`MAX_MOVED_ADDRESSES`] are
    /// told.
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
    /// What carries its sessions. All portals of a group have the same.
    pub transport: Transport,
}

/// What carries PDUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// A stream of bytes, which is TCP.
    #[default]
    Stream,
    /// Datagrams: initiators that know streams alone are not told of such portals, and the other way round.
    Datagrams,
    /// Frames of an Ethernet. Such portals have no address that a TargetAddress can say, so initiators are not told of them: one that came
    /// through one uses it again (RFC 7143 appendix C).
    Frames,
}

impl Directory {
    /// The target of that name. Names are compared without regard to case, as their preparation (RFC 3722) folds it.
    pub fn find(&self, name: &str) -> Option<&Arc<TargetNode>> {
        self.targets.iter().find(|target| target.name.eq_ignore_ascii_case(name))
    }

    /// Looks again at a login that `older` has let pass: this directory took its place meanwhile. The request leads to the
    /// target as it is now.
    ///
    /// # Errors
    ///
    /// The status to refuse the login with: the target is gone, has moved (the next login learns where), does not admit the
    /// initiator any more, or wants other proofs than were given.
    pub fn recheck(&self, older: &Self, request: &mut AdmitRequest) -> Result<(), LoginStatus> {
        let still_proven = match &mut request.target {
            None => self.discovery.same_as(&older.discovery),
            Some(target) => {
                let now = self.find(&target.name).ok_or(LoginStatus::NOT_FOUND)?;
                if !now.admits(&request.initiator_name) {
                    return Err(LoginStatus::AUTHORIZATION_FAILURE);
                }
                if now.moved.is_some() && request.tsih == Tsih::NEW {
                    return Err(LoginStatus::SERVICE_UNAVAILABLE);
                }
                let before = std::mem::replace(target, Arc::clone(now));
                now.authentication.same_as(&before.authentication)
            }
        };
        if still_proven { Ok(()) } else { Err(LoginStatus::AUTHENTICATION_FAILURE) }
    }
}

impl TargetNode {
    /// The portals that an initiator is told of which has come through that portal group.
    pub(crate) fn portals_beside(&self, group: u16) -> impl Iterator<Item = &Portal> {
        let own = self.portals.iter().find(|portal| portal.group == group);
        let transport = own.map_or(Transport::default(), |portal| portal.transport);
        self.portals.iter().filter(move |portal| portal.transport == transport && transport != Transport::Frames)
    }

    /// Whether the initiator may see and use this target.
    pub fn admits(&self, initiator: &str) -> bool {
        let Some(list) = &self.initiators else { return true };
        list.iter().any(|name| name.eq_ignore_ascii_case(initiator))
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
