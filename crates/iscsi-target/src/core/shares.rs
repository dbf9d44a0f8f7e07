//! The shares of the buffers: what connections, initiators and targets hold, and which of them may have more.
//!
//! What a connection holds counts for its initiator and its target too, on this core, so that neither many sessions of one
//! initiator nor all initiators of one target leave the others without. An initiator may use at most as much as remains free, and a
//! target three times that, so each newcomer still finds something. A part of the pool is for short commands of initiators that
//! hold little: they are served while others hold all that they can.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use lunette_buffer::{PAGE_LEN, Pool};
use lunette_reactor::Flow;
use lunette_session::iscsi_target::SessionInfo;

use crate::limits::{
    CONNECTION_BUFFER_SHARE, SECOND_BUFFER_RESERVE, SHORT_BUFFER_LEN, SHORT_BUFFER_RESERVE, SHORT_BUFFER_SHARE,
    TARGET_BUFFER_FACTOR, TARGET_FIRST_BUFFER_FACTOR,
};

/// Names that are kept before unused ones are removed.
const MIN_TIDY: usize = 64;

/// Bytes that the connections of one initiator, or of one target, hold on one core.
///
/// One thread counts. It is atomic because connections travel between cores before they hold anything.
#[derive(Debug, Default)]
struct Tally(AtomicUsize);

impl Tally {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.store(self.get() + bytes, Ordering::Relaxed);
    }

    fn sub(&self, bytes: usize) {
        debug_assert!(bytes <= self.get(), "more is given back than was held");
        self.0.store(self.get().saturating_sub(bytes), Ordering::Relaxed);
    }
}

/// For whom a connection holds what it holds.
#[derive(Debug, Clone)]
pub(super) struct Account {
    initiator: Arc<Tally>,
    target: Arc<Tally>,
}

impl Account {
    fn add(&self, bytes: usize) {
        self.initiator.add(bytes);
        self.target.add(bytes);
    }

    /// Bytes of an orphan have come back, whose connection is gone.
    pub(super) fn sub(&self, bytes: usize) {
        self.initiator.sub(bytes);
        self.target.sub(bytes);
    }
}

/// The accounts of one core.
#[derive(Default)]
pub(super) struct Shares {
    initiators: Tallies,
    targets: Tallies,
}

impl Shares {
    /// The account of a session's connections. An initiator is the CHAP user that it has proved to be. Without CHAP any
    /// name can be given, so it is the name and the address: no host uses up the share of another one.
    pub(super) fn account(&mut self, session: &SessionInfo, peer: SocketAddr) -> Account {
        let target = session.target.as_ref().map_or("", |target| &target.name);
        let initiator = match &session.chap_user {
            Some(user) => format!("user {user}"),
            None => format!("{} {}", peer.ip(), session.initiator_name.to_ascii_lowercase()),
        };
        Account { initiator: self.initiators.of(initiator), target: self.targets.of(target.to_ascii_lowercase()) }
    }
}

#[derive(Default)]
struct Tallies {
    by_name: HashMap<String, Weak<Tally>>,
    tidy_at: usize,
}

impl Tallies {
    fn of(&mut self, name: String) -> Arc<Tally> {
        if self.by_name.len() >= self.tidy_at.max(MIN_TIDY) {
            self.by_name.retain(|_, tally| tally.strong_count() > 0);
            self.tidy_at = 2 * self.by_name.len();
        }
        let entry = self.by_name.entry(name).or_default();
        entry.upgrade().unwrap_or_else(|| {
            let tally = Arc::default();
            *entry = Arc::downgrade(&tally);
            tally
        })
    }
}

/// What one connection holds.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// By its tasks, with those of its orphans.
    tasks: usize,
    /// Of that, by tasks that were aborted while their stores work. They keep it when the connection goes.
    orphans: usize,
    /// By its answers.
    answers: usize,
    account: Option<Account>,
}

impl Holdings {
    /// From now on they count for a session's initiator and target.
    pub(super) fn belong_to(&mut self, account: Account) {
        account.add(self.bytes());
        if let Some(before) = self.account.replace(account) {
            before.sub(self.bytes());
        }
    }

    pub(super) fn account(&self) -> Option<&Account> {
        self.account.as_ref()
    }

    /// Tells initiators apart at the file threads.
    pub(super) fn flow(&self) -> Flow {
        // Its address names the tally of an initiator for as long as one of its connections lives.
        self.account.as_ref().map_or_else(Flow::default, |account| Flow(Arc::as_ptr(&account.initiator).addr() as u64))
    }

    /// Bytes of buffers that the connection keeps from others.
    pub(super) fn bytes(&self) -> usize {
        self.tasks + self.answers
    }

    /// A task was given a buffer.
    pub(super) fn add_task(&mut self, bytes: usize) {
        self.tasks += bytes;
        if let Some(account) = &self.account {
            account.add(bytes);
        }
    }

    /// A task that has all its bytes here has ended.
    pub(super) fn sub_task(&mut self, bytes: usize) {
        self.tasks -= bytes;
        if let Some(account) = &self.account {
            account.sub(bytes);
        }
    }

    /// A task was aborted, and its store still has its bytes.
    pub(super) fn orphan(&mut self, bytes: usize) {
        self.orphans += bytes;
    }

    /// The store has given them back.
    pub(super) fn sub_orphan(&mut self, bytes: usize) {
        self.orphans -= bytes;
        self.sub_task(bytes);
    }

    /// So much do its answers hold now.
    pub(super) fn set_answers(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.answers, bytes);
        if let Some(account) = self.account.as_ref().filter(|_| before != bytes) {
            account.add(bytes);
            account.sub(before);
        }
    }

    fn of_initiator(&self) -> usize {
        self.account.as_ref().map_or(0, |account| account.initiator.get())
    }

    fn of_target(&self) -> usize {
        self.account.as_ref().map_or(0, |account| account.target.get())
    }

    /// Whether a task of the connection may have its first buffer now.
    ///
    /// A part of the pool stays for tasks that have one and need another to come to their end; else tasks that all wait for a
    /// second one would wait for each other.
    pub(super) fn may_begin(&self, pool: &Pool, len: usize) -> bool {
        let len = pooled_len(len);
        let budget = pool.budget_bytes();
        let free = (budget - budget / SECOND_BUFFER_RESERVE).saturating_sub(pool.used_bytes());
        let holds_little = self.bytes() == 0 && self.of_initiator() < budget / SHORT_BUFFER_SHARE;
        if len <= SHORT_BUFFER_LEN && holds_little {
            return len <= free;
        }
        let free = free.saturating_sub(budget / SHORT_BUFFER_RESERVE);
        let target_factor = if self.of_initiator() == 0 { TARGET_FIRST_BUFFER_FACTOR } else { TARGET_BUFFER_FACTOR };
        len <= free
            && self.is_within_share(pool)
            && self.bytes() <= free
            && self.of_initiator() <= free
            && self.of_target() <= target_factor * free
    }

    /// Whether the connection's own share lets a task of it have its first buffer. How long that is does not matter, or short
    /// commands would go before a long one for ever.
    pub(super) fn is_within_share(&self, pool: &Pool) -> bool {
        self.bytes() < pool.budget_bytes() / CONNECTION_BUFFER_SHARE
    }
}

impl Drop for Holdings {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.sub(self.bytes() - self.orphans);
        }
    }
}

/// What a buffer takes from the pool, which gives out pages by powers of two.
pub(super) fn pooled_len(len: usize) -> usize {
    len.max(PAGE_LEN).next_power_of_two()
}
