//! Where the API is served: sockets, the thread behind them, and what connections may cost.

mod apart;
mod shares;
mod stream;
mod unix;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use axum::http::{HeaderValue, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::{Extension, Router};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::access::require_role;
use crate::callers::Caller;
use crate::limits::{
    ACCEPT_PAUSE, HANDSHAKE_TIMEOUT, HEADER_TIMEOUT, MAX_BUSY_CHANGES, MAX_BUSY_REQUESTS, MAX_CONNECTIONS,
    MAX_HEADER_BYTES, MAX_STRANGER_BYTES,
};
use crate::proofs::{Certificates, Guard, Shown, require_proof};
use crate::routes;
use crate::server::Server;
use crate::tokens::TokenFile;
pub use apart::{Account, ServerTls, serve_apart};
pub(crate) use shares::Connection;
use shares::Shares;
use stream::Bounded;
pub use unix::remove_stale_socket;

/// A place where the API is served.
pub enum Place {
    /// A Unix socket. Root, the user of this process, and the group if there is one, may use it.
    Unix {
        /// Where it is.
        path: PathBuf,
        /// The group whose members may use it, by its number.
        group: Option<u32>,
        /// The socket, when it listens there already. Its file keeps the permissions that it has.
        listener: Option<UnixListener>,
    },
    /// A port of TCP, with TLS. Clients send one of the tokens, or show a certificate.
    Tcp {
        /// Where to listen.
        address: SocketAddr,
        /// The socket, when it listens there already.
        listener: Option<TcpListener>,
        /// The identity of the server, and the clients with certificates.
        certificates: Arc<dyn Certificates>,
        /// The tokens.
        tokens: Option<TokenFile>,
    },
    /// A port of TCP for the numbers of the server alone (`/metrics`, `/healthz`, `/readyz`), without TLS and tokens.
    Metrics {
        /// Where to listen.
        address: SocketAddr,
        /// The socket, when it listens there already.
        listener: Option<TcpListener>,
        /// The clients that are answered.
        networks: Vec<IpNet>,
    },
}

/// A place that is open.
pub struct Listener(Open);

enum Open {
    Unix(unix::Socket),
    Tcp { address: SocketAddr, listener: TcpListener, certificates: Arc<dyn Certificates>, tokens: Option<TokenFile> },
    Metrics { listener: TcpListener, networks: Vec<IpNet> },
}

impl Listener {
    /// Opens a place. Clients can connect from now on; they are answered once it is [served](serve).
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open(place: Place) -> io::Result<Self> {
        let open = match place {
            Place::Unix { group, listener: Some(listener), .. } => Open::Unix(unix::Socket::adopt(listener, group)?),
            Place::Unix { path, group, listener: None } => Open::Unix(unix::Socket::open(&path, group)?),
            Place::Tcp { address, listener, certificates, tokens } => {
                let listener = listener.map_or_else(|| TcpListener::bind(address), Ok)?;
                listener.set_nonblocking(true)?;
                Open::Tcp { address, listener, certificates, tokens }
            }
            Place::Metrics { address, listener, networks } => {
                let listener = listener.map_or_else(|| TcpListener::bind(address), Ok)?;
                listener.set_nonblocking(true)?;
                Open::Metrics { listener, networks }
            }
        };
        Ok(Self(open))
    }

    /// Another descriptor of the socket, for a process that takes the place of this one.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn duplicate(&self) -> io::Result<Duplicate> {
        Ok(match &self.0 {
            Open::Unix(socket) => Duplicate::Unix(socket.duplicate()?),
            Open::Tcp { listener, .. } | Open::Metrics { listener, .. } => Duplicate::Tcp(listener.try_clone()?),
        })
    }

    /// The address of a port of TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Open::Unix(_) => None,
            Open::Tcp { listener, .. } | Open::Metrics { listener, .. } => listener.local_addr().ok(),
        }
    }
}

/// The socket of a place, by another descriptor.
#[derive(Debug)]
pub enum Duplicate {
    /// A Unix socket.
    Unix(UnixListener),
    /// A socket of TCP.
    Tcp(TcpListener),
}

/// How clients of a place prove that they may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Whoever can connect may do everything, as at a Unix socket.
    Open,
    /// Each request needs a bearer token, or a certificate of its client. The place has TLS.
    Tokens,
}

/// Pages for people beside the API.
pub trait Site {
    /// The pages of a place. They stand behind the same check of proofs as the API.
    fn pages(&self, access: Access) -> Router;

    /// Puts before API and pages what browsers need there, such as a login.
    fn front(&self, routes: Router, access: Access) -> Router;
}

/// A site without pages.
impl Site for () {
    fn pages(&self, _: Access) -> Router {
        Router::new()
    }

    fn front(&self, routes: Router, _: Access) -> Router {
        routes
    }
}

/// Serves the API on a thread of its own, until the process ends.
///
/// # Errors
///
/// When the thread cannot be had.
pub fn serve(listeners: Vec<Listener>, server: Arc<dyn Server>) -> io::Result<()> {
    serve_with(listeners, server, &())
}

/// Serves the API with the pages of a site.
///
/// # Errors
///
/// When the thread cannot be had.
pub fn serve_with(listeners: Vec<Listener>, server: Arc<dyn Server>, site: &dyn Site) -> io::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(MAX_BUSY_REQUESTS + MAX_BUSY_CHANGES).build()?;
    let context = runtime.enter();
    let numbers = routes::numbers(Arc::clone(&server));
    let router = routes::router(Arc::clone(&server));
    let guard = move |tokens, certificates, address| Guard::new(tokens, certificates, Arc::clone(&server), address);
    let mut accepting = Vec::new();
    for Listener(open) in listeners {
        accepting.push(match open {
            Open::Unix(socket) => {
                let routes = router.clone().merge(site.pages(Access::Open));
                tokio::spawn(accept_unix(socket.listen()?, site.front(routes, Access::Open)))
            }
            Open::Tcp { address, listener, certificates, tokens } => {
                let routes = router.clone().merge(site.pages(Access::Tokens)).layer(from_fn(require_role));
                let guard = guard(tokens, Arc::clone(&certificates), address);
                let routes = routes.layer(from_fn_with_state(guard, require_proof));
                let router = site.front(routes, Access::Tokens);
                tokio::spawn(accept_tcp(tokio::net::TcpListener::from_std(listener)?, certificates, router))
            }
            Open::Metrics { listener, networks } => {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tokio::spawn(accept_metrics(listener, networks, numbers.clone()))
            }
        });
    }
    drop(context);
    let run = move || {
        runtime.block_on(async {
            for task in accepting {
                // They do not end.
                let _ = task.await;
            }
        });
    };
    thread::Builder::new().name("lunette-api".into()).spawn(run).map(drop)
}

async fn accept_unix(listener: unix::Listening, router: Router) {
    let (places, mut outage) = (Arc::new(Semaphore::new(MAX_CONNECTIONS)), Outage::default());
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok(Some((stream, user))) => {
                outage.end();
                let from = "the Unix socket";
                let router = as_caller(&router, Caller::admin(format!("user {user}"), from));
                let connection = Arc::new(Connection::trusted(from.into()));
                tokio::spawn(async move {
                    answer(stream, router, connection, 0).await;
                    drop(place);
                });
            }
            Ok(None) => {}
            Err(error) => outage.pause(&error).await,
        }
    }
}

async fn accept_tcp(listener: tokio::net::TcpListener, certificates: Arc<dyn Certificates>, router: Router) {
    let (shares, mut outage) = (Shares::default(), Outage::default());
    loop {
        let (stream, peer) = accept(&listener, &mut outage).await;
        if !certificates.may_begin(peer) {
            tracing::warn!(%peer, "API: a connection is refused: its address begins too many handshakes of TLS");
            continue;
        }
        let (tls, router) = (TlsAcceptor::from(certificates.config()), router.clone());
        tokio::spawn(in_its_place(shares.clone(), peer, async move |connection| {
            match shake_hands(&tls, stream).await {
                Ok(stream) => {
                    let router = router.layer(Extension(shown(&stream)));
                    answer(stream, router, connection, MAX_STRANGER_BYTES).await;
                }
                // The log has a bound for lines of peers.
                Err(error) => tracing::warn!(%peer, %error, "API: a TLS handshake has failed"),
            }
        }));
    }
}

async fn accept_metrics(listener: tokio::net::TcpListener, networks: Vec<IpNet>, router: Router) {
    let (shares, mut outage) = (Shares::default(), Outage::default());
    loop {
        let (stream, peer) = accept(&listener, &mut outage).await;
        if !networks.iter().any(|network| network.contains(&peer.ip().to_canonical())) {
            tracing::warn!(%peer, "metrics: this address is of no network of metrics.networks");
            continue;
        }
        let router = router.clone();
        // Its clients have no token, and an answer is as long as the server has disks.
        let serve = move |connection| answer(stream, router, connection, usize::MAX);
        tokio::spawn(in_its_place(shares.clone(), peer, serve));
    }
}

/// The next connection of a port.
async fn accept(listener: &tokio::net::TcpListener, outage: &mut Outage) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                outage.end();
                return accepted;
            }
            Err(error) => outage.pause(&error).await,
        }
    }
}

/// Serves a connection, as soon as it has a place, until another one takes that.
async fn in_its_place<F: Future<Output = ()>>(
    shares: Shares,
    peer: SocketAddr,
    serve: impl FnOnce(Arc<Connection>) -> F,
) {
    let Some(connection) = shares.admit(peer.ip(), peer.to_string()).await else {
        return tracing::debug!(%peer, "API: too many connections of this address wait, and this one is closed");
    };
    let connection = Arc::new(connection);
    tokio::select! {
        () = serve(Arc::clone(&connection)) => {}
        () = connection.ended() => tracing::debug!(peer = connection.peer(), "API: a connection has made room"),
    }
}

/// The routes for a client that needs no token.
fn as_caller(router: &Router, caller: Caller) -> Router {
    router.clone().layer(Extension(Arc::new(caller)))
}

async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(tls: &TlsAcceptor, stream: S) -> io::Result<TlsStream<S>> {
    timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await?
}

/// The certificates that a client has shown.
fn shown<S>(stream: &TlsStream<S>) -> Shown {
    let (_, connection) = stream.get_ref();
    connection.peer_certificates().unwrap_or_default().iter().map(|one| one.clone().into_owned()).collect()
}

/// Whether a place cannot accept connections, for lack of descriptors or the like.
#[derive(Default)]
struct Outage {
    is_told: bool,
}

impl Outage {
    /// Waits after an error of accept(2): whatever it is, it does not end at once. The log has the first of them.
    async fn pause(&mut self, error: &io::Error) {
        if self.begins() {
            let remedy = lunette_files::remedy(error);
            tracing::warn!("API: cannot accept connections: {error}{remedy}");
        }
        sleep(ACCEPT_PAUSE).await;
    }

    /// Whether it had not begun before.
    fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.is_told, true)
    }

    /// A connection was accepted.
    fn end(&mut self) {
        self.is_told = false;
    }
}

/// Answers the requests of one connection, which know it as an extension. Before a token has come, `budget` bytes may
/// come and go, and an answer ends the connection: so none without a token is idle, and none is ended in the middle as
/// long as there is room.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    connection: Arc<Connection>,
    budget: usize,
) {
    let router = TowerToHyperService::new(router);
    let stream = Bounded::new(stream, Arc::clone(&connection), budget);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let connection = Arc::clone(&connection);
        request.extensions_mut().insert(Arc::clone(&connection));
        let answer = router.call(request);
        async move {
            let mut answer = answer.await?;
            if !connection.is_proven() {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "API: a connection has ended");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::put;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;
    use crate::limits::{BODY_TIMEOUT, MAX_ADDRESS_STRANGERS};
    use crate::routes::body::Json;

    /// The answer of a connection that sends these bytes and then nothing, and the time for which it is kept.
    async fn silent_after(bytes: &str) -> (String, std::time::Duration) {
        let router = Router::new().route("/", put(|_: Json<serde_json::Value>| async { "read" }));
        let (mut client, server) = duplex(64 << 10);
        let begun = Instant::now();
        let served = tokio::spawn(answer(server, router, Arc::new(Connection::trusted(String::new())), 0));
        client.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        served.await.unwrap();
        (answer, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_told_once_and_the_next_one_again() {
        let (mut outage, error) = (Outage::default(), io::Error::from_raw_os_error(24));
        outage.pause(&error).await;
        assert!(!outage.begins(), "the log has it already");
        outage.end();
        assert!(outage.begins());
    }

    #[tokio::test]
    async fn an_address_that_sends_nothing_makes_no_other_wait() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", put(async || "read"));
        tokio::spawn(accept_metrics(listener, vec!["127.0.0.0/8".parse().unwrap()], router));
        let mut silent = Vec::new();
        for _ in 0..16 * MAX_ADDRESS_STRANGERS {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
            silent.push(socket.connect(address).await.unwrap());
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        // One after the other they would have had a place in 30 s.
        timeout(std::time::Duration::from_secs(20), client.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn headers_and_bodies_that_do_not_come_are_waited_for_no_longer_than_the_limit() {
        let head = "PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n";
        assert_eq!(silent_after("").await.1, HEADER_TIMEOUT);
        assert_eq!(silent_after(head).await.1, HEADER_TIMEOUT);
        let (answer, time) = silent_after(&format!("{head}Content-Length: 9\r\n\r\n{{")).await;
        assert_eq!(time, BODY_TIMEOUT);
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn handshakes_that_do_not_come_are_waited_for_no_longer_than_the_limit() {
        let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(identity.signing_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![identity.cert.der().clone()], key).unwrap();
        let (_client, server) = duplex(64);
        let begun = Instant::now();
        let error = shake_hands(&Arc::new(config).into(), server).await.err().unwrap();
        assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, HANDSHAKE_TIMEOUT));
    }
}
