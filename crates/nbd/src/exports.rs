//! The exports of a server, and the client that asks for them.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use lunette_tls::Peer;

use rustix::net::Shutdown;

use crate::Export;
use crate::socket::Socket;

/// The exports of a server: for each client those that it may use.
///
/// A connection calls it from its own thread, so calls may wait. The limits of the negotiation do not end a call: it
/// has to end by itself.
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
    /// The means to end its connection.
    pub ending: Ending,
}

/// Ends the connection of a client from elsewhere: a client that makes another one is looked at again.
#[derive(Debug, Clone, Default)]
pub struct Ending(Weak<Socket>);

impl Ending {
    pub(crate) fn of(socket: &Arc<Socket>) -> Self {
        Self(Arc::downgrade(socket))
    }

    /// Ends the connection, if it is there still.
    pub fn end(&self) {
        if let Some(socket) = self.0.upgrade() {
            socket.shut_down(Shutdown::Both);
        }
    }
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
