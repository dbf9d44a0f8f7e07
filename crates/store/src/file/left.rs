//! Files and devices that a process leaves open to another one.
//!
//! The locks of a file belong to its open file description, which both processes have through their descriptors. So the
//! successor cannot open the path again, and either process could release the locks of both. A store releases
//! nothing while the other process may need it:
//!
//! | | the predecessor | the successor |
//! |---|---|---|
//! | begins | [`FileStore::leave`](super::FileStore::leave) | [`left_files`], then stores are opened by their paths |
//! | ends | it ends, or [`FileStore::stay`](super::FileStore::stay) | [`own_left_files`] |

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl};

use super::FileIdentity;

static LEFT: Mutex<Left> = Mutex::new(Left { offered: Vec::new(), owned: None });

/// The files that an earlier process has left.
struct Left {
    /// The files that no store has taken.
    offered: Vec<File>,
    /// Tells the stores that take files when they own them.
    owned: Option<Arc<AtomicBool>>,
}

impl Left {
    fn lock() -> MutexGuard<'static, Self> {
        LEFT.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Offers the open files and devices of an earlier process to the stores that are opened from now on.
///
/// A store that is opened by the path of such a file takes its descriptor, once, if it is open for the same access.
/// Until [`own_left_files`] is called, the store takes no lock and nothing else away from the earlier process.
pub fn left_files(descriptors: Vec<OwnedFd>) {
    Left::lock().offered.extend(descriptors.into_iter().map(File::from));
}

/// Owns the files that stores have taken, once the earlier process does not. Closes the others.
pub fn own_left_files() {
    let mut left = Left::lock();
    if let Some(owned) = left.owned.take() {
        owned.store(true, Ordering::Release);
    }
    let not_taken = std::mem::take(&mut left.offered);
    drop(left);
    drop(not_taken);
}

/// Takes the file of an earlier process that is `identity`, and is open for reading, and for writing if it `writes`.
pub(super) fn take(identity: FileIdentity, writes: bool) -> Option<(File, Ownership)> {
    let mut left = Left::lock();
    let access = if writes { OFlags::RDWR } else { OFlags::RDONLY };
    let at = left.offered.iter().position(|file| {
        FileIdentity::of_file(file).is_ok_and(|found| found == identity)
            && fcntl_getfl(file).is_ok_and(|flags| flags & OFlags::ACCMODE == access)
    })?;
    let file = left.offered.swap_remove(at);
    let owned = Arc::clone(left.owned.get_or_insert_default());
    Some((file, Ownership { left: AtomicBool::new(false), owned: Some(owned) }))
}

/// Whether the locks of a file are a store's own.
#[derive(Debug, Default)]
pub(crate) struct Ownership {
    /// Set while the file is left to a later process.
    left: AtomicBool,
    /// Tells when a file of an earlier process is owned; `None` for all others.
    owned: Option<Arc<AtomicBool>>,
}

impl Ownership {
    /// Whether no other process may need the locks, and what else there is to be taken back.
    pub(super) fn is_ours(&self) -> bool {
        !self.left.load(Ordering::Acquire) && self.owned.as_ref().is_none_or(|owned| owned.load(Ordering::Acquire))
    }

    pub(super) fn leave(&self, is_left: bool) {
        self.left.store(is_left, Ordering::Release);
    }
}
