//! The bytes of the open file, as the database uses them.

use std::fs::File;
use std::io;

use redb::StorageBackend;
use redb::backends::FileBackend;

/// The storage of a database in a file that its owner keeps locked. It neither locks nor unlocks, so the file stays
/// locked when the database is closed after an error.
#[derive(Debug)]
pub(super) struct Storage(FileBackend);

impl Storage {
    pub(super) fn new(file: File) -> Result<Self, redb::Error> {
        Ok(Self(FileBackend::new(file)?))
    }
}

impl StorageBackend for Storage {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}
