//! The store: what is kept, and what a wrong key or an altered file is told.

use std::path::Path;

use super::*;
use crate::passphrase::Argon2Cost;
use crate::secret::{Key, Passphrase};
use crate::server::{Keep, Master, Object, ObjectStore, StoreError};

const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 8192, passes: 1, lanes: 1 };

/// Objects of alice, in the order of their identifiers.
fn objects(number: usize) -> Vec<Object> {
    let engine = Engine::default();
    let mut objects: Vec<_> = (0..number)
        .map(|_| engine.handle("alice", Version::one(4), create(), None, NOW).unwrap().changed.unwrap())
        .collect();
    objects.sort_by(|one, other| one.id.cmp(&other.id));
    objects
}

fn ids(objects: &[Object]) -> Vec<&str> {
    objects.iter().map(|object| &*object.id).collect()
}

fn open(path: &Path, key: &Key) -> Result<ObjectStore, StoreError> {
    ObjectStore::open(path, Master::Key(key))
}

#[test]
fn objects_are_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (path, key) = (folder.path().join("keys"), Key::random());
    let kept = objects(3);
    let mut store = open(&path, &key).unwrap();
    for object in &kept {
        store.keep(Some(object), None).unwrap();
    }
    drop(store);
    let mut store = open(&path, &key).unwrap();
    let loaded = store.load().unwrap();
    assert_eq!(ids(&loaded), ids(&kept));
    for (one, other) in kept.iter().zip(&loaded) {
        assert_eq!(one.managed(), other.managed());
        assert_eq!(one.attributes(NOW), other.attributes(NOW));
    }
    store.keep(None, Some(&kept[0].id)).unwrap();
    assert_eq!(ids(&store.load().unwrap()), ids(&kept[1..]));
}

#[test]
fn the_file_holds_no_secret_and_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let mut store = open(&path, &Key::random()).unwrap();
    let object = objects(1).remove(0);
    store.keep(Some(&object), None).unwrap();
    drop(store);
    let bytes = std::fs::read(&path).unwrap();
    let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    let material = object.managed().unwrap().material;
    assert!(has(object.id.as_bytes()), "the identifier is the key of the table");
    assert!(!has(&material) && !has(crate::hex::encode(&material).as_bytes()) && !has(b"alice"));
}

#[test]
fn another_master_key_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    drop(open(&path, &Key::random()).unwrap());
    assert!(matches!(open(&path, &Key::random()), Err(StoreError::WrongMaster)));
    let passphrase = Passphrase::new(b"open sesame".to_vec()).unwrap();
    let refused = ObjectStore::open(&path, Master::Passphrase(&passphrase, CHEAP)).err().unwrap();
    assert!(matches!(refused, StoreError::OtherMaster(_)), "{refused}");
}

#[test]
fn a_passphrase_opens_the_store_at_the_cost_that_it_was_made_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let passphrase = |text: &str| Passphrase::new(text.into()).unwrap();
    let master =
        |passphrase: &Passphrase, cost| ObjectStore::open(&path, Master::Passphrase(passphrase, cost)).map(drop);
    master(&passphrase("open sesame"), CHEAP).unwrap();
    master(&passphrase("open sesame"), Argon2Cost { passes: 7, ..CHEAP }).unwrap();
    assert!(matches!(master(&passphrase("open"), CHEAP), Err(StoreError::WrongMaster)));
    assert!(matches!(open(&path, &Key::random()), Err(StoreError::OtherMaster(_))));
}

#[test]
fn a_store_is_opened_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, key) = (folder.path().join("keys"), Key::random());
    let _first = open(&path, &key).unwrap();
    assert!(matches!(open(&path, &key), Err(StoreError::InUse(_))));
}

#[test]
fn objects_that_were_altered_or_exchanged_are_refused() {
    use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
    const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
    let folder = tempfile::tempdir().unwrap();
    let (path, key) = (folder.path().join("keys"), Key::random());
    let kept = objects(2);
    let mut store = open(&path, &key).unwrap();
    for object in &kept {
        store.keep(Some(object), None).unwrap();
    }
    drop(store);
    let entries: Vec<Vec<u8>> = {
        let database = Database::open(&path).unwrap();
        let table = database.begin_read().unwrap().open_table(OBJECTS).unwrap();
        table.iter().unwrap().map(|entry| entry.unwrap().1.value().to_vec()).collect()
    };
    let mut flipped = entries[0].clone();
    flipped[20] ^= 1;
    for other in [entries[1].clone(), flipped, Vec::new(), entries[0][..40].to_vec(), vec![0; 200_000]] {
        let database = Database::open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(OBJECTS).unwrap().insert(&*kept[0].id, &*other).unwrap();
        transaction.commit().unwrap();
        drop(database);
        let refused = open(&path, &key).unwrap().load().err().unwrap();
        assert!(refused.to_string().contains(&kept[0].id), "{refused}");
    }
}
