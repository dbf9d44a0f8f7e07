//! A set of packet numbers, as ranges, of bounded size.

use std::collections::VecDeque;

use crate::limits::MAX_RANGES;

/// Packet numbers `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The smallest number.
    pub first: u64,
    /// The largest number, not below `first`.
    pub last: u64,
}

impl Span {
    /// One number.
    pub const fn one(number: u64) -> Self {
        Self { first: number, last: number }
    }

    /// Whether `number` belongs to it.
    pub const fn contains(self, number: u64) -> bool {
        self.first <= number && number <= self.last
    }
}

/// An ordered set of packet numbers.
///
/// It keeps the newest [`MAX_RANGES`] ranges. When there are more, it forgets the oldest one, and from then on
/// everything up to that range's end counts as contained: [`insert`](Self::insert) never reports a number as new twice.
/// Numbers end at `u64::MAX − 1`, because the header uses the last one for "nothing".
#[derive(Debug, Clone, Default)]
pub struct Ranges {
    /// In ascending order, with at least one number between two of them.
    spans: VecDeque<Span>,
    /// Numbers below it count as contained.
    floor: u64,
}

impl Ranges {
    /// Adds `span` and calls `new` with each part of it that was not contained, in ascending order.
    ///
    /// The time it takes depends on the ranges that `span` touches, and not on the numbers in it.
    pub fn insert(&mut self, span: Span, mut new: impl FnMut(Span)) {
        let Span { mut first, last } = span;
        first = first.max(self.floor);
        if first > last {
            return;
        }
        // Most numbers continue the newest range or begin one after it.
        let begin = match self.spans.back() {
            Some(newest) if first <= newest.last.saturating_add(1) => {
                if first >= newest.first {
                    self.spans.len() - 1
                } else {
                    self.spans.partition_point(|known| known.last.saturating_add(1) < first)
                }
            }
            _ => self.spans.len(),
        };
        let mut merged = Span { first, last };
        let mut end = begin;
        let mut unknown = Some(first);
        while let Some(known) = self.spans.get(end).copied().filter(|known| known.first <= last.saturating_add(1)) {
            if let Some(from) = unknown.filter(|from| *from < known.first) {
                new(Span { first: from, last: known.first - 1 });
            }
            unknown = known.last.checked_add(1).filter(|next| *next <= last);
            merged = Span { first: merged.first.min(known.first), last: merged.last.max(known.last) };
            end += 1;
        }
        if let Some(from) = unknown {
            new(Span { first: from, last });
        }
        self.replace(begin, end, merged);
    }

    /// Adds one number, and says whether it is new.
    pub fn insert_one(&mut self, number: u64) -> bool {
        let mut is_new = false;
        self.insert(Span::one(number), |_| is_new = true);
        is_new
    }

    fn replace(&mut self, begin: usize, end: usize, merged: Span) {
        if begin == end {
            self.spans.insert(begin, merged);
        } else {
            self.spans[begin] = merged;
            if end - begin > 1 {
                self.spans.drain(begin + 1..end);
            }
        }
        if self.spans.len() > MAX_RANGES
            && let Some(oldest) = self.spans.pop_front()
        {
            self.floor = oldest.last.saturating_add(1);
        }
    }

    /// Whether a number of `span` is in a range that is still remembered.
    pub fn intersects(&self, span: Span) -> bool {
        let at = self.spans.partition_point(|known| known.last < span.first);
        self.spans.get(at).is_some_and(|known| known.first <= span.last)
    }

    /// The largest number.
    pub fn largest(&self) -> Option<u64> {
        self.spans.back().map(|span| span.last)
    }

    /// The ranges that are remembered, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = Span> {
        self.spans.iter().rev().copied()
    }
}

#[cfg(test)]
mod tests;
