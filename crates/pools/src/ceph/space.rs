//! The space of the pool and of volumes.

use std::io;

use super::cluster::{Cluster, Image};
use crate::pool::{PoolSpace, VolumeSpace};

/// The space of the pool.
pub(super) fn of_pool(cluster: &dyn Cluster) -> io::Result<PoolSpace> {
    let unknown = || io::Error::other("no manager of the cluster tells its space; start ceph-mgr");
    let room = cluster.room()?.ok_or_else(unknown)?;
    let total_bytes = room.used_bytes.saturating_add(room.free_bytes);
    Ok(PoolSpace { total_bytes, used_bytes: room.used_bytes, free_bytes: room.free_bytes })
}

/// The space of an image with its present content, in whole objects: what was written since its last snapshot is its
/// own, all else is shared with snapshots or the origin.
pub(super) fn of_volume(image: &dyn Image) -> io::Result<VolumeSpace> {
    let last = image.snapshots()?.pop().map(|snapshot| snapshot.name);
    let (own_bytes, all_bytes) = (used(image, last.as_deref(), false)?, used(image, None, true)?);
    Ok(VolumeSpace { own_bytes, shared_bytes: Some(all_bytes.saturating_sub(own_bytes)) })
}

fn used(image: &dyn Image, since: Option<&str>, with_origin: bool) -> io::Result<u64> {
    let mut used_bytes = 0;
    image.differences(since, 0..image.len_bytes()?, with_origin, true, &mut |_, len, has_space| {
        used_bytes += if has_space { len } else { 0 };
    })?;
    Ok(used_bytes)
}
