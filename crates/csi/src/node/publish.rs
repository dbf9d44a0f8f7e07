//! Publish and unpublish: a volume in the folder of a container. Its space, its condition and its growth.

use std::path::Path;

use tonic::Status;

use super::mounts::Mount;
use super::record::Record;
use super::system::Kind;
use super::{Inner, failed};
use crate::checks::{self, Use};
use crate::limits::{DEVICE_TIMEOUT, MAX_TEXT_BYTES};
use crate::proto::v1::volume_capability::access_mode::Mode;
use crate::proto::v1::volume_usage::Unit;
use crate::proto::v1::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    VolumeCondition, VolumeUsage,
};

impl Inner {
    pub(super) fn node_publish_volume(
        &self,
        request: &NodePublishVolumeRequest,
    ) -> Result<NodePublishVolumeResponse, Status> {
        let volume_id = checks::text("volume_id", &request.volume_id, MAX_TEXT_BYTES)?;
        let at = Path::new(checks::path("target_path", &request.target_path)?);
        let usage = Use::of_call(request.volume_capability.as_ref())?;
        if request.staging_target_path.is_empty() {
            return Err(Status::failed_precondition("staging_target_path is missing; stage the volume first"));
        }
        let staging = Path::new(checks::path("staging_target_path", &request.staging_target_path)?);
        let _hold = self.busy.hold(volume_id)?;
        let not_staged =
            || Status::failed_precondition(format!("volume {volume_id} is not staged at {}", staging.display()));
        let record = self.record(volume_id)?.ok_or_else(not_staged)?;
        if record.is_mount != usage.mount.is_some() {
            return Err(Status::already_exists(format!(
                "volume {volume_id} is staged as a {}; unstage it first",
                if record.is_mount { "file system" } else { "block device" }
            )));
        }
        let read_only = request.readonly || usage.is_read_only();
        if let Some(mount) = self.mount_at(at)? {
            if mount.is_read_only == read_only {
                return Ok(NodePublishVolumeResponse {});
            }
            return Err(Status::already_exists(format!(
                "volume {volume_id} is published at {} with other rights; unpublish it first",
                at.display()
            )));
        }
        let from = if record.is_mount {
            self.mount_at(staging)?.ok_or_else(not_staged)?;
            staging.to_owned()
        } else {
            let device = self.device(&record.target)?;
            device.ok_or_else(|| Status::unavailable(format!("the disk of volume {volume_id} is gone")))?.path()
        };
        if usage.mode == Mode::SingleNodeSingleWriter
            && let Some(other) = self.published(&record)?.first()
        {
            return Err(Status::failed_precondition(format!(
                "volume {volume_id} is for one container, and published at {}",
                other.at.display()
            )));
        }
        self.make_place(at, record.is_mount)?;
        self.bind(&from, at, read_only)?;
        Ok(NodePublishVolumeResponse {})
    }

    pub(super) fn node_unpublish_volume(
        &self,
        request: &NodeUnpublishVolumeRequest,
    ) -> Result<NodeUnpublishVolumeResponse, Status> {
        let volume_id = checks::text("volume_id", &request.volume_id, MAX_TEXT_BYTES)?;
        let at = Path::new(checks::path("target_path", &request.target_path)?);
        let _hold = self.busy.hold(volume_id)?;
        self.unmount(at)?;
        self.system.remove(at).map_err(failed(at.display()))?;
        Ok(NodeUnpublishVolumeResponse {})
    }

    pub(super) fn node_get_volume_stats(
        &self,
        request: &NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, Status> {
        let volume_id = checks::text("volume_id", &request.volume_id, MAX_TEXT_BYTES)?;
        let at = Path::new(checks::path("volume_path", &request.volume_path)?);
        let record = self.staged(volume_id)?;
        let mount = self.place_of(&record, at)?;
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let usage = if record.is_mount {
            let space = self.system.space(at).map_err(failed(at.display()))?;
            let used_inodes = space.total_inodes.saturating_sub(space.free_inodes);
            vec![
                VolumeUsage {
                    unit: Unit::Bytes.into(),
                    total: number(space.total_bytes),
                    available: number(space.available_bytes),
                    used: number(space.used_bytes),
                },
                VolumeUsage {
                    unit: Unit::Inodes.into(),
                    total: number(space.total_inodes),
                    available: number(space.free_inodes),
                    used: number(used_inodes),
                },
            ]
        } else {
            let device = self.device(&record.target)?;
            let total = device.map(|device| self.device_bytes(&device.name)).transpose()?.unwrap_or(0);
            vec![VolumeUsage { unit: Unit::Bytes.into(), total: number(total), ..VolumeUsage::default() }]
        };
        Ok(NodeGetVolumeStatsResponse { usage, volume_condition: Some(self.condition(&record, &mount)?) })
    }

    pub(super) fn node_expand_volume(
        &self,
        request: &NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, Status> {
        let volume_id = checks::text("volume_id", &request.volume_id, MAX_TEXT_BYTES)?;
        let at = Path::new(checks::path("volume_path", &request.volume_path)?);
        let wanted = crate::capacity::Wanted::new(request.capacity_range.as_ref())?;
        let _hold = self.busy.hold(volume_id)?;
        let record = self.staged(volume_id)?;
        let mount = self.place_of(&record, at)?;
        let gone = || Status::unavailable(format!("the disk of volume {volume_id} is gone"));
        self.rescan(&record.target)?;
        let device = self.device(&record.target)?.ok_or_else(gone)?;
        if let Some(map) = &device.map {
            self.done("multipathd", &["resize", "map", map])?;
        }
        let grown = self.until(DEVICE_TIMEOUT, || {
            let bytes = self.device_bytes(&device.name)?;
            Ok(wanted.reached_by(bytes).then_some(bytes))
        })?;
        let capacity = grown.ok_or_else(|| {
            Status::deadline_exceeded(format!("{} has not become as long as it was asked for", device.path().display()))
        })?;
        if record.is_mount && !mount.is_fs_read_only {
            self.grow_file_system(&device.path(), at, &mount.fs_type)?;
        }
        Ok(NodeExpandVolumeResponse { capacity_bytes: i64::try_from(capacity).unwrap_or(i64::MAX) })
    }

    /// The mount of a staged or published volume at a path.
    fn place_of(&self, record: &Record, at: &Path) -> Result<Mount, Status> {
        let missing = || Status::not_found(format!("volume {} is not at {}", record.volume_id, at.display()));
        let mount = self.mount_at(at)?.ok_or_else(missing)?;
        let is_it = if record.is_mount {
            self.mount_at(&record.staging)?.is_some_and(|staged| staged.device == mount.device)
        } else {
            self.system.kind(at).map_err(failed(at.display()))? != Some(Kind::Folder)
        };
        if is_it { Ok(mount) } else { Err(missing()) }
    }

    /// The places where a staged volume is published.
    fn published(&self, record: &Record) -> Result<Vec<Mount>, Status> {
        let mounts = self.mounts()?;
        let staging = self.mount_at(&record.staging)?;
        let device = self.device(&record.target)?.map(|device| format!("/{}", device.name));
        let is_it = |mount: &Mount| match (&staging, &device) {
            (Some(staged), _) => mount.is_of_same(staged) && mount.at != staged.at,
            (None, Some(device)) => mount.fs_type == "devtmpfs" && mount.root == *device,
            (None, None) => false,
        };
        Ok(mounts.into_iter().filter(is_it).collect())
    }

    /// Whether all paths to a volume work, and its file system can be written.
    fn condition(&self, record: &Record, mount: &Mount) -> Result<VolumeCondition, Status> {
        let sessions = self.sessions(&record.target)?;
        let working = sessions.iter().filter(|session| session.is_logged_in && session.disk.is_some()).count();
        let portals = record.target.portals.len();
        let mut faults = Vec::new();
        if working < portals {
            faults.push(format!("{working} of {portals} paths to {} work", record.target.iqn));
        }
        if record.is_mount && mount.is_fs_read_only && !record.read_only {
            faults.push(format!("the file system of {} has become read-only", mount.source));
        }
        let abnormal = !faults.is_empty();
        let message = if abnormal { faults.join("; ") } else { "all paths work".into() };
        Ok(VolumeCondition { abnormal, message })
    }
}
