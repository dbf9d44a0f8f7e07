//! The laboratory of Lunette: instruments to measure storage protocols with.
//!
//! `lunette-lab link` emulates a link between two network namespaces. From the bottom up:
//!
//! - `link`: one direction of the link as a state machine under virtual time. All that is random, counted or timed is here.
//! - `net`: namespaces, TUN devices, and the relay, a thin loop that brings `link` packets and the time.
//! - `check`: what the tool measures of itself before it runs a command.
//! - `run`: the processes, the command, and the report.
//! - `experiment`: many runs of `link`: cells, their results in a file, tables and plots.
//!
//! `sandbox` needs no link: it measures sessions in memory.

#![deny(unsafe_code)]

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
mod tune;
mod units;
mod wan;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// One TCP connection that always has something to send
    Stream(stream::Options),
    /// Cycles, instructions and cache misses of each PDU, in a sandbox without a network
    #[cfg(target_arch = "x86_64")]
    Sandbox(sandbox::Options),
    /// What the tools start to do their work
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
    Wan(wan::Options),
    /// The figures of a paper on the Effective Cross Layer, measured again
    Ecl(ecl::Options),
    /// The tuner on paths that it has not seen, beside an exhaustive search
    Tune(tune::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().tool {
        // The options are wrong here or nowhere.
        Tool::Measuring(Measuring::Link(options)) => options.link().and_then(|_| run::outer::run()),
        Tool::Measuring(Measuring::Wan(options)) => options.check().and_then(|()| run::outer::run()),
        Tool::Measuring(Measuring::Ecl(options)) => options.check().and_then(|()| run::outer::run()),
        Tool::Measuring(Measuring::Tune(options)) => options.check().and_then(|()| run::outer::run()),
        Tool::Stream(options) => stream::run(&options),
        #[cfg(target_arch = "x86_64")]
        Tool::Sandbox(options) => sandbox::run(&options),
        Tool::Inside { parent, tool } => run::inner::enter(parent).and_then(|running| match tool {
            Measuring::Link(options) => run::inner::link(&options, &running),
            Measuring::Wan(options) => wan::run(&options),
            Measuring::Ecl(options) => ecl::run(&options),
            Measuring::Tune(options) => tune::run(&options),
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
