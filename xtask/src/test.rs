//! `cargo xtask test`: all checks that a change has to pass.
//!
//! Steps that compile keep both cores busy and steps that run tests mostly wait, so the two kinds go side by side
//! ([`lane`]). A step that measures runs alone.

mod lane;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::api;
use crate::ceph;
use crate::count;
use crate::fuzz;
use crate::hostile;
use crate::lab;
use crate::layout;
use crate::licences;
use crate::links;
use crate::manifests;
use crate::packages;
use crate::process::{self, cargo};
use crate::programs::{self, Programs};
use crate::prose;
use crate::protocol;
use crate::sim;
use crate::suite;
use crate::tiers;
use lane::Lane;

/// Everything that has to pass.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Do only these steps, one after the other.
    #[arg(long, value_name = "STEP,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Do the steps of the inner loop: format, clippy, unit and sim.
    #[arg(long, conflicts_with = "only")]
    quick: bool,
    /// Show the steps and do nothing.
    #[arg(long)]
    list: bool,
}

/// The steps of `--quick`.
const QUICK: [&str; 4] = ["format", "clippy", "unit", "sim"];

struct Step {
    name: &'static str,
    when: When,
    what: &'static str,
    run: fn() -> Result<()>,
}

/// The part of the check in which a step runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Before all others: a mistake shows within seconds.
    First,
    /// After the build, beside the steps that run tests.
    Compiling,
    /// After the build, beside the steps that compile.
    Testing,
    /// Alone, because it measures, or because the server drops a client that other load makes slow.
    Last,
}

/// The steps, in the order in which they run one by one.
const STEPS: [Step; 18] = [
    Step { name: "format", when: When::First, what: "every file is as rustfmt writes it", run: format },
    Step {
        name: "prose",
        when: When::First,
        what: "comments and documents keep the rules of CONTRIBUTING.md",
        run: prose::step,
    },
    Step {
        name: "licences",
        when: When::First,
        what: "the licences of all that the command contains are allowed",
        run: licences::step,
    },
    Step {
        name: "clippy",
        when: When::Compiling,
        what: "no warnings from the compiler or clippy, in any target",
        run: clippy,
    },
    Step {
        name: "docs",
        when: When::Compiling,
        what: "the documentation builds without warnings, names what exists, and its examples run",
        run: docs,
    },
    Step {
        name: "sim",
        when: When::Testing,
        what: "a few hundred simulated sessions over a network that breaks everything",
        run: sim::step,
    },
    Step { name: "unit", when: When::Testing, what: "unit and property tests", run: unit },
    Step {
        name: "fuzz",
        when: When::Compiling,
        what: "fuzz targets over their corpora and random inputs",
        run: fuzz::replay,
    },
    Step {
        name: "tiers",
        when: When::Compiling,
        what: "digest kernels as older CPUs run them, and ARM's in an emulator",
        run: tiers::step,
    },
    Step {
        name: "loom",
        when: When::Compiling,
        what: "messages between event loops, in all orders that threads can run in",
        run: loom,
    },
    Step {
        name: "count",
        when: When::Compiling,
        what: "digest kernels and I/Os take no more instructions than before",
        run: count,
    },
    Step {
        name: "api",
        when: When::Last,
        what: "what schemathesis makes of the description of the API",
        run: api::step,
    },
    Step {
        name: "hostile",
        when: When::Testing,
        what: "random walks of hostile peers against server and client",
        run: hostile::step,
    },
    Step {
        name: "suite",
        when: When::Testing,
        what: "libiscsi's test suite over all kinds of disks: nothing fails, all runs",
        run: suite::step,
    },
    Step {
        name: "ceph",
        when: When::Testing,
        what: "disks in Ceph, with a cluster of one monitor and one OSD",
        run: ceph::step,
    },
    Step {
        name: "interop",
        when: When::Testing,
        what: "lunette with the clients and targets that people use",
        run: interop,
    },
    Step { name: "habits", when: When::Testing, what: "tools that people have already drive lunette", run: habits },
    Step {
        name: "lab",
        when: When::Last,
        what: "the experiments of the laboratory, one cell of each table",
        run: lab::step,
    },
];

/// Runs the steps until one fails. The last line counts them.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.list {
        for step in &STEPS {
            println!("{:8} {}", step.name, step.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut tally = Tally::default();
    let outcome = if arguments.quick {
        tally.run(&named(&QUICK)?)
    } else if arguments.only.is_empty() {
        everything(&mut tally)
    } else {
        tally.run(&named(&arguments.only)?)
    };
    eprintln!("\n{}", tally.times.join(", "));
    if let Err(error) = &outcome {
        eprintln!("{error:#}");
    }
    println!("{} passed, {} failed", tally.passed, usize::from(outcome.is_err()));
    Ok(if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs every step, those that compile beside those that test.
fn everything(tally: &mut Tally) -> Result<()> {
    tally.run(&of(When::First))?;
    // Before the lanes part: apt and cargo let one of them in at a time.
    packages::provide()?;
    packages::provide_for_emulation()?;
    packages::provide_for_api()?;
    packages::provide_for_ceph()?;
    tally.time("build", programs::build)?;
    let compiling: Vec<&str> = of(When::Compiling).iter().map(|step| step.name).collect();
    let mut lane = Lane::start(&compiling)?;
    for step in of(When::Testing) {
        tally.run(&[step])?;
        lane.check()?;
    }
    tally.time("rest of the other lane", || lane.finish())?;
    tally.passed += compiling.len();
    tally.run(&of(When::Last))
}

/// The steps that have run.
#[derive(Default)]
struct Tally {
    passed: usize,
    times: Vec<String>,
}

impl Tally {
    /// Runs steps until one fails.
    fn run(&mut self, steps: &[&Step]) -> Result<()> {
        for step in steps {
            eprintln!("\n== {}: {}", step.name, step.what);
            let again = || format!("to run it alone: cargo xtask test --only {}", step.name);
            self.time(step.name, step.run).with_context(again)?;
            self.passed += 1;
        }
        Ok(())
    }

    /// Does something and notes how long it took.
    fn time(&mut self, name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = Instant::now();
        let outcome = run();
        let seconds = start.elapsed().as_secs_f64();
        let word = if outcome.is_ok() { "passed in" } else { "failed after" };
        eprintln!("== {name} {word} {seconds:.1} s");
        self.times.push(format!("{name} {seconds:.0} s"));
        outcome.with_context(|| format!("{name} failed"))
    }
}

fn of(when: When) -> Vec<&'static Step> {
    STEPS.iter().filter(|step| step.when == when).collect()
}

fn named(names: &[impl AsRef<str>]) -> Result<Vec<&'static Step>> {
    let find = |name: &str| match STEPS.iter().find(|step| step.name == name) {
        Some(step) => Ok(step),
        None => bail!("there is no step {name:?}; the steps are {}", STEPS.map(|step| step.name).join(", ")),
    };
    names.iter().map(|name| find(name.as_ref())).collect()
}

fn format() -> Result<()> {
    process::run(&mut cargo(["fmt", "--all", "--check"]))
}

fn clippy() -> Result<()> {
    let all = ["--all-targets"];
    let end_to_end = ["--test", "interop", "--test", "ceph", "--test", "habits"];
    for targets in [&all[..], &end_to_end] {
        process::run(cargo(["clippy", "--locked", "--workspace"]).args(targets).args(["--", "-D", "warnings"]))?;
    }
    // The workspace enables all features; a library alone must build without them.
    process::run(&mut cargo(["clippy", "--locked", "--package", "lunette-initiator", "--lib", "--", "-D", "warnings"]))
}

fn docs() -> Result<()> {
    protocol::check()?;
    layout::check()?;
    links::check()?;
    manifests::check()?;
    let mut command = cargo(["doc", "--locked", "--workspace", "--no-deps"]);
    process::run(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    process::run(&mut cargo(["test", "--locked", "--workspace", "--doc"]))
}

/// Runs all test programs, then the target's once more on two cores and, where the system allows it, on io_uring.
fn unit() -> Result<()> {
    // Some tests have other programs read the output.
    packages::provide()?;
    programs::build()?;
    let programs = Programs::of_tests()?;
    programs.run(&[("LUNETTE_REQUIRE_TOOLS", "1")])?;
    programs.named("server").run(&[("LUNETTE_TEST_CORES", "2"), ("LUNETTE_TEST_IO", "auto")])
}

/// The model checker wants the crates built with other types, so they have a folder of their own.
fn loom() -> Result<()> {
    let mut command = cargo(["test", "--locked", "--package", "lunette-reactor", "--lib", "model"]);
    process::run(command.env("RUSTFLAGS", "--cfg loom").arg("--target-dir").arg(process::target_dir().join("loom")))
}

fn count() -> Result<()> {
    packages::provide()?;
    if count::run(&count::Arguments { update: false })? == ExitCode::SUCCESS {
        return Ok(());
    }
    bail!("something takes more instructions; if that is meant, run cargo xtask count --update")
}

fn interop() -> Result<()> {
    end_to_end("interop")
}

fn habits() -> Result<()> {
    end_to_end("habits")
}

fn end_to_end(name: &str) -> Result<()> {
    packages::provide()?;
    programs::build()?;
    Programs::end_to_end(name)?.run(&[])
}
