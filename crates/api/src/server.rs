//! The server behind the API, as a trait, and what it tells.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::audit::AuditLog;
use crate::callers::Caller;
use crate::health::{Health, Trouble};
use crate::jobs::{Job, Jobs};
use crate::limits::MAX_EVENTS_BEHIND;
use crate::objects::{Document, Key, Kind, Objects};
use crate::problem::Problem;
use crate::volumes::Volumes;

/// The server that the API is the front of. Methods that wait are called on threads where waiting is allowed.
pub trait Server: Send + Sync + 'static {
    /// All objects that are served, without passwords. Does not wait.
    fn catalog(&self) -> Arc<Catalog>;

    /// Computes the effects of a change.
    ///
    /// # Errors
    ///
    /// Why it cannot be made.
    fn plan(&self, order: Order) -> Result<Plan, Problem>;

    /// Makes a change, as a whole or not at all, and keeps it over a restart. One that takes away what sessions use is
    /// refused, unless it is forced.
    ///
    /// # Errors
    ///
    /// Why it was not made.
    fn change(&self, order: Order) -> Result<Changed, Problem>;

    /// All sessions.
    ///
    /// # Errors
    ///
    /// When the server stops.
    fn sessions(&self) -> Result<Vec<Session>, Problem>;

    /// Asks the initiator of a session to log out, for a client of the API. Whether there is such a session.
    ///
    /// # Errors
    ///
    /// When the server stops.
    fn end_session(&self, id: u16, caller: &Caller) -> Result<bool, Problem>;

    /// The disks of all logical units, as they are served now.
    fn disks(&self) -> Vec<Disk>;

    /// Whether initiators are served, or why not. Does not wait.
    ///
    /// # Errors
    ///
    /// A sentence for people.
    fn ready(&self) -> Result<(), String>;

    /// The objects that are not served as the configuration says. Does not wait.
    fn troubles(&self) -> Vec<Trouble> {
        Vec::new()
    }

    /// Where the API tells what it cannot serve as configured, and the log with it.
    fn health(&self) -> Option<&Health> {
        None
    }

    /// The numbers of the server as Prometheus reads them, if it has them. Does not wait.
    fn metrics(&self) -> Option<String> {
        None
    }

    /// Starts to read all blocks of a logical unit once, for a client of the API. The result of the job lists blocks
    /// that cannot be read, or are damaged.
    ///
    /// # Errors
    ///
    /// When there is no such unit, its disk is not open, or no job is taken.
    fn scrub(&self, target: &str, lun: u16, caller: &Caller) -> Result<Arc<Job>, Problem>;

    /// The pools of volumes, for a server that has some.
    fn volumes(&self) -> Option<&dyn Volumes> {
        None
    }

    /// The jobs of the server.
    fn jobs(&self) -> &Jobs;

    /// The jobs that the client of this server may see, in the order of their numbers.
    fn seen_jobs(&self) -> Vec<Arc<Job>> {
        self.jobs().list()
    }

    /// The events of the server.
    fn events(&self) -> &Events;

    /// The log of all changes.
    fn audit(&self) -> &AuditLog;

    /// The schemas of the documents: `Target`, `Lun`, `Host` and `Portal`, and those that they refer to.
    fn schemas(&self) -> Vec<(String, RefOr<Schema>)>;
}

/// A change from the served objects to those that `conf.d` is to hold, or the reason against it. No other change comes
/// between. `***` in a document keeps the stored password.
pub type Edit = Box<dyn FnOnce(&Catalog) -> Result<Objects, Problem> + Send>;

/// A change that a client asks for.
pub struct Order {
    /// The change.
    pub edit: Edit,
    /// The client.
    pub caller: Caller,
    /// Whether it may take away what sessions use.
    pub force: bool,
}

/// A change that was made.
#[derive(Debug, Clone, Default)]
pub struct Changed {
    /// The change that was made.
    pub plan: Plan,
    /// All objects as they are since.
    pub catalog: Arc<Catalog>,
}

/// All objects that are served.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    /// The name of the main file.
    pub main_file: String,
    /// The objects of the main file, which the API does not change.
    pub main: Objects,
    /// The objects of `conf.d`.
    pub objects: Objects,
}

/// Where an object stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// In the main file, which the API does not write.
    Main,
    /// In a file of its own in `conf.d`.
    #[serde(rename = "conf.d")]
    ConfD,
}

impl Catalog {
    /// The document of an object.
    pub fn find(&self, key: &Key) -> Option<&Document> {
        self.main.get(key).or_else(|| self.objects.get(key))
    }

    /// All objects of a kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = (&str, &Document, Origin)> {
        let main = self.main.of(kind).map(|(name, document)| (name, document, Origin::Main));
        // Of two with one name, the main file's is served.
        let is_served = move |name: &str| Key::new(kind, name).is_ok_and(|key| self.main.get(&key).is_none());
        let objects = self.objects.of(kind).filter(move |(name, _)| is_served(name));
        main.chain(objects.map(|(name, document)| (name, document, Origin::ConfD)))
    }
}

/// The effects of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Plan {
    /// Each change, in the order in which they are made; none when all is as wanted.
    pub changes: Vec<PlannedChange>,
    /// Whether it takes `force`, because it takes away what sessions use.
    pub needs_force: bool,
}

impl Plan {
    /// Refuses a change that takes away what sessions use.
    ///
    /// # Errors
    ///
    /// The objects that are in use, and their sessions.
    pub fn check_use(&self) -> Result<(), Problem> {
        if !self.needs_force {
            return Ok(());
        }
        let used = self.changes.iter().filter(|change| change.takes_away && !change.sessions.is_empty());
        let named: Vec<String> = used.map(PlannedChange::named).collect();
        Err(Problem::in_use(format!("{}; end the sessions first, or force the change", named.join("; "))))
    }
}

/// The sessions that a message names. It counts the others.
const NAMED_SESSIONS: usize = 8;

impl PlannedChange {
    /// The change with the sessions that use what it takes away.
    fn named(&self) -> String {
        let named = self.sessions.iter().take(NAMED_SESSIONS);
        let mut sessions: Vec<String> =
            named.map(|Notice { session, initiator, .. }| format!("session {session} of {initiator}")).collect();
        if let Some(more @ 1..) = self.sessions.len().checked_sub(NAMED_SESSIONS) {
            sessions.push(format!("{more} more"));
        }
        format!("{}: in use by {}", self.change, sessions.join(", "))
    }
}

/// One change to what is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PlannedChange {
    /// The description of the change.
    #[schema(example = "target iqn.2026-11.org.example:db: LUN 1 added")]
    pub change: String,
    /// The sessions whose initiators notice it.
    pub sessions: Vec<Notice>,
    /// Whether it takes away a target, a logical unit, a host or a portal, or something that a session uses.
    pub takes_away: bool,
    /// Why it could not be made now; of a plan alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "/srv/db.img: no such file or device; check the path, or give a size to create the file")]
    pub obstacle: Option<String>,
}

/// The effect of a change on an initiator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Notice {
    /// The session.
    pub session: u16,
    /// The initiator.
    pub initiator: String,
    /// The message or request that the initiator gets.
    #[schema(example = "unit attention REPORTED LUNS DATA HAS CHANGED")]
    pub notices: String,
}

/// A session. The keys of its login have the names of RFC 7143 in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Session {
    /// The number of the session (its TSIH).
    pub id: u16,
    /// The target; none in a discovery session.
    pub target: Option<String>,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The initiator's part of the session's name.
    #[schema(example = "80a1b2c30000")]
    pub isid: String,
    /// The host of the target that the initiator belongs to; empty when the target has no hosts.
    pub host: Option<String>,
    /// The CHAP user, when the target asked for a proof.
    pub user: Option<String>,
    /// The identity that the certificate of its first connection has proven: a URI, a DNS name or a fingerprint.
    pub certificate: Option<String>,
    /// The CHAP algorithm of that proof.
    #[schema(example = "sha256")]
    pub chap_algorithm: Option<String>,
    /// The tag of its portal group.
    pub portal_group: u16,
    /// Where its connections come from.
    #[schema(example = json!(["192.0.2.7:51234"]))]
    pub peers: Vec<String>,
    /// The addresses of the server that they have come to.
    #[schema(example = json!(["192.0.2.1:3260"]))]
    pub portals: Vec<String>,
    /// How long ago it began.
    pub age_seconds: u64,
    /// The bytes that its commands have read.
    pub read_bytes: u64,
    /// The bytes that they have written.
    pub written_bytes: u64,
    /// Commands under way.
    pub commands: usize,
    /// `None` or `CRC32C`.
    pub header_digest: String,
    /// `None` or `CRC32C`.
    pub data_digest: String,
    /// 0, 1 or 2.
    pub error_recovery_level: u32,
    /// Connections that the session may have.
    pub max_connections: u32,
    /// The longest data segment that the target takes, in bytes.
    pub max_recv_data_segment_length: u32,
    /// The longest sequence of data, in bytes.
    pub max_burst_length: u32,
    /// The most unsolicited data of one command, in bytes.
    pub first_burst_length: u32,
    /// Whether data waits for an R2T.
    pub initial_r2t: bool,
    /// Whether commands may carry data.
    pub immediate_data: bool,
}

/// The disk of a logical unit, as it is served now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Disk {
    /// The target.
    pub target: String,
    /// The LUN.
    pub number: u16,
    /// The length of the disk in bytes.
    pub size_bytes: u64,
    /// The length of a logical block in bytes.
    pub block_size: u32,
    /// The serial number by which initiators know it.
    pub serial: String,
}

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// `change`, `session`, `job`, `health` or `lost`.
    pub kind: String,
    /// The event as a text for people.
    pub text: String,
    /// The target that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The initiator that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
}

/// The way of events from the server to those who read them. Senders never wait: a reader that is too far behind misses
/// events.
#[derive(Debug, Clone)]
pub struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_EVENTS_BEHIND))
    }
}

impl Events {
    /// Tells all readers.
    pub fn send(&self, event: Event) {
        // It fails when there are no readers.
        let _ = self.0.send(event);
    }

    /// Reads the events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}
