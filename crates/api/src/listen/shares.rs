//! How many connections of a port of TCP there may be: those that have not proven yet that they have a token have a
//! small share of their own, and so has each address.
//!
//! When the share of those without a token is full, the oldest one ends at the address that has most of them. It has
//! [`GRACE`] to send its token, unless the new one's address has fewer. Until then the new one waits in a line of its
//! address, and one that finds the line full is closed. So connections that prove nothing keep out neither those that
//! do, nor other addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::limits::{GRACE, MAX_ADDRESS_CONNECTIONS, MAX_ADDRESS_STRANGERS, MAX_CONNECTIONS, MAX_STRANGERS};
use crate::problem::Problem;

/// The connections of a port.
#[derive(Debug, Clone, Default)]
pub(super) struct Shares(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// Connections that have proven nothing, the oldest first.
    strangers: Vec<Stranger>,
    /// Where those come from that wait for a place.
    waiting: Vec<IpAddr>,
    /// How many have, by where they come from.
    known: BTreeMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Stranger {
    id: u64,
    source: IpAddr,
    since: Instant,
    /// The signal that ends the connection.
    end: Arc<Notify>,
}

/// A connection, as its requests know it.
#[derive(Debug)]
pub(crate) struct Connection {
    peer: String,
    is_proven: AtomicBool,
    /// The connection's place at a port of TCP.
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    shares: Shares,
    id: u64,
    source: IpAddr,
    end: Arc<Notify>,
}

/// A place in the line of an address, until it is dropped.
struct InLine {
    shares: Shares,
    source: IpAddr,
}

impl Shares {
    /// A place for a new connection, as soon as there is one; `None` when too many wait for one already. The loop that
    /// accepts connections must not wait for this.
    pub(super) async fn admit(&self, address: IpAddr, peer: String) -> Option<Connection> {
        let source = source_of(address);
        let mut line = None;
        loop {
            match self.try_admit(source, Instant::now()) {
                Ok((id, end)) => {
                    let place = Place { shares: self.clone(), id, source, end };
                    return Some(Connection { peer, is_proven: AtomicBool::new(false), place: Some(place) });
                }
                Err(later) => {
                    if line.is_none() {
                        line = Some(self.line_up(source)?);
                    }
                    sleep_until(later).await;
                }
            }
        }
    }

    /// A place in the line of an address. An address may have as many in its line as it may have connections.
    fn line_up(&self, source: IpAddr) -> Option<InLine> {
        let mut table = self.table();
        let of_source = table.waiting.iter().filter(|one| **one == source).count();
        if of_source >= MAX_ADDRESS_STRANGERS || table.waiting.len() >= MAX_STRANGERS {
            return None;
        }
        table.waiting.push(source);
        Some(InLine { shares: self.clone(), source })
    }

    /// A place, or when the next one is free.
    fn try_admit(&self, source: IpAddr, now: Instant) -> Result<(u64, Arc<Notify>), Instant> {
        let mut table = self.table();
        if let Some(index) = table.surplus(source) {
            let Stranger { source: most, since, .. } = table.strangers[index];
            let may_end_at = since + GRACE;
            if may_end_at > now && table.held_by(most) <= table.held_by(source) + 1 {
                return Err(may_end_at);
            }
            table.strangers.remove(index).end.notify_one();
        }
        let (id, end) = (table.next, Arc::new(Notify::new()));
        table.next += 1;
        table.strangers.push(Stranger { id, source, since: now, end: Arc::clone(&end) });
        Ok((id, end))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The stranger that has to end before another one of this source comes in.
    fn surplus(&self, source: IpAddr) -> Option<usize> {
        let most = if self.held_by(source) >= MAX_ADDRESS_STRANGERS {
            source
        } else if self.strangers.len() >= MAX_STRANGERS {
            // Of those with as many, the one whose stranger is the oldest: `max_by_key` returns the last.
            self.strangers.iter().rev().map(|one| one.source).max_by_key(|source| self.held_by(*source))?
        } else {
            return None;
        };
        self.strangers.iter().position(|one| one.source == most)
    }

    /// How many strangers there are from an address.
    fn held_by(&self, source: IpAddr) -> usize {
        self.strangers.iter().filter(|one| one.source == source).count()
    }

    /// Lets a stranger be one of those that have proven who they are.
    fn prove(&mut self, id: u64, source: IpAddr) -> Result<(), Problem> {
        let full = |whose: &str, most: usize| {
            Problem::unavailable(format!(
                "{whose} have {most} connections already; end one of them, or try again later"
            ))
        };
        if self.known.values().sum::<usize>() >= MAX_CONNECTIONS {
            return Err(full("clients with a token", MAX_CONNECTIONS));
        }
        let of_source = self.known.entry(source).or_default();
        if *of_source >= MAX_ADDRESS_CONNECTIONS {
            return Err(full("clients with a token at this address", MAX_ADDRESS_CONNECTIONS));
        }
        *of_source += 1;
        self.strangers.retain(|one| one.id != id);
        Ok(())
    }

    fn remove(&mut self, id: u64, source: IpAddr, is_proven: bool) {
        if !is_proven {
            return self.strangers.retain(|one| one.id != id);
        }
        if let Some(count) = self.known.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.known.remove(&source);
            }
        }
    }
}

impl Connection {
    /// A connection that needs no token.
    pub(super) fn trusted(peer: String) -> Self {
        Self { peer, is_proven: AtomicBool::new(true), place: None }
    }

    /// Where it comes from.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Whether a request of it had a valid token.
    pub(super) fn is_proven(&self) -> bool {
        self.is_proven.load(Ordering::Relaxed)
    }

    /// A request of it has a valid token.
    ///
    /// # Errors
    ///
    /// When there are too many such connections.
    pub(crate) fn prove(&self) -> Result<(), Problem> {
        let Some(place) = self.place.as_ref().filter(|_| !self.is_proven()) else { return Ok(()) };
        // The requests of a connection come one by one, and so nothing else proves it meanwhile.
        place.shares.table().prove(place.id, place.source)?;
        self.is_proven.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns when another one takes its place.
    pub(super) async fn ended(&self) {
        match &self.place {
            Some(place) => place.end.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            place.shares.table().remove(place.id, place.source, self.is_proven());
        }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let mut table = self.shares.table();
        if let Some(index) = table.waiting.iter().position(|one| *one == self.source) {
            table.waiting.remove(index);
        }
    }
}

/// Where a connection comes from, as far as shares are concerned. A host with IPv6 may have all addresses of a network
/// of 64 bits.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_unicast_link_local() => {
            Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    async fn admit(shares: &Shares, number: u8) -> Connection {
        shares.admit(address(number), String::new()).await.unwrap()
    }

    fn strangers(shares: &Shares) -> Vec<IpAddr> {
        shares.table().strangers.iter().map(|one| one.source).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_holds_all_it_may_keeps_no_client_with_a_token_out() {
        let shares = Shares::default();
        let mut held = Vec::new();
        // More than there is room for: each ends the oldest of the same address.
        for _ in 0..64 {
            held.push(admit(&shares, 1).await);
        }
        assert_eq!(strangers(&shares), [address(1); MAX_ADDRESS_STRANGERS]);
        let begun = Instant::now();
        let (here, there) = (admit(&shares, 1).await, admit(&shares, 2).await);
        assert!(begun.elapsed() <= GRACE, "{:?}", begun.elapsed());
        here.prove().unwrap();
        there.prove().unwrap();
        // What has proven its token has a place that strangers do not take.
        for _ in 0..64 {
            held.push(admit(&shares, 1).await);
        }
        assert!(here.is_proven() && strangers(&shares).len() == MAX_ADDRESS_STRANGERS);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_the_address_with_most_makes_room_after_its_grace() {
        let shares = Shares::default();
        let mut held = Vec::new();
        for number in 0..MAX_STRANGERS - 1 {
            held.push(admit(&shares, u8::try_from(number).unwrap()).await);
        }
        held.push(admit(&shares, 0).await);
        let begun = Instant::now();
        let _new = admit(&shares, 1).await;
        assert_eq!(begun.elapsed(), GRACE, "each has the time to send its token");
        held[0].ended().await;
        assert_eq!(strangers(&shares).iter().filter(|one| **one == address(0)).count(), 1);
        // Now address 1 has two, and the older of them goes.
        let _newer = admit(&shares, 200).await;
        held[1].ended().await;
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_that_hold_all_there_is_keep_no_other_address_waiting() {
        let shares = Shares::default();
        let mut held = Vec::new();
        for number in 0..MAX_STRANGERS {
            held.push(admit(&shares, u8::try_from(number / MAX_ADDRESS_STRANGERS).unwrap()).await);
        }
        let begun = Instant::now();
        let _other = admit(&shares, 200).await;
        assert_eq!(begun.elapsed(), std::time::Duration::ZERO);
        held[0].ended().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_line_of_an_address_is_short() {
        let shares = Shares::default();
        let mut held = Vec::new();
        for _ in 0..MAX_ADDRESS_STRANGERS {
            held.push(admit(&shares, 1).await);
        }
        let wait = |_| {
            let shares = shares.clone();
            tokio::spawn(async move { shares.admit(address(1), String::new()).await })
        };
        let waiting: Vec<_> = (0..MAX_ADDRESS_STRANGERS).map(wait).collect();
        tokio::task::yield_now().await;
        assert!(shares.admit(address(1), String::new()).await.is_none(), "one more is closed");
        for one in waiting {
            held.push(one.await.unwrap().unwrap());
        }
        assert!(shares.table().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_ends_gives_its_place_back() {
        let shares = Shares::default();
        for _ in 0..3 * MAX_CONNECTIONS {
            let stranger = admit(&shares, 1).await;
            let known = admit(&shares, 1).await;
            known.prove().unwrap();
            known.prove().unwrap();
            drop((stranger, known));
        }
        let table = shares.table();
        assert!(table.strangers.is_empty() && table.known.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn clients_with_a_token_have_shares_too() {
        let shares = Shares::default();
        let mut held = Vec::new();
        let mut prove = async |number: u8| {
            let connection = shares.admit(address(number), String::new()).await.unwrap();
            let proven = connection.prove();
            held.push(connection);
            proven
        };
        for _ in 0..MAX_ADDRESS_CONNECTIONS {
            prove(1).await.unwrap();
        }
        assert_eq!(prove(1).await.unwrap_err().status, 503);
        for _ in MAX_ADDRESS_CONNECTIONS..MAX_CONNECTIONS {
            prove(2).await.unwrap();
        }
        assert!(prove(3).await.unwrap_err().detail.contains("clients with a token have"));
    }

    #[test]
    fn addresses_of_one_network_of_64_bits_are_one() {
        let of = |text: &str| source_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), address(1));
        assert_ne!(of("fe80::1"), of("fe80::2"));
    }
}
