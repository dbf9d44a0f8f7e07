//! Handshakes that a server has accepted and that no packet of the client has completed yet.

use std::collections::{BTreeMap, BTreeSet};

use lunette_session::Time;

use super::HANDSHAKE_TIMEOUT;
use super::packets::{ACCEPT_LEN, EphemeralKey, Initial};
use crate::limits::{MAX_UNFINISHED_HANDSHAKES, MAX_UNFINISHED_HANDSHAKES_OF_HOST};
use crate::path::Address;
use crate::protection::ExchangeSecret;

/// One handshake.
pub(super) struct Pending {
    /// Where the Initial came from.
    pub(super) source: Address,
    pub(super) initial: Initial,
    pub(super) secret: ExchangeSecret,
    /// The answer, which is sent again when the Initial comes again.
    pub(super) accept: [u8; ACCEPT_LEN],
    /// Whether the answer was sent again.
    pub(super) is_repeated: bool,
    /// When it was accepted.
    pub(super) since: Time,
}

impl Pending {
    fn client(&self) -> (Address, EphemeralKey) {
        (self.source, self.initial.key)
    }
}

/// At most [`MAX_UNFINISHED_HANDSHAKES`] of them, found by their number and by the client's address and key. Each is
/// forgotten after [`HANDSHAKE_TIMEOUT`], and the oldest when there is another. One host has at most
/// [`MAX_UNFINISHED_HANDSHAKES_OF_HOST`], so it does not push out those of others.
#[derive(Default)]
pub(super) struct Unfinished {
    /// By the order in which they were accepted.
    pending: BTreeMap<u64, (u32, Pending)>,
    by_number: BTreeMap<u32, u64>,
    by_client: BTreeMap<(Address, EphemeralKey), u64>,
    by_host: BTreeSet<([u8; 19], u64)>,
    accepted: u64,
}

impl Unfinished {
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// The handshake of the association with that number.
    pub(super) fn get(&self, number: u32) -> Option<&Pending> {
        self.pending.get(self.by_number.get(&number)?).map(|(_, pending)| pending)
    }

    /// The earlier answer to the same Initial from the same address. Its token may differ: a client may have got two.
    pub(super) fn accept_again(&mut self, source: &Address, initial: &Initial) -> Option<[u8; ACCEPT_LEN]> {
        let (_, pending) = self.pending.get_mut(self.by_client.get(&(*source, initial.key))?)?;
        if (pending.initial.number, pending.initial.seal) != (initial.number, initial.seal) {
            return None;
        }
        pending.is_repeated = true;
        Some(pending.accept)
    }

    /// Keeps a handshake, in the place of one of the same client, or of the oldest when there is no room.
    pub(super) fn insert(&mut self, number: u32, pending: Pending) {
        if let Some(&order) = self.by_client.get(&pending.client()) {
            self.forget(order);
        }
        let host = pending.source.host();
        let mut of_host = self.by_host.range((host, 0)..=(host, u64::MAX)).map(|&(_, order)| order);
        let oldest_of_host = of_host.next().filter(|_| of_host.count() + 1 >= MAX_UNFINISHED_HANDSHAKES_OF_HOST);
        let is_full = self.pending.len() >= MAX_UNFINISHED_HANDSHAKES;
        let oldest = self.pending.first_key_value().filter(|_| is_full).map(|(&order, _)| order);
        if let Some(order) = oldest_of_host.or(oldest) {
            self.forget(order);
        }
        let order = self.accepted;
        self.accepted += 1;
        self.by_number.insert(number, order);
        self.by_host.insert((host, order));
        self.by_client.insert(pending.client(), order);
        self.pending.insert(order, (number, pending));
    }

    /// Takes out the handshake of the association with that number.
    pub(super) fn remove(&mut self, number: u32) -> Option<Pending> {
        let order = *self.by_number.get(&number)?;
        self.forget(order)
    }

    /// Forgets what is too old.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some((&oldest, (_, pending))) = self.pending.first_key_value()
            && now - pending.since >= HANDSHAKE_TIMEOUT
        {
            self.forget(oldest);
        }
    }

    fn forget(&mut self, order: u64) -> Option<Pending> {
        let (number, pending) = self.pending.remove(&order)?;
        self.by_number.remove(&number);
        self.by_client.remove(&pending.client());
        self.by_host.remove(&(pending.source.host(), order));
        Some(pending)
    }
}

#[cfg(test)]
mod tests;
