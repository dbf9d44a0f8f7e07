//! Quotas of pools: the volumes that clients with the role operate have, and what they may do with those of others.

use std::fs;
use std::thread;

use lunette_tests::{Answer, Api, Configured, Mount, Server, run};
use serde_json::{Value, json};

const TOKEN: &str = "0123456789abcdef0123456789";

const MIB: u64 = 1 << 20;

/// Bytes of the file system: XFS takes no smaller device.
const DEVICE_BYTES: u64 = 512 * MIB;

/// A server with a pool that has a quota, and one that has none.
struct Running {
    admin: Api,
    /// Two clients with the role operate.
    a: Api,
    b: Api,
    /// A client with this role and without a name.
    nameless: Api,
    _place: Configured,
    _server: Server,
    // The server ends before its file system.
    _pool: Mount,
}

impl Running {
    fn start(quota: &str) -> Self {
        let (place, pool) = (Configured::new(), Mount::new("mkfs.xfs", &["-q"], DEVICE_BYTES));
        let [key, certificate] = ["key.pem", "certificate.pem"].map(|name| place.file(name).display().to_string());
        let kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x"];
        let files = ["-keyout", &key, "-out", &certificate];
        run("openssl", [&["req", "-x509"][..], &kind, &files].concat()).succeeded();
        let operate = "role=operate";
        let tokens = format!(
            "{TOKEN} name=root\n{TOKEN}-a {operate} name=a\n{TOKEN}-b {operate} name=b\n{TOKEN}-nameless {operate}\n"
        );
        fs::write(place.file("tokens"), tokens).unwrap();
        fs::create_dir(place.file("plain")).unwrap();
        let folder = pool.path().display().to_string();
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nstate = \"@/state\"\n\
             [api]\nlisten = [\"127.0.0.1:0\"]\ntokens = \"@/tokens\"\n\
             tls = {{ certificates = \"@/certificate.pem\", key = \"@/key.pem\" }}\n\
             [[pool]]\nname = \"tank\"\nplace = {folder:?}\nquota = {{ operate = {quota:?} }}\n\
             [[pool]]\nname = \"plain\"\nplace = \"@/plain\"\n\
             [[target]]\nname = \"iqn.2026-11.org.example:a\"\nallow = [\"*\"]\n\
             lun = [{{ number = 0, disk = \"mem:1M\" }}]\n"
        );
        let server = place.start(&text, 1);
        server.await_log("the API at", 1);
        let log = server.log();
        let line = log.lines().find(|line| line.contains("the API at")).unwrap();
        let address = line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap();
        let api = |end: &str| Api::tls(address, &format!("{TOKEN}{end}"));
        let (admin, a, b, nameless) = (api(""), api("-a"), api("-b"), api("-nameless"));
        Self { admin, a, b, nameless, _place: place, _server: server, _pool: pool }
    }

    /// Waits for the end of the job that was taken.
    fn end_job(&self, taken: &Answer) {
        let path = taken.header("location").unwrap();
        let job = self.admin.get(&format!("{path}?wait_seconds=60")).json();
        assert_eq!(job["state"], "succeeded", "{job}");
    }

    /// The quota that a client is shown, and what it uses.
    fn quota(client: &Api) -> [Value; 2] {
        let pools = client.get("/v1/pools").json();
        assert_eq!((&pools[1]["quota_bytes"], &pools[1]["quota_used_bytes"]), (&Value::Null, &Value::Null));
        [pools[0]["quota_bytes"].clone(), pools[0]["quota_used_bytes"].clone()]
    }
}

fn send(client: &Api, method: &str, path: &str, body: &Value) -> Answer {
    let body = (!body.is_null()).then(|| body.to_string());
    client.ask(method, path, &[], body.as_deref())
}

fn create(client: &Api, volume: &str, mib: u64) -> Answer {
    send(client, "POST", &format!("/v1/volumes/tank/{volume}"), &json!({ "size_bytes": mib * MIB }))
}

fn resize(client: &Api, volume: &str, mib: u64) -> Answer {
    let change = json!({ "size_bytes": mib * MIB, "force": true });
    send(client, "PATCH", &format!("/v1/volumes/tank/{volume}"), &change)
}

fn snapshot(client: &Api, name: &str, volumes: &[&str]) -> Answer {
    send(client, "POST", "/v1/snapshots", &json!({ "volumes": volumes, "name": name }))
}

/// The reason why a client would be over its quota.
fn over_quota(answer: &Answer) -> String {
    let detail = answer.problem(409);
    assert_eq!(answer.json()["title"], "over quota", "{answer:?}");
    detail
}

/// Each request with its answers to the owner of the volumes, to another client and to an administrator. In names, `#`
/// stands for a number, so each try has volumes of its own. PROOF stands for the proof of the filling of `f#`.
#[test]
fn each_request_is_for_the_owner_and_administrators() {
    let running = Running::start("1G");
    let Running { admin, a, b, .. } = &running;
    let requests = [
        ("GET", "volumes/tank/v#", Value::Null, [200, 200, 200]),
        ("GET", "volumes/tank/v#/snapshots/s/changes", Value::Null, [200, 200, 200]),
        ("POST", "volumes/tank/new#", json!({ "size_bytes": MIB }), [201, 201, 201]),
        ("POST", "volumes/tank/new#", json!({ "clone_of": "v#@s" }), [201, 403, 201]),
        ("POST", "volumes/tank/new#", json!({ "clone_of": "v#" }), [201, 403, 201]),
        ("POST", "volumes/tank/new#", json!({ "clone_of": "golden#" }), [201, 201, 201]),
        ("POST", "volumes/tank/new#", json!({ "clone_of": "golden#@s" }), [201, 201, 201]),
        ("POST", "volumes/tank/v#", json!({ "size_bytes": MIB }), [409, 409, 409]),
        ("PATCH", "volumes/tank/v#", json!({ "size_bytes": 3 * MIB }), [200, 403, 200]),
        ("PATCH", "volumes/tank/v#", json!({ "size_bytes": MIB, "force": true }), [200, 403, 200]),
        ("PATCH", "volumes/tank/v#", json!({ "name": "w#" }), [200, 403, 200]),
        ("PATCH", "volumes/tank/v#", json!({ "labels": { "of": "us" } }), [200, 403, 200]),
        ("PATCH", "volumes/tank/v#", json!({ "labels": { "lunette.owner": "b" } }), [403, 403, 200]),
        ("PATCH", "volumes/tank/v#", json!({ "labels": { "lunette.public": "" } }), [403, 403, 200]),
        ("PATCH", "volumes/tank/golden#", json!({ "name": "mine#" }), [403, 403, 200]),
        ("DELETE", "volumes/tank/u#", Value::Null, [204, 403, 204]),
        ("POST", "volumes/tank/v#/actions/flatten", Value::Null, [202, 403, 202]),
        ("POST", "snapshots", json!({ "name": "t", "volumes": ["tank/v#", "tank/u#"] }), [201, 403, 201]),
        ("POST", "snapshots", json!({ "name": "t", "volumes": ["tank/v#", "tank/b#"] }), [403, 403, 201]),
        (
            "POST",
            "snapshots",
            json!({ "name": "t", "volumes": ["tank/v#"], "labels": { "lunette.id": "x" } }),
            [403, 403, 201],
        ),
        ("DELETE", "volumes/tank/v#/snapshots/s", Value::Null, [204, 403, 204]),
        ("POST", "volumes/tank/v#/snapshots/s/actions/rollback", Value::Null, [202, 403, 202]),
        ("POST", "volumes/tank/new#/filling", json!({ "size_bytes": MIB }), [201, 201, 201]),
        ("POST", "volumes/tank/v#/filling", json!({ "size_bytes": MIB }), [409, 403, 409]),
        ("PATCH", "volumes/tank/f#/filling", json!({ "token": "PROOF", "done_bytes": 0 }), [204, 403, 204]),
        ("POST", "volumes/tank/f#/filling/actions/end", json!({ "token": "PROOF" }), [200, 403, 200]),
        ("DELETE", "volumes/tank/f#/filling?token=PROOF", Value::Null, [204, 403, 204]),
    ];
    for (number, (method, path, body, [owner, other, root])) in requests.into_iter().enumerate() {
        for (who, client, status) in [("a", a, owner), ("b", b, other), ("root", admin, root)] {
            let end = format!("-{number}-{who}");
            let text = format!("{path} {body}");
            let is_named = |volume: &str| text.contains(&format!("{volume}#"));
            let mut with_snapshots = Vec::new();
            if is_named("golden") {
                let (golden, labels) = (format!("tank/golden{end}"), json!({ "lunette.public": "yes" }));
                let public = json!({ "size_bytes": MIB, "labels": labels });
                assert_eq!(send(admin, "POST", &format!("/v1/volumes/{golden}"), &public).status, 201);
                with_snapshots.push(golden);
            }
            for (client, volume) in [(a, "v"), (a, "u"), (b, "b")].into_iter().filter(|(_, volume)| is_named(volume)) {
                assert_eq!(create(client, &format!("{volume}{end}"), 2).status, 201);
                with_snapshots.extend((volume == "v").then(|| format!("tank/v{end}")));
            }
            if !with_snapshots.is_empty() {
                let volumes: Vec<&str> = with_snapshots.iter().map(String::as_str).collect();
                assert_eq!(snapshot(admin, "s", &volumes).status, 201);
            }
            let mut proof = String::new();
            if is_named("f") {
                let filling = format!("/v1/volumes/tank/f{end}/filling");
                let begun = send(a, "POST", &filling, &json!({ "size_bytes": MIB })).json();
                begun["token"].as_str().unwrap().clone_into(&mut proof);
            }
            let own = |text: &str| text.replace('#', &end).replace("PROOF", &proof);
            let sent: Value = serde_json::from_str(&own(&body.to_string())).unwrap();

            let answer = send(client, method, &own(&format!("/v1/{path}")), &sent);
            let case = format!("{who}: {method} {path} {body}");
            assert_eq!(answer.status, status, "{case}: {answer:?}");
            match status {
                202 => running.end_job(&answer),
                403 => assert!(answer.problem(403).contains("administrator"), "{case}: {answer:?}"),
                _ => {}
            }
            // The client that makes a volume owns it, and no change of a client gives it to another.
            for volume in admin.get("/v1/volumes?pool=tank").json().as_array().unwrap() {
                let Some(name) = volume["name"].as_str().unwrap().strip_suffix(&end) else { continue };
                let expected = match (name, who) {
                    ("new", "a" | "b") => json!(who),
                    ("new" | "golden" | "mine", _) => Value::Null,
                    // An administrator changes all labels.
                    ("v", "root") if method == "PATCH" && sent["labels"].is_object() => {
                        sent["labels"]["lunette.owner"].clone()
                    }
                    ("b", _) => json!("b"),
                    _ => json!("a"),
                };
                assert_eq!(volume["labels"]["lunette.owner"], expected, "{case}: {name}");
            }
        }
    }
    let audit = admin.get("/v1/audit?count=1000").json();
    let by = |who: &str| audit.as_array().unwrap().iter().filter(|entry| entry["who"] == who).count();
    assert!(by("a") > 20 && by("b") > 20, "{} and {}", by("a"), by("b"));
}

#[test]
fn a_client_has_no_more_than_its_quota() {
    let running = Running::start("64M");
    let Running { admin, a, b, nameless, .. } = &running;
    assert_eq!(create(a, "v", 48).status, 201);
    let refused = over_quota(&create(a, "w", 32));
    for part in ["quota of 64.00 MiB", "uses 48.00 MiB", "asks for 32.00 MiB"] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(over_quota(&resize(a, "v", 65)).contains("asks for 17.00 MiB"));
    over_quota(&send(a, "POST", "/v1/volumes/tank/w", &json!({ "clone_of": "v" })));
    over_quota(&send(a, "POST", "/v1/volumes/tank/w/filling", &json!({ "size_bytes": 17 * MIB })));
    assert_eq!(create(a, "w", 16).status, 201);
    assert_eq!(Running::quota(a), [json!(64 * MIB), json!(64 * MIB)]);
    // Each client has its own, and an administrator needs none.
    assert_eq!(Running::quota(b), [json!(64 * MIB), json!(0)]);
    assert_eq!(create(b, "x", 64).status, 201);
    assert_eq!((create(admin, "y", 100).status, resize(admin, "v", 100).status), (201, 200));
    assert_eq!(Running::quota(admin), [Value::Null, Value::Null]);
    // Over the quota, a client gets back below it.
    assert_eq!(Running::quota(a)[1], 116 * MIB);
    assert_eq!(snapshot(a, "s", &["tank/v"]).status, 201);
    assert_eq!(resize(a, "v", 1).status, 200);
    assert_eq!(create(a, "z", 1).status, 201);
    // A roll back gives a volume the length of the snapshot.
    let rollback = "/v1/volumes/tank/v/snapshots/s/actions/rollback";
    assert!(over_quota(&send(a, "POST", rollback, &Value::Null)).contains("asks for 99.00 MiB"));

    let refused = send(a, "POST", "/v1/volumes/plain/v", &json!({ "size_bytes": MIB })).problem(403);
    assert!(refused.contains("pool plain has no quota for a") && refused.contains("quota = {"), "{refused}");
    let refused = create(nameless, "n", 1).problem(403);
    assert!(refused.contains("write name=NAME"), "{refused}");
}

#[test]
fn a_filling_that_is_undone_does_not_exceed_the_quota() {
    let running = Running::start("64M");
    let a = &running.a;
    let filling = "/v1/volumes/tank/v/filling";
    assert_eq!((create(a, "v", 32).status, snapshot(a, "s", &["tank/v"]).status), (201, 201));
    let base = a.get("/v1/volumes/tank/v/snapshots/s/changes").json()["snapshot"]["id"].clone();
    let order = json!({
        "size_bytes": MIB,
        "since": { "name": "s", "id": base },
        "snapshot": { "name": "t", "id": "0123456789abcdef" },
    });
    let begun = send(a, "POST", filling, &order);
    assert_eq!(begun.status, 201, "{begun:?}");
    let undo = format!("{filling}?token={}", begun.json()["token"].as_str().unwrap());
    assert_eq!(create(a, "w", 40).status, 201);
    over_quota(&send(a, "DELETE", &undo, &Value::Null));
    assert_eq!(resize(a, "w", 32).status, 200);
    assert_eq!(send(a, "DELETE", &undo, &Value::Null).status, 204);
    assert_eq!(Running::quota(a)[1], 64 * MIB);
}

#[test]
fn requests_at_once_do_not_exceed_the_quota_together() {
    let running = Running::start("64M");
    let a = &running.a;
    let statuses = thread::scope(|scope| {
        let ask = |number: u32| create(a, &format!("v{number}"), 24).status;
        let clients: Vec<_> = (0..6).map(|number| scope.spawn(move || ask(number))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    let count = |status: u16| statuses.iter().filter(|known| **known == status).count();
    assert_eq!((count(201), count(409)), (2, 4), "{statuses:?}");
    assert_eq!(Running::quota(a)[1], 48 * MIB);
}
