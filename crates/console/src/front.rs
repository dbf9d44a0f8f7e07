//! The checks before console and API: which requests are answered at all, and which browser has logged in.
//!
//! A browser sends requests to this server for any page that asks it to. Three things tell a request of the console
//! from one of another site:
//!
//! - **Host.** Where no token is asked for, a page whose name was made to lead here (DNS rebinding) would be this
//!   server's own to the browser. So such a place answers to `localhost` and to addresses only. Where tokens are asked
//!   for, the certificate vouches for the name, and the cookie stays with it.
//! - **Origin and Sec-Fetch-Site.** A change that a browser sends for another site is refused.
//! - **HX-Request.** A change with a cookie needs this header, which no form can send and no other site may.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Form, FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use lunette_api::{Access, Problem, read_body};
use serde::Deserialize;
use tower::ServiceExt;
use zeroize::Zeroizing;

use crate::assets;
use crate::limits::{LOGIN_LIFETIME, MAX_LOGIN_BYTES};
use crate::logins::Logins;
use crate::pages;

/// The path of the login.
const LOGIN: &str = "/console/login";

/// Answers only requests with a valid token. The login asks here whether a token is valid.
pub(crate) const PROBE: &str = "/console/authorized";

/// `__Host-`: browsers take it only over TLS, and from this host alone.
const COOKIE: &str = "__Host-lunette";

/// Scripts, styles and connections of this server alone; nothing inline, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Headers of every answer. Without a referrer of the same origin, forms would have no Origin.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

#[derive(Clone)]
struct Front {
    access: Access,
    logins: Arc<Logins>,
    /// The pages and the API, behind the check of tokens.
    inner: Router,
}

/// Puts the login and the checks of browsers before `inner`: the pages and the API, behind the check of tokens where
/// there is one.
pub(crate) fn front(inner: Router, access: Access) -> Router {
    let state = Front { access, logins: Arc::default(), inner: inner.clone() };
    let mut routes = Router::new().route("/console/assets/{file}", get(assets::get));
    if access == Access::Tokens {
        routes = routes.route(LOGIN, get(async || pages::login(None)).post(begin)).route("/console/logout", post(end));
    }
    routes
        .with_state(state.clone())
        .fallback_service(inner)
        .layer(from_fn_with_state(state, guard))
        .layer(middleware::map_response(harden))
}

/// Refuses requests of other sites, and gives those that are logged in their token.
async fn guard(State(front): State<Front>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    if let Err(problem) = check_host(front.access, headers).and_then(|()| check_site(request.method(), headers)) {
        return problem.into_response();
    }
    let (is_htmx, is_page) = (headers.contains_key("hx-request"), is_page(request.method(), request.uri()));
    if !headers.contains_key(header::AUTHORIZATION) && (request.method().is_safe() || is_htmx) {
        let token = cookie(headers).and_then(|cookie| front.logins.token(cookie, Instant::now()));
        if let Some(token) = token.and_then(|token| bearer(&token)) {
            request.headers_mut().insert(header::AUTHORIZATION, token);
        }
    }
    let mut response = next.run(request).await;
    if front.access == Access::Tokens && response.status() == StatusCode::UNAUTHORIZED {
        if is_htmx {
            response.headers_mut().insert("hx-redirect", HeaderValue::from_static(LOGIN));
        } else if is_page {
            return Redirect::to(LOGIN).into_response();
        }
    }
    response
}

async fn harden(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Whether the request is for a page of the console.
fn is_page(method: &Method, uri: &Uri) -> bool {
    method == Method::GET && (uri.path() == "/" || uri.path().starts_with("/console")) && uri.path() != LOGIN
}

fn check_host(access: Access, headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers.get(header::HOST).map(|host| host.to_str().unwrap_or_default()).unwrap_or_default();
    if access == Access::Tokens || is_local(host) {
        return Ok(());
    }
    Err(Problem {
        status: StatusCode::MISDIRECTED_REQUEST.as_u16(),
        title: "not the name of this server".into(),
        detail: "the Host of the request is neither localhost nor an address; open the console at one of these".into(),
    })
}

/// Whether a Host is `localhost` or an address, with or without a port.
fn is_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<axum::http::uri::Authority>() else { return false };
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<std::net::IpAddr>().is_ok()
}

/// Refuses changes that a browser sends for another site. Other clients send neither header.
fn check_site(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if method.is_safe() {
        return Ok(());
    }
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let site = text(&HeaderName::from_static("sec-fetch-site"));
    let origin = text(&header::ORIGIN).map(|origin| origin.split_once("://").map(|(_, authority)| authority));
    let is_own = site.is_none_or(|site| site == "same-origin" || site == "none")
        && origin.is_none_or(|origin| origin.is_some() && origin == text(&header::HOST));
    if is_own {
        return Ok(());
    }
    Err(Problem {
        status: StatusCode::FORBIDDEN.as_u16(),
        title: "a request of another site".into(),
        detail: "the page that has sent this change is not one of this server; open the console itself".into(),
    })
}

/// The value of the console's cookie.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The form of a login.
#[derive(Deserialize)]
struct Login {
    token: String,
}

/// The token in the form of a login, which comes whole and in time or not at all.
async fn read_token(request: Request) -> Result<Zeroizing<String>, Response> {
    let (head, body) = request.into_parts();
    let body = read_body(body, MAX_LOGIN_BYTES).await.map_err(IntoResponse::into_response)?;
    let form = Form::from_request(Request::from_parts(head, body.into()), &()).await;
    let Form(Login { token }) = form.map_err(IntoResponse::into_response)?;
    let token = Zeroizing::new(token);
    Ok(Zeroizing::new(token.trim().to_owned()))
}

/// Asks the API whether the token holds, and keeps it behind a cookie.
async fn begin(State(front): State<Front>, request: Request) -> Response {
    let token = match read_token(request).await {
        Ok(token) => token,
        Err(refused) => return refused,
    };
    let status = match bearer(&token) {
        None => StatusCode::UNAUTHORIZED,
        Some(token) => {
            let mut probe = Request::new(Body::empty());
            *probe.uri_mut() = Uri::from_static(PROBE);
            probe.headers_mut().insert(header::AUTHORIZATION, token);
            match front.inner.oneshot(probe).await {
                Ok(response) => response.status(),
                Err(never) => match never {},
            }
        }
    };
    let why = match status {
        status if status.is_success() => match front.logins.begin(token, Instant::now()) {
            Ok(cookie) => return (set_cookie(&cookie, LOGIN_LIFETIME.as_secs()), Redirect::to("/")).into_response(),
            Err(_) => "The system gives no random numbers. Try again.",
        },
        StatusCode::UNAUTHORIZED => "This token does not hold. Use one of the server's file of tokens.",
        _ => "The server cannot check tokens now. Its log says why.",
    };
    let status = if status.is_success() { StatusCode::SERVICE_UNAVAILABLE } else { status };
    (status, pages::login(Some(why))).into_response()
}

/// Logs the browser out.
async fn end(State(front): State<Front>, headers: HeaderMap) -> Response {
    if let Some(cookie) = cookie(&headers) {
        front.logins.end(cookie);
    }
    (set_cookie("", 0), Redirect::to(LOGIN)).into_response()
}

fn set_cookie(value: &str, seconds: u64) -> [(HeaderName, String); 1] {
    [(header::SET_COOKIE, format!("{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={seconds}"))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_localhost_and_addresses_are_local() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:80", "[::1]", "[fe80::1]:8080", "192.0.2.1"] {
            assert!(is_local(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "1.2.3.4.5", "[::1"]
        {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn changes_come_from_the_site_itself() {
        let check = |method: Method, pairs: &[(&'static str, &'static str)]| {
            let headers =
                pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            check_site(&method, &headers.collect()).is_ok()
        };
        let host = ("host", "localhost:8080");
        assert!(check(Method::PUT, &[host]));
        assert!(check(Method::PUT, &[host, ("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")]));
        assert!(check(Method::GET, &[host, ("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")]));
        for origin in ["http://evil.example", "http://localhost", "http://localhost:8081", "null", ""] {
            assert!(!check(Method::PUT, &[host, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "x"] {
            assert!(!check(Method::DELETE, &[host, ("sec-fetch-site", site)]), "{site}");
        }
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let headers = |text: &'static str| HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static(text))]);
        assert_eq!(cookie(&headers("a=1; __Host-lunette=xyz; b=2")), Some("xyz"));
        assert_eq!(cookie(&headers("lunette=xyz; a__Host-lunette=1")), None);
    }
}
