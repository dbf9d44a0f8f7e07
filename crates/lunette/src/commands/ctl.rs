//! `lunette ctl`: a client of the API of a running server.

mod apply;
mod change;
mod complete;
mod endpoint;
mod jobs;
mod keys;
mod path;
pub(super) mod print;

use std::io::Read;
use std::path::Path;

use clap::{Args, Subcommand};
use lunette_api::client::{Answer, Client, ClientError, Condition};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output;
pub(super) use endpoint::To;
use path::ObjectPath;

const AFTER_HELP: &str = "\
PATH names an object as the API does, without /v1/:
  targets/IQN                 a target
  targets/IQN/luns/NUMBER     a logical unit of it
  targets/IQN/hosts/NAME      initiators with rules of their own
  portals/ADDR:PORT           a portal

The first logical unit of a new target, for one initiator:
  lunette ctl add targets/iqn.2026-11.org.example:db 'allow=[\"iqn.2026-11.org.example:db-host\"]'
  lunette ctl add targets/iqn.2026-11.org.example:db/luns/0 disk=/srv/db.img create=10G

`add` refuses what is there, `set` changes the keys that it is given, `replace` leaves no other keys. A new target lets in no initiator until `allow` or
a host names it, and a new host none until it has initiators; [\"*\"] is for all. What sessions use is taken away with --force alone. --dry-run changes nothing.

A server on another machine:
  lunette ctl --server https://192.0.2.1:8443 --token-file token --ca api-cert.pem ls

Exit codes: 0 done, 1 the server cannot be reached, or has failed, 2 bad usage, 3 the server refuses the request, or the file
has a mistake. `scrub --wait` and `jobs --wait` exit with 1 when the job has failed, found damage or was cancelled.";

/// Show and change what a running server serves
///
/// The server must have been started with an API (--api unix:PATH, or the table api of its configuration file). What is
/// changed holds at once, and after a restart.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    to: To,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List targets, or what PATH names: luns, portals, sessions, jobs, targets/IQN/luns, targets/IQN/hosts
    Ls {
        #[arg(value_name = "PATH", default_value = "targets")]
        path: ObjectPath,
    },
    /// Show an object with all of its keys
    Show {
        #[arg(value_name = "PATH")]
        path: ObjectPath,
    },
    /// Add an object that is not there yet
    Add(change::Document),
    /// Change keys of an object; all others stay
    Set(change::Set),
    /// Replace all of an object: keys that are not given go back to their defaults, and a target loses the LUNs and
    /// hosts that are not given
    Replace(change::Document),
    /// Remove an object; one that is not there is no failure
    Rm(change::Remove),
    /// Make the disk of a logical unit longer: its file gets this length
    Resize(change::Resize),
    /// Add and replace the objects of a file, all of them or none
    Apply(apply::Arguments),
    /// Say what apply would change, and which sessions would notice what
    Plan(apply::Wanted),
    /// List the sessions
    Sessions,
    /// End a session: its initiator is asked to log out, and may come back
    Kick {
        /// The number that `sessions` shows
        #[arg(value_name = "SESSION", value_parser = session)]
        session: u16,
    },
    /// Read all blocks of a logical unit once, in the background, and find those that are damaged
    Scrub(jobs::Scrub),
    /// List the jobs, show one, wait for its end or cancel it
    Jobs(jobs::Jobs),
    /// Print what happens, as it happens
    Events,
    /// Print the objects that a word may become, for the completions of shells
    #[command(hide = true)]
    Complete {
        #[arg(value_name = "WORD", default_value = "")]
        word: String,
    },
    /// List who has changed what, the latest first
    Audit {
        /// How many entries, up to 1000
        #[arg(long, value_name = "N", default_value_t = 20)]
        count: usize,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.to.server(arguments.json)?;
    match &arguments.command {
        Command::Ls { path } | Command::Show { path } => server.show(path),
        Command::Add(document) => server.add(document),
        Command::Set(set) => server.set(set),
        Command::Replace(document) => server.replace(document),
        Command::Rm(remove) => server.remove(remove),
        Command::Resize(resize) => server.resize(resize),
        Command::Apply(file) => server.apply(file),
        Command::Plan(file) => server.plan(file),
        Command::Sessions => server.show(&ObjectPath::sessions()),
        Command::Kick { session } => {
            server.send("DELETE", &ObjectPath::session(*session).url(), None, Condition::Always)?;
            server.print(&json!({ "asked": session }), |_| format!("session {session} was asked to log out\n"))
        }
        Command::Scrub(scrub) => server.scrub(scrub),
        Command::Jobs(jobs) => server.jobs(jobs),
        Command::Events => server.follow(),
        Command::Complete { word } => server.complete(word),
        Command::Audit { count } => {
            let answer = server.get(&format!("/v1/audit?count={count}"))?;
            server.print(&answer.value, print::audit)
        }
    }
}

fn session(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "write the number that `lunette ctl sessions` shows".into())
}

/// The server, and how its answers are printed.
pub(super) struct Server {
    client: Client,
    json: bool,
}

impl To {
    /// The server, whose answers are printed as JSON or as text.
    pub(super) fn server(&self, json: bool) -> Result<Server, Failure> {
        Ok(Server { client: Client::new(self.endpoint()?).map_err(Failure::other)?, json })
    }
}

impl Server {
    pub(super) fn send(
        &self,
        method: &str,
        url: &str,
        body: Option<&Value>,
        when: Condition<'_>,
    ) -> Result<Answer, Failure> {
        self.client.request(method, url, body, when).map_err(failure)
    }

    pub(super) fn get(&self, url: &str) -> Result<Answer, Failure> {
        self.send("GET", url, None, Condition::Always)
    }

    pub(super) fn print(&self, value: &Value, text: impl FnOnce(&Value) -> String) -> Result<(), Failure> {
        if self.json { output::json(value) } else { output::line(text(value).trim_end()) }
    }

    fn show(&self, path: &ObjectPath) -> Result<(), Failure> {
        let answer = self.get(&path.url())?;
        self.print(&answer.value, |value| match value {
            // A token for some targets is not told of the others.
            Value::Array(_) => {
                print::list(path.last(), value)
                    + &self.get("/v1/health").map_or_else(|_| String::new(), |health| print::troubles(&health.value))
            }
            _ => print::object(value),
        })
    }

    fn follow(&self) -> Result<(), Failure> {
        let mut outcome = Ok(());
        let print = |data: &str| {
            let event = || serde_json::from_str(data).unwrap_or(Value::Null);
            outcome = if self.json { output::line(data) } else { output::line(print::event(&event())) };
            outcome.is_ok()
        };
        self.client.events("/v1/events", print).map_err(failure)?;
        outcome
    }
}

fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Refused(problem) if problem.status < 500 => Failure::configuration(problem),
        error @ ClientError::Token { .. } => Failure::configuration(error),
        error => Failure::other(error),
    }
}

/// A file, or standard input.
fn read_input(path: &Path) -> Result<String, Failure> {
    if path.as_os_str() == "-" { read_bounded(std::io::stdin()) } else { crate::config::read_bounded(path) }
}

/// Standard input, with the bound and the exit code of a file.
fn read_bounded(input: impl Read) -> Result<String, Failure> {
    let (mut bytes, most) = (Vec::new(), crate::config::CONFIGURATION.max_bytes);
    let read = input.take(most as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::other(format!("standard input: {error}")))?;
    if bytes.len() > most {
        return Err(Failure::configuration(format!(
            "standard input is too long for a configuration: {most} bytes at most"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::configuration(format!("standard input is not UTF-8: the byte at {at} is the first that is wrong"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_input_that_is_no_text_is_a_mistake_in_the_configuration() {
        assert_eq!(read_bounded(&b"a"[..]).ok().as_deref(), Some("a"));
        let long = vec![b'#'; crate::config::CONFIGURATION.max_bytes + 1];
        for (input, expected) in [(&b"ab\xfc"[..], "the byte at 2"), (&long, "too long")] {
            let failure = read_bounded(input).err();
            let why = failure.as_ref().map(ToString::to_string).unwrap_or_default();
            assert!(matches!(failure, Some(Failure::Configuration(_))) && why.contains(expected), "{why}");
        }
    }
}
