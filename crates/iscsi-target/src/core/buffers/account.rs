//! The share of the buffers that connections hold, and the connections that may hold more.
//!
//! Buffers of a connection count for its initiator and its target too, on this core. So neither many sessions of one
//! initiator nor all initiators of one target leave the others without. An initiator may use at most as much as
//! remains free, and a target three times that, so each newcomer still finds something. A part of the pool is for short
//! commands of initiators that hold little: they are served while others hold all that they can.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::{Rc, Weak};

use lunette_buffer::{PAGE_LEN, Pool};
use lunette_reactor::Flow;

use crate::limits::{
    CONNECTION_BUFFER_SHARE, SECOND_BUFFER_RESERVE, SHORT_BUFFER_LEN, SHORT_BUFFER_RESERVE, SHORT_BUFFER_SHARE,
    TARGET_BUFFER_FACTOR, TARGET_FIRST_BUFFER_FACTOR,
};

/// Names that are kept before unused ones are removed.
const MIN_TIDY: usize = 64;

/// The owner of the buffers that a connection holds.
#[derive(Debug, Clone, Copy)]
pub(in crate::core) struct Owner<'a> {
    /// The user that the initiator has proved to be.
    pub(in crate::core) user: Option<&'a str>,
    /// The name that the initiator gives itself.
    pub(in crate::core) initiator: &'a str,
    /// The address that the connection comes from.
    pub(in crate::core) host: IpAddr,
    /// The target's name; empty where there is no target.
    pub(in crate::core) target: &'a str,
}

/// The buffers that a connection holds, and the most that it may hold.
#[derive(Debug, Clone, Copy)]
pub(in crate::core) struct Share {
    pub(in crate::core) held_bytes: usize,
    pub(in crate::core) most_bytes: usize,
}

/// Bytes that the connections of one initiator, or of one target, hold on one core.
type Tally = Cell<usize>;

/// The bytes of buffers that one connection holds, counted for its initiator and its target too. All of them are in a
/// [`Reservation`]. The default is for a connection that has no session yet and holds nothing.
#[derive(Debug, Default)]
pub(in crate::core) struct Account {
    held: Tally,
    initiator: Rc<Tally>,
    target: Rc<Tally>,
}

impl Account {
    /// Bytes of buffers that the connection keeps from others.
    pub(in crate::core) fn bytes(&self) -> usize {
        self.held.get()
    }

    /// Tells initiators apart at the file threads.
    pub(in crate::core) fn flow(&self) -> Flow {
        // The address names the tally of an initiator for as long as one of its connections lives.
        Flow(Rc::as_ptr(&self.initiator).addr() as u64)
    }

    fn add(&self, bytes: usize) {
        for tally in [&self.held, &*self.initiator, &*self.target] {
            tally.set(tally.get() + bytes);
        }
    }

    fn sub(&self, bytes: usize) {
        for tally in [&self.held, &*self.initiator, &*self.target] {
            debug_assert!(bytes <= tally.get(), "more is given back than was held");
            tally.set(tally.get().saturating_sub(bytes));
        }
    }

    /// Whether a task of the connection may have its first buffer now.
    ///
    /// A part of the pool stays for tasks that have one and need another to come to their end; else tasks that all wait
    /// for a second one would wait for each other.
    pub(super) fn may_begin(&self, pool: &Pool, len: usize) -> bool {
        let len = pooled_len(len);
        let budget = pool.budget_bytes();
        let free = (budget - budget / SECOND_BUFFER_RESERVE).saturating_sub(pool.used_bytes());
        let (own, initiator, target) = (self.held.get(), self.initiator.get(), self.target.get());
        let holds_little = own == 0 && initiator < budget / SHORT_BUFFER_SHARE;
        if len <= SHORT_BUFFER_LEN && holds_little {
            return len <= free;
        }
        let free = free.saturating_sub(budget / SHORT_BUFFER_RESERVE);
        let target_factor = if initiator == 0 { TARGET_FIRST_BUFFER_FACTOR } else { TARGET_BUFFER_FACTOR };
        len <= free && self.is_within_share(pool) && own <= free && initiator <= free && target <= target_factor * free
    }

    /// The buffers that the connection holds, and the most that it may hold while others keep theirs: its own buffers
    /// are not free.
    pub(super) fn share(&self, pool: &Pool) -> Share {
        let free = pool.budget_bytes().saturating_sub(pool.used_bytes());
        let most_bytes =
            (pool.budget_bytes() / CONNECTION_BUFFER_SHARE).min(usize::midpoint(self.initiator.get(), free));
        Share { held_bytes: self.held.get(), most_bytes }
    }

    /// Whether the connection's own share lets a task of it have its first buffer. How long that is does not matter, or
    /// short commands would go before a long one for ever.
    pub(super) fn is_within_share(&self, pool: &Pool) -> bool {
        self.held.get() < pool.budget_bytes() / CONNECTION_BUFFER_SHARE
    }
}

/// Bytes of buffers that count for an account until the reservation is dropped.
///
/// A running task has one, and so have the answers of a connection. That of an aborted task whose store still works
/// outlives its connection.
#[derive(Debug)]
pub(in crate::core) struct Reservation {
    account: Rc<Account>,
    bytes: usize,
}

impl Reservation {
    /// A reservation of no bytes yet.
    pub(in crate::core) fn new(account: &Rc<Account>) -> Self {
        Self { account: Rc::clone(account), bytes: 0 }
    }

    pub(in crate::core) fn account(&self) -> &Account {
        &self.account
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes in a buffer of `len` bytes.
    pub(super) fn add_buffer(&mut self, len: usize) {
        let bytes = pooled_len(len);
        self.bytes += bytes;
        self.account.add(bytes);
    }

    /// Holds `bytes` from now on.
    pub(in crate::core) fn resize(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if before != bytes {
            self.account.add(bytes);
            self.account.sub(before);
        }
    }

    /// Counts for another connection from now on.
    pub(in crate::core) fn move_to(&mut self, account: &Rc<Account>) {
        let bytes = self.bytes;
        self.resize(0);
        self.account = Rc::clone(account);
        self.resize(bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.sub(self.bytes);
        }
    }
}

/// The bytes that a buffer takes from the pool, which gives out pages by powers of two.
fn pooled_len(len: usize) -> usize {
    len.max(PAGE_LEN).next_power_of_two()
}

/// The tallies of the initiators and targets of one core.
#[derive(Default)]
pub(super) struct Accounts {
    initiators: Tallies,
    targets: Tallies,
}

impl Accounts {
    /// An account for a connection. An initiator is the user that it has proved to be. Without a proof any name can be
    /// given, so it is the name and the address: no host uses up the share of another one.
    pub(super) fn open(&mut self, owner: Owner<'_>) -> Rc<Account> {
        let Owner { user, initiator, host, target } = owner;
        let initiator = match user {
            Some(user) => format!("user {user}"),
            None => format!("{host} {}", initiator.to_ascii_lowercase()),
        };
        let (initiator, target) = (self.initiators.of(initiator), self.targets.of(target.to_ascii_lowercase()));
        Rc::new(Account { held: Tally::default(), initiator, target })
    }
}

#[derive(Default)]
struct Tallies {
    by_name: HashMap<String, Weak<Tally>>,
    tidy_at: usize,
}

impl Tallies {
    fn of(&mut self, name: String) -> Rc<Tally> {
        if self.by_name.len() >= self.tidy_at.max(MIN_TIDY) {
            self.by_name.retain(|_, tally| tally.strong_count() > 0);
            self.tidy_at = 2 * self.by_name.len();
        }
        let entry = self.by_name.entry(name).or_default();
        entry.upgrade().unwrap_or_else(|| {
            let tally = Rc::default();
            *entry = Rc::downgrade(&tally);
            tally
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accounts of two connections of one initiator at two targets.
    fn accounts() -> [Rc<Account>; 2] {
        let initiator = Rc::default();
        [(); 2].map(|()| Rc::new(Account { initiator: Rc::clone(&initiator), ..Account::default() }))
    }

    fn held(account: &Account) -> [usize; 3] {
        [account.held.get(), account.initiator.get(), account.target.get()]
    }

    #[test]
    fn a_reservation_counts_until_it_is_dropped_even_when_its_connection_is_gone() {
        let [first, second] = accounts();
        let mut task = Reservation::new(&first);
        task.add_buffer(1);
        task.add_buffer(PAGE_LEN + 1);
        drop(first);
        assert_eq!(held(&second), [0, 3 * PAGE_LEN, 0]);
        drop(task);
        assert_eq!(held(&second), [0; 3]);
    }

    #[test]
    fn a_reservation_that_moves_counts_for_the_other_connection_alone() {
        let [first, second] = accounts();
        let mut task = Reservation::new(&first);
        task.resize(100);
        task.move_to(&second);
        assert_eq!((held(&first), held(&second)), ([0, 100, 0], [100; 3]));
        task.resize(30);
        assert_eq!(held(&second), [30; 3]);
    }
}
