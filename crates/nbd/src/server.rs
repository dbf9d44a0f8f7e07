//! The server: accepts clients and ends them.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lunette_tls::{Handshakes, Source};
use rustix::net::Shutdown;

use crate::connections::{Connection, Connections};
use crate::limits::MAX_CONNECTIONS;
use crate::socket::{Listener, Socket};
use crate::stream::Stream;
use crate::tls::ServerTls;
use crate::{Client, ConnectionError, Ending, Exports, SharedIo, connection};

/// The time that clients have to take their replies when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(4);

/// The pause after a failed `accept`, for example while no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves exports to any number of clients.
#[derive(Clone)]
pub struct Server {
    exports: Arc<dyn Exports>,
    io: SharedIo,
    tls: Option<ServerTls>,
    connections: Arc<Connections>,
    handshakes: Arc<Mutex<Handshakes>>,
    /// The moment from which the times of handshakes count.
    epoch: Instant,
}

/// Ends [`Server::run`] from another thread.
#[derive(Debug)]
pub struct Stopper {
    connections: Arc<Connections>,
    listener: Listener,
}

impl Stopper {
    /// Refuses new clients and new requests; requests under way are ended and answered.
    pub fn stop(&self) {
        self.connections.stop();
        // Closing fails only for a listener that is closed already.
        let _ = self.listener.close();
    }
}

impl Server {
    /// A server of `exports`. Stores that wait for the kernel do so through `io`.
    pub fn new(exports: Arc<dyn Exports>, io: SharedIo) -> Self {
        let (connections, handshakes) = (Arc::default(), Arc::default());
        Self { exports, io, tls: None, connections, handshakes, epoch: Instant::now() }
    }

    /// Adds TLS, which every client then has to begin before all else.
    #[must_use]
    pub fn with_tls(self, tls: ServerTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// A handle that stops [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// When the system refuses another descriptor.
    pub fn stopper(&self, listener: &Listener) -> io::Result<Stopper> {
        Ok(Stopper { connections: Arc::clone(&self.connections), listener: listener.try_clone()? })
    }

    /// Serves the clients of `listener`, until a [`Stopper`] stops it. The caller flushes the stores then.
    pub fn run(&self, listener: &Listener) {
        loop {
            let accepted = listener.accept();
            if self.connections.is_stopping() {
                break;
            }
            match accepted {
                Ok(socket) => self.welcome(socket),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
        if !self.connections.wait(STOP_GRACE) {
            self.connections.shut_down(Shutdown::Both);
            if !self.connections.wait(STOP_GRACE) {
                tracing::warn!("requests are still with the store");
            }
        }
    }

    fn welcome(&self, socket: Socket) {
        let Some(connection) = self.connections.enter(socket) else {
            tracing::warn!("more than {MAX_CONNECTIONS} connections: a new one is closed");
            return;
        };
        let server = self.clone();
        let spawned = thread::Builder::new().name("lunette-nbd".into()).spawn(move || server.attend(&connection));
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a new connection");
        }
    }

    fn attend(&self, connection: &Connection) {
        match self.serve(connection) {
            Ok(()) => {}
            // A record that cannot be opened: one of the two machines, or one between them, has changed it.
            Err(ConnectionError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!(connection = connection.number, %error, "ended");
            }
            // Many clients close the connection without DISC when they are done.
            Err(ConnectionError::Io(error)) => tracing::debug!(connection = connection.number, %error, "hung up"),
            Err(error) => tracing::warn!(connection = connection.number, "{error}"),
        }
    }

    /// Whether the address of a client begins handshakes of TLS slowly enough.
    fn may_begin_handshake(&self, client: &Client) -> bool {
        let Some((peer, _)) = client.addresses else { return true };
        let mut handshakes = self.handshakes.lock().unwrap_or_else(PoisonError::into_inner);
        handshakes.begin(Source::of(peer), self.epoch.elapsed())
    }

    fn serve(&self, connection: &Connection) -> Result<(), ConnectionError> {
        let socket = &*connection.socket;
        socket.prepare()?;
        let ending = Ending::of(&connection.socket);
        let client = Client { addresses: socket.addresses()?, ending, ..Client::default() };
        if self.tls.is_some() && !self.may_begin_handshake(&client) {
            return Err(ConnectionError::TooManyHandshakes);
        }
        let agreed = || connection.has_agreed();
        connection::serve_told(Stream::new(socket, socket), &*self.exports, client, &self.io, self.tls.as_ref(), agreed)
    }
}
