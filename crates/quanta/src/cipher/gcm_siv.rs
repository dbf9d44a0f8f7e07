//! AES-256-GCM-SIV.

use std::sync::Arc;

use aes_gcm_siv::{AeadInOut, Aes256GcmSiv, KeyInit};

use super::{Aead, WrongTag};
use crate::codec::MAX_ASSOCIATED_LEN;
use crate::key::DataKey;
use crate::slot::{NONCE_LEN, TAG_LEN};

/// Bytes of the nonce of the standard. The others of the slot's nonce follow the associated data.
const STANDARD_NONCE_LEN: usize = 12;

/// Bytes of the longest associated data with the rest of the nonce.
const MAX_LEN: usize = MAX_ASSOCIATED_LEN + NONCE_LEN - STANDARD_NONCE_LEN;

struct Key(Aes256GcmSiv);

pub(super) fn prepare(key: &DataKey) -> Arc<dyn Aead> {
    Arc::new(Key(Aes256GcmSiv::new(key.bytes().into())))
}

/// Associated data, then the bytes of the nonce that the standard's has no room for.
struct Associated {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl Associated {
    fn new(associated: &[u8], rest: &[u8]) -> Self {
        let mut bytes = [0; MAX_LEN];
        let len = associated.len() + rest.len();
        bytes[..associated.len()].copy_from_slice(associated);
        bytes[associated.len()..len].copy_from_slice(rest);
        Self { bytes, len }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn split(nonce: &[u8; NONCE_LEN]) -> (&[u8; STANDARD_NONCE_LEN], &[u8]) {
    nonce.split_first_chunk().expect("a nonce is longer than the standard's")
}

impl Aead for Key {
    fn seal(&self, nonce: &[u8; NONCE_LEN], associated: &[u8], data: &mut [u8]) -> [u8; TAG_LEN] {
        let (nonce, rest) = split(nonce);
        let associated = Associated::new(associated, rest);
        let tag = self.0.encrypt_inout_detached(nonce.into(), associated.get(), data.into());
        tag.expect("a quantum is shorter than the cipher's limit").into()
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), WrongTag> {
        let (nonce, rest) = split(nonce);
        let associated = Associated::new(associated, rest);
        let opened = self.0.decrypt_inout_detached(nonce.into(), associated.get(), (&mut *data).into(), tag.into());
        opened.map_err(|_| {
            data.fill(0);
            WrongTag
        })
    }
}
