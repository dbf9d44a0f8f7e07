//! The reservations of one logical unit, as a pure state machine (SPC-5 5.14; RESERVE and RELEASE: SPC-2 5.5).
//!
//! [`Reservations::select`] computes the effect of a request and changes nothing; [`Reservations::apply`] carries it
//! out. [`Reservations::permits`] evaluates the reservation column of the opcode table. Locks, durable storage and unit
//! attentions are left to [`shared`].

mod change;
pub(crate) mod common;
mod rule;
pub(crate) mod saved;
pub(crate) mod shared;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use lunette_scsi::persistent::ReservationType;
use lunette_scsi::{AdditionalSense, FieldPointer, SenseData};

use crate::nexus::ItNexus;
pub(crate) use change::ReservationChange;
pub(crate) use rule::ReservationRule;

/// The SERVICE ACTION RESERVATION KEY, and the TransportID of REGISTER AND MOVE, in the parameter lists.
const ACTION_KEY_FIELD: FieldPointer = FieldPointer::data(8);
const MOVE_TARGET_FIELD: FieldPointer = FieldPointer::data(24);
/// The SERVICE ACTION field: a registered nexus may not specify initiator ports (SPC-5 table 71).
const SERVICE_ACTION_FIELD: FieldPointer = FieldPointer::cdb(1).bit(4);

/// The registrations and reservations of a logical unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reservations {
    /// PRGENERATION. It starts at zero with every start of the process.
    generation: u32,
    registrations: BTreeMap<Arc<ItNexus>, u64>,
    /// The persistent reservation. It never exists without a registration.
    persistent: Option<PersistentReservation>,
    /// The nexus that holds the unit by RESERVE(6) or (10).
    legacy: Option<Arc<ItNexus>>,
    /// APTPL of the last registration.
    persist: bool,
}

/// A persistent reservation of the whole logical unit.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PersistentReservation {
    kind: ReservationType,
    /// The single holder, which is registered; `None` when all registered nexuses hold the reservation.
    holder: Option<Arc<ItNexus>>,
}

/// A request of a nexus to change registrations or reservations. Keys are RESERVATION KEYs unless named otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReservationRequest {
    /// REGISTER; with `key` `None`, REGISTER AND IGNORE EXISTING KEY.
    Register {
        key: Option<u64>,
        /// The new key; zero unregisters.
        new_key: u64,
        /// Further nexuses that are registered or unregistered like this one (`ALL_TG_PT`).
        same: Vec<Arc<ItNexus>>,
        /// Nexuses that are registered along with this one (`SPEC_I_PT`).
        others: Vec<Arc<ItNexus>>,
        persist: bool,
    },
    Reserve {
        key: u64,
        kind: ReservationType,
    },
    Release {
        key: u64,
        kind: ReservationType,
    },
    Clear {
        key: u64,
    },
    /// PREEMPT and PREEMPT AND ABORT.
    Preempt {
        key: u64,
        victims_key: u64,
        kind: ReservationType,
    },
    /// REGISTER AND MOVE.
    Move {
        key: u64,
        new_key: u64,
        to: Arc<ItNexus>,
        unregister: bool,
        persist: bool,
    },
    /// RESERVE(6) and (10).
    LegacyReserve,
    /// RELEASE(6) and (10).
    LegacyRelease,
}

/// The reason why a command is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The command ends with RESERVATION CONFLICT.
    Conflict,
    /// The command ends with CHECK CONDITION and this sense data.
    Check(SenseData),
}

impl Refusal {
    /// The sense data of CHECK CONDITION.
    pub(crate) fn sense(&self) -> Option<&SenseData> {
        match self {
            Self::Conflict => None,
            Self::Check(sense) => Some(sense),
        }
    }
}

impl From<SenseData> for Refusal {
    fn from(sense: SenseData) -> Self {
        Self::Check(sense)
    }
}

impl From<FieldPointer> for Refusal {
    fn from(field: FieldPointer) -> Self {
        Self::Check(field.into())
    }
}

impl Reservations {
    /// Whether a command of `nexus` may run by `rule`, its reservation column of the opcode table (SPC-5 table 70,
    /// SBC-4 table 13).
    pub(crate) fn permits(&self, nexus: &ItNexus, rule: ReservationRule) -> bool {
        if self.legacy.as_deref().is_some_and(|holder| holder != nexus) {
            return rule == ReservationRule::PassesAll;
        }
        let Some(PersistentReservation { kind, holder }) = &self.persistent else { return true };
        match rule {
            ReservationRule::PassesAll | ReservationRule::Passes => true,
            ReservationRule::PassesWriteExclusive if !kind.excludes_reading() => true,
            ReservationRule::PassesWriteExclusive
            | ReservationRule::PassesStart
            | ReservationRule::PassesAllow
            | ReservationRule::Conflicts => {
                holder.as_deref() == Some(nexus) || kind.admits_registrants() && self.registrations.contains_key(nexus)
            }
        }
    }

    /// The effect of `request` of `nexus`, without carrying it out.
    ///
    /// # Errors
    ///
    /// The reason why the request is refused; nothing changes then.
    pub(crate) fn select(
        &self,
        nexus: &Arc<ItNexus>,
        request: &ReservationRequest,
    ) -> Result<ReservationChange, Refusal> {
        // SPC-2 5.5.3.1: PERSISTENT RESERVE OUT of any nexus conflicts while a RESERVE holds.
        if self.legacy.is_some()
            && !matches!(request, ReservationRequest::LegacyReserve | ReservationRequest::LegacyRelease)
        {
            return Err(Refusal::Conflict);
        }
        let mut change = ReservationChange { next: self.clone(), ..ReservationChange::default() };
        match request {
            ReservationRequest::Register { key, new_key, same, others, persist } => {
                self.check_registration(nexus, *key, others)?;
                if *new_key == 0 && !self.registrations.contains_key(nexus) {
                    return Ok(change);
                }
                let same = std::iter::once(nexus).chain(same);
                change.register(nexus, *new_key, same, others, *persist)?;
            }
            ReservationRequest::Reserve { key, kind } => {
                self.check_key(nexus, *key)?;
                self.check_reservable(nexus, *kind)?;
                change.next.persistent.get_or_insert_with(|| PersistentReservation::new(*kind, nexus));
            }
            ReservationRequest::Release { key, kind } => {
                self.check_key(nexus, *key)?;
                self.check_release(nexus, *kind)?;
                if self.holds(nexus) {
                    change.release(nexus);
                }
            }
            ReservationRequest::Clear { key } => {
                self.check_key(nexus, *key)?;
                change.clear(nexus);
            }
            ReservationRequest::Preempt { key, victims_key, kind } => {
                self.check_key(nexus, *key)?;
                change.preempt(nexus, *victims_key, *kind)?;
            }
            ReservationRequest::Move { key, new_key, to, unregister, persist } => {
                self.check_key(nexus, *key)?;
                self.check_move(nexus, *new_key, to)?;
                change.move_to(nexus, *new_key, to, *unregister)?;
                change.next.persist = *persist;
            }
            ReservationRequest::LegacyReserve => {
                if self.legacy_may_change(nexus)? {
                    change.next.legacy = Some(Arc::clone(nexus));
                }
            }
            ReservationRequest::LegacyRelease => {
                // A release by a nexus that is not the holder does nothing.
                if self.legacy.as_ref() == Some(nexus) || self.legacy.is_none() && self.legacy_may_change(nexus)? {
                    change.next.legacy = None;
                }
            }
        }
        Ok(change)
    }

    /// Carries out a selected change.
    pub(crate) fn apply(&mut self, change: &mut ReservationChange) {
        *self = std::mem::take(&mut change.next);
    }

    /// Ends the reservation by RESERVE on a reset of the logical unit (SPC-2 5.5.1). Persistent reservations survive
    /// it.
    pub(crate) fn reset(&mut self) {
        self.legacy = None;
    }

    /// Ends the reservation by RESERVE of a nexus that was lost.
    pub(crate) fn nexus_lost(&mut self, nexus: &ItNexus) {
        if self.legacy.as_deref() == Some(nexus) {
            self.legacy = None;
        }
    }

    /// The reservations that were [saved](saved::decode), with what is not saved.
    pub(crate) fn with_unsaved(self, generation: u32, persist: bool, legacy: Option<Arc<ItNexus>>) -> Self {
        Self { generation, legacy, persist, ..self }
    }

    /// The nexus that holds the unit by RESERVE.
    pub(crate) fn legacy_holder(&self) -> Option<&Arc<ItNexus>> {
        self.legacy.as_ref()
    }

    // PERSISTENT RESERVE IN.

    /// Whether a RESERVE holds, which makes even PERSISTENT RESERVE IN conflict.
    pub(crate) fn is_legacy(&self) -> bool {
        self.legacy.is_some()
    }

    /// Whether a reservation exists, so that commands have to be checked.
    pub(crate) fn restricts(&self) -> bool {
        self.legacy.is_some() || self.persistent.is_some()
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether APTPL was set by the last registration.
    pub(crate) fn persists(&self) -> bool {
        self.persist
    }

    /// The registrations: the nexus, its key, and the type of the reservation that it holds.
    pub(crate) fn registrations(&self) -> impl Iterator<Item = (&Arc<ItNexus>, u64, Option<ReservationType>)> {
        self.registrations.iter().map(|(nexus, key)| {
            (nexus, *key, self.persistent.as_ref().filter(|_| self.holds(nexus)).map(|reservation| reservation.kind))
        })
    }

    /// The key of the holder, zero when all registrants hold the reservation, and the type.
    pub(crate) fn reservation(&self) -> Option<(u64, ReservationType)> {
        let PersistentReservation { kind, holder } = self.persistent.as_ref()?;
        let key = holder.as_ref().and_then(|holder| self.registrations.get(holder));
        Some((key.copied().unwrap_or(0), *kind))
    }

    fn holds(&self, nexus: &ItNexus) -> bool {
        self.persistent.as_ref().is_some_and(|reservation| match &reservation.holder {
            Some(holder) => **holder == *nexus,
            None => self.registrations.contains_key(nexus),
        })
    }

    // Checks of requests.

    /// Checks the RESERVATION KEY, which every service action but REGISTER needs.
    fn check_key(&self, nexus: &ItNexus, key: u64) -> Result<(), Refusal> {
        if self.registrations.get(nexus) == Some(&key) { Ok(()) } else { Err(Refusal::Conflict) }
    }

    /// Checks the key of a REGISTER (SPC-5 table 71).
    fn check_registration(&self, nexus: &ItNexus, key: Option<u64>, others: &[Arc<ItNexus>]) -> Result<(), Refusal> {
        let registered = self.registrations.get(nexus);
        if key.is_some_and(|key| key != registered.copied().unwrap_or(0)) {
            return Err(Refusal::Conflict);
        }
        match registered {
            Some(_) if !others.is_empty() => Err(SERVICE_ACTION_FIELD.into()),
            _ => Ok(()),
        }
    }

    /// Checks that no other reservation exists. The holder may repeat a reservation of the same type.
    fn check_reservable(&self, nexus: &ItNexus, kind: ReservationType) -> Result<(), Refusal> {
        match &self.persistent {
            Some(reservation) if reservation.kind != kind || !self.holds(nexus) => Err(Refusal::Conflict),
            _ => Ok(()),
        }
    }

    fn check_release(&self, nexus: &ItNexus, kind: ReservationType) -> Result<(), Refusal> {
        match &self.persistent {
            Some(reservation) if self.holds(nexus) && reservation.kind != kind => {
                let code = AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION;
                Err(Refusal::Check(SenseData::illegal_request(code)))
            }
            _ => Ok(()),
        }
    }

    /// Checks a REGISTER AND MOVE: only a single holder moves a reservation, and not to itself (SPC-5 5.14.8).
    fn check_move(&self, nexus: &ItNexus, new_key: u64, to: &ItNexus) -> Result<(), Refusal> {
        if self.persistent.as_ref().and_then(|reservation| reservation.holder.as_deref()) != Some(nexus) {
            return Err(Refusal::Conflict);
        }
        if new_key == 0 {
            return Err(ACTION_KEY_FIELD.into());
        }
        if to == nexus {
            return Err(MOVE_TARGET_FIELD.into());
        }
        Ok(())
    }

    /// Whether RESERVE and RELEASE take effect (`true`), do nothing (`false`) or conflict (SPC-5 5.14.3, compatible
    /// reservation handling).
    fn legacy_may_change(&self, nexus: &ItNexus) -> Result<bool, Refusal> {
        let admitted = self.persistent.as_ref().is_some_and(|reservation| {
            self.holds(nexus) || reservation.kind.admits_registrants() && self.registrations.contains_key(nexus)
        });
        let free = self.registrations.is_empty() && self.legacy.as_deref().is_none_or(|holder| holder == nexus);
        match (admitted, free) {
            (true, _) => Ok(false),
            (false, true) => Ok(true),
            (false, false) => Err(Refusal::Conflict),
        }
    }
}

impl PersistentReservation {
    fn new(kind: ReservationType, nexus: &Arc<ItNexus>) -> Self {
        Self { kind, holder: (!kind.all_registrants()).then(|| Arc::clone(nexus)) }
    }
}
