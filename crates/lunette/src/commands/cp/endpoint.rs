//! The two ends of a copy.

use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use lunette_initiator::{KeyParameters, Url};
use lunette_nbd::client::NbdUrl;
use lunette_rbd::RbdUrl;
use lunette_store::{FileStore, OpenOptions, Store};
use lunette_volume::{Found, Volume};
use sha2::{Digest, Sha256};

use crate::disks::encrypted::keys::{Keys, volume_failure, volume_on};
use crate::disks::iscsi::{self, RemoteDisk};
use crate::disks::{DiskName, DiskNameError, Place, image, memory, nbd};
use crate::failure::Failure;

/// An end of a copy, as given on the command line.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// `-`: standard input or standard output.
    Standard,
    /// A disk.
    Disk(Box<DiskName>),
}

impl FromStr for End {
    type Err = DiskNameError;

    fn from_str(text: &str) -> Result<Self, DiskNameError> {
        Ok(if text == "-" { Self::Standard } else { Self::Disk(Box::new(text.parse()?)) })
    }
}

/// A disk at one end.
pub(crate) struct Disk {
    /// The name in error messages.
    pub(crate) name: String,
    pub(crate) store: Arc<dyn Store>,
    /// The store, when it is a regular file, whose length can change.
    pub(crate) file: Option<Arc<FileStore>>,
    /// Whether all of it reads as zero.
    pub(crate) blank: bool,
    /// A text for the journal that differs between disks, and changes when a source does.
    pub(crate) identity: String,
    /// The fate of the file when the copy fails.
    pub(crate) unfinished: Unfinished,
    /// The store, when it is an encrypted volume, which is closed when all is done.
    pub(super) volume: Option<Arc<Volume>>,
}

/// The fate of the file at the destination after a copy that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// The destination is no file that was opened for a whole copy.
    Stays,
    /// The file existed before. It is emptied, as it was at the beginning.
    Emptied,
    /// The file was created for the copy, at this path.
    Removed(PathBuf),
}

impl Disk {
    /// Leaves no file behind that looks like a copy. Gives what was done, for the message.
    pub(crate) fn abandon(&self) -> &'static str {
        let done = match (&self.unfinished, &self.file) {
            (Unfinished::Removed(path), _) => fs::remove_file(path).map(|()| "; the unfinished copy was removed"),
            (Unfinished::Emptied, Some(file)) => file.set_len(0).map(|()| "; the unfinished copy was emptied"),
            _ => return "",
        };
        done.unwrap_or("; DST is no whole copy")
    }

    /// The fate of a volume at the destination: a volume as it is may replace another one.
    pub(crate) fn on_volumes(&self) -> Volumes {
        match volume_on(&self.name, &self.store) {
            Ok(Some(_)) => Volumes::Overwritten,
            // What cannot be read ends the copy later.
            Ok(None) | Err(_) => Volumes::Kept,
        }
    }

    /// Leaves nothing to do for the next one to open the disk. Everything was flushed before.
    pub(crate) fn close(&self) -> Result<(), Failure> {
        self.volume.as_ref().map_or(Ok(()), |volume| volume.close()).map_err(|error| volume_failure(&self.name, &error))
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.store.geometry().len_bytes
    }

    pub(crate) fn granularity(&self) -> u64 {
        self.store.geometry().granularity_bytes.max(1).into()
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The part that an end plays in a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Data is read from it.
    Source,
    /// The file becomes a copy. A file is emptied first, then has this many bytes.
    Fresh(u64),
    /// A copy of this many bytes continues.
    Resumed(u64),
}

/// The fate of an encrypted volume at a destination that is given without its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Volumes {
    /// The copy is refused.
    Kept,
    /// The copy takes its place.
    Overwritten,
}

/// Opens one end. No other function knows which kinds of ends exist.
pub(crate) fn open(disk: &DiskName, role: Role, volumes: Volumes) -> Result<Disk, Failure> {
    let disk = match (&disk.place, &disk.keys) {
        (Place::Memory(_), _) => Err(Failure::Usage(memory::ENDS_WITH_THE_COMMAND.into())),
        (Place::File(path), None) => open_path(&path.0, role, volumes),
        (Place::File(path), Some(keys)) => open_encrypted(&path.0, keys, role),
        (Place::Iscsi(name), keys) => open_url(name.url(), keys.as_ref(), role, volumes),
        (Place::Image(url), keys) => open_image(url, keys.as_ref(), role, volumes),
        (Place::Nbd(url), keys) => open_export(url, keys.as_ref(), role, volumes),
        (Place::Longhorn(name), _) => {
            Err(Failure::Usage(format!("{name}: a volume of Longhorn is copied over its target, by an iscsi:// URL")))
        }
        (Place::Volume(name), _) => Err(Failure::Usage(format!(
            "{name}: a volume is copied over its target, by an iscsi:// URL; a clone of it is made by lunette volume"
        ))),
    }?;
    let len = disk.len_bytes();
    match role {
        Role::Fresh(wanted) | Role::Resumed(wanted) if len < wanted => {
            let what = format!("{}: its {len} bytes are too few for the {wanted} of the source", disk.name);
            Err(Failure::disk(what))
        }
        Role::Source | Role::Fresh(_) | Role::Resumed(_) => Ok(disk),
    }
}

fn open_url(url: &Url, keys: Option<&KeyParameters>, role: Role, volumes: Volumes) -> Result<Disk, Failure> {
    let name = url.to_string();
    // Without keys there is no need to log in.
    let keys = keys.map(Keys::fetch).transpose()?;
    let RemoteDisk { store, identity } = iscsi::open(url)?;
    Disk::remote(name, store, identity, keys, role, volumes)
}

fn open_image(url: &RbdUrl, keys: Option<&KeyParameters>, role: Role, volumes: Volumes) -> Result<Disk, Failure> {
    let name = url.to_string();
    // Without keys there is no need to open the image.
    let keys = keys.map(Keys::fetch).transpose()?;
    let any_length = keys.is_some();
    let options = OpenOptions { read_only: role == Role::Source, any_length, ..OpenOptions::default() };
    let opened = image::open(url, &options)?;
    let len = opened.geometry().len_bytes;
    let identity = format!("image {} {len} {}", opened.id(), RbdUrl { user: None, keyring: None, ..url.clone() });
    Disk::remote(name, opened, identity, keys, role, volumes)
}

fn open_export(url: &NbdUrl, keys: Option<&KeyParameters>, role: Role, volumes: Volumes) -> Result<Disk, Failure> {
    // Without keys there is no need to connect.
    let keys = keys.map(Keys::fetch).transpose()?;
    let store = nbd::open(url, role == Role::Source)?;
    let identity = format!("export {} {}", store.geometry().len_bytes, NbdUrl { tls: None, ..url.clone() });
    Disk::remote(url.to_string(), Arc::new(store), identity, keys, role, volumes)
}

fn open_encrypted(path: &Path, keys: &KeyParameters, role: Role) -> Result<Disk, Failure> {
    let keys = Keys::fetch(keys)?;
    let options = OpenOptions { read_only: role == Role::Source, any_length: true, ..OpenOptions::default() };
    let unit: Arc<dyn Store> = Arc::new(FileStore::open(path, &options).map_err(Failure::disk)?);
    let metadata = metadata(path)?;
    let identity = identity(&metadata, unit.geometry().len_bytes, role == Role::Source);
    Disk::encrypted(path.display().to_string(), keys, &unit, &identity, role)
}

impl Disk {
    /// A disk that is no file of this machine.
    fn remote(
        name: String,
        store: Arc<dyn Store>,
        identity: String,
        keys: Option<Keys>,
        role: Role,
        volumes: Volumes,
    ) -> Result<Self, Failure> {
        if let Some(keys) = keys {
            return Self::encrypted(name, keys, &store, &identity, role);
        }
        check(&name, &store, role, volumes)?;
        Ok(Self { name, store, file: None, blank: false, identity, unfinished: Unfinished::Stays, volume: None })
    }

    fn encrypted(name: String, keys: Keys, unit: &Arc<dyn Store>, below: &str, role: Role) -> Result<Self, Failure> {
        let volume = keys.open(&name, Arc::clone(unit), role == Role::Source)?;
        // Opening may have changed the header, for keys that were rotated.
        let found = lunette_volume::find(unit).map_err(|error| volume_failure(&name, &error))?;
        let identity = volume_identity(&found, below);
        Ok(Self {
            name,
            store: Arc::clone(&volume) as _,
            file: None,
            blank: false,
            identity,
            unfinished: Unfinished::Stays,
            volume: Some(volume),
        })
    }
}

/// Refuses to write plain text over an encrypted volume.
fn check(name: &str, store: &Arc<dyn Store>, role: Role, volumes: Volumes) -> Result<(), Failure> {
    if role == Role::Source || volumes == Volumes::Overwritten {
        return Ok(());
    }
    match volume_on(&name, store)? {
        None => Ok(()),
        Some(volume) => Err(Failure::Usage(format!(
            "{name} has {volume}, and without its keys this copy would destroy it; write {name}?keys=file:KEYS to copy into it, or add \
             --overwrite-volume"
        ))),
    }
}

fn open_path(path: &Path, role: Role, volumes: Volumes) -> Result<Disk, Failure> {
    let create = match role {
        Role::Fresh(len) => Some(len),
        Role::Source | Role::Resumed(_) => None,
    };
    let options = OpenOptions { create, read_only: role == Role::Source, any_length: true, ..OpenOptions::default() };
    let was_there = path.exists();
    let store = Arc::new(FileStore::open(path, &options).map_err(Failure::disk)?);
    let metadata = metadata(path)?;
    let name = path.display().to_string();
    check(&name, &(Arc::clone(&store) as _), role, volumes)?;
    let is_file = metadata.is_file();
    let unfinished = match role {
        Role::Fresh(_) if is_file && was_there => Unfinished::Emptied,
        Role::Fresh(_) if is_file => Unfinished::Removed(path.to_owned()),
        _ => Unfinished::Stays,
    };
    let disk = Disk {
        identity: identity(&metadata, store.geometry().len_bytes, role == Role::Source),
        blank: is_file && matches!(role, Role::Fresh(_)),
        file: is_file.then(|| Arc::clone(&store)),
        name,
        store,
        unfinished,
        volume: None,
    };
    match (role, &disk.file) {
        (Role::Fresh(len), Some(file)) => {
            // The file is emptied first, so that all of it is a hole.
            let emptied = file.set_len(0).and_then(|()| file.set_len(len));
            emptied.map_err(|error| {
                let (name, remedy, done) = (&disk.name, lunette_files::remedy(&error), disk.abandon());
                Failure::disk(format!("{name}: cannot give the file its length: {error}{remedy}{done}"))
            })?;
            Ok(Disk { identity: identity(&metadata, len, false), ..disk })
        }
        _ => Ok(disk),
    }
}

/// Whether two names are known to be of the same disk.
pub(crate) fn are_same(one: &DiskName, other: &DiskName) -> bool {
    match (&one.place, &other.place) {
        (Place::File(one), Place::File(other)) => are_same_paths(&one.0, &other.0),
        (Place::Image(one), Place::Image(other)) => is_same_image(one, other),
        (one @ Place::Iscsi(_), other @ Place::Iscsi(_)) | (one @ Place::Nbd(_), other @ Place::Nbd(_)) => {
            one.plain_identity() == other.plain_identity()
        }
        (
            Place::Memory(_)
            | Place::File(_)
            | Place::Image(_)
            | Place::Iscsi(_)
            | Place::Nbd(_)
            | Place::Longhorn(_)
            | Place::Volume(_),
            _,
        ) => false,
    }
}

fn is_same_image(one: &RbdUrl, other: &RbdUrl) -> bool {
    let place = |url: &RbdUrl| RbdUrl { user: None, keyring: None, ..url.clone() };
    place(one) == place(other)
}

fn are_same_paths(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (fs::metadata(one), fs::metadata(other)) else { return false };
    let device = |metadata: &Metadata| metadata.file_type().is_block_device().then(|| metadata.rdev());
    match (device(&one), device(&other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// The path of a regular file, existing or not, beside which a journal can be written.
pub(crate) fn file_path(disk: &DiskName) -> Option<&Path> {
    let path = disk.place.path()?;
    let is_device = fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    (!is_device).then_some(path)
}

/// Whether a source is known to have been written to since it was opened. Only files can tell.
pub(crate) fn has_changed(disk: &DiskName, source: &Disk) -> Result<bool, Failure> {
    match (disk.place.path(), &disk.keys) {
        (Some(path), None) => Ok(identity(&metadata(path)?, source.len_bytes(), true) != source.identity),
        _ => Ok(false),
    }
}

fn metadata(path: &Path) -> Result<Metadata, Failure> {
    fs::metadata(path).map_err(|error| Failure::disk(format!("{}: cannot look it up: {error}", path.display())))
}

/// The identity of a volume: its number, which a format with the same key file keeps, the header, which it does not,
/// and what is below.
fn volume_identity(found: &Found, below: &str) -> String {
    let digest = Sha256::digest(found.sealed());
    let header = u64::from_be_bytes(std::array::from_fn(|index| digest[index]));
    format!("volume {} {header:016x} {below}", found.header().volume)
}

/// The identity of a file. A source must be unchanged; a destination changes as it is written to. The birth time
/// distinguishes a file from a later one with the same inode number.
fn identity(metadata: &Metadata, len: u64, unchanged: bool) -> String {
    if metadata.file_type().is_block_device() {
        return format!("device {} {len}", metadata.rdev());
    }
    let born = metadata.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let file = format!("file {} {} {} {len}", metadata.dev(), metadata.ino(), born.as_nanos());
    if unchanged { format!("{file} {}.{:09}", metadata.mtime(), metadata.mtime_nsec()) } else { file }
}

#[cfg(test)]
mod tests {
    use lunette_keys::keyfile::{Cipher, NewHolder, Unlocked};
    use lunette_keys::{Argon2Cost, Passphrase};

    use super::*;
    use crate::disks::file::FilePath;

    #[test]
    fn a_fresh_file_is_blank_and_a_resumed_one_keeps_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, [7; 1000]).unwrap();
        let resumed = open_path(&path, Role::Resumed(1000), Volumes::Kept).unwrap();
        assert!(!resumed.blank);
        drop(resumed);
        assert_eq!(fs::read(&path).unwrap(), [7; 1000]);
        let location = DiskName { place: Place::File(FilePath(path.clone())), keys: None };
        assert!(matches!(open(&location, Role::Resumed(1001), Volumes::Kept), Err(Failure::Disk(_))));
        assert!(open_path(&path, Role::Fresh(10), Volumes::Kept).unwrap().blank);
        assert_eq!(fs::read(&path).unwrap(), [0; 10]);
    }

    #[test]
    fn identities_differ_between_files_and_after_a_source_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        fs::write(&one, [7; 1000]).unwrap();
        fs::write(&other, [7; 1000]).unwrap();
        let source = |path: &Path| open_path(path, Role::Source, Volumes::Kept).unwrap().identity;
        let destination = |path: &Path| open_path(path, Role::Resumed(1000), Volumes::Kept).unwrap().identity;
        assert_eq!(source(&one), source(&one));
        assert_ne!(source(&one), source(&other));
        let (source_before, destination_before) = (source(&one), destination(&one));
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        fs::File::options().write(true).open(&one).unwrap().set_modified(later).unwrap();
        assert_ne!(source(&one), source_before);
        assert_eq!(destination(&one), destination_before);
    }

    #[test]
    fn a_volume_that_is_made_again_with_the_same_keys_is_another_destination() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, file, secret) =
            (folder.path().join("disk"), folder.path().join("keys"), folder.path().join("secret"));
        fs::write(&disk, vec![0; 1 << 20]).unwrap();
        fs::write(&secret, "open sesame\n").unwrap();
        let passphrase = Passphrase::new(b"open sesame".to_vec()).unwrap();
        let cost = Argon2Cost { memory_kib: Argon2Cost::MIN_MEMORY_KIB, passes: 1, lanes: 1 };
        let holder = NewHolder::Passphrase { passphrase: &passphrase, cost };
        let made = Unlocked::create("owner", holder, Cipher::Aegis256, 0).unwrap();
        fs::write(&file, made.to_bytes()).unwrap();
        let query = format!("keys=file:{}&passphrase_file={}", file.display(), secret.display());
        let parameters = KeyParameters::parse(&query).unwrap();
        let keys = Keys::fetch(&parameters).unwrap().fetched;
        let format = || {
            let options = OpenOptions { any_length: true, ..OpenOptions::default() };
            let unit: Arc<dyn Store> = Arc::new(FileStore::open(&disk, &options).unwrap());
            let options = lunette_volume::FormatOptions { overwrite: true, ..lunette_volume::FormatOptions::default() };
            lunette_volume::format(&unit, keys.volume, &keys.ring, &options, &mut |_| {}).unwrap();
        };
        let identity = || {
            let location = DiskName { place: Place::File(FilePath(disk.clone())), keys: Some(parameters.clone()) };
            open(&location, Role::Resumed(0), Volumes::Kept).unwrap().identity
        };
        format();
        let first = identity();
        assert_eq!(identity(), first);
        format();
        assert_ne!(identity(), first);
    }

    #[test]
    fn one_file_under_two_names_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (one, link) = (folder.path().join("one"), folder.path().join("link"));
        fs::write(&one, [7; 10]).unwrap();
        fs::hard_link(&one, &link).unwrap();
        assert!(are_same_paths(&one, &link));
        assert!(!are_same_paths(&one, folder.path()));
        assert!(!are_same_paths(&one, Path::new("/nonexistent")));
    }
}
