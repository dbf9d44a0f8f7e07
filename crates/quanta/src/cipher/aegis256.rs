//! AEGIS-256.

use std::sync::Arc;

use aegis::aegis256::Aegis256;

use super::{Aead, WrongTag};
use crate::key::DataKey;
use crate::slot::{NONCE_LEN, TAG_LEN};

/// A key of AEGIS-256, which needs no preparation.
struct Key(DataKey);

pub(super) fn prepare(key: &DataKey) -> Arc<dyn Aead> {
    Arc::new(Key(key.clone()))
}

impl Key {
    fn with(&self, nonce: &[u8; NONCE_LEN]) -> Aegis256<TAG_LEN> {
        Aegis256::new(self.0.bytes(), nonce)
    }
}

impl Aead for Key {
    fn seal(&self, nonce: &[u8; NONCE_LEN], associated: &[u8], plain: &[u8], data: &mut [u8]) -> [u8; TAG_LEN] {
        let mut encryptor = self.with(nonce).encryptor(associated);
        encryptor.update(plain, data);
        encryptor.finalize()
    }

    fn seal_in_place(&self, nonce: &[u8; NONCE_LEN], associated: &[u8], data: &mut [u8]) -> [u8; TAG_LEN] {
        self.with(nonce).encrypt_in_place(data, associated)
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        data: &[u8],
        tag: &[u8; TAG_LEN],
        plain: &mut [u8],
    ) -> Result<(), WrongTag> {
        // It erases what it has written to `plain` unless the tag fits.
        let mut decryptor = self.with(nonce).decryptor(associated, plain);
        decryptor.update(data).map_err(|_| WrongTag)?;
        decryptor.finalize(tag).map_err(|_| WrongTag)?;
        Ok(())
    }

    fn open_in_place(
        &self,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), WrongTag> {
        self.with(nonce).decrypt_in_place(data, tag, associated).map_err(|_| WrongTag)
    }
}
