//! The findings of a measurement so far, and their report.

#![expect(clippy::cast_sign_loss, reason = "a number of bytes is not negative")]

mod print;

use std::time::Duration;

use lunette_initiator::Url;
use lunette_tuning::{
    Candidate, Evidence, Path, Rates, Settings, Stage, Survey, Transfer, Trial, Tuner, Verdict, predict,
};
use serde::Serialize;

use super::Arguments;
use super::explain::explain;
use super::paste::{self, Lines};
use super::survey::IdleFacts;
use super::trial::{Load, Outcome};
use super::units::{Rate, rounded};
use crate::commands::info::negotiated::Negotiated;
use crate::failure::Failure;
use crate::output;

/// The findings so far. The parts come in this order.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) facts: Option<IdleFacts>,
    pub(super) survey: Option<Survey>,
    pub(super) defaults: Option<Candidate>,
    pub(super) tuner: Option<Tuner>,
    /// The results of the tuner's trials.
    pub(super) outcomes: Vec<Option<Outcome>>,
}

impl Findings {
    /// Prints what is known; `lost` says why the measurement ended early.
    pub(super) fn report(&self, arguments: &Arguments, url: &Url, lost: Option<&str>) -> Result<(), Failure> {
        let (Some(facts), Some(survey), Some(defaults)) = (&self.facts, &self.survey, &self.defaults) else {
            return Ok(());
        };
        let report = Report::new(self, facts, survey, defaults, url, lost);
        if arguments.json { output::json(&report) } else { report.print() }
    }
}

#[derive(Serialize)]
struct Report {
    url: String,
    complete: bool,
    /// Why the measurement ended early.
    error: Option<String>,
    path: PathRow,
    target: TargetRow,
    /// The limits of the settings of today, or of the defaults, in three lines.
    limits: Vec<String>,
    trials: Vec<TrialRow>,
    verdict: Option<VerdictRow>,
    /// The settings in the words of the programs that take them.
    paste: Vec<Lines>,
}

#[derive(Serialize)]
struct PathRow {
    ping_us: f64,
    round_trip_us: f64,
    /// Under the load of the defaults.
    loaded_round_trip_us: Option<f64>,
    mtu: u32,
    /// The rate of the fastest trial, with headers.
    bytes_per_second: Option<f64>,
    /// The loss that explains why one connection carries less than several; 0 when nothing needs it.
    inferred_loss: f64,
    /// Segments that this side sent again, under the load of the defaults.
    retransmitted: Option<f64>,
    /// Segments from the target that came out of order.
    out_of_order: Option<f64>,
    /// Bytes that the buffers of this system let one connection have on the way.
    tcp_window_bytes: u64,
    delay_bandwidth_bytes: Option<u64>,
    congestion_control: Option<String>,
}

#[derive(Serialize)]
struct TargetRow {
    negotiated: Negotiated,
    /// Connections that a session gets.
    connections: u32,
    command_window: usize,
    command_latency_us: f64,
    commands_per_second: f64,
    commands_in_flight: u32,
    /// `None` when the distance hides it.
    command_cost_us: Option<f64>,
}

/// Settings that were measured.
#[derive(Serialize, Clone)]
struct SettingsRow {
    request_bytes: u64,
    /// `None`: the load finds it by itself.
    depth: Option<u32>,
    connections: u32,
    initial_r2t: bool,
    immediate_data: bool,
    first_burst_bytes: u64,
    max_burst_bytes: u64,
    max_outstanding_r2t: u32,
    max_recv_data_segment_bytes: u64,
    /// `None`: the system's.
    congestion_control: Option<&'static str>,
    send_buffer_bytes: Option<u32>,
    receive_buffer_bytes: Option<u32>,
}

#[derive(Serialize)]
struct TrialRow {
    stage: &'static str,
    settings: SettingsRow,
    /// `None` when the settings could not be measured.
    read: Option<LoadRow>,
    write: Option<LoadRow>,
}

#[derive(Serialize)]
struct LoadRow {
    bytes_per_second: f64,
    depth: usize,
    round_trip_us: f64,
    /// All that was moved.
    bytes: u64,
}

#[derive(Serialize)]
struct VerdictRow {
    defaults_are_best: bool,
    /// Whether the proof ended: defaults and settings in turns.
    proven: bool,
    before: RatesRow,
    after: RatesRow,
    /// How many times more.
    gain: f64,
    settings: SettingsRow,
    /// For our URL, without a question mark.
    url_parameters: String,
    /// For `lunette cp` and `lunette bench`.
    arguments: String,
}

#[derive(Serialize, Clone, Copy)]
struct RatesRow {
    read_bytes_per_second: f64,
    write_bytes_per_second: Option<f64>,
}

impl RatesRow {
    fn new(rates: &Rates) -> Self {
        Self { read_bytes_per_second: rounded(rates.read), write_bytes_per_second: rates.write.map(rounded) }
    }
}

impl SettingsRow {
    fn new(candidate: &Candidate) -> Self {
        let Settings { request_len, depth, connections, initial_r2t, immediate_data, .. } = candidate.settings;
        let Settings { first_burst_len, max_burst_len, max_outstanding_r2t, max_data_segment_len, .. } =
            candidate.settings;
        Self {
            request_bytes: request_len,
            depth: (!candidate.finds_depth).then_some(depth),
            connections,
            initial_r2t,
            immediate_data,
            first_burst_bytes: first_burst_len,
            max_burst_bytes: max_burst_len,
            max_outstanding_r2t,
            max_recv_data_segment_bytes: max_data_segment_len,
            congestion_control: candidate.congestion.map(lunette_tuning::CongestionControl::name),
            send_buffer_bytes: candidate.send_buffer_bytes,
            receive_buffer_bytes: candidate.receive_buffer_bytes,
        }
    }
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn load_row(load: &Load) -> LoadRow {
    LoadRow {
        bytes_per_second: rounded(load.bytes_per_second),
        depth: load.depth,
        round_trip_us: us(load.round_trip),
        bytes: load.data_bytes,
    }
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Defaults => "defaults",
        Stage::Today => "today",
        Stage::Wide => "wide",
        Stage::Model => "model",
        Stage::Neighbour => "neighbour",
        Stage::Proof => "proof",
    }
}

impl Report {
    fn new(
        findings: &Findings,
        facts: &IdleFacts,
        survey: &Survey,
        defaults: &Candidate,
        url: &Url,
        lost: Option<&str>,
    ) -> Self {
        let trials = findings.tuner.as_ref().map_or(&[][..], Tuner::trials);
        let path = findings.tuner.as_ref().map(Tuner::path);
        // The trials may have seen a wider command window than the survey did.
        let survey = findings.tuner.as_ref().map_or(survey, Tuner::survey);
        let verdict = findings.tuner.as_ref().and_then(Tuner::verdict);
        let outcome = |index: usize| findings.outcomes.get(index).and_then(Option::as_ref);
        // The explanation is about what is in use now: the settings of today, or the defaults.
        let now = trials.iter().position(|trial| trial.stage == Stage::Today && trial.rates.is_some()).unwrap_or(0);
        let rows = trials.iter().enumerate().map(|(index, trial)| TrialRow::new(trial, outcome(index)));
        let limits = match (trials.get(now), &path, outcome(now)) {
            (Some(trial), Some(path), Some(outcome)) => limits(path, survey, trial, outcome, trials),
            _ => Vec::new(),
        };
        let paste = match (&verdict, &path) {
            (Some(verdict), Some(path)) => {
                // Inferred loss alone may be something else that several connections overcome.
                let was_loss_seen = path.loss > 0.0 && findings.outcomes.iter().flatten().any(Outcome::shows_loss);
                paste::all(path, &with_depth(verdict, outcome(0)), &defaults.settings, was_loss_seen)
            }
            _ => Vec::new(),
        };
        Self {
            url: url.to_string(),
            complete: lost.is_none(),
            error: lost.map(Into::into),
            path: PathRow::new(facts, survey, path.as_ref(), outcome(0)),
            target: TargetRow::new(facts, survey),
            limits,
            trials: rows.collect(),
            verdict: verdict.map(|verdict| VerdictRow::new(&verdict, defaults)),
            paste,
        }
    }
}

/// The settings of a verdict, with the depth that the load of the defaults has found, if the verdict leaves it to the
/// load.
fn with_depth(verdict: &Verdict, defaults: Option<&Outcome>) -> Candidate {
    let mut candidate = verdict.candidate;
    if let Some(outcome) = defaults.filter(|_| candidate.finds_depth) {
        candidate.settings.depth = u32::try_from(outcome.read.depth).unwrap_or(u32::MAX).max(1);
    }
    candidate
}

/// The share of what the model expects that a limit of the model explains.
const EXPLAINED: f64 = 0.7;

/// The rate of a trial, its limit, and the rate of the path.
fn limits(path: &Path, survey: &Survey, trial: &Trial, outcome: &Outcome, trials: &[Trial]) -> Vec<String> {
    let row = SettingsRow::new(&trial.candidate);
    let depth = u32::try_from(outcome.read.depth).unwrap_or(u32::MAX);
    let settings = Settings { depth: depth.max(1), ..trial.candidate.settings };
    let prediction = predict(path, &survey.target, &settings, Transfer::Read);
    let expected = prediction.bytes_per_second;
    let is_explained = outcome.read.bytes_per_second >= EXPLAINED * expected;
    let unexplained = format!("none of the path: it would carry {}; the target's disk, or a CPU", Rate(expected));
    let most = trials.iter().filter_map(|trial| Some((trial, trial.rates?.read)));
    let most = most.max_by(|(_, one), (_, other)| one.total_cmp(other));
    let fastest = most
        .map(|(trial, rate)| format!("{} of reads with {}", Rate(rate), SettingsRow::new(&trial.candidate).words()));
    vec![
        format!(
            "now: {} ({depth} in flight at the end): {} of reads",
            row.words(),
            Rate(outcome.read.bytes_per_second)
        ),
        format!("limit: {}", if is_explained { explain(path, &settings, &prediction) } else { unexplained }),
        format!(
            "the most that was seen: {}; {:.2} MB fill that path",
            fastest.unwrap_or_default(),
            path.delay_bandwidth_bytes() / 1e6
        ),
    ]
}

impl PathRow {
    fn new(facts: &IdleFacts, survey: &Survey, path: Option<&Path>, defaults: Option<&Outcome>) -> Self {
        Self {
            ping_us: us(facts.ping),
            round_trip_us: us(facts.round_trip),
            loaded_round_trip_us: defaults.map(|outcome| us(outcome.read.round_trip)),
            mtu: survey.path.mtu,
            bytes_per_second: path.map(|path| rounded(path.rate)),
            inferred_loss: path.map_or(0.0, |path| path.loss),
            retransmitted: defaults.map(|outcome| outcome.write.as_ref().unwrap_or(&outcome.read).resent),
            out_of_order: defaults.map(|outcome| outcome.read.out_of_order),
            tcp_window_bytes: survey.path.tcp_window,
            delay_bandwidth_bytes: path.map(|path| path.delay_bandwidth_bytes() as u64),
            congestion_control: facts.congestion.clone(),
        }
    }
}

impl TargetRow {
    fn new(facts: &IdleFacts, survey: &Survey) -> Self {
        Self {
            negotiated: Negotiated::new(&facts.parameters),
            connections: survey.bounds.max_connections,
            command_window: facts.command_window,
            command_latency_us: us(facts.command_latency),
            commands_per_second: rounded(facts.commands_per_second),
            commands_in_flight: facts.commands_in_flight,
            command_cost_us: facts.command_cost.map(us),
        }
    }
}

impl TrialRow {
    fn new(trial: &Trial, outcome: Option<&Outcome>) -> Self {
        Self {
            stage: stage(trial.stage),
            settings: SettingsRow::new(&trial.candidate),
            read: outcome.map(|outcome| load_row(&outcome.read)),
            write: outcome.and_then(|outcome| outcome.write.as_ref()).map(load_row),
        }
    }
}

impl VerdictRow {
    fn new(verdict: &Verdict, defaults: &Candidate) -> Self {
        let Settings { request_len, depth, .. } = verdict.candidate.settings;
        let depth = if verdict.candidate.finds_depth { String::new() } else { format!(" --depth {depth}") };
        Self {
            defaults_are_best: verdict.is_defaults,
            proven: verdict.evidence == Evidence::Proven,
            before: RatesRow::new(&verdict.before),
            after: RatesRow::new(&verdict.after),
            gain: verdict.after.gain_over(&verdict.before),
            settings: SettingsRow::new(&verdict.candidate),
            url_parameters: paste::url_parameters(&verdict.candidate, &defaults.settings),
            arguments: format!("--bs {request_len}{depth}"),
        }
    }
}
