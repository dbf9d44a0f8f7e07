//! The ratios: their cells, their goals, and their results.

use super::cells::{
    Cell, LIBISCSI_OURS, LIBISCSI_TGT, LIBISCSI_TUNED, OURS, OURS_FILE, OURS_TGT, OURS_TUNED, OURS_ZERO_COPY, Pair,
    QUANTA_READ, alone, digested, read, write,
};
use super::cores::Cores;
use super::measure::{Measured, Sample};
use super::memory::Memory;
use super::statistics::Spread;

/// The figure of a run that is compared.
#[derive(Clone, Copy)]
enum Figure {
    Iops,
    Latency,
    TargetCpu,
    InitiatorCpu,
}

impl Figure {
    fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Self::Iops => Some(sample.iops),
            Self::Latency => sample.latency_us,
            Self::TargetCpu => Some(sample.target_cpu_us),
            Self::InitiatorCpu => Some(sample.initiator_cpu_us),
        }
    }
}

/// The goal for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    /// More is better.
    AtLeast { solid: f64, aim: Option<f64> },
    /// Less is better.
    AtMost { solid: f64, aim: Option<f64> },
    /// No goal: the figure is only shown.
    Nothing,
}

/// The verdict on a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Aim,
    Solid,
    Missed,
    NoGoal,
    NotMeasured,
}

impl Verdict {
    pub(super) fn words(self) -> String {
        match self {
            Self::Aim => "aim".into(),
            Self::Solid => "solid".into(),
            Self::Missed => "missed".into(),
            Self::NoGoal => String::new(),
            Self::NotMeasured => "not measured".into(),
        }
    }
}

impl Goal {
    fn judge(self, value: f64) -> Verdict {
        let (aim, solid) = match self {
            Self::AtLeast { solid, aim } => (aim.is_some_and(|aim| value >= aim), value >= solid),
            Self::AtMost { solid, aim } => (aim.is_some_and(|aim| value <= aim), value <= solid),
            Self::Nothing => return Verdict::NoGoal,
        };
        match (aim, solid) {
            (true, _) => Verdict::Aim,
            (false, true) => Verdict::Solid,
            (false, false) => Verdict::Missed,
        }
    }

    pub(super) fn solid(self) -> Option<f64> {
        match self {
            Self::AtLeast { solid, .. } | Self::AtMost { solid, .. } => Some(solid),
            Self::Nothing => None,
        }
    }

    pub(super) fn aim(self) -> Option<f64> {
        match self {
            Self::AtLeast { aim, .. } | Self::AtMost { aim, .. } => aim,
            Self::Nothing => None,
        }
    }
}

struct Ratio {
    name: &'static str,
    figure: Figure,
    over: Cell,
    under: Cell,
    goal: Goal,
}

const fn ratio(name: &'static str, figure: Figure, over: Cell, under: Cell, goal: Goal) -> Ratio {
    Ratio { name, figure, over, under, goal }
}

const fn at_least(solid: f64, aim: f64) -> Goal {
    Goal::AtLeast { solid, aim: Some(aim) }
}

const PAIR: Goal = at_least(10.0, 14.0);
const TARGET_CPU: Goal = at_least(8.0, 12.0);
const INITIATOR_CPU: Goal = at_least(4.0, 6.0);
const ZERO_COPY: Goal = Goal::AtMost { solid: 0.8, aim: Some(0.5) };
const LATENCY: Goal = Goal::AtMost { solid: 1.2, aim: Some(1.05) };

#[rustfmt::skip]
const RATIOS: [Ratio; 21] = [
    ratio("IOPS of 4 KiB reads: lunette ÷ libiscsi - tgt, tuned", Figure::Iops, read(OURS, 4), read(LIBISCSI_TUNED, 4), PAIR),
    ratio("IOPS of 4 KiB reads: lunette ÷ libiscsi - tgt", Figure::Iops, read(OURS, 4), read(LIBISCSI_TGT, 4), PAIR),
    ratio("target CPU per 4 KiB read: tgt, tuned ÷ lunette; libiscsi asks", Figure::TargetCpu, read(LIBISCSI_TUNED, 4), read(LIBISCSI_OURS, 4), TARGET_CPU),
    ratio("target CPU per 4 KiB read: tgt, tuned ÷ lunette; lunette asks", Figure::TargetCpu, read(OURS_TUNED, 4), read(OURS, 4), TARGET_CPU),
    ratio("target CPU per 4 KiB read: tgt ÷ lunette; libiscsi asks", Figure::TargetCpu, read(LIBISCSI_TGT, 4), read(LIBISCSI_OURS, 4), TARGET_CPU),
    ratio("target CPU per 4 KiB read: tgt ÷ lunette; lunette asks", Figure::TargetCpu, read(OURS_TGT, 4), read(OURS, 4), TARGET_CPU),
    ratio("initiator CPU per 4 KiB read: libiscsi ÷ lunette; lunette answers", Figure::InitiatorCpu, read(LIBISCSI_OURS, 4), read(OURS, 4), INITIATOR_CPU),
    ratio("initiator CPU per 4 KiB read: libiscsi ÷ lunette; tgt, tuned, answers", Figure::InitiatorCpu, read(LIBISCSI_TUNED, 4), read(OURS_TUNED, 4), INITIATOR_CPU),
    ratio("initiator CPU per 256 KiB read: libiscsi ÷ lunette; lunette answers", Figure::InitiatorCpu, read(LIBISCSI_OURS, 256), read(OURS, 256), Goal::Nothing),
    ratio("4 KiB reads: lunette ÷ plain TCP", Figure::Iops, read(OURS, 4), read(Pair::Tcp, 4), at_least(0.55, 0.75)),
    ratio("64 KiB reads: lunette ÷ plain TCP", Figure::Iops, read(OURS, 64), read(Pair::Tcp, 64), at_least(0.75, 0.85)),
    ratio("256 KiB reads: lunette ÷ plain TCP", Figure::Iops, read(OURS, 256), read(Pair::Tcp, 256), at_least(0.90, 1.0)),
    ratio("4 KiB writes: lunette ÷ plain TCP", Figure::Iops, write(OURS, 4), write(Pair::Tcp, 4), at_least(0.50, 0.70)),
    ratio("64 KiB writes: lunette ÷ plain TCP", Figure::Iops, write(OURS, 64), write(Pair::Tcp, 64), at_least(0.65, 0.80)),
    ratio("256 KiB writes: lunette ÷ plain TCP", Figure::Iops, write(OURS, 256), write(Pair::Tcp, 256), at_least(0.65, 0.85)),
    ratio("4 KiB reads: both digests ÷ none", Figure::Iops, digested(read(OURS, 4)), read(OURS, 4), at_least(0.95, 0.99)),
    ratio("256 KiB reads: both digests ÷ none", Figure::Iops, digested(read(OURS, 256)), read(OURS, 256), at_least(0.85, 0.95)),
    ratio("256 KiB reads of quanta: both digests, stored ones for data ÷ none", Figure::Iops, digested(QUANTA_READ), QUANTA_READ, at_least(0.90, 0.97)),
    ratio("file, no digests: zero-copy ÷ copying, target CPU per 256 KiB read", Figure::TargetCpu, read(OURS_ZERO_COPY, 256), read(OURS_FILE, 256), ZERO_COPY),
    ratio("median latency of a 4 KiB read, depth 1: lunette ÷ plain TCP", Figure::Latency, alone(read(OURS, 4)), alone(read(Pair::Tcp, 4)), LATENCY),
    ratio("4 KiB reads, depth 1: lunette ÷ plain TCP", Figure::Iops, alone(read(OURS, 4)), alone(read(Pair::Tcp, 4)), Goal::Nothing),
];

/// A line of the results.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) name: String,
    /// The value in `unit`, which is empty for ratios.
    pub(super) value: Option<Spread>,
    pub(super) unit: &'static str,
    pub(super) goal: Goal,
    pub(super) verdict: Verdict,
}

impl Row {
    pub(super) fn new(name: impl Into<String>, value: Option<Spread>, unit: &'static str, goal: Goal) -> Self {
        let verdict = value.map_or(Verdict::NotMeasured, |value| goal.judge(value.median));
        Self { name: name.into(), value, unit, goal, verdict }
    }
}

/// All rows, in the order in which they are shown.
pub(super) fn rows(measured: &[Measured], memory: &Memory, cores: &Cores) -> Vec<Row> {
    let ratios = RATIOS.iter().map(|ratio| {
        let figures = |cell| {
            let found = measured.iter().find(|measured| measured.cell == cell);
            found.map_or_else(Vec::new, |measured| measured.figures(|sample| ratio.figure.of(sample)))
        };
        Row::new(ratio.name, Spread::of_ratio(&figures(ratio.over), &figures(ratio.under)), "", ratio.goal)
    });
    ratios.chain([cores_row(cores)]).chain(memory_rows(memory)).collect()
}

fn cores_row(cores: &Cores) -> Row {
    let value = Spread::of_ratio(&cores.two_us, &cores.one_us);
    let goal = Goal::AtMost { solid: 1.05, aim: Some(1.0) };
    Row::new("two sessions on two target cores ÷ one on one, target CPU per 4 KiB read", value, "", goal)
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn memory_rows(memory: &Memory) -> [Row; 3] {
    let row = |name, bytes: u64, unit_len: f64, unit, solid| {
        Row::new(name, Spread::of([bytes as f64 / unit_len]), unit, Goal::AtMost { solid, aim: None })
    };
    [
        row("resident memory of the target at rest", memory.at_rest, 1e6, "MB", 20.0),
        row("resident memory of an idle session", memory.idle_session, 1024.0, "KiB", 64.0),
        row(
            "resident memory under 1,000 busy sessions, at most",
            memory.busy_peak,
            1e6,
            "MB",
            memory.busy_bound() as f64 / 1e6,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::cells::CELLS;
    use super::*;

    #[test]
    fn every_ratio_is_made_of_what_even_a_quick_comparison_measures() {
        for ratio in &RATIOS {
            assert!(CELLS.contains(&ratio.over) && CELLS.contains(&ratio.under), "{}", ratio.name);
            assert_ne!(ratio.over, ratio.under, "{}", ratio.name);
        }
    }

    #[test]
    fn goals_are_met_from_their_value_on() {
        let more = at_least(0.5, 0.8);
        assert_eq!([0.49, 0.5, 0.8].map(|value| more.judge(value)), [Verdict::Missed, Verdict::Solid, Verdict::Aim]);
        let less = Goal::AtMost { solid: 1.5, aim: Some(1.1) };
        assert_eq!([1.6, 1.5, 1.1].map(|value| less.judge(value)), [Verdict::Missed, Verdict::Solid, Verdict::Aim]);
        let no_aim = Goal::AtMost { solid: 20.0, aim: None };
        assert_eq!(no_aim.judge(0.0), Verdict::Solid);
        assert_eq!(Goal::Nothing.judge(1.0), Verdict::NoGoal);
    }

    #[test]
    fn rows_name_what_is_missing_and_invent_nothing() {
        let sample = |iops| Sample { iops, latency_us: None, target_cpu_us: 2.0, initiator_cpu_us: 0.0 };
        let measured = [read(OURS, 4), read(Pair::Tcp, 4)]
            .into_iter()
            .zip([[10.0, 30.0, 24.0], [40.0, 40.0, 40.0]])
            .map(|(cell, iops)| Measured { cell, samples: iops.map(sample).to_vec() })
            .collect::<Vec<_>>();
        let cores = Cores { one_us: vec![4.0, 5.0], two_us: vec![4.0, 6.0] };
        let memory = Memory { at_rest: 30_000_000, idle_session: 1024, busy_peak: 300_000_000 };
        let rows = rows(&measured, &memory, &cores);
        let find = |name: &str| rows.iter().find(|row| row.name.starts_with(name)).unwrap();
        let ceiling = find("4 KiB reads: lunette ÷ plain TCP");
        assert_eq!(ceiling.value, Some(Spread { median: 0.6, low: 0.25, high: 0.75 }));
        assert_eq!(ceiling.verdict, Verdict::Solid);
        let unknown = find("64 KiB reads");
        assert_eq!((unknown.value, unknown.verdict), (None, Verdict::NotMeasured));
        assert_eq!(find("resident memory of the target").verdict, Verdict::Missed);
        assert_eq!(find("resident memory under").verdict, Verdict::Solid);
        let cores = find("two sessions");
        assert_eq!(cores.value, Some(Spread { median: 5.0 / 4.5, low: 1.0, high: 1.2 }));
        assert_eq!(cores.verdict, Verdict::Missed);
    }
}
