//! AEGIS-256 and AEGIS-256X4.
//!
//! Both work in place: the crate's forms with two buffers keep their state across calls, and erasing it byte by byte takes about as long as a quantum.

use std::sync::Arc;

use aegis::aegis256::Aegis256;
use aegis::aegis256x4::Aegis256X4;

use super::{Aead, WrongTag};
use crate::key::{DataKey, KEY_LEN};
use crate::slot::{NONCE_LEN, TAG_LEN};

/// Encrypts in place, with key, nonce and associated data.
type Encrypt = fn(&[u8; KEY_LEN], &[u8; NONCE_LEN], &[u8], &mut [u8]) -> [u8; TAG_LEN];

/// Decrypts in place; erases the bytes when the tag does not fit.
type Decrypt = fn(&[u8; KEY_LEN], &[u8; NONCE_LEN], &[u8], &mut [u8], &[u8; TAG_LEN]) -> Result<(), aegis::Error>;

/// A key, which needs no preparation, and the variant of AEGIS that it is for.
struct Key {
    secret: DataKey,
    encrypt: Encrypt,
    decrypt: Decrypt,
}

pub(super) fn prepare_256(key: &DataKey) -> Arc<dyn Aead> {
    Arc::new(Key {
        secret: key.clone(),
        encrypt: |key, nonce, associated, data| Aegis256::new(key, nonce).encrypt_in_place(data, associated),
        decrypt: |key, nonce, associated, data, tag| Aegis256::new(key, nonce).decrypt_in_place(data, tag, associated),
    })
}

pub(super) fn prepare_256x4(key: &DataKey) -> Arc<dyn Aead> {
    Arc::new(Key {
        secret: key.clone(),
        encrypt: |key, nonce, associated, data| Aegis256X4::new(key, nonce).encrypt_in_place(data, associated),
        decrypt: |key, nonce, associated, data, tag| {
            Aegis256X4::new(key, nonce).decrypt_in_place(data, tag, associated)
        },
    })
}

impl Aead for Key {
    fn seal(&self, nonce: &[u8; NONCE_LEN], associated: &[u8], data: &mut [u8]) -> [u8; TAG_LEN] {
        (self.encrypt)(self.secret.bytes(), nonce, associated, data)
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), WrongTag> {
        (self.decrypt)(self.secret.bytes(), nonce, associated, data, tag).map_err(|_| WrongTag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(
        prepare: fn(&DataKey) -> Arc<dyn Aead>,
        key: [u8; 32],
        nonce: [u8; 32],
        associated: &[u8],
        plain: &[u8],
    ) -> (Vec<u8>, u128) {
        let (key, mut data) = (prepare(&DataKey::new(key)), plain.to_vec());
        let tag = key.seal(&nonce, associated, &mut data);
        let mut opened = data.clone();
        assert_eq!(key.open(&nonce, associated, &mut opened, &tag), Ok(()));
        assert_eq!(opened, plain);
        (data, u128::from_be_bytes(tag))
    }

    /// Vector 3 of AEGIS-256 in draft-irtf-cfrg-aegis-aead-18, appendix A.
    #[test]
    fn aegis_256_is_that_of_the_draft() {
        let (mut key, mut nonce) = ([0; 32], [0; 32]);
        key[..2].copy_from_slice(&[0x10, 0x01]);
        nonce[..3].copy_from_slice(&[0x10, 0x00, 0x02]);
        let plain: [u8; 32] = std::array::from_fn(|at| at as u8);
        let (data, tag) = sealed(prepare_256, key, nonce, &plain[..8], &plain);
        assert_eq!(data[..8], 0xf373_079e_d84b_2709_u64.to_be_bytes());
        assert_eq!(data[24..], 0x8b11_833d_f9de_c711_u64.to_be_bytes());
        assert_eq!(tag, 0x8d86_f91e_e606_e9ff_26a0_1b64_ccbd_d91d);
    }

    /// Vector 2 of AEGIS-256X4, which has a last block that is not full.
    #[test]
    fn aegis_256x4_is_that_of_the_draft() {
        let key: [u8; 32] = std::array::from_fn(|at| at as u8);
        let (data, tag) =
            sealed(prepare_256x4, key, key.map(|byte| byte + 16), &[1, 2, 3, 4].repeat(2), &[4, 5, 6, 7].repeat(30));
        assert_eq!(data[..8], 0xbfc2_085b_7e80_17da_u64.to_be_bytes());
        assert_eq!(data[112..], 0xdd65_6465_fed6_1f09_u64.to_be_bytes());
        assert_eq!(tag, 0xb63b_611b_1397_5e2f_3dc3_cb6c_2397_bfcd);
    }
}
