//! Chromium without a window, driven over the WebDriver protocol by curl.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Owned, wait_until};
use crate::tool::run;

/// The longest time in which something appears on a page. It only ends tests that fail.
const PATIENCE: Duration = Duration::from_mins(1);

/// The key of an element in what chromedriver answers (WebDriver section 12.2).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser.
pub struct Browser {
    _driver: Owned,
    /// The URL of the session at chromedriver.
    session: String,
    /// The home of its user, where it keeps its files.
    home: TempDir,
}

impl Browser {
    /// Starts a browser that takes every certificate.
    pub fn start() -> Self {
        Self::with(tempfile::tempdir().expect("a folder"), true, &json!({}))
    }

    /// Starts a browser of a user who trusts this certificate, and no other that is made here.
    pub fn trusting(certificate: &Path) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        trust(&home, certificate, "P,,");
        Self::with(home, false, &json!({}))
    }

    /// Starts a browser of a user who has the certificate in `folder`, trusts its authority, and shows it to `site`.
    pub fn showing(folder: &Path, site: &str) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let database = trust(&home, &folder.join("ca-cert.pem"), "C,,");
        let file = |name: &str| folder.join(name).display().to_string();
        let archive = home.path().join("client.p12").display().to_string();
        let (certificate, key) = (file("client-cert.pem"), file("client-key.pem"));
        let export = ["pkcs12", "-export", "-in", &certificate, "-inkey", &key, "-out", &archive, "-passout", "pass:"];
        run("openssl", export).succeeded();
        run("pk12util", ["-d", &database, "-i", &archive, "-W", ""]).succeeded();
        // As the policy AutoSelectCertificateForUrls, which is for all users of a machine.
        let shown = json!({ format!("{site},*"): { "setting": { "filters": [{}] } } });
        Self::with(home, false, &json!({ "profile.content_settings.exceptions.auto_select_certificate": shown }))
    }

    fn with(home: TempDir, takes_all: bool, preferences: &Value) -> Self {
        let mut command = Command::new("chromedriver");
        command.env("HOME", home.path());
        let mut driver = Owned::start(command.arg("--port=0").stdout(Stdio::piped()));
        let mut lines = BufReader::new(driver.stdout.take().expect("the pipe was asked for")).lines();
        let port = lines.find_map(|line| {
            let line = line.expect("chromedriver tells text");
            line.split_once("successfully on port ").map(|(_, port)| port.trim_end_matches('.').to_owned())
        });
        // What it tells later must not fill the pipe.
        thread::spawn(move || lines.for_each(drop));
        let mut browser =
            Self { _driver: driver, session: format!("http://127.0.0.1:{}/session", port.expect("a port")), home };
        let data = format!("--user-data-dir={}", browser.home.path().join("profile").display());
        let arguments = json!(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", data]);
        let wanted = json!({ "acceptInsecureCerts": takes_all, "goog:chromeOptions": { "args": arguments, "prefs": preferences } });
        let begun = browser.ask("", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        browser.session += "/";
        browser.session += begun["sessionId"].as_str().expect("a session");
        browser
    }

    /// Sends a command of WebDriver, which must succeed.
    fn ask(&self, command: &str, body: &Value) -> Value {
        let url = format!("{}{command}", self.session);
        let ran = run("curl", ["-s", "-H", "Content-Type: application/json", "-d", &body.to_string(), &url]);
        let mut answer: Value = serde_json::from_str(ran.succeeded()).unwrap_or_else(|error| panic!("{error}: {ran}"));
        assert!(answer["value"].get("error").is_none(), "{ran}");
        answer["value"].take()
    }

    fn element(&self, selector: &str) -> String {
        let found = self.ask("/element", &json!({ "using": "css selector", "value": selector }));
        format!("/element/{}", found[ELEMENT].as_str().expect("an element"))
    }

    /// Opens a page.
    pub fn go(&self, url: &str) {
        self.ask("/url", &json!({ "url": url }));
    }

    /// The result of a function of JavaScript with this body.
    pub fn run(&self, script: &str) -> Value {
        self.ask("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until this expression of JavaScript is true on the page.
    pub fn until(&self, condition: &str) {
        let script = format!("return Boolean({condition});");
        let is_true = wait_until(PATIENCE, || (self.run(&script) == true).then_some(())).is_some();
        assert!(is_true, "never true: {condition}\n{}", self.run("return document.body.innerText;"));
    }

    /// Replaces the text of a field.
    pub fn fill(&self, selector: &str, text: &str) {
        let field = self.element(selector);
        self.ask(&format!("{field}/clear"), &json!({}));
        self.ask(&format!("{field}/value"), &json!({ "text": text }));
    }

    /// Clicks at an element.
    pub fn click(&self, selector: &str) {
        self.ask(&format!("{}/click", self.element(selector)), &json!({}));
    }

    /// Says yes to a question of the page.
    pub fn confirm(&self) {
        self.ask("/alert/accept", &json!({}));
    }
}

/// Trusts a certificate for what `attributes` of NSS say. Gives the name of the database.
fn trust(home: &TempDir, certificate: &Path, attributes: &str) -> String {
    let folder = home.path().join(".pki/nssdb");
    fs::create_dir_all(&folder).expect("a folder");
    let database = format!("sql:{}", folder.display());
    run("certutil", ["-d", &database, "-N", "--empty-password"]).succeeded();
    let certificate = certificate.to_str().expect("a path in UTF-8");
    run("certutil", ["-d", &database, "-A", "-n", "lunette", "-t", attributes, "-i", certificate]).succeeded();
    database
}

impl Drop for Browser {
    fn drop(&mut self) {
        // chromedriver ends its browser when the session is deleted.
        run("curl", ["-s", "-X", "DELETE", &self.session]);
    }
}
