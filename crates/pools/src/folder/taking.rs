//! The volumes whose snapshots are being taken: each by one group at a time, and in place meanwhile.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::PoolError;
use crate::name::Name;

/// Volumes whose snapshots are being taken.
#[derive(Debug, Default)]
pub(super) struct Taking {
    volumes: Mutex<BTreeSet<Name>>,
    /// Told when volumes leave.
    changed: Condvar,
}

/// Keeps volumes in place, until it is dropped.
#[derive(Debug)]
pub(super) struct Taken<'t> {
    taking: &'t Taking,
    volumes: BTreeSet<Name>,
}

impl Taking {
    /// Adds volumes, all at once, as soon as no other group has one of them.
    pub(super) fn add(&self, volumes: BTreeSet<Name>) -> Taken<'_> {
        let are_taken = |all: &mut BTreeSet<Name>| !all.is_disjoint(&volumes);
        let free = self.changed.wait_while(self.lock(), are_taken);
        free.unwrap_or_else(PoisonError::into_inner).extend(volumes.iter().cloned());
        Taken { taking: self, volumes }
    }

    /// Refuses what would change the content of a volume past those that have it open, or its name.
    pub(super) fn check_has_not(&self, volume: &Name) -> Result<(), PoolError> {
        if self.lock().contains(volume) { Err(PoolError::BeingTaken(volume.clone())) } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Name>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.taking.lock().retain(|volume| !self.volumes.contains(volume));
        self.taking.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn a_group_waits_for_those_that_share_a_volume() {
        let names = |text: &str| text.split(' ').map(|name| name.parse().unwrap()).collect::<BTreeSet<Name>>();
        let taking = Taking::default();
        let [first, other] = ["a b", "c"].map(|text| taking.add(names(text)));
        for volume in ["a", "b", "c"] {
            assert!(matches!(taking.check_has_not(&volume.parse().unwrap()), Err(PoolError::BeingTaken(_))));
        }
        let (tell, told) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _both = taking.add(names("b c"));
                tell.send(()).unwrap();
            });
            drop(other);
            assert!(told.try_recv().is_err());
            drop(first);
            told.recv().unwrap();
        });
        assert!(taking.check_has_not(&"b".parse().unwrap()).is_ok());
    }
}
