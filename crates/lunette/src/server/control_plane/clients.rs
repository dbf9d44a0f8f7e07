//! The clients of the API that prove themselves by certificates.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use lunette_api::Grant;
use lunette_tls::{Handshakes, Source};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;

use crate::config::api::Client;
use crate::failure::Failure;
use crate::server::certificates::Certificates;

/// The certificates of a port, and the clients that the configuration names.
pub(crate) struct Clients {
    certificates: Certificates,
    known: Vec<Client>,
    handshakes: Mutex<Handshakes>,
    /// The moment from which the times of handshakes count.
    epoch: Instant,
}

impl Clients {
    /// The clients of a port. Where there are some, their authority has to be known.
    pub(super) fn new(certificates: Certificates, clients: Vec<Client>) -> Result<Self, Failure> {
        if !clients.is_empty() && certificates.now().clients.is_none() {
            let why = "api: client needs the authority of its certificates; put ca-cert.pem into the folder of tls";
            return Err(Failure::configuration(why));
        }
        Ok(Self { certificates, known: clients, handshakes: Mutex::default(), epoch: Instant::now() })
    }
}

impl lunette_api::Certificates for Clients {
    fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.certificates.now().config)
    }

    fn may_begin(&self, peer: SocketAddr) -> bool {
        let mut handshakes = self.handshakes.lock().unwrap_or_else(PoisonError::into_inner);
        handshakes.begin(Source::of(peer), self.epoch.elapsed())
    }

    fn grant(&self, shown: &[CertificateDer<'_>]) -> Option<Grant> {
        if self.known.is_empty() {
            return None;
        }
        let peer = self.certificates.now().clients.as_ref()?.peer(shown)?;
        Client::grant(&self.known, &peer)
    }
}
