//! Stage and unstage: the session, the disk and its file system, once for each node.

use std::path::Path;

use tonic::Status;

use super::record::{Record, Target};
use super::{Inner, failed};
use crate::checks::{self, Use};
use crate::controller::PUBLICATION;
use crate::limits::{MAX_TEXT_BYTES, MULTIPATH_TIMEOUT};
use crate::proto::v1::{
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
};

impl Inner {
    pub(super) fn node_stage_volume(
        &self,
        request: &NodeStageVolumeRequest,
    ) -> Result<NodeStageVolumeResponse, Status> {
        let volume_id = checks::text("volume_id", &request.volume_id, MAX_TEXT_BYTES)?;
        let staging = Path::new(checks::path("staging_target_path", &request.staging_target_path)?);
        let usage = Use::of_call(request.volume_capability.as_ref())?;
        for (name, map) in [("volume_context", &request.volume_context), ("publish_context", &request.publish_context)]
        {
            checks::map(name, map)?;
        }
        checks::map("secrets", &request.secrets)?;
        let target = Target::new(&request.volume_context, &request.publish_context)?;
        let _hold = self.busy.hold(volume_id)?;
        let record = Record {
            volume_id: volume_id.into(),
            target,
            staging: staging.into(),
            is_mount: usage.mount.is_some(),
            read_only: usage.is_read_only(),
        };
        if let Some(known) = self.record(volume_id)? {
            check_same(&known, &record)?;
        }
        // First, so that what follows is undone also when the driver ends in the middle.
        self.keep(&record)?;
        let logged_in = self.log_in(&record.target, &request.secrets)?;
        let device = self.await_device(&record.target, logged_in)?;
        let making = self.making(volume_id, request.publish_context.get(PUBLICATION));
        match &usage.mount {
            Some(_) if self.mount_at(staging)?.is_some() => self.end(&making)?,
            Some(wanted) => self.mount_device(&device.path(), staging, wanted, record.read_only, &making)?,
            None => self.end(&making)?,
        }
        Ok(NodeStageVolumeResponse {})
    }

    pub(super) fn node_unstage_volume(
        &self,
        request: &NodeUnstageVolumeRequest,
    ) -> Result<NodeUnstageVolumeResponse, Status> {
        let volume_id = checks::text("volume_id", &request.volume_id, MAX_TEXT_BYTES)?;
        let staging = Path::new(checks::path("staging_target_path", &request.staging_target_path)?);
        let _hold = self.busy.hold(volume_id)?;
        let record = self.record(volume_id)?;
        if let Some(record) = &record {
            self.check_unused(record)?;
        }
        self.unmount(staging)?;
        let Some(record) = record else { return Ok(NodeUnstageVolumeResponse {}) };
        if record.is_mount {
            self.unmount(&record.staging)?;
        }
        self.flush(&record.target)?;
        self.log_out(&record.target)?;
        self.forget(volume_id)?;
        Ok(NodeUnstageVolumeResponse {})
    }

    /// Removes the map of dm-multipath over a disk. udev looks at a disk after each use, and keeps the map in use for a
    /// moment.
    fn flush(&self, target: &Target) -> Result<(), Status> {
        let mut refused = Ok(());
        self.until(MULTIPATH_TIMEOUT, || {
            let map = self.device(target)?.and_then(|device| device.map);
            refused = map.map_or(Ok(()), |map| self.done("multipath", &["-f", &map]));
            Ok(refused.is_ok().then_some(()))
        })?;
        refused
    }

    /// Refuses to take away a disk that is still published.
    fn check_unused(&self, record: &Record) -> Result<(), Status> {
        let staging = self.system.real_path(&record.staging).unwrap_or_else(|_| record.staging.clone());
        let mounts = self.mounts()?;
        let device = self.device(&record.target)?.map(|device| format!("/{}", device.name));
        let staged = mounts.iter().find(|mount| mount.at == staging);
        let other = mounts.iter().find(|mount| {
            let is_of_staged = staged.is_some_and(|staged| staged.is_of_same(mount));
            let is_bound = mount.fs_type == "devtmpfs" && device.as_ref() == Some(&mount.root);
            mount.at != staging && (is_of_staged || is_bound)
        });
        match other {
            Some(mount) => Err(Status::failed_precondition(format!(
                "volume {} is still published at {}; unpublish it first",
                record.volume_id,
                mount.at.display()
            ))),
            None => Ok(()),
        }
    }

    /// The record of a volume that a call needs to be staged.
    pub(super) fn staged(&self, volume_id: &str) -> Result<Record, Status> {
        let missing = || Status::not_found(format!("volume {volume_id} is not staged on this node"));
        self.record(volume_id)?.ok_or_else(missing)
    }

    /// Makes the folders above a path that a container sees.
    pub(super) fn make_place(&self, at: &Path, is_folder: bool) -> Result<(), Status> {
        let made = if is_folder { self.system.make_folder(at) } else { self.system.make_file(at) };
        made.map_err(failed(at.display()))
    }
}

/// Checks that a volume is staged as a second call asks for.
fn check_same(known: &Record, wanted: &Record) -> Result<(), Status> {
    let of = |record: &Record| (record.staging.clone(), record.is_mount, record.read_only, record.target.iqn.clone());
    if of(known) == of(wanted) {
        return Ok(());
    }
    Err(Status::already_exists(format!(
        "volume {} is staged at {} already, in another way; unstage it first",
        known.volume_id,
        known.staging.display()
    )))
}
