//! The console in Chromium, as Debian has it (`chromium`, `chromium-driver`).

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fantoccini::error::CmdError;
use fantoccini::{Client, ClientBuilder, Locator};
use lunette_api::Access;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fake::{Fake, TARGET};
use crate::pages::pages;

/// The longest time in which something appears on a page. It only ends tests that fail.
const PATIENCE: Duration = Duration::from_secs(30);

/// The names of the columns of a window: a desk and a telephone.
const WIDE: (u32, u32) = (1280, 900);
const NARROW: (u32, u32) = (390, 844);

#[derive(Clone, Copy, PartialEq)]
enum Scheme {
    Light,
    Dark,
}

/// A browser with a page of the console.
struct Browser {
    client: Client,
    address: String,
    driver: Child,
    _profile: TempDir,
}

impl Browser {
    async fn open(fake: &Arc<Fake>, scheme: Scheme) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = fake.router(Access::Open);
        tokio::spawn(async move { axum::serve(listener, router).await });

        let mut command = Command::new("chromedriver");
        let mut driver = command.arg("--port=0").stdout(Stdio::piped()).spawn().expect("chromium-driver is installed");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            line.unwrap().split_once("successfully on port ").map(|(_, port)| port.trim_end_matches('.').to_owned())
        });
        let profile = tempfile::tempdir().unwrap();
        let dark = format!("--blink-settings=preferredColorScheme={}", i32::from(scheme == Scheme::Light));
        let (width, height) = WIDE;
        let arguments = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            format!("--window-size={width},{height}"),
            format!("--user-data-dir={}", profile.path().display()),
            dark,
        ]);
        let Value::Object(wanted) = json!({ "goog:chromeOptions": { "args": arguments } }) else { unreachable!() };
        let mut builder = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
        let client =
            builder.capabilities(wanted).connect(&format!("http://127.0.0.1:{}", port.unwrap())).await.unwrap();
        Self { client, address, driver, _profile: profile }
    }

    async fn go(&self, page: &str) {
        self.client.goto(&format!("{}{page}", self.address)).await.unwrap();
    }

    /// Waits until this expression of JavaScript is true on the page.
    async fn until(&self, condition: &str) {
        let script = format!("return Boolean({condition});");
        let wait = async {
            while self.run(&script).await != json!(true) {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            let text = self.run("return document.body.innerText;").await;
            panic!("never true: {condition}\n{}", text.as_str().unwrap_or_default());
        }
    }

    async fn run(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap()
    }

    async fn fill(&self, selector: &str, text: &str) {
        self.act(|| async {
            let field = self.client.find(Locator::Css(selector)).await?;
            field.clear().await?;
            field.send_keys(text).await
        })
        .await;
    }

    async fn click(&self, selector: &str) {
        self.act(|| async { self.client.find(Locator::Css(selector)).await?.click().await }).await;
    }

    /// Does something with an element. A page that is shown again has another element in its place.
    async fn act<F: Future<Output = Result<(), CmdError>>>(&self, act: impl Fn() -> F) {
        let done = async {
            loop {
                match act().await {
                    Err(error) if error.is_stale_element_reference() => tokio::task::yield_now().await,
                    outcome => break outcome.unwrap(),
                }
            }
        };
        tokio::time::timeout(PATIENCE, done).await.expect("an element that stays");
    }

    /// Opens what is folded around an element.
    async fn unfold(&self, selector: &str) {
        self.run(&format!("document.querySelector({selector:?}).closest('details').open = true;")).await;
    }

    /// The line of the command beside a button.
    async fn line(&self, button: &str) -> String {
        let script =
            format!("return document.querySelector({button:?}).parentElement.querySelector('.ctl').textContent;");
        self.run(&script).await.as_str().unwrap().into()
    }

    /// Waits for a question in which this stands.
    async fn alert_with(&self, text: &str) {
        let wait = async {
            while !self.client.get_alert_text().await.is_ok_and(|shown| shown.contains(text)) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("a question");
    }

    /// Waits for the notice that a button has done its work.
    async fn done(&self) {
        self.until("document.querySelector('#notice .done')").await;
    }

    /// Keeps a picture of the page, if the environment names a folder for it.
    async fn picture(&self, name: &str) {
        if let Some(folder) = std::env::var_os("LUNETTE_SCREENSHOTS") {
            let picture = self.client.screenshot().await.unwrap();
            std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), picture).unwrap();
        }
    }

    async fn close(self) {
        self.client.clone().close().await.unwrap();
    }
}

impl Drop for Browser {
    /// Ends the driver by SIGTERM: it ends its browser then, also that of a test that has failed.
    fn drop(&mut self) {
        let ended = Command::new("kill").arg(self.driver.id().to_string()).status();
        if ended.is_ok_and(|status| status.success()) {
            let _ = self.driver.wait();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_disks_and_hosts_are_changed_by_hand() {
    let fake = Fake::plain();
    let browser = Browser::open(&fake, Scheme::Light).await;
    let name = "iqn.2026-11.org.example:new";

    browser.go("/console/targets").await;
    browser.fill("form [name=name]", name).await;
    browser.fill("form [name=alias]", "it's new").await;
    assert_eq!(browser.line("#add-target").await, format!(r#"lunette ctl add targets/{name} 'alias="it'\''s new"'"#));
    browser.click("#add-target").await;
    browser.done().await;
    browser.until(&format!("document.querySelector('tbody').innerText.includes({name:?})")).await;
    assert_eq!(fake.document(name).unwrap(), json!({ "name": name, "alias": "it's new", "allow": [] }));

    browser.go(&format!("/console/targets/{name}")).await;
    browser.unfold("#add-lun").await;
    browser.fill("form [name=number]", "3").await;
    browser.fill("form [name=disk]", "/srv/new.img").await;
    browser.fill("form [name=create]", "10G").await;
    browser.fill("form [name=block_size]", "4096").await;
    assert_eq!(
        browser.line("#add-lun").await,
        format!("lunette ctl add targets/{name}/luns/3 disk=/srv/new.img create=10G block_size=4096")
    );
    browser.click("#add-lun").await;
    browser.done().await;
    let lun = json!({ "number": 3, "disk": "/srv/new.img", "create": "10G", "block_size": 4096 });
    assert_eq!(fake.document(name).unwrap()["lun"], json!([lun]));

    browser.go("/console/disks?q=new.img").await;
    browser.unfold("td button").await;
    browser.fill("td [name=create]", "20G").await;
    assert_eq!(browser.line("td button").await, format!("lunette ctl resize targets/{name}/luns/3 20G"));
    browser.click("td button").await;
    browser.done().await;
    browser.until("document.querySelector('tbody').innerText.includes('20 GiB')").await;

    browser.go(&format!("/console/targets/{TARGET}/hosts/node-a")).await;
    browser.click("[data-lun='0'] [data-sees]").await;
    browser.fill("[data-lun='0'] [data-number]", "4").await;
    browser.picture("mask").await;
    assert!(
        browser
            .line("#change-host")
            .await
            .contains("lun=[{ number = 0, as = 4 }, { number = 1, as = 0, read_only = true }]")
    );
    browser.click("#change-host").await;
    browser.done().await;
    let map = json!([{ "number": 0, "as": 4 }, { "number": 1, "as": 0, "read_only": true }]);
    assert_eq!(fake.document(TARGET).unwrap()["host"][0]["lun"], map);
    browser.fill("[data-chap] [data-user]", "node-a").await;
    browser.click("#change-host").await;
    browser.until("document.querySelector('.refusal')?.innerText.includes('belong together')").await;
    browser.fill("[data-chap] [data-file]", "/etc/lunette/secrets/node-a").await;
    browser.click("#change-host").await;
    browser.done().await;
    browser.until("!document.querySelector('.refusal') && !document.querySelector('.htmx-request')").await;
    let chap = json!([{ "user": "node-a", "secret_file": "/etc/lunette/secrets/node-a" }]);
    assert_eq!(fake.document(TARGET).unwrap()["host"][0]["chap"], chap);
    browser.until("document.querySelectorAll('[data-chap]').length == 2").await;
    browser.click("[data-all]").await;
    browser.click("#change-host").await;
    browser.until("document.querySelector('[data-all]').checked && document.querySelector('#notice .done')").await;
    browser.until("!document.querySelector('.htmx-request')").await;
    assert_eq!(fake.document(TARGET).unwrap()["host"][0].get("lun"), None);

    // What is in use goes when the question is answered with yes.
    fake.be_used();
    browser.go(&format!("/console/targets/{TARGET}")).await;
    browser.click("#remove-lun-0").await;
    browser.client.accept_alert().await.unwrap();
    browser.alert_with("in use by session 7").await;
    browser.client.dismiss_alert().await.unwrap();
    browser
        .until("document.querySelector('#remove-lun-0').closest('td').innerText.includes('in use by session 7')")
        .await;
    assert_eq!(fake.document(TARGET).unwrap()["lun"].as_array().unwrap().len(), 2);
    browser.click("#remove-lun-0").await;
    browser.client.accept_alert().await.unwrap();
    browser.alert_with("in use by session 7").await;
    browser.client.accept_alert().await.unwrap();
    browser.done().await;
    assert_eq!(fake.document(TARGET).unwrap()["lun"].as_array().unwrap().len(), 1);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_scrubbed_and_the_job_cancelled() {
    let fake = Fake::plain();
    let browser = Browser::open(&fake, Scheme::Dark).await;
    browser.go("/console/disks").await;
    browser.run("document.querySelectorAll('details').forEach(one => one.open = true)").await;
    browser.click(&format!("[id='scrub-{TARGET}-0']")).await;
    browser.until("document.querySelector('[data-job=\"3\"] progress')?.value == 3 * 2 ** 30").await;
    browser.picture("jobs-dark").await;
    assert_eq!(browser.line("#cancel-3").await, "lunette ctl jobs 3 --cancel");
    browser.click("#cancel-3").await;
    browser.until("document.querySelector('[data-job=\"3\"]').innerText.includes('to be cancelled')").await;
    assert_eq!(fake.take_calls(), ["scrub"]);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_end_plans_show_and_events_come() {
    let fake = Fake::plain();
    let browser = Browser::open(&fake, Scheme::Dark).await;

    browser.go("/console/sessions").await;
    assert_eq!(browser.line("#kick-7").await, "lunette ctl kick 7");
    browser.picture("sessions-dark").await;
    browser.click("#kick-7").await;
    browser.client.accept_alert().await.unwrap();
    browser.until("!document.querySelector('#kick-7') && document.querySelector('#kick-8')").await;
    assert_eq!(fake.session_count(), 1);
    // What the page shows is read again without being asked for.
    assert!(fake.end(8));
    browser.until("!document.querySelector('#kick-8')").await;

    browser.go("/console/config").await;
    browser.until(&format!("document.querySelector('textarea').value.includes({TARGET:?})")).await;
    browser.click("#plan").await;
    browser.until("document.querySelector('#changes').innerText.includes('session 7 of iqn.')").await;
    browser.picture("plan-dark").await;
    browser.run("document.querySelector('textarea').value = '{'").await;
    browser.click("#plan").await;
    browser.until("document.querySelector('#notice .error')?.innerText.startsWith('This cannot be sent')").await;
    browser.until("document.querySelector('#changes').innerText == ''").await;
    assert_eq!(fake.take_calls(), ["end", "plan"]);

    browser.go("/console/events").await;
    // Events from before the stream is open do not come; so there is one again and again until one has.
    let mut again = tokio::time::interval(Duration::from_millis(20));
    let happen = async {
        loop {
            again.tick().await;
            fake.happen();
        }
    };
    tokio::select! {
        () = happen => {}
        () = browser.until("[...document.querySelectorAll('#events li')].some(li => li.innerText.includes('change: changed'))") => {}
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_move_with_the_numbers() {
    let fake = Fake::plain();
    let browser = Browser::open(&fake, Scheme::Light).await;
    browser.go("/").await;
    browser.until("document.querySelectorAll('#charts canvas').length == 3").await;
    let figure = "[...document.querySelectorAll('#busiest tr td')].map(cell => cell.innerText)";
    browser.until(&format!("{figure}[4] > 0 && {figure}[5] > 0")).await;
    let cells = browser.run(&format!("return {figure};")).await;
    assert_eq!((&cells[0], &cells[1]), (&json!(TARGET), &json!("0")));
    assert_eq!((&cells[6], &cells[7]), (&json!("0.27"), &json!("1.00")));
    // Twice as many reads as writes, however long a period was.
    let number = |index: usize| cells[index].as_str().unwrap().parse::<f64>().unwrap();
    assert!((number(4) / number(5) - 2.).abs() < 0.1, "{cells}");
    assert!((number(2) / number(3) - 2.).abs() < 0.1, "{cells}");
    // Legends have the latest values, without a pointer over the chart.
    let legends = "[...document.querySelectorAll('#charts .u-value')].map(value => value.innerText)";
    browser
        .until(&format!("{legends}.length == 9 && {legends}.every(value => value && value != '–' && value != '--')"))
        .await;
    // Lines appear in the chart of a single unit, too.
    let drawn = "[...document.querySelectorAll('#charts canvas')].every(canvas => { \
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; \
        let blue = 0; for (let at = 0; at < pixels.length; at += 4) blue += pixels[at + 3] > 200 && pixels[at + 2] - pixels[at] > 100; \
        return blue > 20; })";
    browser.until(drawn).await;
    browser.run("const chosen = document.querySelector('#charted'); chosen.selectedIndex = 1; chosen.dispatchEvent(new Event('change'));").await;
    browser.until(drawn).await;
    browser.picture("overview").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_keep_the_policy_fit_a_telephone_and_begin_with_a_way_past_the_navigation() {
    const VIOLATIONS: &str = "const done = arguments[arguments.length - 1]; \
        new ReportingObserver(reports => done(reports.map(report => report.body.effectiveDirective)), \
            { types: ['csp-violation'], buffered: true }).observe(); \
        document.body.setAttribute('style', 'color: red');";
    let fake = Fake::new();
    let browser = Browser::open(&fake, Scheme::Light).await;
    browser.client.set_window_size(NARROW.0, NARROW.1).await.unwrap();
    for page in pages() {
        browser.go(&page).await;
        browser.run("document.querySelectorAll('details').forEach(details => details.open = true);").await;
        let wide = browser.run("return [document.documentElement.scrollWidth, innerWidth];").await;
        assert!(wide[0].as_u64() <= wide[1].as_u64(), "{page}: {wide}");
        let focused = "return document.activeElement.className;";
        browser.client.active_element().await.unwrap().send_keys("\u{e004}").await.unwrap();
        assert_eq!(browser.run(focused).await, "skip", "{page}");
        // The one violation is the style of this test.
        let found = browser.client.execute_async(VIOLATIONS, Vec::new()).await.unwrap();
        assert_eq!(found, json!(["style-src-attr"]), "{page}");
    }
    browser.go("/console/sessions").await;
    browser.picture("sessions-narrow").await;
    // What a disk is, and what is done with it, is within the window without scrolling sideways.
    for (page, button) in
        [("/console/disks", "td details summary"), ("/console/targets/iqn.2026-11.org.example:db", "#remove-lun-0")]
    {
        browser.go(page).await;
        let seen = format!(
            "(() => {{ const box = document.querySelector({button:?}).getBoundingClientRect(); return box.left >= 0 && box.right <= innerWidth; }})()"
        );
        browser.until(&seen).await;
        assert!(
            browser.run("return document.querySelector('tbody').innerText;").await.as_str().unwrap().contains("GiB")
        );
        browser.picture(&format!("narrow-{}", page.rsplit('/').next().unwrap().replace([':', '.'], "-"))).await;
    }
    browser.close().await;
}
