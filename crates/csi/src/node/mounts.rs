//! The table of mounts (`/proc/self/mountinfo`, proc(5)).

use std::path::{Path, PathBuf};

use tonic::Status;

use super::{Inner, failed};

/// The table of mounts.
const TABLE: &str = "/proc/self/mountinfo";

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// The device, as `MAJOR:MINOR`.
    pub(super) device: String,
    /// The part of the file system that is mounted; for a bound device, the path of the device below `/dev`.
    pub(super) root: String,
    pub(super) at: PathBuf,
    pub(super) is_read_only: bool,
    pub(super) fs_type: String,
    /// The device as mount(8) was given it.
    pub(super) source: String,
    /// Whether the whole file system is read-only, perhaps after an error.
    pub(super) is_fs_read_only: bool,
}

/// The file system of `/dev`, whose devices are mounted one by one.
pub(super) const DEVICES: &str = "devtmpfs";

impl Mount {
    /// Whether both show one file system, or one device. Folders of a file system may be mounted alone.
    pub(super) fn is_of_same(&self, other: &Self) -> bool {
        self.device == other.device && (self.fs_type != DEVICES || self.root == other.root)
    }
}

impl Inner {
    pub(super) fn mounts(&self) -> Result<Vec<Mount>, Status> {
        let text = self.system.read(Path::new(TABLE)).map_err(failed(TABLE))?;
        Ok(text.lines().filter_map(parse).collect())
    }

    /// The uppermost mount at a path.
    pub(super) fn mount_at(&self, path: &Path) -> Result<Option<Mount>, Status> {
        // The table has no symbolic links, and a path that is not there is no mount.
        let path = self.system.real_path(path).unwrap_or_else(|_| path.to_owned());
        Ok(self.mounts()?.into_iter().rev().find(|mount| mount.at == path))
    }
}

fn parse(line: &str) -> Option<Mount> {
    let (mount, fs) = line.split_once(" - ")?;
    let mount: Vec<&str> = mount.split(' ').collect();
    let [_, _, device, root, at, options, ..] = mount[..] else { return None };
    let mut fs = fs.split(' ');
    let (fs_type, source, fs_options) = (fs.next()?, fs.next()?, fs.next()?);
    let is_read_only = |options: &str| options.split(',').any(|option| option == "ro");
    Some(Mount {
        device: device.into(),
        root: unescape(root),
        at: unescape(at).into(),
        is_read_only: is_read_only(options),
        fs_type: fs_type.into(),
        source: unescape(source),
        is_fs_read_only: is_read_only(fs_options),
    })
}

/// Replaces `\040` and the like, which stand for spaces, tabs, line ends and backslashes.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let octal = behind.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &behind[3..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_a_mount() {
        let line = r"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/ro\134ot ro,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!((mount.device.as_str(), mount.root.as_str()), ("98:0", "/mnt1"));
        assert_eq!((mount.at, mount.source.as_str()), ("/mnt 2".into(), r"/dev/ro\ot"));
        assert_eq!((mount.is_read_only, mount.is_fs_read_only, mount.fs_type.as_str()), (false, true, "ext3"));
    }

    #[test]
    fn lines_that_are_cut_are_no_mounts() {
        for line in ["", "36 35 98:0", "36 35 98:0 / /mnt rw", "36 35 98:0 / /mnt rw - ext4", " - "] {
            assert_eq!(parse(line), None, "{line}");
        }
        assert_eq!(unescape(r"a\0"), r"a\0");
        assert_eq!(unescape(r"\999"), r"\999");
    }
}
