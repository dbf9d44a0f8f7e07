//! The secrets of handshake and login, and the keys that follow from them.

use hkdf::Hkdf;
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::{Keys, PacketKeys};
use crate::Role;

/// The labels of HKDF's expansion, one for each purpose. The version of the protocol is a part of them.
const EXCHANGE: &[u8] = b"lunette ecl 1, exchange";
const CLIENT_KEYS: &[u8] = b"lunette ecl 1, packets of the client";
const SERVER_KEYS: &[u8] = b"lunette ecl 1, packets of the server";
const BINDING: &[u8] = b"lunette ecl 1, binding";

/// HKDF gives up to 255 hashes.
const FITS: &str = "32 bytes are within the bounds of HKDF";

/// The secret that the two sides of a handshake share with no other machine.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct ExchangeSecret([u8; 32]);

/// The common knowledge of both sides after the login: their names, and the CHAP secrets that were proven.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Binding([u8; 32]);

impl ExchangeSecret {
    /// The secret of an exchange, from the two keys that Noise derives at its end and the hash of everything that was
    /// said. The handshake calls it; others are fuzzers, which play one side without a handshake.
    pub fn new(split: &[u8; 64], handshake_hash: &[u8]) -> Self {
        let mut secret = [0; 32];
        let hkdf = Hkdf::<Sha256>::new(Some(handshake_hash), split);
        hkdf.expand(EXCHANGE, &mut secret).expect(FITS);
        Self(secret)
    }

    /// The keys of the login.
    pub fn login_keys(&self, role: Role) -> PacketKeys {
        packet_keys(&Hkdf::new(None, &self.0), role)
    }

    /// The keys after the login.
    pub fn bound_keys(&self, role: Role, binding: &Binding) -> PacketKeys {
        packet_keys(&Hkdf::new(Some(&binding.0), &self.0), role)
    }
}

impl Binding {
    /// The binding of a login of `initiator` to `target`, both iSCSI names (for a discovery session `target` is empty).
    /// `initiator_secret` is the CHAP secret with which the initiator proved its name, `target_secret` that of the
    /// target; each is absent when it was not asked for.
    pub fn new(initiator: &str, target: &str, initiator_secret: Option<&[u8]>, target_secret: Option<&[u8]>) -> Self {
        let mut hash = Sha256::new_with_prefix(BINDING);
        for part in [Some(initiator.as_bytes()), Some(target.as_bytes()), initiator_secret, target_secret] {
            // What is absent differs from what is empty, and no part can be taken for the end of another.
            let len = part.map_or(0, |part| part.len() as u64 + 1);
            hash.update(len.to_be_bytes());
            hash.update(part.unwrap_or_default());
        }
        Self(hash.finalize().into())
    }
}

fn packet_keys(secret: &Hkdf<Sha256>, role: Role) -> PacketKeys {
    let keys = |label| {
        let mut bytes = [0; Keys::LEN];
        secret.expand(label, &mut bytes).expect(FITS);
        let keys = Keys::new(&bytes);
        bytes.zeroize();
        keys
    };
    let (client, server) = (keys(CLIENT_KEYS), keys(SERVER_KEYS));
    match role {
        Role::Client => PacketKeys { send: client, receive: server },
        Role::Server => PacketKeys { send: server, receive: client },
    }
}

impl std::fmt::Debug for ExchangeSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExchangeSecret(..)")
    }
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Binding(..)")
    }
}
