//! Copies into a new volume, which has its length and only zeroes.

use super::endpoint::{self, Disk, Role, Volumes};
use super::{End, MAX_DEPTH, MAX_MEASURED_BYTES, Options, copy, stream_into};
use crate::commands::depth::Depth;
use crate::disks::DiskName;
use crate::failure::Failure;

/// Bytes of a request.
const BLOCK_BYTES: u64 = 256 << 10;

/// The content of a new volume.
pub(in crate::commands) enum Content<'e> {
    /// The bytes of a disk.
    Disk(&'e DiskName, Disk),
    /// The bytes of standard input, whose number is not known.
    Stream,
}

impl<'e> Content<'e> {
    pub(in crate::commands) fn open(from: &'e End) -> Result<Self, Failure> {
        Ok(match from {
            End::Standard => Self::Stream,
            End::Disk(name) => Self::Disk(name, endpoint::open(name, Role::Source, Volumes::Kept)?),
        })
    }

    pub(in crate::commands) fn len_bytes(&self) -> Option<u64> {
        match self {
            Self::Disk(_, disk) => Some(disk.len_bytes()),
            Self::Stream => None,
        }
    }

    /// Copies it to the beginning of a new volume, on stable storage.
    pub(in crate::commands) fn fill(&self, volume: &DiskName) -> Result<(), Failure> {
        let most = (MAX_MEASURED_BYTES / BLOCK_BYTES).min(u64::from(MAX_DEPTH) + 1) - 1;
        let depth = Depth::Measured(most as usize);
        let options = Options { depth, block: BLOCK_BYTES, verify: false, window_bytes: u64::MAX };
        let role = Role::Resumed(self.len_bytes().unwrap_or(0));
        // The file of a volume keeps its length, as a device does.
        let volume = Disk { file: None, blank: true, ..endpoint::open(volume, role, Volumes::Overwritten)? };
        match self {
            Self::Stream => stream_into(&volume, options).map(drop),
            Self::Disk(name, disk) => {
                copy(disk, &volume, 0, options, None)?;
                volume.close()?;
                if endpoint::has_changed(name, disk)? {
                    return Err(Failure::Transfer(format!("{} was written to while it was copied", disk.name)));
                }
                Ok(())
            }
        }
    }
}
