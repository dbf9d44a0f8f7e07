//! Checks of what calls say, the same for all of them.

use std::collections::HashMap;
use std::hash::BuildHasher;

use tonic::Status;

use crate::limits::{MAX_MAP_BYTES, MAX_PATH_BYTES};
use crate::proto::v1::VolumeCapability;
use crate::proto::v1::volume_capability::AccessType;
use crate::proto::v1::volume_capability::access_mode::Mode;

/// The file systems that the node makes. The first is made when none is named.
pub(crate) const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];

/// A text that a call has to have.
pub(crate) fn text<'a>(name: &str, value: &'a str, max_bytes: usize) -> Result<&'a str, Status> {
    match value.len() {
        0 => Err(Status::invalid_argument(format!("{name} is missing"))),
        len if len > max_bytes => {
            Err(Status::invalid_argument(format!("{name} has {len} bytes, and {max_bytes} at most are allowed")))
        }
        _ => Ok(value),
    }
}

/// A path that a call has to have.
pub(crate) fn path<'a>(name: &str, value: &'a str) -> Result<&'a str, Status> {
    let path = text(name, value, MAX_PATH_BYTES)?;
    if path.contains('\0') {
        return Err(Status::invalid_argument(format!("{name} has a NUL byte")));
    }
    Ok(path)
}

/// Checks the size of a map.
pub(crate) fn map<H: BuildHasher>(name: &str, map: &HashMap<String, String, H>) -> Result<(), Status> {
    let bytes: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_MAP_BYTES {
        return Err(Status::invalid_argument(format!(
            "{name} has {bytes} bytes, and {MAX_MAP_BYTES} at most are allowed"
        )));
    }
    Ok(())
}

/// A way of using a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    /// The file system, or `None` for a block device.
    pub(crate) mount: Option<Mounting>,
    pub(crate) mode: Mode,
}

/// A file system that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounting {
    pub(crate) fs_type: String,
    pub(crate) flags: Vec<String>,
}

impl Use {
    /// Reads a capability, or says why no volume has it.
    pub(crate) fn new(capability: &VolumeCapability) -> Result<Self, String> {
        let mode = capability.access_mode.and_then(|mode| Mode::try_from(mode.mode).ok()).unwrap_or(Mode::Unknown);
        if mode == Mode::Unknown {
            return Err("access_mode is missing, or of a later version of CSI".into());
        }
        let mount = match &capability.access_type {
            None => return Err("access_type is missing; say mount or block".into()),
            Some(AccessType::Block(_)) => None,
            Some(AccessType::Mount(mount)) => {
                let fs_type = if mount.fs_type.is_empty() { FILE_SYSTEMS[0] } else { &mount.fs_type };
                if !FILE_SYSTEMS.contains(&fs_type) {
                    return Err(format!(
                        "there is no file system {fs_type:?}; take one of {}",
                        FILE_SYSTEMS.join(", ")
                    ));
                }
                if !mount.volume_mount_group.is_empty() {
                    return Err("volume_mount_group is not supported; the group is set by fsGroup".into());
                }
                let bytes: usize = mount.mount_flags.iter().map(String::len).sum();
                if bytes > MAX_MAP_BYTES || mount.mount_flags.iter().any(|flag| flag.contains('\0')) {
                    return Err(format!("mount_flags has {bytes} bytes, or a NUL byte"));
                }
                Some(Mounting { fs_type: fs_type.into(), flags: mount.mount_flags.clone() })
            }
        };
        let writers_share = matches!(mode, Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter);
        if mount.is_some() && writers_share {
            return Err(format!(
                "{}: no file system here is for several nodes when one of them writes; take a block volume, or ReadOnlyMany",
                mode.as_str_name()
            ));
        }
        Ok(Self { mount, mode })
    }

    /// Reads the capability that a call has to have.
    pub(crate) fn of_call(capability: Option<&VolumeCapability>) -> Result<Self, Status> {
        let capability = capability.ok_or_else(|| Status::invalid_argument("volume_capability is missing"))?;
        Self::new(capability).map_err(Status::invalid_argument)
    }

    /// Whether one node at a time uses the volume.
    pub(crate) fn is_of_one_node(&self) -> bool {
        match self.mode {
            Mode::SingleNodeWriter
            | Mode::SingleNodeReaderOnly
            | Mode::SingleNodeSingleWriter
            | Mode::SingleNodeMultiWriter => true,
            Mode::Unknown | Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter => {
                false
            }
        }
    }

    /// Whether no node writes.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::proto::v1::volume_capability::{AccessMode, BlockVolume, MountVolume};

    /// A capability of a file system, or of a block device.
    pub(crate) fn capability(fs_type: Option<&str>, mode: Mode) -> VolumeCapability {
        let mount =
            |fs_type: &str| AccessType::Mount(MountVolume { fs_type: fs_type.into(), ..MountVolume::default() });
        let access_type = fs_type.map_or(AccessType::Block(BlockVolume {}), mount);
        VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type: Some(access_type) }
    }

    #[test]
    fn texts_paths_and_maps_are_bounded() {
        let fits = |len: usize, max| text("name", &"x".repeat(len), max).is_ok();
        assert!(fits(1, 128) && fits(128, 128) && !fits(0, 128) && !fits(129, 128));
        assert!(
            path("path", &"x".repeat(MAX_PATH_BYTES)).is_ok() && path("path", &"x".repeat(MAX_PATH_BYTES + 1)).is_err()
        );
        assert!(path("path", "a\0b").is_err());
        let of = |len: usize| HashMap::from([("k".to_owned(), "x".repeat(len - 1))]);
        assert!(map("parameters", &of(MAX_MAP_BYTES)).is_ok() && map("parameters", &of(MAX_MAP_BYTES + 1)).is_err());
    }

    #[test]
    fn a_file_system_is_for_one_writing_node() {
        for (fs_type, mode, is_fine) in [
            (Some(""), Mode::SingleNodeWriter, true),
            (Some("xfs"), Mode::MultiNodeReaderOnly, true),
            (Some("ext4"), Mode::MultiNodeMultiWriter, false),
            (Some("ext4"), Mode::MultiNodeSingleWriter, false),
            (Some("zfs"), Mode::SingleNodeWriter, false),
            (None, Mode::MultiNodeMultiWriter, true),
            (None, Mode::Unknown, false),
        ] {
            assert_eq!(Use::new(&capability(fs_type, mode)).is_ok(), is_fine, "{fs_type:?} {mode:?}");
        }
        assert!(Use::new(&VolumeCapability::default()).is_err());
        let default = Use::new(&capability(Some(""), Mode::SingleNodeWriter)).unwrap();
        assert_eq!(default.mount.unwrap().fs_type, "ext4");
    }
}
