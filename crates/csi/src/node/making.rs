//! Marks of file systems that are being made.
//!
//! An interrupted `mkfs` leaves a disk that is neither blank nor a file system.
//!
//! The mark names the publication of the volume to this node. A later publication has another name, because other nodes
//! may have written in between, so it removes the mark. Staging as a block device removes it, too.

use std::io;
use std::path::PathBuf;

use tonic::Status;

use super::{Inner, failed};
use crate::names;

/// A file system that may have to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Making {
    mark: PathBuf,
    /// The publication, if its controller names it.
    publication: Option<String>,
}

impl Inner {
    pub(super) fn making(&self, volume_id: &str, publication: Option<&String>) -> Making {
        let mark = self.settings.state.join(format!("{}.making", names::digest(volume_id)));
        Making { mark, publication: publication.cloned() }
    }

    /// Whether this node has begun to make the file system in this publication, and has not ended. The mark of another
    /// publication goes.
    pub(super) fn is_begun(&self, making: &Making) -> Result<bool, Status> {
        match self.system.read(&making.mark) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Ok(mark) if making.publication.as_ref() == Some(&mark) => Ok(true),
            Ok(_) => self.end(making).map(|()| false),
            Err(error) => Err(failed(making.mark.display())(error)),
        }
    }

    /// Marks the beginning. Without a name of the publication, an interruption cannot be told from data.
    pub(super) fn begin(&self, making: &Making) -> Result<(), Status> {
        match &making.publication {
            Some(publication) => self.system.write(&making.mark, publication).map_err(failed(making.mark.display())),
            None => Ok(()),
        }
    }

    /// Removes the mark for good. The caller does so before anything can be written to the disk.
    pub(super) fn end(&self, making: &Making) -> Result<(), Status> {
        self.system.remove(&making.mark).map_err(failed(making.mark.display()))
    }
}
