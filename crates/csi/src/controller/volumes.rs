//! Volumes: create, delete, grow, list.

use std::collections::HashMap;

use lunette_api::volumes::{Labels, NewVolume, Volume};
use tonic::Status;

use super::health::Sight;
use super::labels;
use super::parameters::Parameters;
use super::{Inner, with_patience};
use crate::capacity::Wanted;
use crate::checks::{self, Use};
use crate::limits::MAX_TEXT_BYTES;
use crate::names::{SnapshotId, VolumeId};
use crate::paging::page;
use crate::proto::v1::controller_get_volume_response::VolumeStatus as OneStatus;
use crate::proto::v1::list_volumes_response::{Entry, VolumeStatus};
use crate::proto::v1::validate_volume_capabilities_response::Confirmed;
use crate::proto::v1::volume_content_source::Type as Source;
use crate::proto::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetVolumeRequest,
    ControllerGetVolumeResponse, CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
    ListVolumesRequest, ListVolumesResponse, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
    Volume as Told,
};

/// The content of a new volume.
struct Origin {
    /// The identifier, with its kind.
    label: String,
    /// The pool.
    pool: String,
    /// The name in the pool: `VOLUME` or `VOLUME@SNAPSHOT`.
    clone_of: String,
    len_bytes: u64,
}

impl Inner {
    pub(super) fn create_volume(&self, request: &CreateVolumeRequest) -> Result<CreateVolumeResponse, Status> {
        let name = checks::text("name", &request.name, MAX_TEXT_BYTES)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("volume_capabilities is empty"));
        }
        for capability in &request.volume_capabilities {
            Use::new(capability).map_err(Status::invalid_argument)?;
        }
        if !request.mutable_parameters.is_empty() {
            return Err(Status::invalid_argument("there are no mutable parameters; remove the VolumeAttributesClass"));
        }
        let parameters = Parameters::new(&request.parameters)?;
        let wanted = Wanted::new(request.capacity_range.as_ref())?;
        let _hold = self.busy.hold(format!("volume {name}"))?;
        let source = request.volume_content_source.as_ref().and_then(|source| source.r#type.as_ref());
        let origin = source.map(|source| self.origin(source)).transpose()?;
        let origin_pool = origin.as_ref().map(|origin| origin.pool.as_str());
        let pool = self.pool_for(&parameters, origin_pool, request.accessibility_requirements.as_ref())?;
        let id = VolumeId::of_name(&pool, name);
        let portals = self.portals(&parameters)?;
        let prefix = parameters.target_prefix.as_ref().unwrap_or(&self.settings.target_prefix);
        let target = id.target(prefix);
        let source_label = origin.as_ref().map_or("", |origin| &origin.label);
        let labels = labels::of_volume(&self.settings.driver_name, name, &target, source_label, &parameters);
        let volume = match self.made_before(&id, name)? {
            Some(volume) => {
                check_same(&volume, &id, &labels, wanted)?;
                volume
            }
            None => self.make(&id, labels, wanted, origin.as_ref(), parameters.full)?,
        };
        self.serve(&id, &target)?;
        let volume = Told {
            capacity_bytes: told_bytes(volume.size_bytes),
            volume_id: id.to_string(),
            volume_context: volume_context(&target, &portals, &parameters),
            content_source: request.volume_content_source.clone(),
            accessible_topology: self.topology_of(&id.pool),
        };
        Ok(CreateVolumeResponse { volume: Some(volume) })
    }

    pub(super) fn delete_volume(&self, request: &DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Status> {
        Self::check_id("volume_id", &request.volume_id)?;
        let gone = Ok(DeleteVolumeResponse {});
        let Some(id) = VolumeId::parse(&request.volume_id) else { return gone };
        let _hold = self.busy.hold(id.to_string())?;
        let Some(volume) = self.lunette.volume(&id)? else { return gone };
        self.check_own(&volume.labels, &format!("volume {id}"))?;
        let snapshots = self.lunette.snapshots(&id)?.unwrap_or_default();
        if !snapshots.is_empty() {
            let named: Vec<&str> = snapshots.iter().take(8).map(|snapshot| snapshot.name.as_str()).collect();
            return Err(Status::failed_precondition(format!(
                "volume {id} has {} snapshots, such as {}; remove them first",
                snapshots.len(),
                named.join(", ")
            )));
        }
        let target = labels::value(&volume.labels, labels::TARGET);
        if let Some(found) = self.lunette.target(target)?.filter(|found| found.serves(&id)) {
            let nodes = found.nodes();
            if !nodes.is_empty() {
                return Err(Status::failed_precondition(format!(
                    "volume {id} is published to {}; take it from there first",
                    nodes.join(", ")
                )));
            }
            self.lunette.remove_target(target)?;
        }
        with_patience(|| self.lunette.remove_volume(&id))?;
        gone
    }

    pub(super) fn controller_expand_volume(
        &self,
        request: &ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Status> {
        let range = request.capacity_range.as_ref();
        let wanted = Wanted::new(Some(range.ok_or_else(|| Status::invalid_argument("capacity_range is missing"))?))?;
        let (id, _) = self.known(&request.volume_id)?;
        let _hold = self.busy.hold(id.to_string())?;
        let (_, volume) = self.known(&request.volume_id)?;
        let len_bytes = match wanted.grown(volume.size_bytes)? {
            Some(longer) => self.lunette.resize_volume(&id, longer)?.size_bytes,
            None => volume.size_bytes,
        };
        Ok(ControllerExpandVolumeResponse { capacity_bytes: told_bytes(len_bytes), node_expansion_required: true })
    }

    pub(super) fn controller_get_volume(
        &self,
        request: &ControllerGetVolumeRequest,
    ) -> Result<ControllerGetVolumeResponse, Status> {
        let (id, volume) = self.known(&request.volume_id)?;
        let (nodes, condition) = Sight::new(&self.lunette)?.of(&volume);
        let status = OneStatus { published_node_ids: nodes, volume_condition: Some(condition) };
        Ok(ControllerGetVolumeResponse { volume: Some(self.told(&id, &volume)), status: Some(status) })
    }

    pub(super) fn list_volumes(&self, request: &ListVolumesRequest) -> Result<ListVolumesResponse, Status> {
        let page = page(
            self.own_volumes()?,
            |(id, volume)| (volume.created, id.to_string()),
            request.max_entries,
            &request.starting_token,
        )?;
        let sight = Sight::new(&self.lunette)?;
        let entry = |(id, volume): &(VolumeId, Volume)| {
            let (published_node_ids, condition) = sight.of(volume);
            let status = VolumeStatus { published_node_ids, volume_condition: Some(condition) };
            Entry { volume: Some(self.told(id, volume)), status: Some(status) }
        };
        Ok(ListVolumesResponse { entries: page.entries.iter().map(entry).collect(), next_token: page.next_token })
    }

    pub(super) fn validate_volume_capabilities(
        &self,
        request: &ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
        Self::check_id("volume_id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("volume_capabilities is empty"));
        }
        let (id, volume) = self.known(&request.volume_id)?;
        let target = labels::value(&volume.labels, labels::TARGET);
        let mut why = request.volume_capabilities.iter().find_map(|one| Use::new(one).err());
        if request.volume_context.get(IQN).is_some_and(|given| given != target) {
            why = why.or(Some(format!("the target of volume {id} is {target}")));
        }
        let confirmed = Confirmed {
            volume_context: request.volume_context.clone(),
            volume_capabilities: request.volume_capabilities.clone(),
            parameters: request.parameters.clone(),
            mutable_parameters: HashMap::new(),
        };
        Ok(match why {
            Some(message) => ValidateVolumeCapabilitiesResponse { confirmed: None, message },
            None => ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() },
        })
    }

    /// The volume of an identifier.
    pub(super) fn known(&self, volume_id: &str) -> Result<(VolumeId, Volume), Status> {
        Self::check_id("volume_id", volume_id)?;
        let missing = || Status::not_found(format!("there is no volume {volume_id}"));
        let id = VolumeId::parse(volume_id).ok_or_else(missing)?;
        let volume = self.lunette.volume(&id)?.ok_or_else(missing)?;
        Ok((id, volume))
    }

    /// The volumes that this driver has made.
    pub(super) fn own_volumes(&self) -> Result<Vec<(VolumeId, Volume)>, Status> {
        let own = self.lunette.volumes()?.into_iter();
        let own = own.filter(|volume| self.is_own(&volume.labels));
        Ok(own.map(|volume| (VolumeId { pool: volume.pool.clone(), volume: volume.name.clone() }, volume)).collect())
    }

    pub(super) fn is_own(&self, labels: &Labels) -> bool {
        labels::value(labels, labels::DRIVER) == self.settings.driver_name
    }

    /// Refuses to remove what others have made.
    pub(super) fn check_own(&self, of: &Labels, what: &str) -> Result<(), Status> {
        if self.is_own(of) {
            return Ok(());
        }
        Err(Status::failed_precondition(format!(
            "{what} has no label {}={}, so this driver has not made it; remove it with lunette volume rm",
            labels::DRIVER,
            self.settings.driver_name
        )))
    }

    /// Has the target of a volume serve it.
    pub(super) fn serve(&self, id: &VolumeId, target: &str) -> Result<(), Status> {
        self.lunette.create_target(target, &disk(id))?;
        match self.lunette.target(target)? {
            Some(found) if found.serves(id) => Ok(()),
            Some(_) => Err(Status::already_exists(format!(
                "there is a target {target}, and its LUN 0 is not {}; remove it, or choose another targetPrefix",
                disk(id)
            ))),
            None => Err(Status::aborted(format!("target {target} was removed meanwhile; call again"))),
        }
    }

    /// The volume that a call of the same name has made before.
    fn made_before(&self, id: &VolumeId, name: &str) -> Result<Option<Volume>, Status> {
        if let Some(volume) = self.lunette.volume(id)? {
            return Ok(Some(volume));
        }
        let elsewhere = self.own_volumes()?.into_iter();
        let mut elsewhere = elsewhere.filter(|(_, volume)| labels::value(&volume.labels, labels::NAME) == name);
        match elsewhere.next() {
            Some((other, _)) => Err(Status::already_exists(format!(
                "volume {name} is there already, as {other}, and not in pool {}",
                id.pool
            ))),
            None => Ok(None),
        }
    }

    fn origin(&self, source: &Source) -> Result<Origin, Status> {
        match source {
            Source::Volume(source) => {
                let (id, volume) = self.known(&source.volume_id)?;
                let label = format!("volume {id}");
                Ok(Origin { label, pool: id.pool, clone_of: id.volume, len_bytes: volume.size_bytes })
            }
            Source::Snapshot(source) => {
                Self::check_id("snapshot_id", &source.snapshot_id)?;
                let missing = || Status::not_found(format!("there is no snapshot {}", source.snapshot_id));
                let id = SnapshotId::parse(&source.snapshot_id).ok_or_else(missing)?;
                let snapshot = self.snapshot(&id)?.ok_or_else(missing)?;
                let clone_of = format!("{}@{}", id.of.volume, id.snapshot);
                Ok(Origin {
                    label: format!("snapshot {id}"),
                    pool: id.of.pool,
                    clone_of,
                    len_bytes: snapshot.size_bytes,
                })
            }
        }
    }

    fn make(
        &self,
        id: &VolumeId,
        labels: Labels,
        wanted: Wanted,
        origin: Option<&Origin>,
        full: bool,
    ) -> Result<Volume, Status> {
        if full && origin.is_some() {
            return Err(Status::invalid_argument("full is for empty volumes: a clone shares the space of its origin"));
        }
        let size_bytes = Some(wanted.length(origin.map(|origin| origin.len_bytes))?);
        let clone_of = origin.map(|origin| origin.clone_of.clone());
        let new = NewVolume { size_bytes, clone_of, full, labels, ..NewVolume::default() };
        with_patience(|| self.lunette.create_volume(id, &new))
    }

    /// A volume as lists have it.
    fn told(&self, id: &VolumeId, volume: &Volume) -> Told {
        Told {
            capacity_bytes: told_bytes(volume.size_bytes),
            volume_id: id.to_string(),
            accessible_topology: self.topology_of(&id.pool),
            ..Told::default()
        }
    }
}

/// The key of the context of a volume that names its target. This and the others are those of csi-driver-iscsi.
pub(crate) const IQN: &str = "iqn";

/// The disk of a LUN that serves a volume.
pub(super) fn disk(id: &VolumeId) -> String {
    format!("volume:{id}")
}

fn told_bytes(len_bytes: u64) -> i64 {
    i64::try_from(len_bytes).unwrap_or(i64::MAX)
}

/// Checks that a volume is what a second call of its name asks for.
fn check_same(volume: &Volume, id: &VolumeId, wanted_labels: &Labels, wanted: Wanted) -> Result<(), Status> {
    if volume.filling {
        return Err(Status::aborted(format!("volume {id} is being filled; call again when that has ended")));
    }
    for key in [labels::DRIVER, labels::NAME, labels::SOURCE, labels::PARAMETERS] {
        let (has, wants) = (labels::value(&volume.labels, key), labels::value(wanted_labels, key));
        if has != wants {
            return Err(Status::already_exists(format!(
                "volume {id} is there already, and its label {key} is {has:?}, not {wants:?}"
            )));
        }
    }
    if !wanted.takes(volume.size_bytes) {
        return Err(Status::already_exists(format!(
            "volume {id} is there already, with {} bytes, not {wanted}",
            volume.size_bytes
        )));
    }
    Ok(())
}

fn volume_context(target: &str, portals: &[String], parameters: &Parameters) -> HashMap<String, String> {
    let mut context = portal_context(portals);
    let has_chap = if parameters.chap.is_some() { "true" } else { "false" };
    let own = [(IQN, target), ("lun", "0"), ("iscsiInterface", "default"), ("discoveryCHAPAuth", "false")];
    context.extend(own.into_iter().chain([("sessionCHAPAuth", has_chap)]).map(|(k, v)| (k.to_owned(), v.to_owned())));
    context
}

/// Where a node finds a target: the first portal, and the others as JSON.
pub(super) fn portal_context(portals: &[String]) -> HashMap<String, String> {
    let others = serde_json::Value::from(portals.get(1..).unwrap_or_default());
    let first = portals.first().cloned().unwrap_or_default();
    HashMap::from([("targetPortal".to_owned(), first), ("portals".to_owned(), others.to_string())])
}

/// The driver's volume behind a target, if it serves it.
impl crate::lunette::Target {
    pub(super) fn serves(&self, id: &VolumeId) -> bool {
        self.luns.iter().any(|lun| lun.number == 0 && lun.disk == disk(id))
    }

    /// The nodes that may use the target.
    pub(super) fn nodes(&self) -> Vec<String> {
        self.hosts.iter().flat_map(|host| host.initiators.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_of_a_volume_has_the_keys_of_csi_driver_iscsi() {
        let portals = ["192.0.2.1:3260".to_owned(), "192.0.2.2:3260".to_owned()];
        let context = volume_context("iqn.2026-11.org.example:tank:a", &portals, &Parameters::default());
        let mut context: Vec<(&str, &str)> = context.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        context.sort_unstable();
        assert_eq!(
            context,
            [
                ("discoveryCHAPAuth", "false"),
                ("iqn", "iqn.2026-11.org.example:tank:a"),
                ("iscsiInterface", "default"),
                ("lun", "0"),
                ("portals", "[\"192.0.2.2:3260\"]"),
                ("sessionCHAPAuth", "false"),
                ("targetPortal", "192.0.2.1:3260"),
            ]
        );
        assert!(crate::names::check_initiator(context[1].1).is_ok());
    }
}
