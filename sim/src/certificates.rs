//! The certificates of a run within TLS: what the target and its initiators prove themselves with.
//!
//! They follow from the dice, as the rest of a run does. The secrets of a handshake do not: they are drawn by the
//! cryptography itself. All lengths are the same, and no more of them is to be seen in a run.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use lunette_initiator::ClientTls;
use lunette_target::PortalTls;
use lunette_tls::{Clients, ISCSI, Identity, stream_server};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, PKCS_ED25519, SerialNumber};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tempfile::TempDir;

/// The name of the target, and the address by which it is dialled.
pub(crate) const TARGET_ADDRESS: &str = "192.0.2.7";

/// The certificate of both sides, which is its own authority. The names of its files are those of a client's folder.
const CERTIFICATE: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";
const AUTHORITY: &str = "ca-cert.pem";

/// The bytes in front of a key of Ed25519 in PKCS #8 (RFC 8410 section 7).
const KEY_HEADER: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// A folder with them, which goes with the run.
pub(crate) struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes the certificates of a run. `seed` is the private key. `clients_prove_themselves`: the initiators have one,
    /// too.
    ///
    /// # Errors
    ///
    /// When the system has no place for the files.
    pub(crate) fn new(seed: [u8; 32], clients_prove_themselves: bool) -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        // Other signatures are not all of one length.
        let key = PrivatePkcs8KeyDer::from([KEY_HEADER, &seed].concat());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519)?;
        let mut parameters = CertificateParams::new(vec![TARGET_ADDRESS.to_owned()])?;
        parameters.serial_number = Some(SerialNumber::from(1));
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = parameters.self_signed(&key)?.pem();
        let certificates = Self { folder };
        fs::write(certificates.path(AUTHORITY), &certificate)?;
        let [server, server_key] = certificates.server();
        fs::write(server, &certificate)?;
        fs::write(&server_key, key.serialize_pem())?;
        fs::set_permissions(&server_key, fs::Permissions::from_mode(0o600))?;
        if clients_prove_themselves {
            fs::copy(certificates.path("server-cert.pem"), certificates.path(CERTIFICATE))?;
            fs::copy(&server_key, certificates.path(KEY))?;
        }
        Ok(certificates)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn server(&self) -> [PathBuf; 2] {
        ["server-cert.pem", "server-key.pem"].map(|name| self.path(name))
    }

    /// The TLS of an initiator, whose sessions resume each other's.
    pub(crate) fn client(&self) -> ClientTls {
        ClientTls::of_folder(self.folder.path())
    }

    /// The TLS of a target that starts, which knows nothing of sessions before.
    pub(crate) fn portal(&self) -> PortalTls {
        let [certificates, key] = &self.server();
        let clients = Clients { authorities: &self.path(AUTHORITY), revoked: &self.path("ca-crl.pem") };
        let config = stream_server(Identity { certificates, key }, Some(clients), ISCSI).map(Arc::new);
        let source = config.map(|config| -> lunette_reactor::TlsSource { Arc::new(move || Arc::clone(&config)) });
        PortalTls { name: "simulated".into(), source: source.map_err(|error| error.to_string()) }
    }
}
