//! The tools beside those of others: `lunette cp` beside `qemu-img convert`, and `lunette nbd` beside nbdkit's file
//! plugin; in TLS, `lunette nbd` beside `qemu-nbd`.
//!
//! Both sides of a contest take turns in each round. Its speeds and its CPU times become a row each.

mod copies;
mod nbd;
mod nbd_tls;

use anyhow::Result;

use super::contestant::Stage;
use super::statistics::Spread;
use super::table::{Goal, Row};

/// One turn of one side.
#[derive(Clone, Copy)]
struct Turn {
    /// Copies or requests a second.
    speed: f64,
    /// User and system time for each of them, in microseconds.
    cpu_us: f64,
}

/// All turns of both sides under one load.
struct Contest {
    load: &'static str,
    ours: Side,
    theirs: Side,
    /// Our speed should be at least this, beside theirs.
    solid: f64,
}

struct Side {
    name: &'static str,
    turns: Vec<Turn>,
}

impl Side {
    fn new(name: &'static str) -> Self {
        Self { name, turns: Vec::new() }
    }

    fn figures(&self, figure: fn(&Turn) -> f64) -> Vec<f64> {
        self.turns.iter().map(figure).collect()
    }
}

impl Contest {
    fn rows(&self) -> [Row; 2] {
        let Self { load, ours, theirs, solid } = self;
        let ratio = |over: &Side, under: &Side, figure: fn(&Turn) -> f64| {
            Spread::of_ratio(&over.figures(figure), &under.figures(figure))
        };
        let row = |what, over: &Side, under: &Side, value, solid| {
            let name = format!("{load}, {what}: {} ÷ {}", over.name, under.name);
            Row::new(name, value, "", Goal::AtLeast { solid, aim: None })
        };
        [
            row("speed", ours, theirs, ratio(ours, theirs, |turn| turn.speed), *solid),
            row("CPU time", theirs, ours, ratio(theirs, ours, |turn| turn.cpu_us), 1.0),
        ]
    }
}

/// Measures all contests.
pub(super) fn measure(stage: &Stage, rounds: u32, seconds: u32) -> Result<Vec<Row>> {
    let contests = [copies::measure(stage, rounds)?, nbd::measure(stage, rounds, seconds)?];
    Ok(contests.iter().flatten().flat_map(Contest::rows).collect())
}

/// Measures NBD in TLS.
pub(super) fn measure_tls(stage: &Stage, rounds: u32, seconds: u32) -> Result<Vec<Row>> {
    Ok(nbd_tls::measure(stage, rounds, seconds)?.iter().flat_map(Contest::rows).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_speed_and_less_cpu_time_are_both_above_one() {
        let side = |name, speed, cpu_us| Side { name, turns: vec![Turn { speed, cpu_us }] };
        let contest = Contest { load: "load", ours: side("a", 3.0, 2.0), theirs: side("b", 2.0, 5.0), solid: 1.2 };
        let [speed, cpu] = contest.rows();
        assert_eq!((speed.name.as_str(), cpu.name.as_str()), ("load, speed: a ÷ b", "load, CPU time: b ÷ a"));
        assert_eq!([speed, cpu].map(|row| row.value.map(|value| value.median)), [Some(1.5), Some(2.5)]);
    }
}
