//! How many connections there are, on all cores and between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::MAX_CONNECTIONS;

/// The places of all connections that are served.
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<AtomicUsize>);

/// The place of one, which it takes along to another core.
pub(super) struct Place(Places);

impl Places {
    /// A place for one more, if there is one.
    pub(super) fn take(&self) -> Option<Place> {
        let place = Place(self.clone());
        (self.0.fetch_add(1, Ordering::AcqRel) < MAX_CONNECTIONS).then_some(place)
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_places_and_no_more() {
        let places = Places::default();
        let mut all: Vec<_> = (0..MAX_CONNECTIONS).map(|_| places.take().unwrap()).collect();
        assert!(places.take().is_none());
        all.pop();
        assert!(places.take().is_some());
        drop(all);
        assert_eq!(places.taken(), 0);
    }
}
