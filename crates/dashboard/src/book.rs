//! The files that a gateway keeps beside its state: secrets, and which objects it has made for the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use lunette_api::{Key, Kind};
use lunette_files::{Content, FileProblem, UNFINISHED};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::limits::{MAX_BOOK_BYTES, MAX_SECRETS};

/// The file in the folder.
const FILE: &str = "dashboard.json";

const BOOK: Content = Content { name: "what the dashboard has made", max_bytes: MAX_BOOK_BYTES };

/// A file with a secret: its name begins with this, and ends with a number.
const SECRET: &str = "secret-";

const SECRETS: Content = Content { name: "a secret", max_bytes: 4096 };

/// The folder and its content.
pub(crate) struct Book {
    folder: PathBuf,
    made: Made,
    /// The secrets by the numbers of their files.
    secrets: BTreeMap<u32, Zeroizing<String>>,
}

/// The names of the objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Made {
    targets: BTreeSet<String>,
    portals: BTreeSet<String>,
}

impl Book {
    /// Opens a folder, which is made when it is missing, for its owner alone.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let path = folder.join(FILE);
        let made = match lunette_files::read_secret(&path, BOOK) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| named(&path, &error.into()))?,
            Err(problem) => match problem.into_io() {
                error if error.kind() == ErrorKind::NotFound => Made::default(),
                error => return Err(error),
            },
        };
        let mut secrets = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(UNFINISHED) {
                // An earlier process has ended while it wrote, perhaps a secret.
                fs::remove_file(&path)?;
                continue;
            }
            let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix(SECRET)?.parse().ok());
            if let Some(number) = number {
                let bytes = lunette_files::read_secret(&path, SECRETS).map_err(FileProblem::into_io)?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                secrets.insert(number, Zeroizing::new(text));
            }
        }
        Ok(Self { folder: folder.to_owned(), made, secrets })
    }

    /// The objects that were made.
    pub(crate) fn made(&self) -> Vec<Key> {
        let Made { targets, portals } = &self.made;
        let keys = |kind, names: &BTreeSet<String>| -> Vec<Key> {
            names.iter().map(|name| Key { kind, name: name.clone() }).collect()
        };
        [keys(Kind::Target, targets), keys(Kind::Portal, portals)].concat()
    }

    /// Notes which objects are made, before they are.
    pub(crate) fn note<'a>(&mut self, keys: impl Iterator<Item = &'a Key>) -> io::Result<()> {
        let mut made = Made::default();
        for key in keys {
            let names = if key.kind == Kind::Target { &mut made.targets } else { &mut made.portals };
            names.insert(key.name.clone());
        }
        if made != self.made {
            lunette_files::replace(&self.folder.join(FILE), &serde_json::to_vec_pretty(&made)?)?;
            self.made = made;
        }
        Ok(())
    }

    /// The file that has this secret. Two files never have the same one, and one that an object names keeps its own.
    pub(crate) fn secret(&mut self, secret: &str) -> io::Result<PathBuf> {
        if let Some((number, _)) = self.secrets.iter().find(|(_, known)| known.as_str() == secret) {
            return Ok(self.path(*number));
        }
        if self.secrets.len() >= MAX_SECRETS {
            return Err(io::Error::other(format!("there are {MAX_SECRETS} secrets already")));
        }
        let last = self.secrets.last_key_value().map_or(0, |(number, _)| *number);
        let number = last.checked_add(1).ok_or_else(|| io::Error::other("there are no numbers left"))?;
        lunette_files::replace(&self.path(number), secret.as_bytes())?;
        self.secrets.insert(number, Zeroizing::new(secret.to_owned()));
        Ok(self.path(number))
    }

    /// Forgets the secrets whose files nothing names any more.
    pub(crate) fn forget_others(&mut self, used: &BTreeSet<PathBuf>) {
        let folder = self.folder.clone();
        self.secrets.retain(|number, _| {
            let path = folder.join(format!("{SECRET}{number}"));
            let is_used = used.contains(&path);
            if !is_used && let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "dashboard: a secret stays behind");
            }
            is_used
        });
    }

    fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{SECRET}{number}"))
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_was_made_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let keys = [(Kind::Target, "iqn.a"), (Kind::Portal, "192.0.2.1:3260")];
        let keys = keys.map(|(kind, name)| Key::new(kind, name).unwrap());
        Book::open(folder.path()).unwrap().note(keys.iter()).unwrap();
        let book = Book::open(folder.path()).unwrap();
        assert_eq!(book.made(), keys);
    }

    #[test]
    fn a_secret_has_a_file_that_others_cannot_read_until_nothing_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = Book::open(folder.path()).unwrap();
        let [one, two] = ["secret-of-one", "secret-of-two"].map(|secret| book.secret(secret).unwrap());
        assert_eq!(fs::read(&one).unwrap(), b"secret-of-one");
        assert_eq!(fs::metadata(&one).unwrap().permissions().mode() & 0o777, 0o600);
        let mut book = Book::open(folder.path()).unwrap();
        assert_eq!(book.secret("secret-of-two").unwrap(), two);
        book.forget_others(&BTreeSet::from([two.clone()]));
        assert!(!one.exists() && two.exists());
        assert_ne!(book.secret("another-secret").unwrap(), two);
    }

    #[test]
    fn secrets_that_were_not_written_to_their_end_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (own, left) = (folder.path().join("dashboard"), folder.path().join("dashboard/secret-1.new"));
        Book::open(&own).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(&left, "half-a-sec").unwrap();
        assert!(Book::open(&own).unwrap().secrets.is_empty() && !left.exists());
    }

    #[test]
    fn secrets_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = Book::open(folder.path()).unwrap();
        book.secrets = (0..).take(MAX_SECRETS).map(|number| (number, Zeroizing::new(number.to_string()))).collect();
        assert!(book.secret("one-more-secret").is_err() && book.secret("7").is_ok());
    }

    #[test]
    fn a_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(Book::open(folder.path()).err().unwrap().to_string().contains(FILE));
    }
}
