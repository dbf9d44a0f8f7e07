//! The laboratory of Lunette: instruments to measure storage protocols with.
//!
//! `lunette-lab link` emulates a link between two network namespaces. From the bottom up:
//!
//! - `link`: one direction of the link as a state machine under virtual time. All that is random, counted or timed is here.
//! - `net`: namespaces, TUN devices, and the relay, a thin loop that brings `link` packets and the time.
//! - `check`: what the tool measures of itself before it runs a command.
//! - `run`: the processes, the command, and the report.

#![deny(unsafe_code)]

mod check;
mod limits;
mod link;
mod net;
mod options;
mod run;
mod units;

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
    /// Two network namespaces, a link between them, and a command in one of them
    Link(options::Options),
    /// What `link` starts to do its work
    #[command(hide = true)]
    Inside {
        parent: u32,
        #[command(flatten)]
        options: options::Options,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().tool {
        // The options are wrong here or nowhere.
        Tool::Link(options) => options.link().and_then(|_| run::outer::run()),
        Tool::Inside { parent, options } => run::inner::run(&options, parent),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(run::FAILED)
        }
    }
}
