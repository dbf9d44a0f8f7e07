//! The server: accepts clients and ends them.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lunette_store::{Completion, Op, StoreError};
use rustix::net::Shutdown;

use crate::limits::{LAST_FLUSH_TIMEOUT, MAX_CONNECTIONS};
use crate::socket::{Listener, Socket};
use crate::stream::Stream;
use crate::tls::ServerTls;
use crate::{ConnectionError, Export, SharedIo, connection};

/// The time that clients have to take their replies when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(4);

/// The pause after a failed `accept`, for example while no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves one export to any number of clients.
#[derive(Clone)]
pub struct Server {
    export: Export,
    io: SharedIo,
    tls: Option<ServerTls>,
    clients: Arc<Clients>,
}

/// The connections that exist now.
#[derive(Debug, Default)]
struct Clients {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    next: u64,
    sockets: HashMap<u64, Arc<Socket>>,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection; `None` when there is no room or the server stops.
    fn enter(self: &Arc<Self>, socket: Socket) -> Option<Client> {
        let mut state = self.lock();
        if state.stopping || state.sockets.len() >= MAX_CONNECTIONS {
            return None;
        }
        let socket = Arc::new(socket);
        let number = state.next;
        state.next += 1;
        state.sockets.insert(number, Arc::clone(&socket));
        Some(Client { number, socket, clients: Arc::clone(self) })
    }

    /// Waits until all clients have left, or the time is over. True when they have left.
    fn wait(&self, limit: Duration) -> bool {
        let waited = self.left.wait_timeout_while(self.lock(), limit, |state| !state.sockets.is_empty());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.sockets.is_empty()
    }

    fn shut_down(&self, how: Shutdown) {
        self.lock().sockets.values().for_each(|socket| socket.shut_down(how));
    }
}

/// A connection. It counts until it is dropped.
struct Client {
    number: u64,
    socket: Arc<Socket>,
    clients: Arc<Clients>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.socket.shut_down(Shutdown::Both);
        self.clients.lock().sockets.remove(&self.number);
        self.clients.left.notify_all();
    }
}

/// Ends [`Server::run`] from another thread.
#[derive(Debug)]
pub struct Stopper {
    clients: Arc<Clients>,
    listener: Listener,
}

impl Stopper {
    /// Refuses new clients and new requests; requests under way are ended and answered.
    pub fn stop(&self) {
        let mut state = self.clients.lock();
        state.stopping = true;
        state.sockets.values().for_each(|socket| socket.shut_down(Shutdown::Read));
        drop(state);
        // Closing fails only for a listener that is closed already.
        let _ = self.listener.close();
    }
}

impl Server {
    /// A server of `export`. Stores that wait for the kernel do so through `io`.
    pub fn new(export: Export, io: SharedIo) -> Self {
        Self { export, io, tls: None, clients: Arc::default() }
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
        Ok(Stopper { clients: Arc::clone(&self.clients), listener: listener.try_clone()? })
    }

    /// Serves the clients of `listener`, until a [`Stopper`] stops it. At the end the store is flushed.
    ///
    /// # Errors
    ///
    /// When the last flush fails, or takes longer than [`LAST_FLUSH_TIMEOUT`].
    pub fn run(&self, listener: &Listener) -> io::Result<()> {
        loop {
            let accepted = listener.accept();
            if self.clients.lock().stopping {
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
        if !self.clients.wait(STOP_GRACE) {
            self.clients.shut_down(Shutdown::Both);
            if !self.clients.wait(STOP_GRACE) {
                tracing::warn!("requests are still with the store");
            }
        }
        self.flush(LAST_FLUSH_TIMEOUT)
    }

    fn welcome(&self, socket: Socket) {
        let Some(client) = self.clients.enter(socket) else {
            tracing::warn!("more than {MAX_CONNECTIONS} connections: a new one is closed");
            return;
        };
        let server = self.clone();
        let spawned = thread::Builder::new().name("lunette-nbd".into()).spawn(move || server.attend(&client));
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a new connection");
        }
    }

    fn attend(&self, client: &Client) {
        let socket = &*client.socket;
        let served = socket
            .prepare()
            .map_err(ConnectionError::Io)
            .and_then(|()| connection::serve(Stream::new(socket, socket), &self.export, &self.io, self.tls.as_ref()));
        match served {
            Ok(()) => {}
            // Many clients close the connection without DISC when they are done.
            Err(ConnectionError::Io(error)) => tracing::debug!(connection = client.number, %error, "hung up"),
            Err(error) => tracing::warn!(connection = client.number, "{error}"),
        }
    }

    fn flush(&self, limit: Duration) -> io::Result<()> {
        let (tx, rx) = mpsc::channel::<Result<(), StoreError>>();
        let done = Completion::call(move |outcome| {
            // After the time limit no receiver is left.
            let _ = tx.send(outcome.result);
        });
        self.export.store.submit(Op::Flush, &*self.io, done);
        match rx.recv_timeout(limit) {
            Ok(result) => result.map_err(io::Error::other),
            Err(RecvTimeoutError::Timeout) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the last flush took longer than {limit:?}; writes that clients have not flushed may be lost"),
            )),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the store has dropped the last flush")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use lunette_store::filters::Delay;
    use lunette_store::{InlineIo, MemoryStore};

    use super::*;

    #[test]
    fn a_store_that_does_not_answer_the_last_flush_does_not_hold_up_the_stop() {
        let store = Arc::new(Delay::new(Arc::new(MemoryStore::new(1 << 20).expect("memory"))));
        let export = Export::new(String::new(), Arc::clone(&store) as _, false).expect("an export");
        let server = Server::new(export, Arc::new(InlineIo));
        store.hold();
        let error = server.flush(Duration::from_millis(1)).expect_err("no answer");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        store.release();
        server.flush(LAST_FLUSH_TIMEOUT).expect("an answer");
    }

    #[test]
    fn a_client_that_leaves_makes_room_for_another() {
        let clients: Arc<Clients> = Arc::default();
        let enter = || clients.enter(UnixStream::pair().expect("a pair of sockets").0.into());
        let mut inside: Vec<Client> = (0..MAX_CONNECTIONS).map(|_| enter().expect("room")).collect();
        assert!(enter().is_none());
        inside.pop();
        assert!(enter().is_some());
    }
}
