//! The gates of volumes, by which snapshots that are taken in parts hold changes back.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use lunette_pools::{Location, Name};
use lunette_store::filters::{Gated, WriteGate};

use super::super::kind::Opened;

/// The gates that are in use. A volume has one gate, whoever has it open.
static GATES: Mutex<Vec<(Location, Name, Weak<WriteGate>)>> = Mutex::new(Vec::new());

/// The gate of a volume.
pub(crate) fn gate(location: &Location, volume: &Name) -> Arc<WriteGate> {
    let mut gates = GATES.lock().unwrap_or_else(PoisonError::into_inner);
    gates.retain(|(.., gate)| gate.strong_count() > 0);
    let found = gates.iter().find(|(known, name, _)| (known, name) == (location, volume));
    if let Some(gate) = found.and_then(|(.., gate)| gate.upgrade()) {
        return gate;
    }
    let gate = Arc::default();
    gates.push((location.clone(), volume.clone(), Arc::downgrade(&gate)));
    gate
}

/// Puts a volume behind its gate, if its snapshots are taken in parts: if it is a file.
pub(super) fn behind_gate(location: &Location, volume: &Name, opened: Opened) -> Opened {
    if opened.file.is_none() {
        return opened;
    }
    let store = Arc::new(Gated::new(Arc::clone(&opened.store), gate(location, volume)));
    Opened { store, ..opened }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_one_gate_while_it_is_used() {
        let location: Location = "/gates".parse().unwrap();
        let of = |volume: &str| gate(&location, &volume.parse().unwrap());
        let (a, b) = (of("a"), of("b"));
        assert!(Arc::ptr_eq(&a, &of("a")) && !Arc::ptr_eq(&a, &b));
        let closed = a.close(512);
        drop(a);
        assert!(of("a").close(512).is_none(), "a gate is not lost while it is closed");
        drop(closed);
        assert!(of("a").close(512).is_some());
    }
}
