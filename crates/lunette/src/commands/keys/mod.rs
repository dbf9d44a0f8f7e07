//! `lunette keys`: key files, the key server, and its certificates.

mod authority;
mod file;
mod list;
mod object;
mod place;
mod secrets;
mod server;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::system::protect_secrets;
use place::Place;
use secrets::Opening;
pub(crate) use secrets::{cipher, now};

const AFTER_HELP: &str = "\
A key file holds the keys of one volume, each wrapped by the volume key, and for each holder the volume key, wrapped with a
passphrase or with a key of a key server. A volume whose last key is destroyed can never be read again, by anyone.

PLACE is a key file, or kmip://HOST[:PORT]/NAME, an object of a key server. Passphrases are read from files, never from
arguments. docs/keys.md describes the file and the server.

Exit codes: 0 done, 1 other failure, 2 bad usage, 3 a key file, secret, certificate or key server cannot be used, 4 the
address cannot be opened.";

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
    Publish(file::Publish),
    Destroy(file::Destroy),
    Export(file::Export),
    Serve(server::Serve),
    Ca(authority::Ca),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    protect_secrets();
    match &arguments.command {
        Command::Create(arguments) => file::create(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Grant(arguments) => file::grant(arguments),
        Command::Revoke(arguments) => file::revoke(arguments),
        Command::Rotate(arguments) => file::rotate(arguments),
        Command::Publish(arguments) => file::publish(arguments),
        Command::Destroy(arguments) => file::destroy(arguments),
        Command::Export(arguments) => file::export(arguments),
        Command::Serve(arguments) => server::run(arguments),
        Command::Ca(arguments) => authority::run(arguments),
    }
}

/// The keys that a command is about, and what opens them.
#[derive(Args)]
struct Opened {
    /// A key file, or kmip://HOST/NAME (HOST:PORT/NAME)
    #[arg(value_name = "PLACE")]
    place: Place,
    #[command(flatten)]
    opening: Opening,
}
