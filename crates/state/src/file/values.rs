//! Values by name in a `redb` database: a commit is durable when it returns.

use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};

/// The only table. Its name and types are the format of the file.
const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("lunette-state");

/// Memory for pages of the file. Values are small and seldom read.
const CACHE_BYTES: usize = 1 << 20;

/// The values of an open database. After an error it refuses everything, and has to be opened again.
pub(super) struct Values {
    database: Database,
}

impl Values {
    /// Opens the database, and makes one of empty storage. After a crash it is repaired to its last commit.
    pub(super) fn open(storage: impl StorageBackend) -> Result<Self, redb::Error> {
        let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(storage);
        let values = Self { database: database? };
        values.make_table()?;
        Ok(values)
    }

    /// Creates the table, so that readers always find it.
    fn make_table(&self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(TABLE)?;
        Ok(transaction.commit()?)
    }

    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, redb::Error> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        Ok(table.get(name)?.map(|value| value.value().to_vec()))
    }

    pub(super) fn read_all(&self) -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        let mut all = Vec::new();
        for entry in table.iter()? {
            let (name, value) = entry?;
            all.push((name.value().to_owned(), value.value().to_vec()));
        }
        Ok(all)
    }

    /// Replaces values, or removes them (`None`): all of them, or none.
    pub(super) fn write<'a>(
        &self,
        values: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
    ) -> Result<(), redb::Error> {
        // Durability::Immediate is the default: commit returns after the file is synchronized.
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (name, value) in values {
                match value {
                    Some(value) => drop(table.insert(name, value)?),
                    None => drop(table.remove(name)?),
                }
            }
        }
        Ok(transaction.commit()?)
    }
}
