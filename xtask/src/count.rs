//! `cargo xtask count`: instructions of the digest kernels, of I/Os on each side, of data in other orders, and of
//! commands at each recovery level, under callgrind. A count does not depend on the load of the machine, so it shows a
//! regression where a stopwatch sees noise.
//!
//! Valgrind shows programs a CPU without AVX-512, so the wide kernels (VPCLMULQDQ) cannot be counted.

mod orders;
mod recovery;
mod turns;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::process::{self, cargo, root};

const KERNELS: [&str; 6] = ["sarwate", "slicing8", "slicing16", "crc32q", "crc32q+pclmul", "pclmul+crc32q"];
const OPS: [&str; 2] = ["digest", "copy"];
const LENGTHS: [u32; 3] = [48, 512, 4096];

/// A count may be this many percent above its baseline, because compilers differ a little.
const TOLERANCE_PERCENT: u64 = 5;

/// Instruction counts: of the digest kernels and of I/Os on each side against `xtask/instructions.tsv`, of data in
/// random order against data in order, of commands against those before there was error recovery.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write the counts to the baseline instead of comparing.
    #[arg(long)]
    pub(crate) update: bool,
}

/// How often I/Os are counted before one counts as worse. The least counts: beside other load the system may bring long
/// data in more pieces.
const ATTEMPTS: usize = 3;

type Counts = BTreeMap<String, u64>;

/// Counts everything and compares.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    // As what ships is built: with optimization across crates, which changes a count by a tenth.
    process::run(&mut cargo(["build", "--locked", "--release", "-p", "lunette-count", "--bins"]))?;
    let mut counts = count_all()?;
    if arguments.update {
        for _ in 1..ATTEMPTS {
            take_least(&mut counts, turns::count()?);
        }
        let lines = counts.iter().fold(String::new(), |mut lines, (what, count)| {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{what}\t{count}");
            lines
        });
        fs::write(baseline_path(), lines)?;
        return Ok(ExitCode::SUCCESS);
    }
    let baseline = read_baseline()?;
    for _ in 1..ATTEMPTS {
        if counts.iter().any(|(what, count)| baseline.get(what).is_some_and(|before| is_worse(*count, *before))) {
            take_least(&mut counts, turns::count()?);
        }
    }
    let baseline = compare(&counts, &baseline)?;
    let (orders, recovery) = (orders::run()?, recovery::run()?);
    let failed = [baseline, orders, recovery].into_iter().find(|code| *code != ExitCode::SUCCESS);
    Ok(failed.unwrap_or(ExitCode::SUCCESS))
}

fn count_all() -> Result<Counts> {
    let mut counts = turns::count()?;
    for op in OPS {
        for kernel in KERNELS {
            for length in LENGTHS {
                counts.insert(
                    format!("{op} {kernel} {length}"),
                    count("count-digests", &[op, kernel, &length.to_string()])?,
                );
            }
        }
    }
    Ok(counts)
}

/// Counts the instructions of a program's counted functions. The program has been built.
fn count(program: &str, args: &[&str]) -> Result<u64> {
    let program = process::target_dir().join("release").join(program);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*counted*", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(args)
        .output()
        .context("valgrind cannot be started; install the package valgrind")?;
    let what = args.join(" ");
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("counting {what} failed:\n{told}");
    }
    let collected = told.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected.with_context(|| format!("callgrind told no count for {what}:\n{told}"))
}

fn read_baseline() -> Result<Counts> {
    let path = baseline_path();
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.lines()
        .map(|line| {
            let (what, count) = line.split_once('\t').context("a line without a tab")?;
            Ok((what.into(), count.parse()?))
        })
        .collect::<Result<_>>()
        .with_context(|| format!("{} cannot be read; write it with --update", path.display()))
}

fn is_worse(count: u64, before: u64) -> bool {
    count > before + before * TOLERANCE_PERCENT / 100
}

fn take_least(counts: &mut Counts, again: Counts) {
    for (what, count) in again {
        counts.entry(what).and_modify(|least| *least = count.min(*least)).or_insert(count);
    }
}

fn compare(counts: &Counts, baseline: &Counts) -> Result<ExitCode> {
    let mut worse = 0;
    for (what, count) in counts {
        let before = *baseline.get(what).with_context(|| format!("{what} has no baseline; write it with --update"))?;
        let regressed = is_worse(*count, before);
        worse += usize::from(regressed);
        println!("{what:32} {count:>8} {before:>8}{}", if regressed { "  more than before" } else { "" });
    }
    Ok(if worse == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn baseline_path() -> PathBuf {
    root().join("xtask/instructions.tsv")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_worse_each_time_is_worse() {
        let counts = |values: [u64; 2]| Counts::from([("read".into(), values[0]), ("write".into(), values[1])]);
        let mut least = counts([106, 130]);
        take_least(&mut least, counts([140, 106]));
        take_least(&mut least, counts([105, 107]));
        assert_eq!(least, counts([105, 106]));
        assert!(!is_worse(least["read"], 100) && is_worse(least["write"], 100));
    }
}
