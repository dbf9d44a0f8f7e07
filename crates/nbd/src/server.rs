//! Clients as they come and go.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use lunette_store::{Completion, Op, StoreError};

use crate::limits::MAX_CONNECTIONS;
use crate::{ConnectionError, Export, Listener, SharedIo, Socket, connection};

/// When the server stops: the time that a client has to take the replies that it is owed.
const STOP_GRACE: Duration = Duration::from_secs(4);

/// After an `accept` that failed, as it does while there are no descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves one export to any number of clients.
#[derive(Clone)]
pub struct Server {
    export: Export,
    io: SharedIo,
    clients: Arc<Clients>,
}

/// The connections at one time.
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

    /// `None` when there is no room or the server stops.
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

    /// Waits until all have left, or the time is over.
    fn wait(&self, limit: Duration) -> bool {
        let waited = self.left.wait_timeout_while(self.lock(), limit, |state| !state.sockets.is_empty());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.sockets.is_empty()
    }

    fn shut_down(&self, how: Shutdown) {
        self.lock().sockets.values().for_each(|socket| socket.shut_down(how));
    }
}

/// A connection. Dropped, it is counted no longer.
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
    /// Takes no new clients and no new requests; what runs is ended and answered.
    pub fn stop(&self) {
        let mut state = self.clients.lock();
        state.stopping = true;
        state.sockets.values().for_each(|socket| socket.shut_down(Shutdown::Read));
        drop(state);
        // It fails only for a listener that is closed already.
        let _ = self.listener.close();
    }
}

impl Server {
    /// A server of `export`. Stores that need the kernel to work get `io` for it.
    pub fn new(export: Export, io: SharedIo) -> Self {
        Self { export, io, clients: Arc::default() }
    }

    /// Something to stop [`run`](Self::run) with.
    ///
    /// # Errors
    ///
    /// When the system refuses another descriptor.
    pub fn stopper(&self, listener: &Listener) -> io::Result<Stopper> {
        Ok(Stopper { clients: Arc::clone(&self.clients), listener: listener.try_clone()? })
    }

    /// Serves those who come to `listener`, until a [`Stopper`] stops it. At its end the store is flushed.
    ///
    /// # Errors
    ///
    /// When the last flush fails.
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
        self.flush().map_err(io::Error::other)
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
            .and_then(|()| connection::serve(socket, socket, &self.export, &self.io));
        match served {
            Ok(()) => {}
            // Many clients hang up when they have what they want.
            Err(ConnectionError::Io(error)) => tracing::debug!(connection = client.number, %error, "hung up"),
            Err(error) => tracing::warn!(connection = client.number, "{error}"),
        }
    }

    fn flush(&self) -> Result<(), StoreError> {
        let (tx, rx) = mpsc::channel();
        let done = Completion::call(move |outcome| {
            // The receiver waits below.
            let _ = tx.send(outcome.result);
        });
        self.export.store.submit(Op::Flush, &*self.io, done);
        rx.recv().expect("a store ends every request")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn there_is_room_for_so_many_clients_and_for_another_when_one_leaves() {
        let clients: Arc<Clients> = Arc::default();
        let enter = || clients.enter(Socket::Unix(UnixStream::pair().expect("a pair of sockets").0));
        let mut inside: Vec<Client> = (0..MAX_CONNECTIONS).map(|_| enter().expect("room")).collect();
        assert!(enter().is_none());
        inside.pop();
        assert!(enter().is_some());
    }
}
