//! The exports of a server, and the client that asks for them.

use std::net::SocketAddr;

use lunette_tls::Peer;

use crate::Export;

/// The exports of a server: for each client those that it may use.
///
/// A connection calls it from its own thread, so calls may wait. They have the time of the negotiation
/// ([`HANDSHAKE_TIMEOUT`](crate::limits::HANDSHAKE_TIMEOUT)).
pub trait Exports: Send + Sync {
    /// The names of the exports that `client` may use.
    fn names(&self, client: &Client) -> Vec<String>;

    /// The export that `client` means by `name`. `None` when there is none, or the client may not use it: it cannot
    /// tell the difference.
    fn open(&self, client: &Client, name: &str) -> Option<Export>;
}

/// A client, as far as the server knows it.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Client {
    /// The address that it came from and the one that it came to; `None` on a Unix socket.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The certificate of the client; `None` when it has shown none.
    pub certificate: Option<Peer>,
}

/// One export is for all clients.
impl Exports for Export {
    fn names(&self, _: &Client) -> Vec<String> {
        vec![self.name().into()]
    }

    fn open(&self, _: &Client, name: &str) -> Option<Export> {
        (name.is_empty() || name == self.name()).then(|| self.clone())
    }
}
