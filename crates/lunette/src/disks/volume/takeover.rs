//! Volumes that take another disk over: they are served while their blocks are copied from it.
//!
//! Labels of the volume name that disk. The map of what is copied is a volume of the pool, too, so all of it survives a
//! restart of the server and goes with the pool. A disk that is taken over is open once, however many serve it.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use lunette_pools::{Labels, Location, Name, Pool, PoolError};
use lunette_store::filters::ReadOnly;
use lunette_store::{OpenOptions, Store};
use lunette_takeover::{OpenError, Status, Stores, TakeOver};

use super::super::iscsi::{self, RemoteDisk};
use super::super::kind::Opened;
use super::super::{DiskName, Place};
use super::gates::behind_gate;
use super::{blocks, uses};
use crate::failure::Failure;
use crate::text::digest16;

/// The label of a volume with the disk that it takes over.
const SOURCE: &str = "lunette.source";

/// The label with the length of that disk, the volume that has the map, and the identity of the disk.
const COPYING: &str = "lunette.copying";

/// The label of a volume that is the map of another one, with the name of that.
const MAP: &str = "lunette.map";

/// The label of a volume with the bytes of the shortest block that its content is made for.
pub(crate) const BLOCK_BYTES: &str = "block_bytes";

/// The values of that label.
const SECTOR_SIZES: [u32; 2] = [512, 4096];

/// The labels that are the server's alone.
pub(crate) const OWN_LABELS: [&str; 3] = [SOURCE, COPYING, MAP];

/// The mark of a volume that takes another disk over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TakeoverMark {
    /// The other disk.
    pub(crate) source: String,
    /// The length of that disk.
    pub(crate) source_bytes: u64,
    /// The volume with the map.
    pub(crate) map: Name,
    /// The identity of the disk.
    pub(crate) identity: String,
}

impl TakeoverMark {
    /// The mark among labels.
    pub(crate) fn of(labels: &Labels) -> Option<Self> {
        let (source, copying) = (labels.get(SOURCE)?, labels.get(COPYING)?);
        let mut parts = copying.split(' ');
        let (source_bytes, map) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let identity = parts.next().unwrap_or_default().to_owned();
        Some(Self { source: source.clone(), source_bytes, map, identity })
    }

    /// The labels of a volume, with the mark.
    pub(crate) fn among(&self, mut labels: Labels) -> Labels {
        labels.insert(SOURCE.into(), self.source.clone());
        labels.insert(COPYING.into(), format!("{} {} {}", self.source_bytes, self.map, self.identity));
        labels
    }

    /// Labels without the mark.
    pub(crate) fn without(mut labels: Labels) -> Labels {
        labels.retain(|key, _| key != SOURCE && key != COPYING);
        labels
    }
}

/// Whether a volume with these labels takes another disk over.
pub(crate) fn takes_over(labels: &Labels) -> bool {
    labels.contains_key(COPYING)
}

/// The labels of the map of a volume.
pub(crate) fn map_labels(of: &Name) -> Labels {
    [(MAP.to_owned(), of.to_string())].into()
}

/// The volume whose map one with these labels is.
pub(crate) fn map_of(labels: &Labels) -> Option<&str> {
    labels.get(MAP).map(String::as_str)
}

/// Bytes of the shortest block that the content of a volume is made for, if it says.
pub(super) fn block_bytes(labels: &Labels) -> Option<u32> {
    labels.get(BLOCK_BYTES)?.parse().ok().filter(|bytes| SECTOR_SIZES.contains(bytes))
}

/// A disk that is taken over, or is to be. Locked while it is being opened, so it is opened once.
type Slot = Arc<Mutex<State>>;

#[derive(Default)]
struct State {
    /// The volume alone, and what it takes over.
    open: Option<(Opened, Arc<TakeOver>)>,
    /// Why it is not open.
    trouble: Option<String>,
}

/// The disks that are taken over, until all is copied or the volume goes. The name is that of the map: no other volume
/// ever has it, whatever a volume is called later.
static TAKEOVERS: Mutex<Takeovers> = Mutex::new(BTreeMap::new());

type Takeovers = BTreeMap<(String, Name), Slot>;

fn key(location: &Location, mark: &TakeoverMark) -> (String, Name) {
    (location.to_string(), mark.map.clone())
}

/// The disk that a name stands for, which a volume is to take over.
///
/// # Errors
///
/// When it can be none.
pub(crate) fn source(text: &str) -> Result<Place, Failure> {
    let name = DiskName::from_str(text).map_err(|error| Failure::Usage(format!("the source: {error}")))?;
    let refused = |why: &str| Err(Failure::Usage(format!("{name}: {why}")));
    if name.keys.is_some() {
        return refused("an encrypted disk is taken over as it is; leave out keys, and write them at the new LUN");
    }
    match &name.place {
        Place::Memory(_) => return refused("a disk in memory has no content; leave out the source"),
        Place::Volume(_) => return refused("a volume of this server is cloned, or sent to another pool"),
        Place::Iscsi(url) if url.url().shows_secrets() => {
            return refused("labels show the source to others; put the password into a file: chap_secret_file=FILE");
        }
        _ => {}
    }
    name.lack().map_or(Ok(name.place), |why| Err(Failure::Usage(why)))
}

/// A volume that takes a disk over, where it is.
#[derive(Clone, Copy)]
pub(crate) struct Taking<'a> {
    pub(crate) pool: &'a dyn Pool,
    pub(crate) location: &'a Location,
    pub(crate) volume: &'a Name,
    pub(crate) mark: &'a TakeoverMark,
}

impl Taking<'_> {
    /// Opens the volume, unless it is open. `None` when it takes the disk over no more. `source`: the other disk, if it
    /// is open already.
    fn open(self, source: Option<Source>) -> Result<Option<(Opened, Arc<TakeOver>)>, Failure> {
        let slot = Arc::clone(lock(&TAKEOVERS).entry(key(self.location, self.mark)).or_default());
        let mut state = lock(&slot);
        if let Some(open) = &state.open {
            return Ok(Some(open.clone()));
        }
        let opened = self.open_stores(source);
        state.trouble = opened.as_ref().err().map(ToString::to_string);
        // It may be removed, or have got all of the disk, since the caller has read the mark.
        let key = key(self.location, self.mark);
        let is_known = |all: &Takeovers| all.get(&key).is_some_and(|known| Arc::ptr_eq(known, &slot));
        if !self.is_current()? {
            let mut all = lock(&TAKEOVERS);
            // Another slot is that of another opening.
            if is_known(&all) {
                all.remove(&key);
            }
            return Ok(None);
        }
        if !is_known(&lock(&TAKEOVERS)) {
            return Err(Failure::disk(format!("volume {} was closed while it was being opened", self.volume)));
        }
        let opened = opened?;
        state.open = Some(opened.clone());
        Ok(Some(opened))
    }

    fn open_stores(self, source: Option<Source>) -> Result<(Opened, Arc<TakeOver>), Failure> {
        let Self { pool, location, volume, mark } = self;
        let failed = |error: OpenError| Failure::disk(format!("{}: {error}", mark.source));
        let place = |volume: &Name| blocks(pool.place(volume, None));
        let map = place(&mark.map).open(&OpenOptions::default())?.store;
        let source = match source {
            _ if lunette_takeover::is_whole(&map, mark.source_bytes).map_err(failed)? => None,
            Some(source) => Some(source),
            None => Some(open_source(&self::source(&mark.source)?)?),
        };
        if let Some(source) = source.as_ref().filter(|source| source.identity != mark.identity) {
            return Err(Failure::disk(format!(
                "{}: it is another disk ({}) than when it was begun to be taken over ({})",
                mark.source, source.identity, mark.identity
            )));
        }
        let target = behind_gate(location, volume, place(volume).open(&OpenOptions::default())?);
        let stores = Stores { source: source.map(|source| source.store), target: Arc::clone(&target.store), map };
        Ok((target, Arc::new(TakeOver::open(stores, mark.source_bytes).map_err(failed)?)))
    }

    /// Whether the volume has the mark still.
    fn is_current(self) -> Result<bool, Failure> {
        match self.pool.volume(self.volume) {
            Ok(volume) => Ok(TakeoverMark::of(&volume.labels).as_ref() == Some(self.mark)),
            Err(PoolError::NoVolume(_)) => Ok(false),
            Err(error) => Err(Failure::disk(error.to_string())),
        }
    }

    /// Opens the volume for its copy. `None` when it takes the disk over no more.
    ///
    /// # Errors
    ///
    /// When a disk cannot be opened, or the volume is being removed.
    pub(crate) fn keep_open(self, source: Option<Source>) -> Result<Option<Arc<TakeOver>>, Failure> {
        if uses::begin(self.location, self.volume).is_none() {
            return Err(Failure::disk(format!("volume {} is being removed", self.volume)));
        }
        Ok(self.open(source)?.map(|(_, taken)| taken))
    }

    /// Opens the volume for a LUN. `None` when it takes the disk over no more.
    pub(super) fn serve(self, options: &OpenOptions) -> Result<Option<Opened>, Failure> {
        let Some((target, taken)) = self.open(None)? else { return Ok(None) };
        let store = taken.store();
        let store: Arc<dyn Store> = if options.read_only { Arc::new(ReadOnly::new(store)) } else { store };
        Ok(Some(Opened { store, ..target }))
    }
}

/// The disk that is taken over, open.
pub(crate) struct Source {
    pub(crate) store: Arc<dyn Store>,
    /// The text that distinguishes it from others that may have its name later; empty where nothing does.
    pub(crate) identity: String,
}

/// Opens the disk that is taken over.
pub(crate) fn open_source(place: &Place) -> Result<Source, Failure> {
    if let Place::Iscsi(name) = place {
        let RemoteDisk { store, identity } = iscsi::open(name.url())?;
        return Ok(Source { store, identity: digest16(&identity) });
    }
    let options = OpenOptions { read_only: true, any_length: true, ..OpenOptions::default() };
    Ok(Source { store: place.open(&options)?.store, identity: String::new() })
}

/// How far a volume is with its copy, or why it is not open.
pub(crate) fn status(location: &Location, mark: &TakeoverMark) -> Status {
    let slot = lock(&TAKEOVERS).get(&key(location, mark)).cloned();
    let none = |trouble: Option<&str>| Status {
        done_bytes: 0,
        all_bytes: mark.source_bytes,
        is_whole: false,
        trouble: trouble.map(str::to_owned),
    };
    let waits = || none(Some("the source is being opened"));
    let Some(slot) = slot else { return waits() };
    let state = match slot.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(state)) => state.into_inner(),
        Err(TryLockError::WouldBlock) => return waits(),
    };
    match &state.open {
        Some((_, taken)) => taken.status(),
        None => none(state.trouble.as_deref()),
    }
}

/// Closes a disk that was taken over, or whose volume goes. Whether it is closed within this time.
pub(crate) fn close(location: &Location, mark: &TakeoverMark, most: Duration) -> bool {
    let until = Instant::now() + most;
    let Some(slot) = lock(&TAKEOVERS).remove(&key(location, mark)) else { return true };
    let open = match slot.try_lock() {
        Ok(mut state) => state.open.take(),
        Err(TryLockError::Poisoned(state)) => state.into_inner().open.take(),
        // It is being opened, and closed as soon as it is.
        Err(TryLockError::WouldBlock) => None,
    };
    let Some((_, taken)) = open else { return true };
    let has_ended = taken.stop(most);
    // The thread that waits for the copy has it, too.
    while Arc::strong_count(&taken) > 1 && Instant::now() < until {
        thread::sleep(POLL);
    }
    has_ended && Arc::strong_count(&taken) == 1
}

/// The interval at which a disk is looked at that is to be closed.
const POLL: Duration = Duration::from_millis(5);

/// Forgets the disks of all pools but these.
pub(super) fn retain(locations: &[&Location]) {
    let kept: Vec<String> = locations.iter().map(ToString::to_string).collect();
    let gone: Vec<_> = lock(&TAKEOVERS).extract_if(.., |(location, _), _| !kept.contains(location)).collect();
    // To close them takes a while, without the lock.
    drop(gone);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_put_among_labels() {
        let labels: Labels = [("of".to_owned(), "us".to_owned())].into();
        for identity in ["", "0123456789abcdef"] {
            let (source, map) = ("nbd://192.0.2.1/a b".to_owned(), "map-01".parse().unwrap());
            let mark = TakeoverMark { source, source_bytes: 1 << 40, map, identity: identity.into() };
            let marked = mark.among(labels.clone());
            assert!(takes_over(&marked) && !takes_over(&labels));
            assert_eq!(TakeoverMark::of(&marked), Some(mark));
            assert_eq!(TakeoverMark::without(marked), labels);
        }
        assert_eq!(TakeoverMark::of(&labels), None);
    }

    #[test]
    fn some_disks_are_taken_over_by_no_volume() {
        for (text, why) in [
            ("mem:1M", "in memory"),
            ("volume:tank/db", "cloned"),
            ("iscsi://a%secret@192.0.2.1/iqn.a/0", "chap_secret_file"),
            ("nbd://192.0.2.1/a?keys=/k", "encrypted"),
            ("iscsi://192.0.2.1/iqn.a", "names no disk"),
            ("iscsi:/x", "iscsi://"),
        ] {
            let failure = source(text).unwrap_err().to_string();
            assert!(failure.contains(why), "{failure}");
        }
        assert!(source("/srv/old.img").is_ok());
    }
}
