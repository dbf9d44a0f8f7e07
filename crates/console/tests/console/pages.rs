//! Tests of the contents of pages.

use axum::http::StatusCode;
use lunette_api::{Access, Caller, Server};

use crate::fake::{Fake, HOSTILE, PASSWORD, TARGET, send};

/// All pages of the fake server.
pub(crate) fn pages() -> Vec<String> {
    let mut pages: Vec<String> = [
        "/",
        "/console/targets",
        "/console/disks",
        "/console/volumes",
        "/console/volumes/tank/golden",
        "/console/hosts",
        "/console/sessions",
        "/console/jobs",
        "/console/sessions?q=%22%3E%3Cscript%3E",
        "/console/config",
        "/console/events",
        "/console/targets/iqn.x:hostile%3F%23%25",
        "/console/targets/iqn.2026-11.org.example:main",
        "/console/targets/%3Cscript%3E",
    ]
    .map(String::from)
    .to_vec();
    pages.push(format!("/console/targets/{TARGET}"));
    pages.push(format!("/console/targets/{TARGET}/hosts/node-a"));
    pages.push(format!("/console/targets/{TARGET}/hosts/%3Cscript%3E"));
    pages
}

/// The values of an attribute, unescaped.
fn attributes(page: &str, name: &str) -> Vec<String> {
    let begin = format!(" {name}=\"");
    let values = page.split(begin.as_str()).skip(1).filter_map(|rest| rest.split('"').next());
    values
        .map(|value| value.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        .collect()
}

/// The buttons of a page: method, path, and the headers of the precondition.
fn buttons(page: &str) -> Vec<(&'static str, String, Option<String>)> {
    let tags = page.split("<button").skip(1).filter_map(|rest| rest.split('>').next());
    let button = |tag: &str| {
        let value = |name: &str| attributes(tag, name).pop();
        let (method, path) = [("PUT", "hx-put"), ("DELETE", "hx-delete"), ("POST", "hx-post")]
            .into_iter()
            .find_map(|(method, name)| Some((method, value(name)?)))?;
        Some((method, path, value("hx-headers")))
    };
    tags.filter_map(button).collect()
}

#[tokio::test]
async fn each_button_is_one_request_of_the_api() {
    let mut pressed = 0;
    for page in pages() {
        let shown = send(&Fake::new().router(Access::Open), "GET", &page, &[], "").await;
        for (method, path, condition) in buttons(&shown.text) {
            // A server of its own for each button: none finds what another one has changed.
            let fake = Fake::new();
            let path = path
                .replace("{name}", "iqn.2026-11.org.example:new")
                .replace("{number}", "5")
                .replace("{address}", "192.0.2.5:3260");
            let condition: serde_json::Value = serde_json::from_str(condition.as_deref().unwrap_or("{}")).unwrap();
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(
                condition.as_object().unwrap().iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())),
            );
            let body = match (method, path.as_str()) {
                ("DELETE", _) => "",
                (_, "/v1/snapshots") => r#"{ "volumes": ["tank/golden"], "name": "v3" }"#,
                _ => "{}",
            };
            let answer = send(&fake.router(Access::Open), method, &path, &headers, body).await;
            assert!(answer.status.is_success(), "{page}: {method} {path}: {} {}", answer.status, answer.text);
            let calls = fake.take_calls().len();
            // A job is cancelled without the server.
            assert_eq!(calls, usize::from(!path.ends_with("/actions/cancel")), "{page}: {method} {path}");
            pressed += 1;
        }
    }
    assert!(pressed > 20, "{pressed} buttons were found");
}

#[tokio::test]
async fn a_button_changes_only_what_the_page_shows() {
    let fake = Fake::new();
    let router = fake.router(Access::Open);
    let page = send(&router, "GET", &format!("/console/targets/{TARGET}/hosts/node-a"), &[], "").await;
    let (method, path, condition) = buttons(&page.text).swap_remove(0);
    let condition: serde_json::Value = serde_json::from_str(&condition.unwrap()).unwrap();
    let headers = [("content-type", "application/json"), ("if-match", condition["If-Match"].as_str().unwrap())];
    let first = send(&router, method, &path, &headers, "{\"read_only\":true}").await;
    assert_eq!(first.status, StatusCode::OK);
    let second = send(&router, method, &path, &headers, "{}").await;
    assert_eq!(second.status, StatusCode::PRECONDITION_FAILED);
}

#[tokio::test]
async fn a_pool_tells_the_quota_of_the_client() {
    let shown = send(&Fake::new().router(Access::Open), "GET", "/console/volumes", &[], "").await;
    assert!(shown.text.contains("Your volumes have 40 GiB of the 48 GiB of your quota."), "{}", shown.text);
}

#[tokio::test]
async fn every_button_has_its_line_of_the_command() {
    let router = Fake::new().router(Access::Open);
    for page in pages() {
        let shown = send(&router, "GET", &page, &[], "").await;
        let lines: usize =
            ["lunette ctl ", "lunette volume "].map(|line| shown.text.matches(line).count()).iter().sum();
        assert!(lines >= buttons(&shown.text).len(), "{page}");
    }
}

#[tokio::test]
async fn texts_of_others_are_escaped_and_nothing_is_inline() {
    let router = Fake::new().router(Access::Open);
    let mut seen = 0;
    for page in pages() {
        let shown = send(&router, "GET", &page, &[], "").await.text;
        seen += shown.matches("&lt;script&gt;alert(1)").count();
        assert!(!shown.contains(HOSTILE) && !shown.contains("<script>alert"), "{page}");
        for tag in shown.split('<').skip(1).filter_map(|rest| rest.split('>').next()) {
            assert!(!tag.starts_with("script") || tag.contains("src=\"/console/assets/"), "{page}: {tag}");
            assert!(!tag.starts_with("style"), "{page}: {tag}");
            assert!(attributes(tag, "style").is_empty(), "{page}: {tag}");
            for attribute in ["onclick", "onload", "onerror", "onsubmit", "hx-on", "hx-vals"] {
                assert!(attributes(tag, attribute).is_empty(), "{page}: {tag}");
            }
        }
    }
    assert!(seen > 10, "the hostile text was on pages {seen} times");
}

#[tokio::test]
async fn no_page_shows_a_password() {
    let fake = Fake::new();
    let router = fake.router(Access::Open);
    for page in pages() {
        let shown = send(&router, "GET", &page, &[], "").await.text;
        assert!(!shown.contains(PASSWORD), "{page}");
    }
    assert!(format!("{:?}", fake.catalog()).contains(PASSWORD));
}

#[tokio::test]
async fn objects_of_the_main_file_have_no_buttons() {
    let router = Fake::new().router(Access::Open);
    let shown = send(&router, "GET", "/console/targets/iqn.2026-11.org.example:main", &[], "").await.text;
    assert!(buttons(&shown).is_empty() && shown.contains("/etc/lunette/lunette.toml"));
}

#[tokio::test]
async fn what_is_not_there_is_a_page_that_says_so() {
    let router = Fake::new().router(Access::Open);
    let answer = send(&router, "GET", "/console/targets/iqn.none", &[], "").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(answer.text.contains("there is no target iqn.none") && answer.text.contains("<nav"));
}

#[tokio::test]
async fn a_panic_costs_one_page() {
    let fake = Fake::new();
    let router = fake.router(Access::Open);
    fake.break_down();
    let answer = send(&router, "GET", "/console/sessions", &[], "").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer.text.contains("<nav") && !answer.text.contains("meant to happen"));
    assert_eq!(send(&router, "GET", "/console/hosts", &[], "").await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_charts_read_numbers_by_unit() {
    let router = Fake::new().router(Access::Open);
    send(&router, "GET", "/console/numbers", &[], "").await;
    let answer = send(&router, "GET", "/console/numbers", &[], "").await;
    let numbers: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(numbers["luns"][0]["target"], TARGET);
    assert_eq!(numbers["luns"][0]["read"]["commands"], 2000.);
    assert_eq!(numbers["all"]["write"]["bytes"], 65_536_000.);
}

#[tokio::test]
async fn a_client_of_some_targets_sees_these_alone() {
    let caller = Caller { targets: Some(vec![TARGET.into()]), ..Caller::admin("t", "here") };
    let router = Fake::plain().router_for(Access::Open, caller);
    let others = ["iqn.2026-11.org.example:main", "iqn.x:hostile", "[::1]:3260"];
    for page in pages() {
        let shown = send(&router, "GET", &page, &[], "").await;
        let is_other = others.iter().any(|other| page.contains(other));
        let known = [StatusCode::OK, StatusCode::NOT_FOUND];
        assert!(known.contains(&shown.status) && (!is_other || shown.status == known[1]), "{page}: {}", shown.status);
        // A page that is not there says what was asked for.
        assert!(is_other || !others.iter().any(|other| shown.text.contains(other)), "{page}: {}", shown.text);
    }
    for page in ["/console/targets", "/console/disks", "/console/hosts", "/console/sessions", "/console/jobs"] {
        assert!(send(&router, "GET", page, &[], "").await.text.contains(TARGET), "{page}");
    }
}

#[tokio::test]
async fn volumes_show_the_state_of_pools_and_the_times_of_snapshots() {
    let router = Fake::new().router(Access::Open);
    let list = send(&router, "GET", "/console/volumes", &[], "").await.text;
    assert!(list.contains("optimum=\"0\""), "the bar of a pool that is low is no good sign: {list}");
    assert_eq!(list.matches("New volume").count(), 1, "a pool that is not usable takes none");
    let one = send(&router, "GET", "/console/volumes/tank/golden", &[], "").await.text;
    assert!(one.contains("2026-11-30 00:53 UTC"), "{one}");
}
