//! The reservations of a logical unit behind a lock, with their copy in the state store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_gateway::{Entry, Value};
use lunette_state::{StateError, StateStore};

use super::common::{self, ChangeLog, Common, News};
use super::{Refusal, ReservationChange, ReservationRequest, ReservationRule, Reservations, saved};
use crate::nexus::ItNexus;
use crate::persist::{self, StateSlot, Turn};

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
    /// Whether a change is being saved, which takes effect afterwards.
    is_changing: bool,
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
            state: Mutex::new(State {
                reservations,
                published: Published::default(),
                stored: is_stored,
                is_changing: false,
            }),
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

    /// Executes a request of `nexus`: saves the change, if it must survive a restart, and then carries it out. The call
    /// may wait for the medium.
    pub(crate) fn execute(
        &self,
        nexus: &Arc<ItNexus>,
        request: &ReservationRequest,
    ) -> Result<Result<ReservationChange, Refusal>, StateError> {
        let Some(slot) = &self.slot else { return Ok(self.execute_unsaved(nexus, request)) };
        let turn = slot.turn();
        let mut change = match self.begin(nexus, request) {
            Ok(change) => change,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let saved = self.save(&turn, &change.next);
        let mut state = self.state();
        state.is_changing = false;
        saved?;
        self.apply(&mut state, &mut change);
        Ok(Ok(change))
    }

    /// Executes a request of `nexus` without saving it, at once.
    pub(crate) fn execute_unsaved(
        &self,
        nexus: &Arc<ItNexus>,
        request: &ReservationRequest,
    ) -> Result<ReservationChange, Refusal> {
        let mut state = self.state();
        let mut change = state.reservations.select(nexus, request)?;
        // The change that is being saved was decided without a RESERVE.
        if state.is_changing && change.next.legacy != state.reservations.legacy {
            return Err(Refusal::Conflict);
        }
        self.apply(&mut state, &mut change);
        Ok(change)
    }

    /// Decides on a request, whose effect is about to be saved.
    fn begin(&self, nexus: &Arc<ItNexus>, request: &ReservationRequest) -> Result<ReservationChange, Refusal> {
        let mut state = self.state();
        let change = state.reservations.select(nexus, request)?;
        state.is_changing = true;
        Ok(change)
    }

    /// Saves what is to survive: every change once the state store holds a value, until the value is removed.
    fn save(&self, turn: &Turn<'_>, next: &Reservations) -> Result<(), StateError> {
        let bytes = saved::encode(next);
        let mut state = self.state();
        state.stored |= bytes.is_some();
        let is_stored = state.stored;
        drop(state);
        if is_stored { turn.save(bytes.as_deref()) } else { Ok(()) }
    }

    fn apply(&self, state: &mut State, change: &mut ReservationChange) {
        state.reservations.apply(change);
        self.restricts.store(state.reservations.restricts(), Ordering::Release);
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

    /// The version of the last value that a gateway has published, 0 before the first one, and its entry.
    pub(crate) fn published(&self) -> (u64, Option<Arc<[u8]>>) {
        let state = self.state();
        (state.published.version, state.published.entry.clone())
    }

    /// Takes over the reservations of a predecessor, which the state store has as far as they must survive.
    pub(crate) fn inherit(&self, reservations: Reservations) {
        self.change(|own| *own = reservations);
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

    /// Ends what does not survive the loss of its nexus, unless that `stays`.
    pub(crate) fn lose_all_but(&self, stays: impl FnOnce(&ItNexus) -> bool) {
        self.change(|reservations| {
            if let Some(holder) = reservations.legacy_holder().cloned().filter(|holder| !stays(holder)) {
                reservations.nexus_lost(&holder);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Reservations)) {
        let mut state = self.state();
        change(&mut state.reservations);
        self.restricts.store(state.reservations.restricts(), Ordering::Release);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nexus::TargetPort;

    /// The values that were saved, and what happens during the next save.
    #[derive(Default)]
    struct RecordedState {
        saved: Mutex<Vec<Option<Vec<u8>>>>,
        during: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl RecordedState {
        fn holding(value: Option<Vec<u8>>) -> Self {
            Self { saved: Mutex::new(vec![value]), during: Mutex::default() }
        }
    }

    impl StateStore for RecordedState {
        fn load(&self, _: &str) -> Result<Option<Vec<u8>>, StateError> {
            Ok(self.saved.lock().unwrap().last().cloned().flatten())
        }

        fn save(&self, _: &str, value: Option<&[u8]>) -> Result<(), StateError> {
            if let Some(during) = self.during.lock().unwrap().take() {
                during();
            }
            self.saved.lock().unwrap().push(value.map(<[u8]>::to_vec));
            Ok(())
        }
    }

    fn open(stored: &Arc<RecordedState>) -> Result<SharedReservations, StateError> {
        SharedReservations::open(Some(&(Arc::clone(stored) as Arc<dyn StateStore>)), "s", false)
    }

    fn register(shared: &SharedReservations, new_key: u64, persist: bool) {
        let request =
            ReservationRequest::Register { key: None, new_key, same: Vec::new(), others: Vec::new(), persist };
        shared.execute(&nexus("a"), &request).unwrap().unwrap();
    }

    fn nexus(initiator: &str) -> Arc<ItNexus> {
        let port = TargetPort { relative: 1, name: "iqn.t,t,0x0001".into() };
        Arc::new(ItNexus { initiator: initiator.into(), port })
    }

    fn keys(shared: &SharedReservations) -> Vec<u64> {
        shared.read(|all| all.registrations().map(|(_, key, _)| key).collect())
    }

    #[test]
    fn a_change_takes_effect_when_it_is_saved() {
        let stored = Arc::new(RecordedState::default());
        let shared = Arc::new(open(&stored).unwrap());
        let looking = Arc::clone(&shared);
        *stored.during.lock().unwrap() = Some(Box::new(move || {
            assert_eq!(keys(&looking), []);
            let reserve = |name| looking.execute_unsaved(&nexus(name), &ReservationRequest::LegacyReserve);
            assert_eq!(reserve("b"), Err(Refusal::Conflict), "as after the registration");
        }));
        register(&shared, 1, true);
        assert!(stored.during.lock().unwrap().is_none());
        assert_eq!(keys(&shared), [1]);
        assert_eq!(keys(&open(&stored).unwrap()), [1]);
    }

    #[test]
    fn only_persistent_registrations_are_saved_and_later_removed() {
        let stored = Arc::new(RecordedState::default());
        let shared = open(&stored).unwrap();
        register(&shared, 1, false);
        assert_eq!(stored.saved.lock().unwrap().len(), 0);
        register(&shared, 1, true);
        register(&shared, 1, false);
        assert_eq!(*stored.saved.lock().unwrap().last().unwrap(), None);
        assert_eq!(stored.saved.lock().unwrap().len(), 2);
    }

    #[test]
    fn without_a_store_nothing_is_saved() {
        let shared = SharedReservations::open(None, "s", false).unwrap();
        assert!(!shared.can_persist());
        register(&shared, 1, true);
        assert_eq!(keys(&shared), [1]);
    }

    #[test]
    fn a_value_of_an_unknown_format_is_an_error() {
        let stored = Arc::new(RecordedState::holding(Some(vec![9])));
        assert!(open(&stored).is_err());
    }
}
