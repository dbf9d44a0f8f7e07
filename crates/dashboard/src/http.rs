//! The routes of the calls.

use std::any::Any;
use std::borrow::Cow;
use std::panic::resume_unwind;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use lunette_api::limits::MAX_BUSY_REQUESTS;
use lunette_api::{Account, Problem, read_body};
use percent_encoding::percent_decode_str;
use serde_json::json;
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;
use uuid::Uuid;

use crate::adapter::{Adapter, Answer};
use crate::document::Document;
use crate::form::Form;
use crate::limits::MAX_FORM_BYTES;
use crate::refusal::Refusal;
use crate::{calls, names, settings};

/// The name of the adapter in the audit log.
pub const NAME: &str = "dashboard";

/// The root of all calls.
const ROOT: &str = "/api/";

/// The question whether the gateway lives.
const PING: &str = "/api/_ping";

/// The calls whose paths have the name of a target, and of an initiator behind it.
const OF_TARGETS: [&str; 6] = ["gateway", "hostgroup", "target", "targetauth", "targetinfo", "targetlun"];
const OF_CLIENTS: [&str; 4] = ["client", "clientauth", "clientinfo", "clientlun"];

/// The adapter, and the places of calls that wait for it. Changes are made one after the other, so they have one place,
/// and hold up nothing else.
#[derive(Clone)]
struct Calls {
    adapter: Adapter,
    reading: Arc<Semaphore>,
    changing: Arc<Semaphore>,
}

/// The account of the dashboard.
pub fn account(user: &str, password: &str) -> Account {
    Account::new(NAME, user, password, |problem: Problem| Refusal::from(problem).into_response())
}

/// The routes, without the check of the account.
pub fn routes(adapter: Adapter) -> Router {
    let places = |number| Arc::new(Semaphore::new(number));
    let calls = Calls { adapter, reading: places(MAX_BUSY_REQUESTS), changing: places(1) };
    Router::new().fallback(answer).layer(CatchPanicLayer::custom(panicked)).with_state(calls)
}

fn panicked(_: Box<dyn Any + Send>) -> Response {
    Refusal::failed("Unhandled exception: this gateway has failed; its log says where").into_response()
}

/// Answers a request on a thread that may wait. A client that goes away before there is a place gives up its call.
async fn answer(State(calls): State<Calls>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = match read_body(body, MAX_FORM_BYTES).await {
        Ok(body) => body,
        Err(problem) => return Refusal::from(problem).into_response(),
    };
    let Calls { adapter, reading, changing } = calls;
    let places = if head.method == Method::GET { reading } else { changing };
    // The question whether the gateway lives waits for nothing.
    let place = if head.uri.path() == PING { None } else { places.acquire_owned().await.ok() };
    let call = move || {
        let _place = place;
        let path = path(head.uri.path())?;
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        call(&adapter, &head.method, &parts, &Form::parse(&body)?)
    };
    match tokio::task::spawn_blocking(call).await {
        Ok(Ok(value)) => Json(value).into_response(),
        Ok(Err(refusal)) => refusal.into_response(),
        // The layer has the answer to a panic. Nothing cancels a call.
        Err(error) => resume_unwind(error.into_panic()),
    }
}

/// The parts of a path behind the root. iSCSI names are in lower case there.
fn path(path: &str) -> Result<Vec<String>, Refusal> {
    let rest = path.strip_prefix(ROOT).ok_or_else(unknown)?;
    let decode = |part: &str| percent_decode_str(part).decode_utf8().map(Cow::into_owned);
    let mut parts: Vec<_> =
        rest.split('/').map(|part| decode(part).map_err(|_| unknown())).collect::<Result<_, _>>()?;
    let (call, names) = parts.split_first_mut().ok_or_else(unknown)?;
    let iscsi_names = match call.as_str() {
        call if OF_TARGETS.contains(&call) => 1,
        call if OF_CLIENTS.contains(&call) => 2,
        _ => 0,
    };
    names.iter_mut().take(iscsi_names).for_each(|name| name.make_ascii_lowercase());
    Ok(parts)
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
fn change(document: &mut Document, method: &str, path: &[&str], form: &Form) -> calls::Done {
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
            // As LIO gives a disk one.
            let wwn = Uuid::new_v4().to_string();
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
            "discovery auth failed: write users of discovery into the table [discovery] of each gateway's configuration file",
        ));
    }
    Ok(json!({ "message": "discovery auth successful" }))
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use serde_json::Value;
    use tempfile::TempDir;
    use tower::ServiceExt;

    use super::*;
    use crate::Options;
    use crate::model::{Memory, Model};
    use crate::stored::Stored;

    #[test]
    fn parts_of_a_path_are_decoded() {
        assert_eq!(path("/api/client/iqn.a%3Ab/iqn.c").unwrap(), ["client", "iqn.a:b", "iqn.c"]);
        assert_eq!(path("/api/disk/rbd/a%2Fb").unwrap(), ["disk", "rbd", "a/b"], "which is no name");
        let mixed =
            ["/api/clientlun/iqn.A/iqn.B", "/api/hostgroup/iqn.A/Hosts", "/api/disk/Rbd/I"].map(|it| path(it).unwrap());
        assert_eq!(mixed[0], ["clientlun", "iqn.a", "iqn.b"], "iSCSI names are in lower case");
        assert_eq!((&*mixed[1][1], &*mixed[1][2], &*mixed[2][1]), ("iqn.a", "Hosts", "Rbd"));
        assert!(path("/v1/targets").is_err() && path("/api/disk/%ff").is_err());
    }

    /// A gateway that has not reached the cluster, and its folder.
    fn gateway() -> (Adapter, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let options =
            Options { name: "a".into(), addresses: vec!["192.0.2.1".into()], folder: folder.path().to_owned() };
        (Adapter::new(Arc::new(Model::default()), options).unwrap(), folder)
    }

    /// A gateway that has reached a cluster.
    fn connected() -> (Arc<Memory>, Router, TempDir) {
        let (cluster, (adapter, folder)) = (Arc::new(Memory::default()), gateway());
        cluster.hearing.lock().unwrap().insert("a".into(), adapter.answered());
        adapter.connect(Arc::clone(&cluster) as _);
        (cluster, routes(adapter), folder)
    }

    /// The status and the message of an answer.
    async fn ask(routes: &Router, method: &str, path: &str, body: Vec<u8>) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).body(Body::from(body)).unwrap();
        let answer = routes.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let value: Value = serde_json::from_slice(&body).unwrap();
        (status, value.get("message").unwrap_or(&value).to_string())
    }

    /// The answer of a gateway that has not reached the cluster.
    async fn answer_to(method: &str, path: &str, body: Vec<u8>) -> (u16, String) {
        let (adapter, _folder) = gateway();
        ask(&routes(adapter), method, path, body).await
    }

    #[tokio::test]
    async fn images_that_gateways_cannot_share_are_refused() {
        let (_, routes, _folder) = connected();
        let put =
            async |image: &str| ask(&routes, "PUT", &format!("/api/disk/rbd/{image}"), b"mode=create".into()).await;
        let (status, message) = put("unlockable").await;
        assert!(status == 400 && message.contains("rbd feature enable rbd/unlockable"), "{status} {message}");
        assert_eq!(put("i").await.0, 200);
    }

    #[test]
    fn changes_that_wait_hold_up_no_other_call() {
        let (cluster, routes, _folder) = connected();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().max_blocking_threads(MAX_BUSY_REQUESTS + 1).build().unwrap();
        // A gateway that does not answer.
        let silence = cluster.hearing.lock().unwrap();
        let mut changes: Vec<_> = (0..8)
            .map(|number| {
                let (routes, path) = (routes.clone(), format!("/api/target/iqn.{number}"));
                runtime.spawn(async move { ask(&routes, "PUT", &path, Vec::new()).await.0 })
            })
            .collect();
        runtime.block_on(async {
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            assert_eq!(ask(&routes, "GET", "/api/config", Vec::new()).await.0, 200);
            for waiting in changes.drain(1..) {
                waiting.abort();
                assert!(waiting.await.unwrap_err().is_cancelled());
            }
        });
        drop(silence);
        for change in changes {
            assert_eq!(runtime.block_on(change).unwrap(), 200);
        }
        let (_, value) = cluster.value.lock().unwrap().clone();
        let targets: Vec<String> = Stored::decode(&value).unwrap().document.targets.into_keys().collect();
        assert_eq!(targets, ["iqn.0"], "those that were given up are not made");
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
