//! The API in front of a made-up server: what clients may cost, which clients are let in, and what a mistake in a
//! handler costs.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

#[path = "http/certificates.rs"]
mod certificates;
#[path = "http/jobs.rs"]
mod jobs;
#[path = "http/volumes.rs"]
mod volumes;

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use lunette_api::audit::AuditEntry;
use lunette_api::client::{Client, ClientError, Condition, Endpoint, Token};
use lunette_api::jobs::{Job, JobKind, JobOrder, JobRun, Jobs};
use lunette_api::limits::{
    MAX_ADDRESS_STRANGERS, MAX_BODY_BYTES, MAX_BUSY_REQUESTS, MAX_CONNECTIONS, MAX_EVENT_READERS, MAX_EVENTS_BEHIND,
    MAX_HEADER_BYTES,
};
use lunette_api::{
    AuditLog, Caller, Catalog, Changed, Disk, Event, Events, Health, Listener, Order, Place, Plan, PlannedChange,
    Problem, Server, Session, TokenFile, serve,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema as _, ToSchema};

#[derive(Default)]
struct Fake {
    catalog: Mutex<Arc<Catalog>>,
    events: Events,
    audit: AuditLog,
    waiting: Arc<Waiting>,
    /// Held while a change is made.
    changing: Arc<Mutex<()>>,
    jobs: Jobs,
    /// The work of the jobs that run.
    runs: Arc<Mutex<Vec<JobRun>>>,
    health: Health,
}

/// Requests that wait for the server.
#[derive(Default)]
struct Waiting {
    now: AtomicUsize,
    most: AtomicUsize,
    may_go: Mutex<bool>,
    changed: Condvar,
}

impl Server for Fake {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.lock().unwrap())
    }

    fn plan(&self, order: Order) -> Result<Plan, Problem> {
        let planned =
            PlannedChange { change: "something".into(), sessions: Vec::new(), takes_away: false, obstacle: None };
        (order.edit)(&self.catalog()).map(|_| Plan { changes: vec![planned], needs_force: false })
    }

    fn change(&self, order: Order) -> Result<Changed, Problem> {
        let _changing = self.changing.lock().unwrap();
        let mut catalog = self.catalog.lock().unwrap();
        let objects = (order.edit)(&catalog)?;
        self.audit.record(AuditEntry::new(&order.caller, "change", Ok(()), Vec::new()));
        *catalog = Arc::new(Catalog { objects, ..Catalog::clone(&catalog) });
        Ok(Changed { plan: Plan::default(), catalog: Arc::clone(&catalog) })
    }

    fn sessions(&self) -> Result<Vec<Session>, Problem> {
        panic!("a mistake");
    }

    fn end_session(&self, _: u16, _: &Caller) -> Result<bool, Problem> {
        Ok(false)
    }

    fn disks(&self) -> Vec<Disk> {
        let waiting = &self.waiting;
        waiting.most.fetch_max(waiting.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        drop(waiting.changed.wait_while(waiting.may_go.lock().unwrap(), |may_go| !*may_go).unwrap());
        waiting.now.fetch_sub(1, Ordering::SeqCst);
        Vec::new()
    }

    fn ready(&self) -> Result<(), String> {
        Err("not yet".into())
    }

    fn health(&self) -> Option<&Health> {
        Some(&self.health)
    }

    fn scrub(&self, target: &str, lun: u16, caller: &Caller) -> Result<Arc<Job>, Problem> {
        let runs = Arc::clone(&self.runs);
        let order = JobOrder {
            kind: JobKind::Scrub,
            object: format!("targets/{target}/luns/{lun}"),
            target: Some(target.into()),
            started_by: caller.name.clone(),
            total_bytes: 100,
        };
        self.jobs.order(order, move |run| runs.lock().unwrap().push(run))
    }

    fn volumes(&self) -> Option<&dyn lunette_api::volumes::Volumes> {
        Some(&volumes::Refusing)
    }

    fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn audit(&self) -> &AuditLog {
        &self.audit
    }

    fn schemas(&self) -> Vec<(String, RefOr<Schema>)> {
        vec![("Target".into(), Named::schema())]
    }
}

/// A document with a name and something that it may leave out.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a schema")]
struct Named {
    name: String,
    other: Option<Other>,
    number: Option<u16>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "a schema")]
struct Other {
    key: String,
}

struct Served {
    _place: TempDir,
    socket: PathBuf,
    events: Events,
    waiting: Arc<Waiting>,
    changing: Arc<Mutex<()>>,
    runs: Arc<Mutex<Vec<JobRun>>>,
}

impl Served {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("api.sock");
        let events = Events::default();
        let server = Fake { jobs: Jobs::new(events.clone()), events, ..Fake::default() };
        let (events, waiting) = (server.events.clone(), Arc::clone(&server.waiting));
        let (changing, runs) = (Arc::clone(&server.changing), Arc::clone(&server.runs));
        let listener = Listener::open(Place::Unix { path: socket.clone(), group: None, listener: None }).unwrap();
        serve(vec![listener], Arc::new(server)).unwrap();
        Self { _place: place, socket, events, waiting, changing, runs }
    }

    fn client(&self) -> Client {
        Client::new(Endpoint::Unix(self.socket.clone())).unwrap()
    }

    fn get(&self, path: &str) -> Value {
        self.client().request("GET", path, None, Condition::Always).unwrap().value
    }

    fn refused(&self, method: &str, path: &str, body: Option<&Value>) -> Problem {
        match self.client().request(method, path, body, Condition::Always) {
            Err(ClientError::Refused(problem)) => problem,
            other => panic!("{other:?}"),
        }
    }

    /// The answer to raw bytes, up to the end of the connection.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        // The server may have answered and closed before all of it is sent.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

#[test]
fn objects_come_and_go_by_their_etags() {
    let served = Served::new();
    let client = served.client();
    let put = |when: Condition<'_>| client.request("PUT", "/v1/targets/iqn.a", Some(&json!({})), when);
    let first = put(Condition::New).unwrap();
    assert_eq!((first.status, &first.value), (201, &json!({ "name": "iqn.a", "allow": [] })));
    assert_eq!(put(Condition::Matches(first.etag.as_deref().unwrap())).unwrap().status, 200);
    assert!(matches!(put(Condition::New), Err(ClientError::Refused(Problem { status: 412, .. }))));
    assert!(matches!(put(Condition::Matches("\"other\"")), Err(ClientError::Refused(Problem { status: 412, .. }))));
    let lun = client
        .request("PUT", "/v1/targets/iqn.a/luns/1", Some(&json!({ "disk": "mem:1M" })), Condition::Always)
        .unwrap();
    assert_eq!((lun.status, lun.value), (201, json!({ "number": 1, "disk": "mem:1M" })));
    assert_eq!(served.get("/v1/targets/iqn.a/luns").as_array().unwrap().len(), 1);
    assert_eq!(served.get("/v1/config")["target"][0]["name"], "iqn.a");
    assert_eq!(client.request("DELETE", "/v1/targets/iqn.a", None, Condition::Always).unwrap().status, 204);
    assert_eq!(served.refused("GET", "/v1/targets/iqn.a", None).status, 404);
}

#[test]
fn a_dry_run_changes_nothing_and_a_typing_error_in_it_neither() {
    let served = Served::new();
    let client = served.client();
    let put =
        |query: &str| client.request("PUT", &format!("/v1/targets/iqn.a{query}"), Some(&json!({})), Condition::Always);
    let planned = put("?dry_run=true").unwrap();
    assert_eq!((planned.status, &planned.value["changes"][0]["change"]), (200, &json!("something")));
    for query in ["?dryrun=true", "?dry_run=yes", "?dry-run=true", "?dry_run=true&dry_run=false"] {
        assert!(matches!(put(query), Err(ClientError::Refused(Problem { status: 400, .. }))), "{query}");
    }
    assert_eq!(served.get("/v1/targets"), json!([]));
    put("").unwrap();
    assert_eq!(
        client.request("DELETE", "/v1/targets/iqn.a?dry_run=true", None, Condition::Always).unwrap().status,
        200
    );
    assert_eq!(served.get("/v1/targets").as_array().unwrap().len(), 1);
    let newer = served.raw(b"PUT /v1/config HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIf-None-Match: *\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
    assert!(newer.starts_with("HTTP/1.1 412"), "{newer}");
    assert_eq!(served.get("/v1/targets").as_array().unwrap().len(), 1);
}

#[test]
fn changes_are_in_the_audit_log() {
    let served = Served::new();
    served.client().request("PUT", "/v1/targets/iqn.a", Some(&json!({})), Condition::Always).unwrap();
    served.client().request("PUT", "/v1/targets/iqn.b", Some(&json!({})), Condition::Always).unwrap();
    let log = served.get("/v1/audit?count=1");
    let [entry] = log.as_array().unwrap().as_slice() else { panic!("{log}") };
    let user = std::fs::metadata(&served.socket).unwrap().uid();
    assert_eq!((&entry["who"], &entry["from"]), (&json!(format!("user {user}")), &json!("the Unix socket")));
    for query in ["?count=0", "?count=1001", "?count=-1", "?last=1"] {
        assert_eq!(served.refused("GET", &format!("/v1/audit{query}"), None).status, 400, "{query}");
    }
}

#[test]
fn changes_that_wait_hold_up_nothing_else() {
    let served = Served::new();
    *served.waiting.may_go.lock().unwrap() = true;
    let held = served.changing.lock().unwrap();
    thread::scope(|scope| {
        let changes: Vec<_> = (0..4 * MAX_BUSY_REQUESTS)
            .map(|number| {
                let mut stream = UnixStream::connect(&served.socket).unwrap();
                let head = "Host: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2";
                write!(stream, "PUT /v1/targets/iqn.{number} HTTP/1.1\r\n{head}\r\n\r\n{{}}").unwrap();
                stream
            })
            .collect();
        for path in ["/v1/luns", "/v1/targets", "/v1/audit", "/healthz", "/v1/luns"] {
            served.get(path);
        }
        drop(held);
        for mut stream in changes {
            scope.spawn(move || {
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
            });
        }
    });
}

#[test]
fn a_mistake_in_a_handler_costs_its_request_and_nothing_else() {
    let served = Served::new();
    let client = served.client();
    let problem = served.refused("GET", "/v1/sessions", None);
    assert_eq!(problem.status, 500);
    assert!(!problem.detail.contains("a mistake\""), "{problem}");
    assert_eq!(client.request("GET", "/healthz", None, Condition::Always).unwrap().value, json!("ok\n"));
}

#[test]
fn what_cannot_be_understood_is_answered_with_advice() {
    let served = Served::new();
    for (method, path, status, advice) in [
        ("GET", "/v1/nothing", 404, "/openapi.json"),
        ("POST", "/v1/targets", 405, "/openapi.json"),
        ("GET", "/v1/targets/iqn.a/luns/x", 404, "no target iqn.a"),
        ("DELETE", "/v1/sessions/x", 400, "not the number of a session"),
        ("DELETE", "/v1/sessions/65536", 400, "not the number of a session"),
        ("GET", "/v1/portals/here", 404, "is not ADDR:PORT"),
        ("DELETE", "/v1/portals/here", 404, "is not ADDR:PORT"),
        ("GET", "/v1/targets/a%2Fb/luns", 404, "is not an iSCSI name"),
        ("GET", "/v1/targets/%FF", 400, "UTF-8"),
        ("DELETE", "/v1/targets/iqn.a/hosts/%FF", 400, "UTF-8"),
        ("GET", "/readyz", 503, "not yet"),
        ("GET", "/metrics", 404, "metrics"),
    ] {
        let problem = served.refused(method, path, None);
        assert!(problem.status == status && problem.detail.contains(advice), "{path}: {problem:?}");
    }
    assert_eq!(served.refused("PUT", "/v1/portals/here", Some(&json!({}))).status, 422);
    let put = "PUT /v1/targets/iqn.a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    let no_type = served.raw(format!("{put}Content-Length: 2\r\n\r\n{{}}").as_bytes());
    assert!(no_type.starts_with("HTTP/1.1 415"), "{no_type}");
    let no_json = served.raw(format!("{put}Content-Type: application/json\r\nContent-Length: 1\r\n\r\n{{").as_bytes());
    assert!(no_json.starts_with("HTTP/1.1 400") && no_json.contains("application/problem+json"), "{no_json}");
}

#[test]
fn a_body_or_header_that_is_too_long_is_refused() {
    let served = Served::new();
    let long = json!({ "alias": "x".repeat(MAX_BODY_BYTES) });
    let problem = served.refused("PUT", "/v1/targets/iqn.a", Some(&long));
    assert_eq!(problem.status, 413, "{problem}");
    let header = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(2 * MAX_HEADER_BYTES));
    let answer = served.raw(header.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[test]
fn requests_that_take_time_do_not_hold_up_the_others() {
    let served = Served::new();
    thread::scope(|scope| {
        for _ in 0..2 * MAX_BUSY_REQUESTS {
            scope.spawn(|| assert_eq!(served.get("/v1/luns"), json!([])));
        }
        while served.waiting.now.load(Ordering::SeqCst) < MAX_BUSY_REQUESTS {
            thread::yield_now();
        }
        assert_eq!(served.get("/healthz"), json!("ok\n"));
        *served.waiting.may_go.lock().unwrap() = true;
        served.waiting.changed.notify_all();
    });
    assert_eq!(served.waiting.most.load(Ordering::SeqCst), MAX_BUSY_REQUESTS);
}

#[test]
fn one_more_connection_waits_until_another_ends() {
    let served = Served::new();
    let mut held: Vec<_> = (0..MAX_CONNECTIONS).map(|_| UnixStream::connect(&served.socket).unwrap()).collect();
    let mut last = UnixStream::connect(&served.socket).unwrap();
    last.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    last.set_nonblocking(true).unwrap();
    // The server answers the connections before it, so it has had its turn.
    for stream in &mut held {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
    }
    assert!(last.read(&mut [0; 1]).is_err(), "it waits");
    held.pop();
    last.set_nonblocking(false).unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn event(text: &str) -> Event {
    Event { kind: "change".into(), text: text.into(), target: None, initiator: None }
}

#[test]
fn readers_hear_of_events_and_of_those_they_have_missed() {
    let served = Served::new();
    let (tx, rx) = channel();
    let client = served.client();
    let (started, start) = channel();
    let events = served.events.clone();
    let reader = thread::spawn(move || {
        let take = |data: &str| {
            let event: Event = serde_json::from_str(data).unwrap();
            if event.text == "first" {
                // Whatever the connection takes before it is full, this is more.
                (0..200 * MAX_EVENTS_BEHIND).for_each(|_| events.send(event_of_a_line()));
            }
            let is_last = event.kind == "lost";
            tx.send(event).unwrap();
            !is_last
        };
        started.send(()).unwrap();
        client.events("/v1/events", take).unwrap();
    });
    start.recv().unwrap();
    // What is sent before the reader is there is not heard.
    let first = loop {
        served.events.send(event("first"));
        if let Ok(event) = rx.recv_timeout(std::time::Duration::from_millis(20)) {
            break event;
        }
    };
    assert_eq!(first.text, "first");
    let lost = rx.iter().find(|event| event.kind == "lost").expect("the reader is told");
    assert!(lost.text.contains("events were left out"), "{lost:?}");
    reader.join().unwrap();
}

fn event_of_a_line() -> Event {
    event(&"x".repeat(80))
}

#[test]
fn readers_of_events_are_limited() {
    let served = Served::new();
    let mut readers = Vec::new();
    for _ in 0..MAX_EVENT_READERS {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
        readers.push(stream);
    }
    assert_eq!(served.refused("GET", "/v1/events", None).status, 503);
}

/// A port of TCP with these tokens.
struct Port {
    place: TempDir,
    events: Events,
    health: Health,
    address: std::net::SocketAddr,
    trusting: Arc<rustls::ClientConfig>,
}

impl Port {
    fn new(tokens: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("tokens"), tokens).unwrap();
        let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = identity.cert.der().clone();
        let key = rustls::pki_types::PrivateKeyDer::try_from(identity.signing_key.serialize_der()).unwrap();
        let tls = rustls::ServerConfig::builder().with_no_client_auth();
        let tls = Arc::new(tls.with_single_cert(vec![certificate.clone()], key).unwrap());
        let tokens = TokenFile::open(place.path().join("tokens")).unwrap();
        let (certificates, tokens) = (Arc::new(tls), Some(tokens));
        let port = Place::Tcp { address: "127.0.0.1:0".parse().unwrap(), listener: None, certificates, tokens };
        let listener = Listener::open(port).unwrap();
        let address = listener.address().unwrap();
        let server = Fake::default();
        let (events, health) = (server.events.clone(), server.health.clone());
        serve(vec![listener], Arc::new(server)).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).unwrap();
        let trusting = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Self { place, events, health, address, trusting: Arc::new(trusting) }
    }

    /// A connection over TLS on which this was sent.
    fn send(&self, bytes: &[u8]) -> rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream> {
        let name = "localhost".try_into().unwrap();
        let session = rustls::ClientConnection::new(Arc::clone(&self.trusting), name).unwrap();
        let mut stream = rustls::StreamOwned::new(session, std::net::TcpStream::connect(self.address).unwrap());
        stream.write_all(bytes).unwrap();
        stream.flush().unwrap();
        stream
    }

    /// The answer to a request with these lines in its header.
    fn ask(&self, request: &str, header: &str) -> String {
        let mut stream =
            self.send(format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n").as_bytes());
        let mut answer = Vec::new();
        // The server closes without a farewell of TLS.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    /// The status of the answer to a request with this token.
    fn status(&self, request: &str, token: &str) -> String {
        let answer = self.ask(request, &format!("Authorization: Bearer {token}\r\n"));
        answer.split_whitespace().nth(1).unwrap_or_default().to_owned()
    }
}

const TOKEN: &str = "0123456789abcdefghijklmnop";

#[test]
fn over_tcp_a_token_is_needed_and_tls_is_spoken() {
    let port = Port::new(TOKEN);
    assert_eq!(port.status("GET /v1/targets", TOKEN), "200");
    for wrong in ["", "Authorization: Bearer x\r\n", "Authorization: Basic 0123\r\n"] {
        let answer = port.ask("GET /v1/targets", wrong);
        assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("www-authenticate: Bearer"), "{answer}");
        assert!(!answer.contains(TOKEN));
    }
    assert!(port.ask("GET /healthz", "").starts_with("HTTP/1.1 200"));
    // Without a token no connection is kept.
    let mut answer = Vec::new();
    let _ = port.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("connection: close"));

    let mut plain = std::net::TcpStream::connect(port.address).unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "without TLS there is no answer");
}

#[test]
fn a_client_is_told_which_token_certificate_or_address_is_wrong() {
    let port = Port::new(TOKEN);
    let error = |address: std::net::SocketAddr, token: &str, trusted: &Arc<rustls::ClientConfig>| {
        let server = Endpoint::Tls {
            host: "localhost".into(),
            port: address.port(),
            trusted: Arc::clone(trusted),
            token: Some(Token { value: zeroize::Zeroizing::new(token.into()), file: "/t/token".into() }),
        };
        let client = Client::new(server).unwrap();
        client.request("GET", "/v1/targets", None, Condition::Always).unwrap_err().to_string()
    };
    let unknown = error(port.address, &format!("{TOKEN}-x"), &port.trusting);
    assert!(unknown.starts_with("/t/token: https://localhost:") && !unknown.contains(TOKEN), "{unknown}");
    let nothing = rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty());
    let untrusted = error(port.address, TOKEN, &Arc::new(nothing.with_no_client_auth()));
    assert!(untrusted.contains("--ca"), "{untrusted}");
    // Another service hangs up, or answers in words of its own.
    for answer in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        let service = std::thread::spawn(move || {
            let (mut stream, _) = other.accept().unwrap();
            stream.read_exact(&mut [0; 48]).unwrap();
            stream.write_all(answer).unwrap();
        });
        let foreign = error(address, TOKEN, &port.trusting);
        assert!(foreign.contains("does HTTPS answer there") && !foreign.contains("--ca"), "{foreign}");
        service.join().unwrap();
    }
}

#[test]
fn tokens_have_roles_and_targets() {
    let port = Port::new(&format!(
        "{TOKEN}\n{TOKEN}-read role=read\n{TOKEN}-operate role=operate\n{TOKEN}-some targets=iqn.a"
    ));
    assert_eq!(port.status("DELETE /v1/targets/iqn.a", TOKEN), "204");
    for (request, end, status) in [
        ("GET /v1/targets", "-read", "200"),
        ("GET /openapi.json", "-read", "200"),
        ("GET /v1/audit", "-read", "403"),
        ("DELETE /v1/targets/iqn.a", "-read", "403"),
        ("DELETE /v1/sessions/1", "-read", "403"),
        ("PUT /v1/config", "-read", "403"),
        ("POST /v1/targets/iqn.a/luns/0/actions/scrub", "-read", "403"),
        ("POST /v1/jobs/1/actions/cancel", "-read", "403"),
        ("DELETE /v1/sessions/1", "-operate", "404"),
        ("POST /v1/targets/iqn.b/luns/0/actions/scrub", "-operate", "202"),
        ("GET /v1/jobs/1", "-read", "200"),
        ("POST /v1/targets/iqn.b/luns/0/actions/scrub", "-some", "403"),
        ("GET /v1/jobs/1", "-some", "404"),
        ("POST /v1/jobs/1/actions/cancel", "-some", "404"),
        ("GET /v1/jobs", "-some", "200"),
        ("POST /v1/jobs/1/actions/cancel", "-operate", "202"),
        ("DELETE /v1/targets/iqn.a", "-operate", "403"),
        ("GET /v1/audit", "-operate", "403"),
        ("DELETE /v1/targets/iqn.a", "-some", "204"),
        ("GET /v1/targets/iqn.b", "-some", "403"),
        ("GET /v1/config", "-some", "403"),
        ("DELETE /v1/portals/127.0.0.1:1", "-some", "403"),
        ("GET /v1/portals", "-some", "403"),
        ("GET /v1/health", "-some", "200"),
        ("GET /readyz", "-some", "503"),
        ("GET /metrics", "-some", "404"),
    ] {
        assert_eq!(port.status(request, &format!("{TOKEN}{end}")), status, "{request} {end}");
    }
}

#[test]
fn a_file_of_tokens_that_cannot_be_read_is_told_with_the_remedy() {
    let port = Port::new(TOKEN);
    let file = port.place.path().join("tokens");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(port.status("GET /v1/targets", TOKEN), "503");
    let troubles = port.health.troubles_now();
    assert_eq!((troubles.len(), troubles[0].kind.as_str()), (1, "api"));
    let text = &troubles[0].text;
    assert!(text.contains(file.to_str().unwrap()) && text.contains("create it with tokens in it"), "{text}");
    std::fs::write(&file, TOKEN).unwrap();
    assert_eq!(port.status("GET /v1/targets", TOKEN), "200");
    assert_eq!(port.health.troubles_now(), []);
}

#[test]
fn events_end_with_their_token() {
    let port = Port::new(&format!("{TOKEN}\n{TOKEN}-2"));
    let listen = || {
        let mut stream = port.send(
            format!("GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\r\n")
                .as_bytes(),
        );
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        stream
    };
    let until = |stream: &mut dyn Read, end: &str| {
        let (mut heard, mut byte) = (String::new(), [0]);
        while !heard.contains(end) && stream.read(&mut byte).is_ok_and(|count| count > 0) {
            heard.push(char::from(byte[0]));
        }
        heard
    };
    let mut stream = listen();
    port.events.send(event("first"));
    assert!(until(&mut stream, "first").ends_with("first"));
    std::fs::write(port.place.path().join("tokens"), format!("{TOKEN}-2")).unwrap();
    port.events.send(event("second"));
    let rest = until(&mut stream, "second");
    assert!(!rest.contains("second"), "{rest}");
}

#[test]
fn a_client_of_some_targets_does_not_learn_which_others_there_are() {
    let port = Port::new(&format!("{TOKEN}\n{TOKEN}-some targets=iqn.a"));
    let send = |request: &str, token: &str, more: &str| {
        let answer = port.ask(request, &format!("Authorization: Bearer {token}\r\n{more}"));
        answer.lines().filter(|line| !line.starts_with("date:")).collect::<Vec<_>>().join("\n")
    };
    let body = "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let requests = [
        ("GET /v1/targets/iqn.b", String::new()),
        ("DELETE /v1/targets/iqn.b", String::new()),
        ("DELETE /v1/targets/iqn.b", "If-Match: \"0\"\r\n".into()),
        ("PUT /v1/targets/iqn.b", body.into()),
        ("PUT /v1/targets/iqn.b", format!("If-Match: \"0\"\r\n{body}")),
        ("PUT /v1/targets/iqn.b", format!("If-None-Match: *\r\n{body}")),
        ("DELETE /v1/targets/iqn.b/luns/0", String::new()),
        ("PUT /v1/targets/iqn.b/luns/0", body.into()),
        ("POST /v1/targets/iqn.b/luns/0/actions/scrub", String::new()),
    ];
    let all =
        || -> Vec<_> { requests.iter().map(|(request, more)| send(request, &format!("{TOKEN}-some"), more)).collect() };
    let without = all();
    assert!(send("PUT /v1/targets/iqn.b", TOKEN, body).starts_with("HTTP/1.1 201"));
    let with = all();
    for (((request, more), without), with) in requests.iter().zip(without).zip(with) {
        assert!(with.starts_with("HTTP/1.1 403"), "{request} {more}: {with}");
        assert_eq!(with, without, "{request} {more}");
    }
}

/// The first attack that was seen: forms of a login that come byte by byte. The second one: requests whose answers are
/// not read.
#[test]
fn connections_without_a_token_keep_no_client_with_a_token_out() {
    let port = Port::new(TOKEN);
    let form = b"POST /console/login HTTP/1.1\r\nHost: x\r\nContent-Le";
    let mut held: Vec<_> = (0..MAX_ADDRESS_STRANGERS).map(|_| port.send(form)).collect();
    held.extend(
        (0..MAX_ADDRESS_STRANGERS).map(|_| port.send(&b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100))),
    );
    assert_eq!(port.status("GET /v1/targets", TOKEN), "200");
    assert_eq!(port.status("GET /metrics", TOKEN), "404");
    // The oldest have made room.
    let mut answer = Vec::new();
    let _ = held[0].read_to_end(&mut answer);
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn the_numbers_have_a_port_without_tls_that_tells_nothing_else() {
    let ask = |networks: &[&str], request: &str| {
        let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
        let listener =
            Listener::open(Place::Metrics { address: "127.0.0.1:0".parse().unwrap(), listener: None, networks })
                .unwrap();
        let address = listener.address().unwrap();
        serve(vec![listener], Arc::new(Fake::default())).unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let _ = write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    for (request, status) in [
        ("GET /healthz", "200"),
        ("GET /readyz", "503"),
        ("GET /metrics", "404"),
        ("GET /v1/targets", "404"),
        ("GET /openapi.json", "404"),
        ("GET /", "404"),
        ("DELETE /v1/targets/iqn.a", "404"),
        ("DELETE /metrics", "405"),
    ] {
        assert_eq!(ask(&["127.0.0.0/8"], request), status, "{request}");
    }
    assert_eq!(ask(&["192.0.2.0/24"], "GET /healthz"), "", "no answer to other networks");
}

#[test]
fn a_socket_is_for_its_owner_and_takes_the_place_of_a_dead_one() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("api.sock");
    let open = |group| Listener::open(Place::Unix { path: path.clone(), group, listener: None });
    let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let first = open(None).unwrap();
    assert_eq!(mode(), 0o600);
    assert!(open(None).is_err(), "the first one is alive");
    drop(first);
    let _second = open(Some(std::fs::metadata(place.path()).unwrap().gid())).unwrap();
    assert_eq!(mode(), 0o660);
    let file = place.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(Listener::open(Place::Unix { path: file.clone(), group: None, listener: None }).is_err());
    assert!(file.exists(), "a file that is no socket stays");
}

#[test]
fn the_description_names_every_path() {
    let served = Served::new();
    let description = served.get("/openapi.json");
    let paths = description["paths"].as_object().unwrap();
    for path in
        ["/v1/targets/{target}", "/v1/config:plan", "/v1/events", "/metrics", "/v1/targets/{target}/hosts/{host}"]
    {
        assert!(paths.contains_key(path), "{path}");
    }
}

/// The statuses that the description has for an operation.
fn statuses<'a>(description: &'a Value, path: &str, method: &str) -> Vec<&'a str> {
    let responses = description["paths"][path][method]["responses"].as_object();
    responses.unwrap_or_else(|| panic!("{path}")).keys().map(String::as_str).collect()
}

#[test]
fn the_description_says_how_each_request_is_refused() {
    let description = Served::new().get("/openapi.json");
    let put = ["200", "201", "400", "401", "403", "404", "408", "409", "412", "413", "415", "421", "422", "500", "503"];
    assert_eq!(statuses(&description, "/v1/targets/{target}/luns/{number}", "put"), put);
    assert_eq!(statuses(&description, "/v1/targets", "get"), ["200", "401", "403", "421", "500", "503"]);
    let kick = ["202", "400", "401", "403", "404", "421", "500", "503"];
    assert_eq!(statuses(&description, "/v1/sessions/{session}", "delete"), kick);
    let scrub = "/v1/targets/{target}/luns/{number}/actions/scrub";
    assert_eq!(statuses(&description, scrub, "post"), ["202", "400", "401", "403", "404", "409", "421", "500", "503"]);
    assert_eq!(statuses(&description, "/healthz", "get"), ["200", "421", "500"], "it asks for no token");
    assert_eq!(description["security"], json!([{ "token": [] }, { "certificate": [] }]));
    assert_eq!(description["components"]["securitySchemes"]["certificate"]["type"], "mutualTLS");
}

#[test]
fn the_description_of_a_body_leaves_out_what_the_path_says_and_knows_no_null() {
    let description = Served::new().get("/openapi.json");
    let schemas = &description["components"]["schemas"];
    assert_eq!(schemas["Target"]["required"], json!(["name"]));
    assert_eq!(schemas["TargetBody"]["required"], json!([]));
    assert!(!schemas["Target"].to_string().contains("null"), "{}", schemas["Target"]);
    let put = &description["paths"]["/v1/targets/{target}"]["put"];
    let body = &put["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(body, "#/components/schemas/TargetBody");
    let header = put["parameters"].as_array().unwrap().iter().find(|one| one["name"] == "If-Match").unwrap();
    assert_eq!((&header["required"], &header["schema"]["type"]), (&json!(false), &json!("string")));
    let link = &put["responses"]["201"]["links"]["list_luns"];
    assert_eq!(link["parameters"]["target"], "$request.path.target");
}
