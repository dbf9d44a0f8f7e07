//! The volumes that stay in place while their snapshots are taken: each is in one group at a time.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::PoolError;
use crate::name::Name;

/// The volumes that stay in place.
#[derive(Debug, Default)]
pub(super) struct InPlace {
    volumes: Mutex<BTreeSet<Name>>,
    /// Told when volumes leave.
    changed: Condvar,
}

/// Keeps volumes in place, until it is dropped.
#[derive(Debug)]
pub(super) struct KeptInPlace<'t> {
    all: &'t InPlace,
    volumes: BTreeSet<Name>,
}

impl InPlace {
    /// Adds volumes, all at once, as soon as no other group has one of them.
    ///
    /// # Errors
    ///
    /// [`PoolError::BeingTaken`] when another group has one still after this time.
    pub(super) fn keep(&self, volumes: BTreeSet<Name>, most: Duration) -> Result<KeptInPlace<'_>, PoolError> {
        let are_kept = |all: &mut BTreeSet<Name>| !all.is_disjoint(&volumes);
        let waited = self.changed.wait_timeout_while(self.lock(), most, are_kept);
        let (mut all, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = all.intersection(&volumes).next() {
            return Err(PoolError::BeingTaken(kept.clone()));
        }
        all.extend(volumes.iter().cloned());
        Ok(KeptInPlace { all: self, volumes })
    }

    /// Refuses what would change the content of a volume past those that have it open, or its name.
    pub(super) fn check_has_not(&self, volume: &Name) -> Result<(), PoolError> {
        if self.lock().contains(volume) { Err(PoolError::BeingTaken(volume.clone())) } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Name>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeptInPlace<'_> {
    fn drop(&mut self) {
        self.all.lock().retain(|volume| !self.volumes.contains(volume));
        self.all.changed.notify_all();
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
        let all = InPlace::default();
        let long = Duration::from_mins(1);
        let [first, other] = ["a b", "c"].map(|text| all.keep(names(text), long).unwrap());
        assert!(
            matches!(all.keep(names("b d"), Duration::ZERO), Err(PoolError::BeingTaken(volume)) if volume.as_str() == "b")
        );
        for volume in ["a", "b", "c"] {
            assert!(matches!(all.check_has_not(&volume.parse().unwrap()), Err(PoolError::BeingTaken(_))));
        }
        let (tell, told) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _both = all.keep(names("b c"), long).unwrap();
                tell.send(()).unwrap();
            });
            drop(other);
            assert!(told.try_recv().is_err());
            drop(first);
            told.recv().unwrap();
        });
        assert!(all.check_has_not(&"b".parse().unwrap()).is_ok());
    }
}
