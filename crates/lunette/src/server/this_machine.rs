//! The objects of a configuration that this machine has and lacks.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use lunette_store::{FileStore, OpenError, OpenOptions};
use rustix::fs::{OFlags, statvfs};

use super::certificates::{self, Use};
use super::control_plane;
use crate::config::api::{Api, Place as ApiPlace};
use crate::config::check::Severity;
use crate::config::check::machine::{Lack, Machine};
use crate::config::{LunEntry, Provisioning};
use crate::questions::Rounds;
use crate::secret::SecretFiles;
use crate::size::Size;
use crate::system;

/// The longest path of a Unix socket (unix(7)), without its end.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The machine on which this process runs.
pub(crate) struct ThisMachine;

#[expect(clippy::needless_pass_by_value, reason = "as map_err gives it")]
fn degraded(why: impl ToString) -> Lack {
    (Severity::Degraded, why.to_string())
}

impl Machine for ThisMachine {
    fn listen(&self, address: SocketAddr) -> Result<(), Lack> {
        TcpListener::bind(address).map(drop).map_err(|error| {
            let why = system::listen_failure(address, &error).to_string();
            // The program may be the server that the file is for.
            if error.kind() == ErrorKind::AddrInUse { (Severity::Note, why) } else { degraded(why) }
        })
    }

    fn interface(&self, name: &str) -> Result<(), Lack> {
        let is_there = !name.contains('/') && Path::new("/sys/class/net").join(name).exists();
        if is_there {
            Ok(())
        } else {
            Err(degraded(format!("this machine has no interface {name}; `ip link` lists them")))
        }
    }

    fn secrets(&self, files: &[&Path]) -> SecretFiles {
        SecretFiles::read(files.iter().copied())
    }

    /// A disk that does not answer keeps no answer from the others: the check may stand before a start.
    fn disks(&self, entries: &[LunEntry]) -> Vec<Result<(), Lack>> {
        static ROUNDS: Rounds = Rounds::new();
        let names = entries.iter().map(|entry| format!("disk {}", entry.disk.place)).collect();
        let asked = entries.to_vec();
        let late = |entry: &LunEntry| {
            Err(degraded(format!("{}: it does not answer; check what it lies on", entry.disk.place)))
        };
        let answers = ROUNDS.ask(names, move |index| disk(&asked[index]));
        answers.into_iter().zip(entries).map(|(answer, entry)| answer.unwrap_or_else(|| late(entry))).collect()
    }

    fn folder_of(&self, file: &Path) -> Result<(), Lack> {
        if file.is_dir() {
            return Err(degraded(format!("{} is a folder; name a file in it", file.display())));
        }
        let folder = folder(file);
        match folder.metadata() {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(degraded(format!("{} is no folder", folder.display()))),
            Err(error) => Err(degraded(format!("{}: {error}; make the folder first", folder.display()))),
        }
    }

    fn certificates(&self, folder: &Path) -> Result<(), Lack> {
        certificates::check(Use::Portal, folder).map_err(|error| degraded(format!("tls: {error}")))
    }

    fn api(&self, api: &Api, place: &ApiPlace) -> Result<(), Lack> {
        match place {
            ApiPlace::Unix(path) => {
                if path.as_os_str().len() > MAX_SOCKET_PATH_BYTES {
                    let path = path.display();
                    return Err(degraded(format!(
                        "{path}: a socket's path has at most 107 bytes; choose a shorter one"
                    )));
                }
                if path.symlink_metadata().is_ok_and(|found| !found.file_type().is_socket()) {
                    let path = path.display();
                    let why = format!("{path}: a file is there that is no socket; remove it, or choose another path");
                    return Err(degraded(why));
                }
                self.folder_of(path)
            }
            ApiPlace::Tcp(address) => {
                control_plane::credentials(api).map_err(degraded)?;
                self.listen(*address)
            }
        }
    }
}

/// Whether a disk can be opened, as far as this machine tells. Nothing else is asked.
fn disk(entry: &LunEntry) -> Result<(), Lack> {
    if let Some(why) = entry.disk.lack() {
        return Err(degraded(why));
    }
    let Some(path) = entry.disk.place.path() else { return Ok(()) };
    match entry.create {
        Some(Size(bytes)) if !path.exists() => {
            ThisMachine.folder_of(path)?;
            can_be_made(path, bytes)?;
            if entry.provisioning == Provisioning::Full { has_room(path, bytes) } else { Ok(()) }
        }
        _ => file(entry, path),
    }
}

/// Whether a file of this length can be made at a path that leads to none. A file without a name is made for it, where
/// the file system has such files.
fn can_be_made(path: &Path, bytes: u64) -> Result<(), Lack> {
    let cannot = |error: &io::Error| {
        let remedy = lunette_files::remedy(error);
        degraded(format!("{}: it cannot be made with {bytes} bytes: {error}{remedy}", path.display()))
    };
    match path.symlink_metadata() {
        Ok(_) => {
            let to = path.read_link().map(|to| to.display().to_string()).unwrap_or_default();
            return Err(degraded(format!("{}: it is a link to {to}, which is not there", path.display())));
        }
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot(&error)),
        Err(_) => {}
    }
    let nameless = OFlags::TMPFILE.bits().cast_signed();
    match fs::OpenOptions::new().write(true).custom_flags(nameless).open(folder(path)) {
        Ok(file) => file.set_len(bytes).map_err(|error| cannot(&error)),
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
            Err(cannot(&error))
        }
        Err(_) => Ok(()),
    }
}

/// Whether there is space for all blocks of a file that is not there yet.
fn has_room(path: &Path, bytes: u64) -> Result<(), Lack> {
    let Ok(found) = statvfs(folder(path)) else { return Ok(()) };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if bytes <= free {
        return Ok(());
    }
    let why = format!("{}: {bytes} bytes are asked for at once, and its file system has {free} left", path.display());
    Err(degraded(why + "; ask for less, or leave out provisioning"))
}

/// The folder of a file.
fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Whether the file or block device of a disk can be opened.
fn file(entry: &LunEntry, path: &Path) -> Result<(), Lack> {
    let options = OpenOptions { create: None, preallocate: false, ..entry.store_options() };
    FileStore::open(path, &options).map(drop).map_err(|error| {
        let severity = if is_in_use(&error) { Severity::Note } else { Severity::Degraded };
        (severity, error.to_string())
    })
}

/// Whether another process, which may be the server that the file is for, has the disk.
fn is_in_use(error: &OpenError) -> bool {
    matches!(error, OpenError::InUse { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_needs_beside_it_is_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let [disk, new, link] = ["disk", "new", "link"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("/nope", &link).unwrap();
        std::fs::write(&disk, vec![0; 1 << 20]).unwrap();
        let (disk, new, link) = (disk.display(), new.display(), link.display());
        for (keys, expected) in [
            (format!("disk = \"{disk}?keys=file:/nope\""), Some("/nope")),
            (format!("disk = \"{disk}?keys=/nope\""), Some("/nope")),
            ("disk = \"iscsi://u@192.0.2.9/iqn.x/0?chap_secret_file=/nope\"".into(), Some("/nope")),
            ("disk = \"iscsi://192.0.2.9/\"".into(), Some("names no disk")),
            ("disk = \"iscsi://192.0.2.9/iqn.x/0\"".into(), None),
            (format!("disk = \"{new}\", create = \"10T\", provisioning = \"full\""), Some("bytes are asked for")),
            (format!("disk = \"{link}\", create = \"1M\""), Some("a link to /nope, which is not there")),
            (format!("disk = \"{new}{}\", create = \"1M\"", "x".repeat(300)), Some("it cannot be made")),
            (format!("disk = \"{new}\", create = \"1M\", provisioning = \"full\""), None),
            (format!("disk = \"{disk}\""), None),
        ] {
            let entry = crate::config::one_lun(&keys);
            let lack = ThisMachine.disks(&[entry]).remove(0);
            match (lack, expected) {
                (Err((severity, why)), Some(part)) => {
                    assert!(severity == Severity::Degraded && why.contains(part), "{keys}: {why}");
                }
                (lack, expected) => assert_eq!((lack.is_ok(), expected), (true, None), "{keys}"),
            }
        }
    }
}
