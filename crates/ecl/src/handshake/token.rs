//! The token of Retry: proof that a client receives what is sent to its address.

use std::time::Duration;

use lunette_session::Time;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::mac::mac;
use super::packets::EphemeralKey;
use crate::Entropy;
use crate::path::Address;

/// The length of a token.
pub(super) const TOKEN_LEN: usize = 16;

/// A token, or zeroes in the place of one.
pub(super) type Token = [u8; TOKEN_LEN];

/// A token is accepted for at least half of this time, and never after it.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(10);

/// The secrets that tokens are made with. A token is a MAC of the client's address and key under the secret of its
/// time; a secret serves half of [`TOKEN_LIFETIME`] and is accepted for as long again. So a token says nothing, and has
/// no time in it.
pub(super) struct TokenSecrets {
    current: Zeroizing<[u8; 32]>,
    previous: Zeroizing<[u8; 32]>,
    /// Since when `current` is to be used.
    since: Time,
}

impl TokenSecrets {
    pub(super) fn new(now: Time, entropy: &mut Entropy<'_>) -> Self {
        Self { current: draw(entropy), previous: draw(entropy), since: now }
    }

    /// Replaces the secrets whose time is over.
    pub(super) fn rotate(&mut self, now: Time, entropy: &mut Entropy<'_>) {
        let age = now - self.since;
        if age < TOKEN_LIFETIME / 2 {
            return;
        }
        let current = std::mem::replace(&mut self.current, draw(entropy));
        if age < TOKEN_LIFETIME {
            // From when its time was over, and not from now, or the tokens of the previous secret would live longer.
            self.since = self.since + TOKEN_LIFETIME / 2;
            self.previous = current;
        } else {
            self.since = now;
            self.previous = draw(entropy);
        }
    }

    /// The token for a client.
    pub(super) fn token(&self, address: &Address, key: &EphemeralKey) -> Token {
        token(&self.current, address, key)
    }

    /// Whether that client got this token, and not too long ago.
    pub(super) fn is_valid(&self, token: &Token, address: &Address, key: &EphemeralKey) -> bool {
        let [current, previous] =
            [&self.current, &self.previous].map(|secret| self::token(secret, address, key).ct_eq(token));
        (current | previous).into()
    }
}

fn draw(entropy: &mut Entropy<'_>) -> Zeroizing<[u8; 32]> {
    let mut secret = Zeroizing::new([0; 32]);
    entropy(&mut *secret);
    secret
}

fn token(secret: &[u8; 32], address: &Address, key: &EphemeralKey) -> Token {
    mac(secret, &[key, &address.to_bytes()])
}
