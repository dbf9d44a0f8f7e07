//! Disks that get another length with a plan.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use lunette_device::LogicalUnit;
use lunette_store::{FileStore, Store};

use crate::disks::Place;
use crate::disks::file::identities_at;
use crate::failure::Failure;
use crate::server::attempts::{Attempt, Attempts};
use crate::server::unit::Disk;

/// A disk that the configuration makes longer, or that has another length than it is served with.
pub(super) struct Growing {
    pub(super) target: String,
    pub(super) number: u16,
    pub(super) place: Place,
    pub(super) unit: Arc<LogicalUnit>,
    pub(super) store: Arc<FileStore>,
    /// The length that the configuration asks for; zero when it asks for none.
    pub(super) at_least: u64,
}

/// Room that was made in a file. It is taken back when it is dropped, unless it is kept.
pub(crate) struct Room {
    /// `None` when it is kept.
    store: Option<Arc<FileStore>>,
    len_bytes: u64,
}

impl Growing {
    /// Measures one disk, whose file has this length now, unless it does not answer.
    pub(super) fn find(
        target: &str,
        number: u16,
        disk: &Disk,
        len: Option<io::Result<u64>>,
        at_least: u64,
    ) -> Result<Option<Self>, String> {
        if !disk.is_open() {
            // It gets its length when it is opened.
            return Ok(None);
        }
        let Some(store) = disk.store.plain_file() else {
            return if at_least == 0 { Ok(None) } else { Err("create makes files longer, and no other disks".into()) };
        };
        let unknown = |error: io::Error| format!("cannot find out its length: {error}");
        let now = match len {
            Some(len) => len.map_err(unknown)?,
            // What is not to change may answer later.
            None if at_least == 0 => return Ok(None),
            None => return Err("its file does not answer".into()),
        };
        let served = store.geometry().len_bytes;
        if now == served && at_least <= now {
            return Ok(None);
        }
        if at_least > now {
            if store.is_block_device().map_err(unknown)? {
                return Err("create cannot make a block device longer; resize the device itself".into());
            }
            if disk.entry.read_only {
                return Err(
                    "it is read only, and its file does not get longer; make the file longer, and send SIGHUP".into()
                );
            }
            if !is_at_its_path(disk, store) {
                return Err("another file has its path, or none; put its file back, or send SIGHUP".into());
            }
        }
        let (place, unit, store) = (disk.entry.disk.place.clone(), Arc::clone(&disk.unit), Arc::clone(store));
        Ok(Some(Self { target: target.into(), number, place, unit, store, at_least }))
    }
}

/// Whether the path of a disk still leads to the file that is served.
fn is_at_its_path(disk: &Disk, store: &FileStore) -> bool {
    let Some(path) = disk.entry.disk.place.path() else { return true };
    identities_at(BTreeSet::from([path.to_owned()])).get(path) == Some(&store.identity())
}

impl Room {
    fn make(store: Arc<FileStore>, at_least: u64) -> Result<Self, Failure> {
        let len_bytes = store.make_room(at_least).map_err(Failure::disk)?;
        Ok(Self { store: Some(store), len_bytes })
    }

    /// The length of the file in bytes, which may be served.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(super) fn keep(mut self) {
        if let Some(store) = self.store.take() {
            store.keep();
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(store) = self.store.take() {
            store.take_back();
        }
    }
}

/// Makes the files longer, side by side, at most until `until`. What is made later is taken back at once, and only then
/// another attempt is made at the file.
pub(super) fn make_rooms(growing: &[Growing], rooms: &Attempts<Room>, until: Instant) -> Vec<Result<Room, Failure>> {
    let begin = |Growing { place, store, at_least, .. }: &Growing| {
        let (store, at_least) = (Arc::clone(store), *at_least);
        rooms.begin(Some(place.to_string()), move || Room::make(store, at_least))
    };
    let attempts: Vec<_> = growing.iter().map(begin).collect();
    let end = |attempt: Attempt<Room>| {
        attempt.wait(Some(until));
        attempt.take().unwrap_or_else(|| Err(Failure::disk("its file does not answer")))
    };
    attempts.into_iter().map(|attempt| attempt.and_then(end)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use lunette_device::LogicalUnitConfig;
    use lunette_store::OpenOptions;

    use super::*;
    use crate::disks::file::FilePath;

    const A_MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn a_file_that_does_not_answer_keeps_no_other_and_gets_its_old_length() {
        let folder = tempfile::tempdir().unwrap();
        let growing = ["slow", "quick"].map(|name| {
            let path = folder.path().join(name);
            fs::write(&path, [0; 4096]).unwrap();
            let store = Arc::new(FileStore::open(&path, &OpenOptions::default()).unwrap());
            let config = LogicalUnitConfig::new(Arc::<FileStore>::clone(&store), "1");
            let unit = Arc::new(LogicalUnit::new(config).unwrap());
            Growing {
                target: "iqn.a".into(),
                number: 0,
                place: Place::File(FilePath(path)),
                unit,
                store,
                at_least: 8192,
            }
        });
        let len = |index: usize| growing[index].store.current_len().unwrap();
        let (rooms, (go_on, hung), (ended, ends)) = (Attempts::default(), channel::<()>(), channel());
        // An earlier attempt at the file that hangs, and comes to its end later.
        let store = Arc::clone(&growing[0].store);
        let earlier = rooms.begin(Some(growing[0].place.to_string()), move || {
            _ = hung.recv();
            let made = Room::make(store, 8192);
            ended.send(()).unwrap();
            made
        });
        let earlier = earlier.unwrap();

        let quick = make_rooms(&growing[1..], &rooms, Instant::now() + A_MINUTE).pop().unwrap().ok().unwrap();
        let slow = make_rooms(&growing[..1], &rooms, Instant::now()).pop().unwrap();
        assert!(slow.err().unwrap().to_string().contains("does not answer"));
        assert_eq!((len(0), quick.len_bytes(), len(1)), (4096, 8192, 8192));
        quick.keep();

        drop(earlier);
        drop(go_on);
        ends.recv().unwrap();
        let slow = make_rooms(&growing[..1], &rooms, Instant::now() + A_MINUTE).pop().unwrap().ok().unwrap();
        assert_eq!(len(0), 8192);
        drop(slow);
        assert_eq!((len(0), len(1)), (4096, 8192));
    }
}
