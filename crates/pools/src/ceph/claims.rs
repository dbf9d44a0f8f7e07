//! One change of a volume at a time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::PoolError;
use crate::name::Name;

/// The volumes that changes hold.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<BTreeMap<Name, Hold>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Alone,
    /// Held by as many changes that do not disturb each other.
    Shared(usize),
}

/// Volumes that a change holds until it is dropped.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    names: Vec<Name>,
}

impl Claims {
    /// Holds these volumes for one change alone.
    pub(super) fn alone<'a>(&self, names: impl IntoIterator<Item = &'a Name>) -> Result<Claim<'_>, PoolError> {
        let mut claim = Claim { claims: self, names: Vec::new() };
        for name in names {
            match self.held().entry(name.clone()) {
                Entry::Vacant(place) => _ = place.insert(Hold::Alone),
                // The claim gives back what it has.
                Entry::Occupied(_) => return Err(busy(name)),
            }
            claim.names.push(name.clone());
        }
        Ok(claim)
    }

    /// Holds a volume together with others that only read it.
    pub(super) fn shared(&self, name: &Name) -> Result<Claim<'_>, PoolError> {
        match self.held().entry(name.clone()).or_insert(Hold::Shared(0)) {
            Hold::Shared(count) => *count += 1,
            Hold::Alone => return Err(busy(name)),
        }
        Ok(Claim { claims: self, names: vec![name.clone()] })
    }

    pub(super) fn has(&self, name: &Name) -> bool {
        self.held().contains_key(name)
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<Name, Hold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut held = self.claims.held();
        for name in self.names.drain(..) {
            match held.get_mut(&name) {
                Some(Hold::Shared(count)) if *count > 1 => *count -= 1,
                _ => _ = held.remove(&name),
            }
        }
    }
}

fn busy(name: &Name) -> PoolError {
    PoolError::Busy(name.clone(), "another change of it is under way; wait for its end".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_claim_is_whole_or_none() {
        let (claims, [a, b]) = (Claims::default(), [name("a"), name("b")]);
        let first = claims.alone([&b]).unwrap();
        assert!(matches!(claims.alone([&a, &b]), Err(PoolError::Busy(busy, _)) if busy == b));
        assert!(!claims.has(&a), "nothing of it is held");
        drop(first);
        let both = claims.alone([&a, &b]).unwrap();
        assert!(claims.alone([&a]).is_err() && claims.shared(&b).is_err());
        drop(both);
        assert!(!claims.has(&a) && !claims.has(&b));
    }

    #[test]
    fn a_shared_volume_is_free_when_the_last_one_is_gone() {
        let (claims, a) = (Claims::default(), name("a"));
        let (first, second) = (claims.shared(&a).unwrap(), claims.shared(&a).unwrap());
        drop(first);
        assert!(claims.alone([&a]).is_err());
        drop(second);
        claims.alone([&a]).unwrap();
    }
}
