//! `lunette ctl`: a client of the API of a running server.

mod apply;
mod path;
mod print;

use std::io::Read as _;
use std::path::Path;

use clap::{Args, Subcommand};
use lunette_api::client::{Answer, Client, ClientError};
use serde_json::{Map, Value, json};

use crate::config::api::Place;
use crate::failure::Failure;
use crate::output;
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

Exit codes: 0 done, 1 the server cannot be reached, or has failed, 2 bad usage, 3 the server refuses the request, or the file
has a mistake.";

/// Show and change what a running server serves
///
/// The server must have been started with an API (--api unix:PATH, or the table api of its configuration file). What is changed holds at once, and after a restart.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The server's socket
    #[arg(
        long,
        value_name = "unix:PATH",
        env = "LUNETTE_API",
        default_value = "unix:/run/lunette/api.sock",
        global = true
    )]
    api: Place,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List targets, or what PATH names: luns, portals, sessions, targets/IQN/luns, targets/IQN/hosts
    Ls {
        #[arg(value_name = "PATH", default_value = "targets")]
        path: ObjectPath,
    },
    /// Show an object with all of its keys
    Show {
        #[arg(value_name = "PATH")]
        path: ObjectPath,
    },
    /// Add an object, or replace it
    Add {
        #[arg(value_name = "PATH")]
        path: ObjectPath,
        /// Keys as in the configuration file; what is no value of TOML counts as text
        #[arg(value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// Remove an object; one that is not there is no failure
    Rm {
        #[arg(value_name = "PATH")]
        path: ObjectPath,
    },
    /// Make the disk of a logical unit longer: its file gets this length
    Resize {
        #[arg(value_name = "targets/IQN/luns/NUMBER")]
        path: ObjectPath,
        /// Such as 20G
        #[arg(value_name = "SIZE")]
        size: String,
    },
    /// Add and replace the objects of a file, all of them or none
    Apply(apply::Arguments),
    /// Say what apply would change, and which sessions would notice what
    Plan(apply::Arguments),
    /// List the sessions
    Sessions,
    /// End a session: its initiator is asked to log out, and may come back
    Kick {
        /// The number that `sessions` shows
        #[arg(value_name = "SESSION", value_parser = session)]
        session: u16,
    },
    /// Print what happens, as it happens
    Events,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Place::Unix(socket) = &arguments.api else {
        return Err(Failure::Usage(format!("{}: ctl speaks to Unix sockets; write unix:PATH", arguments.api)));
    };
    let server = Server { client: Client::new(socket).map_err(Failure::other)?, json: arguments.json };
    match &arguments.command {
        Command::Ls { path } | Command::Show { path } => server.show(path),
        Command::Add { path, keys } => {
            let document = document(keys)?;
            let answer = server.send("PUT", &path.url(), Some(&document), None)?;
            server.print(&answer.value, |_| {
                format!("{path} {}\n", if answer.status == 201 { "added" } else { "replaced" })
            })
        }
        Command::Rm { path } => server.remove(path),
        Command::Resize { path, size } => server.resize(path, size),
        Command::Apply(file) => server.apply(file),
        Command::Plan(file) => server.plan(file),
        Command::Sessions => server.show(&ObjectPath::sessions()),
        Command::Kick { session } => {
            server.send("DELETE", &ObjectPath::session(*session).url(), None, None)?;
            server.print(&json!({ "asked": session }), |_| format!("session {session} was asked to log out\n"))
        }
        Command::Events => server.follow(),
    }
}

fn session(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "write the number that `lunette ctl sessions` shows".into())
}

/// The server, and how its answers are printed.
struct Server {
    client: Client,
    json: bool,
}

impl Server {
    fn send(&self, method: &str, url: &str, body: Option<&Value>, etag: Option<&str>) -> Result<Answer, Failure> {
        self.client.request(method, url, body, etag).map_err(failure)
    }

    fn get(&self, url: &str) -> Result<Answer, Failure> {
        self.send("GET", url, None, None)
    }

    fn print(&self, value: &Value, text: impl FnOnce(&Value) -> String) -> Result<(), Failure> {
        if self.json { output::json(value) } else { output::line(text(value).trim_end()) }
    }

    fn show(&self, path: &ObjectPath) -> Result<(), Failure> {
        let answer = self.get(&path.url())?;
        self.print(&answer.value, |value| match value {
            Value::Array(_) => print::list(path.last(), value),
            _ => print::object(value),
        })
    }

    fn remove(&self, path: &ObjectPath) -> Result<(), Failure> {
        let was_there = match self.client.request("GET", &path.url(), None, None) {
            Err(ClientError::Refused(problem)) if problem.status == 404 => false,
            answer => answer.map_err(failure).map(|_| true)?,
        };
        // This has the last word: it refuses a part of a target that is not there.
        self.send("DELETE", &path.url(), None, None)?;
        let removed = was_there.then(|| path.to_string());
        self.print(&json!({ "removed": removed }), |_| {
            format!("{path} {}\n", if was_there { "removed" } else { "is not there" })
        })
    }

    /// Changes one key of what was read, unless another change has come between.
    fn resize(&self, path: &ObjectPath, size: &str) -> Result<(), Failure> {
        if !path.is_lun() {
            return Err(Failure::Usage(format!("{path} has no size; write targets/IQN/luns/NUMBER")));
        }
        let Answer { mut value, etag, .. } = self.get(&path.url())?;
        value["create"] = size.into();
        let answer = self.send("PUT", &path.url(), Some(&value), etag.as_deref())?;
        self.print(&answer.value, |_| format!("{path} resized to {size}\n"))
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
        error => Failure::other(error),
    }
}

/// The document that KEY=VALUE arguments make.
fn document(keys: &[String]) -> Result<Value, Failure> {
    let one = |text: &String| match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), parse_value(value))),
        _ => Err(Failure::Usage(format!("{text:?}: write KEY=VALUE"))),
    };
    keys.iter().map(one).collect::<Result<Map<_, _>, _>>().map(Value::Object)
}

/// A value of TOML, or else text.
fn parse_value(text: &str) -> Value {
    let parsed: Result<Map<String, Value>, _> = toml::from_str(&format!("value = {text}"));
    match parsed {
        Ok(mut table) if table.len() == 1 => table.remove("value").unwrap_or_default(),
        _ => text.into(),
    }
}

/// A file, or standard input.
fn read_input(path: &Path) -> Result<String, Failure> {
    if path.as_os_str() != "-" {
        return crate::config::read_bounded(path);
    }
    let (mut text, most) = (String::new(), crate::config::CONFIGURATION.max_bytes);
    std::io::stdin().take(most as u64 + 1).read_to_string(&mut text).map_err(Failure::other)?;
    if text.len() > most {
        return Err(Failure::Usage(format!("standard input is too long for a configuration: {most} bytes at most")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_toml_or_else_text() {
        for (text, expected) in [
            ("10G", json!("10G")),
            ("4096", json!(4096)),
            ("true", json!(true)),
            ("\"4096\"", json!("4096")),
            ("/srv/a b", json!("/srv/a b")),
            ("[\"iqn.a\"]", json!(["iqn.a"])),
            ("{ to = [\"192.0.2.1\"] }", json!({ "to": ["192.0.2.1"] })),
            ("1\nother = 2", json!("1\nother = 2")),
        ] {
            assert_eq!(parse_value(text), expected, "{text}");
        }
        assert!(document(&["alias".into()]).is_err());
        assert_eq!(document(&["alias=a=b".into()]).unwrap(), json!({ "alias": "a=b" }));
    }
}
