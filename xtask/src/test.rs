//! `cargo xtask test`: all checks that a change has to pass.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::api;
use crate::ceph;
use crate::count;
use crate::fuzz;
use crate::hostile;
use crate::lab;
use crate::layout;
use crate::licences;
use crate::links;
use crate::packages;
use crate::process::{self, cargo};
use crate::prose;
use crate::protocol;
use crate::sim;
use crate::suite;
use crate::tiers;

/// Everything that has to pass.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Do only this step.
    #[arg(long, value_name = "STEP")]
    only: Option<String>,
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
    what: &'static str,
    run: fn() -> Result<()>,
}

/// The steps, quick ones first, so that a mistake shows early.
const STEPS: [Step; 17] = [
    Step { name: "format", what: "every file is as rustfmt writes it", run: format },
    Step { name: "clippy", what: "no warnings from the compiler or clippy, in any target", run: clippy },
    Step { name: "docs", what: "the documentation builds without warnings and names what exists", run: docs },
    Step { name: "prose", what: "comments and documents keep the rules of CONTRIBUTING.md", run: prose::step },
    Step { name: "licences", what: "the licences of all that the command contains are allowed", run: licences::step },
    Step { name: "unit", what: "unit, property and documentation tests", run: unit },
    Step { name: "tiers", what: "digest kernels as older CPUs run them, and ARM's in an emulator", run: tiers::step },
    Step {
        name: "sim",
        what: "a few hundred simulated sessions over a network that breaks everything",
        run: sim::step,
    },
    Step { name: "loom", what: "messages between event loops, in all orders that threads can run in", run: loom },
    Step { name: "fuzz", what: "fuzz targets over their corpora and random inputs", run: fuzz::replay },
    Step { name: "count", what: "digest kernels and I/Os take no more instructions than before", run: count },
    Step { name: "api", what: "what schemathesis makes of the description of the API", run: api::step },
    Step { name: "hostile", what: "random walks of hostile peers against server and client", run: hostile::step },
    Step {
        name: "suite",
        what: "libiscsi's test suite over all kinds of disks: nothing fails, all runs",
        run: suite::step,
    },
    Step { name: "lab", what: "the experiments of the laboratory, one cell of each table", run: lab::step },
    Step { name: "ceph", what: "disks in Ceph, with a cluster of one monitor and one OSD", run: ceph::step },
    Step { name: "interop", what: "lunette with the clients and targets that people use", run: interop },
];

/// Runs the steps until one fails. The last line counts them.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut steps = chosen(arguments.only.as_deref())?;
    if arguments.quick {
        steps.retain(|step| QUICK.contains(&step.name));
    }
    if arguments.list {
        for step in steps {
            println!("{:8} {}", step.name, step.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut passed = 0;
    let mut times = Vec::new();
    for step in steps {
        eprintln!("\n== {}: {}", step.name, step.what);
        let start = Instant::now();
        let outcome = (step.run)();
        let seconds = start.elapsed().as_secs_f64();
        times.push(format!("{} {seconds:.0} s", step.name));
        if let Err(error) = outcome {
            eprintln!("\n== {} failed after {seconds:.1} s: {error:#}", step.name);
            eprintln!("   to run it alone: cargo xtask test --only {}", step.name);
            println!("{passed} passed, 1 failed");
            return Ok(ExitCode::FAILURE);
        }
        eprintln!("== {} passed in {seconds:.1} s", step.name);
        passed += 1;
    }
    eprintln!("\n{}", times.join(", "));
    println!("{passed} passed, 0 failed");
    Ok(ExitCode::SUCCESS)
}

fn chosen(only: Option<&str>) -> Result<Vec<&'static Step>> {
    let Some(only) = only else { return Ok(STEPS.iter().collect()) };
    match STEPS.iter().find(|step| step.name == only) {
        Some(step) => Ok(vec![step]),
        None => bail!("there is no step {only:?}; the steps are {}", STEPS.map(|step| step.name).join(", ")),
    }
}

fn format() -> Result<()> {
    process::run(&mut cargo(["fmt", "--all", "--check"]))?;
    process::run(&mut cargo(["fmt", "--manifest-path", fuzz::MANIFEST, "--check"]))
}

fn clippy() -> Result<()> {
    let all = ["--all-targets"];
    let end_to_end = ["--test", "interop", "--test", "ceph"];
    for targets in [&all[..], &end_to_end] {
        process::run(cargo(["clippy", "--locked", "--workspace"]).args(targets).args(["--", "-D", "warnings"]))?;
    }
    // The workspace enables all features; a library alone must build without them.
    process::run(&mut cargo([
        "clippy",
        "--locked",
        "--package",
        "lunette-initiator",
        "--lib",
        "--",
        "-D",
        "warnings",
    ]))?;
    let mut fuzz = fuzz::cargo_fuzz_crate("clippy");
    process::run(fuzz.args(["--lib", "--bin", "replay", "--", "-D", "warnings"]))
}

fn docs() -> Result<()> {
    protocol::check()?;
    layout::check()?;
    links::check()?;
    let mut command = cargo(["doc", "--locked", "--workspace", "--no-deps"]);
    process::run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

fn unit() -> Result<()> {
    // Some tests have other programs read the output.
    packages::provide()?;
    process::build_for_checks()?;
    let mut command = cargo(["test", "--locked", "--workspace"]);
    process::run(command.env("LUNETTE_REQUIRE_TOOLS", "1"))?;
    on_cores()
}

/// Repeats the target's tests on two cores and, where the system allows it, on io_uring.
fn on_cores() -> Result<()> {
    let mut command = cargo(["test", "--locked", "--workspace"]);
    command.env("LUNETTE_TEST_CORES", "2").env("LUNETTE_TEST_IO", "auto");
    process::run(command.args(["--test", "server"]))
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
    packages::provide()?;
    process::build_for_checks()?;
    // The whole workspace is named, so that dependencies keep the features that they were compiled with before.
    process::run(&mut cargo(["test", "--locked", "--workspace", "--test", "interop"]))
}
