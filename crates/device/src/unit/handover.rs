//! The state that a logical unit leaves to the process that takes its place.
//!
//! The successor opens the same store and the same state file. It makes the unit as at any start, inherits, and only
//! then lets nexuses attach and gateways publish. Inheriting writes nothing and raises no unit attention.
//!
//! | field of [`LogicalUnit`] | where the successor has it from |
//! |---|---|
//! | `config` | its configuration |
//! | `mode` | current pages are handed over; saved ones are in the state file |
//! | `identifying` | the state file, without which it is not supported |
//! | `sanitize` | the state file, else it [holds up](LogicalUnit::holds_up_handover); a failure is handed over |
//! | `medium` | that it is ejected is handed over; whether the store is there, the successor finds |
//! | `counters`, `failures` | handed over by name, so that no number falls |
//! | `clock` | handed over |
//! | `nexuses` | attached ones come with their sessions; lost ones are handed over, if they have still missed nothing |
//! | `range_locks` | empty: no command is left |
//! | `freeze` | a freeze holds up |
//! | `reservations` | handed over as they are, saved or not; RESERVE ends when its session does not [go on](LogicalUnit::lose_all_but) |
//! | `gateway` | joined again |
//! | `preemptions` | empty: no task is left that has to end |
//! | `space` | that the threshold was reported is handed over; the space is observed again |
//! | `change_watches` | those of ROD tokens come with the [target](crate::TargetDevice::handover) |
//! | `running_copies` | none: a copy ends with its command |
//! | `quanta` | counts and doubt are handed over; the scrub begins with the first block |
//!
//! # Units of several gateways
//!
//! Reservations and mode pages are what the gateways have in common. Of them goes over what the nexuses know. So the
//! first value that is published in the successor tells them what has changed in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lunette_gateway::{Entry, Value};
use lunette_handover::{ByteBuf, Unit};

use super::failures::STORE_FAILURES;
use super::quanta::UnitQuanta;
use super::{LogicalUnit, mode_pages};
use crate::nexus::{ItNexus, NexusName};
use crate::persist::ValueReader;
use crate::reservations::{self, Reservations, saved};

/// The state that a predecessor has left cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the predecessor has left {what} of {owner} in a form that is not known here; restart the server instead")]
pub struct InheritError {
    /// The part that cannot be read.
    pub what: &'static str,
    /// The serial number of the logical unit, or the name of the target.
    pub owner: String,
}

/// Why a logical unit cannot be handed over now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HoldUp {
    /// Third-party copies run.
    #[error("{0} copies run on it; wait for their end")]
    Copies(u32),
    /// A sanitize operation runs, and no state file lets a successor go on with it.
    #[error("it is being sanitized, and no state file says how far; wait for the end of that")]
    Sanitizing,
    /// The unit is frozen.
    #[error("it is frozen, because its medium is being copied or changed; wait for the end of that")]
    Frozen,
}

impl LogicalUnit {
    /// Why now is a bad time for a handover, if it is. A sanitize operation whose progress is in the state file is no
    /// reason: [`TargetDevice::background`](crate::TargetDevice::background) of the successor goes on with it from its
    /// last checkpoint.
    pub fn holds_up_handover(&self) -> Option<HoldUp> {
        match self.running_copies.load(Ordering::Acquire) {
            _ if self.is_frozen() => Some(HoldUp::Frozen),
            _ if self.sanitize.ends_with_process() => Some(HoldUp::Sanitizing),
            0 => None,
            copies => Some(HoldUp::Copies(copies)),
        }
    }

    /// The state for its successor, once, however many targets have it; `target` is one of them. No task of
    /// any nexus may be left, and no background work may have a request under way.
    pub fn handover(&self, target: &str) -> Unit {
        let mut unit = Unit {
            target: target.into(),
            serial: self.config.serial.clone(),
            sanitize_failure: ByteBuf::from(self.sanitize.handover()),
            medium_ejected: !self.medium.present(),
            not_ready: !self.is_ready(),
            blocks: self.blocks(),
            threshold_told: self.space.told(),
            doubts_since_ms: self.quanta().map_or(0, UnitQuanta::doubts_since_ms),
            created_ms: self.clock.created_ms(),
            clock_offset_ms: self.clock.offset_ms(),
            lost_nexuses: self.nexuses.lost().iter().map(|nexus| encoded(nexus)).collect(),
            counters: self.counters_by_name(),
            initiators: self.counters.hand_over_initiators(),
            ..Unit::default()
        };
        if self.config.shared {
            let (version, reservations) = self.reservations.published();
            let entries =
                [(reservations::common::NAME, reservations), (mode_pages::common::NAME, self.mode.published())];
            let entry = |(name, bytes): (&str, Option<Arc<[u8]>>)| Some((name.into(), ByteBuf::from(bytes?.to_vec())));
            unit.common_version = version;
            unit.common_entries = entries.into_iter().filter_map(entry).collect();
        } else {
            unit.mode_pages = ByteBuf::from(self.mode.handover());
            self.reservations.read(|all| {
                unit.reservations = ByteBuf::from(saved::encode_all(all));
                unit.reservations_generation = all.generation();
                unit.reservations_persist = all.persists();
                unit.legacy_holder = all.legacy_holder().map(|nexus| encoded(nexus)).unwrap_or_default();
            });
        }
        unit
    }

    /// Goes on from what the predecessor of the unit has left, once: before nexuses attach, and before background work
    /// begins.
    ///
    /// # Errors
    ///
    /// When it cannot be read. The unit may have taken over a part of it then.
    pub fn inherit(&self, from: &Unit) -> Result<(), InheritError> {
        let unreadable = |what| InheritError { what, owner: self.config.serial.clone() };
        let lost = from.lost_nexuses.iter().map(|bytes| decoded(bytes)).collect::<Option<Vec<_>>>();
        let lost = lost.ok_or_else(|| unreadable("the lost nexuses"))?;
        self.sanitize.inherit(&from.sanitize_failure).ok_or_else(|| unreadable("the failure of a SANITIZE"))?;
        if self.config.shared {
            self.inherit_common(from).ok_or_else(|| unreadable("what the gateways have in common"))?;
        } else {
            self.inherit_reservations(from).ok_or_else(|| unreadable("the reservations"))?;
            if !from.mode_pages.is_empty() {
                self.mode.inherit(&from.mode_pages).ok_or_else(|| unreadable("the mode pages"))?;
            }
        }
        if self.config.removable {
            self.medium.set_present(!from.medium_ejected);
        }
        // A nexus that returns must not take a change between both processes for a mere loss of its connection.
        if (from.not_ready, from.blocks) == (!self.is_ready(), self.blocks()) {
            self.nexuses.inherit_lost(lost);
        }
        if from.threshold_told {
            self.space.inherit_told();
        }
        self.clock.inherit(from.created_ms, from.clock_offset_ms);
        self.inherit_counters(from);
        Ok(())
    }

    /// Ends what does not survive the loss of a nexus, for all but those that go on: the sessions of the others have
    /// ended with the predecessor. Called when the unit has inherited, and before nexuses attach.
    pub fn lose_all_but(&self, going_on: &[NexusName]) {
        self.reservations.lose_all_but(|holder| going_on.iter().any(|name| ItNexus::new(name) == *holder));
    }

    fn inherit_reservations(&self, from: &Unit) -> Option<()> {
        if from.reservations.is_empty() {
            return Some(());
        }
        let legacy = if from.legacy_holder.is_empty() { None } else { Some(decoded(&from.legacy_holder)?) };
        let saved: Reservations = saved::decode(&from.reservations)?;
        let all = saved.with_unsaved(from.reservations_generation, from.reservations_persist, legacy);
        self.reservations.inherit(all);
        Some(())
    }

    /// Takes what the nexuses know for published, unless a gateway has published something already.
    fn inherit_common(&self, from: &Unit) -> Option<()> {
        if from.common_version == 0 || self.reservations.published().0 != 0 {
            return Some(());
        }
        // Whether an entry survives its servers is a matter of the value that they keep.
        let entry = |bytes: &ByteBuf| Entry { bytes: bytes.as_slice().into(), survives: false };
        let entries = from.common_entries.iter().map(|(name, bytes)| (name.as_str().into(), entry(bytes))).collect();
        let version = from.common_version;
        let value = Value { version, members: BTreeMap::new(), owner: None, wanted: None, entries };
        self.reservations.publish(&value)?;
        self.mode.publish(&value).ok()?;
        Some(())
    }

    fn counters_by_name(&self) -> Vec<(String, u64)> {
        let failures = STORE_FAILURES.map(failure_name).into_iter().zip(self.failures.counts());
        let quanta = self.quanta().map(UnitQuanta::by_name).into_iter().flatten();
        let quanta = quanta.map(|(name, number)| (name.into(), number));
        self.counters.handover().into_iter().chain(failures).chain(quanta).filter(|(_, number)| *number > 0).collect()
    }

    fn inherit_counters(&self, from: &Unit) {
        let numbers: BTreeMap<&str, u64> =
            from.counters.iter().map(|(name, number)| (name.as_str(), *number)).collect();
        let number = |name: &str| numbers.get(name).copied().unwrap_or(0);
        self.counters.inherit(number, &from.initiators);
        self.failures.inherit(STORE_FAILURES.map(|kind| number(&failure_name(kind))));
        if let Some(quanta) = self.quanta() {
            quanta.inherit(number, from.doubts_since_ms);
        }
    }
}

fn failure_name(kind: &str) -> String {
    format!("store_failures.{kind}")
}

fn encoded(nexus: &ItNexus) -> ByteBuf {
    let mut bytes = Vec::new();
    nexus.encode(&mut bytes);
    ByteBuf::from(bytes)
}

fn decoded(bytes: &[u8]) -> Option<Arc<ItNexus>> {
    let mut reader = ValueReader(bytes);
    ItNexus::decode(&mut reader).filter(|_| reader.is_empty())
}
