//! Objects in a `redb` file, each sealed by the store's key, which the master key seals.
//!
//! The table `head` has one entry, `lunette key store`: JSON with the sealed key of the store, and salt and cost when
//! the master key is made from a passphrase. The table `objects` has an entry for each object by its identifier, sealed
//! together with that identifier. Whoever can write the file can remove objects or bring back old ones, and read or
//! forge none. The database copies on write: the sealed bytes of a destroyed object stay in free pages until they are
//! used again.

use std::path::{Path, PathBuf};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::object::Object;
use super::service::Keep;
use crate::hex::Hex;
use crate::passphrase::{Argon2Cost, SALT_LEN};
use crate::seal;
use crate::secret::{Key, Passphrase, random};

const HEAD: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("head");
const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");

/// The name of the only entry of the table `head`.
const HEAD_NAME: &str = "lunette key store";

/// The version of the format.
const VERSION: u32 = 1;

/// Memory for pages of the file.
const CACHE_BYTES: usize = 4 << 20;

/// The longest sealed object in bytes: twice its secret, and its attributes.
const MAX_SEALED_BYTES: usize = 128 << 10;

/// The secret from which the master key is made.
#[derive(Debug, Clone, Copy)]
pub enum Master<'a> {
    /// A key of 32 bytes.
    Key(&'a Key),
    /// A passphrase, and its cost when the store is new.
    Passphrase(&'a Passphrase, Argon2Cost),
}

/// The file of a key server. It is locked against other processes while it is open.
pub struct ObjectStore {
    database: Database,
    key: Key,
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has it open.
    #[error("{}: the key store is in use; stop the other server, or choose another store", .0.display())]
    InUse(PathBuf),
    /// The master key is another one.
    #[error("the master key does not open the key store: it is another one, or the store was altered")]
    WrongMaster,
    /// The store was made for a master key of the other kind.
    #[error("the key store has a master key {0}")]
    OtherMaster(&'static str),
    /// An entry is not what this program wrote.
    #[error("the key store was altered: {0}; restore it from a copy")]
    Altered(String),
    /// The file or the medium fails.
    #[error("the key store failed: {0}")]
    Failed(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    version: u32,
    /// Absent when the master key is given as 32 bytes.
    passphrase: Option<PassphraseHead>,
    store_key: Hex<{ Key::LEN + seal::OVERHEAD }>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PassphraseHead {
    salt: Hex<SALT_LEN>,
    cost: Argon2Cost,
}

impl ObjectStore {
    /// Opens the store, and creates it when it is missing.
    ///
    /// # Errors
    ///
    /// When another process has it open, the master key is another one, or the file cannot be used.
    pub fn open(path: &Path, master: Master<'_>) -> Result<Self, StoreError> {
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(path).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => StoreError::InUse(path.into()),
            error => StoreError::Failed(format!("{}: {error}", path.display())),
        })?;
        let head = make_tables(&database).map_err(failed)?;
        let key = match head {
            Some(head) => unseal_head(&head, master)?,
            None => create_head(&database, master)?,
        };
        Ok(Self { database, key })
    }

    /// All objects.
    ///
    /// # Errors
    ///
    /// When the medium fails, or an entry was altered.
    pub fn load(&self) -> Result<Vec<Object>, StoreError> {
        let entries = || -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
            let table = self.database.begin_read()?.open_table(OBJECTS)?;
            let mut entries = Vec::new();
            for entry in table.iter()? {
                let (id, sealed) = entry?;
                entries.push((id.value().to_owned(), sealed.value().to_vec()));
            }
            Ok(entries)
        };
        entries().map_err(failed)?.iter().map(|(id, sealed)| self.unseal(id, sealed)).collect()
    }

    fn unseal(&self, id: &str, sealed: &[u8]) -> Result<Object, StoreError> {
        let altered = || StoreError::Altered(format!("the object {id}"));
        if sealed.len() > MAX_SEALED_BYTES {
            return Err(altered());
        }
        let text = seal::open(&self.key, &place(id), sealed).map_err(|_| altered())?;
        let object: Object = serde_json::from_slice(&text).map_err(|_| altered())?;
        if object.id == id { Ok(object) } else { Err(altered()) }
    }

    fn write(&self, changed: Option<&Object>, forgotten: Option<&str>) -> Result<(), redb::Error> {
        // Durability::Immediate is the default: commit returns after the file is synchronized.
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(OBJECTS)?;
            if let Some(id) = forgotten {
                table.remove(id)?;
            }
            if let Some(object) = changed {
                // With all of its capacity from the start, the vector never moves and leaves no copy behind.
                let mut text = Zeroizing::new(Vec::with_capacity(MAX_SEALED_BYTES));
                serde_json::to_writer(&mut *text, object).expect("an object is JSON");
                table.insert(&*object.id, &*seal::seal(&self.key, &place(&object.id), &text))?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Keep for ObjectStore {
    fn keep(&mut self, changed: Option<&Object>, forgotten: Option<&str>) -> Result<(), String> {
        self.write(changed, forgotten).map_err(|error| error.to_string())
    }
}

/// Creates the tables, so that readers always find them, and reads the head.
fn make_tables(database: &Database) -> Result<Option<Vec<u8>>, redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(OBJECTS)?;
    let head = transaction.open_table(HEAD)?.get(HEAD_NAME)?.map(|head| head.value().to_vec());
    transaction.commit()?;
    Ok(head)
}

fn unseal_head(head: &[u8], master: Master<'_>) -> Result<Key, StoreError> {
    let altered = |_| StoreError::Altered("its head".into());
    let Head { version, passphrase, store_key } = serde_json::from_slice(head).map_err(altered)?;
    if version != VERSION {
        return Err(StoreError::Failed(format!("it has version {version}, and this program knows version {VERSION}")));
    }
    let derived;
    let master = match (master, &passphrase) {
        (Master::Key(key), None) => key,
        (Master::Passphrase(given, _), Some(PassphraseHead { salt, cost })) => {
            derived = cost.key(given, &salt.0).map_err(|error| StoreError::Altered(error.to_string()))?;
            &derived
        }
        (_, None) => return Err(StoreError::OtherMaster("of 32 bytes, and no passphrase")),
        (_, Some(_)) => return Err(StoreError::OtherMaster("that is made from a passphrase")),
    };
    let opened = seal::open(master, STORE_KEY_PLACE, &store_key.0).map_err(|_| StoreError::WrongMaster)?;
    Key::from_slice(&opened).ok_or(StoreError::WrongMaster)
}

fn create_head(database: &Database, master: Master<'_>) -> Result<Key, StoreError> {
    let derived;
    let (master, passphrase) = match master {
        Master::Key(key) => (key, None),
        Master::Passphrase(given, cost) => {
            let mut salt = [0; SALT_LEN];
            random(&mut salt);
            derived = cost.key(given, &salt).map_err(failed)?;
            (&derived, Some(PassphraseHead { salt: Hex(salt), cost }))
        }
    };
    let key = Key::random();
    let sealed = seal::seal(master, STORE_KEY_PLACE, key.expose());
    let store_key = Hex(sealed.try_into().expect("a sealed key has one length"));
    let head = serde_json::to_vec(&Head { version: VERSION, passphrase, store_key }).expect("a head is JSON");
    let write = || -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        transaction.open_table(HEAD)?.insert(HEAD_NAME, &*head)?;
        Ok(transaction.commit()?)
    };
    write().map_err(failed)?;
    Ok(key)
}

const STORE_KEY_PLACE: &[u8] = b"lunette key store 1: key";

fn place(id: &str) -> Vec<u8> {
    [b"lunette key store 1: object ", id.as_bytes()].concat()
}

#[expect(clippy::needless_pass_by_value, reason = "it ends the error")]
fn failed(error: impl ToString) -> StoreError {
    StoreError::Failed(error.to_string())
}
