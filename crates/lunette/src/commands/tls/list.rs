//! The certificates of an authority.

use std::path::PathBuf;

use clap::Args;
use lunette_tls::authority::{Issued, Standing};
use serde_json::json;
use time::OffsetDateTime;

use super::open;
use crate::failure::Failure;
use crate::output;

/// Show the certificates that were issued: name, identities, state and end
///
/// A certificate ends soon when it has 30 days left and was not renewed.
#[derive(Args)]
pub(super) struct List {
    /// The folder of the authority
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(&self, now: i64) -> Result<(), Failure> {
        let authority = open(&self.folder)?;
        authority.issued().iter().try_for_each(|issued| show(issued, authority.standing(issued, now), self.json))
    }
}

fn show(issued: &Issued, standing: Standing, json: bool) -> Result<(), Failure> {
    let Issued { name, hosts, iscsi_names, dns_names, until, .. } = issued;
    let state = match standing {
        Standing::Valid => "valid",
        Standing::EndsSoon => "ends soon",
        Standing::Ended => "ended",
        Standing::Revoked => "revoked",
    };
    if json {
        return output::json(&json!({
            "name": name, "hosts": hosts, "iscsi_names": iscsi_names, "dns_names": dns_names, "until": until,
            "state": state,
        }));
    }
    let kind = if hosts.is_empty() { "client" } else { "server" };
    let names = [hosts, iscsi_names, dns_names].into_iter().flatten();
    let identities = names.fold(kind.to_owned(), |text, name| text + " " + name);
    output::line(format_args!("{name}  {identities}  {state}, until {}", day(*until)))
}

/// The day of a time, in UTC.
fn day(seconds: i64) -> String {
    OffsetDateTime::from_unix_timestamp(seconds).map_or_else(|_| seconds.to_string(), |time| time.date().to_string())
}
