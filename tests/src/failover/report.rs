//! The times of the rounds.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::kind::Kind;

/// One round, in which nothing went wrong.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) kind: Kind,
    /// From the fault until the load went on.
    pub(super) answered: Duration,
    /// The longest request of the load.
    pub(super) longest: Duration,
    /// Requests whose bytes were compared.
    pub(super) requests: u64,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, answered, longest, requests } = self;
        let (what, answered, longest) = (kind.what(), answered.as_secs_f64(), longest.as_secs_f64());
        write!(f, "{what}: requests go on after {answered:.2} s, the longest took {longest:.2} s, {requests} compared")
    }
}

/// All rounds, by fault.
#[derive(Debug, Default)]
pub struct Report(BTreeMap<Kind, Vec<Round>>);

/// The rounds with one fault.
struct Row {
    what: &'static str,
    requests: u64,
    /// Until requests went on in each round, in order of length.
    answered_s: Vec<f64>,
    stall_s: f64,
}

impl Report {
    pub(super) fn add(&mut self, round: Round) {
        self.0.entry(round.kind).or_default().push(round);
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        self.0.iter().map(|(kind, rounds)| {
            let mut answered_s: Vec<f64> = rounds.iter().map(|round| round.answered.as_secs_f64()).collect();
            answered_s.sort_by(f64::total_cmp);
            Row {
                what: kind.what(),
                requests: rounds.iter().map(|round| round.requests).sum(),
                answered_s,
                stall_s: rounds.iter().map(|round| round.longest.as_secs_f64()).fold(0.0, f64::max),
            }
        })
    }

    /// The rows as JSON. There is none for a fault that broke a promise: that ends the campaign.
    pub fn json(&self) -> Value {
        let row = |row: Row| {
            json!({
                "fault": row.what, "compared_requests": row.requests, "answered_s": row.answered_s, "longest_request_s": row.stall_s,
            })
        };
        Value::Array(self.rows().map(row).collect())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| fault | rounds | requests compared | until requests go on: median, longest | longest request |"
        )?;
        write!(f, "|---|---|---|---|---|")?;
        for Row { what, requests, answered_s, stall_s } in self.rows() {
            let rounds = answered_s.len();
            let (median_s, longest_s) = (answered_s[rounds / 2], answered_s[rounds - 1]);
            write!(f, "\n| {what} | {rounds} | {requests} | {median_s:.2} s, {longest_s:.2} s | {stall_s:.2} s |")?;
        }
        Ok(())
    }
}
