//! The identities that certificates give to connections.

use std::sync::Arc;

use lunette_reactor::{ConnectionId, Context};
use lunette_session::folded_name;
use lunette_session::iscsi_target::is_node_name;
use lunette_tls::Peer;

use super::Core;

impl Core {
    /// Lets a connection that logs in know who its peer has proven to be. Nothing is known before its first bytes. A
    /// peer whose certificate has ended is let go: one that resumes a session has not shown it again.
    pub(super) fn introduce(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        let Some(conn) = self.connections.get_mut(id) else { return };
        if conn.login.is_none() || !conn.identities.is_empty() {
            return;
        }
        let Some(peer) = cx.peer_certificate(id).and_then(|certificate| Peer::of(certificate)) else { return };
        if peer.has_ended() {
            tracing::warn!(peer = %conn.peer, certificate = %peer.fingerprint, "connection refused: its certificate has ended");
            return self.close_now(cx, id);
        }
        self.introduce_as(id, peer);
    }

    /// Lets a connection know who its peer has proven to be elsewhere.
    pub(super) fn introduce_as(&mut self, id: ConnectionId, peer: Peer) {
        let Some(conn) = self.connections.get_mut(id) else { return };
        conn.identities = identities(peer);
        if let Some(login) = &mut conn.login {
            login.set_identities(Arc::clone(&conn.identities));
        }
    }
}

/// The URIs, the DNS names and the common name in a certificate, then its fingerprint. Names that would pass for
/// another kind are left out.
pub(super) fn identities(peer: Peer) -> Arc<[String]> {
    let fingerprint = peer.fingerprint.to_string();
    let dns_names = peer.dns_names.into_iter().filter(|name| !is_node_name(name));
    let common_name = peer.common_name.map(|name| format!("CN={name}"));
    let deceives = |name: &String| {
        let folded = folded_name(name);
        folded.starts_with("sha256:") || folded.starts_with("cn=")
    };
    let names = peer.uris.into_iter().chain(dns_names).filter(|name| !deceives(name));
    names.chain(common_name).chain([fingerprint]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uris: &[&str], dns_names: &[&str]) -> Peer {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (uris, dns_names, common_name) = (owned(uris), owned(dns_names), Some("db1".to_owned()));
        Peer { common_name, dns_names, uris, fingerprint: lunette_tls::Fingerprint::of(b""), not_after: 0 }
    }

    #[test]
    fn names_that_pass_for_another_kind_are_left_out() {
        let uris = ["iqn.2026-11.org.example:db1", "sha256:00", "SHA256:00", "CN=root", "cn=root"];
        let peer = peer(&uris, &["db1.example", "iqn.example"]);
        let all = identities(peer);
        assert_eq!(all[..3], ["iqn.2026-11.org.example:db1", "db1.example", "CN=db1"]);
        assert_eq!((all.len(), &all[3][..7]), (4, "sha256:"));
    }

    #[test]
    fn a_certificate_ends_at_its_end() {
        assert!(peer(&[], &[]).has_ended());
        assert!(!Peer { not_after: i64::MAX, ..peer(&[], &[]) }.has_ended());
    }
}
