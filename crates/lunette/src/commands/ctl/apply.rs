//! `lunette ctl apply` and `plan`: the objects of a file.

use std::path::PathBuf;

use clap::Args;
use lunette_api::client::{ClientError, Condition};
use lunette_api::{Objects, Problem, Tables, objects};
use serde_json::{Value, json};

use super::change::{ATTEMPTS, How};
use super::{Server, failure, print, read_input};
use crate::failure::Failure;

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    how: How,
}

/// The objects that are wanted.
#[derive(Args)]
pub(super) struct Wanted {
    /// A file with tables target and portal, as in the configuration; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Remove the objects that the file does not name; those of the server's main file stay
    #[arg(long)]
    prune: bool,
}

impl Server {
    pub(super) fn apply(&self, arguments: &Arguments) -> Result<(), Failure> {
        let named = named(&arguments.wanted)?;
        for attempt in 1.. {
            let (wanted, etag) = self.wanted(&named, arguments.wanted.prune)?;
            let when = etag.as_deref().map_or(Condition::Always, Condition::Matches);
            match self.client.request("PUT", &arguments.how.url("/v1/config"), Some(&wanted), when) {
                Ok(answer) => return self.print(&answer.value, print::plan),
                Err(ClientError::Refused(Problem { status: 412, .. })) if attempt < ATTEMPTS => {}
                Err(error) => return Err(failure(error)),
            }
        }
        Ok(())
    }

    pub(super) fn plan(&self, arguments: &Wanted) -> Result<(), Failure> {
        let (wanted, etag) = self.wanted(&named(arguments)?, arguments.prune)?;
        let when = etag.as_deref().map_or(Condition::Always, Condition::Matches);
        let answer = self.send("POST", "/v1/config:plan", Some(&wanted), when)?;
        self.print(&answer.value, print::plan)
    }

    /// All objects as they are to be, and the ETag of those that are there.
    fn wanted(&self, named: &Objects, prune: bool) -> Result<(Value, Option<String>), Failure> {
        let now = self.get("/v1/config")?;
        let tables: Tables = serde_json::from_value(now.value).map_err(Failure::other)?;
        let mut wanted = Objects::default();
        if !prune {
            wanted = Objects::from_tables(tables).map_err(Failure::other)?;
        }
        wanted.extend(named).map_err(Failure::configuration)?;
        Ok((json!(wanted.to_tables()), now.etag))
    }
}

/// The objects of the file.
fn named(arguments: &Wanted) -> Result<Objects, Failure> {
    let text = read_input(&arguments.file)?;
    objects::read_tables(&text)
        .and_then(|tables| Objects::from_tables(tables).map_err(|problem| problem.detail))
        .map_err(|why| Failure::configuration(format!("{}: {why}", arguments.file.display())))
}
