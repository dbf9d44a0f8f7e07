//! The routes of the calls.

use std::any::Any;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use lunette_api::{Account, Problem, read_body};
use percent_encoding::percent_decode_str;
use serde_json::json;
use tower_http::catch_panic::CatchPanicLayer;

use crate::adapter::{Adapter, Answer};
use crate::form::Form;
use crate::limits::MAX_FORM_BYTES;
use crate::refusal::Refusal;
use crate::{calls, names, settings};

/// The name of the adapter in the audit log.
pub const NAME: &str = "dashboard";

/// Where all calls begin.
const ROOT: &str = "/api/";

/// The account of the dashboard.
pub fn account(user: &str, password: &str) -> Account {
    Account::new(NAME, user, password, |problem: Problem| Refusal::from(problem).into_response())
}

/// The routes, without the check of the account.
pub fn routes(adapter: Adapter) -> Router {
    Router::new().fallback(answer).layer(CatchPanicLayer::custom(panicked)).with_state(adapter)
}

fn panicked(_: Box<dyn Any + Send>) -> Response {
    Refusal::failed("Unhandled exception: this gateway has failed; its log says where").into_response()
}

/// Answers a request on a thread that may wait.
async fn answer(State(adapter): State<Adapter>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = match read_body(body, MAX_FORM_BYTES).await {
        Ok(body) => body,
        Err(problem) => return Refusal::from(problem).into_response(),
    };
    let call = move || {
        let path = path(head.uri.path())?;
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        call(&adapter, &head.method, &parts, &Form::parse(&body)?)
    };
    match tokio::task::spawn_blocking(call).await {
        Ok(Ok(value)) => Json(value).into_response(),
        Ok(Err(refusal)) => refusal.into_response(),
        Err(error) => Refusal::failed(format!("Unhandled exception: {error}")).into_response(),
    }
}

/// The parts of a path behind the root.
fn path(path: &str) -> Result<Vec<String>, Refusal> {
    let rest = path.strip_prefix(ROOT).ok_or_else(unknown)?;
    let decode = |part: &str| percent_decode_str(part).decode_utf8().map(std::borrow::Cow::into_owned);
    rest.split('/').map(|part| decode(part).map_err(|_| unknown())).collect()
}

fn unknown() -> Refusal {
    Refusal::missing("The requested URL was not found on this gateway.")
}

/// Carries out a call.
fn call(adapter: &Adapter, method: &Method, path: &[&str], form: &Form) -> Answer {
    match (method.as_str(), path) {
        ("GET", ["_ping"]) => adapter.ping(),
        ("GET", ["settings"]) => Ok(settings::shown()),
        ("GET", ["sysinfo", "hostname"]) => Ok(json!({ "data": adapter.name() })),
        ("GET", ["sysinfo", "ip_addresses"]) => Ok(json!({ "data": adapter.addresses() })),
        ("GET", ["sysinfo", _]) => Err(Refusal::missing("Unknown /sysinfo query")),
        ("GET", ["config"]) => adapter.config(),
        ("GET", ["gatewayinfo"]) => adapter.gateway_info(),
        ("GET", ["targetinfo", target]) => adapter.target_info(target),
        ("GET", ["clientinfo", target, client]) => adapter.client_info(target, client),
        ("PUT", ["disk", pool, image]) => put_disk(adapter, pool, image, form),
        ("PUT", ["gateway", target, gateway]) => {
            let addresses = adapter.state_of(gateway)?.addresses;
            adapter.change(|document| calls::new_gateway(document, target, gateway, form, &addresses))
        }
        ("PUT", ["discoveryauth"]) => auth_discovery(form),
        ("PUT" | "DELETE", _) => adapter.change(|document| change(document, method.as_str(), path, form)),
        _ => Err(unknown()),
    }
}

/// Makes a change that needs the configuration alone.
fn change(document: &mut crate::document::Document, method: &str, path: &[&str], form: &Form) -> calls::Done {
    match (method, path) {
        ("PUT", ["target", target]) => calls::put_target(document, target, form),
        ("DELETE", ["target", target]) => calls::delete_target(document, target),
        ("DELETE", ["gateway", target, gateway]) => calls::delete_gateway(document, target, gateway),
        ("PUT", ["targetauth", target]) => calls::auth_target(document, target, form),
        ("DELETE", ["disk", pool, image]) => calls::delete_disk(document, &format!("{pool}/{image}"), form),
        ("PUT", ["targetlun", target]) => calls::add_lun(document, target, form),
        ("DELETE", ["targetlun", target]) => calls::remove_lun(document, target, form),
        ("PUT", ["client", target, client]) => calls::new_client(document, target, client),
        ("DELETE", ["client", target, client]) => calls::delete_client(document, target, client),
        ("PUT", ["clientauth", target, client]) => calls::auth_client(document, target, client, form),
        ("PUT", ["clientlun", target, client]) => calls::map_client(document, target, client, form, true),
        ("DELETE", ["clientlun", target, client]) => calls::map_client(document, target, client, form, false),
        ("PUT", ["hostgroup", target, group]) => calls::change_group(document, target, group, form),
        ("DELETE", ["hostgroup", target, group]) => calls::delete_group(document, target, group),
        _ => Err(unknown()),
    }
}

/// `PUT disk/{pool}/{image}`.
fn put_disk(adapter: &Adapter, pool: &str, image: &str, form: &Form) -> Answer {
    let (pool, image) = (names::plain(pool)?, names::plain(image)?);
    let id = format!("{pool}/{image}");
    match form.text("mode") {
        "create" if adapter.has_image(&pool, &image)? => {
            let wwn = random_uuid()?;
            adapter.change(|document| calls::new_disk(document, &pool, &image, form, &wwn))
        }
        "create" => Err(Refusal::bad(format!("Image {id} does not exist; make it first: rbd create {id} --size SIZE"))),
        "reconfigure" => adapter.change(|document| calls::reconfigure_disk(document, &id, form)),
        "resize" => Err(Refusal::bad(format!(
            "resize is not for a gateway here; initiators are told of it at once: rbd resize {id} --size SIZE"
        ))),
        mode => Err(Refusal::bad(format!("Unexpected mode provided for {id} - {mode}"))),
    }
}

/// `PUT discoveryauth`.
fn auth_discovery(form: &Form) -> Answer {
    let auth = names::auth(form)?;
    if auth.has_user() || auth.has_mutual_user() {
        return Err(Refusal::bad(
            "discovery auth failed: the table [discovery] of each gateway's configuration file says who may ask",
        ));
    }
    Ok(json!({ "message": "discovery auth successful" }))
}

/// A random UUID (RFC 9562 section 5.4), as LIO gives a disk one.
fn random_uuid() -> Result<String, Refusal> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Refusal::failed(format!("no random numbers: {error}")))?;
    let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
    let hex = format!("{number:032x}");
    Ok([0..8, 8..12, 12..16, 16..20, 20..32].map(|part| hex[part].to_owned()).join("-"))
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;

    #[test]
    fn parts_of_a_path_are_decoded() {
        assert_eq!(path("/api/client/iqn.a%3Ab/iqn.c").unwrap(), ["client", "iqn.a:b", "iqn.c"]);
        assert_eq!(path("/api/disk/rbd/a%2Fb").unwrap(), ["disk", "rbd", "a/b"], "which is no name");
        assert!(path("/v1/targets").is_err() && path("/api/disk/%ff").is_err());
    }

    #[test]
    fn random_uuids_have_the_version_of_random_ones() {
        let uuid = random_uuid().unwrap();
        let parts: Vec<&str> = uuid.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']), "{uuid}");
    }

    /// The status and the message of the answer of a gateway that has not reached the cluster.
    async fn answer_to(method: &str, path: &str, body: Vec<u8>) -> (u16, String) {
        let folder = tempfile::tempdir().unwrap();
        let options =
            crate::Options { name: "a".into(), addresses: vec!["192.0.2.1".into()], folder: folder.path().to_owned() };
        let adapter = Adapter::new(std::sync::Arc::new(crate::model::Model::default()), options).unwrap();
        let request = Request::builder().method(method).uri(path).body(axum::body::Body::from(body)).unwrap();
        let answer = routes(adapter).oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        (status, value.get("message").unwrap_or(&value).to_string())
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_refused() {
        let (status, message) = answer_to("PUT", "/api/discoveryauth", vec![b'a'; MAX_FORM_BYTES + 1]).await;
        assert!(status == 400 && message.contains("bytes at most"), "{status} {message}");
        assert_eq!(answer_to("PUT", "/api/discoveryauth", vec![b'a'; MAX_FORM_BYTES]).await.0, 200);
    }

    #[tokio::test]
    async fn each_refusal_is_a_message() {
        for (method, path, status) in [
            ("GET", "/api/sysinfo/ip_addresses", 200),
            ("GET", "/api/settings", 200),
            ("GET", "/api/_ping", 503),
            ("GET", "/api/config", 503),
            ("GET", "/api/sysinfo/checkconf", 404),
            ("GET", "/api/disksnap/a", 404),
            ("PATCH", "/api/config", 404),
            ("GET", "/", 404),
            ("PUT", "/api/disk/rbd/i", 400),
            ("PUT", "/api/target/iqn.a", 503),
        ] {
            assert_eq!(answer_to(method, path, Vec::new()).await.0, status, "{method} {path}");
        }
    }

    #[test]
    fn passwords_for_discovery_are_refused() {
        let form = |text: &str| Form::parse(text.as_bytes()).unwrap();
        let none = "username=&password=&mutual_username=&mutual_password=";
        assert!(auth_discovery(&form(none)).is_ok());
        assert_eq!(auth_discovery(&form("username=discovery&password=secretsecret")).unwrap_err().status, 400);
    }
}
