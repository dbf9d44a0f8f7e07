//! The table and the verdicts.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Serialize;

use super::contest::{Contest, rate};
use super::route::Route;
use crate::experiment::{Results, Spread, Table};

/// A ratio below 1 that two runs of the same settings have, too.
const NOISE: f64 = 0.05;
/// The share of the exhaustive best that is reached on most of the drawn paths.
const OF_BEST: f64 = 0.9;
/// On the fixed path: how many times as much as open-iscsi's defaults.
const OF_OPEN_ISCSI: f64 = 3.0;

/// The findings on one path, in 10^6 bytes per second.
#[derive(Serialize)]
struct Row {
    route: Route,
    defaults: Spread,
    open_iscsi: Spread,
    tuner: Spread,
    best: Spread,
    best_settings: String,
    /// Settings of the grid that were measured, and all that it has.
    tried: (usize, usize),
}

impl Row {
    fn to_defaults(&self) -> f64 {
        self.tuner.median / self.defaults.median
    }

    fn to_open_iscsi(&self) -> f64 {
        self.tuner.median / self.open_iscsi.median
    }

    fn to_best(&self) -> f64 {
        self.tuner.median / self.best.median
    }
}

/// A rule, and whether it held.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Verdict {
    rule: String,
    holds: bool,
}

#[derive(Serialize)]
pub(super) struct Report {
    /// The machine and the build.
    origin: String,
    rows: Vec<Row>,
    verdicts: Vec<Verdict>,
}

impl Report {
    pub(super) fn new(contests: &[Contest], results: &Results) -> Result<Self> {
        let row = |contest: &Contest| {
            let missing = || format!("nothing was measured on the path of {}", contest.route);
            let (best_settings, best) = contest.best(results).with_context(missing)?;
            anyhow::Ok(Row {
                route: contest.route,
                defaults: rate(results, &contest.defaults).with_context(missing)?,
                open_iscsi: rate(results, &contest.open_iscsi).with_context(missing)?,
                tuner: rate(results, &contest.tuner).with_context(missing)?,
                best,
                best_settings,
                tried: contest.tried(results),
            })
        };
        let rows: Vec<Row> = contests.iter().map(row).collect::<Result<_>>()?;
        Ok(Self { origin: results.origin(), verdicts: verdicts(&rows), rows })
    }

    fn table(&self) -> Table {
        let heads = ["path", "defaults", "open-iscsi's", "tuner", "best of all", "its settings", "tried"];
        let ratios = ["tuner ÷ defaults", "÷ open-iscsi's", "÷ best"];
        let mut table = Table::new(heads.into_iter().chain(ratios));
        for row in &self.rows {
            let rates = [row.defaults, row.open_iscsi, row.tuner, row.best].map(|rate| format!("{:.1}", rate.median));
            let ratios = [row.to_defaults(), row.to_open_iscsi(), row.to_best()].map(|ratio| format!("{ratio:.2}"));
            let path = std::iter::once(row.route.to_string());
            let (tried, all) = row.tried;
            table.row(path.chain(rates).chain([row.best_settings.clone(), format!("{tried} of {all}")]).chain(ratios));
        }
        table
    }

    /// The table and the verdicts.
    pub(super) fn summary(&self) -> String {
        let mut text = format!("{}\n", self.table());
        for Verdict { rule, holds } in &self.verdicts {
            let word = if *holds { "yes" } else { "NO" };
            writeln!(text, "- {word}: {rule}").expect("memory");
        }
        text
    }

    pub(super) fn page(&self) -> String {
        format!(
            "# The tuner on paths that it has not seen\n\n\
             Reads in 10^6 bytes of payload per second: medians of runs on emulated links (`lunette-lab tune`, on {}). The first path is \
             always the same, the others are drawn from a seed. *Best of all* is the best of an exhaustive search over connections, \
             length and number of requests. *Tried* says how many settings of the grid were measured: not those whose requests in \
             flight would take the path longer than {} s.\n\n{}",
            self.origin,
            super::contest::MAX_ROUND.as_secs(),
            self.summary()
        )
    }
}

fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let verdict = |rule: String, holds| Verdict { rule, holds };
    let noise = format!("{:.0}% of noise", NOISE * 100.0);
    let mut verdicts = vec![verdict(
        format!("never worse than the defaults, but for {noise}"),
        rows.iter().all(|row| row.to_defaults() >= 1.0 - NOISE),
    )];
    if let Some((fixed, drawn)) = rows.split_first() {
        let good = drawn.iter().filter(|row| row.to_best() >= OF_BEST).count();
        if !drawn.is_empty() {
            let wanted = (4 * drawn.len()).div_ceil(5);
            let rule = format!("at least {OF_BEST} of the best on {wanted} of {} drawn paths: {good}", drawn.len());
            verdicts.push(verdict(rule, good >= wanted));
        }
        let name = fixed.route;
        verdicts.push(verdict(
            format!("{name}: at least {OF_OPEN_ISCSI} times the defaults of open-iscsi"),
            fixed.to_open_iscsi() >= OF_OPEN_ISCSI,
        ));
        verdicts.push(verdict(format!("{name}: within 10% of the best"), fixed.to_best() >= OF_BEST));
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(defaults: f64, open_iscsi: f64, tuner: f64, best: f64) -> Row {
        let [defaults, open_iscsi, tuner, best] =
            [defaults, open_iscsi, tuner, best].map(|rate| Spread::of([rate]).expect("a rate"));
        Row { route: Route::FIXED, defaults, open_iscsi, tuner, best, best_settings: "some".into(), tried: (1, 1) }
    }

    #[test]
    fn verdicts_compare_the_tuner_with_each_of_the_others() {
        let holds = |rows: &[Row]| verdicts(rows).iter().map(|verdict| verdict.holds).collect::<Vec<_>>();
        let good = || row(10.0, 3.0, 9.6, 10.0);
        assert_eq!(holds(&[good(), good(), good(), good(), good(), row(10.0, 3.0, 9.6, 20.0)]), [true; 4]);
        let slow = || row(9.0, 3.0, 8.9, 10.0);
        assert_eq!(holds(&[slow(), slow(), slow(), good(), good(), good()]), [true, false, false, false]);
        assert_eq!(holds(&[row(10.0, 3.0, 9.4, 10.0)]), [false, true, true]);
    }
}
