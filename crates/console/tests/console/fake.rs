//! A server that serves nothing and remembers what it was asked.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use axum::{Extension, Router};
use http_body_util::BodyExt;
use lunette_api::jobs::{Job, JobKind, JobOrder, JobRun, Jobs};
use lunette_api::volumes::{
    Changes, FillOrder, Filling, FillingEnd, FillingStep, Labels, NewVolume, Pool, Snapshot, SnapshotOrder,
    SnapshotPath, Taken, TakingOver, Volume, VolumeChange, VolumePath, Volumes,
};
use lunette_api::{
    Access, AuditLog, Caller, Catalog, Changed, Disk, Event, Events, Key, Kind, Notice, Order, Plan, PlannedChange,
    Problem, Server, Session, Site,
};
use lunette_console::Console;
use serde_json::{Value, json};
use tower::ServiceExt;

/// The token of places that ask for one.
pub(crate) const TOKEN: &str = "a-token-that-no-page-may-show";

/// A password of a disk.
pub(crate) const PASSWORD: &str = "a-password-that-no-page-may-show";

/// A text that a page would run if it did not escape it.
pub(crate) const HOSTILE: &str = "\"'><script>alert(1)</script>{x}";

pub(crate) const TARGET: &str = "iqn.2026-11.org.example:db";

#[derive(Default)]
pub(crate) struct Fake {
    catalog: Mutex<Arc<Catalog>>,
    sessions: Mutex<Vec<Session>>,
    events: Events,
    audit: AuditLog,
    jobs: Jobs,
    /// The work of the jobs, which does not end.
    runs: Arc<Mutex<Vec<JobRun>>>,
    scrapes: AtomicU32,
    is_broken: AtomicBool,
    /// Whether sessions use everything.
    is_used: AtomicBool,
    /// The changes, plans and ends of sessions.
    calls: Mutex<Vec<&'static str>>,
    /// The texts of others.
    text: &'static str,
}

impl Fake {
    /// A server whose initiators and administrators try everything.
    pub(crate) fn new() -> Arc<Self> {
        Self::with(HOSTILE)
    }

    /// A server for pictures.
    pub(crate) fn plain() -> Arc<Self> {
        Self::with("iqn.2026-11.org.example:backup")
    }

    fn with(text: &'static str) -> Arc<Self> {
        let mut catalog = Catalog { main_file: "/etc/lunette/lunette.toml".into(), ..Catalog::default() };
        let mut put = |is_main: bool, kind, name: &str, value: Value| {
            let Value::Object(document) = value else { panic!("{value}") };
            let objects = if is_main { &mut catalog.main } else { &mut catalog.objects };
            objects.put(Key::new(kind, name).unwrap(), document).unwrap();
        };
        let luns = json!([
            { "number": 0, "disk": "/srv/db.img", "create": "100G" },
            { "number": 1, "disk": format!("iscsi://alice%{PASSWORD}@192.0.2.9/iqn.a/0"), "read_only": true },
        ]);
        let hosts = json!([
            { "name": "node-a", "initiators": ["iqn.2026-11.org.example:node-a"], "lun": [{ "number": 1, "as": 0, "read_only": true }] },
            { "name": text, "initiators": [text], "networks": [text] },
        ]);
        put(false, Kind::Target, TARGET, json!({ "alias": "the database", "lun": luns, "host": hosts }));
        put(false, Kind::Target, "iqn.x:hostile?#%", json!({ "alias": text, "lun": [{ "number": 0, "disk": text }] }));
        put(
            true,
            Kind::Target,
            "iqn.2026-11.org.example:main",
            json!({ "allow": [], "lun": [{ "number": 0, "disk": "mem:1G" }] }),
        );
        put(false, Kind::Portal, "[::1]:3260", json!({ "group": 2 }));
        put(true, Kind::Portal, "192.0.2.1:3260", json!({}));
        let sessions = vec![session(7, "iqn.2026-11.org.example:node-a"), session(8, text)];
        let fake = Self { catalog: Mutex::new(catalog.into()), sessions: sessions.into(), text, ..Self::default() };
        fake.begin_job(TARGET, 9, text).unwrap();
        fake.begin_job("iqn.x:hostile?#%", 9, text).unwrap();
        Arc::new(fake)
    }

    /// Begins a job whose work does not end.
    fn begin_job(&self, target: &str, lun: u16, client: &str) -> Result<Arc<Job>, Problem> {
        let order = JobOrder {
            kind: JobKind::Scrub,
            object: format!("targets/{target}/luns/{lun}"),
            target: Some(target.into()),
            started_by: client.into(),
            total_bytes: 10 << 30,
        };
        let runs = Arc::clone(&self.runs);
        self.jobs.order(order, move |run| {
            assert!(run.report(3 << 30, 10 << 30).is_continue());
            runs.lock().unwrap().push(run);
        })
    }

    /// The console and the API over it.
    pub(crate) fn router(self: &Arc<Self>, access: Access) -> Router {
        self.router_for(access, Caller::admin("a test", "here"))
    }

    /// The console and the API for this client.
    pub(crate) fn router_for(self: &Arc<Self>, access: Access, caller: Caller) -> Router {
        let server: Arc<dyn Server> = Arc::clone(self) as _;
        let console = Console::new(Arc::clone(&server));
        let routes = lunette_api::router(server).merge(console.pages(access));
        let routes = routes.layer(Extension(Arc::new(caller)));
        let routes = match access {
            Access::Open => routes,
            Access::Tokens => routes.layer(from_fn(require_token)),
        };
        console.front(routes, access)
    }

    /// The calls since the last time.
    pub(crate) fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    pub(crate) fn document(&self, target: &str) -> Option<Value> {
        let key = Key::new(Kind::Target, target).unwrap();
        self.catalog.lock().unwrap().find(&key).cloned().map(Value::Object)
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions.lock().unwrap().len()
    }

    /// From now on the server panics when it is asked for its sessions.
    pub(crate) fn break_down(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// From now on sessions use everything.
    pub(crate) fn be_used(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// A session ends by itself.
    pub(crate) fn end(&self, id: u16) -> bool {
        let mut sessions = self.sessions.lock().unwrap();
        let before = sessions.len();
        sessions.retain(|session| session.id != id);
        sessions.len() < before
    }

    /// Sends an event to all readers.
    pub(crate) fn happen(&self) {
        self.events.send(Event {
            kind: "change".into(),
            text: format!("changed {}", self.text),
            target: None,
            initiator: None,
        });
    }

    fn call(&self, call: &'static str) {
        self.calls.lock().unwrap().push(call);
    }
}

/// Stands for the check of the API, which has the same answer.
async fn require_token(request: Request<Body>, next: Next) -> Response<Body> {
    let token = request.headers().get(header::AUTHORIZATION);
    if token.is_some_and(|token| token.as_bytes() == format!("Bearer {TOKEN}").as_bytes()) {
        next.run(request).await
    } else {
        Problem::unauthorized("send a token").into_response()
    }
}

fn session(id: u16, initiator: &str) -> Session {
    Session {
        id,
        target: Some(TARGET.into()),
        initiator: initiator.into(),
        isid: "80a1b2c30000".into(),
        host: Some("node-a".into()),
        user: Some("node-a".into()),
        certificate: None,
        chap_algorithm: Some("sha256".into()),
        portal_group: 1,
        portals: vec!["192.0.2.1:3260".into()],
        age_seconds: 3725,
        read_bytes: 5 << 30,
        written_bytes: 3 << 20,
        peers: vec!["192.0.2.7:51234".into(), "192.0.2.7:51235".into()],
        commands: 12,
        header_digest: "CRC32C".into(),
        data_digest: "CRC32C".into(),
        error_recovery_level: 0,
        max_connections: 8,
        max_recv_data_segment_length: 262_144,
        max_burst_length: 1_048_576,
        first_burst_length: 262_144,
        initial_r2t: false,
        immediate_data: true,
    }
}

impl Server for Fake {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.lock().unwrap())
    }

    fn plan(&self, Order { edit, .. }: Order) -> Result<Plan, Problem> {
        self.call("plan");
        edit(&self.catalog())?;
        let notices = "unit attention REPORTED LUNS DATA HAS CHANGED".into();
        let sessions = vec![Notice { session: 7, initiator: "iqn.2026-11.org.example:node-a".into(), notices }];
        let change = format!("target {TARGET}: LUN 1 removed");
        Ok(Plan {
            changes: vec![PlannedChange { change, sessions, takes_away: true, obstacle: None }],
            needs_force: true,
        })
    }

    fn change(&self, Order { edit, force, .. }: Order) -> Result<Changed, Problem> {
        self.call("change");
        if self.is_used.load(Ordering::Relaxed) && !force {
            return Err(Problem::in_use("LUN 0 removed: in use by session 7"));
        }
        let mut catalog = self.catalog.lock().unwrap();
        let objects = edit(&catalog)?;
        *catalog = Arc::new(Catalog { objects, ..(**catalog).clone() });
        self.happen();
        Ok(Changed { plan: Plan::default(), catalog: Arc::clone(&catalog) })
    }

    fn sessions(&self) -> Result<Vec<Session>, Problem> {
        assert!(!self.is_broken.load(Ordering::Relaxed), "this is meant to happen");
        Ok(self.sessions.lock().unwrap().clone())
    }

    fn end_session(&self, id: u16, _: &Caller) -> Result<bool, Problem> {
        self.call("end");
        Ok(self.end(id))
    }

    fn disks(&self) -> Vec<Disk> {
        let catalog = self.catalog();
        let mut disks = Vec::new();
        for (target, document, _) in catalog.of(Kind::Target) {
            for unit in document.get("lun").and_then(Value::as_array).into_iter().flatten() {
                let create =
                    unit.get("create").and_then(Value::as_str).and_then(|size| size.trim_end_matches('G').parse().ok());
                disks.push(Disk {
                    target: target.into(),
                    number: unit["number"].as_u64().unwrap() as u16,
                    size_bytes: create.unwrap_or(1_u64) << 30,
                    block_size: 512,
                    serial: format!("serial {}", self.text),
                });
            }
        }
        disks
    }

    fn ready(&self) -> Result<(), String> {
        if self.text == HOSTILE { Err(HOSTILE.into()) } else { Ok(()) }
    }

    /// Each reading finds as much more as two seconds at 1000 reads and 500 writes per second leave.
    fn metrics(&self) -> Option<String> {
        let scrape = self.scrapes.fetch_add(1, Ordering::Relaxed);
        let of = format!("target=\"{TARGET}\",lun=\"0\"");
        let (reads, writes) = (scrape * 2000, scrape * 1000);
        Some(format!(
            "lunette_lun_commands_total{{{of},op=\"read\"}} {reads}\n\
             lunette_lun_commands_total{{{of},op=\"write\"}} {writes}\n\
             lunette_lun_read_bytes_total{{{of}}} {}\n\
             lunette_lun_written_bytes_total{{{of}}} {}\n\
             lunette_lun_command_duration_seconds_sum{{{of},op=\"read\"}} {}\n\
             lunette_lun_command_duration_seconds_sum{{{of},op=\"write\"}} {}\n\
             lunette_lun_command_duration_seconds_bucket{{{of},op=\"read\",le=\"0.0005\"}} {reads}\n\
             lunette_lun_command_duration_seconds_bucket{{{of},op=\"write\",le=\"0.001\"}} {writes}\n",
            u64::from(reads) * 65_536,
            u64::from(writes) * 65_536,
            f64::from(reads) * 0.000_2,
            f64::from(writes) * 0.000_4,
        ))
    }

    fn scrub(&self, target: &str, lun: u16, caller: &Caller) -> Result<Arc<Job>, Problem> {
        self.call("scrub");
        self.begin_job(target, lun, &caller.name)
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(self)
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

    fn schemas(&self) -> Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)> {
        Vec::new()
    }
}

/// A pool with a volume that has two snapshots, and a clone of one.
impl Volumes for Fake {
    fn pools(&self, _: &Caller) -> Vec<Pool> {
        let pool = |name: &str, trouble: Option<&str>| Pool {
            name: name.into(),
            place: format!("/srv/{}", self.text),
            trouble: trouble.map(str::to_owned),
            volumes: 2,
            committed_bytes: 40 << 30,
            total_bytes: 32 << 30,
            used_bytes: 24 << 30,
            free_bytes: 8 << 30,
            is_low: true,
            quota_bytes: Some(48 << 30),
            quota_used_bytes: Some(40 << 30),
        };
        vec![pool("tank", None), pool("other", Some(self.text))]
    }

    fn volumes(&self, _: Option<&str>) -> Result<Vec<Volume>, Problem> {
        Ok(vec![self.volume_of("golden", None), self.volume_of("web-1", Some("golden@v1"))])
    }

    fn volume(&self, at: &VolumePath) -> Result<Volume, Problem> {
        let volume = self.volume_of(&at.volume, None);
        Ok(Volume { own_bytes: Some(2 << 30), shared_bytes: Some(3 << 30), ..volume })
    }

    fn snapshots(&self, at: &VolumePath) -> Result<Vec<Snapshot>, Problem> {
        let snapshot = |name: &str| Snapshot {
            pool: at.pool.clone(),
            volume: at.volume.clone(),
            name: name.into(),
            size_bytes: 20 << 30,
            created: 1_796_000_000,
            labels: self.labels(),
            luns: vec![format!("targets/{}/luns/3", self.text)],
        };
        Ok(vec![snapshot("v1"), snapshot("v2")])
    }

    fn create(&self, at: &VolumePath, _: NewVolume, _: &Caller) -> Result<Volume, Problem> {
        self.call("create");
        Ok(self.volume_of(&at.volume, None))
    }

    fn change(&self, at: &VolumePath, _: VolumeChange, _: &Caller) -> Result<Volume, Problem> {
        self.call("change");
        Ok(self.volume_of(&at.volume, None))
    }

    fn remove(&self, _: &VolumePath, _: &Caller) -> Result<(), Problem> {
        self.call("remove");
        Ok(())
    }

    fn snapshot(&self, _: SnapshotOrder, _: &Caller) -> Result<Taken, Problem> {
        self.call("snapshot");
        Ok(Taken { snapshots: Vec::new(), pause_us: 0 })
    }

    fn remove_snapshot(&self, _: &SnapshotPath, _: &Caller) -> Result<(), Problem> {
        self.call("remove");
        Ok(())
    }

    fn roll_back(&self, _: &SnapshotPath, caller: &Caller) -> Result<Arc<Job>, Problem> {
        self.call("roll back");
        self.begin_job(TARGET, 3, &caller.name)
    }

    fn flatten(&self, _: &VolumePath, caller: &Caller) -> Result<Arc<Job>, Problem> {
        self.call("flatten");
        self.begin_job(TARGET, 4, &caller.name)
    }

    fn changes(&self, _: &SnapshotPath, _: Option<&str>, _: u64) -> Result<Changes, Problem> {
        unreachable!("no page moves content")
    }

    fn fill(&self, _: &VolumePath, _: FillOrder, _: &Caller) -> Result<Filling, Problem> {
        unreachable!("no page moves content")
    }

    fn keep_filling(&self, _: &VolumePath, _: FillingStep, _: &Caller) -> Result<(), Problem> {
        unreachable!("no page moves content")
    }

    fn end_filling(&self, _: &VolumePath, _: FillingEnd, _: &Caller) -> Result<Volume, Problem> {
        unreachable!("no page moves content")
    }

    fn undo_filling(&self, _: &VolumePath, _: &str, _: &Caller) -> Result<(), Problem> {
        unreachable!("no page moves content")
    }
}

impl Fake {
    fn labels(&self) -> Labels {
        [("owner".to_owned(), self.text.to_owned())].into()
    }

    fn volume_of(&self, name: &str, origin: Option<&str>) -> Volume {
        Volume {
            pool: "tank".into(),
            name: name.into(),
            size_bytes: 20 << 30,
            serial: "0123456789abcdef".into(),
            created: 1_796_000_000,
            labels: self.labels(),
            origin: origin.map(str::to_owned),
            filling: false,
            taking_over: Some(TakingOver {
                source: self.text.to_owned(),
                done_bytes: 5 << 30,
                total_bytes: 20 << 30,
                trouble: Some(self.text.to_owned()),
            }),
            luns: vec![format!("targets/{}/luns/2", self.text)],
            own_bytes: None,
            shared_bytes: None,
        }
    }
}

/// An answer as the tests look at it.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: axum::http::HeaderMap,
    pub(crate) text: String,
}

/// Sends a request.
pub(crate) async fn send(router: &Router, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost:8080");
    for (name, value) in headers {
        match *name {
            "host" => *request.headers_mut().unwrap().get_mut(header::HOST).unwrap() = value.parse().unwrap(),
            _ => request = request.header(*name, *value),
        }
    }
    let response = router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer { status: head.status, headers: head.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}
