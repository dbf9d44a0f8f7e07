//! Small state that survives restarts and power cuts.
//!
//! Layer 1: over files; under device, iscsi-target, lunette.
//!
//! `store` keeps blocks; this crate keeps what a device server must remember about itself. The device server knows only
//! the trait [`StateStore`]; its embedder chooses [`StateFile`].
//!
//! # The contract
//!
//! [`StateStore::save`] returns when the value is on stable storage. A saved value is there after a crash or a power
//! cut. When a save was cut short, either the new value is there as a whole or the old one still is.
//!
//! ```
//! use lunette_state::{StateFile, StateStore};
//!
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("state");
//! StateFile::open(&path)?.save("colour", Some(b"red"))?;
//! assert_eq!(StateFile::open(&path)?.load("colour")?, Some(b"red".to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod file;

pub use file::{Lent, OpenStateError, StateFile};

/// Values by name, kept on stable storage.
pub trait StateStore: Send + Sync {
    /// The value of `name`, if there is one.
    ///
    /// # Errors
    ///
    /// When the storage cannot be read.
    fn load(&self, name: &str) -> Result<Option<Vec<u8>>, StateError>;

    /// Replaces the value of `name`, or removes it (`None`). Returns when the change is durable: this waits for the
    /// medium.
    ///
    /// # Errors
    ///
    /// When the storage cannot be written. The old value is then still there.
    fn save(&self, name: &str, value: Option<&[u8]>) -> Result<(), StateError>;
}

/// An error of the storage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the state file failed: {0}")]
pub struct StateError(pub String);
