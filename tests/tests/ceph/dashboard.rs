//! Ceph's own dashboard, in its ceph-mgr, over two gateways.
//!
//! The test asks the dashboard by its REST API. The dashboard, its tasks and its checks of images are those of the
//! package `ceph-mgr-dashboard`; nothing of them is replaced.
//!
//! Monitors go on to tell what a ceph-mgr has told them, and other tests need some that know nothing. So this test
//! comes after them (`xtask/src/ceph.rs`).

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lunette_testkit::ScriptedInitiator;
use lunette_tests::{
    Ceph, Configured, NAME, Owned, Ran, Server, chap_login, lunette, random_bytes, run, run_at_most, wait_until,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The time that a step of the dashboard has. Its own calls have 45 s.
const LIMIT: Duration = Duration::from_mins(2);

const TARGET: &str = "iqn.2026-11.org.example:shared";

/// An initiator that is in a group.
const MEMBER: &str = "iqn.2026-11.org.example:member";

const USER: (&str, &str) = ("initiator-one", "secretsecret");

const USER_OF_API: &str = "gateways";
const PASSWORD_OF_API: &str = "a-password-of-gateways";

/// The ports that a ceph-mgr tries: another process may take one before ceph-mgr has opened it.
const PORTS: usize = 5;

/// The version of the dashboard's REST API.
const ACCEPT: &str = "Accept: application/vnd.ceph.api.v1.0+json";

/// A gateway with the adapter.
struct Gateway {
    server: Server,
    place: Configured,
    /// The name by which the dashboard knows it.
    name: String,
    /// The address of its portal.
    address: String,
    /// The scheme of the URL of its calls.
    scheme: &'static str,
    text: String,
}

impl Gateway {
    fn start(ceph: &Ceph, number: u16, scheme: &'static str) -> Self {
        // Portals have the port 3260, so no other test may have this address.
        let pid = std::process::id();
        let address = format!("127.{}.{}.{number}", 64 + (pid >> 8 & 63), 1 + (pid & 127));
        let name = format!("gateway-{number}.example");
        let mut text = format!(
            "listen = []\nstate = \"@/state\"\n[api]\nlisten = [\"unix:@/api.sock\"]\n[adapters.dashboard]\n\
             listen = \"127.0.0.1:0\"\nname = \"{name}\"\naddresses = [\"{address}\"]\ncluster = \"{}\"\n\
             user = \"{USER_OF_API}\"\npassword_file = \"@/password\"\n",
            ceph.pool_url()
        );
        let place = Configured::new();
        fs::write(place.file("password"), PASSWORD_OF_API).unwrap();
        if scheme == "https" {
            let [certificate, key] = ["certificate", "key"].map(|name| place.file(name).display().to_string());
            let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=gateway";
            let words = words.split(' ').chain(["-out", &certificate, "-keyout", &key]);
            run("openssl", words).succeeded();
            text += "tls = { certificates = \"@/certificate\", key = \"@/key\" }\n";
        }
        let server = serve(&place, &text);
        Self { server, place, name, address, scheme, text }
    }

    /// Starts it again after its end, with what is in its folder. It has another port then.
    fn start_again(self, dashboard: &Dashboard<'_>) -> Self {
        let Self { server, place, name, address, scheme, text } = self;
        server.kill();
        let again = Self { server: serve(&place, &text), place, name, address, scheme, text };
        dashboard.command(&["iscsi-gateway-add", &again.name], &again.service_url());
        again
    }

    /// The URL of its calls, as the dashboard wants it.
    fn service_url(&self) -> String {
        format!("{}://{USER_OF_API}:{PASSWORD_OF_API}@{}", self.scheme, self.call_address())
    }

    /// The address of its calls.
    fn call_address(&self) -> String {
        let log = self.server.log();
        let line = log.lines().find(|line| line.contains("adapter for Ceph's dashboard is open")).unwrap();
        line.rsplit_once("at=").unwrap().1.trim_matches('"').to_owned()
    }

    /// The targets that it serves, as the API has them.
    fn targets(&self) -> Value {
        let socket = format!("unix:{}", self.place.file("api.sock").display());
        let ran = run_at_most(LIMIT, lunette().args(["ctl", "--api", &socket, "ls", "targets", "--json"]));
        serde_json::from_str(ran.succeeded()).expect("JSON")
    }

    /// A session of the initiator that has a password.
    fn log_in(&self) -> ScriptedInitiator {
        let mut initiator = ScriptedInitiator::connect(self.portal());
        let response = chap_login(&mut initiator, TARGET, USER, &[]).unwrap();
        assert!(response.status.is_success(), "{}", response.status);
        initiator
    }

    fn portal(&self) -> std::net::SocketAddr {
        format!("{}:3260", self.address).parse().unwrap()
    }
}

fn serve(place: &Configured, text: &str) -> Server {
    let server = place.start(text, 0);
    server.await_log("the adapter for Ceph's dashboard is open", 1);
    server.await_log("has reached the cluster", 1);
    server
}

/// A ceph-mgr with the dashboard.
struct Dashboard<'a> {
    ceph: &'a Ceph,
    url: String,
    token: String,
    folder: TempDir,
    _process: Owned,
}

impl<'a> Dashboard<'a> {
    fn start(ceph: &'a Ceph) -> Self {
        ceph.ceph(&["osd", "pool", "set", "rbd", "pg_autoscale_mode", "off"]).succeeded();
        let mut dashboard = (0..PORTS).find_map(|_| Self::try_start(ceph)).expect("a port that stays free");
        dashboard.command(&["ac-user-create", "admin", "administrator"], "Secret-password-1");
        let login = json!({ "username": "admin", "password": "Secret-password-1" });
        let (status, answer) = dashboard.ask("POST", "/api/auth", Some(&login));
        assert_eq!(status, 201, "{answer}");
        answer["token"].as_str().unwrap().clone_into(&mut dashboard.token);
        dashboard
    }

    /// Starts it at a port that is free; `None` when another process has that port by the time ceph-mgr opens it.
    fn try_start(ceph: &'a Ceph) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        // No ceph-mgr has told the monitor yet which modules and options there are.
        for (option, value) in [("ssl", "false"), ("server_addr", "127.0.0.1"), ("server_port", &port)] {
            ceph.ceph(&["config", "set", "mgr", &format!("mgr/dashboard/{option}"), value, "--force"]).succeeded();
        }
        ceph.ceph(&["mgr", "module", "enable", "dashboard", "--force"]).succeeded();
        let mut manager = ceph.program("ceph-mgr");
        manager.args(["--foreground", "--id", "x", "--admin-socket=", "--mgr-data"]).arg(folder.path());
        manager.arg("--log-file").arg(folder.path().join("log")).arg("--run-dir").arg(folder.path());
        // With them, the dashboard would check certificates all the same.
        manager.env_remove("REQUESTS_CA_BUNDLE").env_remove("CURL_CA_BUNDLE");
        let manager = Owned::start(manager.stdout(Stdio::null()).stderr(Stdio::null()));
        let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        // Of cherrypy and of the system.
        let tells = |line: &str| line.contains("not free") || line.contains("already in use");
        let is_taken = || log().lines().any(|line| line.contains(&port) && tells(line));
        let services = || {
            if is_taken() {
                return Some(None);
            }
            let services: Value = serde_json::from_str(ceph.ceph(&["mgr", "services"]).succeeded()).ok()?;
            let url = services["dashboard"].as_str()?.trim_end_matches('/');
            // An earlier ceph-mgr may have left its own.
            url.ends_with(&port).then(|| Some(url.to_owned()))
        };
        let url = wait_until(LIMIT, services).unwrap_or_else(|| panic!("no dashboard:\n{}", log()))?;
        Some(Self { ceph, url, token: String::new(), folder, _process: manager })
    }

    /// `ceph dashboard ...`, with a file as input.
    fn command(&self, words: &[&str], input: &str) -> Ran {
        let path = self.folder.path().join("input");
        fs::write(&path, input).unwrap();
        let ran = self.ceph.ceph(&[&["dashboard"], words, &["-i", path.to_str().unwrap()]].concat());
        ran.succeeded();
        ran
    }

    /// The status and the body of an answer.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--write-out",
            "\n%{http_code}",
            "--request",
            method,
            "--header",
            ACCEPT,
        ]);
        if !self.token.is_empty() {
            curl.arg("--header").arg(format!("Authorization: Bearer {}", self.token));
        }
        if let Some(body) = body {
            curl.args(["--header", "Content-Type: application/json", "--data", &body.to_string()]);
        }
        let ran = run_at_most(LIMIT, curl.arg(format!("{}{path}", self.url)));
        let (body, status) = ran.succeeded().rsplit_once('\n').unwrap();
        (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }

    fn get(&self, path: &str) -> Value {
        let (status, answer) = self.ask("GET", path, None);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Makes a change, and waits for the end of its task: nothing, or the reason why it has failed.
    fn change(&self, method: &str, path: &str, task: &str, body: Option<&Value>) -> Result<(), String> {
        let (status, answer) = self.ask(method, path, body);
        match status {
            200 | 201 | 204 => return Ok(()),
            202 => {}
            _ => return Err(answer["detail"].as_str().unwrap_or_default().to_owned()),
        }
        let ended = || {
            let name = format!("iscsi/target/{task}");
            let tasks = self.get(&format!("/api/task?name={name}"));
            // Tasks of the monitors are among them.
            let of_name = |kind: &str| {
                let tasks = tasks[kind].as_array().unwrap().iter().filter(|task| task["name"] == name.as_str());
                tasks.cloned().collect::<Vec<_>>()
            };
            let mut finished = of_name("finished_tasks");
            finished.sort_by_key(|task| task["end_time"].to_string());
            if of_name("executing_tasks").is_empty() { finished.pop() } else { None }
        };
        let last = wait_until(LIMIT, ended).expect("the task ends");
        if last["success"] == true { Ok(()) } else { Err(last["exception"]["detail"].to_string()) }
    }

    fn create(&self, target: &Value) -> Result<(), String> {
        self.change("POST", "/api/iscsi/target", "create", Some(target))
    }

    fn edit(&self, target: &Value) -> Result<(), String> {
        let mut target = target.clone();
        target["new_target_iqn"] = target["target_iqn"].take();
        target.as_object_mut().unwrap().remove("target_iqn");
        self.change("PUT", &format!("/api/iscsi/target/{TARGET}"), "edit", Some(&target))
    }

    fn delete(&self) -> Result<(), String> {
        self.change("DELETE", &format!("/api/iscsi/target/{TARGET}"), "delete", None)
    }

    /// The target as the dashboard shows it, without what is not configured.
    fn target(&self) -> Value {
        let mut target = self.get(&format!("/api/iscsi/target/{TARGET}"));
        target.as_object_mut().unwrap().remove("info");
        for client in target["clients"].as_array_mut().unwrap() {
            client.as_object_mut().unwrap().remove("info");
        }
        target
    }
}

fn auth((user, password): (&str, &str)) -> Value {
    json!({ "user": user, "password": password, "mutual_user": "", "mutual_password": "" })
}

fn disk(image: &str, lun: u16, wwn: &str) -> Value {
    json!({ "pool": "rbd", "image": image, "controls": {}, "backstore": "user:rbd", "lun": lun, "wwn": wwn })
}

fn seen(image: &str) -> Value {
    json!({ "pool": "rbd", "image": image })
}

/// Writes random bytes through both gateways, and compares them with the image.
fn copy(ceph: &Ceph, folder: &Path, gateways: &[&Gateway], number: u16, image: &str) {
    let [from, secret, to] = ["from", "secret", "to"].map(|name| folder.join(name));
    fs::write(&from, random_bytes(number.into(), 1 << 20)).unwrap();
    fs::write(&secret, USER.1).unwrap();
    let portals: Vec<&str> = gateways.iter().map(|gateway| &*gateway.address).collect();
    let url = format!(
        "iscsi://{}@{}/{TARGET}/{number}?initiator={NAME}&chap_secret_file={}&portals={}",
        USER.0,
        portals[0],
        secret.display(),
        portals[1]
    );
    run_at_most(LIMIT, lunette().arg("cp").arg(&from).arg(url)).succeeded();
    let _ = fs::remove_file(&to);
    ceph.rbd(&["export", image, to.to_str().unwrap()]).succeeded();
    assert!(fs::read(&to).unwrap().starts_with(&fs::read(&from).unwrap()), "the image has what was written");
}

#[test]
fn the_dashboard_manages_two_gateways() {
    let ceph = Ceph::alone();
    let (one, two) = (ceph.image(16), ceph.image(16));
    let (a, b) = (Gateway::start(&ceph, 1, "http"), Gateway::start(&ceph, 2, "https"));
    let dashboard = Dashboard::start(&ceph);
    // Certificates of gateways are their own.
    ceph.ceph(&["dashboard", "set-iscsi-api-ssl-verification", "false"]).succeeded();
    for gateway in [&a, &b] {
        // It asks the gateway for its name.
        dashboard.command(&["iscsi-gateway-add"], &gateway.service_url());
    }
    assert_eq!(dashboard.get("/ui-api/iscsi/status"), json!({ "available": true }));
    assert_eq!(dashboard.get("/ui-api/iscsi/version")["ceph_iscsi_config_version"], 11);
    let portals: Vec<Value> =
        [&a, &b].map(|gateway| json!({ "name": gateway.name, "ip_addresses": [gateway.address] })).into();
    assert_eq!(dashboard.get("/ui-api/iscsi/portals"), json!(portals));
    assert_eq!(dashboard.get("/ui-api/iscsi/settings")["default_backstore"], "user:rbd");

    // A target with a disk, an initiator with a password, and a group.
    let portals = [&a, &b].map(|gateway| json!({ "host": gateway.name, "ip": gateway.address }));
    let mut target = json!({
        "target_iqn": TARGET,
        "target_controls": { "max_outstanding_r2t": 4 },
        "acl_enabled": true,
        "auth": auth(("", "")),
        "portals": portals,
        "disks": [disk(&one.name, 3, "wwn-of-one")],
        "clients": [
            { "client_iqn": MEMBER, "luns": [], "auth": auth(("", "")) },
            { "client_iqn": NAME, "luns": [seen(&one.name)], "auth": auth(USER) },
        ],
        "groups": [{ "group_id": "hosts", "members": [MEMBER], "disks": [seen(&one.name)] }],
    });
    dashboard.create(&target).unwrap();
    let shown = |target: &Value| {
        let mut shown = target.clone();
        shown["clients"][0]["luns"] = shown["groups"][0]["disks"].clone();
        shown
    };
    assert_eq!(dashboard.target(), shown(&target));
    assert!(dashboard.create(&target).unwrap_err().contains("already exists"));
    copy(&ceph, dashboard.folder.path(), &[&a, &b], 3, &one.name);

    // Sessions are counted at both gateways, and keep the target.
    let sessions = [a.log_in(), b.log_in()];
    let info = dashboard.get(&format!("/api/iscsi/target/{TARGET}"));
    assert_eq!(info["info"]["num_sessions"], 2);
    assert_eq!(info["clients"][1]["info"]["state"]["LOGGED_IN"], json!([a.name, b.name]));
    let overview = dashboard.get("/ui-api/iscsi/overview");
    let gateway = |name: &String| json!({ "name": name, "state": "up", "num_targets": 1, "num_sessions": 1 });
    assert_eq!(overview["gateways"], json!([gateway(&a.name), gateway(&b.name)]));
    assert!(dashboard.delete().unwrap_err().contains("active sessions"));

    // A disk more, which the sessions find, and another value of a control.
    target["disks"].as_array_mut().unwrap().push(disk(&two.name, 5, "wwn-of-two"));
    target["clients"][1]["luns"].as_array_mut().unwrap().push(seen(&two.name));
    target["target_controls"]["max_burst_length"] = json!(524_288);
    dashboard.edit(&target).unwrap();
    assert_eq!(dashboard.target(), shown(&target));
    for mut session in sessions {
        session.round_trip();
    }
    let is_left = || (dashboard.get(&format!("/api/iscsi/target/{TARGET}"))["info"]["num_sessions"] == 0).then_some(());
    wait_until(LIMIT, is_left).expect("the sessions end with their connections");
    copy(&ceph, dashboard.folder.path(), &[&b, &a], 5, &two.name);

    // A gateway less, and again: the other one lets go of the disks and takes them.
    let mut alone = target.clone();
    alone["portals"].as_array_mut().unwrap().remove(1);
    for (wanted, gateways) in [(&alone, [&a, &a]), (&target, [&b, &a])] {
        dashboard.edit(wanted).unwrap();
        assert_eq!(dashboard.target(), shown(wanted));
        copy(&ceph, dashboard.folder.path(), &gateways, 3, &one.name);
    }

    // What is refused says why, and changes nothing.
    let discovery = "/api/iscsi/discoveryauth?user=discoverer&password=secretsecret&mutual_user=&mutual_password=";
    let (status, answer) = dashboard.ask("PUT", discovery, Some(&json!({})));
    assert_eq!(status, 500, "the dashboard has no words for a refusal of this call: {answer}");
    assert_eq!(dashboard.get("/api/iscsi/discoveryauth"), auth(("", "")));
    let mut wrong = target.clone();
    wrong["portals"][1]["ip"] = json!("192.0.2.1");
    assert!(dashboard.edit(&wrong).unwrap_err().contains("is not available on"));
    dashboard.edit(&target).unwrap();
    assert_eq!(dashboard.target(), shown(&target));

    // Without a gateway nothing changes. It comes back as it was.
    let mut fewer = target.clone();
    fewer["clients"].as_array_mut().unwrap().remove(1);
    let before = (a.targets(), b.targets());
    b.server.kill_now();
    assert!(dashboard.edit(&fewer).unwrap_err().contains("not available"));
    let b = b.start_again(&dashboard);
    assert_eq!((a.targets(), b.targets()), before);
    dashboard.edit(&fewer).unwrap();
    assert_eq!(dashboard.target(), shown(&fewer));

    dashboard.delete().unwrap();
    assert_eq!(dashboard.get("/api/iscsi/target"), json!([]));
    assert_eq!((a.targets(), b.targets()), (json!([]), json!([])));
    ceph.rbd(&["info", &one.name]).succeeded();
}
