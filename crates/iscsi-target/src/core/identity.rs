//! The identities that certificates give to connections.

use std::sync::Arc;

use lunette_reactor::{ConnectionId, Context};
use lunette_tls::Peer;

use super::Core;

impl Core {
    /// Lets a connection that logs in know who its peer has proven to be. Nothing is known before its first bytes.
    pub(super) fn introduce(&mut self, cx: &Context<'_>, id: ConnectionId) {
        let Some(conn) = self.connections.get_mut(id) else { return };
        let Some(login) = conn.login.as_mut().filter(|_| conn.identities.is_empty()) else { return };
        if let Some(certificate) = cx.peer_certificate(id) {
            conn.identities = identities(certificate);
            login.set_identities(Arc::clone(&conn.identities));
        }
    }
}

/// The URIs and the DNS names in a certificate, then its fingerprint.
fn identities(certificate: &[u8]) -> Arc<[String]> {
    let Some(peer) = Peer::of(certificate) else { return Arc::default() };
    let fingerprint = peer.fingerprint.to_string();
    peer.uris.into_iter().chain(peer.dns_names).chain([fingerprint]).collect()
}
