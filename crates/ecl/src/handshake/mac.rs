//! The MAC of tokens.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// HMAC-SHA256 of all parts, which have fixed lengths, cut to 16 bytes.
pub(super) fn mac(secret: &[u8; 32], parts: &[&[u8]]) -> [u8; 16] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    let mac = mac.finalize().into_bytes();
    std::array::from_fn(|i| mac[i])
}
