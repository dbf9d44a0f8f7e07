//! Snapshots of several volumes at one instant.

use std::collections::BTreeSet;

use lunette_api::volumes::{Snapshot, SnapshotOrder};
use tonic::Status;

use super::labels;
use super::snapshots::{check_parameters, id_of, time, told};
use super::{Inner, with_patience};
use crate::checks;
use crate::limits::{MAX_GROUP, MAX_TEXT_BYTES};
use crate::names::{self, VolumeId};
use crate::proto::v1::group_controller_service_capability::Rpc;
use crate::proto::v1::group_controller_service_capability::Type;
use crate::proto::v1::group_controller_service_capability::rpc::Type as Can;
use crate::proto::v1::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, DeleteVolumeGroupSnapshotRequest,
    DeleteVolumeGroupSnapshotResponse, GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse, GroupControllerServiceCapability,
    VolumeGroupSnapshot,
};

impl Inner {
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as the other calls")]
    pub(super) fn group_controller_get_capabilities(
        &self,
        _: &GroupControllerGetCapabilitiesRequest,
    ) -> Result<GroupControllerGetCapabilitiesResponse, Status> {
        let rpc = Rpc { r#type: Can::CreateDeleteGetVolumeGroupSnapshot.into() };
        let capability = GroupControllerServiceCapability { r#type: Some(Type::Rpc(rpc)) };
        Ok(GroupControllerGetCapabilitiesResponse { capabilities: vec![capability] })
    }

    pub(super) fn create_volume_group_snapshot(
        &self,
        request: &CreateVolumeGroupSnapshotRequest,
    ) -> Result<CreateVolumeGroupSnapshotResponse, Status> {
        let name = checks::text("name", &request.name, MAX_TEXT_BYTES)?;
        let group = names::snapshot_name(name);
        check_parameters(&request.parameters)?;
        let volumes = self.volumes_of(&request.source_volume_ids)?;
        let together = digest(&volumes);
        let _hold = self.busy.hold(format!("group {name}"))?;
        let known = self.of_group(&group)?;
        if !known.is_empty() {
            let is_same = |one: &Snapshot| labels::value(&one.labels, labels::GROUP_VOLUMES) == together;
            if known.len() != volumes.len() || !known.iter().all(is_same) {
                return Err(Status::already_exists(format!(
                    "the group {name} is there already, and is of other volumes"
                )));
            }
            return Ok(CreateVolumeGroupSnapshotResponse { group_snapshot: Some(group_told(&group, &known)) });
        }
        self.check_name_is_free(name)?;
        let own = [
            (labels::DRIVER, self.settings.driver_name.as_str()),
            (labels::NAME, name),
            (labels::GROUP, &group),
            (labels::GROUP_VOLUMES, &together),
        ];
        let order = SnapshotOrder {
            volumes: volumes.iter().map(ToString::to_string).collect(),
            name: group.clone(),
            labels: own.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        };
        let taken = with_patience(|| self.lunette.take_snapshot(&order))?;
        Ok(CreateVolumeGroupSnapshotResponse { group_snapshot: Some(group_told(&group, &taken)) })
    }

    pub(super) fn delete_volume_group_snapshot(
        &self,
        request: &DeleteVolumeGroupSnapshotRequest,
    ) -> Result<DeleteVolumeGroupSnapshotResponse, Status> {
        let group = checks::text("group_snapshot_id", &request.group_snapshot_id, MAX_TEXT_BYTES)?;
        let _hold = self.busy.hold(format!("group {group}"))?;
        let known = self.of_group(group)?;
        check_members(group, &known, &request.snapshot_ids, false)?;
        for snapshot in &known {
            let id = id_of(snapshot);
            with_patience(|| self.lunette.remove_snapshot(&id))?;
        }
        Ok(DeleteVolumeGroupSnapshotResponse {})
    }

    pub(super) fn get_volume_group_snapshot(
        &self,
        request: &GetVolumeGroupSnapshotRequest,
    ) -> Result<GetVolumeGroupSnapshotResponse, Status> {
        let group = checks::text("group_snapshot_id", &request.group_snapshot_id, MAX_TEXT_BYTES)?;
        let known = self.of_group(group)?;
        if known.is_empty() {
            return Err(Status::not_found(format!("there is no group of snapshots {group}")));
        }
        check_members(group, &known, &request.snapshot_ids, true)?;
        Ok(GetVolumeGroupSnapshotResponse { group_snapshot: Some(group_told(group, &known)) })
    }

    /// The volumes of a call, each once and in order.
    fn volumes_of(&self, ids: &[String]) -> Result<BTreeSet<VolumeId>, Status> {
        check_count(ids.len())?;
        ids.iter().map(|id| self.known(id).map(|(id, _)| id)).collect()
    }

    fn of_group(&self, group: &str) -> Result<Vec<Snapshot>, Status> {
        let mut all = self.own_snapshots()?;
        all.retain(|snapshot| labels::value(&snapshot.labels, labels::GROUP) == group);
        Ok(all)
    }
}

fn check_count(volumes: usize) -> Result<(), Status> {
    if (1..=MAX_GROUP).contains(&volumes) {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("source_volume_ids has {volumes} volumes; a group has 1 to {MAX_GROUP}")))
}

/// Checks that a caller means the snapshots that a group has. Some may be gone, after a call that was cut short.
fn check_members(group: &str, known: &[Snapshot], named: &[String], are_all: bool) -> Result<(), Status> {
    let known: BTreeSet<String> = known.iter().map(|snapshot| id_of(snapshot).to_string()).collect();
    let named: BTreeSet<String> = named.iter().cloned().collect();
    let is_fine = named.is_empty() || if are_all { known == named } else { known.is_subset(&named) };
    if is_fine {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "the group {group} has the snapshots {}, and snapshot_ids are others",
        known.into_iter().collect::<Vec<_>>().join(", ")
    )))
}

fn digest(volumes: &BTreeSet<VolumeId>) -> String {
    names::digest(&volumes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn group_told(group: &str, snapshots: &[Snapshot]) -> VolumeGroupSnapshot {
    VolumeGroupSnapshot {
        group_snapshot_id: group.into(),
        snapshots: snapshots.iter().map(told).collect(),
        creation_time: snapshots.iter().map(|snapshot| snapshot.created).min().map(time),
        ready_to_use: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_volumes_of_a_group_are_bounded() {
        assert!(check_count(1).is_ok() && check_count(MAX_GROUP).is_ok());
        assert!(check_count(0).is_err() && check_count(MAX_GROUP + 1).is_err());
    }

    #[test]
    fn a_caller_that_names_other_snapshots_than_the_group_has_is_refused() {
        let snapshot = |volume: &str| Snapshot {
            pool: "tank".into(),
            volume: volume.into(),
            name: "g".into(),
            size_bytes: 4096,
            created: 1,
            labels: lunette_api::volumes::Labels::default(),
            luns: Vec::new(),
        };
        let check = |known: &[&str], named: &[&str], are_all| {
            let known: Vec<Snapshot> = known.iter().map(|volume| snapshot(volume)).collect();
            let named: Vec<String> = named.iter().map(|volume| format!("tank/{volume}@g")).collect();
            check_members("g", &known, &named, are_all).is_ok()
        };
        assert!(check(&["a", "b"], &[], true) && check(&["a", "b"], &["b", "a"], true));
        assert!(!check(&["a", "b"], &["a"], true) && !check(&["a", "b"], &["a"], false));
        // A delete that was cut short is called again.
        assert!(check(&["b"], &["a", "b"], false) && !check(&["b"], &["a", "b"], true));
        let id = id_of(&snapshot("a"));
        assert_eq!(id.to_string(), "tank/a@g");
    }
}
