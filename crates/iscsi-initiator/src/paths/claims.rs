//! The order of writes over several paths.
//!
//! A write *claims* its blocks from before it is sent until it can no longer run: until it has ended, and no copy of it is under way
//! over a path that was lost. A write whose blocks are claimed waits, in the order of submission. So blocks are never overwritten by
//! an older write, however often that was sent.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use lunette_reactor::Key;

use crate::limits::MAX_PATHS;

/// A set of paths, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PathSet(u32);

const _: () = assert!(MAX_PATHS <= u32::BITS as usize, "each path has a bit");

impl PathSet {
    pub(super) fn contains(self, path: usize) -> bool {
        self.0 & 1 << path != 0
    }

    fn insert(&mut self, path: usize) {
        self.0 |= 1 << path;
    }

    fn remove(&mut self, path: usize) {
        self.0 &= !(1 << path);
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Blocks of a write that may still run.
struct Claim {
    end: u64,
    /// Whether the request has not ended.
    is_running: bool,
    /// The lost paths over which copies of it may be under way.
    strays: PathSet,
}

impl Claim {
    fn is_over(&self) -> bool {
        !self.is_running && self.strays.is_empty()
    }
}

#[derive(Default)]
pub(super) struct Claims {
    /// By the first block. No two of them overlap.
    held: BTreeMap<u64, Claim>,
    /// Writes whose blocks are claimed, in the order of submission.
    waiting: VecDeque<(Range<u64>, Key)>,
    /// Whether a claim has ended since waiting writes were looked at.
    changed: bool,
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Claims {
    /// Claims blocks for a request. False when it has to wait; [`next_free`](Self::next_free) then tells its turn.
    pub(super) fn claim(&mut self, key: Key, blocks: &Range<u64>) -> bool {
        let is_free = !self.is_claimed(blocks) && !self.waiting.iter().any(|(earlier, _)| overlap(earlier, blocks));
        if is_free {
            self.hold(blocks);
        } else {
            self.waiting.push_back((blocks.clone(), key));
        }
        is_free
    }

    fn is_claimed(&self, blocks: &Range<u64>) -> bool {
        // Claims do not overlap, so of those that begin before `blocks` end the last one reaches furthest.
        !blocks.is_empty()
            && self.held.range(..blocks.end).next_back().is_some_and(|(_, claim)| claim.end > blocks.start)
    }

    fn hold(&mut self, blocks: &Range<u64>) {
        if !blocks.is_empty() {
            let claim = Claim { end: blocks.end, is_running: true, strays: PathSet::default() };
            self.held.insert(blocks.start, claim);
        }
    }

    /// A request has ended: it gives its claim up, unless strays keep it, or leaves those that wait.
    pub(super) fn end(&mut self, key: Key, blocks: &Range<u64>, is_waiting: bool) {
        if is_waiting {
            self.waiting.retain(|(_, waiting)| *waiting != key);
            self.changed = true;
        } else if let Some(claim) = self.held.get_mut(&blocks.start).filter(|_| !blocks.is_empty()) {
            claim.is_running = false;
            self.drop_if_over(blocks.start);
        }
    }

    /// A copy of a write may be under way over `path`, which was lost.
    pub(super) fn strayed(&mut self, blocks: &Range<u64>, path: usize) {
        if let Some(claim) = self.held.get_mut(&blocks.start).filter(|_| !blocks.is_empty()) {
            claim.strays.insert(path);
        }
    }

    /// Nothing that was sent over `path` before it was lost can run any more.
    pub(super) fn cleared(&mut self, path: usize) {
        self.held.retain(|_, claim| {
            claim.strays.remove(path);
            !claim.is_over()
        });
        self.changed = true;
    }

    fn drop_if_over(&mut self, first: u64) {
        if self.held.get(&first).is_some_and(Claim::is_over) {
            self.held.remove(&first);
            self.changed = true;
        }
    }

    /// The next write whose turn it is. It has its claim.
    pub(super) fn next_free(&mut self) -> Option<Key> {
        if !self.changed || self.waiting.is_empty() {
            return None;
        }
        let free = (0..self.waiting.len()).find(|at| {
            let (blocks, _) = &self.waiting[*at];
            !self.is_claimed(blocks) && !self.waiting.iter().take(*at).any(|(earlier, _)| overlap(earlier, blocks))
        });
        self.changed = free.is_some();
        let (blocks, key) = self.waiting.remove(free?)?;
        self.hold(&blocks);
        Some(key)
    }

    /// Whether any request waits for its blocks.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a request waits for blocks because copies of a write may be under way over `path`.
    pub(super) fn is_held_up_by(&self, path: usize) -> bool {
        self.waiting.iter().any(|(blocks, _)| {
            self.held
                .range(..blocks.end)
                .rev()
                .take_while(|(_, claim)| claim.end > blocks.start)
                .any(|(_, claim)| !claim.is_running && claim.strays.contains(path))
        })
    }
}

#[cfg(test)]
mod tests {
    use lunette_reactor::Slab;

    use super::*;

    fn keys(count: usize) -> Vec<Key> {
        let mut slab = Slab::default();
        (0..count).map(|_| slab.insert(())).collect()
    }

    #[test]
    fn writes_of_the_same_blocks_take_turns_and_others_do_not_wait() {
        let (mut claims, keys) = (Claims::default(), keys(4));
        assert!(claims.claim(keys[0], &(0..8)));
        assert!(!claims.claim(keys[1], &(4..12)));
        assert!(claims.claim(keys[2], &(12..16)), "adjacent blocks are others");
        assert!(!claims.claim(keys[3], &(8..10)), "it would overtake the one that waits");
        assert_eq!(claims.next_free(), None);
        claims.end(keys[0], &(0..8), false);
        assert_eq!(claims.next_free(), Some(keys[1]));
        assert_eq!(claims.next_free(), None);
        claims.end(keys[1], &(4..12), false);
        assert_eq!(claims.next_free(), Some(keys[3]));
    }

    #[test]
    fn a_copy_that_may_be_under_way_keeps_the_claim_of_a_write_that_has_ended() {
        let (mut claims, keys) = (Claims::default(), keys(2));
        assert!(claims.claim(keys[0], &(0..8)));
        claims.strayed(&(0..8), 1);
        claims.end(keys[0], &(0..8), false);
        assert!(!claims.is_held_up_by(1));
        assert!(!claims.claim(keys[1], &(7..9)));
        assert!(claims.is_held_up_by(1) && !claims.is_held_up_by(0));
        claims.cleared(0);
        assert_eq!(claims.next_free(), None);
        claims.cleared(1);
        assert_eq!(claims.next_free(), Some(keys[1]));
    }

    #[test]
    fn one_that_gives_up_waiting_lets_those_behind_it_go() {
        let (mut claims, keys) = (Claims::default(), keys(3));
        assert!(claims.claim(keys[0], &(0..8)));
        assert!(!claims.claim(keys[1], &(0..100)));
        assert!(!claims.claim(keys[2], &(50..60)));
        claims.end(keys[1], &(0..100), true);
        assert_eq!(claims.next_free(), Some(keys[2]));
    }

    #[test]
    fn a_write_of_no_blocks_claims_none() {
        let (mut claims, keys) = (Claims::default(), keys(3));
        assert!(claims.claim(keys[0], &(0..8)));
        assert!(claims.claim(keys[1], &(0..0)));
        claims.end(keys[1], &(0..0), false);
        assert!(!claims.claim(keys[2], &(0..8)));
    }
}
