//! Logical units: the disks of a configuration, open or not.

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use lunette_api::Subject;
use lunette_device::{LogicalUnit, LogicalUnitConfig, QuantaOptions, Readiness};
use lunette_rbd::GatewayStore;
use lunette_state::StateStore;
use lunette_store::{FileStore, Store};

use crate::config::LunEntry;
use crate::disks::memory::no_bytes;
use crate::disks::{self, Opened, Place};
use crate::failure::Failure;
use crate::server::gateways::RunningGateway;
use crate::server::opening::Opening;

/// A disk that is being served.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) entry: LunEntry,
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
    Open(Opened),
    /// An image in Ceph that other gateways offer, too.
    Shared(Arc<GatewayStore>),
    /// Nothing: the disk is not open.
    Absent(Absence),
}

impl DiskStore {
    /// The disk, if it is open and this server's alone.
    pub(crate) fn opened(&self) -> Option<&Opened> {
        if let Self::Open(disk) = self { Some(disk) } else { None }
    }

    /// The file or block device below the disk, if it lies in one.
    pub(crate) fn file(&self) -> Option<&Arc<FileStore>> {
        self.opened()?.file()
    }

    /// The file or block device whose bytes are those of the disk, if any.
    pub(crate) fn plain_file(&self) -> Option<&Arc<FileStore>> {
        self.opened()?.plain_file()
    }

    fn to_store(&self) -> Arc<dyn Store> {
        match self {
            Self::Open(disk) => Arc::clone(&disk.store),
            Self::Shared(store) => Arc::clone(store) as _,
            Self::Absent(_) => no_bytes(),
        }
    }
}

/// A disk that is not open.
#[derive(Clone)]
pub(crate) struct Absence {
    /// The reason and the remedy.
    pub(crate) why: Arc<str>,
    /// The attempt to open it.
    pub(crate) attempt: Option<Opening>,
}

/// Opens a disk of `target`, which keeps in `state` what must survive a restart. `open` is the disk, if it is open
/// already.
pub(crate) fn open(
    entry: LunEntry,
    target: &str,
    state: Option<&Arc<dyn StateStore>>,
    open: Option<Opened>,
) -> Result<Disk, Failure> {
    let open_it = || entry.disk.open(&entry.store_options());
    let disk = open.map_or_else(open_it, Ok)?;
    over(DiskStore::Open(disk), entry, target, state)
}

/// Opens a disk that other gateways offer, too: its store is empty until this gateway has the image.
pub(crate) fn open_shared(entry: LunEntry, target: &str) -> Result<Disk, Failure> {
    let Place::Image(url) = &entry.disk.place else {
        let number = entry.number;
        return Err(Failure::Configuration(format!("LUN {number} of {target}: gateways share images in Ceph only")));
    };
    let store = GatewayStore::open(url, entry.store_options().any_length);
    let store = Arc::new(store.map_err(|error| Failure::disk(format!("{url}: {error}")))?);
    over(DiskStore::Shared(store), entry, target, None)
}

/// The unit of a disk that is not open. Initiators find it with its serial number, and not ready.
pub(crate) fn stand_in(entry: LunEntry, target: &str, absence: Absence) -> Result<Disk, Failure> {
    over(DiskStore::Absent(absence), entry, target, None)
}

/// The disk over a store.
fn over(store: DiskStore, entry: LunEntry, target: &str, state: Option<&Arc<dyn StateStore>>) -> Result<Disk, Failure> {
    let readiness = match &store {
        DiskStore::Absent(Absence { attempt: Some(_), .. }) => Readiness::BecomingReady,
        DiskStore::Absent(_) => Readiness::NotReady,
        _ => Readiness::Ready,
    };
    let is_ready = readiness == Readiness::Ready;
    let configured = entry.unit_config(target, store.to_store());
    // What the configuration says counts before what the disk brings.
    let own_serial = store.opened().and_then(Opened::serial).filter(|_| entry.serial.is_none());
    let unit = LogicalUnitConfig {
        readiness,
        serial: own_serial.map_or_else(|| configured.serial.clone(), str::to_owned),
        block_size: store.opened().map_or(configured.block_size, |disk| disk.block_size(configured.block_size)),
        // Those of a stand-in have nothing to check.
        quanta: if is_ready { configured.quanta } else { QuantaOptions::default() },
        shared: matches!(store, DiskStore::Shared(_)),
        state: state.cloned(),
        ..configured
    };
    match LogicalUnit::new(unit) {
        Ok(unit) => {
            let unit = Arc::new(unit);
            if is_ready && entry.thin_threshold.is_some() {
                watch_space(&unit).map_err(Failure::other)?;
            }
            if let Some(disk) = store.opened() {
                disks::served(&entry.disk.place, Subject::lun(target, entry.number), disk, &unit);
            }
            Ok(Disk { entry, unit, store, gateway: None })
        }
        Err(error) => Err(Failure::disk(format!("{}: {error}", entry.disk.place))),
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
