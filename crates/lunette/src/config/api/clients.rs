//! Clients of the API that prove themselves by certificates.

use lunette_api::{Grant, Role};
use lunette_tls::Peer;
use serde::Deserialize;

use crate::config::check_name;
use crate::config::hosts::{check_identity, check_plain_name};
use crate::text;

/// A client, and its rights.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Client {
    /// The name in the audit log.
    pub(crate) name: String,
    /// The identities of which a certificate proves one.
    pub(crate) certificates: Vec<String>,
    #[serde(deserialize_with = "text::read")]
    pub(crate) role: Role,
    /// The targets that it sees and changes. Without it, all.
    pub(crate) targets: Option<Vec<String>>,
}

impl Client {
    /// The rights of the first of these clients that a certificate is for.
    pub(crate) fn grant(clients: &[Self], peer: &Peer) -> Option<Grant> {
        let is_it = |client: &&Self| client.certificates.iter().any(|identity| peer.has(identity));
        let Self { name, role, targets, certificates: _ } = clients.iter().find(is_it)?.clone();
        Some(Grant { name, is_named: true, role, targets })
    }

    /// Checks clients of one API.
    pub(super) fn check_all(clients: &[Self]) -> Result<(), String> {
        for (index, client) in clients.iter().enumerate() {
            client.check().map_err(|why| format!("client {}: {why}", client.name))?;
            if clients[..index].iter().any(|other| other.name == client.name) {
                return Err(format!("client {}: the name is there twice", client.name));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        check_plain_name(&self.name)?;
        if self.certificates.is_empty() {
            return Err("certificates is empty; write names that its certificate has, such as \"CN=alice\"".into());
        }
        self.certificates.iter().try_for_each(|identity| check_identity(identity))?;
        match &self.targets {
            Some(targets) if targets.is_empty() => {
                Err("targets is empty; name some, or leave it out for all targets".into())
            }
            targets => targets.iter().flatten().try_for_each(|name| check_name(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use lunette_tls::Fingerprint;

    use super::*;

    fn client(name: &str, certificates: &[&str], role: Role) -> Client {
        let certificates = certificates.iter().map(|name| (*name).to_owned()).collect();
        Client { name: name.into(), certificates, role, targets: None }
    }

    fn peer(common_name: &str) -> Peer {
        let fingerprint = Fingerprint::of(common_name.as_bytes());
        let common_name = Some(common_name.into());
        Peer { common_name, dns_names: Vec::new(), uris: Vec::new(), fingerprint, not_after: 0 }
    }

    #[test]
    fn the_first_client_that_a_certificate_is_for_has_its_rights() {
        let digest = Fingerprint::of(b"bob").to_string();
        let clients = [
            client("alice", &["other", "CN=alice"], Role::Read),
            client("bob", &[&digest], Role::Operate),
            client("all", &["CN=alice", "CN=bob"], Role::Admin),
        ];
        let grant = |name| Client::grant(&clients, &peer(name)).map(|grant| (grant.name, grant.role));
        assert_eq!(grant("alice"), Some(("alice".into(), Role::Read)));
        assert_eq!(grant("bob"), Some(("bob".into(), Role::Operate)));
        assert_eq!(grant("eve"), None);
    }
}
