//! The console of a running server, as curl reads it.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::fs;

use lunette_tests::{Configured, Server, attach, run};

const TARGET: &str = "[[target]]\nname = \"iqn.2026-11.org.example:a\"\nlun = [{ number = 0, disk = \"mem:1M\" }]";
const TOKEN: &str = "0123456789abcdef0123456789";

/// What curl prints: the status of the answer and its redirection, and then its body.
fn curl(arguments: &[&str]) -> String {
    run("curl", [&["-sk", "--write-out", "\n%{http_code} %{redirect_url}"], arguments].concat()).succeeded().to_owned()
}

fn status(answer: &str) -> &str {
    answer.rsplit('\n').next().unwrap().trim()
}

/// Where the API listens, as the log says.
fn api_address(server: &Server) -> String {
    server.await_log("the API listens", 1);
    let log = server.log();
    let line = log.lines().find(|line| line.contains("the API listens")).unwrap();
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

#[test]
fn a_login_holds_as_long_as_its_token() {
    let place = Configured::new();
    let (certificate, key) = (place.file("certificate.pem"), place.file("key.pem"));
    let subject =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost"];
    let files = ["-keyout", key.to_str().unwrap(), "-out", certificate.to_str().unwrap()];
    run("openssl", [&subject[..], &files].concat()).succeeded();
    fs::write(place.file("tokens"), TOKEN).unwrap();
    let server = place.start(
        &format!(
            "listen = [\"127.0.0.1:0\"]\n[api]\nlisten = [\"127.0.0.1:0\"]\ntokens = \"@/tokens\"\n\
             tls = {{ certificates = \"@/certificate.pem\", key = \"@/key.pem\" }}\n{TARGET}"
        ),
        1,
    );
    let site = format!("https://{}", api_address(&server));
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
