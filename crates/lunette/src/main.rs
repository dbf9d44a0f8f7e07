//! The `lunette` command.
//!
//! Floor 6 of the house: it reads the user's input (arguments, configuration files, secrets) and combines the crates below.
//! There is one file for each subcommand and for each kind of input.

#![forbid(unsafe_code)]

mod bench;
mod config;
mod control_plane;
mod counts;
mod cp;
mod crc;
mod depth;
mod disk;
mod encrypted;
mod event_loop;
mod failure;
mod images;
mod import;
mod info;
mod io;
mod keys;
mod log;
mod ls;
mod nbd;
mod output;
mod ping;
mod quanta;
mod reload;
mod remote;
mod remote_disk;
mod secret;
mod serve;
mod served;
mod size;
mod system;
mod terminal;
mod tune;
mod volumes;

use clap::{Parser, Subcommand};
use failure::Failure;

/// A software iSCSI stack: disks over TCP.
#[derive(Parser)]
#[command(name = "lunette", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Arguments>),
    Cp(cp::Arguments),
    Nbd(nbd::Arguments),
    Ls(ls::Arguments),
    Info(info::Arguments),
    Import(import::Arguments),
    Ping(ping::Arguments),
    Bench(bench::Arguments),
    Tune(tune::Arguments),
    Crc(crc::Arguments),
    Keys(keys::Arguments),
    Quanta(quanta::Arguments),
}

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    log::start();
    let outcome = match cli.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Cp(arguments) => cp::run(&arguments),
        Command::Nbd(arguments) => nbd::run(&arguments),
        Command::Ls(arguments) => ls::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Ping(arguments) => ping::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Crc(arguments) => crc::run(&arguments),
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Quanta(arguments) => quanta::run(&arguments),
    };
    let closed = images::close();
    outcome.and(closed).map_or_else(Failure::report, |()| std::process::ExitCode::SUCCESS)
}
