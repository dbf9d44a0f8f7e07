//! The collection for Ansible: playbooks over a server with a pool.

use std::time::Duration;

use lunette_tests::{Api, Ran, attach, run_at_most};
use serde_json::{Value, json};

use crate::contrib::{EMPTY, Running, TARGET, program_in};

/// The tasks that change something in present.yml, and in absent.yml.
const PRESENT: usize = 6;
const ABSENT: usize = 5;

impl Running {
    /// Runs a playbook of the collection's tests.
    fn play(&self, playbook: &str, arguments: &[&str]) -> Ran {
        let socket = format!("unix:{}", self.file("api.sock"));
        let given = json!({
            "url": socket,
            "tls_url": self.url,
            "token_file": self.file("token"),
            "ca": self.file("certificate.pem"),
            "secret": self.file("token"),
            "used": TARGET,
        });
        let mut command = program_in("ansible/tests", "ansible-playbook");
        command.args(["-i", "localhost,", "-c", "local", "-e", &given.to_string(), playbook]).args(arguments);
        command.envs([
            ("ANSIBLE_COLLECTIONS_PATH", ".."),
            ("ANSIBLE_HOME", &self.file("ansible")),
            ("ANSIBLE_LOCAL_TEMP", &self.file("ansible-local")),
            ("ANSIBLE_REMOTE_TEMP", &self.file("ansible-remote")),
            ("ANSIBLE_NOCOLOR", "1"),
            ("ANSIBLE_PIPELINING", "1"),
            ("ANSIBLE_PYTHON_INTERPRETER", "/usr/bin/python3"),
            ("LC_ALL", "C.UTF-8"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
        ]);
        run_at_most(Duration::from_mins(2), &mut command)
    }

    /// Runs a playbook in which this many tasks change something, and none fails.
    fn changes(&self, playbook: &str, arguments: &[&str], count: usize) {
        let ran = self.play(playbook, arguments);
        assert!(ran.succeeded().contains(&format!(" changed={count} ")), "{playbook} {arguments:?}: {ran}");
    }
}

#[test]
fn a_second_run_of_a_playbook_changes_nothing() {
    let running = Running::start();
    let api = Api::unix(&running.place.file("api.sock"));
    let names = |path: &str| -> Vec<Value> {
        api.get(path).json().as_array().unwrap().iter().map(|one| one["name"].clone()).collect()
    };
    let everything = || (names("/v1/volumes"), names("/v1/targets"));
    let empty = (Vec::new(), vec![json!(TARGET), json!(EMPTY)]);
    assert_eq!(everything(), empty);
    running.changes("present.yml", &["--check", "--diff"], PRESENT);
    assert_eq!(everything(), empty, "check mode changes nothing");
    running.changes("present.yml", &[], PRESENT);
    let expected = json!({
        "name": "iqn.2026-11.org.example:web",
        "alias": "disks of web servers",
        "allow": [],
        "chap": [{ "user": "web", "secret_file": running.file("token") }],
        "session": { "error_recovery_level": 1 },
        "lun": [{ "number": 3, "disk": "volume:tank/web-1", "product": "WEB" }],
        "host": [{
            "name": "web-1",
            "initiators": ["iqn.2026-11.org.example:web-1"],
            "lun": [{ "number": 3, "as": 0 }],
        }],
    });
    assert_eq!(api.get("/v1/targets/iqn.2026-11.org.example:web").json(), expected);
    assert_eq!(names("/v1/volumes/tank/golden/snapshots"), ["v1"]);
    let volume = api.get("/v1/volumes/tank/web-1").json();
    assert_eq!((&volume["size_bytes"], &volume["origin"]), (&json!(16 << 20), &Value::Null), "{volume}");
    running.changes("present.yml", &[], 0);

    let session = attach(&running.server, &[]);
    running.play("changes.yml", &[]).succeeded();
    drop(session);
    assert_eq!(api.get(&format!("/v1/targets/{TARGET}")).json()["lun"], json!([]));

    running.changes("absent.yml", &["--check"], ABSENT);
    running.changes("absent.yml", &[], ABSENT);
    assert_eq!(everything(), empty);
    running.changes("absent.yml", &[], 0);
    running.server.stop();
}
