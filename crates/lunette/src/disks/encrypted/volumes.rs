//! The encrypted volumes that this process serves: their keys are fetched again, their counts are told, and they are
//! closed at the end.
//!
//! Signals are about the process, so there is one list of them. New keys are looked for at intervals, on SIGHUP, and
//! soon after a quantum was read that a key unknown here has sealed; that read waits for its key, at most
//! [`MAX_KEY_WAIT`]. Only the key file's generation is read until there is a newer one: unlocking a key file takes time
//! by design. When the keys cannot be had, the volume goes on with those that it has, and the log says why.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use lunette_keys::source::{KeySource, KeySourceError, VolumeKeys};
use lunette_volume::{Counts, Volume, VolumeError};

use crate::failure::Failure;

/// The interval at which key files are looked at.
const KEYS_INTERVAL: Duration = Duration::from_mins(1);

/// The interval at which refused quanta are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time that a read waits for a key, until it is refused: less than the 30 s that Linux gives a SCSI
/// command.
const MAX_KEY_WAIT: Duration = Duration::from_secs(20);

/// The least time between two looks at a key file because of refused quanta.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

static SERVED: Mutex<Vec<Arc<Served>>> = Mutex::new(Vec::new());

/// A volume that is served.
struct Served {
    name: String,
    source: KeySource,
    volume: Weak<Volume>,
    known: Mutex<Known>,
}

/// The facts about a volume's keys.
struct Known {
    generation: u64,
    looked: Instant,
    /// Refusals for lack of a key when the keys were last looked for.
    refused: u64,
}

/// Adds a volume to those that are served. `keys` are those that opened it.
pub(crate) fn add(name: String, source: KeySource, keys_generation: u64, volume: &Arc<Volume>) -> Result<(), Failure> {
    let known = Known { generation: keys_generation, looked: Instant::now(), refused: 0 };
    let served = Served { name, source, volume: Arc::downgrade(volume), known: Mutex::new(known) };
    let is_first = {
        let mut all = lock(&SERVED);
        all.retain(|served| served.volume.strong_count() > 0);
        all.push(Arc::new(served));
        all.len() == 1
    };
    if is_first {
        thread::Builder::new().name("lunette-keys".into()).spawn(watch).map_err(Failure::no_thread)?;
    }
    Ok(())
}

/// Fetches the keys of all volumes that have newer ones. Whether there are volumes.
pub(crate) fn refresh() -> bool {
    let all = all();
    for (served, volume) in &all {
        served.refresh(volume);
    }
    !all.is_empty()
}

/// The counts of all volumes; `None` when there are none.
pub(crate) fn counts() -> Option<Vec<(String, Counts)>> {
    let counts: Vec<_> = all().iter().map(|(served, volume)| (served.name.clone(), volume.counts())).collect();
    (!counts.is_empty()).then_some(counts)
}

/// Closes all volumes, so that the next opening has nothing to replay.
pub(crate) fn close() -> Result<(), Failure> {
    let close = |(served, volume): (Arc<Served>, Arc<Volume>)| {
        volume.close().map_err(|error| Failure::other(format!("{}: {error}", served.name)))
    };
    all().into_iter().try_for_each(close)
}

fn all() -> Vec<(Arc<Served>, Arc<Volume>)> {
    lock(&SERVED).iter().filter_map(|served| Some((Arc::clone(served), served.volume.upgrade()?))).collect()
}

/// Looks for new keys until no volume is left.
fn watch() {
    loop {
        thread::sleep(LOOK_INTERVAL);
        let all = all();
        if all.is_empty() {
            let mut list = lock(&SERVED);
            list.retain(|served| served.volume.strong_count() > 0);
            if list.is_empty() {
                return;
            }
        }
        for (served, volume) in &all {
            served.end_waits(volume, Instant::now());
            if served.is_due(volume) {
                served.refresh(volume);
                served.end_waits(volume, Instant::now());
            }
        }
    }
}

impl Served {
    fn is_due(&self, volume: &Volume) -> bool {
        let known = lock(&self.known);
        let since = known.looked.elapsed();
        let refused = volume.counts().refused_unknown_epoch > known.refused;
        let lacks_key = refused || volume.waiting_for_keys().is_some();
        since >= KEYS_INTERVAL || (lacks_key && since >= AGAIN_AFTER)
    }

    /// Refuses reads that have waited for too long, at this moment.
    fn end_waits(&self, volume: &Volume, now: Instant) {
        let refused = now.checked_sub(MAX_KEY_WAIT).map_or(0, |since| volume.refuse_waiting(since));
        if refused > 0 {
            tracing::warn!(disk = %self.name, refused, "reads were refused: their key did not come within {MAX_KEY_WAIT:?}");
        }
    }

    fn refresh(&self, volume: &Volume) {
        let mut known = lock(&self.known);
        known.looked = Instant::now();
        let refused = volume.counts().refused_unknown_epoch;
        let disk = &self.name;
        match self.newer(known.generation) {
            Ok(None) => tracing::debug!(%disk, "there are no newer keys"),
            Ok(Some(keys)) => match self.take(volume, &keys) {
                Ok(()) => {
                    known.generation = keys.generation;
                    tracing::info!(%disk, epoch = keys.ring.newest_epoch(), "new keys were fetched");
                }
                Err(error) => tracing::warn!(%disk, "the keys stay as they were: {error}"),
            },
            Err(error) if error.is_temporary() => {
                tracing::warn!(%disk, "known epochs go on, and reads of newer ones wait up to {MAX_KEY_WAIT:?}: {error}");
            }
            Err(error) => tracing::warn!(%disk, "the keys stay as they were: {error}"),
        }
        known.refused = refused;
    }

    /// The keys, when their file is newer than `generation`.
    fn newer(&self, generation: u64) -> Result<Option<VolumeKeys>, KeySourceError> {
        if self.source.read()?.generation() <= generation {
            return Ok(None);
        }
        let keys = self.source.fetch(&mut |_| None)?;
        Ok(Some(keys).filter(|keys| keys.generation > generation))
    }

    fn take(&self, volume: &Volume, keys: &VolumeKeys) -> Result<(), String> {
        let here = volume.header().volume;
        if keys.volume != here {
            return Err(format!(
                "{} is the key file of volume {} now, and not of {here}",
                self.source.place, keys.volume
            ));
        }
        volume.set_keys(keys.ring.clone()).map_err(|error: VolumeError| error.to_string())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use lunette_buffer::Pool;
    use lunette_initiator::{KeyParameters, encryption};
    use lunette_quanta::{Cipher, DataKey, KeyRing, VolumeId};
    use lunette_store::{Completion, InlineIo, MemoryStore, Op, Store, execute};
    use lunette_volume::{FormatOptions, OpenOptions, find, format};

    use super::*;

    #[test]
    fn a_read_waits_for_its_key_no_longer_than_the_limit() {
        let key = |epoch: u8| DataKey::new([epoch; 32]);
        let first = KeyRing::new(Cipher::Aegis256, 1, &key(1)).expect("a key");
        let mut both = first.clone();
        both.add(2, &key(2)).expect("another epoch");
        let unit: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 20).expect("short enough"));
        format(&unit, VolumeId([1; 16]), &first, &FormatOptions::default(), &mut |_| {}).expect("a volume");
        let found = find(&unit).expect("the volume");
        let open = |keys: &KeyRing, options| Volume::open(Arc::clone(&unit), &found, keys.clone(), options);
        let other = open(&both, OpenOptions::default()).expect("another client");
        let buffer = || Pool::new(1 << 20).take(4096).expect("room");
        execute(&other, Op::Write { offset: 0, from: buffer(), fua: false }).result.expect("a write");
        other.close().expect("a clean end");

        let options = OpenOptions { read_only: true, await_keys: true, ..OpenOptions::default() };
        let volume = Arc::new(open(&first, options).expect("this client"));
        let (tx, rx) = channel();
        let done = Completion::call(move |outcome| drop(tx.send(outcome)));
        volume.submit(Op::Read { offset: 0, into: buffer() }, &InlineIo, done);
        let (_, since) = volume.waiting_for_keys().expect("a read that waits");

        let parameters = KeyParameters {
            keys: "file:/nowhere/keys".into(),
            passphrase_file: None,
            passphrase_credential: None,
            tls: None,
            anchor: None,
        };
        let known = Known { generation: 1, looked: Instant::now(), refused: 0 };
        let source = encryption::key_source(&parameters).expect("a place");
        let served = Served { name: "disk".into(), source, volume: Arc::downgrade(&volume), known: Mutex::new(known) };
        served.end_waits(&volume, since + Duration::from_secs(19));
        assert!(rx.try_recv().is_err(), "not yet");
        served.end_waits(&volume, since + MAX_KEY_WAIT);
        let error = rx.try_recv().expect("it has ended").result.expect_err("without a key");
        assert!(error.to_string().contains("epoch 2"), "{error}");
    }
}
