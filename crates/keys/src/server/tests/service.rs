//! Messages: batches, versions, limits, the audit log, and a medium that fails.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use super::*;
use crate::kmip::{BatchItem, Operation, RequestMessage, ResponseMessage, ResultStatus};
use crate::server::{AuditLog, Client, Keep, Object, Service};
use crate::ttlv;

/// A medium that can fail, and a log that can be read.
#[derive(Clone, Default)]
struct Medium {
    fails: bool,
}

impl Keep for Medium {
    fn keep(&mut self, _: Option<&Object>, _: Option<&str>) -> Result<(), String> {
        if self.fails { Err("no space".into()) } else { Ok(()) }
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A log on a full disk.
struct FullLog;

impl Write for FullLog {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn service(fails: bool) -> (Service<Medium>, Log) {
    let log = Log::default();
    (Service::new(Engine::default(), Medium { fails }, AuditLog::to(log.clone())), log)
}

fn alice() -> Client {
    Client { name: "alice".into(), peer: "192.0.2.1:4000".parse().unwrap() }
}

fn message(requests: &[Request]) -> RequestMessage {
    let item = |(number, request): (usize, &Request)| BatchItem {
        operation: request.operation().number(),
        batch_id: Some(vec![number as u8]),
        payload: request.to_payload(),
    };
    let items = requests.iter().enumerate().map(item).collect();
    RequestMessage { version: Version::one(2), maximum_response_bytes: None, goes_on: false, items }
}

fn ask(service: &mut Service<impl Keep>, message: &RequestMessage) -> ResponseMessage {
    let answer = service.answer(&alice(), &ttlv::encode(&message.to_item()), NOW);
    ResponseMessage::from_item(ttlv::decode(&answer).unwrap()).unwrap()
}

fn reasons(response: &ResponseMessage) -> Vec<Option<ResultReason>> {
    response.answers.iter().map(|answer| answer.outcome.as_ref().err().map(|refusal| refusal.reason)).collect()
}

#[test]
fn requests_of_a_batch_share_the_object() {
    let (mut service, log) = service(false);
    let none = || None;
    let batch = [create(), Request::Activate { id: none() }, Request::Get { id: none(), format: None }];
    let response = ask(&mut service, &message(&batch));
    assert_eq!((response.version, response.time), (Version::one(2), NOW));
    assert_eq!(reasons(&response), [None, None, None]);
    let ids: Vec<_> = response.answers.iter().map(|answer| answer.batch_id.clone().unwrap()).collect();
    assert_eq!(ids, [[0], [1], [2]]);
    let get = response.answers.into_iter().nth(2).unwrap().response(Operation::Get).unwrap();
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(log.lines().count(), 3);
    assert_eq!(log.matches(get.id().unwrap()).count(), 3, "each line names the object: {log}");
}

#[test]
fn a_batch_stops_at_a_refusal_unless_it_goes_on() {
    let (mut service, _) = service(false);
    let mut batch = message(&[get("none"), create()]);
    assert_eq!(reasons(&ask(&mut service, &batch)), [Some(ResultReason::ItemNotFound)]);
    batch.goes_on = true;
    assert_eq!(reasons(&ask(&mut service, &batch)), [Some(ResultReason::ItemNotFound), None]);
    let alone = message(&[Request::Activate { id: None }]);
    assert_eq!(reasons(&ask(&mut service, &alone)), [Some(ResultReason::MissingData)]);
}

#[test]
fn versions_operations_and_bytes_that_are_not_known_are_refused() {
    let (mut service, log) = service(false);
    let mut later = message(&[create()]);
    later.version = Version { major: 2, minor: 0 };
    let response = ask(&mut service, &later);
    assert_eq!((reasons(&response), response.version), (vec![Some(ResultReason::InvalidMessage)], Version::one(4)));
    let mut rekey = message(&[create()]);
    rekey.items[0].operation = 4;
    assert_eq!(reasons(&ask(&mut service, &rekey)), [Some(ResultReason::OperationNotSupported)]);
    let answer = service.answer(&alice(), b"GET / HTTP/1.1\r\n", NOW);
    let answer = ResponseMessage::from_item(ttlv::decode(&answer).unwrap()).unwrap();
    assert_eq!(reasons(&answer), [Some(ResultReason::InvalidMessage)]);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(log.lines().count(), 3);
    assert!(log.contains("\"operation\":\"0x4\"") && log.contains("2.0 is not supported"), "{log}");
}

#[test]
fn an_answer_that_is_too_long_for_the_client_is_not_sent() {
    let (mut service, _) = service(false);
    let mut batch = message(&[create()]);
    batch.maximum_response_bytes = Some(64);
    assert_eq!(reasons(&ask(&mut service, &batch)), [Some(ResultReason::ResponseTooLarge)]);
    batch.maximum_response_bytes = Some(4096);
    assert_eq!(reasons(&ask(&mut service, &batch)), [None]);
}

#[test]
fn a_change_that_cannot_be_kept_does_not_happen() {
    let (mut service, log) = service(true);
    assert_eq!(reasons(&ask(&mut service, &message(&[create()]))), [Some(ResultReason::GeneralFailure)]);
    let locate = Request::Locate { maximum_items: None, offset_items: None, attributes: Vec::new() };
    let response = ask(&mut service, &message(&[locate]));
    let found = response.answers.into_iter().next().unwrap().response(Operation::Locate).unwrap();
    assert_eq!(found, Response::Located { located_items: None, ids: Vec::new() });
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.lines().next().unwrap().contains(ResultReason::GeneralFailure.name()), "{log}");
}

#[test]
fn no_secret_leaves_without_a_record() {
    let mut service = Service::new(Engine::default(), Medium::default(), AuditLog::to(FullLog));
    let mut batch = message(&[create(), Request::Get { id: None, format: None }]);
    batch.goes_on = true;
    let failure = Some(ResultReason::GeneralFailure);
    assert_eq!(reasons(&ask(&mut service, &batch)), [failure, failure]);
}

#[test]
fn the_audit_log_has_a_line_for_each_request_and_no_secret() {
    let (mut service, log) = service(false);
    let secret = "a secret that must not be logged";
    let object = ManagedObject { kind: Kind::SecretData(1), material: Zeroizing::new(secret.into()) };
    let register = Request::Register { attributes: vec![Attribute::named("n")], object };
    let response = ask(&mut service, &message(&[register, Request::Get { id: None, format: None }]));
    assert_eq!(reasons(&response), [None, None]);
    ask(&mut service, &message(&[get(&"x".repeat(250))]));
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let field = |name: &str| lines.iter().map(|line| line[name].as_str().unwrap_or_default()).collect::<Vec<_>>();
    assert_eq!(field("operation"), ["Register", "Get", "Get"]);
    assert_eq!(field("result"), [ResultStatus::Success.name(), "Success", "Item Not Found"]);
    assert_eq!(field("client"), ["alice"; 3]);
    assert_eq!(field("peer"), ["192.0.2.1:4000"; 3]);
    assert!(lines.iter().all(|line| line["time"] == NOW));
    assert!(!log.contains(secret) && !log.contains(&crate::hex::encode(secret.as_bytes())));
    assert!(log.lines().all(|line| line.len() < 1000), "{log}");
}
