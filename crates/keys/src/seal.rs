//! The three primitives of this crate, all of AWS-LC: AES-256-GCM-SIV, HKDF-SHA256 and HMAC-SHA256.
//!
//! AES-256-GCM-SIV wraps keys here, and not AES-KWP, because it authenticates what a key is for together with the key:
//! a wrapped key that is moved to another place does not open there. Nonces are random; if one repeated, GCM-SIV would
//! only show whether two equal plain texts were wrapped.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, hmac};
use zeroize::Zeroizing;

use crate::secret::{Key, random};

/// The length that sealing adds: a nonce of 12 bytes before, and a tag of 16 behind.
pub(crate) const OVERHEAD: usize = NONCE_LEN + 16;

/// A sealed text that was not sealed with this key for this place, or was altered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unauthentic;

/// Encrypts and authenticates `plain`, and authenticates `associated` with it.
pub(crate) fn seal(key: &Key, associated: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut nonce = [0; NONCE_LEN];
    random(&mut nonce);
    // No reallocation: encryption in place must not leave plain text behind.
    let mut sealed = Vec::with_capacity(plain.len() + OVERHEAD);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(plain);
    let tag = aead(key).seal_in_place_separate_tag(
        Nonce::assume_unique_for_key(nonce),
        Aad::from(associated),
        &mut sealed[NONCE_LEN..],
    );
    sealed.extend_from_slice(tag.expect("these texts are shorter than the cipher allows").as_ref());
    sealed
}

/// The plain text of what [`seal`] made.
pub(crate) fn open(key: &Key, associated: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unauthentic> {
    let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(Unauthentic)?;
    let mut text = Zeroizing::new(text.to_vec());
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let opened = aead(key).open_in_place(nonce, Aad::from(associated), &mut text).map_err(|_| Unauthentic)?;
    let len = opened.len();
    text.truncate(len);
    Ok(text)
}

fn aead(key: &Key) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, key.expose()).expect("a key of 32 bytes fits"))
}

/// Makes a key for one purpose from `key` (HKDF-SHA256).
pub(crate) fn derive(key: &Key, salt: &[u8], purpose: &str) -> Key {
    struct Len;
    impl hkdf::KeyType for Len {
        fn len(&self) -> usize {
            Key::LEN
        }
    }
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(key.expose());
    let purpose = [purpose.as_bytes()];
    let derived = extracted.expand(&purpose, Len).and_then(|okm| Key::filled(|into| okm.fill(into)));
    derived.expect("HKDF gives 32 bytes")
}

/// The authentication code of `text` (HMAC-SHA256).
pub(crate) fn mac(key: &Key, text: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.expose()), text);
    tag.as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

/// Whether `code` is the authentication code of `text`, in a time that does not depend on the code.
pub(crate) fn mac_is(key: &Key, text: &[u8], code: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key.expose()), text, code).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex;

    #[test]
    fn what_was_sealed_opens_with_the_same_key_and_place_alone() {
        let key = Key::random();
        let sealed = seal(&key, b"place", b"plain text");
        assert_eq!(sealed.len(), 10 + OVERHEAD);
        assert_eq!(&**open(&key, b"place", &sealed).unwrap(), b"plain text");
        assert_eq!(open(&Key::random(), b"place", &sealed), Err(Unauthentic));
        assert_eq!(open(&key, b"elsewhere", &sealed), Err(Unauthentic));
        for len in 0..sealed.len() {
            assert_eq!(open(&key, b"place", &sealed[..len]), Err(Unauthentic), "{len} bytes");
        }
    }

    #[test]
    fn every_bit_of_a_sealed_text_counts() {
        let key = Key::random();
        let sealed = seal(&key, b"", &[7; 32]);
        for bit in 0..8 * sealed.len() {
            let mut altered = sealed.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&key, b"", &altered), Err(Unauthentic), "bit {bit}");
        }
    }

    /// RFC 8452, appendix C.2, the case with a plain text of 8 bytes and none associated.
    #[test]
    fn the_cipher_is_that_of_rfc_8452() {
        let mut key = [0; 32];
        key[0] = 1;
        let sealed = hex::decode("030000000000000000000000c2ef328e5c71c83b843122130f7364b761e0b97427e3df28").unwrap();
        let plain = open(&Key::from_slice(&key).unwrap(), b"", &sealed).unwrap();
        assert_eq!(hex::encode(&plain), "0100000000000000");
    }

    #[test]
    fn purposes_and_salts_give_different_keys() {
        let key = Key::random();
        let derived = derive(&key, b"salt", "one");
        assert!(derived.same_as(&derive(&key, b"salt", "one")));
        assert!(!derived.same_as(&derive(&key, b"salt", "two")));
        assert!(!derived.same_as(&derive(&key, b"tlas", "one")));
    }

    #[test]
    fn a_code_authenticates_one_text() {
        let key = Key::random();
        let code = mac(&key, b"text");
        assert!(mac_is(&key, b"text", &code));
        assert!(!mac_is(&key, b"Text", &code) && !mac_is(&Key::random(), b"text", &code));
        assert!(!mac_is(&key, b"text", &code[..31]));
    }
}
