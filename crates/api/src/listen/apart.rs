//! A port for other routes than those of the API, whose clients have one account (Basic authentication, RFC 7617).
//!
//! Connections have the bounds of those to the API.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::ServerConfig;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio_rustls::TlsAcceptor;

use super::shares::{Connection, Shares};
use super::{Outage, accept, answer, in_its_place, shake_hands};
use crate::limits::{MAX_BUSY_CHANGES, MAX_BUSY_REQUESTS, MAX_STRANGER_BYTES};
use crate::problem::Problem;

/// The scheme of the header that proves a client.
const SCHEME: &str = "Basic";

/// The configuration of TLS for the next connection.
pub type ServerTls = Box<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// The account of all clients of a port.
#[derive(Clone)]
pub struct Account {
    /// The name of the place in the log.
    name: Arc<str>,
    /// The digest of what the header has behind its scheme.
    proof: [u8; 32],
    refuse: fn(Problem) -> Response,
}

impl Account {
    /// The account of a user. `name` is what the log calls the place, and `refuse` writes what those clients get that
    /// send no proof.
    pub fn new(name: &str, user: &str, password: &str, refuse: fn(Problem) -> Response) -> Self {
        let proof = Sha256::digest(BASE64_STANDARD.encode(format!("{user}:{password}"))).into();
        Self { name: name.into(), proof, refuse }
    }

    /// Whether a header is the proof. Takes the same time for each wrong one.
    fn has_sent(&self, header: Option<&HeaderValue>) -> bool {
        let sent = header.and_then(|value| value.to_str().ok()).unwrap_or_default();
        // Schemes have no case (RFC 9110 section 11.1).
        let is_basic = |scheme: &str| scheme.eq_ignore_ascii_case(SCHEME);
        let proof = sent.split_once(' ').filter(|(scheme, _)| is_basic(scheme)).map_or("", |(_, proof)| proof);
        let digest: [u8; 32] = Sha256::digest(proof).into();
        digest.ct_eq(&self.proof).into()
    }
}

/// Serves routes at a port, on a thread of their own, until the process ends. Each request needs the proof of the
/// account. Without `tls` the password is sent as a clear text.
///
/// # Errors
///
/// When the thread cannot be had.
pub fn serve_apart(listener: TcpListener, tls: Option<ServerTls>, account: Account, routes: Router) -> io::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(MAX_BUSY_REQUESTS + MAX_BUSY_CHANGES).build()?;
    let name = format!("lunette-{}", account.name);
    let router = routes.layer(from_fn_with_state(account, require_account));
    listener.set_nonblocking(true)?;
    let context = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    drop(context);
    let run = move || runtime.block_on(accept_all(listener, tls, router));
    thread::Builder::new().name(name).spawn(run).map(drop)
}

async fn accept_all(listener: tokio::net::TcpListener, tls: Option<ServerTls>, router: Router) {
    let (shares, mut outage) = (Shares::default(), Outage::default());
    loop {
        let (stream, peer) = accept(&listener, &mut outage).await;
        let router = router.clone();
        match tls.as_ref().map(|tls| TlsAcceptor::from(tls())) {
            None => {
                let serve = move |connection| answer(stream, router, connection, MAX_STRANGER_BYTES);
                admit(&shares, peer, serve);
            }
            Some(tls) => admit(&shares, peer, async move |connection| match shake_hands(&tls, stream).await {
                Ok(stream) => answer(stream, router, connection, MAX_STRANGER_BYTES).await,
                Err(error) => tracing::warn!(%peer, %error, "a TLS handshake has failed"),
            }),
        }
    }
}

fn admit<F: Future<Output = ()> + Send + 'static>(
    shares: &Shares,
    peer: SocketAddr,
    serve: impl FnOnce(Arc<Connection>) -> F + Send + 'static,
) {
    tokio::spawn(in_its_place(shares.clone(), peer, serve));
}

/// Lets requests pass that have the proof of the account.
async fn require_account(State(account): State<Account>, request: Request, next: Next) -> Response {
    let connection = request.extensions().get::<Arc<Connection>>();
    if !account.has_sent(request.headers().get(header::AUTHORIZATION)) {
        // The log has a bound for lines of peers.
        let peer = connection.map_or("", |connection| connection.peer());
        tracing::warn!(peer, "{}: a request without the right user and password is refused", account.name);
        let mut refused = (account.refuse)(Problem::unauthorized("send the user and the password of this place"));
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"lunette\""));
        return refused;
    }
    if let Some(Err(problem)) = connection.map(|connection| connection.prove()) {
        return (account.refuse)(problem).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn requests_without_the_account_are_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let account = Account::new("test", "Aladdin", "open sesame", IntoResponse::into_response);
        serve_apart(listener, None, account, Router::new().fallback(async || "let in")).unwrap();
        let ask = |method: &str, proof: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "{method} /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{proof}\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.to_ascii_lowercase()
        };
        for method in ["GET", "PUT"] {
            for wrong in ["", "Authorization: Basic QWxhZGRpbjpjbG9zZSBzZXNhbWU=\r\n"] {
                let answer = ask(method, wrong);
                assert!(answer.starts_with("http/1.1 401 "), "{method} {wrong:?}: {answer}");
                assert!(answer.contains("www-authenticate: basic realm=") && !answer.contains("let in"), "{answer}");
            }
            let answer = ask(method, "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n");
            assert!(answer.starts_with("http/1.1 200 ") && answer.ends_with("let in"), "{method}: {answer}");
        }
    }

    #[test]
    fn the_proof_is_that_of_rfc_7617() {
        let account = Account::new("test", "Aladdin", "open sesame", IntoResponse::into_response);
        let header = |text: &'static str| HeaderValue::from_static(text);
        for right in ["Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="] {
            assert!(account.has_sent(Some(&header(right))), "{right}");
        }
        for wrong in ["", "Basic", "Basic ", "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ"]
        {
            assert!(!account.has_sent(Some(&header(wrong))), "{wrong}");
        }
        assert!(!account.has_sent(None));
    }
}
