use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::predict;
use crate::settings::Transfer;
use crate::tcp;

/// A path that answers trials as the model does, each time off by as much as `noise` at most.
struct Simulation {
    path: Path,
    target: Target,
    noise: f64,
    /// The state of a generator of random numbers (xorshift64).
    random: u64,
}

impl Simulation {
    fn carried(&self, candidate: &Candidate, transfer: Transfer) -> f64 {
        let congestion = match transfer {
            Transfer::Write => candidate.congestion.unwrap_or(self.path.congestion),
            Transfer::Read => self.path.congestion,
        };
        predict(&Path { congestion, ..self.path }, &self.target, &candidate.settings, transfer).bytes_per_second
    }

    /// The rates of a candidate without noise.
    fn truth(&self, candidate: &Candidate, with_writes: bool) -> Rates {
        let write = with_writes.then(|| self.carried(candidate, Transfer::Write));
        Rates { read: self.carried(candidate, Transfer::Read), write }
    }

    fn measure(&mut self, candidate: &Candidate, with_writes: bool) -> Rates {
        let Rates { read, write } = self.truth(candidate, with_writes);
        Rates { read: read * self.factor(), write: write.map(|write| write * self.factor()) }
    }

    fn factor(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let unit = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        1.0 + self.noise * (2.0 * unit - 1.0)
    }
}

/// The defaults of our initiator: one connection, and a load that finds its depth.
fn defaults() -> Candidate {
    let settings = Settings {
        request_len: 256 << 10,
        depth: 256,
        initial_r2t: false,
        first_burst_len: 256 << 10,
        max_burst_len: 1 << 20,
        max_outstanding_r2t: 8,
        max_data_segment_len: 256 << 10,
        ..Settings::default()
    };
    Candidate { settings, finds_depth: true, congestion: None, send_buffer_bytes: None, receive_buffer_bytes: None }
}

fn survey(path: &Path, target: &Target) -> Survey {
    // The tuner knows neither rate nor loss.
    let path = Path { rate: 1.0, loss: 0.0, ..*path };
    Survey {
        path,
        target: *target,
        bounds: Bounds::default(),
        congestion: vec![CongestionControl::Bbr],
        greater_send_buffer_bytes: None,
        greater_receive_buffer_bytes: None,
    }
}

/// Runs a tuner to its end, with `affordable` trials.
fn run(simulation: &mut Simulation, with_writes: bool, affordable: usize) -> Tuner {
    run_until_lost(simulation, with_writes, affordable, usize::MAX)
}

/// Runs the tuner until the target is lost in the middle of the trial after `lost_after` others, which the tuner does
/// not expect.
fn run_until_lost(simulation: &mut Simulation, with_writes: bool, affordable: usize, lost_after: usize) -> Tuner {
    let mut tuner = Tuner::new(survey(&simulation.path, &simulation.target), defaults(), None);
    while let Some(candidate) = tuner.next(affordable - tuner.trials().len()) {
        if tuner.trials().len() == lost_after {
            break;
        }
        let rates = simulation.measure(&candidate, with_writes);
        tuner.record(Some(rates));
        assert!(tuner.trials().len() <= affordable.min(MAX_TRIALS));
    }
    tuner
}

/// Whether the settings of a verdict truly carry no less than the defaults, and more if they are others, as far as the
/// noise lets the trials tell.
fn is_truly_no_slower(simulation: &Simulation, verdict: &Verdict, with_writes: bool) -> bool {
    let truth = |candidate: &Candidate| simulation.truth(candidate, with_writes);
    let (found, defaults) = (truth(&verdict.candidate), truth(&defaults()));
    // Two measurements of one rate differ by this factor at most; the rest is for the rounding of floating point.
    let apart = (1.0 + simulation.noise) / (1.0 - simulation.noise) * (1.0 + 1e-9);
    let no_slower = Rates { read: found.read * apart, write: found.write.map(|write| write * apart) };
    let worth_it = verdict.is_defaults || found.gain_over(&defaults) * apart >= WORTH_IT;
    no_slower.is_no_slower_than(&defaults) && worth_it
}

/// The most that any settings carry of those that a tuner may find.
fn exhaustive_best(simulation: &Simulation, with_writes: bool) -> f64 {
    let base = simulation.truth(&defaults(), with_writes);
    let mut best = 1.0_f64;
    for connections in [1, 2, 4, 8] {
        for len_shift in 16..=22 {
            for depth_shift in 0..=7 {
                for congestion in [None, Some(CongestionControl::Bbr)] {
                    let (request_len, depth) = (1 << len_shift, 1 << depth_shift);
                    if request_len * u64::from(depth) > Bounds::default().max_in_flight_bytes {
                        continue;
                    }
                    let settings = Settings { request_len, depth, connections, ..Bounds::default().keys() };
                    let candidate = Candidate { settings, finds_depth: false, congestion, ..defaults() };
                    best = best.max(simulation.truth(&candidate, with_writes).gain_over(&base));
                }
            }
        }
    }
    best
}

prop_compose! {
    fn any_path()(
        rate_mbit in 1.0_f64..10_000.0,
        round_trip_us in prop_oneof![0_u64..1000, 1000_u64..300_000],
        loss in prop_oneof![Just(0.0), 1e-6_f64..0.02],
        window_kib in prop_oneof![Just(6 << 10), 64_u64..8192],
    ) -> Path {
        let round_trip = Duration::from_micros(round_trip_us);
        Path { rate: rate_mbit * 1e6 / 8.0, round_trip, loss, tcp_window: window_kib << 10, ..Path::default() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_verdict_is_slower_than_the_defaults(
        path in any_path(),
        noise in 0.0_f64..0.6,
        random in 1_u64..,
        with_writes: bool,
        affordable in 1_usize..30,
    ) {
        let mut simulation = Simulation { path, target: Target::default(), noise, random };
        let tuner = run(&mut simulation, with_writes, affordable);
        let verdict = tuner.verdict().unwrap();
        prop_assert!(is_truly_no_slower(&simulation, &verdict, with_writes), "{verdict:?}");
        prop_assert_eq!(verdict.is_defaults, verdict.candidate == defaults());
        let rates = |candidate: Candidate| {
            let trials = tuner.trials().iter().filter(move |trial| trial.candidate == candidate);
            Rates::mean(&trials.filter_map(|trial| trial.rates).collect::<Vec<_>>()).unwrap()
        };
        // The report must not contradict its own table: the proof is part of it.
        if verdict.evidence == Evidence::Proven && !verdict.is_defaults {
            let proof = |side| {
                let of_proof = tuner.proof().skip(side).step_by(2).filter_map(|trial| trial.rates);
                Rates::mean(&of_proof.collect::<Vec<_>>()).unwrap()
            };
            prop_assert!(proof(1).read >= proof(0).read);
            prop_assert_eq!(verdict.after, proof(1));
        } else if verdict.evidence == Evidence::Searched {
            prop_assert_eq!(verdict.after, rates(verdict.candidate));
        }
    }

    #[test]
    fn what_it_finds_is_near_the_best_that_there_is(path in any_path(), random in 1_u64.., with_writes: bool) {
        let mut simulation = Simulation { path, target: Target::default(), noise: 0.01, random };
        let tuner = run(&mut simulation, with_writes, MAX_TRIALS);
        let base = simulation.truth(&defaults(), with_writes);
        let found = simulation.truth(&tuner.verdict().unwrap().candidate, with_writes).gain_over(&base);
        let best = exhaustive_best(&simulation, with_writes);
        prop_assert!(found >= 0.85 * best, "{found} of {best}: {:#?}", tuner.trials());
    }

    #[test]
    fn a_target_that_is_lost_leaves_a_verdict_of_what_is_known(
        path in any_path(), random in 1_u64.., with_writes: bool, lost_after in 1_usize..MAX_TRIALS,
    ) {
        let mut simulation = Simulation { path, target: Target::default(), noise: 0.1, random };
        let tuner = run_until_lost(&mut simulation, with_writes, MAX_TRIALS, lost_after);
        let verdict = tuner.verdict().unwrap();
        prop_assert!(is_truly_no_slower(&simulation, &verdict, with_writes), "{verdict:?}");
        let is_proven = tuner.proof().count() >= 2;
        prop_assert_eq!(verdict.evidence, if is_proven { Evidence::Proven } else { Evidence::Searched });
    }
}

#[test]
fn all_requests_are_whole_blocks() {
    let path = Path { round_trip: Duration::from_millis(20), loss: 5e-4, ..Path::default() };
    for (block_len, today_len) in [(4160, 7 * 4160), (4096, 132 << 10), (520, 65_000)] {
        let simulation = Simulation { path, target: Target::default(), noise: 0.0, random: 1 };
        let mut survey = survey(&path, &simulation.target);
        survey.bounds.block_len = block_len;
        let of_len =
            |request_len| Candidate { settings: Settings { request_len, ..defaults().settings }, ..defaults() };
        let defaults = of_len(survey.bounds.whole_blocks(256 << 10));
        let mut tuner = Tuner::new(survey, defaults, Some(of_len(today_len)));
        while let Some(candidate) = tuner.next(MAX_TRIALS) {
            // The settings of today are the best, so that their neighbours are tried.
            let gain = if candidate.settings.request_len == today_len { 2.0 } else { 1.0 };
            let Rates { read, .. } = simulation.truth(&defaults, false);
            tuner.record(Some(Rates { read: gain * read, write: None }));
        }
        let lens: Vec<u64> = tuner.trials().iter().map(|trial| trial.candidate.settings.request_len).collect();
        assert!(lens.iter().all(|len| len.is_multiple_of(block_len)), "{lens:?} of {block_len}");
        assert!(lens.iter().any(|len| *len != today_len && *len != defaults.settings.request_len), "{lens:?}");
    }
}

#[test]
fn a_lossy_path_gets_more_connections() {
    let path = Path { round_trip: Duration::from_millis(20), loss: 5e-4, ..Path::default() };
    let mut simulation = Simulation { path, target: Target::default(), noise: 0.0, random: 1 };
    let tuner = run(&mut simulation, false, MAX_TRIALS);
    let verdict = tuner.verdict().unwrap();
    assert_eq!((verdict.candidate.settings.connections, verdict.evidence), (8, Evidence::Proven));
    assert!(verdict.after.gain_over(&verdict.before) > 7.9, "{verdict:?}");
    let loss = tuner.path().loss;
    assert!((loss / path.loss - 1.0).abs() < 0.2, "{loss} for {}", path.loss);
}

/// One connection that meets no loss for some seconds fills the line.
#[test]
fn defaults_that_were_lucky_once_are_measured_again() {
    let path = Path { rate: 6e6, round_trip: Duration::from_millis(67), loss: 7e-4, ..Path::default() };
    let simulation = Simulation { path, target: Target::default(), noise: 0.0, random: 1 };
    for loss_shows in [false, true] {
        let mut tuner = Tuner::new(survey(&path, &simulation.target), defaults(), None);
        while let Some(candidate) = tuner.next(MAX_TRIALS) {
            let lucky = Rates { read: path.payload_rate(), write: None };
            let rates = if tuner.trials().is_empty() { lucky } else { simulation.truth(&candidate, false) };
            tuner.record(Some(rates));
            if loss_shows {
                tuner.saw_loss();
            }
        }
        let verdict = tuner.verdict().unwrap();
        assert_eq!(verdict.is_defaults, !loss_shows, "{verdict:?}");
        assert!(!loss_shows || verdict.after.gain_over(&verdict.before) > 3.0, "{verdict:?}");
    }
}

#[test]
fn another_congestion_control_is_tried_when_it_may_write() {
    let path = Path { round_trip: Duration::from_millis(20), loss: 5e-4, ..Path::default() };
    for (with_writes, congestion) in [(false, None), (true, Some(CongestionControl::Bbr))] {
        let mut simulation = Simulation { path, target: Target::default(), noise: 0.0, random: 1 };
        let tuner = run(&mut simulation, with_writes, MAX_TRIALS);
        assert_eq!(tuner.verdict().unwrap().candidate.congestion, congestion);
    }
}

#[test]
fn defaults_that_fill_the_line_stay() {
    let path = Path { round_trip: Duration::from_millis(1), ..Path::default() };
    let mut simulation = Simulation { path, target: Target::default(), noise: 0.02, random: 7 };
    let tuner = run(&mut simulation, true, MAX_TRIALS);
    let verdict = tuner.verdict().unwrap();
    assert!(verdict.is_defaults, "{verdict:?}");
    assert!(tuner.path().loss == 0.0);
}

#[test]
fn todays_settings_may_be_the_best() {
    let path = Path { round_trip: Duration::from_millis(20), loss: 5e-4, ..Path::default() };
    let today = Candidate { settings: Settings { connections: 8, ..defaults().settings }, ..defaults() };
    let simulation = Simulation { path, target: Target::default(), noise: 0.0, random: 1 };
    let mut tuner = Tuner::new(survey(&path, &Target::default()), defaults(), Some(today));
    // A target that refuses everything else.
    while let Some(candidate) = tuner.next(MAX_TRIALS) {
        let is_known = candidate == today || candidate == defaults();
        tuner.record(is_known.then(|| simulation.truth(&candidate, false)));
    }
    assert_eq!(tuner.verdict().unwrap().candidate, today);
}

#[test]
fn a_champion_that_fails_in_its_proof_is_not_recommended() {
    let path = Path { round_trip: Duration::from_millis(20), loss: 5e-4, ..Path::default() };
    let simulation = Simulation { path, target: Target::default(), noise: 0.0, random: 1 };
    let mut tuner = Tuner::new(survey(&path, &Target::default()), defaults(), None);
    while let Some(candidate) = tuner.next(MAX_TRIALS) {
        let fails = tuner.stage() == Some(Stage::Proof) && candidate != defaults();
        tuner.record((!fails).then(|| simulation.truth(&candidate, false)));
    }
    let verdict = tuner.verdict().unwrap();
    assert!(verdict.is_defaults && verdict.evidence == Evidence::Proven, "{verdict:?}");
}

#[test]
fn nothing_is_known_without_the_defaults() {
    let mut tuner = Tuner::new(survey(&Path::default(), &Target::default()), defaults(), None);
    assert_eq!((tuner.verdict(), tuner.next(0)), (None, None));
    assert_eq!(tuner.next(9), Some(defaults()));
    tuner.record(None);
    assert_eq!((tuner.verdict(), tuner.next(9)), (None, None));
    assert!(tcp::connection_rate(&tuner.path()).is_infinite());
}

#[test]
fn a_fast_path_that_one_congestion_control_hides_is_filled() {
    // With cubic nothing moves; with BBR the first settings are far too short for the line.
    let path = Path { rate: 570e6, round_trip: Duration::from_millis(84), loss: 8e-3, ..Path::default() };
    let mut simulation = Simulation { path, target: Target::default(), noise: 0.0, random: 1 };
    let found = run(&mut simulation, true, MAX_TRIALS).verdict().unwrap().candidate;
    let write = simulation.truth(&found, true).write.unwrap();
    assert!(write > 0.85 * path.payload_rate().min(8.0 * tcp::connection_rate(&path)), "{write} with {found:?}");
}

#[test]
fn greater_buffers_are_tried_where_buffers_are_the_limit() {
    let far = Path { round_trip: Duration::from_millis(100), tcp_window: 1 << 20, ..Path::default() };
    let near = Path { round_trip: Duration::from_millis(1), ..far };
    let asks = |tuner: &Tuner, of: fn(&Candidate) -> Option<u32>| {
        tuner.trials().iter().any(|trial| of(&trial.candidate).is_some())
    };
    for (path, with_writes, sends, receives) in
        [(far, true, true, true), (far, false, false, true), (near, true, false, false)]
    {
        let mut simulation = Simulation { path, target: Target::default(), noise: 0.0, random: 1 };
        let greater = Some(16 << 20);
        let survey = Survey {
            greater_send_buffer_bytes: greater,
            greater_receive_buffer_bytes: greater,
            ..survey(&path, &simulation.target)
        };
        let mut tuner = Tuner::new(survey, defaults(), None);
        while let Some(candidate) = tuner.next(MAX_TRIALS) {
            let rates = simulation.measure(&candidate, with_writes);
            tuner.record(Some(rates));
        }
        assert_eq!(asks(&tuner, |candidate| candidate.send_buffer_bytes), sends, "{path:?}");
        assert_eq!(asks(&tuner, |candidate| candidate.receive_buffer_bytes), receives, "{path:?}");
    }
}
