//! `lunette keys ca`: certificates for key servers and their clients.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lunette_tls::authority::{Authority, Identities, Issued, Standing};
use serde_json::json;

use super::secrets::now;
use crate::failure::Failure;
use crate::output;

/// The name of the authority in its certificate.
const AUTHORITY: &str = "Lunette key authority";

/// Issue, list and revoke certificates
///
/// The authority is one folder, which is made when it is missing. Its ca-key.pem can issue a certificate in anyone's
/// name: keep the folder away from clients.
#[derive(Args)]
pub(super) struct Ca {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Issue(Issue),
    List(List),
    Revoke(Revoke),
}

/// Issue a certificate, and make a folder with the files for its owner: DIR/NAME
#[derive(Args)]
struct Issue {
    /// The folder of the authority
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The name of the client, by which the key server knows it
    name: String,
    /// The certificate is a server's, which clients reach by these names and addresses
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    server: Vec<String>,
    /// How many days it is valid
    #[arg(long, value_name = "N", default_value_t = 730, value_parser = clap::value_parser!(u32).range(1..=7300))]
    days: u32,
}

/// Show the certificates that were issued
#[derive(Args)]
struct List {
    /// The folder of the authority
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Revoke the certificates of a name
///
/// Servers whose folder is below DIR get the new list at once. Copy DIR/ca-crl.pem to others.
#[derive(Args)]
struct Revoke {
    /// The folder of the authority
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The name
    name: String,
}

pub(super) fn run(arguments: &Ca) -> Result<(), Failure> {
    let now = now().cast_signed();
    let open = |folder: &PathBuf| open(folder, now);
    match &arguments.command {
        Command::Issue(Issue { folder, name, server, days }) => {
            let until = now + i64::from(*days) * 24 * 3600;
            let identities = Identities::server(server);
            let files = open(folder)?.issue(name, &identities, now, until).map_err(Failure::configuration)?;
            output::line(files.display())
        }
        Command::Revoke(Revoke { folder, name }) => {
            open(folder)?.revoke(name, now).map_err(Failure::configuration)?;
            output::line(format_args!("the certificates of {name} are revoked"))
        }
        Command::List(List { folder, json }) => {
            let authority = open(folder)?;
            authority.issued().iter().try_for_each(|issued| show(issued, authority.standing(issued, now), *json))
        }
    }
}

/// Opens the authority of a key server, and makes it when it is missing.
pub(super) fn open(folder: &Path, now: i64) -> Result<Authority, Failure> {
    Authority::open_or_create(folder, AUTHORITY, now).map_err(Failure::configuration)
}

fn show(issued: &Issued, standing: Standing, json: bool) -> Result<(), Failure> {
    let Issued { name, hosts, until, .. } = issued;
    let state = match standing {
        Standing::Revoked => "revoked",
        Standing::Ended => "expired",
        Standing::Valid | Standing::EndsSoon => "valid",
    };
    if json {
        return output::json(&json!({ "name": name, "hosts": hosts, "until": until, "state": state }));
    }
    let kind = if hosts.is_empty() { "client".to_owned() } else { format!("server {}", hosts.join(",")) };
    output::line(format_args!("{name}  {kind}  {state}, until {until}"))
}
