//! The API of a running server under attack: what it shows, what it keeps, and what clients can cost.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use lunette_tests::{Api, Configured, Owned, Server, lunette, wait_until};
use serde_json::json;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

/// A server with an API at a Unix socket, and a target in its main file.
const MAIN: &str = "listen = [\"127.0.0.1:0\"]\n[api]\nlisten = [\"unix:@/api.sock\"]\n\
                    [[target]]\nname = \"iqn.2026-11.org.example:a\"\nlun = [{ number = 0, disk = \"mem:1M\" }]";

fn api(place: &Configured) -> Api {
    Api::unix(&place.file("api.sock"))
}

/// A reader of events, whose output goes to a file.
struct Events {
    _process: Owned,
}

impl Events {
    fn read(place: &Configured) -> Self {
        let output = fs::File::create(place.file("events")).unwrap();
        let socket = format!("unix:{}", place.file("api.sock").display());
        let mut command = lunette();
        command.args(["ctl", "events", "--api", &socket]).stdout(Stdio::from(output));
        Self { _process: Owned::start(command) }
    }

    /// The text that was told so far, once it holds `text`.
    fn until(place: &Configured, text: &str) -> Option<String> {
        wait_until(LIMIT, || fs::read_to_string(place.file("events")).ok().filter(|told| told.contains(text)))
    }
}

const USERS: &str = "marked-password-of-the-user";
const TARGETS: &str = "marked-password-of-the-target";

/// The target that is added through the API, and its disk behind a URL.
const PROXY: &str = "/v1/targets/iqn.proxy";
const PROXY_DISK: &str = "/v1/targets/iqn.proxy/luns/1";

/// A server whose disks are those of another one, behind URLs with passwords: one in its main file, one in `conf.d`.
struct Proxy {
    place: Configured,
    server: Server,
    remote: Server,
    api: Api,
    /// The texts that have left the server, and where they were read.
    told: Vec<(String, String)>,
}

impl Proxy {
    fn start() -> Self {
        let place = Configured::new();
        fs::write(place.file("user"), USERS).unwrap();
        fs::write(place.file("target"), TARGETS).unwrap();
        let chap = |name: &str| format!("{name}:{}", place.file(name).display());
        let chap = ["mem:1M", "mem:1M", "--chap", &chap("user"), "--mutual-chap", &chap("target")];
        let remote = Server::start_at("127.0.0.1:0", &chap, 2);
        configure(&place, &url(&remote, 0, USERS, TARGETS));
        let server = Server::spawn(lunette().args(["serve", "--config"]).arg(place.file("config")), 2);
        let api = api(&place);
        Self { place, server, remote, api, told: Vec::new() }
    }

    fn url(&self, lun: usize, user: &str, target: &str) -> String {
        url(&self.remote, lun, user, target)
    }

    /// Adds the target and its disk.
    fn add(&mut self) {
        let disk = json!({ "disk": self.url(1, USERS, TARGETS) });
        for (path, body) in [(PROXY, json!({ "lun": [{ "number": 0, "disk": "mem:1M" }] })), (PROXY_DISK, disk)] {
            let answer = self.api.put(path, &body);
            assert_eq!(answer.status, 201, "{answer:?}");
            self.told.push((path.into(), format!("{answer:?}")));
        }
    }

    /// The target's file in `conf.d`.
    fn file(&self) -> PathBuf {
        self.place.file("conf.d/target-iqn.proxy.toml")
    }

    fn assert_kept(&self) -> String {
        let file = fs::read_to_string(self.file()).unwrap();
        assert!(file.contains(USERS) && file.contains(TARGETS), "the server needs them: {file}");
        file
    }

    /// Ends the server, and looks for the passwords in its log and all else that it has told.
    fn end_without_a_word(mut self) {
        self.told.push(("log".into(), self.server.stop()));
        for (what, text) in self.told {
            assert!(!text.contains("marked-password"), "{what}: {text}");
        }
    }
}

/// The URL of a disk of `remote`.
fn url(remote: &Server, lun: usize, user: &str, target: &str) -> String {
    let query = format!("?target_user=target&target_password={target}");
    remote.url(lun).replacen("iscsi://", &format!("iscsi://user%{user}@"), 1) + &query
}

/// Writes a main file with this disk.
fn configure(place: &Configured, disk: &str) {
    let folder = place.path().display().to_string();
    let target = "[[target]]\nname = \"iqn.main\"\nlun = [{ number = 0, disk = \"DISK\", read_only = true }]";
    // Where tests write @ for the folder, URLs have users.
    fs::write(place.file("config"), format!("{MAIN}\n{target}").replace('@', &folder).replace("DISK", disk)).unwrap();
}

#[test]
fn passwords_of_urls_are_kept_when_what_was_read_is_written_back() {
    let mut proxy = Proxy::start();
    proxy.add();
    proxy.assert_kept();
    let mode = fs::metadata(proxy.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o77, 0, "others may not read the file");
    // A part.
    let read = proxy.api.get(PROXY_DISK);
    let shown = read.json()["disk"].as_str().unwrap().to_owned();
    assert_eq!(shown, proxy.url(1, "***", "***"));
    let etag = format!("If-Match: {}", read.header("etag").unwrap());
    let body = json!({ "disk": shown, "read_only": true }).to_string();
    let kept = proxy.api.ask("PUT", PROXY_DISK, &[&etag], Some(&body));
    assert_eq!(kept.status, 200, "{kept:?}");
    assert!(proxy.assert_kept().contains("read_only"));
    // The whole.
    let config = proxy.api.get("/v1/config");
    let planned = proxy.api.ask("POST", "/v1/config:plan", &[], Some(&config.body));
    assert_eq!(planned.json()["changes"], json!([]), "{planned:?}");
    let etag = format!("If-Match: {}", config.header("etag").unwrap());
    let replaced = proxy.api.ask("PUT", "/v1/config", &[&etag], Some(&config.body));
    assert_eq!((replaced.status, replaced.header("etag")), (200, config.header("etag")), "{replaced:?}");
    proxy.assert_kept();
    for (what, answer) in [("part", kept), ("plan", planned), ("whole", replaced)] {
        proxy.told.push((what.into(), format!("{answer:?}")));
    }
    proxy.end_without_a_word();
}

#[test]
fn a_password_goes_to_no_other_place_and_mistakes_do_not_repeat_it() {
    let mut proxy = Proxy::start();
    proxy.add();
    let elsewhere = proxy.api.put(PROXY_DISK, &json!({ "disk": "iscsi://user%***@192.0.2.1/iqn.x/0" }));
    assert!(elsewhere.problem(422).contains("write the password"), "{elsewhere:?}");
    let right = proxy.url(1, USERS, TARGETS);
    for wrong in [
        json!({ "disk": format!("{right}&colour=red") }),
        json!({ "disk": right.replacen(USERS, &format!("{USERS}/"), 1) }),
        json!({ "disk": "mem:1M", "create": right }),
        json!({ "disk": proxy.url(1, USERS, &format!("{TARGETS}-wrong")) }),
        json!({ "disk": right.replacen("iscsi", "iscis", 1) }),
    ] {
        let answer = proxy.api.put(&format!("{PROXY}/luns/2"), &wrong);
        assert!((400..500).contains(&answer.status), "{answer:?}");
        proxy.told.push(("the answer to a mistake".into(), format!("{answer:?}")));
    }
    configure(&proxy.place, &format!("{}&colour=red", proxy.url(0, USERS, TARGETS)));
    proxy.server.hang_up(&["nothing has changed"]);
    proxy.end_without_a_word();
}

#[test]
fn passwords_of_urls_are_on_no_page() {
    let mut proxy = Proxy::start();
    proxy.add();
    let description = proxy.api.get("/openapi.json").json();
    let paths = description["paths"].as_object().unwrap().iter();
    let readable = paths.filter(|(path, methods)| methods.get("get").is_some() && *path != "/v1/events");
    let names = [("{target}", "iqn.proxy"), ("{number}", "1"), ("{address}", "127.0.0.1:1"), ("{host}", "h")];
    let fill = |path: &String| names.iter().fold(path.clone(), |path, (name, value)| path.replace(name, value));
    let mut pages: Vec<String> = readable.map(|(path, _)| fill(path)).collect();
    assert!(pages.len() > 10, "{pages:?}");
    let console = "targets targets/iqn.main targets/iqn.proxy disks hosts sessions config events numbers";
    pages.extend(console.split(' ').map(|page| format!("/console/{page}")));
    pages.extend(["/".into(), "/v1/targets/iqn.main".into()]);
    for page in pages {
        let answer = proxy.api.get(&page);
        assert!(answer.status < 500, "{page}: {answer:?}");
        proxy.told.push((page, format!("{answer:?}")));
    }
    proxy.end_without_a_word();
}

#[test]
fn passwords_of_urls_are_in_no_event_and_no_output_of_ctl() {
    let mut proxy = Proxy::start();
    let _events = Events::read(&proxy.place);
    // What changes before the reader of events is there is not told to it.
    let heard = wait_until(LIMIT, || {
        let alias = json!({ "alias": fs::metadata(proxy.place.file("events")).unwrap().len().to_string() });
        proxy.api.ask("DELETE", "/v1/targets/iqn.first", &[], None);
        assert_eq!(proxy.api.put("/v1/targets/iqn.first", &alias).status, 201);
        fs::read_to_string(proxy.place.file("events")).ok().filter(|told| !told.is_empty())
    });
    heard.unwrap();
    proxy.add();
    let socket = format!("unix:{}", proxy.place.file("api.sock").display());
    for command in [&["show", "targets/iqn.main"][..], &["show", "targets/iqn.proxy"], &["ls", "--json"]] {
        let output = lunette().args(["ctl", "--api", &socket]).args(command).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        proxy.told.push((command.join(" "), String::from_utf8_lossy(&output.stdout).into_owned()));
    }
    proxy.api.ask("DELETE", PROXY, &[], None);
    proxy.told.push(("events".into(), Events::until(&proxy.place, "target iqn.proxy removed").unwrap()));
    proxy.end_without_a_word();
}
