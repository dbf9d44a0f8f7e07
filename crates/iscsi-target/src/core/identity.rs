//! The identities that certificates give to connections.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::is_node_name;
use lunette_tls::Peer;

use super::Core;

impl Core {
    /// Lets a connection that logs in know who its peer has proven to be. Nothing is known before its first bytes. A
    /// peer whose certificate has ended is let go: one that resumes a session has not shown it again.
    pub(super) fn introduce(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        let Some(conn) = self.connections.get_mut(id) else { return };
        let Some(login) = conn.login.as_mut().filter(|_| conn.identities.is_empty()) else { return };
        let Some(peer) = cx.peer_certificate(id).and_then(|certificate| Peer::of(certificate)) else { return };
        if has_ended(&peer) {
            tracing::warn!(peer = %conn.peer, certificate = %peer.fingerprint, "connection refused: its certificate has ended");
            return self.close_now(cx, id);
        }
        conn.identities = identities(peer);
        login.set_identities(Arc::clone(&conn.identities));
    }
}

fn has_ended(peer: &Peer) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    peer.not_after < i64::try_from(now).unwrap_or(i64::MAX)
}

/// The URIs, the DNS names and the common name in a certificate, then its fingerprint. Names that would pass for
/// another kind are left out.
fn identities(peer: Peer) -> Arc<[String]> {
    let fingerprint = peer.fingerprint.to_string();
    let dns_names = peer.dns_names.into_iter().filter(|name| !is_node_name(name));
    let common_name = peer.common_name.map(|name| format!("CN={name}"));
    let names =
        peer.uris.into_iter().chain(dns_names).filter(|name| !name.contains("sha256:") && !name.starts_with("CN="));
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
        let peer = peer(&["iqn.2026-11.org.example:db1", "sha256:00", "CN=root"], &["db1.example", "iqn.example"]);
        let all = identities(peer);
        assert_eq!(all[..3], ["iqn.2026-11.org.example:db1", "db1.example", "CN=db1"]);
        assert_eq!((all.len(), &all[3][..7]), (4, "sha256:"));
    }

    #[test]
    fn a_certificate_ends_at_its_end() {
        assert!(has_ended(&peer(&[], &[])));
        assert!(!has_ended(&Peer { not_after: i64::MAX, ..peer(&[], &[]) }));
    }
}
