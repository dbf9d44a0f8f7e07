use lunette_quanta::{Cipher, Holes, Placement, QuantumSize};
use lunette_store::MemoryStore;

use super::*;

const VOLUME: VolumeId = VolumeId([7; 16]);

fn header(volume: VolumeId, quanta: u64) -> Header {
    Header {
        volume,
        cipher: Cipher::Aegis256,
        size: QuantumSize::B512,
        placement: Placement::Native,
        quanta,
        holes: Holes::Allowed,
        first_epoch: 1,
        newest_epoch: 1,
        group: None,
        generation: 1,
    }
}

fn created(quanta: u64) -> (tempfile::TempDir, PathBuf, Anchor) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("anchor");
    let anchor = Anchor::create(&path, &header(VOLUME, quanta)).unwrap();
    (folder, path, anchor)
}

fn unit() -> MemoryStore {
    MemoryStore::new(4096).unwrap()
}

const HOLE: u64 = 0;

#[test]
fn what_is_older_than_the_last_write_is_refused() {
    let (_folder, _, anchor) = created(4);
    anchor.written(2, 50);
    assert!(!anchor.admit(2, 49));
    assert!(!anchor.admit(2, HOLE));
    assert!(anchor.admit(2, 50));
    assert!(anchor.admit(2, 60), "another client wrote it");
    assert!(!anchor.admit(2, 50), "what was seen once is remembered");
    assert!(anchor.admit(1, 1), "nothing is known of its neighbour");
    assert_eq!(anchor.highest(), 60);
}

#[test]
fn what_was_saved_is_known_at_the_next_opening_and_nothing_else() {
    // Pages at both ends, adjacent ones, and one in another word of the bits.
    let quanta = 70 * PAGE_ENTRIES as u64 + 3;
    let (_folder, path, anchor) = created(quanta);
    let saved = [0, 1, 700, 2 * 512 + 9, 66 * 512, quanta - 1];
    for position in saved {
        anchor.written(position, position + 10);
    }
    anchor.save(&unit()).unwrap();
    anchor.written(5, 9);
    assert!(matches!(Anchor::open(&path, &header(VOLUME, quanta), false), Err(AnchorError::InUse { .. })));
    drop(anchor);
    let anchor = Anchor::open(&path, &header(VOLUME, quanta), false).unwrap();
    for position in saved {
        assert!(!anchor.admit(position, position + 9), "{position}");
        assert!(anchor.admit(position, position + 10), "{position}");
    }
    assert!(anchor.admit(5, 1), "it was not saved");
}

/// A unit whose flushes fail.
struct NoFlush;

impl Store for NoFlush {
    fn geometry(&self) -> lunette_store::Geometry {
        unit().geometry()
    }

    fn capabilities(&self) -> lunette_store::Capabilities {
        unit().capabilities()
    }

    fn submit(&self, op: Op, _: &dyn lunette_store::FileIo, done: lunette_store::Completion) {
        let error = std::io::Error::other("a test says so");
        done.complete(lunette_store::Outcome::of(op, Err(error.into())));
    }
}

#[test]
fn nothing_is_saved_that_the_unit_did_not_flush() {
    let (_folder, path, anchor) = created(4);
    anchor.written(3, 50);
    assert!(anchor.save(&NoFlush).is_err());
    let entry = || std::fs::read(&path).unwrap()[4096 + 24..].to_vec();
    assert_eq!(entry(), [0; 8]);
    anchor.save(&unit()).unwrap();
    assert_eq!(entry(), 50_u64.to_le_bytes(), "it stayed to be saved");
}

#[test]
fn one_that_is_read_only_shares_the_file_and_leaves_it_as_it_is() {
    let (_folder, path, anchor) = created(4);
    drop(anchor);
    let open = |read_only| Anchor::open(&path, &header(VOLUME, 4), read_only);
    let (one, other) = (open(true).unwrap(), open(true).unwrap());
    assert!(matches!(open(false), Err(AnchorError::InUse { .. })));
    assert!(one.admit(0, 50) && !one.admit(0, 49));
    one.save(&unit()).unwrap();
    drop((one, other));
    assert!(open(true).unwrap().admit(0, 49));
}

#[test]
fn the_anchor_of_another_volume_is_refused() {
    let (_folder, path, anchor) = created(8);
    drop(anchor);
    let open = |volume, quanta| Anchor::open(&path, &header(VolumeId(volume), quanta), false).unwrap_err();
    assert!(matches!(open([8; 16], 8), AnchorError::OtherVolume { .. }));
    assert!(matches!(open([7; 16], 9), AnchorError::OtherVolume { .. }));
    std::fs::File::options().write(true).open(&path).unwrap().set_len(4100).unwrap();
    assert!(matches!(open([7; 16], 8), AnchorError::OtherVolume { .. }));
    assert!(Anchor::create(&path, &header(VOLUME, 8)).is_err(), "nothing is overwritten");
    assert!(matches!(
        Anchor::create(&path, &header(VOLUME, MAX_ANCHORED_QUANTA + 1)),
        Err(AnchorError::TooLong(quanta)) if quanta > MAX_ANCHORED_QUANTA
    ));
}
