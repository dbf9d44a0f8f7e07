//! The facts that tgtd has and the API has no place for: numbers of targets, accounts of no target, and names of units.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use lunette_files::Content;
use serde::{Deserialize, Serialize};

use crate::limits::{KEPT_NUMBERS, MAX_ACCOUNT_BYTES, MAX_ACCOUNTS, MAX_BOOK_BYTES};
use crate::wire::Fault;

/// The name of the file in the folder.
const FILE: &str = "tgt.json";

/// The file, as far as it is read.
const CONTENT: Content = Content { name: "the numbers of tgt's targets", max_bytes: MAX_BOOK_BYTES };

/// The facts. They hold in the process, and over its end when they could be written.
pub(crate) struct Book {
    folder: PathBuf,
    facts: Facts,
}

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    /// The number of each target.
    tids: BTreeMap<String, u32>,
    /// The users, each with the number of the file that has its password. Later ones have higher numbers.
    accounts: BTreeMap<String, u32>,
    /// The highest number that a user has had. None comes twice: a target that is away may name its file.
    newest_account: u32,
    /// The logical units of each target that have something to remember.
    units: BTreeMap<String, BTreeMap<u16, Unit>>,
}

/// The facts that tgtd prints of a logical unit and this target does not know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unit {
    /// The identifier that a client has chosen. Initiators see the one made of the serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scsi_id: Option<String>,
    /// The type of the backing store that a client has asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backing_type: Option<String>,
}

impl Book {
    /// Opens the book of a folder, which is made when it is missing.
    ///
    /// # Errors
    ///
    /// When the folder cannot be made, or its file is damaged.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let path = folder.join(FILE);
        let facts = if path.try_exists()? {
            let text = lunette_files::read_text(&path, CONTENT).map_err(io::Error::other)?;
            serde_json::from_str(&text).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?
        } else {
            Facts::default()
        };
        Ok(Self { folder: folder.to_owned(), facts })
    }

    /// The targets with their numbers, in the order of these. One that has none gets the lowest that is free. A target
    /// that is away, because its file has a mistake, keeps its number.
    pub(crate) fn number(&mut self, targets: &BTreeSet<&str>) -> Result<BTreeMap<u32, String>, Fault> {
        let mut facts = self.facts.clone();
        if facts.tids.len() > KEPT_NUMBERS {
            facts.tids.retain(|name, _| targets.contains(name.as_str()));
            facts.units.retain(|name, _| targets.contains(name.as_str()));
        }
        let taken: BTreeSet<u32> = facts.tids.values().copied().collect();
        let mut free = (1..u32::MAX).filter(|tid| !taken.contains(tid));
        for name in targets {
            if !facts.tids.contains_key(*name) {
                facts.tids.insert((*name).to_owned(), free.next().ok_or(Fault::Unknown)?);
            }
        }
        self.replace(facts)?;
        let there = self.facts.tids.iter().filter(|(name, _)| targets.contains(name.as_str()));
        Ok(there.map(|(name, tid)| (*tid, name.clone())).collect())
    }

    /// Notes the number that a client has chosen for a target. A target that is away and had it gets another one.
    pub(crate) fn add_target(&mut self, name: &str, tid: u32) -> Result<(), Fault> {
        self.edit(|facts| {
            facts.tids.retain(|_, number| *number != tid);
            facts.tids.insert(name.to_owned(), tid);
            facts.units.remove(name);
        })
    }

    /// Forgets a target.
    pub(crate) fn forget_target(&mut self, name: &str) -> Result<(), Fault> {
        self.edit(|facts| {
            facts.tids.remove(name);
            facts.units.remove(name);
        })
    }

    /// The facts of a logical unit.
    pub(crate) fn unit(&self, target: &str, lun: u16) -> Unit {
        self.facts.units.get(target).and_then(|units| units.get(&lun)).cloned().unwrap_or_default()
    }

    /// Notes something of a logical unit; nothing is the default.
    pub(crate) fn set_unit(&mut self, target: &str, lun: u16, unit: Unit) -> Result<(), Fault> {
        self.edit(|facts| {
            let units = facts.units.entry(target.to_owned()).or_default();
            if unit == Unit::default() {
                units.remove(&lun);
            } else {
                units.insert(lun, unit);
            }
            facts.units.retain(|_, units| !units.is_empty());
        })
    }

    /// The users, the newest first.
    pub(crate) fn accounts(&self) -> Vec<&str> {
        let mut all: Vec<_> = self.facts.accounts.iter().map(|(user, number)| (*number, user.as_str())).collect();
        all.sort_unstable();
        all.into_iter().rev().map(|(_, user)| user).collect()
    }

    /// The file with the password of a user.
    pub(crate) fn secret_file(&self, user: &str) -> Option<PathBuf> {
        self.facts.accounts.get(user).map(|number| self.secret_path(*number))
    }

    /// Adds a user, and keeps its password in a file of its own.
    pub(crate) fn add_account(&mut self, user: &str, password: &str) -> Result<(), Fault> {
        if self.facts.accounts.contains_key(user) {
            return Err(Fault::AccountExists);
        }
        if self.facts.accounts.len() >= MAX_ACCOUNTS {
            return Err(Fault::TooManyAccounts);
        }
        let is_fit = |text: &str| !text.is_empty() && text.len() <= MAX_ACCOUNT_BYTES;
        if !is_fit(user) || !is_fit(password) || password.contains(['\n', '\r']) {
            return Err(Fault::Invalid);
        }
        let number = self.facts.newest_account.checked_add(1).ok_or(Fault::TooManyAccounts)?;
        write(&self.secret_path(number), password.as_bytes())?;
        self.edit(|facts| {
            facts.accounts.insert(user.to_owned(), number);
            facts.newest_account = number;
        })
    }

    /// Forgets a user and its password.
    pub(crate) fn forget_account(&mut self, user: &str) -> Result<(), Fault> {
        let file = self.secret_file(user).ok_or(Fault::NoAccount)?;
        self.edit(|facts| {
            facts.accounts.remove(user);
        })?;
        if let Err(error) = fs::remove_file(&file) {
            tracing::warn!(path = %file.display(), %error, "tgt: the password of an account stays behind");
        }
        Ok(())
    }

    fn secret_path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("account-{number}"))
    }

    fn edit(&mut self, edit: impl FnOnce(&mut Facts)) -> Result<(), Fault> {
        let mut facts = self.facts.clone();
        edit(&mut facts);
        self.replace(facts)
    }

    /// Replaces the facts, in the file first.
    fn replace(&mut self, facts: Facts) -> Result<(), Fault> {
        if facts == self.facts {
            return Ok(());
        }
        // Maps with names as keys become JSON.
        let text = serde_json::to_vec_pretty(&facts).map_err(|_| Fault::Unknown)?;
        if text.len() > MAX_BOOK_BYTES {
            return Err(Fault::Invalid);
        }
        write(&self.folder.join(FILE), &text)?;
        self.facts = facts;
        Ok(())
    }
}

/// Replaces a file as a whole.
fn write(path: &Path, content: &[u8]) -> Result<(), Fault> {
    lunette_files::replace(path, content).map_err(|error| {
        tracing::error!("tgt: a file cannot be written: {error}");
        Fault::Unknown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_targets_outlive_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = Book::open(folder.path()).unwrap();
        let numbers = |book: &mut Book, targets: &[&str]| {
            let numbers = book.number(&targets.iter().copied().collect()).unwrap();
            numbers.into_iter().map(|(tid, name)| format!("{tid} {name}")).collect::<Vec<_>>()
        };
        book.add_target("iqn.b", 3).unwrap();
        assert_eq!(numbers(&mut book, &["iqn.a", "iqn.b", "iqn.c"]), ["1 iqn.a", "2 iqn.c", "3 iqn.b"]);
        let mut book = Book::open(folder.path()).unwrap();
        assert_eq!(numbers(&mut book, &["iqn.b", "iqn.d"]), ["3 iqn.b", "4 iqn.d"]);
        assert_eq!(numbers(&mut book, &["iqn.a", "iqn.b"]), ["1 iqn.a", "3 iqn.b"], "it was away");
        book.add_target("iqn.new", 1).unwrap();
        assert_eq!(numbers(&mut book, &["iqn.a", "iqn.new"]), ["1 iqn.new", "5 iqn.a"]);
    }

    #[test]
    fn passwords_are_in_files_that_others_cannot_read() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mut book = Book::open(folder.path()).unwrap();
        book.add_account("alice", "secret,secret").unwrap();
        assert_eq!(book.add_account("alice", "x"), Err(Fault::AccountExists));
        assert_eq!(book.add_account("bob", "a\nb"), Err(Fault::Invalid));
        let file = Book::open(folder.path()).unwrap().secret_file("alice").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"secret,secret");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!fs::read_to_string(folder.path().join(FILE)).unwrap().contains("secret,secret"));
        book.forget_account("alice").unwrap();
        assert!(!file.exists());
        assert_eq!(book.forget_account("alice"), Err(Fault::NoAccount));
        book.add_account("carol", "other").unwrap();
        assert_ne!(book.secret_file("carol").unwrap(), file, "a document may still name it");
    }

    #[test]
    fn accounts_and_their_texts_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = Book::open(folder.path()).unwrap();
        let long = "x".repeat(MAX_ACCOUNT_BYTES + 1);
        assert_eq!(book.add_account(&long, "secret"), Err(Fault::Invalid));
        assert_eq!(book.add_account("alice", &long), Err(Fault::Invalid));
        book.add_account("alice", "secret").unwrap();
        book.facts.accounts =
            (0..).zip(1..).take(MAX_ACCOUNTS).map(|(user, number)| (format!("{user}"), number)).collect();
        assert_eq!(book.add_account("alice", "secret"), Err(Fault::TooManyAccounts));
    }

    #[test]
    fn a_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(Book::open(folder.path()).err().unwrap().to_string().contains("tgt.json"));
    }
}
