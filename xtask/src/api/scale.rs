//! `cargo xtask api --scale`: how long a change of 1,000 targets takes, and what reads notice of it.

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::server::Server;
use crate::packages;
use crate::process;
use crate::programs;

/// The disk that is read all the time.
const DISK: &str = r#"
[[target]]
name = "iqn.2026-11.org.example:read"
lun = [{ number = 0, disk = "mem:64M" }]
"#;

/// Targets of the change, with as many logical units each.
const TARGETS: usize = 1000;
const LUNS: usize = 4;

/// Repetitions of the measurement, of which the median counts.
const ROUNDS: usize = 3;

/// Lists after each change. The slowest of a round counts.
const LISTS: usize = 10;

/// Random reads of 4 KiB: as many at once, for this many seconds.
const LOAD: [&str; 5] = ["--json", "--depth", "8", "--time", "5"];

/// The bounds: of the change, of each list, and of the 99th percentile beside that of quiet.
const MAX_APPLY: Duration = Duration::from_secs(5);
const MAX_LIST: Duration = Duration::from_millis(100);
const MAX_RATIO: f64 = 2.0;

/// Latencies are the 99th percentile, in microseconds.
struct Round {
    quiet: f64,
    busy: f64,
    apply: Duration,
    list: Duration,
}

/// Measures, and fails when a bound is missed.
pub(super) fn run() -> Result<ExitCode> {
    packages::provide_for_api()?;
    programs::build()?;
    let place = tempfile::tempdir()?;
    let server = Server::start(place.path(), DISK)?;
    fs::write(place.path().join("many.toml"), many())?;
    fs::write(place.path().join("none.toml"), "")?;
    println!("{TARGETS} targets of {LUNS} logical units; reads of 4 KiB, 8 at once, profile dev");
    println!("apply ms  slowest list ms  p99 quiet µs  p99 busy µs  ratio");
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let round = Round::measure(&server)?;
        let (apply, list) = (round.apply.as_millis(), round.list.as_millis());
        println!("{apply:8}  {list:15}  {:12.1}  {:11.1}  {:5.2}", round.quiet, round.busy, round.ratio());
        rounds.push(round);
    }
    server.stop()?;
    Ok(judge(&rounds))
}

/// The configuration with all targets.
fn many() -> String {
    let lun = |number: usize| format!("{{ number = {number}, disk = \"mem:1M\" }}");
    let luns: Vec<String> = (0..LUNS).map(lun).collect();
    (0..TARGETS).fold(String::new(), |mut text, target| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[[target]]\nname = \"iqn.2026-11.org.example:{target}\"\nlun = [{}]", luns.join(", "));
        text
    })
}

impl Round {
    /// Reads in quiet, then reads while all targets are added, listed and removed again and again.
    fn measure(server: &Server) -> Result<Self> {
        let quiet = percentile(&load(server)?.output()?)?;
        let mut reads = load(server)?.stdout(Stdio::piped()).spawn()?;
        let (mut apply, mut list) = (Duration::ZERO, Duration::ZERO);
        while reads.try_wait()?.is_none() {
            apply = apply.max(timed(server, &["apply", "-f", "many.toml"])?);
            for _ in 0..LISTS {
                list = list.max(timed(server, &["ls", "--json"])?);
            }
            timed(server, &["apply", "--prune", "-f", "none.toml"])?;
        }
        let busy = percentile(&reads.wait_with_output()?)?;
        Ok(Self { quiet, busy, apply, list })
    }

    fn ratio(&self) -> f64 {
        self.busy / self.quiet
    }
}

fn lunette() -> Command {
    Command::new(process::built("lunette"))
}

fn load(server: &Server) -> Result<Command> {
    let mut command = lunette();
    command.arg("bench").args(LOAD).arg(server.disk()?);
    Ok(command)
}

/// The 99th percentile of what a load has printed.
fn percentile(output: &Output) -> Result<f64> {
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("lunette bench: {}", String::from_utf8_lossy(&output.stderr)))?;
    told["latency_us"]["p99"].as_f64().context("lunette bench tells no percentile")
}

/// The time of a command of `lunette ctl`, from its start to its end.
fn timed(server: &Server, arguments: &[&str]) -> Result<Duration> {
    let socket = format!("unix:{}", server.folder().join("api.sock").display());
    let start = Instant::now();
    let output = lunette().args(["ctl", "--api", &socket]).args(arguments).current_dir(server.folder()).output()?;
    let took = start.elapsed();
    if !output.status.success() {
        bail!("lunette ctl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(took)
}

/// Compares the medians with their bounds.
fn judge(rounds: &[Round]) -> ExitCode {
    let apply = median(rounds.iter().map(|round| round.apply.as_secs_f64()));
    let list = median(rounds.iter().map(|round| round.list.as_secs_f64()));
    let ratio = median(rounds.iter().map(Round::ratio));
    let verdicts = [
        ("apply", apply, MAX_APPLY.as_secs_f64(), "s"),
        ("list", list, MAX_LIST.as_secs_f64(), "s"),
        ("p99 ratio", ratio, MAX_RATIO, ""),
    ];
    for (what, median, bound, unit) in verdicts {
        let verdict = if median <= bound { "holds" } else { "MISSED" };
        println!("{what}: median {median:.3} {unit}, at most {bound} {unit}: {verdict}");
    }
    let holds = verdicts.iter().all(|(_, median, bound, _)| median <= bound);
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
