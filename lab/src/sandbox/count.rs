//! Measures one cell in another process, under callgrind: instructions, and misses of the caches that it simulates.

use std::env;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cell::Cell;
use super::measure::COUNTED_COMMANDS;
use crate::experiment::Figures;

/// Instructions of a command.
pub(super) const INSTRUCTIONS: &str = "instructions";
/// Misses of a command in the first and second level of the data cache.
pub(super) const L1_MISSES: &str = "l1_misses";
pub(super) const L2_MISSES: &str = "l2_misses";

/// The caches of a core of AMD's fifth Zen generation, as far as callgrind knows caches: its last level stands for the
/// second one.
const CACHES: [&str; 4] = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=49152,12,64", "--LL=1048576,16,64"];

/// The counts that callgrind collects of a run, on average of its commands.
pub(super) fn counts(cell: &Cell) -> Result<Figures> {
    let this = env::current_exe().context("this program has no path")?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*counted*", "--callgrind-out-file=/dev/null"])
        .args(CACHES)
        .arg(this)
        .args(["sandbox", "--under-callgrind", "--cell", &cell.to_string()])
        .output()
        .context("valgrind cannot be started; install the package valgrind")?;
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("counting {cell} failed:\n{told}");
    }
    figures(&told).with_context(|| format!("callgrind told no counts for {cell}:\n{told}"))
}

/// Reads the names of the events, and what was collected of them. Callgrind leaves out the last values when they are 0.
fn figures(told: &str) -> Option<Figures> {
    let after = |what: &str| told.lines().find_map(|line| Some(line.split_once(what)?.1.split_whitespace()));
    let names: Vec<&str> = after("Events    :")?.collect();
    let values = after("Collected :")?.map(|value| value.parse::<f64>().ok()).collect::<Option<Vec<f64>>>()?;
    let event = |name: &str| {
        let at = names.iter().position(|known| *known == name)?;
        Some(values.get(at).copied().unwrap_or(0.0))
    };
    let of_a_command = |events: &[&str]| {
        let sum = events.iter().map(|name| event(name)).sum::<Option<f64>>()?;
        Some(sum / COUNTED_COMMANDS as f64)
    };
    Some(Figures::from([
        (INSTRUCTIONS.into(), of_a_command(&["Ir"])?),
        (L1_MISSES.into(), of_a_command(&["D1mr", "D1mw"])?),
        (L2_MISSES.into(), of_a_command(&["DLmr", "DLmw"])?),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_name() {
        let events = "==1== Events    : Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\n==1== Collected : ";
        for (collected, l2_misses) in [("4000 3 4 5 80 40 8 40 40\n", 2.0), ("4000 3 4 5 80 40\n", 0.0)] {
            let expected = [(INSTRUCTIONS, 100.0), (L1_MISSES, 3.0), (L2_MISSES, l2_misses)];
            let expected = expected.map(|(name, value)| (name.into(), value)).into();
            assert_eq!(figures(&format!("{events}{collected}")), Some(expected));
        }
        assert_eq!(figures("==1== Collected : 4000\n"), None);
    }
}
