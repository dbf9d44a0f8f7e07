//! The origin of an image, and its clones.

use std::io;
use std::ptr::null_mut;

use super::super::check;
use super::super::table::{LinkedImageSpec, SnapshotSpec};
use super::ManagedImage;
use super::lists::{self, owned};
use super::snapshots::USER_NAMESPACE;

/// An image that another one depends on, or that depends on it. It may be in another pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relative {
    /// The pool.
    pub pool: String,
    /// The namespace in the pool; empty for the default one.
    pub namespace: String,
    /// The name, which an image in the trash no longer has for itself.
    pub image: String,
    /// Whether it is in the trash.
    pub is_in_trash: bool,
    /// The snapshot that was cloned, of an origin, while it has a name.
    pub snapshot: Option<String>,
}

const EMPTY: LinkedImageSpec = LinkedImageSpec {
    pool_id: 0,
    pool_name: null_mut(),
    pool_namespace: null_mut(),
    image_id: null_mut(),
    image_name: null_mut(),
    is_in_trash: false,
};

impl ManagedImage {
    /// The image that it is a clone of.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn origin(&self) -> io::Result<Option<Relative>> {
        let (mut image, mut snapshot) = (EMPTY, SnapshotSpec { id: 0, namespace_type: 0, name: null_mut() });
        // SAFETY: the image is open, and the places for the results are ours.
        let code = unsafe { (self.table().rbd_get_parent)(self.image().handle, &raw mut image, &raw mut snapshot) };
        if code == -libc::ENOENT {
            return Ok(None);
        }
        check(code)?;
        // SAFETY: librbd has filled in the texts, which live until the clean-up below.
        let (mut origin, name) = unsafe { (relative(&image), owned(snapshot.name)) };
        origin.snapshot = Some(name).filter(|_| snapshot.namespace_type == USER_NAMESPACE);
        // SAFETY: nothing refers to the texts any more.
        unsafe {
            (self.table().rbd_linked_image_spec_cleanup)(&raw mut image);
            (self.table().rbd_snap_spec_cleanup)(&raw mut snapshot);
        }
        Ok(Some(origin))
    }

    /// The images that depend on it: on the snapshot that is open, or on any of its snapshots.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn clones(&self) -> io::Result<Vec<Relative>> {
        let ask = |specs: &mut [LinkedImageSpec], count: &mut usize| {
            // SAFETY: the image is open, and there is room for `count` entries.
            unsafe { (self.table().rbd_list_children3)(self.image().handle, specs.as_mut_ptr(), count) }
        };
        let mut specs = lists::grow(EMPTY, ask)?;
        // SAFETY: librbd has filled the entries with texts, which live until the clean-up below.
        let clones = specs.iter().map(|spec| unsafe { relative(spec) }).collect();
        // SAFETY: these are the entries that librbd has filled, and nothing refers to their texts any more.
        unsafe { (self.table().rbd_linked_image_spec_list_cleanup)(specs.as_mut_ptr(), specs.len()) };
        Ok(clones)
    }
}

/// # Safety
///
/// The texts of `spec` are null, or live beyond the call.
unsafe fn relative(spec: &LinkedImageSpec) -> Relative {
    // SAFETY: the caller says so.
    let [pool, namespace, image] =
        [spec.pool_name, spec.pool_namespace, spec.image_name].map(|text| unsafe { owned(text) });
    Relative { pool, namespace, image, is_in_trash: spec.is_in_trash, snapshot: None }
}
