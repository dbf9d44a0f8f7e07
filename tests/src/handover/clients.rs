//! The clients: each is started again when it has ended, until the campaign ends.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use super::site::{LUNS, Site};
use crate::process::wait_until;
use crate::server::lunette;
use crate::tool::{Ran, run_at_most};

/// The longest time of one run of a client.
const LIMIT: Duration = Duration::from_mins(2);

/// Seconds of one run. The logins of the next ones meet handovers, too.
const RUN_S: u32 = 4;

/// Sessions that compare every byte, each with a disk of its own.
const SESSIONS: u16 = 8;

/// The bytes that QEMU writes and reads in one run: a mebibyte after the other, with a pattern that differs each time.
const QEMU_MIB: u32 = 96;

/// Clients that are running.
pub(super) struct Clients {
    threads: Vec<JoinHandle<Seen>>,
    is_over: Arc<AtomicBool>,
}

/// The errors of a client, and the work that it did.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) errors: Vec<String>,
    /// The runs that have ended.
    pub(super) runs: u64,
    /// The requests whose bytes were compared.
    pub(super) verified: u64,
    /// The longest request, as far as the client tells.
    pub(super) longest: Duration,
}

impl Clients {
    pub(super) fn start(site: &Site) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let of_sessions = (0..SESSIONS).map(|number| {
            let url = site.url(number);
            start(&is_over, move |seen| verify(number, &url, seen))
        });
        let (of_qemu, of_libiscsi) = (site.url(SESSIONS), site.url(SESSIONS + 1));
        let pattern = AtomicU64::new(1);
        let others = [
            start(&is_over, move |seen| qemu(&of_qemu, pattern.fetch_add(1, Ordering::Relaxed), seen)),
            start(&is_over, move |seen| libiscsi(&of_libiscsi, seen)),
        ];
        debug_assert_eq!(SESSIONS + 2, LUNS, "each client has a disk");
        Self { threads: of_sessions.chain(others).collect(), is_over }
    }

    /// Waits until all clients have got answers.
    pub(super) fn await_all(&self, site: &Site) {
        let disk = |lun: u16| format!(",lun=\"{lun}\"");
        let all_answered = || {
            let counters = site.counters();
            let answered = |lun: u16| counters.iter().any(|(name, count)| name.contains(&disk(lun)) && *count > 64.0);
            let is_one_over = self.threads.iter().any(JoinHandle::is_finished);
            (is_one_over || (0..LUNS).all(answered)).then_some(())
        };
        wait_until(LIMIT, all_answered).expect("all clients begin");
    }

    /// Lets all clients end what they do.
    pub(super) fn end(self) -> Vec<Seen> {
        self.is_over.store(true, Ordering::Release);
        self.threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    }
}

/// Repeats a run until the end, or until one has failed.
fn start(is_over: &Arc<AtomicBool>, run: impl Fn(&mut Seen) + Send + 'static) -> JoinHandle<Seen> {
    let is_over = Arc::clone(is_over);
    let repeat = move || {
        let mut seen = Seen::default();
        while !is_over.load(Ordering::Acquire) && seen.errors.is_empty() {
            run(&mut seen);
            seen.runs += 1;
        }
        seen
    };
    thread::spawn(repeat)
}

/// A session of the project's own client. The number chooses its recovery level, digests and connections.
fn verify(number: u16, url: &str, seen: &mut Seen) {
    let level = number % 3;
    let connections = if number == 3 || number == 7 { 4 } else { 1 };
    let mut bench = lunette();
    bench.args(["bench", "--rw", "verify", "--json", "--bs", "16k", "--depth", "4", "--size", "16M"]);
    bench.args(["--time", &RUN_S.to_string(), "--connections", &connections.to_string()]);
    if number % 2 == 1 {
        bench.args(["--header-digest", "--data-digest"]);
    }
    let ran = run_at_most(LIMIT, bench.arg(format!("{url}?error_recovery_level={level}")));
    let report: Option<Value> = serde_json::from_str(&ran.stdout).ok();
    let Some(report) = report.filter(|_| ran.code == Some(0)) else { return seen.errors.push(ran.to_string()) };
    let verified = report["verified"].as_u64().unwrap_or_default();
    // R2Ts for data that came too early are usual among several connections.
    let is_usual = |(kind, count): (&String, &Value)| kind == "recovery_r2ts" || *count == 0;
    let went_on = report["recoveries"].as_object().is_some_and(|recoveries| recoveries.iter().all(is_usual));
    if verified == 0 || !went_on {
        seen.errors.push(format!("session {number} had to recover, or did nothing: {report}"));
    }
    seen.verified += verified;
    let longest_us = report["latency_us"]["max"].as_f64().unwrap_or_default();
    seen.longest = seen.longest.max(Duration::from_secs_f64(longest_us / 1e6));
}

/// QEMU's driver, which compares patterns.
fn qemu(url: &str, run: u64, seen: &mut Seen) {
    let mut qemu = Command::new("qemu-io");
    qemu.args(["-f", "raw", "-t", "none"]);
    for number in 0..QEMU_MIB {
        let (pattern, at) = ((run + u64::from(number)) % 255 + 1, number % 16);
        qemu.args(["-c", &format!("write -q -P {pattern} {at}M 1M"), "-c", &format!("read -q -P {pattern} {at}M 1M")]);
    }
    let ran = run_at_most(LIMIT, qemu.arg(url));
    // libiscsi says when it has logged in again.
    if ran.code == Some(0) && ran.stdout.is_empty() && ran.stderr.is_empty() {
        seen.verified += u64::from(QEMU_MIB);
    } else {
        seen.errors.push(ran.to_string());
    }
}

/// libiscsi's own client, which reads at random until it is told to end.
fn libiscsi(url: &str, seen: &mut Seen) {
    let mut perf = Command::new("timeout");
    // In the foreground it gets one signal. A second one would end it in the midst of a request.
    perf.args(["--foreground", "--preserve-status", "--signal=INT", &RUN_S.to_string()]);
    let ran = run_at_most(LIMIT, perf.args(["iscsi-perf", "-r", "-m", "2", "-b", "32", "-x", "0", url]));
    fail_unless_finished(&ran, seen);
}

fn fail_unless_finished(ran: &Ran, seen: &mut Seen) {
    let has_failed = ran.stderr.contains("fail") || ran.stderr.contains("reconnect");
    if ran.code != Some(0) || has_failed || !ran.stdout.contains("finished") {
        seen.errors.push(ran.to_string());
    }
}
