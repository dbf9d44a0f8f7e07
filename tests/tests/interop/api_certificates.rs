//! Certificates of clients as roles at the API and the console, and the ends of the server's own.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use lunette_tests::{Browser, Configured, Owned, Ran, Server, lunette, run};
use serde_json::Value;

const TARGET: &str = "iqn.2026-11.org.example:a";

const TOKEN: &str = "0123456789abcdef0123456789";

/// A portal and an API by the certificate of `gw1`. An authority has it, and the clients'.
const MAIN: &str = "listen = []\nstate = \"@/state\"\n\
                    [api]\nlisten = [\"127.0.0.1:0\", \"unix:@/api.sock\"]\ntls = \"@/ca/gw1\"\n\
                    tokens = \"@/tokens\"\n\
                    [[api.client]]\nname = \"alice\"\ncertificates = [\"CN=alice\"]\nrole = \"admin\"\n\
                    [[api.client]]\nname = \"reader\"\ncertificates = [\"reader.example.org\"]\nrole = \"read\"\n";

struct Place {
    configured: Configured,
    server: Server,
    address: String,
}

impl Place {
    fn start() -> Self {
        let configured = Configured::new();
        let place = |name: &str| configured.file(name).display().to_string();
        let ca = place("ca");
        tls(&["ca", &ca]);
        tls(&["issue", &ca, "gw1", "--host", "localhost,127.0.0.1", "--days", "9"]);
        for name in ["alice", "eve"] {
            tls(&["issue", &ca, name]);
        }
        tls(&["issue", &ca, "reader", "--dns", "reader.example.org"]);
        // Of another authority, with a name that counts here.
        tls(&["ca", &place("other")]);
        tls(&["issue", &place("other"), "alice"]);
        fs::write(configured.file("tokens"), format!("{TOKEN} name=ops\n")).unwrap();
        fs::create_dir(configured.file("conf.d")).unwrap();
        let portal = format!("[[portal]]\naddress = \"127.0.0.1:0\"\ntls = \"{ca}/gw1\"\n");
        fs::write(configured.file("conf.d/portal-127.0.0.1:0.toml"), portal).unwrap();
        let server = configured.start(MAIN, 0);
        server.await_log("the API at 127", 1);
        let log = server.log();
        let line = log.lines().find(|line| line.contains("the API at 127")).unwrap();
        let address = line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap().into();
        Self { configured, server, address }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.configured.file(name)
    }

    fn path(&self, name: &str) -> String {
        self.folder(name).display().to_string()
    }

    /// Asks for a path with curl, as a client with the certificate in a folder.
    fn curl(&self, folder: &str, path: &str, arguments: &[&str]) -> Ran {
        let file = |folder: &str, name: &str| self.folder(folder).join(name).display().to_string();
        let (authority, url) = (file("ca/gw1", "ca-cert.pem"), format!("https://{}{path}", self.address));
        let mut all = vec!["-sS", "--cacert", &authority, "--write-out", "\n%{http_code}"];
        let own = [file(folder, "client-cert.pem"), file(folder, "client-key.pem")];
        if !folder.is_empty() {
            all.extend(["--cert", &own[0], "--key", &own[1]]);
        }
        run("curl", all.into_iter().chain([url.as_str()]).chain(arguments.iter().copied()))
    }

    fn status(&self, folder: &str, path: &str, arguments: &[&str]) -> u16 {
        let ran = self.curl(folder, path, arguments);
        ran.succeeded().rsplit('\n').next().unwrap().parse().unwrap()
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        let server = format!("https://{}", self.address);
        lunette().args(["ctl", "--server", &server]).args(arguments).output().unwrap()
    }

    /// The lines of the metrics that begin so.
    fn metrics(&self, begin: &str) -> Vec<String> {
        let answer = self.curl("ca/reader", "/metrics", &[]);
        answer.succeeded().lines().filter(|line| line.starts_with(begin)).map(str::to_owned).collect()
    }

    fn read_again(&self) {
        self.configured.change(&self.server, MAIN);
    }
}

fn tls(arguments: &[&str]) {
    run(lunette().get_program(), [&["tls"], arguments].concat()).succeeded();
}

#[test]
fn a_certificate_has_the_role_of_its_client_until_it_is_revoked() {
    let place = Place::start();
    let target = format!("/v1/targets/{TARGET}");
    let put = ["-X", "PUT", "-H", "Content-Type: application/json", "-d", "{}"];
    assert_eq!(place.status("ca/reader", &target, &put), 403);
    assert_eq!(place.status("ca/alice", &target, &put), 201);
    for (folder, expected) in [("ca/alice", 200), ("ca/reader", 200), ("ca/eve", 401), ("", 401)] {
        assert_eq!(place.status(folder, &target, &[]), expected, "{folder:?}");
    }
    let token = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(place.status("ca/reader", &target, &["-X", "DELETE", "-H", &token]), 204, "a token counts first");
    assert_eq!(place.status("ca/alice", &target, &["-H", "Authorization: Bearer x"]), 401);
    let strange = place.curl("other/alice", &target, &[]);
    assert!(strange.failed().contains("alert"), "{strange}");
    // A page of another site, in a browser that shows the certificate.
    for header in ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site"] {
        assert_eq!(place.status("ca/alice", &target, &["-X", "DELETE", "-H", header]), 403, "{header}");
        assert_eq!(place.status("ca/alice", "/v1/targets", &["-H", header]), 403, "{header}");
    }
    let log: Value =
        serde_json::from_slice(&place.ctl(&["--tls", &place.path("ca/alice"), "audit", "--json"]).stdout).unwrap();
    let who: Vec<_> = log.as_array().unwrap().iter().map(|entry| entry["who"].as_str().unwrap()).collect();
    assert!(who.contains(&"alice") && who.contains(&"ops"), "{who:?}");

    tls(&["revoke", &place.path("ca"), "alice"]);
    place.read_again();
    let revoked = place.curl("ca/alice", &target, &[]);
    // The end of the connection may overtake the alert.
    assert!(revoked.failed().contains("alert certificate revoked") || revoked.failed().contains("reset"), "{revoked}");
    place.server.await_log("invalid peer certificate: Revoked", 1);
}

#[test]
fn a_kept_connection_ends_with_the_certificate() {
    let place = Place::start();
    let (address, ca) = (place.address.clone(), place.path("ca/gw1/ca-cert.pem"));
    let (certificate, key) = (place.path("ca/alice/client-cert.pem"), place.path("ca/alice/client-key.pem"));
    let arguments = ["s_client", "-quiet", "-connect", &address, "-CAfile", &ca, "-cert", &certificate, "-key", &key];
    let mut command = Command::new("openssl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = Owned::start(command);
    let (mut to, from) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
    let mut lines = BufReader::new(from).lines().map(Result::unwrap);
    let mut ask = |path: &str| {
        write!(to, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        // The body of the answer before ends without a line break.
        lines.find(|line| line.contains("HTTP/1.1 ")).unwrap()
    };
    assert!(ask("/v1/targets").contains(" 200 "));
    tls(&["revoke", &place.path("ca"), "alice"]);
    place.read_again();
    assert!(ask("/v1/targets").contains(" 401 "));
}

#[test]
fn ctl_takes_the_folder_of_a_client() {
    let place = Place::start();
    let of = |name: &str, arguments: &[&str]| {
        let folder = place.path(&format!("ca/{name}"));
        let output = place.ctl(&[&["--tls", &folder], arguments].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let target = format!("targets/{TARGET}");
    assert_eq!(of("alice", &["add", &target]).0, Some(0));
    assert_eq!(of("reader", &["ls"]).0, Some(0));
    let (code, said) = of("reader", &["rm", &target]);
    assert!(code == Some(3) && said.contains("reader has the role read, and this takes admin"), "{said}");
    let (code, said) = of("eve", &["ls"]);
    assert!(code == Some(1) && said.contains("knows no client with this certificate"), "{said}");
    let (code, said) = of("gw1", &["ls"]);
    assert!(code == Some(2) && said.contains("--server needs --token-file FILE"), "{said}");
    tls(&["revoke", &place.path("ca"), "alice"]);
    place.read_again();
    let (code, said) = of("alice", &["ls"]);
    assert!(code == Some(1) && said.contains("connection to the server has ended"), "{said}");
}

#[test]
fn a_browser_with_a_certificate_is_logged_in() {
    let place = Place::start();
    let site = format!("https://{}", place.address);
    let browser = Browser::showing(&place.folder("ca/alice"), &site);
    browser.go(&format!("{site}/console/targets"));
    browser.until("document.querySelector('#add-target')");
    browser.fill("form [name=name]", TARGET);
    browser.click("#add-target");
    browser.until("document.querySelector('#notice .done')");
    // A form of another site, which the browser sends with the certificate.
    let action = format!("{site}/v1/targets/{TARGET}/luns/0/actions/scrub");
    browser.go(&format!("data:text/html,<form method=post action={action}></form>"));
    browser.run("document.querySelector('form').submit();");
    browser.until("document.body.innerText.includes('a request of another site')");
    assert_eq!(place.status("ca/alice", &format!("/v1/targets/{TARGET}"), &[]), 200);

    // Without a certificate the console asks for a token, as before.
    let other = Browser::start();
    other.go(&site);
    other.until("document.querySelector('[name=token]')");
}

#[test]
fn metrics_and_health_have_the_ends_of_certificates_in_use() {
    let place = Place::start();
    let (expiry, list) =
        ("lunette_certificate_expiry_timestamp_seconds", "lunette_revocation_list_next_update_timestamp_seconds");
    let end = |line: &String| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let certificate = place.path("ca/gw1/server-cert.pem");
    let expected = run("openssl", ["x509", "-noout", "-enddate", "-dateopt", "iso_8601", "-in", &certificate]);
    let date = run("date", ["-u", "+%s", "-d", expected.succeeded().trim().trim_start_matches("notAfter=")]);
    let lines = place.metrics(expiry);
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, of) in lines.iter().zip(["portal", "api"]) {
        assert!(line.contains(&format!("{{use=\"{of}\",file=\"{certificate}\"}}")), "{line}");
        assert_eq!(end(line).to_string(), date.succeeded().trim());
    }
    assert_eq!(place.metrics(list).len(), 2);
    place.server.await_log("a certificate ends soon; renew it", 2);

    tls(&["renew", &place.path("ca"), "gw1", "--days", "60"]);
    place.read_again();
    let renewed = place.metrics(expiry);
    assert!(renewed.iter().zip(&lines).all(|(new, old)| end(new) > end(old) + 40 * 24 * 3600), "{renewed:?}");

    // A portal that goes uses its certificate no longer.
    let answer = place.curl("ca/alice", "/v1/portals/127.0.0.1:0?force=true", &["-X", "DELETE"]);
    assert!(answer.succeeded().ends_with("204"), "{answer}");
    let left = place.metrics(expiry);
    assert!(left.len() == 1 && left[0].contains("use=\"api\""), "{left:?}");
}
