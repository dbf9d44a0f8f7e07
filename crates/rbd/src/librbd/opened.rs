//! The images that stores of this process have open to write.
//!
//! Some changes of an image need its lock, which the store keeps for as long as it is open. So they are made through
//! the store's own handle.

use std::ffi::c_int;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::table::ManageTable;
use super::{Image, OpenImage, check};

/// Bytes of the id of a cluster, a UUID, with the zero at its end.
const FSID_BYTES: usize = 37;

static OPENED: Mutex<Vec<Weak<Image>>> = Mutex::new(Vec::new());

/// Adds an image that a store has opened to write. It leaves by itself when it is closed.
pub(super) fn add(image: &Arc<Image>) {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.retain(|image| image.strong_count() > 0);
    opened.push(Arc::downgrade(image));
}

/// The image of a store of this process that is the image of `other`, and has its lock.
pub(super) fn owner_of(table: &ManageTable, other: &OpenImage) -> Option<Arc<Image>> {
    let opened: Vec<Arc<Image>> =
        OPENED.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
    let wanted = Identity::of(table, other).ok()?;
    let is_owner =
        |image: &OpenImage| Ok::<_, io::Error>(Identity::of(table, image)? == wanted && has_lock(table, image)?);
    opened.into_iter().find(|opened| is_owner(opened.image()).unwrap_or(false))
}

/// The identity of an image among all others.
#[derive(PartialEq, Eq)]
struct Identity {
    fsid: [u8; FSID_BYTES],
    pool: i64,
    id: String,
}

impl Identity {
    fn of(table: &ManageTable, image: &OpenImage) -> io::Result<Self> {
        let (pool, mut fsid) = (&image.pool, [0; FSID_BYTES]);
        // SAFETY: the connection is valid, and there is room for this many bytes.
        check(unsafe { (table.rados_cluster_fsid)(pool.connection.handle, fsid.as_mut_ptr().cast(), fsid.len()) })?;
        // SAFETY: the pool is open.
        let pool = unsafe { (table.rados_ioctx_get_id)(pool.handle) };
        Ok(Self { fsid, pool, id: image.id()? })
    }
}

fn has_lock(table: &ManageTable, image: &OpenImage) -> io::Result<bool> {
    let mut is_owner: c_int = 0;
    // SAFETY: the image is open, and `is_owner` is a place for the result.
    check(unsafe { (table.rbd_is_exclusive_lock_owner)(image.handle, &raw mut is_owner) })?;
    Ok(is_owner != 0)
}
