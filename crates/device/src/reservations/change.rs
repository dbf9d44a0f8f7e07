//! The effects of requests on registrations and reservations.

use std::sync::Arc;

use lunette_scsi::persistent::ReservationType;
use lunette_scsi::{AdditionalSense, SenseData};

use super::{ACTION_KEY_FIELD, PersistentReservation, Refusal, Reservations};
use crate::limits::MAX_REGISTRATIONS;
use crate::nexus::ItNexus;

/// The effect of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReservationChange {
    pub(super) next: Reservations,
    /// Unit attentions to establish for other nexuses.
    pub(crate) attentions: Vec<(Arc<ItNexus>, AdditionalSense)>,
    /// Nexuses whose tasks PREEMPT AND ABORT aborts.
    pub(crate) preempted: Vec<Arc<ItNexus>>,
}

/// The effects. `by` is the requesting nexus: it gets no unit attention for its own request.
impl ReservationChange {
    pub(super) fn register<'a>(
        &mut self,
        by: &ItNexus,
        key: u64,
        same: impl Iterator<Item = &'a Arc<ItNexus>>,
        others: &[Arc<ItNexus>],
        persist: bool,
    ) -> Result<(), Refusal> {
        self.next_generation();
        self.next.persist = persist;
        if key == 0 {
            for nexus in same {
                self.unregister(nexus, by);
            }
            return Ok(());
        }
        for nexus in same {
            self.insert(nexus, key)?;
        }
        for nexus in others {
            // Each is registered as by its own REGISTER with a RESERVATION KEY of zero.
            if self.next.registrations.contains_key(nexus) {
                return Err(Refusal::Conflict);
            }
            self.insert(nexus, key)?;
        }
        Ok(())
    }

    fn insert(&mut self, nexus: &Arc<ItNexus>, key: u64) -> Result<(), Refusal> {
        self.next.registrations.insert(Arc::clone(nexus), key);
        if self.next.registrations.len() > MAX_REGISTRATIONS {
            let code = AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES;
            return Err(Refusal::Check(SenseData::illegal_request(code)));
        }
        Ok(())
    }

    /// Removes a registration. A reservation ends with its holder, or with the last of its holders (SPC-5 5.14.11.3).
    fn unregister(&mut self, nexus: &ItNexus, by: &ItNexus) {
        let held = self.next.holds(nexus);
        self.next.registrations.remove(nexus);
        let shared = self.next.persistent.as_ref().is_some_and(|reservation| reservation.kind.all_registrants());
        if held && (!shared || self.next.registrations.is_empty()) {
            self.release(by);
        }
    }

    /// Releases the reservation. Registrants that had access through it get a unit attention (SPC-5 5.14.11.2).
    pub(super) fn release(&mut self, by: &ItNexus) {
        if self.next.persistent.take().is_some_and(|reservation| reservation.kind.admits_registrants()) {
            self.tell_registered(by, AdditionalSense::RESERVATIONS_RELEASED);
        }
    }

    pub(super) fn clear(&mut self, by: &ItNexus) {
        self.next_generation();
        self.tell_registered(by, AdditionalSense::RESERVATIONS_PREEMPTED);
        self.next.registrations.clear();
        self.next.persistent = None;
    }

    /// Removes the registrations with `key`, and takes the reservation over when `key` is the holder's (SPC-5
    /// 5.14.11.4).
    pub(super) fn preempt(&mut self, by: &Arc<ItNexus>, key: u64, kind: ReservationType) -> Result<(), Refusal> {
        let taken = self.next.persistent.clone().filter(|reservation| match &reservation.holder {
            Some(holder) => self.next.registrations.get(holder) == Some(&key),
            None => key == 0,
        });
        if taken.is_none() && key == 0 {
            return Err(ACTION_KEY_FIELD.into());
        }
        // The nexus that takes over the reservation keeps its own registration, whatever its key.
        let concerns = |nexus: &ItNexus, its: u64| {
            if taken.is_some() { nexus != &**by && (key == 0 || its == key) } else { its == key }
        };
        self.preempted = self
            .next
            .registrations
            .iter()
            .filter(|(nexus, its)| concerns(nexus, **its))
            .map(|(nexus, _)| Arc::clone(nexus))
            .collect();
        if taken.is_none() && self.preempted.is_empty() {
            return Err(Refusal::Conflict);
        }
        self.next_generation();
        if taken.is_some() {
            self.next.persistent = Some(PersistentReservation::new(kind, by));
        }
        for nexus in self.preempted.clone() {
            if nexus != *by {
                self.attentions.push((Arc::clone(&nexus), AdditionalSense::REGISTRATIONS_PREEMPTED));
            }
            self.unregister(&nexus, by);
        }
        if taken.is_some_and(|reservation| reservation.kind != kind) {
            self.tell_registered(by, AdditionalSense::RESERVATIONS_RELEASED);
        }
        Ok(())
    }

    pub(super) fn move_to(
        &mut self,
        by: &ItNexus,
        key: u64,
        to: &Arc<ItNexus>,
        unregister: bool,
    ) -> Result<(), Refusal> {
        self.next_generation();
        self.insert(to, key)?;
        if let Some(reservation) = &mut self.next.persistent {
            reservation.holder = Some(Arc::clone(to));
        }
        if unregister {
            self.next.registrations.remove(by);
        }
        Ok(())
    }

    fn next_generation(&mut self) {
        self.next.generation = self.next.generation.wrapping_add(1);
    }

    fn tell_registered(&mut self, by: &ItNexus, code: AdditionalSense) {
        let others = self.next.registrations.keys().filter(|nexus| ***nexus != *by);
        self.attentions.extend(others.map(|nexus| (Arc::clone(nexus), code)));
    }
}
