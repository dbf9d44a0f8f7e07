//! HTTPS: servers that ask clients for a certificate and look at it again with each request, and their clients.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ServerConfig};

use crate::folder::{AUTHORITY_CERTIFICATE, REVOKED, Side};
use crate::{Clients, Identity, Peer, TlsError, provider, read_revoked, roots};

/// The protocol in the negotiation of the protocol (ALPN, RFC 7301).
const HTTP_1_1: &[u8] = b"http/1.1";

/// The clients of a server that have certificates.
#[derive(Clone)]
pub struct WebClients(Arc<dyn ClientCertVerifier>);

impl WebClients {
    /// The client that has shown these certificates, its own first. `None` when they do not count now: they are of no
    /// authority, were revoked or have ended. A connection may be older than that.
    pub fn peer(&self, shown: &[CertificateDer<'_>]) -> Option<Peer> {
        let (own, others) = shown.split_first()?;
        self.0.verify_client_cert(own, others, UnixTime::now()).ok()?;
        Peer::of(own)
    }
}

/// The configuration of a server. With `clients` each client is asked for a certificate, which it need not have.
///
/// # Errors
///
/// When a file cannot be read, or the files do not fit together.
pub fn web_server(
    own: Identity<'_>,
    clients: Option<Clients<'_>>,
) -> Result<(ServerConfig, Option<WebClients>), TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(TlsError::Provider)?;
    let (builder, clients) = match clients {
        None => (builder.with_no_client_auth(), None),
        Some(Clients { authorities, revoked }) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authorities)?), provider());
            let verifier = verifier.with_crls(read_revoked(revoked)?).allow_unauthenticated().build();
            let verifier = verifier.map_err(|error| TlsError::at(authorities, error))?;
            (builder.with_client_cert_verifier(Arc::clone(&verifier)), Some(WebClients(verifier)))
        }
    };
    let (chain, key) = own.read()?;
    let mut config = builder.with_single_cert(chain, key).map_err(|error| own.unusable(&error))?;
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    Ok((config, clients))
}

/// The configuration of a client by the files in a folder: `ca-cert.pem`, and `client-cert.pem` with `client-key.pem`
/// when the client has a certificate. The list of revoked certificates, `ca-crl.pem`, is optional. The second value
/// says whether the client has a certificate.
///
/// # Errors
///
/// When a file cannot be read, or the files do not fit together.
pub fn web_client(folder: &Path) -> Result<(ClientConfig, bool), TlsError> {
    let [authorities, revoked, certificates, key] =
        [AUTHORITY_CERTIFICATE, REVOKED, Side::Client.certificate(), Side::Client.key()].map(|name| folder.join(name));
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(&authorities)?), provider());
    let verifier = verifier.with_crls(read_revoked(&revoked)?).build();
    let verifier = verifier.map_err(|error| TlsError::at(&authorities, error))?;
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(TlsError::Provider)?.with_webpki_verifier(verifier);
    let has_certificate = [&certificates, &key].into_iter().any(|file| file.symlink_metadata().is_ok());
    if !has_certificate {
        return Ok((builder.with_no_client_auth(), false));
    }
    let own = Identity { certificates: &certificates, key: &key };
    let (chain, key) = own.read()?;
    let config = builder.with_client_auth_cert(chain, key).map_err(|error| own.unusable(&error))?;
    Ok((config, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::{Authority, Identities};
    use crate::{certificates, folder};

    const DAY: i64 = 24 * 3600;

    fn now() -> i64 {
        UnixTime::now().as_secs().cast_signed()
    }

    fn client(name: &str) -> Identities {
        Identities { dns_names: vec![format!("{name}.example.org")], ..Identities::default() }
    }

    /// The clients of the server in this folder.
    fn clients(server: &Path) -> WebClients {
        let [authorities, revoked] = [folder::AUTHORITY_CERTIFICATE, folder::REVOKED].map(|name| server.join(name));
        let [certificates, key] = [Side::Server.certificate(), Side::Server.key()].map(|name| server.join(name));
        let clients = Clients { authorities: &authorities, revoked: &revoked };
        web_server(Identity { certificates: &certificates, key: &key }, Some(clients)).unwrap().1.unwrap()
    }

    fn shown(folder: &Path, side: Side) -> Vec<CertificateDer<'static>> {
        certificates(&folder.join(side.certificate())).unwrap()
    }

    #[test]
    fn a_client_counts_until_its_certificate_is_revoked_or_ends() {
        let place = tempfile::tempdir().unwrap();
        let mut authority = Authority::create(&place.path().join("ca"), "Test", now() - 9 * DAY).unwrap();
        let names = Identities::server(&["localhost".to_owned()]);
        let server = authority.issue("gw1", &names, now(), now() + DAY).unwrap();
        let good = shown(&authority.issue("db1", &client("db1"), now(), now() + DAY).unwrap(), Side::Client);
        let ended =
            shown(&authority.issue("db2", &client("db2"), now() - 3 * DAY, now() - 2 * DAY).unwrap(), Side::Client);
        let mut stranger = Authority::create(&place.path().join("other"), "Test", now()).unwrap();
        let strange = shown(&stranger.issue("db1", &client("db1"), now(), now() + DAY).unwrap(), Side::Client);

        let before = clients(&server);
        assert_eq!(before.peer(&good).unwrap().dns_names, ["db1.example.org"]);
        let of_server = shown(&server, Side::Server);
        for (what, shown) in [("none", &[][..]), ("ended", &ended), ("strange", &strange), ("a server's", &of_server)] {
            assert_eq!(before.peer(shown), None, "{what}");
        }
        authority.revoke("db1", now()).unwrap();
        assert_eq!(clients(&server).peer(&good), None, "revoked");
        assert!(before.peer(&good).is_some(), "by the list from before");
    }

    #[test]
    fn a_client_has_a_certificate_or_none() {
        let place = tempfile::tempdir().unwrap();
        let ca = place.path().join("ca");
        assert!(web_client(&ca).err().unwrap().to_string().contains("ca-cert.pem"));
        let mut authority = Authority::create(&ca, "Test", now()).unwrap();
        assert!(!web_client(&ca).unwrap().1);
        let folder = authority.issue("db1", &client("db1"), now(), now() + DAY).unwrap();
        assert!(web_client(&folder).unwrap().1);
        std::fs::remove_file(folder.join(Side::Client.key())).unwrap();
        assert!(web_client(&folder).err().unwrap().to_string().contains("client-key.pem"), "half of it is a mistake");
    }
}
