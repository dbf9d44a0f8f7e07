//! `lunette keys`: key files, the key server, and its certificates.

mod file;
mod list;
mod secrets;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use secrets::Opening;

const AFTER_HELP: &str = "\
A key file holds the keys of one volume, each wrapped by the volume key, and for each holder the volume key, wrapped with his
passphrase or with a key of a key server. A disk whose last key is destroyed can never be read again, by anyone.

Passphrases are read from files, never from arguments. docs/keys.md describes the file.

Exit codes: 0 done, 1 other failure, 2 bad usage, 3 a key file, secret or certificate cannot be used, 4 the address cannot be
opened.";

/// Make and change the keys of encrypted volumes, and serve keys.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(file::Create),
    List(list::List),
    Grant(file::Grant),
    Revoke(file::Revoke),
    Rotate(file::Rotate),
    Destroy(file::Destroy),
    Export(file::Export),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Err(error) = lunette_keys::protect_process() {
        tracing::warn!(%error, "a core dump of this process would show its secrets");
    }
    match &arguments.command {
        Command::Create(arguments) => file::create(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Grant(arguments) => file::grant(arguments),
        Command::Revoke(arguments) => file::revoke(arguments),
        Command::Rotate(arguments) => file::rotate(arguments),
        Command::Destroy(arguments) => file::destroy(arguments),
        Command::Export(arguments) => file::export(arguments),
    }
}

/// The key file of a command, and what opens it.
#[derive(Args)]
struct Opened {
    /// The key file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    opening: Opening,
}
