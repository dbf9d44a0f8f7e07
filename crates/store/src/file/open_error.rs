//! Why a file or device cannot be opened.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::holders;
use super::lock::NotLocked;
use crate::LengthError;

/// Why a file or block device cannot serve as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path does not exist.
    #[error("{path}: no such file or device; check the path{}", if *may_create { ", or give a size to create the file" } else { "" })]
    Missing {
        /// The path as given.
        path: PathBuf,
        /// Whether the same options with a size would have created it.
        may_create: bool,
    },
    /// The folder of the path does not exist.
    #[error("{path}: there is no folder {folder}; create it, or check the path")]
    MissingFolder {
        /// The path as given.
        path: PathBuf,
        /// The folder of the file.
        folder: PathBuf,
    },
    /// The file system is mounted read only.
    #[error(
        "{path}: its file system is mounted read only; remount it, open the disk read only, or choose another place"
    )]
    ReadOnlyFileSystem {
        /// The path as given.
        path: PathBuf,
    },
    /// The system denies access.
    #[error("{path}: permission denied; run as a user who may read and write it, or open it read only")]
    Permission {
        /// The path as given.
        path: PathBuf,
    },
    /// The system permits it to no user: attributes of the file or its folder, or limits of a container.
    #[error(
        "{path}: not permitted, whoever the user is: it or its folder is immutable or append-only (lsattr shows i or a, \
         and chattr -ia takes both away), or this container may not use the device"
    )]
    Protected {
        /// The path as given.
        path: PathBuf,
    },
    /// The path is neither a regular file nor a block device.
    #[error("{path}: is a {found}, not a regular file or block device")]
    WrongType {
        /// The path as given.
        path: PathBuf,
        /// The type of the file at the path.
        found: &'static str,
    },
    /// The length to create is not a whole number of blocks, or there is no whole block.
    #[error("{path}: {source}")]
    Length {
        /// The path as given.
        path: PathBuf,
        /// The actual or requested length, and which ones are right.
        source: LengthError,
    },
    /// The block device has nothing in it: a drive without a medium, a loop device without a file.
    #[error("{path}: the device has nothing in it; insert a medium, or attach a file to a loop device (losetup)")]
    NoMedium {
        /// The path as given.
        path: PathBuf,
    },
    /// The file system cannot set space aside.
    #[error(
        "{path}: its file system cannot set space aside for a file; write provisioning = \"thin\", or choose another \
         file system"
    )]
    NoReservation {
        /// The path as given.
        path: PathBuf,
    },
    /// Another program uses the file or device: it has locked it, shows it as another device, or has it mounted.
    #[error(
        "{path}: in use by {}; stop or unmount that first (fuser -v {path} names what has it open)",
        holder.as_deref().unwrap_or("another process or mounted")
    )]
    InUse {
        /// The path as given.
        path: PathBuf,
        /// The user of the file, where it is known.
        holder: Option<String>,
    },
    /// A system call failed.
    #[error("{path}: cannot {action}: {source}{}", lunette_files::remedy(source))]
    Io {
        /// The path as given.
        path: PathBuf,
        /// The failed action, for the message.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl OpenError {
    /// Looks for what uses the file, when none of it is this attempt's own any more.
    pub(super) fn with_holder(self) -> Self {
        match self {
            Self::InUse { path, holder: None } => {
                let holder = holders::describe(&path, None);
                Self::InUse { path, holder }
            }
            other => other,
        }
    }
}

pub(super) fn not_locked(path: &Path) -> impl FnOnce(NotLocked) -> OpenError {
    let path = path.to_owned();
    move |why| match why {
        NotLocked::Held(known) => {
            let holder = known.and_then(|pid| holders::describe(&path, Some(pid)));
            OpenError::InUse { path, holder }
        }
        NotLocked::By(holder) => OpenError::InUse { path, holder: Some(holder) },
        NotLocked::Failed(source) => OpenError::Io { path, action: "lock it", source },
    }
}

pub(super) fn not_a_length(path: &Path) -> impl FnOnce(LengthError) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Length { path, source }
}

/// Nothing is there: no file, or not even its folder.
pub(super) fn missing(path: &Path, may_create: bool) -> OpenError {
    let path = path.to_owned();
    match path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        Some(folder) => OpenError::MissingFolder { folder: folder.to_owned(), path },
        None => OpenError::Missing { path, may_create },
    }
}

pub(super) fn failed(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| match Errno::from_io_error(&source) {
        Some(Errno::NOENT) => missing(&path, false),
        Some(Errno::ROFS) => OpenError::ReadOnlyFileSystem { path },
        Some(Errno::ACCESS) => OpenError::Permission { path },
        Some(Errno::PERM) => OpenError::Protected { path },
        Some(Errno::NOMEDIUM) => OpenError::NoMedium { path },
        // A claim on a device, a program that runs from the file, a lease of it.
        Some(Errno::BUSY | Errno::TXTBSY | Errno::WOULDBLOCK) => OpenError::InUse { path, holder: None },
        _ => OpenError::Io { path, action, source },
    }
}

/// The failure of setting space aside.
pub(super) fn not_reserved(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| match Errno::from_io_error(&source) {
        Some(Errno::OPNOTSUPP) => OpenError::NoReservation { path },
        _ => failed(&path, "reserve its space")(source),
    }
}
