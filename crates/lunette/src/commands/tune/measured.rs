//! The tuner on a real path: a survey, trials as [`Tuner`] asks for them, and a report, also when the target is lost in
//! the middle.

use std::fmt::Display;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lunette_initiator::{Disk, Initiator, Url, wait};
use lunette_tuning::Tuner;

use super::Arguments;
use super::candidates::{Today, defaults};
use super::findings::Findings;
use super::scratch::Scratch;
use super::survey::{MIN_REQUESTS_OF_A_LOAD, Surveyed, check_request, lifeline, survey, usable_window};
use super::trial::{Budget, Outcome, Subject, TrialError};
use crate::disks::iscsi::failure::remote_failure;
use crate::disks::iscsi::remote;
use crate::failure::Failure;
use crate::output;

/// The share of the time that each part of the survey may take.
const SURVEY_SHARE: u32 = 20;

/// Trials that the time is divided by: less than [`lunette_tuning::MAX_TRIALS`], because most searches end earlier.
const USUAL_TRIALS: u32 = 14;

/// Round trips in which TCP has found its pace, and what follows tells something.
const TRIAL_ROUND_TRIPS: u32 = 60;

/// The fewest: a trial that is shorter measures how a connection begins.
const MIN_TRIAL_ROUND_TRIPS: u32 = 15;

/// The shortest trial in one direction, and the longest.
const TRIAL_TIME: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(4);

/// The shortest trial that is worth its setup, unless the user gives less time.
const GOOD_TRIAL_TIME: Duration = Duration::from_millis(1500);

/// The least bytes of a load: fewer end before there is anything to see.
const MIN_LOAD_BYTES: u64 = 1 << 20;

/// How long a trial may go on when the time is over: requests that are under way come to their end. Then the target
/// counts as lost.
const GRACE: Duration = Duration::from_secs(10);

/// The time limit of a request, and of a connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(arguments: &Arguments, url: &Url) -> Result<(), Failure> {
    let started = Instant::now();
    let worker = Worker::new(arguments, url, started)?;
    let findings = Arc::clone(&worker.findings);
    let (time, progress) = (worker.time, worker.progress.clone());
    let (ended, end) = mpsc::channel();
    // Nothing that the target leaves undone may hold up the report.
    thread::spawn(move || ended.send(worker.run()));
    let ended = end.recv_timeout(time + GRACE);
    progress.finish_and_clear();
    let findings = lock(&findings);
    match conclude(ended, time, findings.facts.is_some()) {
        Ok(()) => findings.report(arguments, url, None),
        // There is nothing to report before the target has answered.
        Err(failure) if findings.facts.is_none() => Err(failure),
        Err(failure) => {
            findings.report(arguments, url, Some(&failure.to_string()))?;
            Err(failure)
        }
    }
}

/// Takes the worker's result; `is_known` says that a report exists.
fn conclude(
    ended: Result<Result<(), Failure>, RecvTimeoutError>,
    time: Duration,
    is_known: bool,
) -> Result<(), Failure> {
    let outcome = ended.unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => Err(Failure::Lost(format!(
            "the target did not answer in time: {} s and {} s more",
            time.as_secs(),
            GRACE.as_secs()
        ))),
        RecvTimeoutError::Disconnected => Err(Failure::other(
            "the measurement ended without a result: a mistake of this program, which is reported above",
        )),
    });
    match outcome {
        // It was not lost in the middle: it has not answered at all.
        Err(Failure::Lost(text)) if !is_known => Err(Failure::Disk(text)),
        outcome => outcome,
    }
}

fn lock(findings: &Mutex<Findings>) -> MutexGuard<'_, Findings> {
    findings.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Worker {
    subject: Subject,
    /// The settings of today, if the URL or the arguments say them.
    today: Option<Today>,
    fixed_request: Option<u64>,
    scratch: Option<Scratch>,
    started: Instant,
    time: Duration,
    /// Bytes of each load: one in each direction of each trial, and the short commands of the survey.
    load_bytes: u64,
    findings: Arc<Mutex<Findings>>,
    progress: ProgressBar,
}

/// The bytes of each load, so that all of them together stay within `--max-bytes`, whatever becomes of them.
fn load_bytes(arguments: &Arguments) -> Result<u64, Failure> {
    let directions = 1 + u64::from(arguments.write.is_some());
    let loads = lunette_tuning::MAX_TRIALS as u64 * directions + 1;
    let least = MIN_LOAD_BYTES.max(MIN_REQUESTS_OF_A_LOAD * arguments.request.unwrap_or(0));
    let bytes = arguments.max_bytes.0 / loads;
    if bytes < least {
        return Err(Failure::Usage(format!("--max-bytes {}: {} are needed", arguments.max_bytes.0, least * loads)));
    }
    Ok(bytes)
}

impl Worker {
    fn new(arguments: &Arguments, url: &Url, started: Instant) -> Result<Self, Failure> {
        if arguments.fixed_request && arguments.request.is_none() {
            return Err(Failure::Usage("--fixed-request: write --request SIZE, too".into()));
        }
        let mut options = remote::options(url)?;
        options.reconnect_for = Duration::ZERO;
        options.request_timeout = REQUEST_TIMEOUT;
        options.connect_timeout = REQUEST_TIMEOUT;
        let initiator = Initiator::start().map_err(remote_failure)?;
        let progress = ProgressBar::new_spinner();
        // It hides itself where there is no terminal.
        progress.set_draw_target(ProgressDrawTarget::stderr());
        progress.set_style(
            ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a template that is a constant"),
        );
        Ok(Self {
            subject: Subject { initiator, url: url.clone(), options, scratch: None },
            today: Today::of(arguments, url)?,
            fixed_request: arguments.request.filter(|_| arguments.fixed_request),
            scratch: arguments.write.clone(),
            started,
            time: Duration::from_secs(arguments.time.into()),
            load_bytes: load_bytes(arguments)?,
            findings: Arc::default(),
            progress,
        })
    }

    fn run(mut self) -> Result<(), Failure> {
        self.progress.set_message("looking at the idle path");
        let part = self.time / SURVEY_SHARE;
        self.check_scratch()?;
        let (lifeline, opening) = lifeline(&self.subject).map_err(remote_failure)?;
        let found = match survey(
            &self.subject,
            (&lifeline, opening),
            self.fixed_request,
            Budget { time: part, bytes: self.load_bytes },
        ) {
            Ok(found) => found,
            Err(error) => {
                check_alive(&lifeline, &error)?;
                return Err(remote_failure(error));
            }
        };
        let mut tuner = self.tuner(&found, &lifeline)?;
        {
            let mut findings = lock(&self.findings);
            findings.facts = Some(found.facts.clone());
            findings.survey = Some(found.survey.clone());
            findings.defaults = Some(defaults(&found.survey.bounds));
        }
        let budget = self.budget(found.facts.opening, found.survey.path.round_trip);
        let mut cost = found.facts.opening + budget.time * self.directions();
        while let Some(candidate) = tuner.next(self.affordable(cost)) {
            self.progress.set_message(format!("trial {}", tuner.trials().len() + 1));
            self.progress.tick();
            let start = Instant::now();
            let measured = self.subject.measure(&candidate, budget);
            cost = cost.max(start.elapsed());
            let outcome = match measured {
                Ok(outcome) => {
                    tuner.saw_command_window(usable_window(outcome.command_window, self.fixed_request.is_some()));
                    if outcome.shows_loss() {
                        tuner.saw_loss();
                    }
                    Some(outcome)
                }
                Err(error) => {
                    check_alive(&lifeline, &error)?;
                    if tuner.trials().is_empty() {
                        return Err(match error {
                            TrialError::Session(error) => remote_failure(error),
                            error => Failure::other(error),
                        });
                    }
                    tracing::warn!(%error, "settings that cannot be measured");
                    None
                }
            };
            tuner.record(outcome.as_ref().map(Outcome::rates));
            let mut findings = lock(&self.findings);
            findings.outcomes.push(outcome);
            findings.tuner = Some(tuner.clone());
        }
        if tuner.trials().is_empty() {
            let (time, cost) = (self.time.as_secs(), cost.as_secs_f64());
            return Err(Failure::other(format!(
                "no trial was made: one takes about {cost:.1} s, too much for what is left of --time {time}"
            )));
        }
        Ok(())
    }

    /// Checks the range that may be overwritten, on a session of its own: the survey must know it.
    fn check_scratch(&mut self) -> Result<(), Failure> {
        if let Some(scratch) = self.scratch.take() {
            let disk = remote::open(&self.subject.url, self.subject.options.clone(), &self.subject.initiator)?;
            let range = scratch.check(disk.facts())?;
            output::note(format_args!(
                "lunette: overwriting bytes {} to {} of {}",
                range.start, range.end, self.subject.url
            ));
            self.subject.scratch = Some(range);
        }
        Ok(())
    }

    fn tuner(&self, found: &Surveyed, lifeline: &Disk) -> Result<Tuner, Failure> {
        let bounds = &found.survey.bounds;
        let defaults = defaults(bounds);
        let today = self.today.as_ref().map(|today| today.candidate(bounds, &defaults));
        let lens = self.fixed_request.into_iter().chain(today.map(|today| today.settings.request_len));
        for len in lens {
            check_request(lifeline, &self.subject, len).map_err(Failure::Usage)?;
        }
        Ok(Tuner::new(found.survey.clone(), defaults, today))
    }

    /// Directions that are measured in each trial.
    fn directions(&self) -> u32 {
        1 + u32::from(self.subject.scratch.is_some())
    }

    /// The budget of each direction of each trial.
    fn budget(&self, opening: Duration, round_trip: Duration) -> Budget {
        let left = self.time.saturating_sub(self.started.elapsed());
        let share = (left / USUAL_TRIALS).saturating_sub(opening) / self.directions();
        let wanted = (round_trip * TRIAL_ROUND_TRIPS).max(GOOD_TRIAL_TIME);
        let least = (round_trip * MIN_TRIAL_ROUND_TRIPS).max(*TRIAL_TIME.start()).min(*TRIAL_TIME.end());
        let time = wanted.min(share).clamp(least, *TRIAL_TIME.end());
        Budget { time, bytes: self.load_bytes }
    }

    /// How many more trials the time allows.
    fn affordable(&self, cost: Duration) -> usize {
        let left = self.time.saturating_sub(self.started.elapsed());
        usize::try_from(left.as_millis() / cost.as_millis().max(1)).unwrap_or(usize::MAX)
    }
}

/// Ends the run when a trial failed because the target is gone.
fn check_alive(lifeline: &Disk, error: &impl Display) -> Result<(), Failure> {
    match wait(lifeline.session().ping(Vec::new())) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::Lost(format!("the target was lost in the middle: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(2);

    #[test]
    fn a_target_that_never_answered_was_not_lost_in_the_middle() {
        let timeout = || Err(RecvTimeoutError::Timeout);
        assert!(matches!(conclude(timeout(), TIME, false), Err(Failure::Disk(text)) if text.contains("in time")));
        assert!(matches!(conclude(timeout(), TIME, true), Err(Failure::Lost(text)) if text.contains("in time")));
        let lost = || Ok(Err(Failure::Lost("gone".into())));
        assert!(matches!(conclude(lost(), TIME, false), Err(Failure::Disk(text)) if text == "gone"));
        assert!(matches!(conclude(lost(), TIME, true), Err(Failure::Lost(_))));
        assert!(conclude(Ok(Ok(())), TIME, true).is_ok());
    }

    #[test]
    fn a_mistake_of_the_program_is_no_silent_target() {
        for is_known in [false, true] {
            let failure = conclude(Err(RecvTimeoutError::Disconnected), TIME, is_known).unwrap_err();
            assert!(matches!(&failure, Failure::Other(text) if text.contains("mistake of this program")), "{failure}");
        }
    }
}
