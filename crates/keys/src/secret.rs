//! Secrets: keys and passphrases.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use lunette_files::Content;
use rustix::process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior, setrlimit};
use zeroize::Zeroizing;

/// The longest passphrase in bytes.
const MAX_PASSPHRASE_BYTES: usize = 1024;

/// The longest line end behind it.
const LINE_END_BYTES: usize = 2;

/// 32 secret bytes. They are overwritten when the key is dropped.
#[derive(Clone)]
pub struct Key(Box<Zeroizing<[u8; Key::LEN]>>);

impl Key {
    /// The length of every key in bytes.
    pub const LEN: usize = 32;

    /// Draws a key.
    pub fn random() -> Self {
        let mut key = Self::zero();
        random(&mut **key.0);
        key
    }

    /// A key of bytes that come from elsewhere; `None` when there are not 32.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::LEN {
            return None;
        }
        let mut key = Self::zero();
        key.0.copy_from_slice(bytes);
        Some(key)
    }

    /// Reads a key: a file of exactly 32 bytes.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or has another length.
    pub fn read(path: &Path) -> Result<Self, SecretFileError> {
        let error = |reason: String| SecretFileError { path: path.into(), reason };
        let content = Content { name: "a key", max_bytes: Self::LEN };
        let bytes = lunette_files::read_secret(path, content).map_err(|problem| error(problem.why()))?;
        Self::from_slice(&bytes)
            .ok_or_else(|| error(format!("a key file of this kind has exactly {} bytes", Self::LEN)))
    }

    /// Lets `fill` make the bytes in place, so that no copy is left behind.
    pub(crate) fn filled<E>(fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut key = Self::zero();
        fill(&mut **key.0)?;
        Ok(key)
    }

    fn zero() -> Self {
        Self(Box::new(Zeroizing::new([0; Self::LEN])))
    }

    /// The secret bytes.
    pub fn expose(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Whether both are the same key, in a time that does not depend on their bytes.
    pub fn same_as(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.expose(), other.expose()).is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// A passphrase. It is overwritten when it is dropped.
#[derive(Clone)]
pub struct Passphrase(Zeroizing<Vec<u8>>);

impl Passphrase {
    /// A passphrase of 1 to 1024 bytes; `None` for other lengths.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        let bytes = Zeroizing::new(bytes);
        (1..=MAX_PASSPHRASE_BYTES).contains(&bytes.len()).then_some(Self(bytes))
    }

    /// Reads a passphrase: the content of the file without a final line end.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is empty, or holds more than 1024 bytes.
    pub fn read(path: &Path) -> Result<Self, SecretFileError> {
        let error = |reason: String| SecretFileError { path: path.into(), reason };
        let content = Content { name: "a passphrase", max_bytes: MAX_PASSPHRASE_BYTES + LINE_END_BYTES };
        let mut bytes = lunette_files::read_secret(path, content).map_err(|problem| error(problem.why()))?;
        for end in [b'\n', b'\r'] {
            if bytes.last() == Some(&end) {
                bytes.pop();
            }
        }
        Self::new(std::mem::take(&mut *bytes))
            .ok_or_else(|| error(format!("a passphrase has 1 to {MAX_PASSPHRASE_BYTES} bytes")))
    }

    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(..)")
    }
}

/// A file of a secret that cannot be used. The message never quotes the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct SecretFileError {
    path: PathBuf,
    reason: String,
}

/// Fills `bytes` from the random generator of AWS-LC, which the system's generator seeds.
pub(crate) fn random(bytes: &mut [u8]) {
    aws_lc_rs::rand::fill(bytes).expect("AWS-LC ends the process itself when the system gives no randomness");
}

/// Keeps the secrets of this process out of core dumps, and away from debuggers of other processes of the same user.
///
/// # Errors
///
/// The error of the system.
pub fn protect_process() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Core);
    limit.current = Some(0);
    setrlimit(Resource::Core, limit)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8]) -> Result<Passphrase, SecretFileError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passphrase");
        std::fs::write(&path, content).unwrap();
        Passphrase::read(&path)
    }

    #[test]
    fn the_line_end_is_not_part_of_a_passphrase() {
        for content in ["open sesame", "open sesame\n", "open sesame\r\n"] {
            assert_eq!(read(content.as_bytes()).unwrap().expose(), b"open sesame", "{content:?}");
        }
        assert_eq!(read(b"two\n\n").unwrap().expose(), b"two\n");
        assert_eq!(read(&[b'x'; 1024]).unwrap().expose().len(), 1024);
    }

    #[test]
    fn an_empty_long_or_missing_file_of_a_passphrase_is_refused() {
        for content in [&b""[..], b"\n", b"\r\n", &[b'x'; 1025]] {
            let message = read(content).unwrap_err().to_string();
            assert!(message.contains("passphrase has 1 to 1024 bytes"), "{message}");
        }
        let message = read(&[b'x'; 5000]).unwrap_err().to_string();
        assert!(message.contains("too long for a passphrase"), "{message}");
        let message = Passphrase::read(Path::new("/nonexistent/p")).unwrap_err().to_string();
        assert!(message.contains("/nonexistent/p") && message.contains("No such file"), "{message}");
    }

    #[test]
    fn no_secret_is_shown_by_debug() {
        let key = Key::from_slice(&[0x41; 32]).unwrap();
        let passphrase = Passphrase::new(b"AAAA".to_vec()).unwrap();
        let shown = format!("{key:?} {passphrase:?}");
        assert!(!shown.contains("AAAA") && !shown.contains("65") && !shown.contains("41"), "{shown}");
    }

    #[test]
    fn random_keys_differ() {
        assert!(!Key::random().same_as(&Key::random()));
        assert!(Key::from_slice(&[0; 31]).is_none() && Key::from_slice(&[0; 33]).is_none());
    }

    #[test]
    fn a_protected_process_leaves_no_core_dump() {
        protect_process().unwrap();
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        assert_eq!(getrlimit(Resource::Core).current, Some(0));
    }
}
