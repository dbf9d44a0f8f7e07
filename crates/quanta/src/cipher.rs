//! The table of ciphers.
//!
//! A cipher is one row of [`TABLE`] and one implementation of [`Aead`]. Every cipher takes a key of 32 bytes and a
//! nonce of 32 random bytes, and makes a tag of 16.
//!
//! Why nonces do not repeat: they are random, and nothing is counted from one request to the next, so the restored
//! snapshot of a client repeats none as long as its system's generator does not (Linux reseeds it in a virtual machine
//! that was restored). With 2^64 quanta written under one key, two of them have one nonce with a probability below
//! 2^-128, because all 256 bits count:
//!
//! - AEGIS-256 and AEGIS-256X4 have a nonce of 256 bits. A repeated nonce would harm the secrecy and the authenticity
//!   of the quanta that share it.
//! - AES-256-GCM-SIV has a nonce of 96 bits. The other 160 random bits are part of its associated data, which its tag
//!   depends on, and its key stream depends on the tag. A repeated nonce would only show that two quanta are the same
//!   in position, version and content.

mod aegis;
mod gcm_siv;
mod lanes;

use std::sync::Arc;

pub(crate) use lanes::{Lane, Lanes, MAX_LANES};

use crate::key::DataKey;
use crate::slot::{NONCE_LEN, TAG_LEN};

/// A cipher of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// AEGIS-256 (draft-irtf-cfrg-aegis-aead).
    Aegis256,
    /// AES-256-GCM-SIV (RFC 8452): slower, older, and forgives a repeated nonce.
    Aes256GcmSiv,
    /// AEGIS-256X4 (the same draft): four states of AEGIS-256 side by side, for CPUs with vector AES instructions.
    Aegis256X4,
}

/// The description of a cipher.
pub struct CipherRow {
    /// The cipher.
    pub cipher: Cipher,
    /// The byte that names it in headers and associated data.
    pub id: u8,
    /// The name that people read and write.
    pub name: &'static str,
    /// Prepares a key.
    pub(crate) prepare: fn(&DataKey) -> Arc<dyn Aead>,
}

/// All ciphers, the default first.
pub static TABLE: [CipherRow; 3] = [
    CipherRow { cipher: Cipher::Aegis256, id: 1, name: "aegis-256", prepare: aegis::prepare_256 },
    CipherRow { cipher: Cipher::Aes256GcmSiv, id: 2, name: "aes-256-gcm-siv", prepare: gcm_siv::prepare },
    CipherRow { cipher: Cipher::Aegis256X4, id: 3, name: "aegis-256x4", prepare: aegis::prepare_256x4 },
];

impl Cipher {
    /// The row of the cipher.
    pub fn row(self) -> &'static CipherRow {
        TABLE.iter().find(|row| row.cipher == self).expect("every cipher has a row")
    }

    /// The cipher that a byte names.
    pub fn of_id(id: u8) -> Option<Self> {
        TABLE.iter().find(|row| row.id == id).map(|row| row.cipher)
    }

    /// The cipher that a person names.
    pub fn of_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.cipher)
    }
}

/// The tag does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrongTag;

/// A cipher with its key, working in place.
pub(crate) trait Aead: Send + Sync {
    fn seal(&self, nonce: &[u8; NONCE_LEN], associated: &[u8], data: &mut [u8]) -> [u8; TAG_LEN];

    /// When the tag does not fit, `data` holds no plain text.
    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), WrongTag>;

    /// Seals each of the lanes.
    fn seal_lanes(&self, lanes: &mut [Lane<'_>]) {
        lanes::seal_each(self, lanes);
    }

    /// Opens each of the lanes. `Err` is the number of the first that is not authentic; neither it nor those behind it
    /// hold plain text.
    fn open_lanes(&self, lanes: &mut [Lane<'_>]) -> Result<(), usize> {
        lanes::open_each(self, lanes)
    }
}
