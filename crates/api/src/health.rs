//! Objects that are not served as the configuration says, and why.
//!
//! Whatever finds that out reports it with one call, and clears it with another. A trouble that stays is logged once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::server::{Event, Events};

/// A part of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A portal, by its address or interface.
    Portal(String),
    /// A target.
    Target(String),
    /// A logical unit.
    Lun {
        /// The target of the LUN.
        target: String,
        /// The number of the LUN in the target.
        number: u16,
    },
    /// A host of a target.
    Host {
        /// The target.
        target: String,
        /// The name of the host.
        name: String,
    },
    /// The rules of discovery.
    Discovery,
    /// A place of the API.
    Api(String),
    /// A file of `conf.d` whose name is that of no object.
    File(String),
    /// A certificate of the server, by its file.
    Certificate(String),
}

/// The cause of a trouble. A subject has at most one trouble of each cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The subject could not be opened: a disk, an address.
    NotOpened,
    /// The secrets cannot be read or used, so the rule admits no initiator.
    Secret,
    /// A change of the configuration could not be made to it; what was served before goes on.
    NotChanged,
    /// The object's configuration has a mistake: it is left out, or the earlier object stays in service.
    Mistake,
    /// The file of a disk is shorter than the disk was.
    FileShorter,
    /// Another file has the path of a disk's file.
    FileReplaced,
    /// The file of a disk was deleted.
    FileDeleted,
    /// A flush of a disk has failed.
    WritesLost,
    /// A certificate has ended.
    Ended,
}

/// A subject that is not served as the configuration says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Trouble {
    /// `portal`, `target`, `lun`, `host`, `discovery`, `api`, `file` or `certificate`.
    #[schema(example = "lun")]
    pub kind: String,
    /// The name of the subject within its kind.
    #[schema(example = "0")]
    pub name: String,
    /// The target that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The cause.
    pub cause: Cause,
    /// The reason and the remedy.
    pub text: String,
    /// Since when, in seconds since 1970.
    pub since: u64,
}

impl Trouble {
    /// The target that it is of, or of a part of which it is.
    pub fn of_target(&self) -> Option<&str> {
        self.target.as_deref().or_else(|| (self.kind == "target").then_some(&*self.name))
    }
}

/// All troubles of a server.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    troubles: Mutex<BTreeMap<(Subject, Cause), Known>>,
    events: Events,
}

#[derive(Debug, Clone)]
struct Known {
    text: String,
    since: SystemTime,
}

impl Health {
    /// No troubles. New ones, and ends of them, are told to `events`.
    pub fn new(events: Events) -> Self {
        Self(Arc::new(Shared { troubles: Mutex::default(), events }))
    }

    /// The subject is not served as the configuration says. `text` says what is wrong and what to do.
    pub fn report(&self, subject: Subject, cause: Cause, text: impl Into<String>) {
        let text = text.into();
        let key = (subject, cause);
        let mut troubles = self.troubles();
        match troubles.get_mut(&key) {
            Some(known) if known.text == text => return,
            Some(known) => known.text.clone_from(&text),
            None => {
                troubles.insert(key.clone(), Known { text: text.clone(), since: SystemTime::now() });
            }
        }
        drop(troubles);
        let subject = key.0;
        tracing::error!("{subject}: {text}");
        self.tell(&subject, format!("{subject}: {text}"));
    }

    /// The trouble is over, if there was one. The end is told when nothing else troubles the subject.
    pub fn clear(&self, subject: &Subject, cause: Cause) {
        let mut troubles = self.troubles();
        let was_there = troubles.remove(&(subject.clone(), cause)).is_some();
        let is_over = was_there && !troubles.keys().any(|(other, _)| other == subject);
        drop(troubles);
        if is_over {
            tracing::info!("{subject} is served as configured again");
            self.tell(subject, format!("{subject} is served as configured again"));
        }
    }

    /// Replaces the troubles that are `owned` by the troubles `now`.
    pub fn settle(&self, owned: impl Fn(&Subject, Cause) -> bool, now: Vec<(Subject, Cause, String)>) {
        let is_over = |(subject, cause): &(Subject, Cause)| {
            owned(subject, *cause) && !now.iter().any(|(still, of, _)| still == subject && of == cause)
        };
        let over: Vec<_> = self.troubles().keys().filter(|key| is_over(key)).cloned().collect();
        for (subject, cause, text) in now {
            self.report(subject, cause, text);
        }
        for (subject, cause) in &over {
            self.clear(subject, *cause);
        }
    }

    /// Whether there is such a trouble.
    pub fn any(&self, is_meant: impl Fn(&Subject, Cause) -> bool) -> bool {
        self.troubles().keys().any(|(subject, cause)| is_meant(subject, *cause))
    }

    /// Forgets the troubles of subjects that the configuration has no longer.
    pub fn retain(&self, is_there: impl Fn(&Subject) -> bool) {
        self.troubles().retain(|(subject, _), _| is_there(subject));
    }

    /// All troubles, in the order of their subjects.
    pub fn troubles_now(&self) -> Vec<Trouble> {
        let trouble = |((subject, cause), known): (&(Subject, Cause), &Known)| Trouble {
            kind: subject.kind().into(),
            name: subject.name(),
            target: subject.target().map(str::to_owned),
            cause: *cause,
            text: known.text.clone(),
            since: known.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        };
        self.troubles().iter().map(trouble).collect()
    }

    fn tell(&self, subject: &Subject, text: String) {
        let target = subject.target().map(str::to_owned);
        self.0.events.send(Event { kind: "health".into(), text, target, initiator: None });
    }

    fn troubles(&self) -> MutexGuard<'_, BTreeMap<(Subject, Cause), Known>> {
        self.0.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cause {
    /// The name of the cause in metrics and in the API.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotOpened => "not_opened",
            Self::Secret => "secret",
            Self::NotChanged => "not_changed",
            Self::Mistake => "mistake",
            Self::FileShorter => "file_shorter",
            Self::FileReplaced => "file_replaced",
            Self::FileDeleted => "file_deleted",
            Self::WritesLost => "writes_lost",
            Self::Ended => "ended",
        }
    }
}

impl Subject {
    /// A logical unit.
    pub fn lun(target: impl Into<String>, number: u16) -> Self {
        Self::Lun { target: target.into(), number }
    }

    /// A host of a target.
    pub fn host(target: impl Into<String>, name: impl Into<String>) -> Self {
        Self::Host { target: target.into(), name: name.into() }
    }

    /// The kind of the subject.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Portal(_) => "portal",
            Self::Target(_) => "target",
            Self::Lun { .. } => "lun",
            Self::Host { .. } => "host",
            Self::Discovery => "discovery",
            Self::Api(_) => "api",
            Self::File(_) => "file",
            Self::Certificate(_) => "certificate",
        }
    }

    /// The name of the subject within its kind, and within its target if it belongs to one.
    pub fn name(&self) -> String {
        match self {
            Self::Portal(name)
            | Self::Target(name)
            | Self::Host { name, .. }
            | Self::Api(name)
            | Self::File(name)
            | Self::Certificate(name) => name.clone(),
            Self::Lun { number, .. } => number.to_string(),
            Self::Discovery => String::new(),
        }
    }

    /// The target that it is or belongs to.
    pub fn target(&self) -> Option<&str> {
        match self {
            Self::Target(target) | Self::Lun { target, .. } | Self::Host { target, .. } => Some(target),
            Self::Portal(_) | Self::Discovery | Self::Api(_) | Self::File(_) | Self::Certificate(_) => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Portal(name) => write!(f, "portal {name}"),
            Self::Target(name) => write!(f, "target {name}"),
            Self::Lun { target, number } => write!(f, "target {target}: LUN {number}"),
            Self::Host { target, name } => write!(f, "target {target}: host {name}"),
            Self::Discovery => f.write_str("discovery"),
            Self::Api(place) => write!(f, "API at {place}"),
            Self::File(file) => write!(f, "file {file}"),
            Self::Certificate(file) => write!(f, "certificate {file}"),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind.as_str(), &self.target) {
            ("discovery", _) => write!(f, "discovery: {}", self.text),
            ("target", _) | (_, None) => write!(f, "{} {}: {}", self.kind, self.name, self.text),
            ("lun", Some(target)) => write!(f, "target {target}: LUN {}: {}", self.name, self.text),
            (kind, Some(target)) => write!(f, "target {target}: {kind} {}: {}", self.name, self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(health: &Health) -> Vec<String> {
        health.troubles_now().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_trouble_stays_until_it_is_cleared_and_is_told_at_each_change() {
        let events = Events::default();
        let mut told = events.subscribe();
        let health = Health::new(events);
        let lun = Subject::lun("iqn.a", 3);
        health.report(lun.clone(), Cause::NotOpened, "it is missing");
        health.report(lun.clone(), Cause::NotOpened, "it is missing");
        health.report(lun.clone(), Cause::NotChanged, "it is full");
        assert_eq!(texts(&health), ["target iqn.a: LUN 3: it is missing", "target iqn.a: LUN 3: it is full"]);
        health.clear(&lun, Cause::NotOpened);
        health.clear(&lun, Cause::NotOpened);
        assert_eq!(texts(&health), ["target iqn.a: LUN 3: it is full"]);
        health.clear(&lun, Cause::NotChanged);
        let told: Vec<_> = std::iter::from_fn(|| told.try_recv().ok()).map(|event| event.text).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert_eq!(told[2], "target iqn.a: LUN 3 is served as configured again");
    }

    #[test]
    fn what_is_settled_leaves_other_causes_alone() {
        let health = Health::default();
        let (one, two) = (Subject::Portal("192.0.2.1:3260".into()), Subject::lun("iqn.a", 0));
        health.report(one.clone(), Cause::NotOpened, "in use");
        health.report(two.clone(), Cause::NotChanged, "full");
        health
            .settle(|_, cause| cause != Cause::NotChanged, vec![(Subject::Discovery, Cause::Secret, "no file".into())]);
        assert_eq!(texts(&health), ["target iqn.a: LUN 0: full", "discovery: no file"]);
        health.retain(|subject| *subject == Subject::Discovery);
        assert_eq!(health.troubles_now().len(), 1);
    }

    #[test]
    fn a_trouble_is_json_with_the_code_of_its_cause() {
        let health = Health::default();
        let of_files = [Cause::FileShorter, Cause::FileReplaced, Cause::FileDeleted, Cause::WritesLost];
        for cause in [Cause::NotOpened, Cause::Secret, Cause::NotChanged, Cause::Mistake, Cause::Ended]
            .into_iter()
            .chain(of_files)
        {
            health.report(Subject::Target("iqn.a".into()), cause, "x");
        }
        for trouble in health.troubles_now() {
            assert_eq!(serde_json::to_value(trouble.cause).unwrap(), trouble.cause.code());
            assert_eq!(trouble.to_string(), "target iqn.a: x");
        }
    }
}
