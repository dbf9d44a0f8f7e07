//! Volumes that take another disk over: they are served while their blocks are copied from it.
//!
//! Labels of the volume name that disk. The map of what is copied is a volume of the pool, too, so all of it survives a
//! restart of the server and goes with the pool. A disk that is taken over is open once, however many serve it.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use lunette_pools::{Labels, Location, Name, Pool, Volume};
use lunette_store::filters::ReadOnly;
use lunette_store::{OpenOptions, Store};
use lunette_takeover::{Status, Stores, TakeOver};

use super::super::kind::Opened;
use super::super::{DiskName, Place};
use super::{blocks, uses};
use crate::failure::Failure;

/// The label of a volume with the disk that it takes over.
const SOURCE: &str = "lunette.source";

/// The label with the length of that disk, and the volume that has the map.
const COPYING: &str = "lunette.copying";

/// The label of a volume that is the map of another one, with the name of that.
const MAP: &str = "lunette.map";

/// The label of a volume with the bytes of the shortest block that its content is made for.
pub(crate) const BLOCK_BYTES: &str = "block_bytes";

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
}

impl TakeoverMark {
    /// The mark among labels.
    pub(crate) fn of(labels: &Labels) -> Option<Self> {
        let (source, copying) = (labels.get(SOURCE)?, labels.get(COPYING)?);
        let (source_bytes, map) = copying.split_once(' ')?;
        Some(Self { source: source.clone(), source_bytes: source_bytes.parse().ok()?, map: map.parse().ok()? })
    }

    /// The labels of a volume, with the mark.
    pub(crate) fn among(&self, mut labels: Labels) -> Labels {
        labels.insert(SOURCE.into(), self.source.clone());
        labels.insert(COPYING.into(), format!("{} {}", self.source_bytes, self.map));
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
    labels.get(BLOCK_BYTES)?.parse().ok()
}

/// A disk that is taken over, or is to be.
type Slot = Arc<Mutex<State>>;

#[derive(Default)]
struct State {
    /// The volume alone, and what it takes over.
    open: Option<(Opened, Arc<TakeOver>)>,
    /// Why it is not open.
    trouble: Option<String>,
}

/// The disks that are taken over, until all is copied or the volume goes.
static TAKEOVERS: Mutex<BTreeMap<(String, Name), Slot>> = Mutex::new(BTreeMap::new());

fn key(location: &Location, volume: &Name) -> (String, Name) {
    (location.to_string(), volume.clone())
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

/// Opens a volume that takes a disk over, unless it is being removed. `source`: the other disk, if it is open already.
pub(crate) fn keep_open(
    pool: &dyn Pool,
    location: &Location,
    volume: &Name,
    mark: &TakeoverMark,
    source: Option<Opened>,
) -> Result<Option<Arc<TakeOver>>, Failure> {
    let known = lock(&TAKEOVERS).get(&key(location, volume)).cloned();
    if let Some((_, taken)) = known.and_then(|slot| lock(&slot).open.clone()) {
        return Ok(Some(taken));
    }
    // It may not answer for long; a volume that is being removed does not wait for it.
    let source = match source {
        Some(source) => source,
        None => open_source(&self::source(&mark.source)?).inspect_err(|failure| note(location, volume, failure))?,
    };
    let Some(_opening) = uses::begin(location, volume) else { return Ok(None) };
    take_over(pool, location, volume, mark, Some(source)).map(|(_, taken)| Some(taken))
}

/// Notes why a disk cannot be opened.
fn note(location: &Location, volume: &Name, failure: &Failure) {
    let slot = Arc::clone(lock(&TAKEOVERS).entry(key(location, volume)).or_default());
    lock(&slot).trouble = Some(failure.to_string());
}

/// Opens a volume that takes a disk over, if it is not open yet.
fn take_over(
    pool: &dyn Pool,
    location: &Location,
    volume: &Name,
    mark: &TakeoverMark,
    source: Option<Opened>,
) -> Result<(Opened, Arc<TakeOver>), Failure> {
    let slot = Arc::clone(lock(&TAKEOVERS).entry(key(location, volume)).or_default());
    let mut state = lock(&slot);
    if let Some(open) = &state.open {
        return Ok(open.clone());
    }
    let opened = open(pool, volume, mark, source);
    state.trouble = opened.as_ref().err().map(ToString::to_string);
    state.open = opened.as_ref().ok().cloned();
    opened
}

fn open(
    pool: &dyn Pool,
    volume: &Name,
    mark: &TakeoverMark,
    source: Option<Opened>,
) -> Result<(Opened, Arc<TakeOver>), Failure> {
    let source = match source {
        Some(source) => source,
        None => open_source(&self::source(&mark.source)?)?,
    };
    let place = |volume: &Name| blocks(pool.place(volume, None));
    let target = place(volume).open(&OpenOptions::default())?;
    let map = place(&mark.map).open(&OpenOptions::default())?;
    let stores = Stores { source: source.store, target: Arc::clone(&target.store), map: map.store };
    let taken = TakeOver::open(stores, mark.source_bytes);
    let taken = taken.map_err(|error| Failure::disk(format!("{}: {error}", mark.source)))?;
    Ok((target, Arc::new(taken)))
}

/// Opens the disk that is taken over.
pub(crate) fn open_source(place: &Place) -> Result<Opened, Failure> {
    place.open(&OpenOptions { read_only: true, any_length: true, ..OpenOptions::default() })
}

/// Opens the volume for a LUN.
pub(super) fn serve(
    pool: &dyn Pool,
    location: &Location,
    volume: &Volume,
    mark: &TakeoverMark,
    options: &OpenOptions,
) -> Result<Opened, Failure> {
    let (target, taken) = take_over(pool, location, &volume.name, mark, None)?;
    let store = taken.store();
    let store: Arc<dyn Store> = if options.read_only { Arc::new(ReadOnly::new(store)) } else { store };
    Ok(Opened { store, ..target })
}

/// How far a volume is with its copy, or why it is not open.
pub(crate) fn status(location: &Location, volume: &Name, mark: &TakeoverMark) -> Status {
    let slot = lock(&TAKEOVERS).get(&key(location, volume)).cloned();
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

/// Forgets a disk that was taken over, or whose volume goes. Whether it is closed within this time.
pub(crate) fn forget(location: &Location, volume: &Name, most: Duration) -> bool {
    let Some(slot) = lock(&TAKEOVERS).remove(&key(location, volume)) else { return true };
    let open = lock(&slot).open.take();
    open.is_none_or(|(_, taken)| taken.stop(most))
}

/// Forgets the disks of all pools but these.
pub(super) fn retain(locations: &[&Location]) {
    let kept: Vec<String> = locations.iter().map(ToString::to_string).collect();
    lock(&TAKEOVERS).retain(|(location, _), _| kept.contains(location));
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
        let mark = TakeoverMark {
            source: "nbd://192.0.2.1/a b".into(),
            source_bytes: 1 << 40,
            map: "map-01".parse().unwrap(),
        };
        let marked = mark.among(labels.clone());
        assert!(takes_over(&marked) && !takes_over(&labels));
        assert_eq!(TakeoverMark::of(&marked), Some(mark));
        assert_eq!(TakeoverMark::without(marked), labels);
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
