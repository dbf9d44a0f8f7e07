//! `lunette tls`: the certificates of servers and clients.

mod fingerprint;
mod issue;
mod list;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lunette_tls::authority::{Authority, AuthorityError};

use super::keys::now;
use crate::failure::Failure;
use crate::output;
use crate::system::protect_secrets;

const AFTER_HELP: &str = "\
An authority is a folder. Its ca-key.pem can issue a certificate in anyone's name: keep the folder away from servers and
clients, and give each owner the folder of its name alone. docs/tls.md describes the files.

Exit codes: 0 done, 1 other failure, 2 bad usage, 3 a file cannot be used, or a certificate cannot be issued, renewed or
revoked.";

/// The name of the authority in its certificate.
const AUTHORITY: &str = "Lunette authority";

/// How long certificates are valid by default, in days.
const DEFAULT_DAYS: u32 = 90;

/// The longest that a certificate can be valid, in days: as long as its authority.
const MAX_DAYS: i64 = 7300;

/// Issue, renew and revoke the certificates of servers and clients.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Ca(Ca),
    Issue(issue::Issue),
    Renew(issue::Renew),
    Revoke(issue::Revoke),
    List(list::List),
    Fingerprint(fingerprint::Arguments),
}

/// Make an authority, and print its files
#[derive(Args)]
struct Ca {
    /// The folder, which is made when it is missing
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// The time for which a certificate is valid.
#[derive(Args)]
struct Validity {
    /// How many days it is valid
    #[arg(long, value_name = "N", default_value_t = DEFAULT_DAYS, value_parser = clap::value_parser!(u32).range(1..=MAX_DAYS))]
    days: u32,
}

impl Validity {
    /// The end in seconds since 1970.
    fn until(&self, now: i64) -> i64 {
        now + i64::from(self.days) * 24 * 3600
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    protect_secrets();
    let now = now().cast_signed();
    match &arguments.command {
        Command::Ca(Ca { folder }) => create(folder, now),
        Command::Issue(arguments) => arguments.run(now),
        Command::Renew(arguments) => arguments.run(now),
        Command::Revoke(arguments) => arguments.run(now),
        Command::List(arguments) => arguments.run(now),
        Command::Fingerprint(arguments) => arguments.run(),
    }
}

fn create(folder: &Path, now: i64) -> Result<(), Failure> {
    Authority::create(folder, AUTHORITY, now).map_err(Failure::configuration)?;
    for (file, use_of_it) in [
        ("ca-cert.pem", "the certificate, which servers and clients trust"),
        ("ca-key.pem", "the key, which stays here"),
        ("ca-crl.pem", "the list of revoked certificates, for servers"),
    ] {
        output::line(format_args!("{}  {use_of_it}", folder.join(file).display()))?;
    }
    Ok(())
}

fn open(folder: &Path) -> Result<Authority, Failure> {
    Authority::open(folder).map_err(|error| match error {
        AuthorityError::Missing(folder) => {
            let folder = folder.display();
            Failure::Configuration(format!("{folder}: there is no authority here; make one: lunette tls ca {folder}"))
        }
        error => Failure::configuration(error),
    })
}
