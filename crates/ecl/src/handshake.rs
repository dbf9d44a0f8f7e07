//! How two sides agree on keys, and how a server spends nothing on addresses that were not proven.
//!
//! ```text
//! client                                              server
//! Initial(number, key)                  ---------->
//!                                       <----------   Retry(token)                nothing is kept
//! Initial(number, key, token)           ---------->
//!                                       <----------   Accept(number, key, ...)    kept for a while
//! the first protected packet            ---------->                               an association
//! ```
//!
//! The two keys are the messages of `Noise_NN_25519_ChaChaPoly_SHA256`; the [exchange
//! secret](crate::protection::ExchangeSecret) follows from them. The [`Client`] and the [`Listener`] of a server take
//! datagrams and give datagrams; sockets, clock and random bytes belong to their drivers.
//!
//! # Packets
//!
//! The headers have the type, the association and the payload check; all other fields are what
//! [`Header::new`](crate::header::Header::new) gives, with packet number 0. A packet that differs in one bit is
//! dropped. The association is the receiver's number; the client does not know that of the server yet, so it is 0 in
//! Initial. No association has the number 0.
//!
//! | Initial | bytes of the payload |
//! |---|---|
//! | 0–31 | the client's ephemeral public key: message 1 of the exchange |
//! | 32–35 | the client's number for the association |
//! | 36–51 | the token of Retry; zeroes in the first Initial |
//! | 52 | what the client wants encrypted: 0 headers, 1 everything |
//! | 53–1103 | zeroes, so that no answer is longer than what it answers |
//!
//! | Retry | bytes of the payload |
//! |---|---|
//! | 0–15 | the token |
//! | 16–47 | the key of the Initial that this answers: only a machine that has seen it can answer |
//!
//! | Accept | bytes of the payload |
//! |---|---|
//! | 0–31 | the server's ephemeral public key |
//! | 32–68 | encrypted: 4 bytes, the server's number for the association, 16 bytes, the [reset token](ResetToken), 1 byte, what the server wants encrypted, and the 16 bytes of Poly1305's tag |
//!
//! | Reset | |
//! |---|---|
//! | header, association | that of the packet which it answers, so the server's number |
//! | header, check | the [reset token](ResetToken) |
//! | payload | none |
//!
//! A Reset is as short as the shortest packet. So it is never longer than what it answers, and two servers cannot
//! answer each other's.

use std::time::Duration;

use crate::Role;
use crate::protection::{ExchangeSecret, Seal};

mod client;
mod mac;
mod noise;
mod packets;
mod reset;
mod server;
mod token;
mod unfinished;

pub use client::{Client, FIRST_WAIT, LONGEST_WAIT, NoAnswer, Received};
pub use packets::{ACCEPT_LEN, INITIAL_LEN, RETRY_LEN};
pub use reset::{ResetSecret, ResetToken};
pub use server::{Accepted, Answer, Listener, Terms};
pub use token::TOKEN_LIFETIME;

/// How long a handshake may take. The client gives up then, and a server forgets what it has accepted.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of a handshake.
#[derive(Debug)]
pub struct Established {
    /// Which side this is.
    pub role: Role,
    /// The secret from which the keys are derived.
    pub secret: ExchangeSecret,
    /// The association's number in packets to this side.
    pub own_number: u32,
    /// The association's number in packets to the peer.
    pub peer_number: u32,
    /// The token of the server's Reset for this association. The client compares, and the server has no use for it.
    pub reset_token: ResetToken,
    /// The encryption that the peer wants. That it does was authenticated with the rest of the handshake.
    pub peer_seal: Seal,
    /// How long the answer to this side's packet took, where it was sent only once.
    pub round_trip: Option<Duration>,
}

#[cfg(test)]
mod tests;
