//! The server's side of the handshake.

use lunette_session::Time;
use zeroize::Zeroizing;

use super::packets::{ACCEPT_LEN, Accept, Initial, Parameters, RETRY_LEN, Retry};
use super::token::TokenSecrets;
use super::unfinished::{Pending, Unfinished};
use super::{Established, ResetSecret, noise};
use crate::header::{HEADER_LEN, Header};
use crate::path::Address;
use crate::protection::Seal;
use crate::{Entropy, Role};

/// The answer of a server to a datagram that belongs to no association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// No answer: the datagram is dropped.
    Drop,
    /// Another Initial is wanted, with this token. The server keeps nothing.
    Retry([u8; RETRY_LEN]),
    /// The server agrees. It keeps the handshake until a packet of the client completes it.
    Accept([u8; ACCEPT_LEN]),
}

/// On what terms a server answers a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// The source address is believed without a token.
    pub trusted: bool,
    /// The encryption that the server wants.
    pub seal: Seal,
}

/// An association that a client has completed the handshake of.
#[derive(Debug)]
pub struct Accepted {
    /// Keys and numbers.
    pub established: Established,
    /// The address that the client has proven.
    pub address: Address,
}

/// The part of a server that handles datagrams of unknown addresses and associations.
///
/// Its driver shows it each Initial ([`answer`](Self::answer)), and each packet of an association that is not in the
/// driver's table ([`claim`](Self::claim)). The table grows only by what `claim` returns: until then a handshake costs
/// the server an entry in a table of [`MAX_UNFINISHED_HANDSHAKES`](crate::limits::MAX_UNFINISHED_HANDSHAKES).
pub struct Listener {
    tokens: TokenSecrets,
    resets: ResetSecret,
    unfinished: Unfinished,
}

impl Listener {
    /// A listener that knows no handshake yet.
    pub fn new(now: Time, resets: ResetSecret, entropy: &mut Entropy<'_>) -> Self {
        Self { tokens: TokenSecrets::new(now, entropy), resets, unfinished: Unfinished::default() }
    }

    /// Answers a datagram whose header says [Initial](crate::header::PacketType::Initial). `is_taken` says whether the
    /// driver's table has an association of that number.
    pub fn answer(
        &mut self,
        now: Time,
        source: &Address,
        terms: Terms,
        datagram: &[u8],
        is_taken: impl Fn(u32) -> bool,
        entropy: &mut Entropy<'_>,
    ) -> Answer {
        let Some(initial) = Initial::parse(datagram) else { return Answer::Drop };
        self.tokens.rotate(now, entropy);
        if !terms.trusted && !self.tokens.is_valid(&initial.token, source, &initial.key) {
            let token = self.tokens.token(source, &initial.key);
            return Answer::Retry(Retry { number: initial.number, token, key: initial.key }.emit());
        }
        self.unfinished.expire(now);
        if let Some(accept) = self.unfinished.accept_again(source, &initial) {
            return Answer::Accept(accept);
        }
        self.accept(now, source, &initial, terms.seal, is_taken, entropy).map_or(Answer::Drop, Answer::Accept)
    }

    /// The association that this packet completes the handshake of, if it does: its number is that of an unfinished
    /// handshake, and its header check is by the client. The packet itself is the association's first, and is for its
    /// [`Protection`](crate::protection::Protection) to open.
    pub fn claim(&mut self, now: Time, packet: &[u8]) -> Option<Accepted> {
        let header = Header::parse(packet).ok()?;
        self.unfinished.expire(now);
        let pending = self.unfinished.get(header.association)?;
        // A copy, because opening decrypts in place. There is one for each handshake.
        let keys = pending.secret.login_keys(Role::Server);
        keys.receive.open(&mut Zeroizing::new(packet.to_vec())).ok()?;
        let pending = self.unfinished.remove(header.association)?;
        Some(Accepted {
            address: pending.source,
            established: Established {
                role: Role::Server,
                secret: pending.secret,
                own_number: header.association,
                peer_number: pending.initial.number,
                reset_token: self.resets.token(header.association, &pending.source),
                peer_seal: pending.initial.seal,
                round_trip: (!pending.is_repeated).then(|| now - pending.since),
            },
        })
    }

    /// The Reset for a packet from `source` of an association that neither the driver's table nor
    /// [`claim`](Self::claim) knows. A packet of an unfinished handshake gets none: whoever forged it could end the
    /// association with the token later.
    pub fn reset(&self, source: &Address, packet: &[u8]) -> Option<[u8; HEADER_LEN]> {
        let header = Header::parse(packet).ok()?;
        if self.unfinished.get(header.association).is_some() {
            return None;
        }
        self.resets.answer(source, packet)
    }

    /// How many handshakes wait for the client's first packet.
    pub fn unfinished(&self) -> usize {
        self.unfinished.len()
    }

    fn accept(
        &mut self,
        now: Time,
        source: &Address,
        initial: &Initial,
        seal: Seal,
        is_taken: impl Fn(u32) -> bool,
        entropy: &mut Entropy<'_>,
    ) -> Option<[u8; ACCEPT_LEN]> {
        let number = self.free_number(is_taken, entropy)?;
        let mut private = Zeroizing::new([0; 32]);
        entropy(&mut *private);
        let parameters = Parameters { number, reset_token: self.resets.token(number, source), seal };
        let (message, secret) = noise::respond(&private, initial, &parameters)?;
        let accept = Accept { number: initial.number, message }.emit();
        let pending = Pending { source: *source, initial: *initial, secret, accept, is_repeated: false, since: now };
        self.unfinished.insert(number, pending);
        Some(accept)
    }

    /// A number that no association has. `None` after [`ATTEMPTS`] that were taken: with a million associations that
    /// happens once in 10⁵⁸ times.
    fn free_number(&self, is_taken: impl Fn(u32) -> bool, entropy: &mut Entropy<'_>) -> Option<u32> {
        (0..ATTEMPTS).find_map(|_| {
            let mut bytes = [0; 4];
            entropy(&mut bytes);
            let number = u32::from_be_bytes(bytes);
            (number != 0 && self.unfinished.get(number).is_none() && !is_taken(number)).then_some(number)
        })
    }
}

/// How often a free number is looked for.
const ATTEMPTS: usize = 16;

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("unfinished", &self.unfinished.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
