//! Claims on ranges of quanta.
//!
//! Writes share a range, because overlapping writes may run in any order. Whatever reads and then writes, or decides
//! on what it has read (rewriting with a newer key, reading a second time), has its range to itself. Reads claim
//! nothing.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of a claim.
pub(crate) type ClaimId = u64;

/// The claims of one volume. `J` is what goes on when a claim that had to wait is granted.
pub(crate) struct RangeClaims<J>(Mutex<Claims<J>>);

struct Claims<J> {
    last: ClaimId,
    granted: Vec<Claim>,
    /// In the order of coming; none is overtaken by one that conflicts with it.
    waiting: VecDeque<(Claim, J)>,
    /// How many of both are for themselves. Without any, nothing conflicts.
    alone: usize,
}

struct Claim {
    id: ClaimId,
    range: Range<u64>,
    alone: bool,
}

impl Claim {
    fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.range.start < other.range.end && other.range.start < self.range.end;
        overlap && (self.alone || other.alone)
    }
}

impl<J> RangeClaims<J> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Claims { last: 0, granted: Vec::new(), waiting: VecDeque::new(), alone: 0 }))
    }

    /// Claims a range, for itself or with others. When it has to wait, `later` gives what [`release`](Self::release)
    /// returns when the claim is granted, and this returns `None`.
    pub(crate) fn claim(&self, range: Range<u64>, alone: bool, later: impl FnOnce(ClaimId) -> J) -> Option<ClaimId> {
        let mut claims = self.lock();
        claims.last += 1;
        let claim = Claim { id: claims.last, range, alone };
        let id = claim.id;
        claims.alone += usize::from(alone);
        let waits = claims.alone > 0
            && (claims.granted.iter().any(|other| claim.conflicts(other))
                || claims.waiting.iter().any(|(other, _)| claim.conflicts(other)));
        if waits {
            claims.waiting.push_back((claim, later(id)));
            return None;
        }
        claims.granted.push(claim);
        Some(id)
    }

    /// Gives up a claim. What those were waiting for that are granted by that comes to `go_on`.
    pub(crate) fn release(&self, id: ClaimId, mut go_on: impl FnMut(J)) {
        let mut granted = Vec::new();
        {
            let mut claims = self.lock();
            if let Some(at) = claims.granted.iter().position(|claim| claim.id == id) {
                let claim = claims.granted.swap_remove(at);
                claims.alone -= usize::from(claim.alone);
            }
            if claims.waiting.is_empty() {
                return;
            }
            for (claim, job) in std::mem::take(&mut claims.waiting) {
                let waits = claims.granted.iter().any(|other| claim.conflicts(other))
                    || claims.waiting.iter().any(|(other, _)| claim.conflicts(other));
                if waits {
                    claims.waiting.push_back((claim, job));
                } else {
                    claims.granted.push(claim);
                    granted.push(job);
                }
            }
        }
        granted.into_iter().for_each(&mut go_on);
    }

    fn lock(&self) -> MutexGuard<'_, Claims<J>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_share_and_whoever_wants_a_range_alone_waits_and_is_not_overtaken() {
        let claims = RangeClaims::new();
        let claim = |range, alone, name: &'static str| claims.claim(range, alone, |id| (name, id));
        let first = claim(0..10, false, "first").unwrap();
        let second = claim(5..15, false, "second").unwrap();
        assert_eq!(claim(8..9, true, "alone"), None);
        assert_eq!(claim(8..20, false, "behind"), None, "it would overtake");
        assert!(claim(15..20, false, "beside").is_some());
        let mut went_on = Vec::new();
        claims.release(first, |job| went_on.push(job));
        assert!(went_on.is_empty());
        claims.release(second, |job| went_on.push(job));
        let [("alone", alone)] = went_on[..] else { panic!("{went_on:?}") };
        went_on.clear();
        claims.release(alone, |job| went_on.push(job));
        let [("behind", behind)] = went_on[..] else { panic!("{went_on:?}") };
        claims.release(behind, |_| unreachable!("no one waits"));
        assert!(claim(0..15, true, "all").is_some());
    }
}
