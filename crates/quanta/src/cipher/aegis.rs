//! AEGIS-256 and AEGIS-256X4.
//!
//! Both work in place: the crate's forms with two buffers keep their state across calls, and erasing it byte by byte
//! takes about as long as a quantum.

#[cfg(target_arch = "x86_64")]
mod wide;

use std::sync::Arc;

use aegis::aegis256::Aegis256;
use aegis::aegis256x4::Aegis256X4;

#[cfg(target_arch = "x86_64")]
use super::Lane;
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
    let key = key_256(key);
    #[cfg(target_arch = "x86_64")]
    if let Some(wide) = wide::Wide::detect() {
        return Arc::new(WideKey { key, wide });
    }
    Arc::new(key)
}

fn key_256(key: &DataKey) -> Key {
    Key {
        secret: key.clone(),
        encrypt: |key, nonce, associated, data| Aegis256::new(key, nonce).encrypt_in_place(data, associated),
        decrypt: |key, nonce, associated, data, tag| Aegis256::new(key, nonce).decrypt_in_place(data, tag, associated),
    }
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

/// A key of AEGIS-256 where the CPU can work on several quanta side by side.
#[cfg(target_arch = "x86_64")]
struct WideKey {
    key: Key,
    wide: wide::Wide,
}

#[cfg(target_arch = "x86_64")]
impl Aead for WideKey {
    fn seal(&self, nonce: &[u8; NONCE_LEN], associated: &[u8], data: &mut [u8]) -> [u8; TAG_LEN] {
        self.key.seal(nonce, associated, data)
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), WrongTag> {
        self.key.open(nonce, associated, data, tag)
    }

    fn seal_lanes(&self, lanes: &mut [Lane<'_>]) {
        if lanes.len() == 1 {
            return self.key.seal_lanes(lanes);
        }
        self.wide.seal(self.key.secret.bytes(), lanes);
    }

    fn open_lanes(&self, lanes: &mut [Lane<'_>]) -> Result<(), usize> {
        if lanes.len() == 1 {
            return self.key.open_lanes(lanes);
        }
        self.wide.open(self.key.secret.bytes(), lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::cipher::{Lanes, MAX_LANES};

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

    /// Bytes of a quantum, which differ from those of others.
    #[cfg(target_arch = "x86_64")]
    fn plain(quantum: usize, len: usize) -> Vec<u8> {
        (0..len).map(|at| (quantum * 31 + at * 7 + (at >> 8)) as u8).collect()
    }

    /// The lanes of some texts, opened or sealed into `places`. A text that stands in its place already is worked on
    /// there.
    #[cfg(target_arch = "x86_64")]
    fn lanes<'a>(texts: &'a [Vec<u8>], tags: &[[u8; TAG_LEN]], places: &'a mut [Vec<u8>]) -> Lanes<'a> {
        let lane = |(quantum, (text, data)): (usize, (&'a Vec<u8>, &'a mut Vec<u8>))| Lane {
            nonce: std::array::from_fn(|at| (quantum + at * 5) as u8),
            associated: [quantum as u8 + 1; 48],
            from: (text != data).then_some(text),
            data,
            tag: tags.get(quantum).copied().unwrap_or_default(),
        };
        texts.iter().zip(places).enumerate().map(lane).collect()
    }

    /// The oracle is the crate, one quantum at a time.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn quanta_side_by_side_are_those_of_the_crate() {
        let secret = DataKey::new(std::array::from_fn(|at| at as u8 ^ 0x5c));
        let Some(wide) = wide::Wide::detect() else {
            return eprintln!("this CPU has no AVX-512 with VAES: AEGIS-256 is the crate's here");
        };
        let (alone, wide) = (key_256(&secret), WideKey { key: key_256(&secret), wide });
        for (count, len) in (1..=MAX_LANES).flat_map(|count| [64, 512, 4096].map(|len| (count, len))) {
            let plain: Vec<_> = (0..count).map(|quantum| plain(quantum, len)).collect();
            let mut ciphertexts = plain.clone();
            let mut expected = lanes(&plain, &[], &mut ciphertexts);
            alone.seal_lanes(&mut expected);
            let tags: Vec<_> = expected.iter().map(|lane| lane.tag).collect();
            drop(expected);
            for elsewhere in [false, true] {
                let places = |texts: &[Vec<u8>]| if elsewhere { vec![vec![0xee; len]; count] } else { texts.to_vec() };
                let mut sealed = places(&plain);
                let mut work = lanes(&plain, &[], &mut sealed);
                wide.seal_lanes(&mut work);
                assert!(work.iter().map(|lane| lane.tag).eq(tags.iter().copied()), "{count} of {len}");
                drop(work);
                assert_eq!(sealed, ciphertexts, "{count} of {len}");

                let mut opened = places(&ciphertexts);
                assert_eq!(wide.open_lanes(&mut lanes(&ciphertexts, &tags, &mut opened)), Ok(()));
                assert_eq!(opened, plain, "{count} of {len}");
                for wrong in 0..count {
                    let (mut tags, mut opened) = (tags.clone(), places(&ciphertexts));
                    tags[wrong][wrong] ^= 0x80;
                    assert_eq!(wide.open_lanes(&mut lanes(&ciphertexts, &tags, &mut opened)), Err(wrong));
                    assert_eq!(opened[..wrong], plain[..wrong]);
                    assert!(opened[wrong..].iter().zip(&plain[wrong..]).all(|(opened, plain)| opened != plain));
                }
            }
        }
    }
}
