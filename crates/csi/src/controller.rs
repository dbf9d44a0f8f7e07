//! The controller: volumes, snapshots and the access of nodes, in the pools of a server.

mod groups;
mod health;
mod labels;
pub(crate) mod parameters;
mod pools;
mod publish;
mod snapshots;
mod volumes;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lunette_api::client::Endpoint;
use tonic::{Code, Status};

use crate::busy::Busy;
use crate::limits::LOOK_AGAIN;
use crate::lunette::Lunette;
use crate::proto::v1::controller_server::Controller as Service;
use crate::proto::v1::controller_service_capability::Rpc;
use crate::proto::v1::controller_service_capability::Type;
use crate::proto::v1::controller_service_capability::rpc::Type as Can;
use crate::proto::v1::group_controller_server::GroupController as GroupService;
use crate::proto::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeRequest, ControllerGetVolumeResponse,
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerServiceCapability,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse,
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, CreateVolumeRequest, CreateVolumeResponse,
    DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotResponse,
    DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, GetVolumeGroupSnapshotRequest,
    GetVolumeGroupSnapshotResponse, GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse,
    ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
};
use crate::rpcs::rpcs;
pub(crate) use parameters::portals as parse_portals;
pub(crate) use pools::segment;
pub(crate) use publish::PUBLICATION;
pub(crate) use volumes::IQN;

/// The abilities of the controller.
const ABILITIES: [Can; 13] = [
    Can::CreateDeleteVolume,
    Can::PublishUnpublishVolume,
    Can::ListVolumes,
    Can::GetCapacity,
    Can::CreateDeleteSnapshot,
    Can::ListSnapshots,
    Can::CloneVolume,
    Can::PublishReadonly,
    Can::ExpandVolume,
    Can::ListVolumesPublishedNodes,
    Can::VolumeCondition,
    Can::GetVolume,
    Can::SingleNodeMultiWriter,
];

/// The time for which a change that the server has no time for is tried again.
const PATIENCE: Duration = Duration::from_secs(10);

/// The settings of a controller.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name of the driver, which also marks its volumes.
    pub driver_name: String,
    /// The beginning of the names of targets.
    pub target_prefix: String,
    /// Where nodes reach the targets; empty for the portals that the server names.
    pub portals: Vec<String>,
    /// The pool of volumes whose StorageClass names none.
    pub pool: Option<String>,
    /// Whether volumes are for nodes that reach their pool alone.
    pub topology: bool,
}

/// The controller of a server.
#[derive(Clone)]
pub struct Controller(Arc<Inner>);

struct Inner {
    lunette: Arc<Lunette>,
    settings: Settings,
    busy: Busy,
}

impl Controller {
    /// The controller of the server at an endpoint.
    ///
    /// # Errors
    ///
    /// When the system has no resources left.
    pub fn at(endpoint: Endpoint, settings: Settings) -> io::Result<Self> {
        Ok(Self::new(Arc::new(Lunette::new(endpoint)?), settings))
    }

    pub(crate) fn new(lunette: Arc<Lunette>, settings: Settings) -> Self {
        Self(Arc::new(Inner { lunette, settings, busy: Busy::default() }))
    }
}

impl Inner {
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as the other calls")]
    fn controller_get_capabilities(
        &self,
        _: &ControllerGetCapabilitiesRequest,
    ) -> Result<ControllerGetCapabilitiesResponse, Status> {
        let can =
            |ability: Can| ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: ability.into() })) };
        Ok(ControllerGetCapabilitiesResponse { capabilities: ABILITIES.into_iter().map(can).collect() })
    }
}

/// Makes a change that the server may have no time for at once: a disk closes after its target is gone.
fn with_patience<T>(change: impl Fn() -> Result<T, Status>) -> Result<T, Status> {
    let end = Instant::now() + PATIENCE;
    loop {
        match change() {
            Err(status) if status.code() == Code::Aborted && Instant::now() < end => thread::sleep(LOOK_AGAIN),
            done => return done,
        }
    }
}

rpcs! {
    impl Service for Controller {
        create_volume: CreateVolumeRequest => CreateVolumeResponse;
        delete_volume: DeleteVolumeRequest => DeleteVolumeResponse;
        controller_publish_volume: ControllerPublishVolumeRequest => ControllerPublishVolumeResponse;
        controller_unpublish_volume: ControllerUnpublishVolumeRequest => ControllerUnpublishVolumeResponse;
        validate_volume_capabilities: ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse;
        list_volumes: ListVolumesRequest => ListVolumesResponse;
        get_capacity: GetCapacityRequest => GetCapacityResponse;
        controller_get_capabilities: ControllerGetCapabilitiesRequest => ControllerGetCapabilitiesResponse;
        create_snapshot: CreateSnapshotRequest => CreateSnapshotResponse;
        delete_snapshot: DeleteSnapshotRequest => DeleteSnapshotResponse;
        list_snapshots: ListSnapshotsRequest => ListSnapshotsResponse;
        controller_expand_volume: ControllerExpandVolumeRequest => ControllerExpandVolumeResponse;
        controller_get_volume: ControllerGetVolumeRequest => ControllerGetVolumeResponse;
    }
}

rpcs! {
    impl GroupService for Controller {
        group_controller_get_capabilities: GroupControllerGetCapabilitiesRequest => GroupControllerGetCapabilitiesResponse;
        create_volume_group_snapshot: CreateVolumeGroupSnapshotRequest => CreateVolumeGroupSnapshotResponse;
        delete_volume_group_snapshot: DeleteVolumeGroupSnapshotRequest => DeleteVolumeGroupSnapshotResponse;
        get_volume_group_snapshot: GetVolumeGroupSnapshotRequest => GetVolumeGroupSnapshotResponse;
    }
}
