//! The packets on their way, and the times at which they arrive.

use std::collections::VecDeque;

use super::Nanos;

/// Packets under way, in the order in which they arrive.
///
/// Packets that keep their order and packets that are held back are two queues, each sorted by itself, so that
/// both ends of the line take constant time.
pub(crate) struct DelayLine<P> {
    in_order: VecDeque<(Nanos, P)>,
    held: VecDeque<(Nanos, P)>,
}

impl<P> DelayLine<P> {
    pub(crate) fn new() -> Self {
        Self { in_order: VecDeque::new(), held: VecDeque::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.held.len()
    }

    /// Adds a packet that arrives at `due`, but not before those that were added in order before it. Returns when.
    pub(crate) fn push(&mut self, due: Nanos, packet: P) -> Nanos {
        push_sorted(&mut self.in_order, due, packet)
    }

    /// Adds a packet that later ones may pass. Held packets keep the order among themselves. Returns when it arrives.
    pub(crate) fn push_held(&mut self, due: Nanos, packet: P) -> Nanos {
        push_sorted(&mut self.held, due, packet)
    }

    /// When the next packet arrives.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        [&self.in_order, &self.held].into_iter().filter_map(|queue| queue.front().map(|(due, _)| *due)).min()
    }

    /// Takes the next packet out, if it has arrived by `now`, and the time at which it was due.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<(Nanos, P)> {
        let due = self.next_due().filter(|due| *due <= now)?;
        let is_next = |queue: &VecDeque<(Nanos, P)>| queue.front().is_some_and(|front| front.0 == due);
        let queue = if is_next(&self.in_order) { &mut self.in_order } else { &mut self.held };
        queue.pop_front()
    }
}

fn push_sorted<P>(queue: &mut VecDeque<(Nanos, P)>, due: Nanos, packet: P) -> Nanos {
    let due = queue.back().map_or(due, |(last, _)| due.max(*last));
    queue.push_back((due, packet));
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(line: &mut DelayLine<u32>, now: Nanos) -> Vec<(Nanos, u32)> {
        std::iter::from_fn(|| line.pop_due(now)).collect()
    }

    #[test]
    fn nothing_arrives_before_it_is_due() {
        let mut line = DelayLine::new();
        line.push(10, 1);
        assert_eq!(line.next_due(), Some(10));
        assert_eq!(line.pop_due(9), None);
        assert_eq!(line.pop_due(10), Some((10, 1)));
        assert_eq!((line.next_due(), line.len()), (None, 0));
    }

    #[test]
    fn a_shorter_way_does_not_pass_a_longer_one() {
        let mut line = DelayLine::new();
        line.push(10, 1);
        assert_eq!(line.push(5, 2), 10);
        assert_eq!(drain(&mut line, 10), [(10, 1), (10, 2)]);
    }

    #[test]
    fn held_packets_are_passed() {
        let mut line = DelayLine::new();
        line.push(1, 1);
        line.push_held(4, 2);
        line.push_held(3, 3);
        line.push(2, 4);
        line.push(5, 5);
        assert_eq!(line.len(), 5);
        assert_eq!(drain(&mut line, 9), [(1, 1), (2, 4), (4, 2), (4, 3), (5, 5)]);
    }
}
