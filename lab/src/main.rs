//! The laboratory of Lunette: instruments to measure storage protocols with.
//!
//! `lunette-lab link` emulates a link between two network namespaces. From the bottom up:
//!
//! - `link`: one direction of the link as a state machine under virtual time. All that is random, counted or timed is
//!   here.
//! - `net`: namespaces, TUN devices, and the relay, a thin loop that brings `link` packets and the time.
//! - `check`: what the tool measures of itself before it runs a command.
//! - `run`: the processes, the command, and the report.
//! - `experiment`: many runs of `link`: cells, their results in a file, tables and plots.
//!
//! - `wan`, `ecl` and `zerocopy` are experiments over links; `stream`, and `load`, `remap` and `rewrite` of `zerocopy`,
//!   are tools that their cells run.
//!
//! `sandbox` needs no link: it measures sessions in memory. `all` runs every experiment.

#![deny(unsafe_code)]

mod all;
mod check;
mod ecl;
mod experiment;
mod limits;
mod link;
mod net;
mod options;
mod run;
#[cfg(target_arch = "x86_64")]
mod sandbox;
mod stream;
mod units;
mod wan;
mod zerocopy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::experiment::LinkStudy;

/// The laboratory of Lunette.
#[derive(Parser)]
#[command(name = "lunette-lab")]
struct Arguments {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand)]
enum Tool {
    #[command(flatten)]
    Measuring(Measuring),
    /// All experiments, one after the other
    All(all::Options),
    /// One TCP connection that always has something to send
    Stream(stream::Options),
    /// One iSCSI session that does the same request again and again
    Load(zerocopy::load::Options),
    /// Received data by page, in the place of a copy
    Remap(zerocopy::remap::Options),
    /// Pages that are rewritten while an iSCSI session sends them
    Rewrite(zerocopy::rewrite::Options),
    /// Cycles, instructions and cache misses of each PDU, in a sandbox without a network
    #[cfg(target_arch = "x86_64")]
    Sandbox(sandbox::Options),
    /// Commands that the tools start to do their work
    #[command(hide = true)]
    Inside {
        parent: u32,
        #[command(subcommand)]
        tool: Measuring,
    },
}

/// The tools that work in namespaces.
#[derive(Subcommand)]
enum Measuring {
    /// Two network namespaces, a link between them, and a command in one of them
    Link(Box<options::Options>),
    /// The tables of a paper on iSCSI over distances, measured again
    ///
    /// Writes wan.md and its plots. A run that was interrupted goes on where it was; remove the file of results to
    /// begin again. Only a full run measures what is beyond the paper.
    Wan(LinkStudy),
    /// The figures of a paper on the Effective Cross Layer, measured again
    ///
    /// Writes ecl.md and its plots. A run that was interrupted goes on where it was; remove the file of results to
    /// begin again.
    Ecl(LinkStudy),
    /// The figures and tables of a paper on zero-copy iSCSI, measured again
    ///
    /// Writes zerocopy.md and its plots. A run that was interrupted goes on where it was; remove the file of results to
    /// begin again. Needs two CPUs, and perf for CPU time by layer.
    Zerocopy(LinkStudy),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().tool {
        // The options are wrong here or nowhere.
        Tool::Measuring(Measuring::Link(options)) => options.link().and_then(|_| run::outer::run()),
        Tool::Measuring(Measuring::Wan(study) | Measuring::Ecl(study) | Measuring::Zerocopy(study)) => {
            study.check().and_then(|()| run::outer::run())
        }
        Tool::All(options) => all::run(&options),
        Tool::Stream(options) => stream::run(&options),
        Tool::Load(options) => zerocopy::load::run(&options),
        Tool::Remap(options) => zerocopy::remap::run(&options),
        Tool::Rewrite(options) => zerocopy::rewrite::run(&options),
        #[cfg(target_arch = "x86_64")]
        Tool::Sandbox(options) => sandbox::run(&options),
        Tool::Inside { parent, tool } => run::inner::enter(parent).and_then(|running| match tool {
            Measuring::Link(options) => run::inner::link(&options, &running),
            Measuring::Wan(options) => wan::run(&options),
            Measuring::Ecl(options) => ecl::run(&options),
            Measuring::Zerocopy(options) => zerocopy::run(&options),
        }),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(run::FAILED)
        }
    }
}
