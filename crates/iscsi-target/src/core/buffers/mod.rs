//! The buffers of one core.

mod account;

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use lunette_buffer::{Buffer, Pool, Trimmer};
use lunette_reactor::Key;

use crate::limits::{BUFFER_RETRY, MAX_FED_TASKS, MIN_LENDABLE_LEN};
use account::Accounts;
pub(super) use account::{Account, Owner, Reservation, Share};

/// The pool of a core, what connections hold of it, and the tasks that wait for more. The task runner takes buffers
/// here; the core gives those that come back to the tasks that wait.
pub(super) struct BufferQueue {
    pool: Pool,
    trimmer: Trimmer,
    accounts: Accounts,
    /// For work that belongs to no connection. It never holds anything.
    no_account: Account,
    /// The most urgent first, equals in the order in which they came.
    waiting: VecDeque<Waiter>,
    waits: u64,
}

/// A task that waits for a buffer.
pub(super) struct Waiter {
    pub(super) task: Key,
    rank: u8,
}

impl BufferQueue {
    pub(super) fn new(pool: Pool) -> Self {
        let trimmer = Trimmer::new(pool.clone());
        Self {
            pool,
            trimmer,
            accounts: Accounts::default(),
            no_account: Account::default(),
            waiting: VecDeque::new(),
            waits: 0,
        }
    }

    /// Opens an account for a connection.
    pub(super) fn open_account(&mut self, owner: Owner<'_>) -> Rc<Account> {
        self.accounts.open(owner)
    }

    // Buffers.

    /// A buffer for a task, if its connection may have it.
    pub(super) fn take(&self, reservation: &mut Reservation, len: usize) -> Option<Buffer> {
        self.give(reservation, len, Pool::take)
    }

    /// A buffer in which short answers are written, unless tasks wait for theirs. It counts when the first answer is in
    /// it.
    pub(super) fn take_for_answers(&self, account: &Account, len: usize) -> Option<Buffer> {
        if !self.waiting.is_empty() || !account.may_begin(&self.pool, len) { None } else { self.pool.take(len) }
    }

    /// Takes a buffer for data from a store, which may lend it: a long one gets its memory at the first access.
    pub(super) fn take_lendable(&self, reservation: &mut Reservation, len: usize) -> Option<Buffer> {
        self.give(reservation, len, if len >= MIN_LENDABLE_LEN { Pool::reserve } else { Pool::take })
    }

    fn give(
        &self,
        reservation: &mut Reservation,
        len: usize,
        from: impl FnOnce(&Pool, usize) -> Option<Buffer>,
    ) -> Option<Buffer> {
        if reservation.is_empty() && !reservation.account().may_begin(&self.pool, len) {
            return None;
        }
        let buffer = from(&self.pool, len)?;
        reservation.add_buffer(len);
        Some(buffer)
    }

    /// A buffer for work that belongs to no connection. When there is none, the next one that comes back wakes the
    /// core.
    pub(super) fn take_for_background(&self, len: usize) -> Option<Buffer> {
        // Before it tries: what comes back after that brings another batch.
        self.pool.await_return();
        if self.no_account.may_begin(&self.pool, len) { self.pool.take(len) } else { None }
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.pool.used_bytes()
    }

    pub(super) fn budget_bytes(&self) -> usize {
        self.pool.budget_bytes()
    }

    /// Whether the pool, and not the share of its connection, keeps a task from having a buffer of `len` bytes.
    pub(super) fn is_short_for(&self, account: &Account, len: usize) -> bool {
        !self.no_account.may_begin(&self.pool, len) || account.is_within_share(&self.pool)
    }

    /// The buffers that a connection holds, and the most that it may hold.
    pub(super) fn share_of(&self, account: &Account) -> Share {
        account.share(&self.pool)
    }

    // Tasks that wait.

    /// Lets a task wait for a buffer: before those that are less urgent (SAM-5 8.7), behind its equals. A `priority` is
    /// from 1, the most urgent, to 15; tasks with 0 have none and come last.
    pub(super) fn wait(&mut self, task: Key, priority: u8) {
        let rank = priority.wrapping_sub(1);
        self.waits += 1;
        let behind = self.waiting.len() - self.waiting.iter().rev().take_while(|other| other.rank > rank).count();
        self.waiting.insert(behind, Waiter { task, rank });
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The tasks of one round, which may have ended since.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Key> {
        self.waiting.iter().take(MAX_FED_TASKS).map(|waiter| waiter.task)
    }

    /// Begins a round in which tasks that wait try to get their buffers. Gives how many may try: some of them when they
    /// are many.
    pub(super) fn begin_round(&self) -> usize {
        if self.waiting.is_empty() {
            return 0;
        }
        // Before they try: what comes back after that, in this batch or later, brings another.
        self.pool.await_return();
        self.waiting.len().min(MAX_FED_TASKS)
    }

    /// The next one to try.
    pub(super) fn next_waiter(&mut self) -> Option<Waiter> {
        self.waiting.pop_front()
    }

    /// Lets a task that got nothing go on waiting. It keeps no other one from being served, for it may be its own
    /// connection that holds too much.
    pub(super) fn wait_again(&mut self, waiter: Waiter) {
        self.waiting.push_back(waiter);
    }

    /// How often tasks had to wait.
    pub(super) fn waits(&self) -> u64 {
        self.waits
    }

    // Time.

    /// When idle memory is freed, or tasks that wait try again.
    pub(super) fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        let retry = self.has_waiting().then(|| now + BUFFER_RETRY);
        self.trimmer.next_timeout(now).into_iter().chain(retry).min()
    }

    pub(super) fn time_has_come(&mut self, now: Instant) {
        self.trimmer.time_has_come(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_waits_is_due_again_though_no_buffer_returns() {
        let (mut queue, now) = (BufferQueue::new(Pool::new(1 << 20)), Instant::now());
        assert_eq!(queue.next_timeout(now), None);
        queue.wait(Key::from_u64(0), 0);
        assert_eq!(queue.next_timeout(now), Some(now + BUFFER_RETRY));
    }
}
