//! The pools: which one a new volume gets, which nodes reach it, and its space.

use std::collections::HashMap;

use lunette_api::volumes::Pool;
use tonic::Status;

use super::Inner;
use super::parameters::Parameters;
use crate::checks::{self, Use};
use crate::limits::BLOCK_BYTES;
use crate::names;
use crate::proto::v1::{GetCapacityRequest, GetCapacityResponse, Topology, TopologyRequirement};

/// The value of a segment of topology: the node reaches the pool.
const REACHED: &str = "true";

/// The segment of a node that reaches a pool.
pub(crate) fn segment(driver: &str, pool: &str) -> (String, String) {
    (format!("{driver}/{pool}"), REACHED.into())
}

impl Inner {
    pub(super) fn get_capacity(&self, request: &GetCapacityRequest) -> Result<GetCapacityResponse, Status> {
        let parameters = Parameters::new(&request.parameters)?;
        if let Some(capability) = request.volume_capabilities.iter().find(|one| Use::new(one).is_err()) {
            tracing::debug!(?capability, "no volume has this capability, so there is no space for any");
            return Ok(GetCapacityResponse::default());
        }
        let topology = request.accessible_topology.as_ref().filter(|_| self.settings.topology);
        let pools = self.lunette.pools()?;
        let named = parameters.pool.as_ref().or(self.settings.pool.as_ref());
        let fits = |pool: &&Pool| {
            named.is_none_or(|named| *named == pool.name)
                && topology.is_none_or(|topology| self.is_reached(topology, &pool.name))
        };
        let free: u64 = pools.iter().filter(fits).map(free).sum();
        Ok(GetCapacityResponse {
            available_capacity: i64::try_from(free).unwrap_or(i64::MAX),
            maximum_volume_size: None,
            minimum_volume_size: i64::try_from(BLOCK_BYTES).ok(),
        })
    }

    /// The pool of a new volume. `origin` is the pool of the volume or snapshot that it is made from.
    pub(super) fn pool_for(
        &self,
        parameters: &Parameters,
        origin: Option<&str>,
        reachable: Option<&TopologyRequirement>,
    ) -> Result<String, Status> {
        let reachable = reachable.filter(|_| self.settings.topology);
        let named = parameters.pool.as_deref().or(self.settings.pool.as_deref());
        if let (Some(named), Some(origin)) = (parameters.pool.as_deref(), origin)
            && named != origin
        {
            return Err(Status::invalid_argument(format!(
                "the source is in pool {origin}, and a volume from it is, too; name this pool, not {named}"
            )));
        }
        if let Some(pool) = origin.or(named) {
            let is_reached = |all: &TopologyRequirement| {
                all.requisite.is_empty() || all.requisite.iter().any(|one| self.is_reached(one, pool))
            };
            if !reachable.is_none_or(is_reached) {
                return Err(Status::resource_exhausted(format!(
                    "none of the nodes that are asked for reaches pool {pool}; see --reachable-pools of the nodes"
                )));
            }
            return Ok(pool.into());
        }
        let pools = self.lunette.pools()?;
        let mut usable = pools.iter().filter(|pool| names::is_pool(&pool.name));
        if let Some(reachable) = reachable {
            let mut places = reachable.preferred.iter().chain(&reachable.requisite);
            let pool = places.find_map(|place| usable.clone().find(|pool| self.is_reached(place, &pool.name)));
            return pool.map(|pool| pool.name.clone()).ok_or_else(|| {
                Status::resource_exhausted("none of the nodes that are asked for reaches a pool of the server")
            });
        }
        match (usable.next(), usable.next()) {
            (Some(only), None) => Ok(only.name.clone()),
            (None, _) => Err(Status::failed_precondition(
                "the server has no pool; add a [[pool]] to its configuration (docs/volumes.md)",
            )),
            (Some(_), Some(_)) => Err(Status::invalid_argument(format!(
                "the server has {} pools; name one with the parameter pool of the StorageClass, or with --pool",
                pools.len()
            ))),
        }
    }

    /// The topology of a volume, where there is one.
    pub(super) fn topology_of(&self, pool: &str) -> Vec<Topology> {
        let segments = HashMap::from([segment(&self.settings.driver_name, pool)]);
        if self.settings.topology { vec![Topology { segments }] } else { Vec::new() }
    }

    fn is_reached(&self, from: &Topology, pool: &str) -> bool {
        let (key, value) = segment(&self.settings.driver_name, pool);
        from.segments.get(&key) == Some(&value)
    }

    /// Where nodes reach the targets.
    pub(super) fn portals(&self, parameters: &Parameters) -> Result<Vec<String>, Status> {
        for known in [&parameters.portals, &self.settings.portals] {
            if !known.is_empty() {
                return Ok(known.clone());
            }
        }
        let is_everywhere = |portal: &String| ["0.0.0.0:", "[::]:"].iter().any(|any| portal.starts_with(any));
        let mut portals = self.lunette.portals()?;
        portals.retain(|portal| !is_everywhere(portal));
        portals.truncate(crate::limits::MAX_PORTALS);
        if portals.is_empty() {
            return Err(Status::failed_precondition(
                "the addresses of the server are not known; name them with the parameter portals of the StorageClass, or with --portals",
            ));
        }
        Ok(portals)
    }

    /// Checks the identifier of a volume in a call.
    pub(super) fn check_id(name: &str, id: &str) -> Result<(), Status> {
        checks::text(name, id, crate::limits::MAX_TEXT_BYTES).map(drop)
    }
}

/// The space for volumes of the client.
fn free(pool: &Pool) -> u64 {
    let quota = pool.quota_bytes.map(|quota| quota.saturating_sub(pool.quota_used_bytes.unwrap_or(0)));
    let usable = if pool.trouble.is_some() { 0 } else { pool.free_bytes };
    quota.map_or(usable, |quota| quota.min(usable))
}
