//! The clients of the API that prove themselves by certificates.

use std::sync::Arc;

use lunette_api::Grant;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;

use crate::config::api::Client;
use crate::failure::Failure;
use crate::server::certificates::Certificates;

/// The certificates of a port, and the clients that the configuration names.
pub(crate) struct Clients {
    certificates: Certificates,
    clients: Vec<Client>,
}

impl Clients {
    /// The clients of a port. Where there are some, their authority has to be known.
    pub(super) fn new(certificates: Certificates, clients: Vec<Client>) -> Result<Self, Failure> {
        if !clients.is_empty() && certificates.now().clients.is_none() {
            let why = "api: client needs the authority of its certificates; put ca-cert.pem into the folder of tls";
            return Err(Failure::configuration(why));
        }
        Ok(Self { certificates, clients })
    }
}

impl lunette_api::Certificates for Clients {
    fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.certificates.now().config)
    }

    fn grant(&self, shown: &[CertificateDer<'_>]) -> Option<Grant> {
        if self.clients.is_empty() {
            return None;
        }
        let peer = self.certificates.now().clients.as_ref()?.peer(shown)?;
        Client::grant(&self.clients, &peer)
    }
}
