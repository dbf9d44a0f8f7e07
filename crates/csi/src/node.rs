//! The node: sessions of open-iscsi, file systems and mounts.
//!
//! A volume is staged once for each node: its target is logged in to, its file system made if there is none, and
//! mounted. Publishing it binds that to the folder of a container. A record of each staged volume is kept in a
//! folder, because later calls name the volume alone.

mod devices;
mod filesystem;
mod making;
mod mounts;
mod programs;
mod publish;
mod record;
mod sessions;
mod stage;
mod system;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tonic::Status;

use crate::busy::Busy;
use crate::limits::MAX_NODE_ID_BYTES;
use crate::names;
use crate::proto::v1::node_server::Node as Service;
use crate::proto::v1::node_service_capability::rpc::Type as Can;
use crate::proto::v1::node_service_capability::{Rpc, Type};
use crate::proto::v1::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
    NodeGetInfoRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse, Topology,
};
use crate::rpcs::rpcs;
pub use programs::Programs;
pub use system::{Kind, Ran, Space, System};

/// The abilities of a node.
const ABILITIES: [Can; 5] =
    [Can::StageUnstageVolume, Can::GetVolumeStats, Can::ExpandVolume, Can::VolumeCondition, Can::SingleNodeMultiWriter];

/// The file in which open-iscsi keeps the name of the initiator.
const INITIATOR_FILE: &str = "/etc/iscsi/initiatorname.iscsi";

/// The settings of a node.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// The name of the driver.
    pub driver_name: String,
    /// The name of the node's initiator, if it is not to be read from open-iscsi's file.
    pub node_id: Option<String>,
    /// The folder for the records of staged volumes, which has to outlive a restart of the driver.
    pub state: PathBuf,
    /// The pools whose portals the node reaches; empty when all nodes reach all pools.
    pub reachable_pools: Vec<String>,
    /// The volumes that the node takes at most; 0 for no bound.
    pub max_volumes: u32,
}

/// A node.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    system: Box<dyn System>,
    settings: NodeSettings,
    busy: Busy,
}

impl Node {
    /// A node whose system is reached through `system`.
    pub fn new(settings: NodeSettings, system: impl System) -> Self {
        Self(Arc::new(Inner { system: Box::new(system), settings, busy: Busy::default() }))
    }
}

impl Inner {
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as the other calls")]
    fn node_get_capabilities(&self, _: &NodeGetCapabilitiesRequest) -> Result<NodeGetCapabilitiesResponse, Status> {
        let can = |ability: Can| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: ability.into() })) };
        Ok(NodeGetCapabilitiesResponse { capabilities: ABILITIES.into_iter().map(can).collect() })
    }

    fn node_get_info(&self, _: &NodeGetInfoRequest) -> Result<NodeGetInfoResponse, Status> {
        let node_id = match &self.settings.node_id {
            Some(known) => known.clone(),
            None => self.initiator_name()?,
        };
        let pools = &self.settings.reachable_pools;
        let segments: HashMap<String, String> =
            pools.iter().map(|pool| crate::controller::segment(&self.settings.driver_name, pool)).collect();
        Ok(NodeGetInfoResponse {
            node_id,
            max_volumes_per_node: self.settings.max_volumes.into(),
            accessible_topology: (!segments.is_empty()).then_some(Topology { segments }),
        })
    }

    /// The name under which open-iscsi logs in.
    fn initiator_name(&self) -> Result<String, Status> {
        let remedy = "install open-iscsi on the node, or name the initiator with --node-id";
        let text = self
            .system
            .read_of_host(Path::new(INITIATOR_FILE))
            .map_err(|error| Status::failed_precondition(format!("{INITIATOR_FILE}: {error}; {remedy}")))?;
        let name = text.lines().find_map(|line| line.trim().strip_prefix("InitiatorName=")).map(str::trim);
        let name = name.ok_or_else(|| {
            Status::failed_precondition(format!("{INITIATOR_FILE} has no line InitiatorName=; {remedy}"))
        })?;
        names::check_initiator(name).map_err(Status::failed_precondition)?;
        if name.len() > MAX_NODE_ID_BYTES {
            return Err(Status::failed_precondition(format!(
                "{name:?} is longer than the identifier of a node may be"
            )));
        }
        Ok(name.into())
    }
}

/// A failure of the system.
fn failed(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Status {
    move |error| Status::internal(format!("{what}: {error}"))
}

rpcs! {
    impl Service for Node {
        node_stage_volume: NodeStageVolumeRequest => NodeStageVolumeResponse;
        node_unstage_volume: NodeUnstageVolumeRequest => NodeUnstageVolumeResponse;
        node_publish_volume: NodePublishVolumeRequest => NodePublishVolumeResponse;
        node_unpublish_volume: NodeUnpublishVolumeRequest => NodeUnpublishVolumeResponse;
        node_get_volume_stats: NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse;
        node_expand_volume: NodeExpandVolumeRequest => NodeExpandVolumeResponse;
        node_get_capabilities: NodeGetCapabilitiesRequest => NodeGetCapabilitiesResponse;
        node_get_info: NodeGetInfoRequest => NodeGetInfoResponse;
    }
}
