use proptest::prelude::*;

use super::limits::{MAX_EPOCHS, MAX_HOLDERS, MAX_KEY_FILE_BYTES};
use super::*;
use crate::hex;
use crate::secret::{Key, Passphrase};

const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 8192, passes: 1, lanes: 1 };

fn passphrase(text: &str) -> Passphrase {
    Passphrase::new(text.into()).unwrap()
}

fn by_passphrase(passphrase: &Passphrase) -> NewHolder<'_> {
    NewHolder::Passphrase { passphrase, cost: CHEAP }
}

fn volume() -> (Unlocked, Passphrase) {
    let alices = passphrase("of alice");
    (Unlocked::create("alice", by_passphrase(&alices), Cipher::Aegis256, 1000).unwrap(), alices)
}

/// A holder with a key of a server opens at once, which passphrases do not: the way of tests that open a file a
/// thousand times.
fn quick_volume(epochs: u32) -> (Unlocked, Key) {
    let key = Key::random();
    let holder = NewHolder::Kmip { server: "keys.example:5696", object: "object-1", key: &key };
    let mut keys = Unlocked::create("server", holder, Cipher::Aegis256, 1000).unwrap();
    for epoch in 1..epochs {
        keys.rotate(Cipher::Aes256GcmSiv, 1000 + u64::from(epoch)).unwrap();
    }
    (keys, key)
}

fn quick_unlock(bytes: &[u8], key: &Key) -> Result<Unlocked, KeyFileError> {
    KeyFile::parse(bytes)?.unlock(Secret::Kmip { object: "object-1", key })
}

fn same_keys(one: &Unlocked, other: &Unlocked) -> bool {
    one.epochs().len() == other.epochs().len()
        && one.epochs().iter().zip(other.epochs()).all(|(one, other)| {
            (one.epoch(), one.cipher()) == (other.epoch(), other.cipher()) && one.key().same_as(other.key())
        })
}

fn refusal(outcome: Result<impl Sized, KeyFileError>) -> String {
    outcome.err().expect("this is refused").to_string()
}

#[test]
fn each_holder_opens_the_same_keys_and_others_do_not() {
    let (mut keys, alices) = volume();
    let bobs = passphrase("of bob");
    keys.grant("bob", by_passphrase(&bobs)).unwrap();
    keys.rotate(Cipher::Aes256GcmSiv, 2000).unwrap();
    let file = KeyFile::parse(&keys.to_bytes()).unwrap();
    for (secret, name) in [(&alices, "alice"), (&bobs, "bob")] {
        let opened = file.unlock(Secret::Passphrase(secret)).unwrap();
        assert!(same_keys(&opened, &keys));
        assert_eq!((opened.opened_by(), opened.volume()), (name, keys.volume()));
    }
    let wrong = file.unlock(Secret::Passphrase(&passphrase("of eve"))).unwrap_err();
    assert_eq!(wrong, KeyFileError::WrongPassphrase);
}

#[test]
fn what_anyone_can_see_holds_no_key() {
    let (mut keys, _) = volume();
    let key = Key::random();
    keys.grant("server", NewHolder::Kmip { server: "keys.example:5696", object: "17", key: &key }).unwrap();
    let bytes = keys.to_bytes();
    let file = KeyFile::parse(&bytes).unwrap();
    let holders: Vec<_> = file.holders().collect();
    let server = HolderKind::Kmip { server: "keys.example:5696", object: "17" };
    assert_eq!(holders[0], Holder { name: "alice", kind: HolderKind::Passphrase(CHEAP) });
    assert_eq!(holders[1], Holder { name: "server", kind: server });
    let epochs: Vec<_> = file.epochs().collect();
    assert_eq!(epochs, [Epoch { number: 1, cipher: Cipher::Aegis256, created: 1000 }]);
    let text = String::from_utf8(bytes).unwrap();
    for secret in [keys.current().key(), &key] {
        assert!(!text.contains(&hex::encode(secret.expose())));
    }
    assert!(!text.contains("of alice"));
    assert!(!format!("{keys:?} {file:?}").contains(&hex::encode(key.expose())));
}

#[test]
fn rotation_adds_a_current_key_and_keeps_the_others() {
    let (mut keys, _) = volume();
    let first = keys.current().key().clone();
    assert_eq!(keys.rotate(Cipher::Aes256GcmSiv, 2000), Ok(2));
    assert_eq!((keys.current().epoch(), keys.current().cipher()), (2, Cipher::Aes256GcmSiv));
    assert!(keys.epochs()[0].key().same_as(&first));
    assert!(!keys.current().key().same_as(&first));
}

#[test]
fn numbers_of_destroyed_epochs_are_not_used_again() {
    let (mut keys, key) = quick_volume(3);
    keys.destroy_epoch(2).unwrap();
    assert!(refusal(keys.destroy_epoch(2)).contains("no epoch 2"));
    assert!(refusal(keys.destroy_epoch(3)).contains("current"));
    assert_eq!(keys.rotate(Cipher::Aegis256, 0), Ok(4));
    let opened = quick_unlock(&keys.to_bytes(), &key).unwrap();
    assert_eq!(opened.epochs().iter().map(EpochKey::epoch).collect::<Vec<_>>(), [1, 3, 4]);
    assert!(same_keys(&opened, &keys));
}

#[test]
fn a_revoked_holder_opens_old_files_only_and_the_last_one_stays() {
    let (mut keys, alices) = volume();
    let bobs = passphrase("of bob");
    keys.grant("bob", by_passphrase(&bobs)).unwrap();
    let old = keys.to_bytes();
    keys.revoke("bob").unwrap();
    let new = KeyFile::parse(&keys.to_bytes()).unwrap();
    assert!(KeyFile::parse(&old).unwrap().unlock(Secret::Passphrase(&bobs)).is_ok());
    assert_eq!(new.unlock(Secret::Passphrase(&bobs)).unwrap_err(), KeyFileError::WrongPassphrase);
    assert!(new.unlock(Secret::Passphrase(&alices)).is_ok());
    assert!(refusal(keys.revoke("bob")).contains("no holder bob"));
    assert!(refusal(keys.revoke("alice")).contains("last holder"));
}

#[test]
fn another_volume_key_leaves_one_holder_and_the_data_keys() {
    let (mut keys, alices) = volume();
    keys.grant("bob", by_passphrase(&passphrase("of bob"))).unwrap();
    let before = KeyFile::parse(&keys.to_bytes()).unwrap();
    keys.replace_volume_key("alice", by_passphrase(&alices)).unwrap();
    let after = KeyFile::parse(&keys.to_bytes()).unwrap();
    assert_eq!(after.holders().map(|holder| holder.name).collect::<Vec<_>>(), ["alice"]);
    assert!(same_keys(&after.unlock(Secret::Passphrase(&alices)).unwrap(), &keys));
    // Whoever kept the old volume key cannot unwrap what the new one wraps.
    let (old, new) = (&before.document.epochs[0].key, &after.document.epochs[0].key);
    assert_ne!(old, new);
    let mut mixed = before.document.clone();
    mixed.epochs.clone_from(&after.document.epochs);
    let old_key = holder::unwrap(&mixed.volume.0, &mixed.holders[0], Secret::Passphrase(&alices)).unwrap();
    assert_eq!(Unlocked::open(mixed, old_key, "bob".into()).unwrap_err(), KeyFileError::Altered);
}

#[test]
fn holders_have_plain_names_that_differ() {
    let (mut keys, alices) = volume();
    assert!(refusal(keys.grant("alice", by_passphrase(&alices))).contains("already"));
    for name in ["", "a b", "a\n", "\u{e9}", "a\"", &"x".repeat(65)] {
        assert!(refusal(keys.grant(name, by_passphrase(&alices))).contains("letters"), "{name:?}");
    }
    keys.grant(&"x".repeat(64), by_passphrase(&alices)).unwrap();
}

#[test]
fn holders_and_epochs_are_bounded() {
    let (mut keys, key) = quick_volume(MAX_EPOCHS as u32);
    assert!(refusal(keys.rotate(Cipher::Aegis256, 0)).contains("1024 epochs"));
    let holder = NewHolder::Kmip { server: "s:1", object: "o", key: &key };
    for number in 1..MAX_HOLDERS {
        keys.grant(&format!("holder-{number}"), holder).unwrap();
    }
    assert!(refusal(keys.grant("one-more", holder)).contains("32 holders"));
    let bytes = keys.to_bytes();
    assert!(bytes.len() < MAX_KEY_FILE_BYTES / 3, "{} bytes", bytes.len());
    assert!(same_keys(&quick_unlock(&bytes, &key).unwrap(), &keys));
}

#[test]
fn a_cost_out_of_bounds_is_refused_before_it_is_paid() {
    let (keys, _) = volume();
    let text = String::from_utf8(keys.to_bytes()).unwrap();
    let greedy = text.replace("\"memory_kib\": 8192", "\"memory_kib\": 4294967295");
    assert!(refusal(KeyFile::parse(greedy.as_bytes())).contains("memory_kib"));
    let alices = passphrase("a");
    let holder = NewHolder::Passphrase { passphrase: &alices, cost: Argon2Cost { passes: 17, ..CHEAP } };
    assert!(refusal(Unlocked::create("alice", holder, Cipher::Aegis256, 0)).contains("passes"));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (keys, key) = quick_volume(2);
    let bytes = keys.to_bytes();
    for bit in 0..8 * bytes.len() {
        let mut altered = bytes.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        assert!(quick_unlock(&altered, &key).is_err(), "bit {bit}: {}", String::from_utf8_lossy(&altered));
    }
}

#[test]
fn a_file_cut_anywhere_is_refused_and_says_so() {
    let (keys, _) = quick_volume(2);
    let bytes = keys.to_bytes();
    for len in 0..bytes.len() {
        let error = KeyFile::parse(&bytes[..len]).unwrap_err();
        // Without its last line end, the file is whole JSON.
        let said = error == KeyFileError::Truncated
            || (len + 1 == bytes.len() && refusal(Err::<(), _>(error)).contains("end"));
        assert!(said, "{len} bytes");
    }
}

/// The members of the file as JSON, changed and written as this crate writes them, with the old authentication code.
fn altered(bytes: &[u8], change: impl FnOnce(&mut Document)) -> Vec<u8> {
    let (mut document, _) = Document::parse(bytes).unwrap();
    let mac = *document.mac();
    change(&mut document);
    document.render(|_| mac)
}

#[test]
fn holders_and_epochs_cannot_be_removed_reordered_or_exchanged() {
    let (mut keys, key) = quick_volume(4);
    keys.grant("bob", NewHolder::Kmip { server: "s:1", object: "o", key: &Key::random() }).unwrap();
    let bytes = keys.to_bytes();
    let (other, _) = quick_volume(4);
    let (other, _) = Document::parse(&other.to_bytes()).unwrap();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("an epoch removed", altered(&bytes, |file| drop(file.epochs.remove(1)))),
        ("the current epoch removed", altered(&bytes, |file| drop(file.epochs.pop()))),
        ("a holder removed", altered(&bytes, |file| drop(file.holders.pop()))),
        ("holders reordered", altered(&bytes, |file| file.holders.reverse())),
        ("another generation", altered(&bytes, |file| file.generation -= 1)),
        ("another volume", altered(&bytes, |file| file.volume = other.volume.clone())),
        ("another time", altered(&bytes, |file| file.epochs[0].created += 1)),
        ("another cipher", altered(&bytes, |file| file.epochs[1].cipher = "aegis-256".into())),
        ("an epoch of another volume", altered(&bytes, |file| file.epochs[2] = other.epochs[2].clone())),
        (
            "two keys exchanged",
            altered(&bytes, |file| {
                let (first, second) = file.epochs.split_at_mut(2);
                std::mem::swap(&mut first[1].key, &mut second[0].key);
            }),
        ),
        ("the name of a holder", altered(&bytes, |file| file.holders[1].name = "eve".into())),
    ];
    for (what, bytes) in cases {
        let error = quick_unlock(&bytes, &key).unwrap_err();
        assert!(matches!(error, KeyFileError::Altered | KeyFileError::WrongObject(_)), "{what}: {error}");
    }
    assert!(refusal(KeyFile::parse(&altered(&bytes, |file| file.epochs.reverse()))).contains("stands behind"));
}

#[test]
fn a_wrapped_key_opens_in_its_own_place_alone() {
    // The authentication code is right in each case: whoever has the volume key made it. The places still differ.
    let (keys, key) = quick_volume(3);
    let cases: [fn(&mut Document); 3] = [
        |file| file.epochs[2].epoch = 7,
        |file| file.epochs[0].cipher = "aes-256-gcm-siv".into(),
        |file| file.epochs[1].key = file.epochs[0].key.clone(),
    ];
    for (at, change) in cases.into_iter().enumerate() {
        let (mut document, _) = Document::parse(&keys.to_bytes()).unwrap();
        let secret = Secret::Kmip { object: "object-1", key: &key };
        let volume_key = holder::unwrap(&document.volume.0, &document.holders[0], secret).unwrap();
        change(&mut document);
        let bytes = document.render(|text| seal::mac(&mac_key(&keys.volume(), &volume_key), text));
        assert_eq!(quick_unlock(&bytes, &key).unwrap_err(), KeyFileError::Altered, "case {at}");
    }
}

#[test]
fn looseness_of_json_is_refused() {
    let (keys, key) = quick_volume(2);
    let text = String::from_utf8(keys.to_bytes()).unwrap();
    let cases = [
        ("a space before the end", text.replace("\"\n}\n", "\" \n}\n")),
        ("no line end", text.trim_end().to_owned()),
        ("a line too many", format!("{text}\n")),
        ("an unknown member", text.replacen('{', "{\n  \"more\": 1,", 1)),
        ("a member twice", text.replacen("  \"version\": 1,", "  \"version\": 1,\n  \"version\": 1,", 1)),
        ("a member too few", text.replacen("  \"generation\": 2,\n", "", 1)),
        ("upper-case digits", text.to_uppercase()),
        ("a byte order mark", format!("\u{feff}{text}")),
        ("one line", text.replace('\n', "")),
        ("another format", text.replace("lunette key file", "lunette key store")),
    ];
    for (what, text) in cases {
        assert!(matches!(KeyFile::parse(text.as_bytes()), Err(KeyFileError::Malformed(_))), "{what}");
    }
    // Other white space keeps the form, and the authentication code notices it.
    let spaced = text.replacen("\"version\": 1", "\"version\":  1", 1);
    assert_eq!(quick_unlock(spaced.as_bytes(), &key).unwrap_err(), KeyFileError::Altered);
    let later = text.replacen("\"version\": 1,", "\"version\": 2, \"news\": [],", 1);
    assert_eq!(KeyFile::parse(later.as_bytes()).unwrap_err(), KeyFileError::Version(2));
    assert!(refusal(KeyFile::parse(&[0xff; 10])).contains("UTF-8"));
    assert!(refusal(KeyFile::parse(&vec![b' '; MAX_KEY_FILE_BYTES + 1])).contains("longer"));
}

/// The file was written by version 1 of this code, and is opened for ever.
#[test]
fn a_file_of_version_1_opens() {
    let bytes = include_bytes!("../../tests/data/key-file-1.json");
    let file = KeyFile::parse(bytes).unwrap();
    let server = Key::from_slice(&(0..32).collect::<Vec<u8>>()).unwrap();
    let passphrase = passphrase("correct horse battery staple");
    let secrets = [Secret::Passphrase(&passphrase), Secret::Kmip { object: "1f0c", key: &server }];
    for secret in secrets {
        let keys = file.unlock(secret).unwrap();
        assert_eq!(hex::encode(&keys.volume()), "0d374e5597aa3ad27afc1b78ed87e4b1");
        let found: Vec<_> =
            keys.epochs().iter().map(|key| (key.epoch(), key.cipher(), hex::encode(key.key().expose()))).collect();
        let expected = [
            (1, Cipher::Aegis256, "4eeb758774d84813423896dd789f7a560652b1ee6fede116cb9432f4778d8006".to_owned()),
            (3, Cipher::Aes256GcmSiv, "c0f0a2e6779b0e7b10bd9d88195579c7d3beacc8749af88974862c52bc110244".to_owned()),
        ];
        assert_eq!(found, expected);
        assert_eq!(keys.to_bytes(), bytes, "what was not changed is written as it was read");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_are_a_key_file(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(KeyFile::parse(&bytes).is_err());
    }

    #[test]
    fn any_history_of_changes_gives_a_file_that_opens(changes in proptest::collection::vec((0..4u8, 1..6u32), 0..20)) {
        let (mut keys, key) = quick_volume(1);
        let holder = NewHolder::Kmip { server: "s:1", object: "o", key: &key };
        for (what, number) in changes {
            // Some changes are refused, and then nothing changes.
            let before = keys.to_bytes();
            let outcome = match what {
                0 => keys.rotate(Cipher::Aegis256, 0).map(|_| ()),
                1 => keys.destroy_epoch(number),
                2 => keys.grant(&format!("holder-{number}"), holder),
                _ => keys.revoke(&format!("holder-{number}")),
            };
            prop_assert_eq!(outcome.is_err(), keys.to_bytes() == before);
        }
        let bytes = keys.to_bytes();
        let opened = quick_unlock(&bytes, &key).unwrap();
        prop_assert!(same_keys(&opened, &keys));
        prop_assert_eq!(opened.to_bytes(), bytes);
    }
}
