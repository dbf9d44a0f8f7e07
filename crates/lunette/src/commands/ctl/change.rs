//! `lunette ctl add`, `set`, `replace`, `rm` and `resize`: changes of one object.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use clap::Args;
use lunette_api::Problem;
use lunette_api::client::{Answer, ClientError, Condition};
use serde_json::{Value, json};

use super::path::ObjectPath;
use super::{Server, failure, keys, print};
use crate::failure::Failure;
use crate::size::{self, Size};

/// How often a change is made again when another one has come between. Twelve commands that change one object at once
/// all have their turn.
pub(super) const ATTEMPTS: u32 = 40;

/// The longest pause before an attempt; it grows with each. Processes do not keep step, because their numbers differ.
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// Whether a change is made, and whether it may take away what sessions use.
#[derive(Args, Clone, Copy)]
pub(super) struct How {
    /// Print what would change, and change nothing
    #[arg(short = 'n', long)]
    pub(super) dry_run: bool,
    /// Take away what sessions use, too
    #[arg(long)]
    pub(super) force: bool,
}

impl How {
    /// The path of a change with its query.
    pub(super) fn url(self, path: &str) -> String {
        let options = [("dry_run", self.dry_run), ("force", self.force)];
        let query: Vec<_> = options.iter().filter(|(_, on)| *on).map(|(name, _)| format!("{name}=true")).collect();
        if query.is_empty() { path.into() } else { format!("{path}?{}", query.join("&")) }
    }
}

#[derive(Args)]
pub(super) struct Document {
    #[arg(value_name = "PATH")]
    path: ObjectPath,
    /// Keys as in the configuration file, also KEY.KEY; what is no value of TOML counts as text
    #[arg(value_name = "KEY=VALUE")]
    keys: Vec<String>,
    #[command(flatten)]
    how: How,
}

#[derive(Args)]
pub(super) struct Set {
    #[command(flatten)]
    document: Document,
    /// Take this key out, so that its default holds (repeatable)
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
}

#[derive(Args)]
pub(super) struct Remove {
    #[arg(value_name = "PATH")]
    path: ObjectPath,
    #[command(flatten)]
    how: How,
}

#[derive(Args)]
pub(super) struct Resize {
    #[arg(value_name = "targets/IQN/luns/NUMBER")]
    path: ObjectPath,
    /// The new length, such as 20G
    #[arg(value_name = "SIZE")]
    size: Size,
    #[command(flatten)]
    how: How,
}

impl Server {
    /// Adds an object that is not there yet.
    pub(super) fn add(&self, Document { path, keys, how }: &Document) -> Result<(), Failure> {
        path.check_object()?;
        let document = keys::document(&keys::parse(keys)?)?;
        match self.client.request("PUT", &how.url(&path.url()), Some(&document), Condition::New) {
            Err(ClientError::Refused(Problem { status: 412, .. })) => Err(Failure::configuration(format!(
                "{path} is there already; change keys of it with `lunette ctl set`, or all of it with `lunette ctl replace`"
            ))),
            answer => self.tell(*how, &answer.map_err(failure)?, |answer| added(path, &answer.value)),
        }
    }

    /// Replaces all of an object.
    pub(super) fn replace(&self, Document { path, keys, how }: &Document) -> Result<(), Failure> {
        path.check_object()?;
        let document = keys::document(&keys::parse(keys)?)?;
        match self.client.request("PUT", &how.url(&path.url()), Some(&document), Condition::Matches("*")) {
            Err(ClientError::Refused(Problem { status: 412, .. })) => Err(missing(path)),
            answer => self.tell(*how, &answer.map_err(failure)?, |_| format!("{path} replaced\n")),
        }
    }

    /// Changes keys of an object that is there. The others stay.
    pub(super) fn set(&self, Set { document: Document { path, keys, how }, unset }: &Set) -> Result<(), Failure> {
        path.check_object()?;
        let keys = keys::parse(keys)?;
        if keys.is_empty() && unset.is_empty() {
            return Err(Failure::Usage("nothing to set; write KEY=VALUE or --unset KEY".into()));
        }
        let answer = self.edit(path, *how, |document| {
            keys.iter().try_for_each(|(key, value)| keys::set(document, key, value.clone(), path.is_target()))?;
            unset.iter().try_for_each(|key| keys::unset(document, key))
        })?;
        self.tell(*how, &answer, |_| format!("{path} changed\n"))
    }

    pub(super) fn resize(&self, Resize { path, size, how }: &Resize) -> Result<(), Failure> {
        if !path.is_lun() {
            return Err(Failure::Usage(format!("{path} has no size; write targets/IQN/luns/NUMBER")));
        }
        let Size(bytes) = *size;
        if let Some(len_bytes) = self.len_of(path)?.filter(|len_bytes| bytes < *len_bytes) {
            return Err(Failure::configuration(format!(
                "{path} has {len_bytes} bytes; disks do not shrink, so write that or more"
            )));
        }
        let size = size::exact(bytes);
        let had_create = Cell::new(true);
        let answer = self.edit(path, *how, |document| {
            had_create.set(!document["create"].is_null());
            keys::set(document, "create", size.clone().into(), false)
        })?;
        if !how.dry_run {
            if !had_create.get() {
                // A disk that is missing at a later start is not created, and empty, for its length was once changed.
                let unset = |document: &mut Value| {
                    if document["create"].as_str() == Some(&*size) { keys::unset(document, "create") } else { Ok(()) }
                };
                self.edit(path, *how, unset).map_err(|failure| {
                    failure.with(&format!("; {path} has its length, and create={size} is left: take it out with `lunette ctl set {path} --unset create`"))
                })?;
            }
            self.check_len(path, bytes)?;
        }
        self.tell(*how, &answer, |_| format!("{path} resized to {size}\n"))
    }

    /// Refuses to say that a disk has a length that it does not have.
    fn check_len(&self, path: &ObjectPath, wanted: u64) -> Result<(), Failure> {
        match self.len_of(path)? {
            Some(len_bytes) if len_bytes < wanted => Err(Failure::configuration(format!(
                "{path} is to have {wanted} bytes, and {len_bytes} are served now; `lunette ctl ls` and the log say why"
            ))),
            _ => Ok(()),
        }
    }

    /// The length of the disk of a logical unit, if it is served.
    fn len_of(&self, path: &ObjectPath) -> Result<Option<u64>, Failure> {
        let disks = self.get(&ObjectPath::luns().url())?.value;
        let is_it =
            |disk: &&Value| disk["target"].as_str().zip(disk["number"].as_u64()).is_some_and(|it| path.is_lun_of(it));
        Ok(disks.as_array().into_iter().flatten().find(is_it).and_then(|disk| disk["size_bytes"].as_u64()))
    }

    pub(super) fn remove(&self, Remove { path, how }: &Remove) -> Result<(), Failure> {
        path.check_object()?;
        let was_there = match self.client.request("GET", &path.url(), None, Condition::Always) {
            Err(ClientError::Refused(problem)) if problem.status == 404 => false,
            answer => answer.map_err(failure).map(|_| true)?,
        };
        // This has the last word: it refuses a part of a target that is not there.
        let answer = self.send("DELETE", &how.url(&path.url()), None, Condition::Always)?;
        if how.dry_run {
            return self.tell(*how, &answer, |_| String::new());
        }
        let removed = was_there.then(|| path.to_string());
        self.print(&json!({ "removed": removed }), |_| {
            format!("{path} {}\n", if was_there { "removed" } else { "is not there" })
        })
    }

    /// Reads an object, changes it and writes it back, unless another change has come between: then once more.
    fn edit(
        &self,
        path: &ObjectPath,
        how: How,
        change: impl Fn(&mut Value) -> Result<(), String>,
    ) -> Result<Answer, Failure> {
        let mut attempt = 1;
        loop {
            let Answer { mut value, etag, .. } = match self.client.request("GET", &path.url(), None, Condition::Always)
            {
                Err(ClientError::Refused(Problem { status: 404, .. })) => return Err(missing(path)),
                answer => answer.map_err(failure)?,
            };
            change(&mut value).map_err(|why| Failure::configuration(format!("{path}: {why}")))?;
            let when = etag.as_deref().map_or(Condition::Always, Condition::Matches);
            match self.client.request("PUT", &how.url(&path.url()), Some(&value), when) {
                Err(ClientError::Refused(Problem { status: 412, .. })) if attempt < ATTEMPTS => {
                    let pause = Duration::from_millis(u64::from(attempt * (1 + std::process::id() % 8)));
                    thread::sleep(pause.min(MAX_PAUSE));
                    attempt += 1;
                }
                answer => return answer.map_err(failure),
            }
        }
    }

    /// Prints what a change has done, or would do.
    fn tell(&self, how: How, answer: &Answer, done: impl FnOnce(&Answer) -> String) -> Result<(), Failure> {
        self.print(&answer.value, |value| if how.dry_run { print::plan(value) } else { done(answer) })
    }
}

fn missing(path: &ObjectPath) -> Failure {
    Failure::configuration(format!("{path} is not there; add it with `lunette ctl add`"))
}

/// The text after an addition: the object, and a warning that nothing may use it yet, where that is so.
fn added(path: &ObjectPath, object: &Value) -> String {
    let is_empty = |key: &str| object[key].as_array().is_some_and(Vec::is_empty);
    let is_closed_target = path.is_target() && is_empty("allow") && object["host"].as_array().is_none_or(Vec::is_empty);
    let key = match (is_closed_target, path.is_host() && is_empty("initiators")) {
        (true, _) => "allow",
        (false, true) => "initiators",
        (false, false) => return format!("{path} added\n"),
    };
    format!(
        "{path} added; it lets in no initiator yet: lunette ctl set {path} '{key}=[\"IQN\"]', or '{key}=[\"*\"]' for all\n"
    )
}
