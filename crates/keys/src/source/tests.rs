use std::fs;
use std::path::Path;

use super::*;
use crate::keyfile::{Cipher, NewHolder};
use crate::passphrase::Argon2Cost;

const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 8192, passes: 1, lanes: 1 };

fn passphrase(text: &str) -> Passphrase {
    Passphrase::new(text.as_bytes().to_vec()).unwrap()
}

/// A key file with the passphrase `open sesame`, in a folder of its own.
fn key_file(change: impl FnOnce(&mut Unlocked)) -> (tempfile::TempDir, KeySource) {
    let folder = tempfile::tempdir().unwrap();
    let secret = passphrase("open sesame");
    let holder = NewHolder::Passphrase { passphrase: &secret, cost: CHEAP };
    let mut keys = Unlocked::create("alice", holder, Cipher::Aegis256, 0).unwrap();
    change(&mut keys);
    let path = folder.path().join("keys");
    fs::write(&path, keys.to_bytes()).unwrap();
    fs::write(folder.path().join("passphrase"), "open sesame\n").unwrap();
    let opening = Opening { passphrase: Some(PassphraseSource::File(folder.path().join("passphrase"))), tls: None };
    let source = KeySource { place: KeyPlace::File(path), opening };
    (folder, source)
}

fn refusal(source: &KeySource) -> String {
    source.fetch(&mut |_| None).unwrap_err().to_string()
}

fn path(source: &KeySource) -> &Path {
    let KeyPlace::File(path) = &source.place else { panic!("it is a file") };
    path
}

#[test]
fn a_ring_has_the_keys_of_all_epochs() {
    let (_folder, source) = key_file(|keys| {
        keys.rotate(Cipher::Aegis256, 1).unwrap();
        keys.rotate(Cipher::Aegis256, 2).unwrap();
        keys.destroy_epoch(2).unwrap();
    });
    let keys = source.fetch(&mut |_| None).unwrap();
    assert_eq!(keys.volume.0, source.read().unwrap().volume());
    assert_eq!((keys.ring.newest_epoch(), keys.generation), (3, 4));
    assert!(keys.ring.has(1) && !keys.ring.has(2) && keys.ring.has(3));
}

#[test]
fn a_person_is_asked_when_nothing_else_opens_the_file() {
    let (_folder, mut source) = key_file(|_| {});
    source.opening = Opening::default();
    let mut asked = Vec::new();
    let ask = &mut |name: &str| {
        asked.push(name.to_owned());
        Some(passphrase("open sesame"))
    };
    source.fetch(ask).unwrap();
    assert_eq!(asked, [path(&source).display().to_string()]);
    let message = refusal(&source);
    assert!(message.contains("passphrase_file"), "{message}");
}

#[test]
fn each_mistake_has_a_message_of_its_own() {
    let (folder, source) = key_file(|_| {});
    let whole = fs::read(path(&source)).unwrap();
    fs::write(path(&source), &whole[..whole.len() / 2]).unwrap();
    let message = refusal(&source);
    assert!(message.contains("cut off") && message.contains(&*path(&source).to_string_lossy()), "{message}");

    fs::write(path(&source), &whole).unwrap();
    fs::write(folder.path().join("passphrase"), "another").unwrap();
    let error = source.fetch(&mut |_| None).unwrap_err();
    assert!(error.is_wrong_secret() && error.to_string().contains("no holder"), "{error}");

    fs::remove_file(folder.path().join("passphrase")).unwrap();
    let message = refusal(&source);
    assert!(message.contains("passphrase file") && message.contains("No such file"), "{message}");

    fs::remove_file(path(&source)).unwrap();
    let message = refusal(&source);
    assert!(message.contains("the key file") && message.contains("No such file"), "{message}");

    let server = KeySource { place: "kmip://localhost/vm1".parse().unwrap(), opening: Opening::default() };
    let message = refusal(&server);
    assert!(message.contains("tls=DIR"), "{message}");
}

#[test]
fn epochs_of_two_ciphers_are_refused() {
    let (_folder, source) = key_file(|keys| {
        keys.rotate(Cipher::Aes256GcmSiv, 1).unwrap();
    });
    let message = refusal(&source);
    assert!(message.contains("epoch 1 has the cipher aegis-256 and epoch 2 has aes-256-gcm-siv"), "{message}");
}

#[test]
fn names_of_credentials_stay_in_their_folder() {
    for name in ["", ".", "..", "../x", "a/b", "/etc/passwd"] {
        assert!(credential(name).is_err(), "{name}");
    }
}
