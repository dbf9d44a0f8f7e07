//! The times of the rounds, and all that went wrong.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::clients::Seen;
use super::counters::Counters;
use super::site::Size;
use crate::server::Upgrade;

/// The memory by which a server may differ from the one before: what its allocator keeps, under another load.
const MEMORY_MARGIN_KIB: u64 = 4096;

/// The descriptors by which a server may differ from the one before: clients come and go.
const DESCRIPTOR_MARGIN: u64 = 24;

/// Lines of the log that no handover may cause.
const WRONG: [&str; 5] =
    ["panicked", "a session of the process before is ended", "not all that belongs to them", " lost ", "WARN nexus"];

/// How a handover has ended.
#[derive(Debug)]
pub(super) enum End {
    Taken(Upgrade),
    /// The successor was killed, and the predecessor has gone on.
    Killed,
    /// The predecessor has gone on, for no reason of the campaign.
    Refused(String),
}

/// A handover.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) number: u32,
    pub(super) end: End,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round {}: ", self.number)?;
        match &self.end {
            End::Taken(Upgrade { sessions, pause_us, took, .. }) => {
                let [pause_ms, took_ms] =
                    [Duration::from_micros(*pause_us), *took].map(|time| time.as_secs_f64() * 1e3);
                write!(f, "{sessions} sessions go on after a pause of {pause_ms:.0} ms; {took_ms:.0} ms in all")
            }
            End::Killed => f.write_str("the successor was killed"),
            End::Refused(reason) => f.write_str(reason.trim_end()),
        }
    }
}

/// All rounds.
#[derive(Debug, Default)]
pub struct Report {
    taken: Vec<Upgrade>,
    killed: usize,
    sizes: Vec<Size>,
    runs: u64,
    verified: u64,
    longest: Duration,
    errors: Vec<String>,
}

impl Report {
    pub(super) fn add(&mut self, round: Round) {
        let Round { number, end } = round;
        match end {
            End::Taken(upgrade) => {
                if upgrade.lost > 0 {
                    self.errors.push(format!("round {number}: sessions are lost: {upgrade:?}"));
                }
                self.taken.push(upgrade);
            }
            End::Killed => self.killed += 1,
            End::Refused(reason) => self.errors.push(format!("round {number}: {reason}")),
        }
    }

    /// Compares counters before and after a handover.
    pub(super) fn compare(&mut self, round: u32, before: &Counters, after: &Counters) {
        for (name, count) in before {
            let now = after.get(name);
            if now.is_none_or(|now| now < count) {
                self.errors.push(format!("round {round}: {name} was {count} and is {now:?}"));
            }
        }
    }

    /// Notes what the server has in use after a round.
    pub(super) fn measure(&mut self, size: Size) {
        self.sizes.push(size);
    }

    pub(super) fn take(&mut self, clients: Vec<Seen>) {
        for Seen { errors, runs, verified, longest } in clients {
            self.errors.extend(errors);
            self.runs += runs;
            self.verified += verified;
            self.longest = self.longest.max(longest);
        }
    }

    /// Compares what the server has in use after later rounds with what it had after the first ones, and without
    /// clients `at_end` with `at_start`.
    pub(super) fn compare_sizes(&mut self, at_start: Size, at_end: Size) {
        let (first, later) = self.sizes.split_at(self.sizes.len().div_ceil(3));
        let most = |of: fn(&Size) -> u64| first.iter().map(of).max().unwrap_or_default();
        let [descriptors, memory_kib, shared_kib] = Size::PARTS.map(|(_, of)| most(of));
        let has_grown = |size: &&Size| {
            size.descriptors > descriptors + DESCRIPTOR_MARGIN
                || size.memory_kib > memory_kib + MEMORY_MARGIN_KIB
                || size.shared_kib > shared_kib + MEMORY_MARGIN_KIB
        };
        let grown = later.iter().find(has_grown).map(|size| format!("the server has grown to {size:?}"));
        let kept = (at_end.descriptors > at_start.descriptors)
            .then(|| format!("without clients there was {at_start:?}, and is {at_end:?}"));
        self.errors.extend([grown, kept].into_iter().flatten());
    }

    pub(super) fn read_log(&mut self, log: &str) {
        let wrong = log.lines().filter(|line| WRONG.iter().any(|wrong| line.contains(wrong)));
        self.errors.extend(wrong.map(str::to_owned));
    }

    /// All that went wrong.
    pub fn errors(&self) -> &[String] {
        &self.errors
    }

    /// Pauses and whole handovers in milliseconds, each in order of length.
    fn times_ms(&self) -> [(&'static str, Vec<f64>); 2] {
        let pause = |upgrade: &Upgrade| Duration::from_micros(upgrade.pause_us).as_secs_f64() * 1e3;
        let pauses = self.taken.iter().map(pause).collect();
        let whole = self.taken.iter().map(|upgrade| upgrade.took.as_secs_f64() * 1e3).collect();
        let sorted = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times
        };
        [("pause of all sessions", sorted(pauses)), ("whole handover", sorted(whole))]
    }

    /// The least and the most of each thing that the server had in use.
    fn ranges(&self) -> [(&'static str, [u64; 2]); 3] {
        let range = |of: fn(&Size) -> u64| {
            let values = || self.sizes.iter().map(of);
            [values().min().unwrap_or_default(), values().max().unwrap_or_default()]
        };
        Size::PARTS.map(|(what, of)| (what, range(of)))
    }

    /// The report as JSON.
    pub fn json(&self) -> Value {
        let times = self.times_ms().map(|(what, times)| (what.to_owned(), json!(times)));
        let ranges = self.ranges().map(|(what, range)| (what.to_owned(), json!(range)));
        json!({
            "handovers": self.taken.len(),
            "killed": self.killed,
            "sessions": self.taken.iter().map(|upgrade| upgrade.sessions).sum::<usize>(),
            "times_ms": times.into_iter().collect::<serde_json::Map<_, _>>(),
            "in_use": ranges.into_iter().collect::<serde_json::Map<_, _>>(),
            "runs_of_clients": self.runs,
            "verified": self.verified,
            "longest_request_ms": self.longest.as_secs_f64() * 1e3,
            "errors": self.errors,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sessions: usize = self.taken.iter().map(|upgrade| upgrade.sessions).sum();
        writeln!(f, "{} handovers of {sessions} sessions; {} successors killed", self.taken.len(), self.killed)?;
        writeln!(f, "{} runs of clients, {} requests compared\n", self.runs, self.verified)?;
        writeln!(f, "| time | p50 | p99 | longest |\n|---|---|---|---|")?;
        for (what, times) in self.times_ms() {
            let at = |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1)));
            let [p50, p99, longest] = [50, 99, 100].map(|share| at(share).copied().unwrap_or_default());
            writeln!(f, "| {what} | {p50:.0} ms | {p99:.0} ms | {longest:.0} ms |")?;
        }
        writeln!(f, "| longest request of a client | | | {:.0} ms |\n", self.longest.as_secs_f64() * 1e3)?;
        writeln!(f, "| in use after a handover | least | most |\n|---|---|---|")?;
        for (what, [least, most]) in self.ranges() {
            writeln!(f, "| {what} | {least} | {most} |")?;
        }
        write!(f, "\n{} errors", self.errors.len())?;
        self.errors.iter().try_for_each(|error| write!(f, "\n- {error}"))
    }
}
