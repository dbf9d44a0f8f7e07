//! Snapshots of single volumes.

use lunette_api::volumes::{Snapshot, SnapshotOrder};
use tonic::Status;

use super::labels;
use super::{Inner, with_patience};
use crate::checks;
use crate::limits::MAX_TEXT_BYTES;
use crate::names::{self, SnapshotId, VolumeId};
use crate::paging::page;
use crate::proto::v1::list_snapshots_response::Entry;
use crate::proto::v1::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, ListSnapshotsRequest,
    ListSnapshotsResponse, Snapshot as Told,
};

impl Inner {
    pub(super) fn create_snapshot(&self, request: &CreateSnapshotRequest) -> Result<CreateSnapshotResponse, Status> {
        let name = checks::text("name", &request.name, MAX_TEXT_BYTES)?;
        checks::text("source_volume_id", &request.source_volume_id, MAX_TEXT_BYTES)?;
        check_parameters(&request.parameters)?;
        let _hold = self.busy.hold(format!("snapshot {name}"))?;
        let (of, _) = self.known(&request.source_volume_id)?;
        let id = SnapshotId { of, snapshot: names::snapshot_name(name) };
        if let Some(snapshot) = self.snapshot(&id)? {
            let is_same = self.is_own(&snapshot.labels)
                && labels::value(&snapshot.labels, labels::NAME) == name
                && labels::value(&snapshot.labels, labels::GROUP).is_empty();
            if !is_same {
                return Err(Status::already_exists(format!("snapshot {id} is there already, and was made otherwise")));
            }
            return Ok(CreateSnapshotResponse { snapshot: Some(told(&snapshot)) });
        }
        self.check_name_is_free(name)?;
        let own = [(labels::DRIVER, self.settings.driver_name.as_str()), (labels::NAME, name)];
        let order = SnapshotOrder {
            volumes: vec![id.of.to_string()],
            name: id.snapshot.clone(),
            labels: own.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        };
        let taken = with_patience(|| self.lunette.take_snapshot(&order))?;
        Ok(CreateSnapshotResponse { snapshot: taken.first().map(told) })
    }

    pub(super) fn delete_snapshot(&self, request: &DeleteSnapshotRequest) -> Result<DeleteSnapshotResponse, Status> {
        Self::check_id("snapshot_id", &request.snapshot_id)?;
        let gone = Ok(DeleteSnapshotResponse {});
        let Some(id) = SnapshotId::parse(&request.snapshot_id) else { return gone };
        let _hold = self.busy.hold(id.to_string())?;
        let Some(snapshot) = self.snapshot(&id)? else { return gone };
        self.check_own(&snapshot.labels, &format!("snapshot {id}"))?;
        let group = labels::value(&snapshot.labels, labels::GROUP);
        if !group.is_empty() {
            return Err(Status::invalid_argument(format!(
                "snapshot {id} is of the group {group}, and goes with all of it alone; delete the group"
            )));
        }
        with_patience(|| self.lunette.remove_snapshot(&id))?;
        gone
    }

    pub(super) fn list_snapshots(&self, request: &ListSnapshotsRequest) -> Result<ListSnapshotsResponse, Status> {
        let (snapshot_id, source) = (&request.snapshot_id, &request.source_volume_id);
        let all = match (snapshot_id.is_empty(), source.is_empty()) {
            (true, true) => self.own_snapshots()?,
            (false, _) => match SnapshotId::parse(snapshot_id) {
                Some(id) => self.snapshot(&id)?.into_iter().collect(),
                None => Vec::new(),
            },
            (true, false) => match VolumeId::parse(source) {
                Some(of) => self.snapshots_of(&of)?,
                None => Vec::new(),
            },
        };
        let is_meant = |one: &Snapshot| source.is_empty() || id_of(one).of.to_string() == *source;
        let all: Vec<Snapshot> = all.into_iter().filter(is_meant).collect();
        let place = |one: &Snapshot| (one.created, id_of(one).to_string());
        let page = page(all, place, request.max_entries, &request.starting_token)?;
        let entries = page.entries.iter().map(|one| Entry { snapshot: Some(told(one)) }).collect();
        Ok(ListSnapshotsResponse { entries, next_token: page.next_token })
    }

    /// A snapshot, if it is there.
    pub(super) fn snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>, Status> {
        let all = self.lunette.snapshots(&id.of)?.unwrap_or_default();
        Ok(all.into_iter().find(|snapshot| snapshot.name == id.snapshot))
    }

    /// All snapshots that the driver has made.
    pub(super) fn own_snapshots(&self) -> Result<Vec<Snapshot>, Status> {
        let mut all = Vec::new();
        for (of, _) in self.own_volumes()? {
            all.extend(self.snapshots_of(&of)?);
        }
        Ok(all)
    }

    /// The snapshots of a volume that the driver has made.
    fn snapshots_of(&self, of: &VolumeId) -> Result<Vec<Snapshot>, Status> {
        let mut all = self.lunette.snapshots(of)?.unwrap_or_default();
        all.retain(|snapshot| self.is_own(&snapshot.labels));
        Ok(all)
    }

    /// Refuses a name that a snapshot of another volume has.
    pub(super) fn check_name_is_free(&self, name: &str) -> Result<(), Status> {
        let all = self.own_snapshots()?;
        match all.iter().find(|one| labels::value(&one.labels, labels::NAME) == name) {
            Some(other) => Err(Status::already_exists(format!(
                "snapshot {name} is there already, as {}, which is of another volume",
                id_of(other)
            ))),
            None => Ok(()),
        }
    }
}

/// A snapshot has no parameters but those that external-snapshotter takes for itself.
pub(super) fn check_parameters(given: &std::collections::HashMap<String, String>) -> Result<(), Status> {
    checks::map("parameters", given)?;
    match given.keys().find(|key| !key.starts_with("csi.storage.k8s.io/")) {
        Some(key) => Err(Status::invalid_argument(format!("there is no parameter {key:?}; a snapshot has none"))),
        None => Ok(()),
    }
}

/// The identifier of a snapshot.
pub(super) fn id_of(snapshot: &Snapshot) -> SnapshotId {
    let of = VolumeId { pool: snapshot.pool.clone(), volume: snapshot.volume.clone() };
    SnapshotId { of, snapshot: snapshot.name.clone() }
}

/// A snapshot as callers see it.
pub(super) fn told(snapshot: &Snapshot) -> Told {
    let id = id_of(snapshot);
    Told {
        size_bytes: i64::try_from(snapshot.size_bytes).unwrap_or(i64::MAX),
        snapshot_id: id.to_string(),
        source_volume_id: id.of.to_string(),
        creation_time: Some(time(snapshot.created)),
        ready_to_use: true,
        group_snapshot_id: labels::value(&snapshot.labels, labels::GROUP).into(),
    }
}

pub(super) fn time(created: u64) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: i64::try_from(created).unwrap_or(i64::MAX), nanos: 0 }
}
