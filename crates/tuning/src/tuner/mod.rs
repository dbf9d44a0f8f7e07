//! The tuner: which settings to measure next, when to stop, and what the measurements prove.
//!
//! [`Tuner`] is a state machine. Its driver measures the [`Candidate`] of [`Tuner::next`], hands the result to
//! [`Tuner::record`], and reads the [`Verdict`] at the end, or at any time before when the target is lost. Stages
//! follow each other:
//!
//! 1. the **defaults**, and the settings of **today** if the user names some;
//! 2. **wide**: all connections and far more in flight than the defaults filled, to see what the path carries;
//! 3. the **model**: what [`recommend`](crate::recommend) finds for the path as far as it is known by then;
//! 4. **neighbours** of the best so far, one change at a time;
//! 5. the **proof**: defaults and the best, in turns. It alone decides, because the best of several noisy measurements
//!    is partly luck.
//!
//! Whatever is measured, the verdict never names settings that the proof found slower than the defaults, in either
//! direction.

mod candidates;
mod estimate;
mod rates;

use candidates::{neighbours, wide};

pub use estimate::estimate;
pub use rates::Rates;

use crate::path::{CongestionControl, Path, Target};
use crate::search::{Bounds, recommend};
use crate::settings::Settings;

/// The most trials of one run, the proof included.
pub const MAX_TRIALS: usize = 20;

/// Rounds of the proof, each with one trial of the defaults and one of the best.
const PROOF_ROUNDS: usize = 2;

/// Settings must gain this much over the defaults to be worth a change.
const WORTH_IT: f64 = 1.03;

/// The share of the best rate that is good enough to spare connections and memory.
const GOOD_ENOUGH: f64 = 0.97;

/// The settings of a session, and the load on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The keys of the login, the requests and their number.
    pub settings: Settings,
    /// Whether the load finds the number of requests by itself; the depth of `settings` is the most.
    pub finds_depth: bool,
    /// The congestion control of the initiator's sockets. `None`: the system's.
    pub congestion: Option<CongestionControl>,
    /// Bytes of the send buffers. `None`: the system lets them grow.
    pub send_buffer_bytes: Option<u32>,
    /// Bytes of the receive buffers. `None`: the system lets them grow.
    pub receive_buffer_bytes: Option<u32>,
}

/// The facts before the first trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Survey {
    /// The path. Its rate and loss are estimated from the trials.
    pub path: Path,
    /// The target.
    pub target: Target,
    /// The most to which target and initiator agree.
    pub bounds: Bounds,
    /// Congestion controls that may be tried. They count for writes alone, because the target sends what is read.
    pub congestion: Vec<CongestionControl>,
    /// The send buffer that a connection may ask for, if that is more than the system lets it grow to.
    pub greater_send_buffer_bytes: Option<u32>,
    /// The greater receive buffer.
    pub greater_receive_buffer_bytes: Option<u32>,
}

/// Why a candidate is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The initiator's own settings.
    Defaults,
    /// The user's settings.
    Today,
    /// To see what the path carries.
    Wide,
    /// The model's choice.
    Model,
    /// One change of the best so far.
    Neighbour,
    /// One side of the proof.
    Proof,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Why it was made.
    pub stage: Stage,
    /// The candidate that was measured.
    pub candidate: Candidate,
    /// The rates of the candidate; `None` when it could not be measured.
    pub rates: Option<Rates>,
}

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// Defaults and settings were measured side by side after the search.
    Proven,
    /// The search has found them; there was no time for the proof.
    Searched,
}

/// The conclusion from the trials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// The settings to use: the defaults, unless others are faster.
    pub candidate: Candidate,
    /// Whether these are the defaults.
    pub is_defaults: bool,
    /// The rates of the defaults.
    pub before: Rates,
    /// The rates of the settings.
    pub after: Rates,
    /// How sure that is.
    pub evidence: Evidence,
}

/// Decides what to measure, without a clock: the driver says how many trials it can afford.
#[derive(Debug, Clone)]
pub struct Tuner {
    survey: Survey,
    defaults: Candidate,
    today: Option<Candidate>,
    trials: Vec<Trial>,
    /// The candidate that is being measured.
    pending: Option<(Stage, Candidate)>,
    /// Segments were lost, or came out of order.
    loss_shows: bool,
    /// The best of the search, once the proof has begun.
    champion: Option<Candidate>,
}

impl Tuner {
    /// A tuner that knows the path as `survey` says, and compares with `defaults`.
    pub fn new(survey: Survey, defaults: Candidate, today: Option<Candidate>) -> Self {
        Self { survey, defaults, today, trials: Vec::new(), pending: None, loss_shows: false, champion: None }
    }

    /// The next candidate to measure, when the driver can afford this many more trials. `None`: nothing. The same as
    /// before until it is [recorded](Self::record).
    pub fn next(&mut self, affordable: usize) -> Option<Candidate> {
        if self.pending.is_none() {
            self.pending = self.choose(affordable.min(MAX_TRIALS.saturating_sub(self.trials.len())));
        }
        self.pending.map(|(_, candidate)| candidate)
    }

    /// The stage of what is measured now.
    pub fn stage(&self) -> Option<Stage> {
        self.pending.map(|(stage, _)| stage)
    }

    /// Takes the result of the trial that is pending; `None` when it could not be measured.
    pub fn record(&mut self, rates: Option<Rates>) {
        let Some((stage, candidate)) = self.pending.take() else { return };
        self.trials.push(Trial { stage, candidate, rates });
    }

    /// The target's command window has been this wide. It may grow while it is used.
    pub fn saw_command_window(&mut self, commands: u32) {
        let window = &mut self.survey.target.command_window;
        *window = commands.max(*window);
    }

    /// Segments were lost in a trial, or came out of order. A short trial under loss is a matter of luck, so less is
    /// concluded from it.
    pub fn saw_loss(&mut self) {
        self.loss_shows = true;
    }

    /// The facts besides the trials; [`saw_command_window`](Self::saw_command_window) keeps them up to date.
    pub fn survey(&self) -> &Survey {
        &self.survey
    }

    /// All trials so far.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// The path as far as it is known.
    pub fn path(&self) -> Path {
        estimate(&self.survey.path, &self.trials)
    }

    fn choose(&mut self, affordable: usize) -> Option<(Stage, Candidate)> {
        if self.champion.is_some() {
            return self.next_of_proof(affordable);
        }
        // Without a search there is nothing to prove.
        let is_searching = affordable > 2 * PROOF_ROUNDS || (self.trials.len() < 2 && affordable > 0);
        if let Some(next) = self.next_of_search().filter(|_| is_searching) {
            return Some(next);
        }
        self.champion = self.challenger();
        self.next_of_proof(affordable)
    }

    fn next_of_search(&self) -> Option<(Stage, Candidate)> {
        let Some(first) = self.trials.first() else { return Some((Stage::Defaults, self.defaults)) };
        let defaults = first.rates?;
        let early = [
            (Stage::Today, self.today),
            (Stage::Wide, Some(wide(&self.survey, &self.defaults, &defaults))),
            (Stage::Model, Some(self.model())),
        ];
        let is_new = |candidate: &Candidate| self.trials.iter().all(|trial| trial.candidate != *candidate);
        for (stage, candidate) in early {
            let was_there = self.trials.iter().any(|trial| trial.stage == stage || trial.stage == Stage::Neighbour);
            if let Some(candidate) = candidate.filter(|candidate| !was_there && is_new(candidate)) {
                return Some((stage, candidate));
            }
        }
        let best = self.best()?;
        let next = neighbours(&self.survey, best, defaults.write.is_some()).into_iter().find(is_new);
        next.map(|candidate| (Stage::Neighbour, candidate))
    }

    /// The model's choice for the path as it is known.
    fn model(&self) -> Candidate {
        let settings = recommend(&self.path(), &self.survey.target, &self.survey.bounds);
        Candidate { settings, finds_depth: false, ..self.defaults }
    }

    /// The candidate that the proof compares with the defaults. Under loss these may be the best by luck, so the next
    /// best is given its chance.
    fn challenger(&self) -> Option<Candidate> {
        let best = self.best()?.candidate;
        if best != self.defaults {
            return Some(best);
        }
        let others = self.search().filter(|trial| self.loss_shows && trial.candidate != self.defaults);
        others.max_by(|a, b| self.gain(a).total_cmp(&self.gain(b))).map(|trial| trial.candidate)
    }

    fn search(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| trial.stage != Stage::Proof)
    }

    /// By how much a trial carried more than the first one of the defaults.
    fn gain(&self, trial: &Trial) -> f64 {
        let defaults = self.trials.first().and_then(|first| first.rates);
        trial.rates.zip(defaults).map_or(0.0, |(rates, defaults)| rates.gain_over(&defaults))
    }

    /// The trial of the search with the greatest gain, or one that is as good and takes less. Under loss trials differ
    /// too much for that.
    fn best(&self) -> Option<&Trial> {
        self.trials.first()?.rates?;
        let most = self.search().map(|trial| self.gain(trial)).fold(0.0, f64::max);
        let enough = if self.loss_shows { most } else { GOOD_ENOUGH * most };
        let cost = |trial: &&Trial| {
            let Settings { connections, depth, request_len, .. } = trial.candidate.settings;
            let is_changed = trial.candidate != self.defaults;
            (is_changed, connections, u64::from(depth) * request_len, depth)
        };
        self.search().filter(|trial| self.gain(trial) >= enough).min_by_key(cost)
    }

    /// The defaults and the champion in turns, as long as there is time for both.
    fn next_of_proof(&self, affordable: usize) -> Option<(Stage, Candidate)> {
        let done = self.proof().count();
        let is_round_open = done % 2 == 1;
        let may_go_on = if is_round_open { affordable > 0 } else { done < 2 * PROOF_ROUNDS && affordable > 1 };
        let candidate = if is_round_open { self.champion? } else { self.defaults };
        self.champion.filter(|_| may_go_on).map(|_| (Stage::Proof, candidate))
    }

    fn proof(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| trial.stage == Stage::Proof)
    }

    /// The conclusion from the trials so far; `None` as long as not even the defaults are measured.
    pub fn verdict(&self) -> Option<Verdict> {
        let first = self.trials.first()?.rates?;
        let sides = |side: usize| self.proof().skip(side).step_by(2).map(|trial| trial.rates);
        let (champion, before, after, evidence) = match self.champion {
            // A champion that failed in its proof proves nothing.
            Some(champion) if self.proof().count() >= 2 => {
                let mean = |side| sides(side).take(self.proof().count() / 2).collect::<Option<Vec<_>>>();
                let means = mean(0).zip(mean(1)).and_then(|(old, new)| Rates::mean(&old).zip(Rates::mean(&new)));
                let (before, after) = means.unwrap_or((first, Rates::default()));
                (champion, before, after, Evidence::Proven)
            }
            _ => {
                let best = self.best()?;
                (best.candidate, first, best.rates?, Evidence::Searched)
            }
        };
        let is_better = after.is_no_slower_than(&before) && after.gain_over(&before) >= WORTH_IT;
        if champion != self.defaults && is_better {
            return Some(Verdict { candidate: champion, is_defaults: false, before, after, evidence });
        }
        Some(Verdict { candidate: self.defaults, is_defaults: true, before, after: before, evidence })
    }
}

#[cfg(test)]
mod tests;
