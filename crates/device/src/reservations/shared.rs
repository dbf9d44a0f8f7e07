//! The reservations of a logical unit behind a lock, with their copy in the state store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_gateway::{Entry, Value};
use lunette_state::{StateError, StateStore};

use super::common::{self, ChangeLog, Common, News};
use super::{Refusal, ReservationChange, ReservationRequest, ReservationRule, Reservations, saved};
use crate::nexus::ItNexus;
use crate::persist::{self, PendingSave, StateSlot};

/// Reservations behind a lock that commands take only while a reservation exists.
pub(crate) struct SharedReservations {
    /// Whether a reservation exists. Commands read nothing else while none does.
    restricts: AtomicBool,
    state: Mutex<State>,
    slot: Option<Arc<StateSlot>>,
    /// Whether several servers have them in common.
    is_common: bool,
}

struct State {
    reservations: Reservations,
    published: Published,
    /// Whether the state store may hold a value of this unit. It stays set, because the save that removes the value may
    /// fail.
    stored: bool,
}

/// The last value that the gateway of the unit has published.
#[derive(Default)]
struct Published {
    /// The version of the value; 0 before the first one.
    version: u64,
    entry: Option<Arc<[u8]>>,
    log: ChangeLog,
}

/// The decision on a request to a unit that several servers offer, valid while the value has the version that this
/// server knows.
pub(crate) struct Decision {
    /// The version.
    pub(crate) base: u64,
    pub(crate) change: ReservationChange,
    /// The entry with the change; `None` when nothing changes.
    pub(crate) entry: Option<Entry>,
}

impl SharedReservations {
    /// Loads the reservations of the unit with this serial number from `store`; none without a store. With `is_common`,
    /// they are those that a gateway publishes.
    pub(crate) fn open(store: Option<&Arc<dyn StateStore>>, serial: &str, is_common: bool) -> Result<Self, StateError> {
        let (slot, stored) = persist::open(store, format!("reservations/{serial}"), saved::decode)?;
        let is_stored = stored.is_some();
        let reservations = stored.unwrap_or_default();
        Ok(Self {
            restricts: AtomicBool::new(reservations.restricts()),
            state: Mutex::new(State { reservations, published: Published::default(), stored: is_stored }),
            slot,
            is_common,
        })
    }

    /// Whether APTPL is supported (`PTPL_C`).
    pub(crate) fn can_persist(&self) -> bool {
        self.slot.is_some() || self.is_common
    }

    /// Whether a command of `nexus` may run.
    pub(crate) fn permits(&self, nexus: &ItNexus, rule: ReservationRule) -> bool {
        !self.restricts.load(Ordering::Acquire) || self.state().reservations.permits(nexus, rule)
    }

    /// Executes a request of `nexus`. The change takes effect at once; the command may be acknowledged when the
    /// [`PendingSave`] is done.
    pub(crate) fn execute(
        &self,
        nexus: &Arc<ItNexus>,
        request: &ReservationRequest,
    ) -> Result<(ReservationChange, Option<PendingSave>), Refusal> {
        let mut state = self.state();
        let mut change = state.reservations.select(nexus, request)?;
        state.reservations.apply(&mut change);
        self.restricts.store(state.reservations.restricts(), Ordering::Release);
        Ok((change, self.save(&mut state)))
    }

    /// Decides on a request of `nexus` to a unit that several servers offer. Nothing changes before the gateway has
    /// published it. With `aborts`, the tasks of preempted nexuses end.
    pub(crate) fn decide(
        &self,
        nexus: &Arc<ItNexus>,
        request: &ReservationRequest,
        aborts: bool,
    ) -> Result<Decision, Refusal> {
        let state = self.state();
        let change = state.reservations.select(nexus, request)?;
        let Published { version: base, log, .. } = &state.published;
        let is_change = change.next != state.reservations;
        let entry = is_change.then(|| log.after(*base, nexus, &change, aborts).encode());
        Ok(Decision { base: *base, change, entry })
    }

    /// Takes over what a gateway has published. `None`, and nothing changes, for an entry that this version of Lunette
    /// does not know.
    pub(crate) fn publish(&self, value: &Value) -> Option<News> {
        let mut state = self.state();
        let (version, entry) = (value.version, value.entries.get(common::NAME).map(|entry| &entry.bytes));
        let State { reservations, published, .. } = &mut *state;
        let seen = std::mem::replace(&mut published.version, version);
        if seen != 0 && published.entry.as_ref() == entry {
            return Some(News::default());
        }
        let Some(common) = entry.map_or_else(|| Some(Common::forgotten_until(version)), |bytes| Common::decode(bytes))
        else {
            published.version = seen;
            return None;
        };
        // What was before the first value, no nexus has seen.
        let news = if seen == 0 { News::default() } else { common.news_since(seen, reservations) };
        *reservations = common.reservations;
        (published.entry, published.log) = (entry.cloned(), common.log);
        self.restricts.store(state.reservations.restricts(), Ordering::Release);
        Some(news)
    }

    /// Reads the reservations.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Reservations) -> T) -> T {
        look(&self.state().reservations)
    }

    /// A reset of the logical unit.
    pub(crate) fn reset(&self) {
        self.change(Reservations::reset);
    }

    /// Ends what does not survive the loss of the nexus, which has no connection left.
    pub(crate) fn nexus_lost(&self, nexus: &ItNexus) {
        self.change(|reservations| reservations.nexus_lost(nexus));
    }

    fn change(&self, change: impl FnOnce(&mut Reservations)) {
        let mut state = self.state();
        change(&mut state.reservations);
        self.restricts.store(state.reservations.restricts(), Ordering::Release);
    }

    /// The change to save: every change once the state store holds a value, until the value is removed.
    fn save(&self, state: &mut State) -> Option<PendingSave> {
        let slot = self.slot.as_ref()?;
        let bytes = saved::encode(&state.reservations);
        state.stored |= bytes.is_some();
        if !state.stored {
            return None;
        }
        Some(slot.update(bytes))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nexus::TargetPort;

    #[derive(Default)]
    struct RecordedState(Mutex<Vec<Option<Vec<u8>>>>);

    impl StateStore for RecordedState {
        fn load(&self, _: &str) -> Result<Option<Vec<u8>>, StateError> {
            Ok(self.0.lock().unwrap().last().cloned().flatten())
        }

        fn save(&self, _: &str, value: Option<&[u8]>) -> Result<(), StateError> {
            self.0.lock().unwrap().push(value.map(<[u8]>::to_vec));
            Ok(())
        }
    }

    fn open(stored: &Arc<RecordedState>) -> Result<SharedReservations, StateError> {
        SharedReservations::open(Some(&(Arc::clone(stored) as Arc<dyn StateStore>)), "s", false)
    }

    fn register(new_key: u64, persist: bool) -> ReservationRequest {
        ReservationRequest::Register { key: None, new_key, same: Vec::new(), others: Vec::new(), persist }
    }

    fn nexus() -> Arc<ItNexus> {
        let port = TargetPort { relative: 1, name: "iqn.t,t,0x0001".into() };
        Arc::new(ItNexus { initiator: "iqn.a,i,0x1".into(), port })
    }

    #[test]
    fn saves_out_of_order_leave_the_newest_version() {
        let stored = Arc::new(RecordedState::default());
        let shared = open(&stored).unwrap();
        let first = shared.execute(&nexus(), &register(1, true)).unwrap().1.unwrap();
        let second = shared.execute(&nexus(), &register(2, true)).unwrap().1.unwrap();
        second.run().unwrap();
        first.run().unwrap();
        assert_eq!(stored.0.lock().unwrap().len(), 1);
        let again = open(&stored).unwrap();
        assert_eq!(again.read(|all| all.registrations().map(|(_, key, _)| key).collect::<Vec<_>>()), [2]);
    }

    #[test]
    fn only_persistent_registrations_are_saved_and_later_removed() {
        let stored = Arc::new(RecordedState::default());
        let shared = open(&stored).unwrap();
        assert!(shared.execute(&nexus(), &register(1, false)).unwrap().1.is_none());
        shared.execute(&nexus(), &register(1, true)).unwrap().1.unwrap().run().unwrap();
        shared.execute(&nexus(), &register(1, false)).unwrap().1.unwrap().run().unwrap();
        assert_eq!(*stored.0.lock().unwrap().last().unwrap(), None);
    }

    #[test]
    fn without_a_store_nothing_is_saved() {
        let shared = SharedReservations::open(None, "s", false).unwrap();
        assert!(!shared.can_persist());
        assert!(shared.execute(&nexus(), &register(1, true)).unwrap().1.is_none());
    }

    #[test]
    fn a_value_of_an_unknown_format_is_an_error() {
        let stored = Arc::new(RecordedState(Mutex::new(vec![Some(vec![9])])));
        assert!(open(&stored).is_err());
    }
}
