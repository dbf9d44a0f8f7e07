//! Tests of refusals and of the login.

use axum::http::{StatusCode, header};
use lunette_api::Access;
use lunette_console::limits::MAX_LOGIN_BYTES;

use crate::fake::{Answer, Fake, TOKEN, send};
use crate::pages::pages;

const JSON: (&str, &str) = ("content-type", "application/json");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// The cookie that an answer sets, as a browser sends it back.
fn cookie(answer: &Answer) -> String {
    let set = answer.headers.get(header::SET_COOKIE).unwrap().to_str().unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Secure", "Path=/"] {
        assert!(set.contains(attribute), "{set}");
    }
    set.split(';').next().unwrap().into()
}

#[tokio::test]
async fn a_place_without_tokens_answers_to_no_foreign_name() {
    let router = Fake::new().router(Access::Open);
    for path in ["/", "/v1/targets", "/metrics", "/console/assets/console.js"] {
        let evil = send(&router, "GET", path, &[("host", "evil.example:8080")], "").await;
        assert_eq!(evil.status, StatusCode::MISDIRECTED_REQUEST, "{path}");
        let own = send(&router, "GET", path, &[("host", "127.0.0.1:8080")], "").await;
        assert_eq!(own.status, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn changes_of_other_sites_are_refused() {
    let fake = Fake::new();
    let router = fake.router(Access::Open);
    for foreign in [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        for (method, path) in [("DELETE", "/v1/sessions/7"), ("PUT", "/v1/targets/iqn.b")] {
            let answer = send(&router, method, path, &[JSON, foreign], "{}").await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{foreign:?} {method}");
        }
    }
    assert!(fake.take_calls().is_empty());
    let own = [("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")];
    assert_eq!(send(&router, "DELETE", "/v1/sessions/7", &own, "").await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn all_answers_carry_the_policy() {
    for access in [Access::Open, Access::Tokens] {
        let router = Fake::new().router(access);
        for path in pages().iter().map(String::as_str).chain(["/console/login", "/v1/targets", "/none"]) {
            let answer = send(&router, "GET", path, &[], "").await;
            let policy = answer.headers.get(header::CONTENT_SECURITY_POLICY).unwrap().to_str().unwrap();
            assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
            assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
            assert_eq!(answer.headers.get(header::X_CONTENT_TYPE_OPTIONS).unwrap(), "nosniff", "{path}");
            assert_eq!(answer.headers.get(header::CACHE_CONTROL).unwrap(), "no-store", "{path}");
        }
    }
}

#[tokio::test]
async fn pages_lead_to_the_login_and_the_api_refuses() {
    let router = Fake::new().router(Access::Tokens);
    for page in pages() {
        let answer = send(&router, "GET", &page, &[], "").await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{page}");
        assert_eq!(answer.headers.get(header::LOCATION).unwrap(), "/console/login");
    }
    let answer = send(&router, "GET", "/v1/targets", &[], "").await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    let answer = send(&router, "GET", "/console/sessions", &[("hx-request", "true")], "").await;
    assert_eq!(
        (answer.status, answer.headers.get("hx-redirect").unwrap()),
        (StatusCode::UNAUTHORIZED, &"/console/login".parse().unwrap())
    );
    assert_eq!(send(&router, "GET", "/console/login", &[], "").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_token_opens_a_login_until_it_is_closed() {
    let fake = Fake::new();
    let router = fake.router(Access::Tokens);
    for wrong in ["token=wrong", "token=", "token=%0d%0a", "token=%00"] {
        let answer = send(&router, "POST", "/console/login", &[FORM], wrong).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{wrong}");
        assert!(answer.headers.get(header::SET_COOKIE).is_none());
    }
    let answer = send(&router, "POST", "/console/login", &[FORM], &format!("token={TOKEN}")).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    let cookie = cookie(&answer);
    assert!(!cookie.contains(TOKEN));
    let held = ("cookie", cookie.as_str());
    for page in pages() {
        let answer = send(&router, "GET", &page, &[held], "").await;
        assert!(answer.text.contains("Log out") && !answer.text.contains(TOKEN), "{page}");
    }
    // A form of this site cannot change anything with the cookie alone.
    let bare = send(&router, "DELETE", "/v1/sessions/7", &[held], "").await;
    assert_eq!(bare.status, StatusCode::UNAUTHORIZED);
    let button = send(&router, "DELETE", "/v1/sessions/7", &[held, ("hx-request", "true")], "").await;
    assert_eq!(button.status, StatusCode::ACCEPTED);
    assert_eq!(fake.take_calls(), ["end"]);
    let out = send(&router, "POST", "/console/logout", &[held, FORM], "").await;
    assert_eq!(out.status, StatusCode::SEE_OTHER);
    assert_eq!(send(&router, "GET", "/", &[held], "").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_login_of_another_site_is_refused() {
    let router = Fake::new().router(Access::Tokens);
    let body = format!("token={TOKEN}");
    let answer = send(&router, "POST", "/console/login", &[FORM, ("origin", "https://evil.example")], &body).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn the_form_of_a_login_is_bounded() {
    let router = Fake::new().router(Access::Tokens);
    let body = format!("token={}", "x".repeat(MAX_LOGIN_BYTES));
    let answer = send(&router, "POST", "/console/login", &[FORM], &body).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn files_of_the_browser_need_no_login() {
    let router = Fake::new().router(Access::Tokens);
    let page = send(&router, "GET", "/console/login", &[], "").await.text;
    let files: Vec<&str> = page.split('"').filter(|text| text.starts_with("/console/assets/")).collect();
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        let answer = send(&router, "GET", file, &[], "").await;
        assert_eq!(answer.status, StatusCode::OK, "{file}");
        assert!(answer.headers.get(header::CACHE_CONTROL).unwrap().to_str().unwrap().contains("immutable"));
    }
    assert_eq!(send(&router, "GET", "/console/assets/..%2Fsrc%2Flib.rs", &[], "").await.status, StatusCode::NOT_FOUND);
}
