//! The `lunette` command.
//!
//! Floor 6 of the house: it reads the user's input (arguments, configuration files, secrets) and combines the crates below.
//! There is one file for each subcommand and for each kind of input.

#![forbid(unsafe_code)]

mod activate;
mod address;
mod bench;
mod config;
mod control_plane;
mod counts;
mod cp;
mod crc;
mod ctl;
mod depth;
mod disk;
mod encrypted;
mod event_loop;
mod failure;
mod gateways;
mod images;
mod import;
mod info;
mod io;
mod keys;
mod log;
mod ls;
mod man;
mod metrics;
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
mod systemd;
mod terminal;
mod tune;
mod volumes;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
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
    Activate(activate::Arguments),
    Gateway(gateways::Arguments),
    Import(import::Arguments),
    Ping(ping::Arguments),
    Bench(bench::Arguments),
    Tune(tune::Arguments),
    Crc(crc::Arguments),
    Ctl(ctl::Arguments),
    Completions(Completions),
    Man(man::Arguments),
    Keys(keys::Arguments),
    Quanta(quanta::Arguments),
}

/// Print what completes the command in a shell
///
/// For bash: lunette completions bash > /usr/share/bash-completion/completions/lunette
#[derive(Args)]
struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    fn run(&self) -> Result<(), Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "lunette", &mut text);
        output::line(String::from_utf8_lossy(&text).trim_end())
    }
}

/// Ends the process with what is wrong with the arguments, or with the help that they ask for. Values are repeated, but no passwords of URLs.
fn refuse(mut error: clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        let shown = ContextValue::String(lunette_initiator::redacted_url(value));
        error.insert(ContextKind::InvalidValue, shown);
    }
    eprint!("{}", lunette_initiator::redacted(&error.render().to_string()));
    std::process::exit(error.exit_code())
}

fn main() -> std::process::ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| refuse(error));
    log::start();
    let outcome = match cli.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Cp(arguments) => cp::run(&arguments),
        Command::Nbd(arguments) => nbd::run(&arguments),
        Command::Ls(arguments) => ls::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Activate(arguments) => activate::run(&arguments),
        Command::Gateway(arguments) => gateways::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Ping(arguments) => ping::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Crc(arguments) => crc::run(&arguments),
        Command::Ctl(arguments) => ctl::run(&arguments),
        Command::Completions(arguments) => arguments.run(),
        Command::Man(arguments) => man::run(&arguments),
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Quanta(arguments) => quanta::run(&arguments),
    };
    gateways::leave();
    let closed = images::close();
    outcome.and(closed).map_or_else(Failure::report, |()| std::process::ExitCode::SUCCESS)
}
