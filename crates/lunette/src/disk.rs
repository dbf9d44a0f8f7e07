//! Disks: from the name that a user writes to a logical unit.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{fmt, io, thread};

use lunette_api::Subject;
use lunette_device::{
    DEFAULT_PRODUCT, DEFAULT_REVISION, DEFAULT_VENDOR, LogicalUnit, LogicalUnitConfig, QuantaOptions, Readiness,
};
use lunette_initiator::{KeyParameters, Url, UrlError, is_url};
use lunette_rbd::{GatewayStore, RbdStore, RbdUrl};
use lunette_state::StateStore;
use lunette_store::{FileStore, MemoryStore, OpenOptions, Store};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::answers::Rounds;
use crate::encrypted::{EncryptedStore, Keys};
use crate::failure::Failure;
use crate::files;
use crate::gateways::RunningGateway;
use crate::images;
use crate::opening::Opening;
use crate::remote_disk;
use crate::size::{NotASize, Size};

/// The location of a disk's blocks: `mem:SIZE`, the path of a file or block device, the URL of an iSCSI disk, or that
/// of an image in Ceph. `?keys=...` behind all but the first makes it an encrypted disk.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct DiskName {
    pub(crate) place: Place,
    pub(crate) keys: Option<KeyParameters>,
}

/// The location of a disk's blocks, as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Memory of this size.
    Memory(Size),
    /// A file or block device.
    Path(PathBuf),
    /// A logical unit of an iSCSI target.
    Remote(RemoteName),
    /// An image in Ceph.
    Image(RbdUrl),
}

/// The URL of an iSCSI disk, without keys.
#[derive(Clone)]
pub(crate) struct RemoteName {
    url: Box<Url>,
    /// The text that distinguishes it from others. It may hold a password.
    text: String,
}

impl PartialEq for RemoteName {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for RemoteName {}

impl fmt::Debug for RemoteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.url, f)
    }
}

/// The common identities of two names of one place: portal, target and LUN, the path without links, or pool and image.
/// `None` for memory. A host under two names is not recognized; what carries the session makes no difference. Neither
/// are the links of a path that does not answer.
pub(crate) fn identities(places: &[&Place]) -> Vec<Option<String>> {
    static ROUNDS: Rounds = Rounds::new();
    let path = |place: &&Place| if let Place::Path(path) = place { Some(path.clone()) } else { None };
    let paths: Vec<_> = places.iter().filter_map(path).collect();
    let names = paths.iter().map(|path| format!("links of {}", path.display())).collect();
    let mut found = ROUNDS.ask(names, move |index| paths[index].canonicalize().ok()).into_iter();
    let identity = |place: &&Place| {
        let canonical = if let Place::Path(_) = place { found.next().flatten().flatten() } else { None };
        canonical.map_or_else(|| place.plain_identity(), |path| Some(path.display().to_string()))
    };
    places.iter().map(identity).collect()
}

impl Place {
    /// The identity as far as the name alone tells it: nothing is asked that may not answer.
    pub(crate) fn plain_identity(&self) -> Option<String> {
        match self {
            Self::Memory(_) => None,
            Self::Path(path) => Some(path.display().to_string()),
            // Names of hosts are the same in either case; those of targets have one.
            Self::Remote(name) => {
                let url = name.url.to_string().to_ascii_lowercase();
                Some(url.split_once("://").map_or_else(String::new, |(_, place)| place.into()))
            }
            Self::Image(url) => Some(RbdUrl { snapshot: None, user: None, keyring: None, ..url.clone() }.to_string()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(Size(bytes)) => write!(f, "mem:{bytes}"),
            Self::Path(path) => path.display().fmt(f),
            Self::Remote(name) => name.url.fmt(f),
            Self::Image(url) => url.fmt(f),
        }
    }
}

/// Says what is wrong with the name of a disk.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskNameError {
    #[error(transparent)]
    Size(#[from] NotASize),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Image(#[from] lunette_rbd::UrlError),
    /// Without the text, which may hold a password.
    #[error(
        "the URL of a disk begins with iscsi://, ecl://, ecl+eth:// or rbd:; write ./ before the name of a file with \"://\""
    )]
    Scheme,
}

/// An image in Ceph, with the keys of an encrypted disk that stand behind its name.
pub(crate) fn parse_image(text: &str) -> Result<(RbdUrl, Option<KeyParameters>), DiskNameError> {
    let Some((place, query)) = text.split_once('?') else { return Ok((text.parse()?, None)) };
    let is_of_keys = |parameter: &&str| KeyParameters::split(&format!("?{parameter}")).is_some();
    let (keys, own): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_of_keys);
    let keys = (!keys.is_empty()).then(|| KeyParameters::parse(&keys.join("&"))).transpose()?;
    let url = if own.is_empty() { place.parse()? } else { format!("{place}?{}", own.join("&")).parse()? };
    Ok((url, keys))
}

/// Whether a text that is no URL of a disk begins like one, such as `iscis://` or `iscsi:`.
fn has_scheme(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '+';
    text.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.chars().all(is_part)
            && (rest.starts_with("//") || ["iscsi", "ecl", "ecl+eth", "iser"].contains(&&*scheme.to_ascii_lowercase()))
    })
}

impl FromStr for DiskName {
    type Err = DiskNameError;

    fn from_str(text: &str) -> Result<Self, DiskNameError> {
        if let Some(size) = text.strip_prefix("mem:") {
            return Ok(Self { place: Place::Memory(size.parse()?), keys: None });
        }
        if is_url(text) {
            let mut url = Box::new(Url::parse(text)?);
            let keys = url.keys.take();
            return Ok(Self { place: Place::Remote(RemoteName { url, text: text.into() }), keys });
        }
        if RbdUrl::is_meant(text) {
            let (url, keys) = parse_image(text)?;
            return Ok(Self { place: Place::Image(url), keys });
        }
        if has_scheme(text) {
            return Err(DiskNameError::Scheme);
        }
        let (path, keys) = match KeyParameters::split(text) {
            Some((path, query)) => (path, Some(KeyParameters::parse(query)?)),
            None => (text, None),
        };
        Ok(Self { place: Place::Path(path.into()), keys })
    }
}

impl TryFrom<String> for DiskName {
    type Error = DiskNameError;

    fn try_from(text: String) -> Result<Self, DiskNameError> {
        text.parse()
    }
}

/// The time at which blocks get their space (SBC-4 4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Provisioning {
    /// On the first write; initiators may free it.
    #[default]
    Thin,
    /// All at once, for good.
    Full,
}

/// One disk to serve.
#[derive(Debug, Clone)]
pub(crate) struct DiskConfig {
    pub(crate) name: DiskName,
    pub(crate) create: Option<Size>,
    pub(crate) block_size: u32,
    pub(crate) quanta: QuantaOptions,
    pub(crate) read_only: bool,
    /// Whether initiators may eject it.
    pub(crate) removable: bool,
    /// Initiators get a unit attention when no more than this much space is left.
    pub(crate) thin_threshold: Option<Size>,
    /// The most bytes per second that a sanitize operation overwrites.
    pub(crate) sanitize_rate: Option<Size>,
    /// Whether it accepts 32-byte CDBs too.
    pub(crate) long_cdbs: bool,
    /// Whether long reads are sent out of the file.
    pub(crate) zero_copy: bool,
    pub(crate) provisioning: Provisioning,
    /// The serial number; derived from target and LUN when it is not given.
    pub(crate) serial: Option<String>,
    /// The names in its INQUIRY data; the device server's own when they are not given.
    pub(crate) vendor: Option<String>,
    pub(crate) product: Option<String>,
    pub(crate) revision: Option<String>,
}

impl DiskConfig {
    pub(crate) fn store_options(&self) -> OpenOptions {
        OpenOptions {
            create: self.create.map(|Size(bytes)| bytes),
            read_only: self.read_only,
            preallocate: self.provisioning == Provisioning::Full,
            // A quantum with its slot is no whole number of sectors.
            any_length: !self.block_size.is_multiple_of(512),
            // Another disk of the same change may be refused.
            tentative: true,
        }
    }
}

/// A disk that is being served.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) config: DiskConfig,
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) store: DiskStore,
    /// The gateway of this process, if others offer the disk, too.
    pub(crate) gateway: Option<Arc<RunningGateway>>,
}

impl Disk {
    /// Whether it is open, and nothing stands in for it.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.store, DiskStore::Absent(_))
    }
}

/// The store of a disk.
#[derive(Clone)]
pub(crate) enum DiskStore {
    Memory(Arc<MemoryStore>),
    File(Arc<FileStore>),
    Image(Arc<RbdStore>),
    /// An image in Ceph that other gateways offer, too.
    Shared(Arc<GatewayStore>),
    /// A disk of another target.
    Other(Arc<dyn Store>),
    Encrypted(EncryptedStore),
    /// Nothing: the disk is not open.
    Absent(Absence),
}

/// A disk that is not open.
#[derive(Clone)]
pub(crate) struct Absence {
    /// The reason and the remedy.
    pub(crate) why: Arc<str>,
    /// The attempt to open it.
    pub(crate) attempt: Option<Opening>,
}

impl DiskStore {
    /// The file or block device below the disk, if it lies in one.
    pub(crate) fn file(&self) -> Option<&Arc<FileStore>> {
        match self {
            Self::File(store) => Some(store),
            Self::Encrypted(store) => store.file.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn to_store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::clone(store) as _,
            Self::File(store) => Arc::clone(store) as _,
            Self::Image(store) => Arc::clone(store) as _,
            Self::Shared(store) => Arc::clone(store) as _,
            Self::Other(store) => Arc::clone(store),
            Self::Encrypted(store) => Arc::clone(&store.volume) as _,
            Self::Absent(_) => NO_BYTES.clone(),
        }
    }

    /// Bytes of a logical block, when the configuration says `wanted`. A quantum is no part of a block.
    fn block_size(&self, wanted: u32) -> u32 {
        let (Self::Other(_) | Self::Encrypted(_)) = self else { return wanted };
        let granularity_bytes = self.to_store().geometry().granularity_bytes;
        if wanted.is_multiple_of(granularity_bytes.max(1)) { wanted } else { LONG_BLOCK.max(granularity_bytes) }
    }
}

/// The store of a unit whose disk cannot be opened.
static NO_BYTES: LazyLock<Arc<MemoryStore>> =
    LazyLock::new(|| Arc::new(MemoryStore::new(0).expect("no bytes fit anywhere")));

/// Bytes of a logical block that is whole quanta of any size.
const LONG_BLOCK: u32 = 4096;

/// Opens a disk as LUN `lun` of `target`, which keeps in `state` what must survive a restart. `open` is its store, if
/// it is open already.
pub(crate) fn open(
    config: DiskConfig,
    target: &str,
    lun: u16,
    state: Option<&Arc<dyn StateStore>>,
    open: Option<DiskStore>,
) -> Result<Disk, Failure> {
    let open_it = || open_store(&config.name, &config.store_options());
    let store = open.map_or_else(open_it, Ok)?;
    over(store, config, target, lun, state)
}

/// Opens a disk that other gateways offer, too: its store is empty until this gateway has the image.
pub(crate) fn open_shared(config: DiskConfig, target: &str, lun: u16) -> Result<Disk, Failure> {
    let Place::Image(url) = &config.name.place else {
        return Err(Failure::Configuration(format!("LUN {lun} of {target}: gateways share images in Ceph only")));
    };
    let store = GatewayStore::open(url, config.store_options().any_length);
    let store = Arc::new(store.map_err(|error| Failure::disk(format!("{url}: {error}")))?);
    over(DiskStore::Shared(store), config, target, lun, None)
}

/// The unit of a disk that is not open. Initiators find it with its serial number, and not ready.
pub(crate) fn stand_in(config: DiskConfig, target: &str, lun: u16, absence: Absence) -> Result<Disk, Failure> {
    over(DiskStore::Absent(absence), config, target, lun, None)
}

/// The disk over a store.
fn over(
    store: DiskStore,
    config: DiskConfig,
    target: &str,
    lun: u16,
    state: Option<&Arc<dyn StateStore>>,
) -> Result<Disk, Failure> {
    let serial = config.serial.clone().unwrap_or_else(|| derived_serial(target, lun));
    let named = |name: &Option<String>, default: &str| name.clone().unwrap_or_else(|| default.into());
    let readiness = match &store {
        DiskStore::Absent(Absence { attempt: Some(_), .. }) => Readiness::BecomingReady,
        DiskStore::Absent(_) => Readiness::NotReady,
        _ => Readiness::Ready,
    };
    let is_ready = readiness == Readiness::Ready;
    let unit = LogicalUnitConfig {
        readiness,
        vendor: named(&config.vendor, DEFAULT_VENDOR),
        product: named(&config.product, DEFAULT_PRODUCT),
        revision: named(&config.revision, DEFAULT_REVISION),
        block_size: store.block_size(config.block_size),
        // Those of a stand-in have nothing to check.
        quanta: if is_ready { config.quanta } else { QuantaOptions::default() },
        read_only: config.read_only,
        removable: config.removable,
        soft_threshold_bytes: config.thin_threshold.map(|Size(bytes)| bytes),
        sanitize_rate: config.sanitize_rate.map(|Size(bytes)| bytes),
        long_cdbs: config.long_cdbs,
        zero_copy: config.zero_copy,
        shared: matches!(store, DiskStore::Shared(_)),
        state: state.cloned(),
        ..LogicalUnitConfig::new(store.to_store(), serial)
    };
    match LogicalUnit::new(unit) {
        Ok(unit) => {
            let unit = Arc::new(unit);
            if is_ready && config.thin_threshold.is_some() {
                watch_space(&unit).map_err(Failure::other)?;
            }
            if let DiskStore::Image(store) = &store {
                images::served(store, &unit);
            }
            files::served(&config.name.place, Subject::lun(target, lun), &store, &unit);
            Ok(Disk { config, unit, store, gateway: None })
        }
        Err(error) => Err(Failure::disk(format!("{}: {error}", config.name.place))),
    }
}

/// The interval at which the space of a disk with a threshold is checked.
const SPACE_INTERVAL: Duration = Duration::from_secs(10);

/// Checks the space of `unit` at intervals, as long as it is served. The check has its own thread, because the file
/// system may be slow to answer.
fn watch_space(unit: &Arc<LogicalUnit>) -> io::Result<()> {
    let unit = Arc::downgrade(unit);
    let watch = move || {
        while let Some(unit) = unit.upgrade() {
            unit.refresh_space();
            drop(unit);
            thread::sleep(SPACE_INTERVAL);
        }
    };
    thread::Builder::new().name("lunette-space".into()).spawn(watch).map(drop)
}

/// Opens the store of a disk: the plain text of one with keys. A missing file is created as `options` say.
pub(crate) fn open_store(name: &DiskName, options: &OpenOptions) -> Result<DiskStore, Failure> {
    let Some(keys) = &name.keys else { return open_place(&name.place, options) };
    if options.create.is_some() {
        let what = format!("{}: an encrypted disk is made by lunette quanta format; leave out create", name.place);
        return Err(Failure::Usage(what));
    }
    // Without keys there is no need to open the disk.
    let keys = Keys::fetch(keys)?;
    let unit = open_place(&name.place, &OpenOptions { any_length: true, tentative: false, ..*options })?;
    let volume = keys.serve(&name.place, unit.to_store(), options.read_only)?;
    Ok(DiskStore::Encrypted(EncryptedStore { volume, file: unit.file().cloned() }))
}

/// Opens a disk as it is. A missing file is created as `options` say.
pub(crate) fn open_place(place: &Place, options: &OpenOptions) -> Result<DiskStore, Failure> {
    match place {
        Place::Memory(Size(bytes)) if options.preallocate => {
            Err(Failure::configuration(format!("mem:{bytes}: memory is always thin; leave out provisioning")))
        }
        Place::Memory(Size(bytes)) => {
            let store = MemoryStore::new(*bytes)
                .ok_or_else(|| Failure::disk(format!("mem:{bytes}: a disk of that size cannot be made")))?;
            Ok(DiskStore::Memory(Arc::new(if options.any_length { store.exact() } else { store })))
        }
        Place::Path(path) => Ok(DiskStore::File(Arc::new(FileStore::open(path, options).map_err(Failure::disk)?))),
        Place::Remote(name) if options.create.is_some() => {
            Err(Failure::Usage(format!("{} cannot be created; leave out create", name.url)))
        }
        Place::Remote(name) => Ok(DiskStore::Other(remote_disk::open(&name.url)?.store)),
        Place::Image(url) if options.create.is_some() => {
            Err(Failure::Usage(format!("{url}: an image is made by rbd create; leave out create")))
        }
        Place::Image(url) if options.preallocate => {
            Err(Failure::configuration(format!("{url}: an image is always thin; leave out provisioning")))
        }
        Place::Image(url) => Ok(DiskStore::Image(images::open(url, options)?)),
    }
}

/// A serial number by which initiators recognize a disk: the same after a restart, and different for each disk.
fn derived_serial(target: &str, lun: u16) -> String {
    let digest = Sha256::digest(format!("{}/{lun}", target.to_ascii_lowercase()));
    let first = u64::from_be_bytes(std::array::from_fn(|index| digest[index]));
    format!("{first:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_stable_and_differ() {
        assert_eq!(derived_serial("iqn.A", 0), derived_serial("iqn.a", 0));
        assert_eq!(derived_serial("iqn.a", 0).len(), 16);
        assert_ne!(derived_serial("iqn.a", 0), derived_serial("iqn.a", 1));
        assert_ne!(derived_serial("iqn.a", 0), derived_serial("iqn.b", 0));
    }

    #[test]
    fn names_tell_memory_from_paths() {
        let place = |text: &str| text.parse::<DiskName>().unwrap().place;
        assert_eq!(place("mem:64M"), Place::Memory(Size(64 << 20)));
        assert!("mem:12Q".parse::<DiskName>().is_err());
        assert_eq!(place("./mem"), Place::Path("./mem".into()));
        assert_eq!(place("iscsi://h/iqn.a:b/0").to_string(), "iscsi://h:3260/iqn.a:b/0");
    }

    #[test]
    fn one_place_has_one_identity_under_all_its_names() {
        let identity = |text: &str| identities(&[&text.parse::<DiskName>().unwrap().place]).remove(0);
        let one = identity("iscsi://h/iqn.a:b/0");
        assert!(one.is_some());
        for same in [
            "ecl://h/iqn.a:b/0",
            "iscsi://u@H:3260/iqn.a:b/0?header_digest=crc32c",
            "iscsi://h/iqn.a%3ab/0?keys=file:k",
        ] {
            assert_eq!(identity(same), one, "{same}");
        }
        for other in ["iscsi://h/iqn.a:b/1", "iscsi://h/iqn.a:c/0", "iscsi://h:3261/iqn.a:b/0", "mem:1M"] {
            assert_ne!(identity(other), one, "{other}");
        }
        let folder = tempfile::tempdir().unwrap();
        let (disk, link) = (folder.path().join("disk"), folder.path().join("link"));
        std::fs::write(&disk, "").unwrap();
        std::os::unix::fs::symlink(&disk, &link).unwrap();
        assert_eq!(identity(disk.to_str().unwrap()), identity(&format!("{}?keys=file:k", link.display())));
    }

    #[test]
    fn an_image_has_its_own_parameters_and_those_of_keys() {
        let name: DiskName = "rbd:p/i?conf=/c&keys=file:k&user=u&passphrase_file=p".parse().unwrap();
        assert_eq!(name.place.to_string(), "rbd:p/i?conf=/c&user=u");
        assert_eq!(name.keys.unwrap().keys, "file:k");
        assert_eq!("rbd:p/i".parse::<DiskName>().unwrap().keys, None);
        let identity = |text: &str| identities(&[&text.parse::<DiskName>().unwrap().place]).remove(0);
        assert_eq!(identity("rbd:p/i@s?user=a&keys=file:k"), identity("rbd:p/i?keyring=b"));
        assert_ne!(identity("rbd:p/i"), identity("rbd:p/n/i"));
        assert_ne!(identity("rbd:p/i?conf=/a"), identity("rbd:p/i?conf=/b"));
        for wrong in ["iscis://u%hush@h/iqn.a/0", "iscsi:/u%hush@h", "rbd:p/i?key=hush"] {
            let error = wrong.parse::<DiskName>().unwrap_err().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
        for wrong in ["rbd:i", "rbd:p/i?id=me", "rbd:p/i?keys=", "rbd:p/i?"] {
            assert!(wrong.parse::<DiskName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_stand_behind_paths_and_urls() {
        for disk in ["a.img", "iscsi://u%25secret@h/iqn.a:b/0"] {
            let name: DiskName = format!("{disk}?keys=file:k&passphrase_file=p").parse().unwrap();
            assert_eq!(name.keys.as_ref().unwrap().keys, "file:k");
            assert!(!format!("{name:?}").contains("secret"));
            assert_eq!(disk.parse::<DiskName>().unwrap().keys, None);
        }
        for disk in ["a.img?keys=", "a.img?tls=d", "iscsi://h/iqn.a:b/0?tls=d"] {
            assert!(disk.parse::<DiskName>().is_err(), "{disk}");
        }
    }
}
