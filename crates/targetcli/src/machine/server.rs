//! The API of a running server: what it serves, and changes of it.

use std::collections::BTreeMap;
use std::ffi::OsString;

use lunette_api::client::{Client, ClientError, Condition, Endpoint, path};
use lunette_api::objects::{Document, Kind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::limits::API_TIMEOUT;
use crate::translate::{Change, Objects};

/// The socket of a server that is installed as a service.
const SOCKET: &str = "/run/lunette/api.sock";

/// The variables of the environment by which `lunette ctl` finds the server, too.
const API: &str = "LUNETTE_API";
const REMOTE: &str = "LUNETTE_SERVER";

/// The status of an answer when an object has changed meanwhile.
const CHANGED: u16 = 412;

/// The query that takes disks away from sessions, as LIO does without a question.
const FORCE: &str = "?force=true";

pub(super) struct Server {
    client: Client,
}

/// All that is served at one time.
#[derive(Default)]
pub(super) struct Served {
    pub(super) objects: Objects,
    /// ETags of the objects, and whether one stands in the main file.
    marks: BTreeMap<(Kind, String), Mark>,
    /// The lengths of disks in bytes.
    pub(super) sizes: BTreeMap<(String, u16), u64>,
}

struct Mark {
    etag: String,
    is_in_main_file: bool,
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Done,
    /// Another client has changed an object meanwhile, and nothing was done.
    Changed,
    /// The connection has ended before the answer, and it may have been done.
    Unknown,
}

/// An entry of a list of the API.
#[derive(Deserialize)]
struct Entry {
    name: String,
    origin: String,
    etag: String,
    object: Document,
}

/// A disk as the API lists it.
#[derive(Deserialize)]
struct Disk {
    target: String,
    number: u16,
    size_bytes: u64,
}

impl Server {
    /// The server that the environment names.
    pub(super) fn new(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        let socket = match variable(API) {
            None if variable(REMOTE).is_some() => {
                return Err(Failure::new(format!(
                    "{REMOTE}: a server of another machine has disks of its own; run this there"
                )));
            }
            None => SOCKET.into(),
            Some(place) => {
                let place = place.into_string().map_err(|_| Failure::new(format!("{API}: it is no text")))?;
                let socket = place.strip_prefix("unix:").map(str::to_owned);
                socket.ok_or_else(|| Failure::new(format!("{API}: write unix:PATH")))?
            }
        };
        let client = Client::new(Endpoint::Unix(socket.into())).map_err(|error| Failure::new(error.to_string()))?;
        Ok(Self { client: client.with_limit(API_TIMEOUT) })
    }

    pub(super) fn read(&self) -> Result<Served, Failure> {
        let mut served = Served::default();
        for kind in Kind::ALL {
            for entry in self.get::<Vec<Entry>>(list(kind))? {
                let is_in_main_file = entry.origin == "main";
                served.marks.insert((kind, entry.name.clone()), Mark { etag: entry.etag, is_in_main_file });
                let objects = match kind {
                    Kind::Target => &mut served.objects.targets,
                    Kind::Portal => &mut served.objects.portals,
                };
                objects.insert(entry.name, entry.object);
            }
        }
        for Disk { target, number, size_bytes } in self.get::<Vec<Disk>>("luns")? {
            served.sizes.insert((target, number), size_bytes);
        }
        Ok(served)
    }

    pub(super) fn sessions(&self) -> Result<Vec<Value>, Failure> {
        self.get("sessions")
    }

    fn get<T: serde::de::DeserializeOwned>(&self, what: &str) -> Result<T, Failure> {
        let answer = self.client.request("GET", &path(&[what]), None, Condition::Always).map_err(refused)?;
        serde_json::from_value(answer.value).map_err(|error| Failure::new(format!("/v1/{what}: {error}")))
    }

    /// Makes all changes, or none.
    pub(super) fn send(&self, served: &Served, changes: &[Change]) -> Result<Sent, Failure> {
        let mark = |change: &Change| served.marks.get(&(change.kind, change.name.clone()));
        // The API says best why such an object is not changed.
        let refused = changes.iter().find(|change| mark(change).is_some_and(|mark| mark.is_in_main_file));
        match (refused, changes) {
            (Some(one), _) | (None, [one]) => self.send_one(one, mark(one)),
            (None, _) => self.send_all(served, changes),
        }
    }

    fn send_one(&self, change: &Change, mark: Option<&Mark>) -> Result<Sent, Failure> {
        let url = path(&[list(change.kind), &change.name]) + FORCE;
        let when = mark.map_or(Condition::New, |mark| Condition::Matches(&mark.etag));
        let answer = match &change.document {
            Some(document) => self.client.request("PUT", &url, Some(&Value::Object(document.clone())), when),
            None => self.client.request("DELETE", &url, None, when),
        };
        outcome(answer.map(drop))
    }

    fn send_all(&self, served: &Served, changes: &[Change]) -> Result<Sent, Failure> {
        let url = path(&["config"]);
        let answer = self.client.request("GET", &url, None, Condition::Always).map_err(refused)?;
        let mut config = answer.value;
        for Change { kind, name, document } in changes {
            let (before, key) = match kind {
                Kind::Target => (served.objects.targets.get(name), "name"),
                Kind::Portal => (served.objects.portals.get(name), "address"),
            };
            let table = kind.table();
            if config.get(table).is_none() {
                config[table] = json!([]);
            }
            let Some(all) = config.get_mut(table).and_then(Value::as_array_mut) else { continue };
            let place = all.iter().position(|object| object.get(key).and_then(Value::as_str) == Some(name));
            if place.and_then(|place| all[place].as_object()) != before {
                return Ok(Sent::Changed);
            }
            place.map(|place| all.remove(place));
            if let Some(document) = document {
                let mut document = document.clone();
                document.insert(key.into(), name.as_str().into());
                all.push(Value::Object(document));
            }
        }
        let when = answer.etag.as_deref().map_or(Condition::Always, Condition::Matches);
        outcome(self.client.request("PUT", &(url + FORCE), Some(&config), when).map(drop))
    }
}

/// The list of a kind of objects.
fn list(kind: Kind) -> &'static str {
    match kind {
        Kind::Portal => "portals",
        Kind::Target => "targets",
    }
}

fn outcome(answer: Result<(), ClientError>) -> Result<Sent, Failure> {
    match answer {
        Ok(()) => Ok(Sent::Done),
        Err(ClientError::Refused(problem)) if problem.status == CHANGED => Ok(Sent::Changed),
        Err(ClientError::Lost(_) | ClientError::Late(_)) => Ok(Sent::Unknown),
        Err(error) => Err(refused(error)),
    }
}

fn refused(error: ClientError) -> Failure {
    match error {
        ClientError::Refused(problem) => Failure::new(problem.detail),
        other => Failure::new(other.to_string()),
    }
}
