//! The API of a running server under attack: what it shows, what it keeps, and what clients can cost.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::fs;
use std::process::{Child, Stdio};

use lunette_tests::{Api, Configured, Server, lunette, wait_until};
use serde_json::json;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

/// A server with an API at a Unix socket, and a target in its main file.
const MAIN: &str = "listen = [\"127.0.0.1:0\"]\n[api]\nlisten = [\"unix:@/api.sock\"]\n\
                    [[target]]\nname = \"iqn.2026-11.org.example:a\"\nlun = [{ number = 0, disk = \"mem:1M\" }]";

fn api(place: &Configured) -> Api {
    Api::unix(&place.file("api.sock"))
}

/// A reader of events, whose output goes to a file.
struct Events(Child);

impl Events {
    fn read(place: &Configured) -> Self {
        let output = fs::File::create(place.file("events")).unwrap();
        let socket = format!("unix:{}", place.file("api.sock").display());
        Self(lunette().args(["ctl", "events", "--api", &socket]).stdout(Stdio::from(output)).spawn().unwrap())
    }

    /// What was told so far, once it holds `text`.
    fn until(place: &Configured, text: &str) -> Option<String> {
        wait_until(LIMIT, || fs::read_to_string(place.file("events")).ok().filter(|told| told.contains(text)))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // It ends with the server, too.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Everything that leaves the server is searched for the passwords that stand in URLs of its configuration.
#[test]
fn passwords_of_urls_are_shown_nowhere_and_kept_by_those_who_write_back_what_they_read() {
    const USERS: &str = "marked-password-of-the-user";
    const TARGETS: &str = "marked-password-of-the-target";
    let secrets = Configured::new();
    fs::write(secrets.file("user"), USERS).unwrap();
    fs::write(secrets.file("target"), TARGETS).unwrap();
    let chap = |name: &str| format!("{name}:{}", secrets.file(name).display());
    let remote = Server::start_at(
        "127.0.0.1:0",
        &["mem:1M", "mem:1M", "--chap", &chap("user"), "--mutual-chap", &chap("target")],
        2,
    );
    let url = |lun: usize, user: &str, target: &str| {
        let query = format!("?target_user=target&target_password={target}");
        remote.url(lun).replacen("iscsi://", &format!("iscsi://user%{user}@"), 1) + &query
    };
    let main = |disk: &str| {
        format!(
            "{MAIN}\n[[target]]\nname = \"iqn.main\"\nlun = [{{ number = 0, disk = \"{disk}\", read_only = true }}]"
        )
    };
    let place = Configured::new();
    let folder = place.path().display().to_string();
    // Where tests write @ for the folder, these have users.
    let write = |disk: &str| {
        fs::write(place.file("config"), main("DISK").replace('@', &folder).replace("DISK", disk)).unwrap();
    };
    write(&url(0, USERS, TARGETS));
    let server = Server::spawn(lunette().args(["serve", "--config"]).arg(place.file("config")), 2);
    let api = api(&place);
    let mut told: Vec<(String, String)> = Vec::new();
    let _events = Events::read(&place);
    // What changes before the reader of events is there is not told to it.
    let heard = wait_until(LIMIT, || {
        let alias = json!({ "alias": fs::metadata(place.file("events")).unwrap().len().to_string() });
        api.ask("DELETE", "/v1/targets/iqn.first", &[], None);
        assert_eq!(api.put("/v1/targets/iqn.first", &alias).status, 201);
        fs::read_to_string(place.file("events")).ok().filter(|told| !told.is_empty())
    });
    heard.unwrap();

    let target = "/v1/targets/iqn.proxy";
    let lun = format!("{target}/luns/1");
    for (path, body) in [
        (target, json!({ "lun": [{ "number": 0, "disk": "mem:1M" }] })),
        (&lun, json!({ "disk": url(1, USERS, TARGETS) })),
    ] {
        let answer = api.put(path, &body);
        assert_eq!(answer.status, 201, "{answer:?}");
        told.push((path.into(), format!("{answer:?}")));
    }
    let file = || fs::read_to_string(place.file("conf.d/target-iqn.proxy.toml")).unwrap();
    assert!(file().contains(USERS) && file().contains(TARGETS), "the file has what the server needs");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(place.file("conf.d/target-iqn.proxy.toml")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o77, 0);

    // What was read is written back, as a part and as a whole.
    let read = api.get(&lun);
    let shown = read.json()["disk"].as_str().unwrap().to_owned();
    assert_eq!(shown, url(1, "***", "***"));
    let etag = format!("If-Match: {}", read.header("etag").unwrap());
    let kept = api.ask("PUT", &lun, &[&etag], Some(&json!({ "disk": shown, "read_only": true }).to_string()));
    assert_eq!(kept.status, 200, "{kept:?}");
    assert!(file().contains(USERS) && file().contains(TARGETS) && file().contains("read_only"), "{}", file());
    let config = api.get("/v1/config");
    let planned = api.ask("POST", "/v1/config:plan", &[], Some(&config.body));
    assert_eq!(planned.json()["changes"], json!([]), "{planned:?}");
    let etag = format!("If-Match: {}", config.header("etag").unwrap());
    let replaced = api.ask("PUT", "/v1/config", &[&etag], Some(&config.body));
    assert_eq!((replaced.status, replaced.header("etag")), (200, config.header("etag")), "{replaced:?}");
    assert!(file().contains(USERS), "{}", file());

    // A password is not sent to another place, and mistakes do not repeat it.
    let elsewhere = api.put(&lun, &json!({ "disk": "iscsi://user%***@192.0.2.1/iqn.x/0" }));
    assert!(elsewhere.problem(422).contains("write the password"), "{elsewhere:?}");
    for wrong in [
        json!({ "disk": url(1, USERS, TARGETS) + "&colour=red" }),
        json!({ "disk": url(1, USERS, TARGETS).replacen(USERS, &format!("{USERS}/"), 1) }),
        json!({ "disk": "mem:1M", "create": url(1, USERS, TARGETS) }),
        json!({ "disk": url(1, USERS, &format!("{TARGETS}-wrong")) }),
        json!({ "disk": url(1, USERS, TARGETS).replacen("iscsi", "iscis", 1) }),
    ] {
        let answer = api.put(&format!("{target}/luns/2"), &wrong);
        assert!((400..500).contains(&answer.status), "{answer:?}");
        told.push((wrong.to_string().replace(USERS, "").replace(TARGETS, ""), format!("{answer:?}")));
    }
    write(&(url(0, USERS, TARGETS) + "&colour=red"));
    server.hang_up(&["configuration refused"]);

    let description = api.get("/openapi.json");
    let described = description.json();
    let paths = described["paths"].as_object().unwrap().iter();
    let readable = paths.filter(|(path, methods)| methods.get("get").is_some() && *path != "/v1/events");
    let names = [("{target}", "iqn.proxy"), ("{number}", "1"), ("{address}", "127.0.0.1:1"), ("{host}", "h")];
    let fill = |path: &String| names.iter().fold(path.clone(), |path, (name, value)| path.replace(name, value));
    let mut pages: Vec<String> = readable.map(|(path, _)| fill(path)).collect();
    assert!(pages.len() > 10, "{pages:?}");
    pages.extend(
        [
            "",
            "targets",
            "targets/iqn.main",
            "targets/iqn.proxy",
            "disks",
            "hosts",
            "sessions",
            "config",
            "events",
            "numbers",
        ]
        .map(|page| if page.is_empty() { "/".into() } else { format!("/console/{page}") }),
    );
    pages.push("/v1/targets/iqn.main".into());
    for page in pages {
        let answer = api.get(&page);
        assert!(answer.status < 500, "{page}: {answer:?}");
        told.push((page, format!("{answer:?}")));
    }
    api.ask("DELETE", target, &[], None);
    told.push(("events".into(), Events::until(&place, "target iqn.proxy removed").unwrap()));
    let socket = format!("unix:{}", place.file("api.sock").display());
    for command in [&["show", "targets/iqn.main"][..], &["ls", "--json"]] {
        let output = lunette().args(["ctl", "--api", &socket]).args(command).output().unwrap();
        told.push((command.join(" "), String::from_utf8_lossy(&output.stdout).into_owned()));
    }
    told.push(("log".into(), server.stop()));
    for (what, text) in told {
        assert!(!text.contains("marked-password"), "{what}: {text}");
    }
}
