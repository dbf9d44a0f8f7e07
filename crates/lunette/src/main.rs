//! The `lunette` command.
//!
//! Layer 5: over api, buffer, console, crc32c, dashboard, device, files, handover, iscsi-initiator, iscsi-target, keys,
//! longhorn, nbd, pdu, pools, quanta, rbd, reactor, scsi, session, state, store, takeover, targetcli, tgt, tls, tuning,
//! tunnel, volume; under no other crate.
//!
//! The command reads the user's input (arguments, configuration files, secrets) and combines the crates below. It has
//! rooms, each over those that follow it:
//!
//! | room | what it has |
//! |---|---|
//! | [`commands`] | the subcommands |
//! | [`server`] | what `serve` has running: the served disks, changes, the control plane, counts |
//! | [`config`] | configuration files and their mistakes |
//! | [`disks`] | the kinds of disks |
//! | the other files | what all of them need: messages, secrets, sizes, signals, the log |

#![forbid(unsafe_code)]

mod address;
mod commands;
mod config;
mod disks;
mod event_loop;
mod failure;
mod log;
mod output;
mod questions;
mod secret;
mod server;
mod size;
mod system;
mod systemd;
mod terminal;
mod text;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use commands::{
    activate, bench, check, completions, cp, crc, ctl, gateway, import, info, keys, ls, man, nbd, ping, quanta, serve,
    tls, tune, tunnel, upgrade, volume,
};
use failure::Failure;
use server::gateways;

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
    Check(check::Arguments),
    Cp(cp::Arguments),
    Nbd(nbd::Arguments),
    Tunnel(Box<tunnel::Arguments>),
    Ls(ls::Arguments),
    Info(info::Arguments),
    Activate(activate::Arguments),
    Gateway(gateway::Arguments),
    Import(import::Arguments),
    Ping(ping::Arguments),
    Bench(bench::Arguments),
    Tune(tune::Arguments),
    Crc(crc::Arguments),
    Ctl(ctl::Arguments),
    Volume(volume::Arguments),
    Completions(completions::Completions),
    Man(man::Arguments),
    Keys(keys::Arguments),
    Quanta(quanta::Arguments),
    Tls(tls::Arguments),
    Upgrade(upgrade::Arguments),
}

/// Ends the process with what is wrong with the arguments, or with the help that they ask for. Values are repeated, but
/// no passwords of URLs.
fn refuse(mut error: clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        let shown = ContextValue::String(lunette_initiator::redacted_url(value));
        error.insert(ContextKind::InvalidValue, shown);
    }
    let text = plain(&error.render().to_string());
    output::note(lunette_initiator::redacted(&text).trim_end());
    if error.kind() == ErrorKind::ArgumentConflict && ["--api ", "--strict"].iter().any(|option| text.contains(option))
    {
        output::note(format_args!("\n{OF_FILES}"));
    }
    std::process::exit(error.exit_code())
}

/// Why some options of `serve` do not stand beside disks.
const OF_FILES: &str = "--api and --strict are for a configuration file, which names the disks: lunette serve --config FILE --api unix:PATH";

/// The words of the standard library about numbers, and ours.
const OF_NUMBERS: [(&str, &str); 4] = [
    ("invalid digit found in string", "write a whole number"),
    ("cannot parse integer from empty string", "write a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
];

/// A message without the words of the standard library.
fn plain(text: &str) -> String {
    OF_NUMBERS.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

fn main() {
    if let Some(program) = lunette_targetcli::Program::of(std::env::args_os().next().as_deref()) {
        std::process::exit(program.run());
    }
    lunette_buffer::address_space::keep_small();
    let cli = Cli::try_parse().unwrap_or_else(|error| refuse(error));
    log::start();
    if let Err(error) = system::let_long_writes_fail() {
        tracing::warn!(%error, "a write beyond the limit of file sizes (ulimit -f) ends this process");
    }
    let outcome = match cli.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Cp(arguments) => cp::run(&arguments),
        Command::Nbd(arguments) => nbd::run(&arguments),
        Command::Tunnel(arguments) => tunnel::run(&arguments),
        Command::Ls(arguments) => ls::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Activate(arguments) => activate::run(&arguments),
        Command::Gateway(arguments) => gateway::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Ping(arguments) => ping::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Crc(arguments) => crc::run(&arguments),
        Command::Ctl(arguments) => ctl::run(&arguments),
        Command::Volume(arguments) => volume::run(&arguments),
        Command::Completions(arguments) => arguments.run::<Cli>(),
        Command::Man(arguments) => man::run(&arguments),
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Quanta(arguments) => quanta::run(&arguments),
        Command::Tls(arguments) => tls::run(&arguments),
        Command::Upgrade(arguments) => upgrade::run(&arguments),
    };
    gateways::leave();
    let closed = disks::close();
    // Threads that still close images may not meet the destructors of Ceph's libraries.
    lunette_rbd::exit(outcome.and(closed).map_or_else(Failure::report, |()| 0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Arg, Command as Clap};

    use clap::CommandFactory as _;

    use super::*;

    /// The names in a field of an argument that clap shows to people alone.
    fn names_in(arg: &Arg, field: &str) -> BTreeSet<String> {
        let shown = format!("{arg:?}");
        let (_, rest) = shown.split_once(&format!(" {field}: [")).unwrap_or_else(|| panic!("{field} of {shown}"));
        let end = rest.find(']').expect("a list ends");
        rest[..end].split('"').skip(1).step_by(2).map(str::to_owned).collect()
    }

    fn conflict(command: &Clap, one: &Arg, other: &Arg) -> bool {
        let has =
            |of: &Arg, with: &Arg| command.get_arg_conflicts_with(of).iter().any(|arg| arg.get_id() == with.get_id());
        has(one, other) || has(other, one)
    }

    /// clap asks for no argument that conflicts with one that is there: then an option that requires it has no effect,
    /// and nothing is said.
    fn without_effect(command: &Clap, found: &mut Vec<String>, requiring: &mut usize) {
        for option in command.get_arguments() {
            let required = names_in(option, "requires");
            *requiring += required.len();
            for needed in command.get_arguments().filter(|arg| required.contains(arg.get_id().as_str())) {
                let instead: Vec<&Arg> = command.get_arguments().filter(|arg| conflict(command, arg, needed)).collect();
                // Without the one that is needed, these are there.
                let is_there = |arg: &&&Arg| names_in(arg, "r_unless").contains(needed.get_id().as_str());
                if instead.iter().filter(is_there).any(|arg| conflict(command, option, arg)) {
                    continue;
                }
                let silent =
                    instead.iter().filter(|arg| arg.get_id() != option.get_id() && !conflict(command, option, arg));
                found.extend(silent.map(|arg| {
                    let (name, option, arg) = (command.get_name(), option.get_id(), arg.get_id());
                    format!("{name}: {option} beside {arg} says nothing")
                }));
            }
        }
        command.get_subcommands().for_each(|command| without_effect(command, found, requiring));
    }

    #[test]
    fn numbers_that_are_none_are_told_in_plain_words() {
        for (value, expected) in [("x", "write a whole number"), ("", "write a whole number"), ("4294967296", "")] {
            let all = ["lunette", "ping", "iscsi://h", "--count", value];
            let error = Cli::try_parse_from(all).err().unwrap().render().to_string();
            let text = plain(&error);
            assert!(text.contains(expected) && !text.contains("in string") && !text.contains("target type"), "{text}");
        }
    }

    #[test]
    fn each_option_takes_effect_or_is_refused() {
        let mut command = Cli::command();
        command.build();
        let (mut found, mut requiring) = (Vec::new(), 0);
        without_effect(&command, &mut found, &mut requiring);
        assert!(requiring > 10, "clap shows what an argument requires");
        assert!(found.is_empty(), "{found:#?}");
    }

    /// Each option of `serve` is for disks of the command line, for a configuration file, or for both.
    #[test]
    fn each_option_of_serve_is_refused_where_it_would_have_no_effect() {
        const OF_FILES: [&str; 2] = ["api", "strict"];
        const OF_BOTH: [&str; 6] = ["io", "busy_poll", "json", "prometheus", "config", "help"];
        let mut command = Cli::command();
        command.build();
        let serve = command.find_subcommand("serve").unwrap();
        let find = |name: &str| serve.get_arguments().find(|arg| arg.get_id() == name).unwrap();
        for option in serve.get_arguments() {
            let name = option.get_id().as_str();
            let (with_config, with_disks) =
                (conflict(serve, option, find("config")), conflict(serve, option, find("disks")));
            let expected = match name {
                name if OF_FILES.contains(&name) => (false, true),
                name if OF_BOTH.contains(&name) => (false, name == "config"),
                _ => (true, false),
            };
            assert_eq!((with_config, with_disks), expected, "{name}");
        }
        for arguments in [["--api", "unix:/a"].as_slice(), &["--strict"]] {
            let all = ["lunette", "serve", "mem:1M"].iter().chain(arguments);
            let error = Cli::try_parse_from(all).err().unwrap();
            assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict, "{arguments:?}");
        }
    }
}
