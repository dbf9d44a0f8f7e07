//! The registrations and the reservation of a unit that several servers offer, as the entry that they have in common.
//!
//! Each server finds what the entry says by comparing it with what it knew; only events do not show that way: unit
//! attentions, and the tasks that PREEMPT AND ABORT ends. So the entry has the last changes, too. Their numbers are
//! those of the common value. A server that was away for longer than they go back learns of what is gone from the
//! registrations that are.
//!
//! All numbers are big-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1 |
//! | 1 | 1: APTPL was set by the last registration, else 0 |
//! | 4 | PRGENERATION |
//! | 4, n | registrations and reservation, as [`super::saved`] has them, behind their length |
//! | 8 | the version of the value up to which changes are left out |
//! | then for each change: 8 | the version of the value that it made |
//! | 2, then for each: 2, nexus | the number of unit attentions; ASC and ASCQ |
//! | 2, then for each: nexus | the number of nexuses that lose their tasks |
//!
//! A nexus is its RELATIVE TARGET PORT IDENTIFIER, and the names of its target port and of its initiator port behind
//! their lengths in two bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use lunette_gateway::Entry;
use lunette_scsi::AdditionalSense;

use super::{ReservationChange, Reservations, saved};
use crate::limits::{MAX_COMMON_CHANGES, MAX_COMMON_CHANGES_BYTES};
use crate::nexus::ItNexus;
use crate::persist::ValueReader;

/// The name of the entry.
pub(crate) const NAME: &str = "reservations";

const VERSION: u8 = 1;

/// The consequences of a change at each server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Unit attentions to establish.
    pub(crate) attentions: Vec<(Arc<ItNexus>, AdditionalSense)>,
    /// Nexuses whose tasks end. The one that has asked for it is not among them: its other tasks end with its command.
    pub(crate) aborted: Vec<Arc<ItNexus>>,
}

/// The last changes of the entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ChangeLog {
    /// The version of the value up to which changes are left out.
    omitted: u64,
    changes: VecDeque<(u64, News)>,
}

/// The entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Common {
    pub(super) reservations: Reservations,
    pub(super) log: ChangeLog,
}

impl News {
    /// The consequences of the change of `by`. With `aborts`, the tasks of preempted nexuses end.
    fn of(by: &ItNexus, change: &ReservationChange, aborts: bool) -> Self {
        let aborted = change.preempted.iter().filter(|nexus| aborts && ***nexus != *by);
        Self { attentions: change.attentions.clone(), aborted: aborted.cloned().collect() }
    }

    /// The consequences for a server that has missed changes: every registration that vanished counts as preempted,
    /// with its tasks aborted.
    fn between(before: &Reservations, after: &Reservations) -> Self {
        let mut news = Self::default();
        for nexus in before.registrations.keys().filter(|nexus| !after.registrations.contains_key(*nexus)) {
            news.attentions.push((Arc::clone(nexus), AdditionalSense::REGISTRATIONS_PREEMPTED));
            news.aborted.push(Arc::clone(nexus));
        }
        if before.persistent.is_some() && before.persistent != after.persistent {
            let registered = after.registrations.keys();
            let released = AdditionalSense::RESERVATIONS_RELEASED;
            news.attentions.extend(registered.map(|nexus| (Arc::clone(nexus), released)));
        }
        news
    }

    fn is_empty(&self) -> bool {
        self.attentions.is_empty() && self.aborted.is_empty()
    }
}

impl Common {
    /// The changes since the value of version `seen`, when `before` was in force.
    pub(super) fn news_since(&self, seen: u64, before: &Reservations) -> News {
        if self.log.omitted > seen {
            return News::between(before, &self.reservations);
        }
        let mut all = News::default();
        for (_, news) in self.log.changes.iter().filter(|(version, _)| *version > seen) {
            all.attentions.extend(news.attentions.iter().cloned());
            all.aborted.extend(news.aborted.iter().cloned());
        }
        all
    }

    /// The encoded entry. It outlives the time without any server where APTPL says so.
    pub(super) fn encode(&self) -> Entry {
        let Self { reservations, log } = self;
        let mut bytes = vec![VERSION, u8::from(reservations.persist)];
        bytes.extend_from_slice(&reservations.generation.to_be_bytes());
        let registrations = saved::encode_all(reservations);
        bytes.extend_from_slice(&(registrations.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&registrations);
        log.encode(&mut bytes);
        let survives = reservations.persist && !reservations.registrations.is_empty();
        Entry { bytes: bytes.into(), survives }
    }

    /// Decodes an entry; `None` for any other bytes than those of [`encode`](Self::encode).
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = ValueReader(bytes);
        let [VERSION, persist @ 0..=1] = reader.take()? else { return None };
        let generation = u32::from_be_bytes(reader.take()?);
        let len = usize::try_from(u32::from_be_bytes(reader.take()?)).ok()?;
        let registrations = reader.slice(len)?;
        let reservations = Reservations { generation, persist: persist != 0, ..saved::decode(registrations)? };
        Some(Self { reservations, log: ChangeLog::decode(&mut reader)? })
    }

    /// Nothing is known of changes before the value of version `version`.
    pub(super) fn forgotten_until(version: u64) -> Self {
        Self { log: ChangeLog { omitted: version, ..ChangeLog::default() }, ..Self::default() }
    }
}

impl ChangeLog {
    /// The entry after a change of `by`, which was decided with the value of version `base` and makes the next one.
    pub(super) fn after(&self, base: u64, by: &ItNexus, change: &ReservationChange, aborts: bool) -> Common {
        let mut log = self.clone();
        let news = News::of(by, change, aborts);
        if !news.is_empty() {
            log.changes.push_back((base + 1, news));
        }
        Common { reservations: change.next.clone(), log }
    }

    /// Encodes the newest changes that there is room for.
    fn encode(&self, bytes: &mut Vec<u8>) {
        let encoded: Vec<Vec<u8>> = self.changes.iter().map(encode_change).collect();
        let mut room = MAX_COMMON_CHANGES_BYTES;
        let fits = |change: &&Vec<u8>| {
            let is_in = change.len() <= room;
            room = room.saturating_sub(change.len());
            is_in
        };
        let kept = encoded.iter().rev().take(MAX_COMMON_CHANGES).take_while(fits).count();
        let left_out = encoded.len() - kept;
        let omitted = left_out.checked_sub(1).and_then(|last| self.changes.get(last));
        bytes.extend_from_slice(&omitted.map_or(self.omitted, |(version, _)| *version).to_be_bytes());
        encoded[left_out..].iter().for_each(|change| bytes.extend_from_slice(change));
    }

    fn decode(reader: &mut ValueReader<'_>) -> Option<Self> {
        let mut log = Self { omitted: u64::from_be_bytes(reader.take()?), changes: VecDeque::new() };
        while !reader.is_empty() {
            let version = u64::from_be_bytes(reader.take()?);
            let mut news = News::default();
            for _ in 0..u16::from_be_bytes(reader.take()?) {
                let [asc, ascq] = reader.take()?;
                news.attentions.push((ItNexus::decode(reader)?, AdditionalSense { asc, ascq }));
            }
            for _ in 0..u16::from_be_bytes(reader.take()?) {
                news.aborted.push(ItNexus::decode(reader)?);
            }
            log.changes.push_back((version, news));
        }
        Some(log)
    }
}

fn encode_change((version, news): &(u64, News)) -> Vec<u8> {
    let mut bytes = version.to_be_bytes().to_vec();
    // There is one of each for each registration at most.
    bytes.extend_from_slice(&(news.attentions.len() as u16).to_be_bytes());
    for (nexus, code) in &news.attentions {
        bytes.extend_from_slice(&[code.asc, code.ascq]);
        nexus.encode(&mut bytes);
    }
    bytes.extend_from_slice(&(news.aborted.len() as u16).to_be_bytes());
    news.aborted.iter().for_each(|nexus| nexus.encode(&mut bytes));
    bytes
}
