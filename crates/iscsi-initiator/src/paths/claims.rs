//! The order of writes over several paths.
//!
//! A write *claims* its blocks from before it is sent until it can no longer run: until it has ended, and no copy of it
//! is under way over a path that was lost. A write whose blocks are claimed waits, in the order of submission. So
//! blocks are never overwritten by an older write, however often that was sent.
//!
//! The blocks are cut into segments wherever a write begins or ends, and the writes of a segment stand in its line. A
//! write has its claim when it is the first in all of its lines. So a write costs as much as it has segments, however
//! many others wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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

/// The place of a write among all requests, in the order of submission.
type Order = u64;

struct Write {
    key: Key,
    blocks: Range<u64>,
    /// The number of its segments in whose line others are before it.
    behind: usize,
    /// Whether its request has not ended.
    is_running: bool,
    /// The lost paths over which copies of it may be under way.
    strays: PathSet,
}

struct Segment {
    end: u64,
    /// The first write in the line of its blocks.
    first: Order,
    /// The orders behind it.
    others: VecDeque<Order>,
}

#[derive(Default)]
pub(super) struct Claims {
    /// By the first block. They do not overlap.
    segments: BTreeMap<u64, Segment>,
    writes: BTreeMap<Order, Write>,
    /// Writes that have waited and have their claim now.
    free: VecDeque<Order>,
    /// Writes without a claim.
    waiting: usize,
    /// Requests that have ended, of which copies may be under way.
    ended: BTreeSet<Order>,
}

impl Claims {
    /// Claims blocks for a request, which is younger than all before it. False when it has to wait;
    /// [`next_free`](Self::next_free) then tells its turn.
    pub(super) fn claim(&mut self, order: Order, key: Key, blocks: &Range<u64>) -> bool {
        if blocks.is_empty() {
            return true;
        }
        let behind = self.stand_in_line(order, blocks);
        let write = Write { key, blocks: blocks.clone(), behind, is_running: true, strays: PathSet::default() };
        self.writes.insert(order, write);
        self.waiting += usize::from(behind > 0);
        behind == 0
    }

    /// Puts a write last in the lines of its blocks. Gives the number of lines in which it is not the first.
    fn stand_in_line(&mut self, order: Order, blocks: &Range<u64>) -> usize {
        self.cut(blocks.start);
        self.cut(blocks.end);
        let (mut behind, mut at, mut gaps) = (0, blocks.start, Vec::new());
        for (start, segment) in self.segments.range_mut(blocks.clone()) {
            if at < *start {
                gaps.push(at..*start);
            }
            at = segment.end;
            segment.others.push_back(order);
            behind += 1;
        }
        let last = Some(at..blocks.end).filter(|last| !last.is_empty());
        for gap in gaps.into_iter().chain(last) {
            self.segments.insert(gap.start, Segment { end: gap.end, first: order, others: VecDeque::new() });
        }
        behind
    }

    /// Makes a segment begin at a block, if one goes over it.
    fn cut(&mut self, block: u64) {
        let Some((start, segment)) = self.segments.range_mut(..block).next_back() else { return };
        if *start == block || segment.end <= block {
            return;
        }
        let rest = Segment { end: segment.end, first: segment.first, others: segment.others.clone() };
        segment.end = block;
        for order in &rest.others {
            if let Some(write) = self.writes.get_mut(order) {
                write.behind += 1;
            }
        }
        self.segments.insert(block, rest);
    }

    /// A request has ended: it gives its claim up, unless strays keep it, or leaves the lines in which it waits.
    pub(super) fn end(&mut self, order: Order) {
        let Some(write) = self.writes.get_mut(&order) else { return };
        write.is_running = false;
        if write.strays.is_empty() {
            self.leave(order);
        } else {
            self.ended.insert(order);
        }
    }

    /// A copy of a write may be under way over `path`, which was lost.
    pub(super) fn strayed(&mut self, order: Order, path: usize) {
        if let Some(write) = self.writes.get_mut(&order) {
            write.strays.insert(path);
        }
    }

    /// Nothing that was sent over `path` before it was lost can run any more.
    pub(super) fn cleared(&mut self, path: usize) {
        let mut over = Vec::new();
        for (order, write) in &mut self.writes {
            write.strays.remove(path);
            if !write.is_running && write.strays.is_empty() {
                over.push(*order);
            }
        }
        for order in over {
            self.leave(order);
        }
    }

    /// Takes a write out of its lines. Those that are first in all of theirs now have their claims.
    fn leave(&mut self, order: Order) {
        self.ended.remove(&order);
        let Some(Write { blocks, behind, .. }) = self.writes.remove(&order) else { return };
        self.waiting -= usize::from(behind > 0);
        let mut empty = Vec::new();
        for (start, Segment { first, others, .. }) in self.segments.range_mut(blocks) {
            if *first != order {
                if let Ok(at) = others.binary_search(&order) {
                    others.remove(at);
                }
                continue;
            }
            let Some(next) = others.pop_front() else {
                empty.push(*start);
                continue;
            };
            *first = next;
            let Some(write) = self.writes.get_mut(&next) else { continue };
            write.behind -= 1;
            if write.behind == 0 {
                self.waiting -= 1;
                self.free.push_back(next);
            }
        }
        for start in empty {
            self.segments.remove(&start);
        }
    }

    /// The next write whose turn it is. It has its claim.
    pub(super) fn next_free(&mut self) -> Option<Key> {
        // Those that have given up since are gone.
        std::iter::from_fn(|| self.free.pop_front()).find_map(|order| self.writes.get(&order).map(|write| write.key))
    }

    /// Whether any request waits for its blocks.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Whether a request waits for blocks because copies of a write may be under way over `path`.
    pub(super) fn is_held_up_by(&self, path: usize) -> bool {
        let ended = self.ended.iter().filter_map(|order| self.writes.get(order));
        ended
            .filter(|write| write.strays.contains(path))
            .any(|write| self.segments.range(write.blocks.clone()).any(|(_, segment)| !segment.others.is_empty()))
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
        assert!(claims.claim(0, keys[0], &(0..8)));
        assert!(!claims.claim(1, keys[1], &(4..12)));
        assert!(claims.claim(2, keys[2], &(12..16)), "adjacent blocks are others");
        assert!(!claims.claim(3, keys[3], &(8..10)), "it would overtake the one that waits");
        assert_eq!(claims.next_free(), None);
        claims.end(0);
        assert_eq!(claims.next_free(), Some(keys[1]));
        assert_eq!(claims.next_free(), None);
        claims.end(1);
        assert_eq!(claims.next_free(), Some(keys[3]));
    }

    #[test]
    fn a_copy_that_may_be_under_way_keeps_the_claim_of_a_write_that_has_ended() {
        let (mut claims, keys) = (Claims::default(), keys(2));
        assert!(claims.claim(0, keys[0], &(0..8)));
        claims.strayed(0, 1);
        claims.end(0);
        assert!(!claims.is_held_up_by(1));
        assert!(!claims.claim(1, keys[1], &(7..9)));
        assert!(claims.is_held_up_by(1) && !claims.is_held_up_by(0));
        claims.cleared(0);
        assert_eq!(claims.next_free(), None);
        claims.cleared(1);
        assert_eq!(claims.next_free(), Some(keys[1]));
    }

    #[test]
    fn one_that_gives_up_waiting_lets_those_behind_it_go() {
        let (mut claims, keys) = (Claims::default(), keys(3));
        assert!(claims.claim(0, keys[0], &(0..8)));
        assert!(!claims.claim(1, keys[1], &(0..100)));
        assert!(!claims.claim(2, keys[2], &(50..60)));
        claims.end(1);
        assert_eq!(claims.next_free(), Some(keys[2]));
    }

    #[test]
    fn a_write_of_no_blocks_claims_none() {
        let (mut claims, keys) = (Claims::default(), keys(3));
        assert!(claims.claim(0, keys[0], &(0..8)));
        assert!(claims.claim(1, keys[1], &(0..0)));
        claims.end(1);
        assert!(!claims.claim(2, keys[2], &(0..8)));
    }

    /// The model of [`Claims`], block by block.
    #[derive(Default)]
    struct Model(Vec<(Order, Range<u64>, bool, PathSet)>);

    impl Model {
        fn is_free(&self, at: usize) -> bool {
            let blocks = &self.0[at].1;
            !self.0[..at].iter().any(|(_, earlier, ..)| earlier.start < blocks.end && blocks.start < earlier.end)
        }

        /// Writes that have their claims, in the order of submission.
        fn free(&self) -> BTreeSet<Order> {
            (0..self.0.len()).filter(|at| self.is_free(*at)).map(|at| self.0[at].0).collect()
        }

        fn is_held_up_by(&self, path: usize) -> bool {
            self.0.iter().enumerate().any(|(at, (_, blocks, is_running, strays))| {
                let mut later = self.0[at + 1..].iter();
                !is_running
                    && strays.contains(path)
                    && later.any(|(_, later, ..)| later.start < blocks.end && blocks.start < later.end)
            })
        }
    }

    proptest::proptest! {
        #[test]
        fn a_write_has_its_claim_when_no_earlier_one_of_its_blocks_is_left(
            events in proptest::collection::vec((0..6_u8, 0..40_usize, 0..20_u64, 1..8_u64), 0..200),
        ) {
            let (mut claims, mut model, mut slab) = (Claims::default(), Model::default(), Slab::default());
            let (mut free, mut orders) = (BTreeSet::new(), BTreeMap::new());
            for (order, (event, at, first, len)) in (0..).zip(events) {
                let running: Vec<usize> = (0..model.0.len()).filter(|at| model.0[*at].2).collect();
                let one = running.get(at % running.len().max(1)).copied();
                match (event, one) {
                    (0..=2, _) => {
                        let key = slab.insert(());
                        orders.insert(key, order);
                        model.0.push((order, first..first + len, true, PathSet::default()));
                        if claims.claim(order, key, &(first..first + len)) {
                            free.insert(order);
                        }
                    }
                    (3, Some(one)) => {
                        claims.end(model.0[one].0);
                        model.0[one].2 = false;
                    }
                    // Only what was sent can stray.
                    (4, Some(one)) if free.contains(&model.0[one].0) => {
                        claims.strayed(model.0[one].0, at % 2);
                        model.0[one].3.insert(at % 2);
                    }
                    (5, _) => {
                        claims.cleared(at % 2);
                        model.0.iter_mut().for_each(|write| write.3.remove(at % 2));
                    }
                    _ => {}
                }
                model.0.retain(|(_, _, is_running, strays)| *is_running || !strays.is_empty());
                free.extend(std::iter::from_fn(|| claims.next_free()).map(|key| orders[&key]));
                let left: BTreeSet<Order> = model.0.iter().map(|write| write.0).collect();
                free.retain(|key| left.contains(key));
                proptest::prop_assert_eq!(&free, &model.free());
                proptest::prop_assert_eq!(claims.has_waiting(), free.len() < left.len());
                for path in 0..2 {
                    proptest::prop_assert_eq!(claims.is_held_up_by(path), model.is_held_up_by(path));
                }
            }
            for (order, ..) in &model.0 {
                claims.end(*order);
            }
            claims.cleared(0);
            claims.cleared(1);
            proptest::prop_assert!(claims.segments.is_empty() && claims.writes.is_empty() && claims.waiting == 0);
        }
    }
}
