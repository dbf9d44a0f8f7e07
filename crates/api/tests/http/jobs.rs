//! Jobs: how they are started, watched and cancelled.

use std::thread;

use lunette_api::client::Condition;
use lunette_api::jobs::Outcome;
use serde_json::{Value, json};

use super::Served;

const SCRUB: &str = "/v1/targets/iqn.a/luns/0/actions/scrub";

#[test]
fn an_action_is_a_job_that_is_waited_for() {
    let served = Served::new();
    let client = served.client();
    let started = client.request("POST", SCRUB, None, Condition::Always).unwrap();
    assert_eq!((started.status, &started.value["id"], &started.value["kind"]), (202, &json!(1), &json!("scrub")));
    assert_eq!(served.refused("POST", SCRUB, None).status, 409);

    let run = served.runs.lock().unwrap().pop().unwrap();
    assert!(run.report(40, 100).is_continue());
    let job = served.get("/v1/jobs/1?wait_seconds=0");
    assert_eq!(
        (&job["state"], &job["progress"]),
        (&json!("running"), &json!({ "done_bytes": 40, "total_bytes": 100 }))
    );
    let waited = thread::scope(|scope| {
        let waited = scope.spawn(|| served.get("/v1/jobs/1?wait_seconds=60"));
        run.end(Outcome::Failed { message: "a damaged block".into(), result: json!({ "damaged": [7] }) });
        waited.join().unwrap()
    });
    assert_eq!((&waited["state"], &waited["message"]), (&json!("failed"), &json!("a damaged block")));
    assert_eq!(waited["result"], json!({ "damaged": [7] }));
    assert_eq!(served.get("/v1/jobs"), json!([waited]));
    let log = served.get("/v1/audit");
    let actions: Vec<_> = log.as_array().unwrap().iter().map(|entry| (&entry["action"], &entry["outcome"])).collect();
    let action = &json!("scrub targets/iqn.a/luns/0");
    assert!(actions[1] == (action, &json!("done")) && actions[0].1.as_str().unwrap().contains("job 1"), "{log}");
}

#[test]
fn a_job_is_cancelled_once_and_stays_as_it_ended() {
    let served = Served::new();
    let client = served.client();
    let cancel = || client.request("POST", "/v1/jobs/1/actions/cancel", None, Condition::Always).unwrap();
    client.request("POST", SCRUB, None, Condition::Always).unwrap();
    let asked = cancel();
    assert_eq!(
        (asked.status, &asked.value["state"], &asked.value["cancelling"]),
        (202, &json!("running"), &json!(true))
    );
    let run = served.runs.lock().unwrap().pop().unwrap();
    assert!(run.report(1, 100).is_break());
    run.end(Outcome::Cancelled { result: Value::Null });
    let ended = cancel();
    assert_eq!((ended.status, &ended.value["state"]), (200, &json!("cancelled")));
    let log = served.get("/v1/audit");
    assert_eq!(log[0]["action"], "cancel job 1, scrub of targets/iqn.a/luns/0");
}

#[test]
fn jobs_that_are_not_there_and_waits_without_end_are_refused() {
    let served = Served::new();
    for (method, path, status) in [
        ("GET", "/v1/jobs/1", 404),
        ("GET", "/v1/jobs/1?wait_seconds=60", 404),
        ("POST", "/v1/jobs/1/actions/cancel", 404),
        ("GET", "/v1/jobs/x", 400),
        ("GET", "/v1/jobs/1?wait_seconds=61", 400),
        ("GET", "/v1/jobs/1?wait=1", 400),
        ("POST", "/v1/targets/iqn.a/luns/x/actions/scrub", 400),
        ("POST", "/v1/targets/iqn.a/luns/0/actions/paint", 404),
    ] {
        assert_eq!(served.refused(method, path, None).status, status, "{method} {path}");
    }
}
