//! The place that a connection comes from, and whom its transport has proven it to be.

use std::net::IpAddr;
use std::sync::Arc;

use crate::name::is_same_name;

/// The beginnings of iSCSI names (RFC 7143 section 4.2.7).
const NAME_TYPES: [&str; 3] = ["iqn.", "eui.", "naa."];

/// The origin of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The address of the peer.
    pub peer: IpAddr,
    /// The identities that the certificate of the peer has: the URIs and DNS names in it, then its fingerprint. None
    /// without a certificate, and before the handshake.
    pub identities: Arc<[String]>,
}

impl From<IpAddr> for Origin {
    /// An origin that has proven nothing.
    fn from(peer: IpAddr) -> Self {
        Self { peer, identities: Arc::default() }
    }
}

impl Origin {
    /// The identity that stands for the peer: a name rather than a fingerprint, which changes with each certificate.
    pub fn identity(&self) -> Option<&str> {
        self.identities.first().map(String::as_str)
    }

    /// Whether the peer has proven to be `name`.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.identities.iter().any(|identity| is_same_name(identity, name))
    }

    /// Whether the peer may call itself `initiator`.
    pub(crate) fn may_be(&self, initiator: &str) -> bool {
        let is_node = |name: &&String| {
            NAME_TYPES.iter().any(|kind| name.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)))
        };
        let mut nodes = self.identities.iter().filter(is_node).peekable();
        nodes.peek().is_none() || nodes.any(|name| is_same_name(name, initiator))
    }
}
