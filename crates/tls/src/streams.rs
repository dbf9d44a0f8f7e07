//! Configurations for connections whose records this crate seals: TLS 1.3 alone, without early data.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, ConfigSide, DigitallySignedStruct, Error, ServerConfig,
    SignatureScheme, WantsVerifier, WantsVersions,
};

use crate::{Clients, Fingerprint, Identity, TlsError, provider, read_revoked, roots};

/// The protocol of iSCSI in the negotiation of the protocol (ALPN, RFC 7301).
pub const ISCSI: &[u8] = b"iscsi";

/// The protocol of connections that name none.
pub const UNNAMED: &[u8] = b"";

/// The servers that a client trusts.
#[derive(Debug, Clone, Copy)]
pub enum Servers<'a> {
    /// Servers whose certificate names them, and was signed by an authority in this file.
    SignedBy(&'a Path),
    /// Servers as with [`SignedBy`](Self::SignedBy), whose certificate was not revoked.
    Unrevoked {
        /// The authorities that have signed their certificates.
        authorities: &'a Path,
        /// The certificates that count no longer, in a file that may be missing.
        revoked: &'a Path,
    },
    /// One server, told by its certificate, whatever its name is.
    Pinned(Fingerprint),
    /// Any server. Whoever stands between the two sides can read and change everything.
    Any,
}

/// The configuration of a server for `protocol`. With `clients` each client is asked for a certificate, which it need
/// not have. The rights that a certificate gives are the caller's to know.
///
/// # Errors
///
/// When a file cannot be read, or the files do not fit together.
pub fn stream_server(
    own: Identity<'_>,
    clients: Option<Clients<'_>>,
    protocol: &[u8],
) -> Result<ServerConfig, TlsError> {
    server_of(own, clients.map(|clients| (clients, Proof::Asked)), protocol)
}

/// The configuration of a server that speaks to none but `clients`.
///
/// # Errors
///
/// When a file cannot be read, or the files do not fit together.
pub fn strict_stream_server(
    own: Identity<'_>,
    clients: Clients<'_>,
    protocol: &[u8],
) -> Result<ServerConfig, TlsError> {
    server_of(own, Some((clients, Proof::Demanded)), protocol)
}

/// How a server takes a client without a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    Asked,
    Demanded,
}

fn server_of(
    own: Identity<'_>,
    clients: Option<(Clients<'_>, Proof)>,
    protocol: &[u8],
) -> Result<ServerConfig, TlsError> {
    let builder = tls13(ServerConfig::builder_with_provider(provider())).map_err(|error| own.unusable(&error))?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some((Clients { authorities, revoked }, proof)) => {
            let trusted = Arc::new(roots(authorities)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(trusted, provider());
            let verifier = verifier.with_crls(read_revoked(revoked)?);
            let verifier = match proof {
                Proof::Asked => verifier.allow_unauthenticated().build(),
                Proof::Demanded => verifier.build(),
            };
            builder.with_client_cert_verifier(verifier.map_err(|error| TlsError::at(authorities, error))?)
        }
    };
    let (chain, key) = own.read()?;
    let mut config = builder.with_single_cert(chain, key).map_err(|error| own.unusable(&error))?;
    config.enable_secret_extraction = true;
    config.alpn_protocols = names(protocol);
    Ok(config)
}

/// The configuration of a client for `protocol`. The client proves itself with `own`. Connections that share the
/// configuration, and go to one name, resume each other's sessions.
///
/// # Errors
///
/// When a file cannot be read, or the files do not fit together.
pub fn stream_client(
    servers: Servers<'_>,
    own: Option<Identity<'_>>,
    protocol: &[u8],
) -> Result<ClientConfig, TlsError> {
    let builder = tls13(ClientConfig::builder_with_provider(provider())).map_err(TlsError::Provider)?;
    let builder = match servers {
        Servers::SignedBy(authorities) => builder.with_root_certificates(roots(authorities)?),
        Servers::Unrevoked { authorities, revoked } => {
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(authorities)?), provider());
            let verifier = verifier.with_crls(read_revoked(revoked)?).build();
            builder.with_webpki_verifier(verifier.map_err(|error| TlsError::at(authorities, error))?)
        }
        Servers::Pinned(fingerprint) => with_verifier(builder, Some(fingerprint)),
        Servers::Any => with_verifier(builder, None),
    };
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let (chain, key) = own.read()?;
            builder.with_client_auth_cert(chain, key).map_err(|error| own.unusable(&error))?
        }
    };
    config.enable_secret_extraction = true;
    config.alpn_protocols = names(protocol);
    Ok(config)
}

fn names(protocol: &[u8]) -> Vec<Vec<u8>> {
    if protocol.is_empty() { Vec::new() } else { vec![protocol.to_vec()] }
}

fn with_verifier(
    builder: ConfigBuilder<ClientConfig, WantsVerifier>,
    pinned: Option<Fingerprint>,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let verifier = Arc::new(WithoutAuthority { pinned, provider: provider() });
    builder.dangerous().with_custom_certificate_verifier(verifier)
}

fn tls13<S: ConfigSide>(builder: ConfigBuilder<S, WantsVersions>) -> Result<ConfigBuilder<S, WantsVerifier>, Error> {
    builder.with_protocol_versions(&[&TLS13])
}

/// Trusts one certificate, or all of them.
#[derive(Debug)]
struct WithoutAuthority {
    pinned: Option<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for WithoutAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.pinned.is_none_or(|pinned| pinned == Fingerprint::of(end_entity)) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
