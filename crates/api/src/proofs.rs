//! The proofs of clients that come over TCP: a token, or else a certificate.
//!
//! A browser shows its certificate with every request, whoever makes it send that. So a certificate counts for no
//! request that a page of another site has made.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

use crate::callers::{Caller, Grant};
use crate::health::{Cause, Subject};
use crate::listen::Connection;
use crate::problem::Problem;
use crate::server::Server;
use crate::tokens::{Sha256Digest, TokenFile};

/// The certificates of a port: the server's own, and what those of clients are good for.
pub trait Certificates: Send + Sync {
    /// The configuration for the next connection.
    fn config(&self) -> Arc<ServerConfig>;

    /// Whether a peer may begin one more handshake, which counts then.
    fn may_begin(&self, peer: SocketAddr) -> bool {
        let _ = peer;
        true
    }

    /// The grant of a client that has shown these certificates, its own first. It is asked with each request, because
    /// they may be revoked or end while the connection is open.
    fn grant(&self, shown: &[CertificateDer<'_>]) -> Option<Grant>;
}

/// A server that asks for no certificates.
impl Certificates for Arc<ServerConfig> {
    fn config(&self) -> Arc<ServerConfig> {
        Self::clone(self)
    }

    fn grant(&self, _: &[CertificateDer<'_>]) -> Option<Grant> {
        None
    }
}

/// The certificates that the client of a connection has shown, as its requests know them.
pub(crate) type Shown = Arc<[CertificateDer<'static>]>;

/// The proofs that a port takes, and where it is told that the file of tokens cannot be read.
#[derive(Clone)]
pub(crate) struct Guard {
    tokens: Option<TokenFile>,
    certificates: Arc<dyn Certificates>,
    server: Arc<dyn Server>,
    /// The port.
    subject: Subject,
}

impl Guard {
    pub(crate) fn new(
        tokens: Option<TokenFile>,
        certificates: Arc<dyn Certificates>,
        server: Arc<dyn Server>,
        address: SocketAddr,
    ) -> Self {
        Self { tokens, certificates, server, subject: Subject::Api(address.to_string()) }
    }

    /// The grant of a proof, if it holds now.
    async fn find(&self, proof: &By) -> Result<Option<Grant>, Problem> {
        match proof {
            By::Token(token) => self.find_token(token).await,
            By::Certificate(shown) => Ok(self.certificates.grant(shown)),
        }
    }

    /// The grant of a token, if the file holds it now. Without the file no token holds, which is told.
    async fn find_token(&self, token: &Sha256Digest) -> Result<Option<Grant>, Problem> {
        let Some(tokens) = &self.tokens else { return Ok(None) };
        let found = tokens.find(token).await;
        if let Some(health) = self.server.health() {
            match &found {
                Ok(_) => health.clear(&self.subject, Cause::NotOpened),
                Err(error) => {
                    let text = format!("no token is accepted, {}: {error}", tokens.path().display());
                    health.report(self.subject.clone(), Cause::NotOpened, text);
                }
            }
        }
        found.map_err(|_| Problem::unavailable("the tokens cannot be read; the server's log says why"))
    }
}

/// The means by which a client proves itself.
#[derive(Clone)]
enum By {
    Token(Sha256Digest),
    Certificate(Shown),
}

/// The proof that the client of a request has given, for answers that go on.
#[derive(Clone)]
pub(crate) struct Proof {
    guard: Guard,
    by: By,
    grant: Grant,
}

impl Proof {
    /// Whether the proof grants now what it granted then.
    pub(crate) async fn holds(&self) -> bool {
        self.guard.find(&self.by).await.is_ok_and(|grant| grant.as_ref() == Some(&self.grant))
    }
}

/// Lets requests with a proof pass, and those that ask whether the API answers.
pub(crate) async fn require_proof(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    if request.uri().path() == "/healthz" {
        return next.run(request).await;
    }
    let by = given(&request);
    let found = match &by {
        Some(by) => guard.find(by).await,
        None => Ok(None),
    };
    match found.map(|grant| by.zip(grant)) {
        Ok(Some((by, grant))) => {
            let is_ambient = matches!(by, By::Certificate(_));
            if is_ambient && let Err(problem) = check_site(request.method(), request.headers()) {
                return problem.into_response();
            }
            let connection = request.extensions().get::<Arc<Connection>>();
            // A request that comes from no connection is the login's, which asks whether the token holds.
            if let Some(Err(problem)) = connection.map(|connection| connection.prove()) {
                return problem.into_response();
            }
            let from = connection.map_or_else(|| "the login".into(), |connection| connection.peer().to_owned());
            request.extensions_mut().insert(Arc::new(Caller::granted(grant.clone(), from)));
            request.extensions_mut().insert(Proof { guard, by, grant });
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
        Ok(None) => {
            let mut refused = Problem::unauthorized(
                "send Authorization: Bearer TOKEN, with a token of the server's file, or show a certificate of a client that the server knows",
            );
            refused.title = "a token is needed".into();
            let mut response = refused.into_response();
            response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
            response
        }
    }
}

/// The proof in a request: its token, and without one the certificate of its connection.
fn given(request: &Request) -> Option<By> {
    let Some(value) = request.headers().get(header::AUTHORIZATION) else {
        let shown = request.extensions().get::<Shown>();
        return shown.filter(|shown| !shown.is_empty()).map(|shown| By::Certificate(Arc::clone(shown)));
    };
    let token = value.to_str().ok()?.strip_prefix("Bearer ")?;
    Some(By::Token(Sha256::digest(token).into()))
}

/// Refuses requests that a browser sends for another site. The headers are those of browsers: other clients send none
/// of them.
///
/// A link of another site may lead here. A change has to come from a script of this site, with a header that no form
/// can send.
fn check_site(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let fetch = |name: &'static str| text(HeaderName::from_static(name));
    let (site, origin) = (fetch("sec-fetch-site"), text(header::ORIGIN));
    let is_link =
        method.is_safe() && fetch("sec-fetch-mode") == Some("navigate") && fetch("sec-fetch-dest") == Some("document");
    let host = text(header::HOST).unwrap_or_default();
    let is_own_origin = origin.is_none_or(|origin| origin.strip_prefix("https://") == Some(host));
    let is_own = is_own_origin && (is_link || site.is_none_or(|site| site == "same-origin" || site == "none"));
    let is_browser = site.is_some() || origin.is_some();
    let is_of_script = method.is_safe() || !is_browser || headers.contains_key("hx-request");
    if is_own && is_of_script {
        return Ok(());
    }
    Err(Problem {
        status: StatusCode::FORBIDDEN.as_u16(),
        title: "a request of another site".into(),
        detail: "a certificate of the browser is good for pages of this server alone; open the console itself, or send a token".into(),
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn check(method: &Method, pairs: &[(&'static str, &'static str)]) -> bool {
        let pairs = [&[("host", "gw1:8443")], pairs].concat().into_iter();
        let headers = pairs.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        check_site(method, &headers.collect()).is_ok()
    }

    const OWN: (&str, &str) = ("origin", "https://gw1:8443");
    const HTMX: (&str, &str) = ("hx-request", "true");
    const SAME: (&str, &str) = ("sec-fetch-site", "same-origin");
    const CROSS: (&str, &str) = ("sec-fetch-site", "cross-site");

    #[test]
    fn what_is_no_browser_may_send_everything() {
        for method in [Method::GET, Method::PUT, Method::POST, Method::DELETE] {
            assert!(check(&method, &[]), "{method}");
        }
    }

    #[test]
    fn a_change_of_a_browser_comes_from_a_script_of_this_site() {
        for method in [Method::PUT, Method::POST, Method::PATCH, Method::DELETE] {
            assert!(check(&method, &[OWN, SAME, HTMX]), "{method}");
            assert!(check(&method, &[OWN, HTMX]), "{method}: an old browser");
            for wrong in [
                &[OWN, SAME][..],
                &[SAME],
                &[OWN],
                &[CROSS, HTMX],
                &[OWN, CROSS, HTMX],
                &[("sec-fetch-site", "same-site"), HTMX],
                &[("origin", "https://evil.example"), HTMX],
                &[("origin", "http://gw1:8443"), HTMX],
                &[("origin", "https://gw1"), HTMX],
                &[("origin", "null"), HTMX],
                &[("origin", ""), HTMX],
                &[("sec-fetch-site", ""), HTMX],
            ] {
                assert!(!check(&method, wrong), "{method}: {wrong:?}");
            }
        }
    }

    #[test]
    fn another_site_may_lead_here_and_reads_nothing() {
        let (navigate, document) = (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"));
        assert!(check(&Method::GET, &[SAME]));
        assert!(check(&Method::GET, &[("sec-fetch-site", "none"), navigate, document]));
        assert!(check(&Method::GET, &[CROSS, navigate, document]), "a link");
        for wrong in [
            &[CROSS][..],
            &[CROSS, ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")],
            &[CROSS, navigate, ("sec-fetch-dest", "iframe")],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "https://evil.example")],
        ] {
            assert!(!check(&Method::GET, wrong), "{wrong:?}");
        }
        assert!(!check(&Method::POST, &[CROSS, navigate, document, HTMX]), "a form");
    }
}
