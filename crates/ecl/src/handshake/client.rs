//! The client's side of the handshake.

use std::time::Duration;

use lunette_session::Time;
use zeroize::Zeroizing;

use super::noise::{self, PrivateKey};
use super::packets::{Accept, EphemeralKey, INITIAL_LEN, Initial, Retry};
use super::token::{TOKEN_LEN, TOKEN_LIFETIME, Token};
use super::{Established, HANDSHAKE_TIMEOUT};
use crate::protection::Seal;
use crate::{Entropy, Role};

/// How long the client waits for an answer to its first Initial. Each further one takes twice as long, up to
/// [`LONGEST_WAIT`].
pub const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The longest time between two Initial packets.
pub const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// How long a token is used: so long that the server takes it.
const TOKEN_USED: Duration = Duration::from_secs(TOKEN_LIFETIME.as_secs() / 2);

/// The server has not agreed to an association in [`HANDSHAKE_TIMEOUT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer to the handshake in {} s", HANDSHAKE_TIMEOUT.as_secs())]
pub struct NoAnswer;

/// The meaning of a datagram to the handshake.
#[derive(Debug)]
pub enum Received {
    /// Nothing that belongs to it. Whoever sent it, the handshake goes on.
    Foreign,
    /// The server asks for a token: [`Client::transmit`] has a datagram at once.
    Retry,
    /// The server agrees; the client is of no further use.
    Established(Established),
}

/// A client that wants an association.
///
/// Its driver sends what [`transmit`](Self::transmit) gives, comes back at [`next_timeout`](Self::next_timeout), and
/// shows it each datagram that came from the server's address.
pub struct Client {
    private: PrivateKey,
    key: EphemeralKey,
    number: u32,
    seal: Seal,
    token: Option<(Token, Time)>,
    begun: Time,
    /// When the next Initial is due, and how long the wait after it is.
    due: Time,
    wait: Duration,
    /// When the last Initial was sent, and whether it was one of several that the server may have answered.
    sent: Option<(Time, bool)>,
}

impl Client {
    /// Begins a handshake. `number` is the client's number for the association, by which it knows packets that are for
    /// it: not 0, and best random.
    ///
    /// # Panics
    ///
    /// When the number is 0: a mistake of the caller.
    pub fn new(now: Time, number: u32, entropy: &mut Entropy<'_>) -> Self {
        assert_ne!(number, 0, "no association has the number 0");
        let mut private = Zeroizing::new([0; 32]);
        entropy(&mut *private);
        let key = noise::first_message(&private);
        let seal = Seal::default();
        Self { private, key, number, seal, token: None, begun: now, due: now, wait: FIRST_WAIT, sent: None }
    }

    /// A handshake of a client that wants this encryption.
    #[must_use]
    pub fn with_seal(self, seal: Seal) -> Self {
        Self { seal, ..self }
    }

    /// The datagram that is to be sent now, if one is.
    ///
    /// # Errors
    ///
    /// [`NoAnswer`] when the time for the handshake is over.
    pub fn transmit(&mut self, now: Time) -> Result<Option<[u8; INITIAL_LEN]>, NoAnswer> {
        if now - self.begun >= HANDSHAKE_TIMEOUT {
            return Err(NoAnswer);
        }
        if now < self.due {
            return Ok(None);
        }
        self.sent = Some((now, self.sent.is_some()));
        self.due = now + self.wait;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        // A token that the server no longer takes gives way to another one.
        self.token = self.token.filter(|(_, since)| now - *since < TOKEN_USED);
        let token = self.token.map_or([0; TOKEN_LEN], |(token, _)| token);
        Ok(Some(Initial { key: self.key, number: self.number, token, seal: self.seal }.emit()))
    }

    /// When [`transmit`](Self::transmit) is to be called.
    pub fn next_timeout(&self) -> Time {
        self.due.min(self.begun + HANDSHAKE_TIMEOUT)
    }

    /// Reads a datagram.
    pub fn receive(&mut self, now: Time, datagram: &[u8]) -> Received {
        if let Some(retry) = Retry::parse(datagram) {
            return self.retry(now, &retry);
        }
        match Accept::parse(datagram).filter(|accept| accept.number == self.number) {
            Some(accept) => self.accept(now, &accept),
            None => Received::Foreign,
        }
    }

    /// One Retry counts. A client that holds a token ignores another, or a forger could keep it from ever using the
    /// right one.
    fn retry(&mut self, now: Time, retry: &Retry) -> Received {
        if retry.number != self.number || retry.key != self.key || self.token.is_some() {
            return Received::Foreign;
        }
        self.token = Some((retry.token, now));
        self.due = now;
        self.wait = FIRST_WAIT;
        // What went before had no token.
        self.sent = None;
        Received::Retry
    }

    fn accept(&self, now: Time, accept: &Accept) -> Received {
        match noise::finish(&self.private, self.number, self.seal, &accept.message) {
            Some((parameters, secret)) if parameters.number != 0 => Received::Established(Established {
                role: Role::Client,
                secret,
                own_number: self.number,
                peer_number: parameters.number,
                reset_token: parameters.reset_token,
                peer_seal: parameters.seal,
                round_trip: self.sent.filter(|(_, is_repeated)| !is_repeated).map(|(sent_at, _)| now - sent_at),
            }),
            _ => Received::Foreign,
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("number", &self.number).field("due", &self.due).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
