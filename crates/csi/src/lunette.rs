//! The requests to the API of the server that the driver makes. Each waits for its answer.

use std::io;

use lunette_api::Trouble;
use lunette_api::client::{self, Client, ClientError, Condition, Endpoint};
use lunette_api::volumes::{NewVolume, Pool, Snapshot, SnapshotOrder, Taken, Volume, VolumeChange};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tonic::Status;

use crate::limits::API_TIMEOUT;
use crate::names::{SnapshotId, VolumeId};
use crate::status::{has_changed, is_missing, refused};

/// The server.
pub(crate) struct Lunette(Client);

/// A target, as far as the driver knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Target {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default, rename = "host")]
    pub(crate) hosts: Vec<Host>,
    #[serde(default, rename = "lun")]
    pub(crate) luns: Vec<Lun>,
}

/// A host of a target.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Host {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) initiators: Vec<String>,
    #[serde(default)]
    pub(crate) read_only: bool,
}

/// A logical unit of a target.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Lun {
    pub(crate) number: u16,
    pub(crate) disk: String,
}

/// A session, as far as the driver knows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Session {
    pub(crate) id: u16,
    pub(crate) target: Option<String>,
    pub(crate) initiator: String,
}

/// An entry of a list of objects.
#[derive(Deserialize)]
struct Entry<T> {
    name: String,
    object: T,
}

impl Lunette {
    /// The server at an endpoint.
    pub(crate) fn new(endpoint: Endpoint) -> io::Result<Self> {
        Client::new(endpoint).map(|client| Self(client.with_limit(API_TIMEOUT)))
    }

    /// Whether the API answers.
    pub(crate) fn answers(&self) -> Result<(), Status> {
        self.send("GET", "/healthz", None, Condition::Always).map(drop).map_err(refused)
    }

    pub(crate) fn pools(&self) -> Result<Vec<Pool>, Status> {
        self.get(&["pools"])
    }

    pub(crate) fn volumes(&self) -> Result<Vec<Volume>, Status> {
        self.get(&["volumes"])
    }

    pub(crate) fn volume(&self, id: &VolumeId) -> Result<Option<Volume>, Status> {
        self.find(&["volumes", &id.pool, &id.volume])
    }

    pub(crate) fn create_volume(&self, id: &VolumeId, new: &NewVolume) -> Result<Volume, Status> {
        self.change("POST", &["volumes", &id.pool, &id.volume], Some(&body(new)?)).and_then(read)
    }

    pub(crate) fn resize_volume(&self, id: &VolumeId, size_bytes: u64) -> Result<Volume, Status> {
        let change = VolumeChange { size_bytes: Some(size_bytes), ..VolumeChange::default() };
        self.change("PATCH", &["volumes", &id.pool, &id.volume], Some(&body(&change)?)).and_then(read)
    }

    pub(crate) fn remove_volume(&self, id: &VolumeId) -> Result<(), Status> {
        self.remove(&client::path(&["volumes", &id.pool, &id.volume]))
    }

    /// The snapshots of a volume, or `None` without the volume.
    pub(crate) fn snapshots(&self, of: &VolumeId) -> Result<Option<Vec<Snapshot>>, Status> {
        self.find(&["volumes", &of.pool, &of.volume, "snapshots"])
    }

    pub(crate) fn take_snapshot(&self, order: &SnapshotOrder) -> Result<Vec<Snapshot>, Status> {
        self.change("POST", &["snapshots"], Some(&body(order)?)).and_then(read).map(|taken: Taken| taken.snapshots)
    }

    pub(crate) fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), Status> {
        let SnapshotId { of: VolumeId { pool, volume }, snapshot } = id;
        self.remove(&client::path(&["volumes", pool, volume, "snapshots", snapshot]))
    }

    pub(crate) fn targets(&self) -> Result<Vec<Target>, Status> {
        let entries: Vec<Entry<Target>> = self.get(&["targets"])?;
        Ok(entries.into_iter().map(|Entry { name, object }| Target { name, ..object }).collect())
    }

    pub(crate) fn target(&self, name: &str) -> Result<Option<Target>, Status> {
        self.find(&["targets", name])
    }

    /// Adds a target that serves `disk` as LUN 0, and admits no initiator.
    pub(crate) fn create_target(&self, name: &str, disk: &str) -> Result<(), Status> {
        let target = json!({ "allow": [], "lun": [{ "number": 0, "disk": disk }] });
        match self.send("PUT", &client::path(&["targets", name]), Some(&target), Condition::New) {
            Err(error) if !has_changed(&error) => Err(refused(error)),
            // Another one may have made it meanwhile; the caller looks at it again.
            _ => Ok(()),
        }
    }

    /// Removes a target, unless a session uses it.
    pub(crate) fn remove_target(&self, name: &str) -> Result<(), Status> {
        self.remove(&client::path(&["targets", name]))
    }

    pub(crate) fn create_host(&self, target: &str, name: &str, host: &Value) -> Result<(), Status> {
        let path = client::path(&["targets", target, "hosts", name]);
        self.send("PUT", &path, Some(host), Condition::New).map(drop).map_err(refused)
    }

    /// Removes a host, and ends the sessions that belong to it.
    pub(crate) fn remove_host(&self, target: &str, name: &str) -> Result<(), Status> {
        self.remove(&format!("{}?force=true", client::path(&["targets", target, "hosts", name])))
    }

    pub(crate) fn sessions(&self) -> Result<Vec<Session>, Status> {
        self.get(&["sessions"])
    }

    pub(crate) fn end_session(&self, id: u16) -> Result<(), Status> {
        self.remove(&client::path(&["sessions", &id.to_string()]))
    }

    pub(crate) fn troubles(&self) -> Result<Vec<Trouble>, Status> {
        self.get(&["health"])
    }

    /// The addresses of the portals among the objects.
    pub(crate) fn portals(&self) -> Result<Vec<String>, Status> {
        let entries: Vec<Entry<Value>> = self.get(&["portals"])?;
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }

    fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Status> {
        self.change("GET", path, None).and_then(read)
    }

    fn find<T: DeserializeOwned>(&self, path: &[&str]) -> Result<Option<T>, Status> {
        match self.send("GET", &client::path(path), None, Condition::Always) {
            Ok(value) => read(value).map(Some),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    fn change(&self, method: &str, path: &[&str], body: Option<&Value>) -> Result<Value, Status> {
        self.send(method, &client::path(path), body, Condition::Always).map_err(refused)
    }

    /// Removes what may be gone already.
    fn remove(&self, path: &str) -> Result<(), Status> {
        match self.send("DELETE", path, None, Condition::Always) {
            Err(error) if !is_missing(&error) => Err(refused(error)),
            _ => Ok(()),
        }
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>, when: Condition<'_>) -> Result<Value, ClientError> {
        self.0.request(method, path, body, when).map(|answer| answer.value)
    }
}

fn body(value: &impl serde::Serialize) -> Result<Value, Status> {
    serde_json::to_value(value).map_err(|error| Status::internal(format!("a request to the server: {error}")))
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, Status> {
    serde_json::from_value(value).map_err(|error| {
        Status::internal(format!("the answer of the server is not as expected: {error}; is it of another version?"))
    })
}
