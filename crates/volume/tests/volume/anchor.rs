//! Volumes with an anchor, by which they notice what a unit brings back. `tampering` has the table of attacks.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use lunette_buffer::Pool;
use lunette_quanta::{Holes, QuantumSize};
use lunette_store::{
    Capabilities, Completion, FileIo, Geometry, InlineIo, MemoryStore, Op, OpKind, Outcome, Store, execute,
};
use lunette_volume::{Anchor, AnchorError, OpenOptions, Verdict, Volume, VolumeError, find, verify};

use crate::common::{Kind, flush, keys, make, memory, read, refused_at, write};

const NATIVE: Kind = Kind::Native(QuantumSize::B512);
const PACKED: Kind = Kind::Packed(QuantumSize::B512, 512);

/// A unit in memory with a volume, and the file of its anchor.
struct Anchored {
    kind: Kind,
    memory: Arc<MemoryStore>,
    unit: Arc<dyn Store>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Anchored {
    fn new(kind: Kind) -> Self {
        let memory = memory(kind.unit_bytes(16));
        let unit = kind.blocks(Arc::<MemoryStore>::clone(&memory));
        make(&unit, kind, Holes::Allowed);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("anchor");
        drop(Anchor::create(&path, find(&unit).unwrap().header()).unwrap());
        Self { kind, memory, unit, path, _folder: folder }
    }

    fn options(&self) -> OpenOptions {
        OpenOptions { anchor: Some(self.path.clone()), ..OpenOptions::default() }
    }

    fn open(&self) -> Volume {
        self.open_over(&self.unit)
    }

    fn open_over(&self, unit: &Arc<dyn Store>) -> Volume {
        Volume::open(Arc::clone(unit), &find(unit).unwrap(), keys(&[1]), self.options()).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.geometry().len_bytes as usize];
        self.memory.read(0, &mut bytes).unwrap();
        bytes
    }

    /// Gives back what the unit was. It is another unit: the thread of a volume that was dropped may still write a note
    /// to the first one.
    fn roll_back(&mut self, old: &[u8]) {
        self.memory = memory(old.len() as u64);
        self.memory.write(0, old).unwrap();
        self.unit = self.kind.blocks(Arc::<MemoryStore>::clone(&self.memory));
    }

    /// Whether a first quantum of `fill` is refused as rolled back.
    fn refuses(&self, fill: u8) -> bool {
        let volume = self.open();
        let result = read(&volume, 0, 512);
        let refused = volume.counts().refused_rolled_back == 1;
        assert!(result.map_or(refused, |bytes| !refused && bytes == [fill; 512]));
        refused
    }
}

#[test]
fn what_was_flushed_is_not_given_back_older_after_the_client_was_killed() {
    for kind in [NATIVE, PACKED] {
        for (fua, flushed) in [(false, true), (true, false), (false, false)] {
            let mut anchored = Anchored::new(kind);
            let volume = anchored.open();
            write(&volume, 0, &[1; 512], false).unwrap();
            flush(&volume).unwrap();
            let old = anchored.bytes();
            write(&volume, 0, &[2; 512], fua).unwrap();
            if flushed {
                flush(&volume).unwrap();
            }
            drop(volume);
            anchored.roll_back(&old);
            // What was neither flushed nor written with FUA may be lost in a power cut, so it must not be missed.
            assert_eq!(anchored.refuses(1), fua || flushed, "{kind:?}, {fua}, {flushed}");
        }
    }
}

#[test]
fn zeroes_are_sealed_and_unmaps_change_nothing() {
    for kind in [NATIVE, PACKED] {
        let mut anchored = Anchored::new(kind);
        let volume = anchored.open();
        assert!(!volume.capabilities().unmap && !volume.capabilities().write_zeroes);
        write(&volume, 0, &[1; 1024], false).unwrap();
        volume.close().unwrap();
        let old = anchored.bytes();
        execute(&volume, Op::WriteZeroes { offset: 0, len: 512, may_unmap: true, fua: false }).result.unwrap();
        execute(&volume, Op::Unmap { offset: 512, len: 512 }).result.unwrap();
        assert_eq!(read(&volume, 0, 1024).unwrap(), [[0; 512], [1; 512]].concat());
        volume.close().unwrap();
        drop(volume);
        assert!(!anchored.refuses(0));
        anchored.roll_back(&old);
        assert!(anchored.refuses(1), "{kind:?}");
    }
}

/// A unit that holds back the answer to a read.
struct Late {
    inner: Arc<MemoryStore>,
    held: Mutex<Held>,
}

enum Held {
    Nothing,
    TheNextRead,
    Read(Completion, Outcome),
}

impl Store for Late {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let mut held = self.held.lock().unwrap();
        if matches!(*held, Held::TheNextRead) && op.kind() == OpKind::Read {
            *held = Held::Read(done, execute(&*self.inner, op));
        } else {
            drop(held);
            self.inner.submit(op, io, done);
        }
    }
}

#[test]
fn a_read_that_a_write_has_overtaken_is_made_again() {
    for kind in [NATIVE, PACKED] {
        let anchored = Anchored::new(kind);
        let late = Arc::new(Late { inner: Arc::clone(&anchored.memory), held: Mutex::new(Held::Nothing) });
        let unit = kind.blocks(Arc::<Late>::clone(&late));
        let volume = anchored.open_over(&unit);
        write(&volume, 0, &[1; 1024], false).unwrap();
        volume.close().unwrap();
        *late.held.lock().unwrap() = Held::TheNextRead;
        let (tx, rx) = std::sync::mpsc::channel();
        let into = Pool::new(1 << 20).take(1024).unwrap();
        let done = Completion::call(move |outcome| tx.send(outcome).unwrap());
        volume.submit(Op::Read { offset: 0, into }, &InlineIo, done);
        write(&volume, 512, &[2; 512], false).unwrap();
        let held = std::mem::replace(&mut *late.held.lock().unwrap(), Held::Nothing);
        let Held::Read(done, outcome) = held else { panic!("the read came to the unit") };
        done.complete(outcome);
        let outcome = rx.recv().unwrap();
        assert!(outcome.result.is_ok(), "{kind:?}");
        assert_eq!(outcome.buffer.unwrap()[..], [[1; 512], [2; 512]].concat());
        assert_eq!((volume.counts().read_again, volume.counts().refused_rolled_back), (1, 0));
    }
}

#[test]
fn overlapping_writes_at_once_leave_what_the_anchor_knows() {
    for kind in [NATIVE, PACKED] {
        let anchored = Anchored::new(kind);
        let volume = anchored.open();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let volume = &volume;
                scope.spawn(move || {
                    for round in 0..100_u64 {
                        let at = (round + u64::from(thread)) % 3 * 512;
                        write(volume, at, &[thread + 1; 1024], false).unwrap();
                        let bytes = read(volume, at, 1024).unwrap();
                        assert!((1..=4).contains(&bytes[0]), "a rollback is not seen where there is none");
                        if round % 10 == 0 {
                            flush(volume).unwrap();
                        }
                    }
                });
            }
        });
        volume.close().unwrap();
        let content = read(&volume, 0, 4 * 512).unwrap();
        drop(volume);
        assert_eq!(read(&anchored.open(), 0, 4 * 512).unwrap(), content);
    }
}

#[test]
fn verify_finds_what_was_rolled_back() {
    for kind in [NATIVE, PACKED] {
        let mut anchored = Anchored::new(kind);
        let volume = anchored.open();
        write(&volume, 0, &[1; 2048], false).unwrap();
        volume.close().unwrap();
        let old = anchored.bytes();
        write(&volume, 512, &[2; 512], false).unwrap();
        volume.close().unwrap();
        drop(volume);
        let found = find(&anchored.unit).unwrap();
        let bad = |anchored: &Anchored| {
            let anchor = Anchor::open(&anchored.path, found.header(), true).unwrap();
            verify(&anchored.unit, &found, Some(&keys(&[1])), Some(&anchor), &mut |_| {}).unwrap().first_bad
        };
        assert_eq!(bad(&anchored), []);
        anchored.roll_back(&old);
        let found: Vec<_> = bad(&anchored).iter().map(|bad| (bad.position, bad.verdict)).collect();
        assert_eq!(found, [(1, Verdict::RolledBack)]);
    }
}

#[test]
fn an_anchor_is_taken_from_what_is_there_by_verifying() {
    let mut anchored = Anchored::new(NATIVE);
    let open =
        || Volume::open(Arc::clone(&anchored.unit), &find(&anchored.unit).unwrap(), keys(&[1]), OpenOptions::default());
    let volume = open().unwrap();
    write(&volume, 0, &[1; 512], false).unwrap();
    let old = anchored.bytes();
    write(&volume, 0, &[2; 512], false).unwrap();
    drop(volume);
    let found = find(&anchored.unit).unwrap();
    let anchor = Anchor::open(&anchored.path, found.header(), false).unwrap();
    verify(&anchored.unit, &found, Some(&keys(&[1])), Some(&anchor), &mut |_| {}).unwrap();
    anchor.save(&*anchored.unit).unwrap();
    drop(anchor);
    assert!(!anchored.refuses(2));
    anchored.roll_back(&old);
    assert!(anchored.refuses(1));
}

#[test]
fn a_volume_opened_read_only_is_checked_and_its_anchor_stays_as_it_is() {
    let mut anchored = Anchored::new(NATIVE);
    let volume = anchored.open();
    write(&volume, 0, &[1; 512], false).unwrap();
    flush(&volume).unwrap();
    let old = anchored.bytes();
    write(&volume, 0, &[2; 512], true).unwrap();
    drop(volume);
    let before = std::fs::read(&anchored.path).unwrap();
    anchored.roll_back(&old);
    let options = || OpenOptions { read_only: true, ..anchored.options() };
    let open =
        || Volume::open(Arc::clone(&anchored.unit), &find(&anchored.unit).unwrap(), keys(&[1]), options()).unwrap();
    let (one, other) = (open(), open());
    assert_eq!(refused_at(&read(&one, 0, 512).unwrap_err().0), Some(0));
    flush(&other).unwrap();
    assert_eq!(std::fs::read(&anchored.path).unwrap(), before);
}

#[test]
fn a_volume_does_not_open_without_the_anchor_that_is_asked_for() {
    let anchored = Anchored::new(NATIVE);
    let open =
        || Volume::open(Arc::clone(&anchored.unit), &find(&anchored.unit).unwrap(), keys(&[1]), anchored.options());
    let first = open().unwrap();
    assert!(matches!(open(), Err(VolumeError::Anchor(AnchorError::InUse { .. }))));
    drop(first);
    std::fs::remove_file(&anchored.path).unwrap();
    assert!(matches!(open(), Err(VolumeError::Anchor(AnchorError::File { .. }))));
}

#[test]
fn versions_rise_over_those_of_the_anchor_when_the_clock_was_set_back() {
    let anchored = Anchored::new(NATIVE);
    let volume = anchored.open();
    write(&volume, 0, &[1; 512], true).unwrap();
    drop(volume);
    // As if that client's clock had been an hour ahead.
    let mut file = std::fs::read(&anchored.path).unwrap();
    let entry = file[4096..].first_chunk_mut::<8>().unwrap();
    *entry = (u64::from_le_bytes(*entry) + 3_600_000_000_000).to_le_bytes();
    std::fs::write(&anchored.path, file).unwrap();
    let volume = anchored.open();
    assert!(read(&volume, 0, 512).is_err());
    write(&volume, 0, &[2; 512], true).unwrap();
    assert_eq!(read(&volume, 0, 512).unwrap(), [2; 512]);
}
