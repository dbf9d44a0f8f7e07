//! The place that a connection comes from, and whom its transport has proven it to be.

use std::net::IpAddr;
use std::sync::Arc;

use crate::name::is_same_name;

/// The beginnings of iSCSI names (RFC 7143 section 4.2.7).
const NAME_TYPES: [&str; 3] = ["iqn.", "eui.", "naa."];

/// The beginnings of identities that are compared byte for byte.
const EXACT: [&str; 2] = ["CN=", "sha256:"];

/// The origin of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The address of the peer.
    pub peer: IpAddr,
    /// The identities that the certificate of the peer has: the URIs, the DNS names and the common name in it, then its
    /// fingerprint. None without a certificate, and before the handshake.
    pub identities: Arc<[String]>,
}

impl From<IpAddr> for Origin {
    /// An origin that has proven nothing.
    fn from(peer: IpAddr) -> Self {
        Self { peer, identities: Arc::default() }
    }
}

impl Origin {
    /// The first identity, by which people know the peer.
    pub fn identity(&self) -> Option<&str> {
        self.identities.first().map(String::as_str)
    }

    /// The names of the peer: all of its identities but the fingerprint, which is another one in each certificate. A
    /// certificate without names has its fingerprint alone.
    pub fn names(&self) -> &[String] {
        match self.identities.split_last() {
            Some((_, names @ [_, ..])) => names,
            _ => &self.identities,
        }
    }

    /// Whether the peer has proven to be `name`.
    pub(crate) fn is(&self, name: &str) -> bool {
        // Common names have case, and digits are written in one way.
        let is_exact = EXACT.iter().any(|kind| name.starts_with(kind));
        self.identities.iter().any(|identity| if is_exact { identity == name } else { is_same_name(identity, name) })
    }

    /// Whether the peer may call itself `initiator`.
    pub(crate) fn may_be(&self, initiator: &str) -> bool {
        let mut nodes = self.identities.iter().filter(|name| is_node_name(name)).peekable();
        nodes.peek().is_none() || nodes.any(|name| is_same_name(name, initiator))
    }
}

/// Whether an identity is the name of an iSCSI node.
pub fn is_node_name(identity: &str) -> bool {
    NAME_TYPES.iter().any(|kind| identity.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)))
}
