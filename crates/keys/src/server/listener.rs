//! Connections: TLS, limits of time and number, and one thread for each.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use lunette_tls::folder::TlsFiles;
use lunette_tls::peer::Peer;
use lunette_tls::{Renewed, TlsError};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use zeroize::Zeroizing;

use super::audit::AuditEntry;
use super::limits::{
    HANDSHAKE_TIMEOUT, IDLE_TIMEOUT, MAX_CLIENT_CONNECTIONS, MAX_CONNECTIONS, MAX_REQUEST_BYTES, REQUEST_TIMEOUT,
};
use super::service::{Client, Service};
use super::store::ObjectStore;
use crate::limited::Limited;
use crate::ttlv;

/// The time that requests under way have to end when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// The time in which a client that is refused can read why.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause after a failed `accept`, for example while no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A key server on a TCP port.
pub struct Server {
    shared: Arc<Shared>,
    listener: TcpListener,
}

struct Shared {
    /// Absent when the server has stopped: the store is closed then.
    service: Mutex<Option<Service<ObjectStore>>>,
    /// The certificates and the list of revoked ones. The authority replaces the list after a server's certificate.
    trust: Renewed<Arc<ServerConfig>>,
    connections: Mutex<Connections>,
    left: Condvar,
}

#[derive(Default)]
struct Connections {
    stopping: bool,
    next: u64,
    sockets: HashMap<u64, (TcpStream, Option<String>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Listens on an address.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::bind(address)
    }

    /// A server for the clients of a listener.
    ///
    /// # Errors
    ///
    /// When the certificates cannot be used.
    pub fn new(listener: TcpListener, files: TlsFiles, service: Service<ObjectStore>) -> Result<Self, TlsError> {
        let trust = Renewed::open(vec![files.crl()], move || files.server())?;
        let shared =
            Shared { service: Mutex::new(Some(service)), trust, connections: Mutex::default(), left: Condvar::new() };
        Ok(Self { shared: Arc::new(shared), listener })
    }

    /// A handle that ends [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// When the system refuses another descriptor.
    pub fn stopper(&self) -> io::Result<Stopper> {
        Ok(Stopper { shared: Arc::clone(&self.shared), listener: self.listener.try_clone()? })
    }

    /// Serves clients until a [`Stopper`] stops it. The store is closed then.
    pub fn run(&self) {
        loop {
            let accepted = self.listener.accept();
            if lock(&self.shared.connections).stopping {
                break;
            }
            match accepted {
                Ok((socket, peer)) => self.welcome(socket, peer),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
        let connections = lock(&self.shared.connections);
        let waited = self.shared.left.wait_timeout_while(connections, STOP_GRACE, |all| !all.sockets.is_empty());
        let (connections, _) = waited.unwrap_or_else(PoisonError::into_inner);
        for (socket, _) in connections.sockets.values() {
            // The socket may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(connections);
        *lock(&self.shared.service) = None;
    }

    fn welcome(&self, socket: TcpStream, peer: SocketAddr) {
        let Some(number) = self.shared.enter(&socket) else {
            tracing::warn!(%peer, "more than {MAX_CONNECTIONS} connections: a new one is closed");
            return;
        };
        let shared = Arc::clone(&self.shared);
        let spawned = thread::Builder::new().name("lunette-keys".into()).spawn(move || {
            let entered = Entered { shared: &shared, number };
            if let Err(error) = entered.attend(socket, peer) {
                tracing::debug!(%peer, %error, "the connection ended");
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a new connection");
            self.shared.leave(number);
        }
    }
}

/// Ends [`Server::run`] from another thread.
pub struct Stopper {
    shared: Arc<Shared>,
    listener: TcpListener,
}

impl Stopper {
    /// Refuses new clients and new requests; those under way are answered.
    pub fn stop(&self) {
        let mut connections = lock(&self.shared.connections);
        connections.stopping = true;
        for (socket, _) in connections.sockets.values() {
            // The socket may be closed already.
            let _ = socket.shutdown(Shutdown::Read);
        }
        drop(connections);
        // Closing fails only for a listener that is closed already.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Read);
    }
}

impl Shared {
    /// Counts a connection; `None` when there is no room or the server stops.
    fn enter(&self, socket: &TcpStream) -> Option<u64> {
        let mut connections = lock(&self.connections);
        if connections.stopping {
            return None;
        }
        if connections.sockets.len() >= MAX_CONNECTIONS {
            // Anyone can connect, and only clients can show a certificate: the oldest that has not shown one makes way.
            let unnamed = connections.sockets.iter().filter(|(_, (_, name))| name.is_none());
            let oldest = unnamed.map(|(number, _)| *number).min()?;
            let (socket, _) = connections.sockets.remove(&oldest)?;
            // The socket may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        let number = connections.next;
        connections.next += 1;
        connections.sockets.insert(number, (socket.try_clone().ok()?, None));
        Some(number)
    }

    /// Counts a connection for its client. False when the client has too many, or the connection had to make way.
    fn name(&self, number: u64, client: &str) -> bool {
        let mut connections = lock(&self.connections);
        let has = connections.sockets.values().filter(|(_, name)| name.as_deref() == Some(client)).count();
        // A connection that had to make way is not there.
        let Some((_, name)) = connections.sockets.get_mut(&number) else { return false };
        *name = Some(client.into());
        has < MAX_CLIENT_CONNECTIONS
    }

    fn leave(&self, number: u64) {
        lock(&self.connections).sockets.remove(&number);
        self.left.notify_all();
    }
}

/// A connection. It counts until it is dropped.
struct Entered<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.shared.leave(self.number);
    }
}

impl Entered<'_> {
    fn attend(&self, socket: TcpStream, peer: SocketAddr) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let config = self.shared.trust.look();
        let tls = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, Limited::new(socket, HANDSHAKE_TIMEOUT));
        if let Err(error) = handshake(&mut stream) {
            self.record(peer, None, "TLS handshake failed", &error.to_string());
            // The alert that tells the client why was sent.
            stream.sock.finish(LINGER_TIMEOUT);
            return Err(error);
        }
        let certificate = stream.conn.peer_certificates().and_then(|chain| chain.first());
        let Some(name) = certificate.and_then(|certificate| Peer::of(certificate)?.common_name) else {
            let message = "the certificate has no common name that can be a client's";
            self.record(peer, None, "Authentication Not Successful", message);
            return Ok(());
        };
        if !self.shared.name(self.number, &name) {
            let message =
                format!("more than {MAX_CLIENT_CONNECTIONS} connections of a client, or {MAX_CONNECTIONS} of all");
            self.record(peer, Some(&name), "Permission Denied", &message);
            return Ok(());
        }
        let client = Client { name, peer };
        while let Some(message) = receive(&mut stream)? {
            if !Arc::ptr_eq(&self.shared.trust.look(), &config) {
                // The certificate may be revoked now. The client can connect again and show that it is not.
                return Ok(());
            }
            let answer = lock(&self.shared.service).as_mut().map(|service| service.answer(&client, &message, now()));
            let Some(answer) = answer else { return Ok(()) };
            stream.write_all(&answer)?;
            stream.flush()?;
        }
        stream.conn.send_close_notify();
        stream.flush()
    }

    fn record(&self, peer: SocketAddr, client: Option<&str>, result: &str, message: &str) {
        if let Some(service) = lock(&self.shared.service).as_mut() {
            service.record(&AuditEntry::refused(now(), peer, client, result, message));
        }
    }
}

type Stream = StreamOwned<ServerConnection, Limited>;

fn handshake(stream: &mut Stream) -> io::Result<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(())
}

/// The next message; `None` when the client closed the connection.
fn receive(stream: &mut Stream) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    stream.sock.start(IDLE_TIMEOUT);
    let mut header = [0; ttlv::HEADER_LEN];
    match stream.read(&mut header[..1]) {
        Ok(0) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    stream.sock.start(REQUEST_TIMEOUT);
    stream.read_exact(&mut header[1..])?;
    let len = ttlv::message_len(&header).map_err(io::Error::other)?;
    if len > MAX_REQUEST_BYTES {
        return Err(io::Error::other(format!("a request of {len} bytes is too long; {MAX_REQUEST_BYTES} are allowed")));
    }
    let mut message = Zeroizing::new(vec![0; len]);
    message[..header.len()].copy_from_slice(&header);
    stream.read_exact(&mut message[header.len()..])?;
    Ok(Some(message))
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs().cast_signed())
}
