//! The console of a running server, as curl reads it and as a browser shows it.

use std::fs;
use std::process::Stdio;

use lunette_tests::{Api, Browser, Configured, Owned, Server, attach, lunette, run};
use serde_json::{Value, json};

const TARGET: &str = "[[target]]\nname = \"iqn.2026-11.org.example:a\"\nlun = [{ number = 0, disk = \"mem:1M\" }]";
const TOKEN: &str = "0123456789abcdef0123456789";

/// The output of curl: the status of the answer and its redirection, and then its body.
fn curl(arguments: &[&str]) -> String {
    run("curl", [&["-sk", "--write-out", "\n%{http_code} %{redirect_url}"], arguments].concat()).succeeded().to_owned()
}

fn status(answer: &str) -> &str {
    answer.rsplit('\n').next().unwrap().trim()
}

/// Where the API listens, as the log says.
fn api_address(server: &Server) -> String {
    server.await_log("the API at 127", 1);
    let log = server.log();
    let line = log.lines().find(|line| line.contains("the API at 127")).unwrap();
    line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap().into()
}

#[test]
fn a_button_ends_the_session_that_the_page_shows() {
    let text = format!("listen = [\"127.0.0.1:0\"]\n[api]\nlisten = [\"unix:@/api.sock\"]\n{TARGET}");
    let (place, server) = Configured::serve(&text, 1);
    let mut initiator = attach(&server, &[]);
    let socket = place.file("api.sock").display().to_string();
    let ask = |arguments: &[&str]| curl(&[&["--unix-socket", &socket], arguments].concat());

    let page = ask(&["http://localhost/console/sessions"]);
    assert_eq!(status(&page), "200");
    assert!(page.contains("iqn.2026-11.org.example:a") && page.contains("MaxBurstLength"), "{page}");
    let metrics = ask(&["http://localhost/metrics"]);
    assert!(
        metrics.contains("lunette_sessions{target=") && metrics.contains("# TYPE lunette_logins_total counter"),
        "{metrics}"
    );
    let (_, button) = page.split_once("hx-delete=\"").unwrap();
    let button = format!("http://localhost{}", button.split('"').next().unwrap());
    assert_eq!(status(&ask(&["http://evil.example/v1/sessions"])), "421");
    let foreign = ask(&["-X", "DELETE", "-H", "Origin: http://evil.example", &button]);
    assert_eq!(status(&foreign), "403");
    assert_eq!(status(&ask(&["-X", "DELETE", "-H", "HX-Request: true", &button])), "202");
    initiator.wait_for_logout_request();
}

/// A server whose API is on TCP, with a target in its main file. Returns the address of the API, too.
fn serve_on_tcp() -> (Configured, Server, String) {
    let place = Configured::new();
    let (certificate, key) = (place.file("certificate.pem"), place.file("key.pem"));
    // As docs/operations.md has it.
    let subject =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=127.0.0.1"];
    let extensions = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
    let files = ["-keyout", key.to_str().unwrap(), "-out", certificate.to_str().unwrap()];
    run("openssl", [&subject[..], &extensions, &files].concat()).succeeded();
    fs::write(place.file("tokens"), format!("{TOKEN}\n{TOKEN}-b role=read targets=iqn.b\n")).unwrap();
    let server = place.start(
        &format!(
            "listen = [\"127.0.0.1:0\"]\n[api]\nlisten = [\"127.0.0.1:0\"]\ntokens = \"@/tokens\"\n\
             tls = {{ certificates = \"@/certificate.pem\", key = \"@/key.pem\" }}\n{TARGET}"
        ),
        1,
    );
    let address = api_address(&server);
    (place, server, address)
}

#[test]
fn a_login_holds_as_long_as_its_token() {
    let (place, _server, address) = serve_on_tcp();
    let site = format!("https://{address}");
    let jar = place.file("jar").display().to_string();
    let ask = |arguments: &[&str]| curl(&[&["-b", &jar, "-c", &jar], arguments].concat());

    assert_eq!(status(&ask(&[&site])), format!("303 {site}/console/login"));
    let login = format!("{site}/console/login");
    assert_eq!(status(&ask(&["--data", "token=wrong", &login])), "401");
    assert_eq!(status(&ask(&["--data", &format!("token={TOKEN}"), &login])), format!("303 {site}/"));
    let page = ask(&[&site]);
    assert!(status(&page) == "200" && page.contains("Log out"), "{page}");
    assert!(!fs::read_to_string(&jar).unwrap().contains(TOKEN), "the cookie is not the token");
    fs::write(place.file("tokens"), format!("{TOKEN}-other")).unwrap();
    assert_eq!(status(&ask(&[&site])), format!("303 {site}/console/login"));
}

#[test]
fn the_documented_certificate_opens_in_a_browser_that_trusts_it() {
    let (place, _server, address) = serve_on_tcp();
    let browser = Browser::trusting(&place.file("certificate.pem"));
    browser.go(&format!("https://{address}"));
    browser.until("document.querySelector('[name=token]')");
}

#[test]
fn a_token_for_some_targets_reads_nothing_of_the_others() {
    let (_place, _server, address) = serve_on_tcp();
    let ask = |end: &str, path: &str| {
        curl(&["--oauth2-bearer", &format!("{TOKEN}{end}"), &format!("https://{address}{path}")])
    };
    for path in ["/", "/console/targets", "/console/disks", "/console/sessions", "/metrics", "/readyz", "/v1/health"] {
        let (all, some) = (ask("", path), ask("-b", path));
        assert_eq!((status(&all), status(&some)), ("200", "200"), "{path}");
        assert!(!some.contains("iqn.2026-11.org.example:a"), "{path}: {some}");
    }
    for path in ["/console/targets", "/metrics"] {
        assert!(ask("", path).contains("iqn.2026-11.org.example:a"), "{path}");
    }
    let refused = ask("-b", "/v1/portals");
    assert!(status(&refused) == "403" && refused.contains("is for iqn.b alone"), "{refused}");
}

/// A client that reads from a disk until it is dropped, with this name.
struct Reader {
    _process: Owned,
}

impl Reader {
    fn start(server: &Server, initiator: &str, target: &str) -> Self {
        let url = format!("iscsi://{}/{target}/0?initiator={initiator}", server.address());
        let mut command = lunette();
        let command = command.args(["bench", "--depth", "4", "--time", "3600", &url]);
        Self { _process: Owned::start(command.stdout(Stdio::null()).stderr(Stdio::null())) }
    }
}

/// A browser that has logged in.
fn logged_in(site: &str) -> Browser {
    let browser = Browser::start();
    browser.go(site);
    browser.fill("[name=token]", TOKEN);
    browser.click("main button");
    browser.until("document.querySelector('#charts')");
    browser
}

const DONE: &str = "document.querySelector('#notice .done')";

#[test]
fn a_disk_that_is_made_by_hand_is_read_charted_and_grown() {
    let (place, server, address) = serve_on_tcp();
    let site = format!("https://{address}");
    let browser = logged_in(&site);
    let (name, disk) = ("iqn.2026-11.org.example:new", place.file("new.img"));

    browser.go(&format!("{site}/console/targets"));
    browser.fill("form [name=name]", name);
    browser.click("#add-target");
    browser.until(DONE);
    browser.go(&format!("{site}/console/targets/{name}"));
    browser.run("document.querySelector('#add-lun').closest('details').open = true;");
    browser.fill("form [name=number]", "0");
    browser.fill("form [name=disk]", &disk.display().to_string());
    browser.fill("form [name=create]", "16M");
    browser.click("#add-lun");
    browser.until(DONE);
    assert_eq!(fs::metadata(&disk).unwrap().len(), 16 << 20);

    // `allow` is empty until an initiator is named.
    let api = Api::tls(&address, TOKEN);
    let mut target = api.get(&format!("/v1/targets/{name}")).json();
    target["allow"] = json!(["iqn.reader"]);
    assert_eq!(api.put(&format!("/v1/targets/{name}"), &target).status, 200);
    let reader = Reader::start(&server, "iqn.reader", name);
    browser.go(&site);
    let busiest = "[...document.querySelectorAll('#busiest tr td')].map(cell => cell.innerText)";
    browser.until(&format!("{busiest}[0] == {name:?} && {busiest}[4] > 0"));
    assert_eq!(browser.run("return document.querySelectorAll('#charts canvas').length;"), 3);
    drop(reader);

    browser.go(&format!("{site}/console/disks?q=new.img"));
    browser.run("document.querySelector('td button').closest('details').open = true;");
    browser.fill("td [name=create]", "32M");
    browser.click("td button");
    browser.until(DONE);
    assert_eq!(fs::metadata(&disk).unwrap().len(), 32 << 20);
}

#[test]
fn a_host_that_is_masked_by_hand_sees_less_and_a_session_is_ended() {
    let (_place, server, address) = serve_on_tcp();
    let site = format!("https://{address}");
    let name = "iqn.2026-11.org.example:masked";
    let luns = json!([{ "number": 0, "disk": "mem:1M" }, { "number": 1, "disk": "mem:1M" }]);
    let host = json!([{ "name": "reader", "initiators": ["iqn.reader"] }]);
    let api = Api::tls(&address, TOKEN);
    assert_eq!(api.put(&format!("/v1/targets/{name}"), &json!({ "lun": luns, "host": host })).status, 201);
    let seen = || {
        let url = format!("iscsi://{}/{name}?initiator=iqn.reader", server.address());
        let listed: Value =
            serde_json::from_str(run(lunette().get_program(), ["ls", "--json", &url]).succeeded()).unwrap();
        listed[0]["luns"].as_array().unwrap().len()
    };
    assert_eq!(seen(), 2);
    let browser = logged_in(&site);

    browser.go(&format!("{site}/console/targets/{name}/hosts/reader"));
    browser.click("[data-all]");
    browser.click("[data-lun='0'] [data-sees]");
    browser.click("#change-host");
    browser.until(DONE);
    let host = api.get(&format!("/v1/targets/{name}/hosts/reader")).json();
    assert_eq!(host["lun"], json!([{ "number": 0 }]));
    assert_eq!(seen(), 1);

    let _reader = Reader::start(&server, "iqn.reader", name);
    browser.go(&format!("{site}/console/sessions"));
    let session = "document.querySelector('[id^=kick-]')";
    browser.until(session);
    let id = browser.run(&format!("return {session}.id;"));
    let id = id.as_str().unwrap().to_owned();
    browser.click(&format!("#{id}"));
    browser.confirm();
    // The client comes back, in another session.
    browser.until(&format!("!document.querySelector('#{id}') && {session}"));
}
