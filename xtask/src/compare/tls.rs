//! Sessions within TLS beside plain ones, and beside stunnel on both ends.
//!
//! Each side has one CPU, on which its stunnel runs, too. All parties use one server program with a disk in memory.

use std::ffi::OsString;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::cells::Initiator;
use super::child::Child;
use super::contestant::{self, Load, Lunette, START_LIMIT, Stage, lunette};
use super::measure::limit;
use super::statistics::Spread;
use super::table::{Goal, Row};
use crate::process;

/// Bytes of each disk.
const DISK_LEN: u64 = 256 << 20;

/// The speed should be at least this, beside stunnel.
const SOLID_STUNNEL: f64 = 3.0;
/// The latency of a request alone should be at most this, beside plain text.
const MAX_LATENCY: f64 = 1.3;

/// The load.
struct Course {
    name: &'static str,
    mode: &'static str,
    len_bytes: u32,
    depth: u32,
    /// The speed should be at least this, beside plain text.
    solid: f64,
}

const COURSES: [Course; 5] = [
    Course { name: "64 KiB reads", mode: "read", len_bytes: 64 << 10, depth: 16, solid: 0.55 },
    Course { name: "64 KiB writes", mode: "write", len_bytes: 64 << 10, depth: 16, solid: 0.55 },
    Course { name: "4 KiB random reads", mode: "randread", len_bytes: 4 << 10, depth: 32, solid: 0.7 },
    Course { name: "4 KiB random writes", mode: "randwrite", len_bytes: 4 << 10, depth: 32, solid: 0.7 },
    Course { name: "4 KiB random reads one by one", mode: "randread", len_bytes: 4 << 10, depth: 1, solid: 0.0 },
];

/// The figures of all rounds under one load: plain, within TLS, and through stunnel.
#[derive(Default)]
struct Figures {
    iops: [Vec<f64>; 3],
    latency_us: [Vec<f64>; 3],
}

impl Figures {
    fn rows(&self, course: &Course) -> Vec<Row> {
        let [plain, tls, stunnel] = &self.iops;
        let row = |what: &str, over: &[f64], under: &[f64], goal| {
            Row::new(format!("TLS, {}, {what}", course.name), Spread::of_ratio(over, under), "", goal)
        };
        let at_least = |solid| Goal::AtLeast { solid, aim: None };
        if course.depth == 1 {
            let [plain, tls, _] = &self.latency_us;
            return vec![row("speed by latency: plain ÷ TLS", plain, tls, at_least(1.0 / MAX_LATENCY))];
        }
        vec![
            row("speed: TLS ÷ plain", tls, plain, at_least(course.solid)),
            row("speed: TLS ÷ stunnel", tls, stunnel, at_least(SOLID_STUNNEL)),
        ]
    }
}

/// The three ways to one kind of disk.
struct Ways {
    urls: [String; 3],
    _servers: [Lunette; 2],
    _stunnels: [Child; 2],
}

pub(super) fn measure(stage: &Stage, rounds: u32, seconds: u32) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let ways = Ways::open(stage, &folder)?;
    let mut all = COURSES.map(|course| (course, Figures::default()));
    for round in 1..=rounds {
        eprintln!("TLS, round {round} of {rounds}");
        for (course, figures) in &mut all {
            for (way, url) in ways.urls.iter().enumerate() {
                let load = run(stage, course, seconds, url).with_context(|| format!("{} at {url}", course.name))?;
                figures.iops[way].push(load.iops);
                figures.latency_us[way].extend(load.latency_us);
            }
        }
    }
    Ok(all.iter().flat_map(|(course, figures)| figures.rows(course)).collect())
}

impl Ways {
    fn open(stage: &Stage, folder: &TempDir) -> Result<Self> {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let ca = path("ca");
        for words in [vec!["ca", &ca], vec!["issue", &ca, "server", "--host", "127.0.0.1"]] {
            process::run(Command::new(lunette()).arg("tls").args(words))?;
        }
        let files = path("ca/server");
        let plain = Lunette::start(stage, "serve-plain", DISK_LEN)?;
        let secure = Lunette::start_tls(stage, "serve-tls", DISK_LEN, Path::new(&files))?;
        let portal = plain.url.trim_start_matches("iscsi://").split('/').next().unwrap_or_default().to_owned();
        let [outer, inner] = [free_address()?, free_address()?];
        let server = format!(
            "accept = {inner}\nconnect = {portal}\ncert = {files}/server-cert.pem\nkey = {files}/server-key.pem\n"
        );
        let client = format!(
            "client = yes\naccept = {outer}\nconnect = {inner}\nCAfile = {files}/ca-cert.pem\nverifyChain = yes\n"
        );
        let stunnels = [
            stunnel(stage, folder, "stunnel-target", stage.cpus.target, &server, &inner)?,
            stunnel(stage, folder, "stunnel-initiator", stage.cpus.initiator, &client, &outer)?,
        ];
        let urls = [plain.url.clone(), format!("{}?tls={files}", secure.url), plain.url.replacen(&portal, &outer, 1)];
        Ok(Self { urls, _servers: [plain, secure], _stunnels: stunnels })
    }
}

/// An address of loopback on which no process listens.
fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?.local_addr()?.to_string())
}

/// Starts stunnel with one service, and waits until it listens.
fn stunnel(stage: &Stage, folder: &TempDir, name: &str, cpu: usize, service: &str, address: &str) -> Result<Child> {
    let file = folder.path().join(name);
    fs::write(&file, format!("foreground = yes\npid =\nsslVersionMin = TLSv1.3\n[iscsi]\n{service}"))?;
    let mut child = stage.start(name, cpu, Path::new("stunnel4"), vec![file.into()])?;
    child.wait_until(START_LIMIT, |_| Ok(TcpStream::connect(address).ok()))?;
    Ok(child)
}

fn run(stage: &Stage, course: &Course, seconds: u32, url: &str) -> Result<Load> {
    let numbers = [("--bs", course.len_bytes), ("--depth", course.depth), ("--time", seconds)];
    let words = ["bench", url, "--json", "--rw", course.mode].map(OsString::from).into_iter();
    let words = words.chain(numbers.into_iter().flat_map(|(key, value)| [key.into(), value.to_string().into()]));
    let bench = stage.start("bench-tls", stage.cpus.initiator, &lunette(), words.collect())?;
    contestant::initiator_load(Initiator::Lunette, &bench.finish(limit(seconds))?.stdout, seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_and_latencies_meet_their_goals_as_ratios() {
        let figures =
            Figures { iops: [vec![100.0], vec![60.0], vec![20.0]], latency_us: [vec![10.0], vec![12.5], vec![40.0]] };
        let medians = |course: &Course| -> Vec<_> {
            figures.rows(course).iter().map(|row| row.value.map(|value| value.median)).collect()
        };
        assert_eq!(medians(&COURSES[0]), [Some(0.6), Some(3.0)]);
        assert_eq!(medians(&COURSES[4]), [Some(0.8)]);
    }
}
