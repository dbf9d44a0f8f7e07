//! Disks that are exports of NBD servers: `nbd://HOST/NAME` and `nbd+unix:///NAME?socket=PATH`, and with TLS `nbds://`
//! and `nbds+unix://`.

use std::sync::Arc;

use lunette_nbd::client::{NbdStore, NbdUrl, OpenError, Place};
use lunette_store::OpenOptions;

use super::kind::{Facts, Kind, Opened};
use crate::failure::Failure;

impl Kind for NbdUrl {
    /// Names of hosts are the same in either case; those of exports and sockets have one. TLS leads to no other disk.
    fn identity(&self) -> Option<String> {
        let place = match &self.place {
            Place::Tcp { host, port } => Place::Tcp { host: host.to_ascii_lowercase(), port: *port },
            Place::Unix(path) => Place::Unix(path.clone()),
        };
        Some(Self { place, export: self.export.clone(), tls: None }.to_string())
    }

    fn refuses_create(&self) -> Option<&'static str> {
        Some("an export of an NBD server is made there; leave out create")
    }

    fn refuses_full(&self) -> Option<&'static str> {
        Some("an export of an NBD server gets its space there; leave out provisioning")
    }

    fn open(&self, options: &OpenOptions) -> Result<Opened, Failure> {
        let facts = Facts { has_own_blocks: true, ..Facts::default() };
        Ok(Opened { facts, ..Opened::new(Arc::new(open(self, options.read_only)?)) })
    }
}

/// Connects to the server and opens the export.
pub(crate) fn open(url: &NbdUrl, read_only: bool) -> Result<NbdStore, Failure> {
    NbdStore::open(url, read_only).map_err(|error| Failure::disk(format!("{url}: {error}{}", advice(&error))))
}

/// Advice for the user, where there is any.
fn advice(error: &OpenError) -> &'static str {
    match error {
        OpenError::Connect(_) => "; does the server listen there, and may this user connect?",
        OpenError::Unknown(_) => "; nbdinfo --list shows the exports of a server",
        OpenError::NoTls(_) => "; start the server with TLS, or write nbd:// where the network can be trusted",
        OpenError::Secure(_) => {
            "; the folder of tls-certificates has the server's authority in ca-cert.pem, and in client-cert.pem and \
             client-key.pem what the server demands"
        }
        _ => "",
    }
}
