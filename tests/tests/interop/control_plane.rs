//! The control plane of a running server: protection against slips, the rights of machines and tokens, and unexpected
//! files.

use std::fs;
use std::process::Output;

use lunette_tests::{Configured, Server, attach, lunette, run};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

const DB: &str = "targets/iqn.2026-11.org.example:a";

/// An API at a Unix socket and at a port, and a port for the metrics.
const MAIN: &str = "listen = []\nstate = \"@/state\"\n\
                    [metrics]\nlisten = [\"127.0.0.1:0\"]\n\
                    [api]\nlisten = [\"unix:@/api.sock\", \"127.0.0.1:0\"]\ntokens = \"@/tokens\"\n\
                    tls = { certificates = \"@/certificate.pem\", key = \"@/key.pem\" }\n";

const TOKEN: &str = "0123456789abcdef0123456789";

struct Running {
    place: Configured,
    server: Server,
}

impl Running {
    /// A server with the certificate that `docs/operations.md` makes, and a target with two disks in `conf.d`.
    fn start() -> Self {
        let place = Configured::new();
        let operations = include_str!("../../../docs/operations.md");
        let recipe = operations.split_once("openssl req").unwrap().1.split_once("-keyout").unwrap().0;
        let recipe = recipe.replace("\\\n", " ").replace("192.0.2.1", "127.0.0.1");
        let (key, certificate) = (place.file("key.pem"), place.file("certificate.pem"));
        let files = ["-keyout", key.to_str().unwrap(), "-out", certificate.to_str().unwrap()];
        let words: Vec<&str> = ["req"].into_iter().chain(recipe.split_whitespace()).chain(files).collect();
        run("openssl", words).succeeded();
        fs::write(place.file("tokens"), format!("{TOKEN} name=ops\n{TOKEN}-read role=read\n")).unwrap();
        fs::write(place.file("reader"), format!("{TOKEN}-read")).unwrap();
        fs::create_dir(place.file("conf.d")).unwrap();
        let portal = "[[portal]]\naddress = \"127.0.0.1:0\"";
        fs::write(place.file("conf.d/portal-127.0.0.1:0.toml"), portal).unwrap();
        let target = "[[target]]\nname = \"iqn.2026-11.org.example:a\"\nalias = \"old\"\nallow = [\"*\"]\n\
                      lun = [{ number = 0, disk = \"mem:1M\" }, { number = 1, disk = \"mem:1M\", read_only = true }]";
        fs::write(place.file("conf.d/target-iqn.2026-11.org.example:a.toml"), target).unwrap();
        let server = place.start(MAIN, 2);
        Self { place, server }
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        let socket = format!("unix:{}", self.place.file("api.sock").display());
        lunette().args(["ctl", "--api", &socket]).args(arguments).output().unwrap()
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stderr).unwrap()
    }

    fn target(&self) -> Value {
        serde_json::from_str(&self.done(&["show", "--json", DB])).unwrap()
    }

    /// The address of the n-th line of the log with these words.
    fn address(&self, words: &str, index: usize) -> String {
        self.server.await_log(words, index + 1);
        let log = self.server.log();
        let line = log.lines().filter(|line| line.contains(words)).nth(index).unwrap();
        line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap().into()
    }
}

#[test]
fn nothing_is_lost_by_omission() {
    let running = Running::start();
    let before = running.target();
    let message = running.refused(&["add", DB, "alias=fancy"]);
    assert!(message.contains("is there already") && message.contains("ctl set"), "{message}");
    assert_eq!(running.target(), before);
    let lun = format!("{DB}/luns/1");
    running.refused(&["add", &lun, "disk=mem:2M"]);
    let told = running.done(&["set", "--dry-run", DB, "alias=fancy"]);
    assert!(told.contains("alias changed"), "{told}");
    assert_eq!(running.target(), before);

    running.done(&["set", DB, "alias=fancy", "redirect={ to = [\"192.0.2.9:3260\"] }"]);
    running.done(&["set", &lun, "read_only=false", "product=DB"]);
    running.done(&["set", DB, "--unset", "redirect", "lun.1.vendor=ACME"]);
    let mut expected = before.clone();
    expected["alias"] = json!("fancy");
    expected["lun"][1] =
        json!({ "number": 1, "disk": "mem:1M", "read_only": false, "product": "DB", "vendor": "ACME" });
    assert_eq!(running.target(), expected);
    let message = running.refused(&["set", "targets/iqn.other", "alias=x"]);
    assert!(message.contains("add it with"), "{message}");

    // In use.
    let mut initiator = attach(&running.server, &[]);
    for (path, what) in [(DB, "target iqn.2026-11.org.example:a"), (&lun, "LUN 1"), ("portals/127.0.0.1:0", "")] {
        if !what.is_empty() {
            let message = running.refused(&["rm", path]);
            assert!(message.contains(what) && message.contains("in use by session"), "{message}");
        }
        let told = running.done(&["rm", "--dry-run", path]);
        assert!(told.contains("removed"), "{told}");
    }
    assert_eq!(running.target(), expected);
    let message = running.refused(&["replace", DB, "alias=bare"]);
    assert!(message.contains("in use by session"), "{message}");
    running.done(&["rm", "--force", DB]);
    initiator.wait_for_logout_request();
    drop(initiator);
    // A session of the target that is gone has no host in the next one of its name.
    while running.done(&["sessions", "--json"]).trim() != "[]" {}

    // By default nothing is let in.
    let told = running.done(&["add", DB]);
    assert!(told.contains("lets in no initiator yet"), "{told}");
    assert_eq!(running.target()["allow"], json!([]));
    running.done(&["add", &format!("{DB}/hosts/h"), "initiators=[\"iqn.x\"]"]);
    running.done(&["rm", &format!("{DB}/hosts/h")]);
    assert_eq!(running.target()["allow"], json!([]), "nor without its last host");

    let log: Value = serde_json::from_str(&running.done(&["audit", "--count", "1000", "--json"])).unwrap();
    let entries = log.as_array().unwrap();
    let removal = entries.iter().find(|entry| entry["changes"][0].get("new").is_none() && entry["outcome"] == "done");
    assert_eq!(removal.unwrap()["changes"][0]["old"], expected);
    assert!(entries.iter().any(|entry| entry["outcome"].as_str().unwrap().contains("in use")), "{log}");
    let file = fs::read_to_string(running.place.file("state.audit")).unwrap();
    assert_eq!(file.lines().count(), entries.len());
}

#[test]
fn another_machine_is_reached_with_a_token_of_its_role() {
    let running = Running::start();
    let server = format!("https://{}", running.address("the API at 127", 0));
    let ca = running.place.file("certificate.pem").display().to_string();
    let remote = |token: &str, arguments: &[&str]| {
        let token = running.place.file(token).display().to_string();
        lunette()
            .args(["ctl", "--server", &server, "--token-file", &token, "--ca", &ca])
            .args(arguments)
            .output()
            .unwrap()
    };
    let listed = remote("tokens", &["ls"]);
    assert!(listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("example:a"), "{listed:?}");
    assert!(remote("tokens", &["set", DB, "alias=remote"]).status.success());
    let entry: Value = serde_json::from_str(&running.done(&["audit", "--count", "1", "--json"])).unwrap();
    assert_eq!(entry[0]["who"], "ops");
    assert!(entry[0]["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{entry}");
    assert!(remote("reader", &["ls"]).status.success());
    let refused = remote("reader", &["rm", "--force", DB]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("has the role read, and this takes admin"),
        "{refused:?}"
    );

    // A client that does not trust the certificate is in the log.
    let foreign = running.place.file("foreign.pem");
    let key = running.place.file("foreign-key.pem");
    let files = ["-keyout", key.to_str().unwrap(), "-out", foreign.to_str().unwrap()];
    run("openssl", [&["req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=x"][..], &files].concat())
        .succeeded();
    let token = running.place.file("tokens").display().to_string();
    let foreign = foreign.display().to_string();
    let untrusted =
        lunette().args(["ctl", "--server", &server, "--token-file", &token, "--ca", &foreign, "ls"]).output();
    assert_eq!(untrusted.unwrap().status.code(), Some(1));
    running.server.await_log("a TLS handshake has failed", 1);

    let metrics = running.address("the metrics at", 0);
    let ask = |path: &str| {
        let url = format!("http://{metrics}{path}");
        run("curl", ["-s", "--write-out", "\n%{http_code}", &url]).succeeded().to_owned()
    };
    assert!(ask("/metrics").contains("lunette_"));
    assert!(ask("/v1/targets").ends_with("404"));
}

#[test]
fn files_that_are_none_cost_their_request_and_nothing_else() {
    let running = Running::start();
    mknodat(CWD, running.place.file("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let fifo = running.place.file("fifo").display().to_string();
    let folder = running.place.path().display().to_string();
    for (file, expected) in [("/dev/zero", "a character device"), (&fifo, "a FIFO"), (&folder, "a directory")] {
        let chap = format!("chap=[{{ user = \"u\", secret_file = \"{file}\" }}]");
        let message = running.refused(&["set", DB, &chap]);
        assert!(message.contains(expected) && message.contains("a secret"), "{message}");
        let output = running.ctl(&["plan", "-f", file]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && message.contains(expected), "{message}");
    }
    assert!(running.target().get("chap").is_none());
}
