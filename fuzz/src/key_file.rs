//! Any bytes, read as a key file.

use lunette_keys::Key;
use lunette_keys::keyfile::{KeyFile, KeyFileError, Secret};

use crate::input::Random;

/// A key file of version 1. Its second holder has the key 0, 1, 2, ... in the object 1f0c of a key server.
const WHOLE: &[u8] = include_bytes!("../../crates/keys/tests/data/key-file-1.json");

/// The target. A file opens only when it is the one that was written, byte by byte.
pub fn run(data: &[u8]) {
    let Ok(file) = KeyFile::parse(data) else { return };
    assert!(file.holders().count() >= 1 && file.epochs().count() >= 1);
    let key = Key::from_slice(&core::array::from_fn::<u8, 32, _>(|at| at as u8)).expect("32 bytes");
    match file.unlock(Secret::Kmip { object: "1f0c", key: &key }) {
        Ok(keys) => {
            assert_eq!(data, WHOLE);
            assert_eq!(keys.to_bytes(), data);
        }
        Err(error) => assert!(matches!(error, KeyFileError::WrongObject(_) | KeyFileError::Altered), "{error}"),
    }
}

/// The key file, disturbed.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = WHOLE.to_vec();
    for _ in 0..random.below(3) {
        let at = random.below(bytes.len());
        bytes[at] = *random.choose(b"0123456789abcdef\",{}[]: \n");
    }
    if random.below(4) == 0 {
        random.disturb(&mut bytes);
    }
    bytes
}

/// The key file, and parts of it.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let half = WHOLE.len() / 2;
    vec![
        ("whole".into(), WHOLE.to_vec()),
        ("half".into(), WHOLE[..half].to_vec()),
        ("end".into(), WHOLE[half..].to_vec()),
    ]
}
