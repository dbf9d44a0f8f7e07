//! The encoding of registrations and the reservation in the state store (APTPL).
//!
//! All numbers are big-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1 |
//! | 1 | TYPE of the reservation; 0 without one |
//! | then for each registration: 8 | key |
//! | 1 | 1 for the one holder, else 0 |
//! | 2 | RELATIVE TARGET PORT IDENTIFIER |
//! | 2, n | name of the target port, behind its length |
//! | 2, n | name of the initiator port, behind its length |

use std::sync::Arc;

use lunette_scsi::persistent::ReservationType;

use super::{PersistentReservation, Reservations};
use crate::nexus::ItNexus;
use crate::persist::ValueReader;

const VERSION: u8 = 1;

/// The encoded value; `None` when nothing has to survive.
pub(crate) fn encode(reservations: &Reservations) -> Option<Vec<u8>> {
    (reservations.persist && !reservations.registrations.is_empty()).then(|| encode_all(reservations))
}

/// The encoded value, whether or not anything has to survive.
pub(crate) fn encode_all(reservations: &Reservations) -> Vec<u8> {
    let persistent = reservations.persistent.as_ref();
    let mut bytes = vec![VERSION, persistent.map_or(0, |reservation| reservation.kind.code())];
    for (nexus, key) in &reservations.registrations {
        let holds = persistent.and_then(|reservation| reservation.holder.as_ref()) == Some(nexus);
        bytes.extend_from_slice(&key.to_be_bytes());
        bytes.push(u8::from(holds));
        nexus.encode(&mut bytes);
    }
    bytes
}

/// Decodes a value of [`encode`], in which PRGENERATION is not included; `None` for any other bytes.
pub(crate) fn decode(bytes: &[u8]) -> Option<Reservations> {
    let mut reader = ValueReader(bytes);
    let [version, kind] = reader.take()?;
    if version != VERSION {
        return None;
    }
    let mut reservations = Reservations { persist: true, ..Reservations::default() };
    let mut holder = None;
    while !reader.is_empty() {
        let key = u64::from_be_bytes(reader.take()?);
        let [holds] = reader.take()?;
        let nexus = ItNexus::decode(&mut reader)?;
        if holds != 0 {
            holder = Some(Arc::clone(&nexus));
        }
        reservations.registrations.insert(nexus, key);
    }
    if kind != 0 {
        let kind = ReservationType::decode(kind)?;
        if kind.all_registrants() != holder.is_none() || reservations.registrations.is_empty() {
            return None;
        }
        reservations.persistent = Some(PersistentReservation { kind, holder });
    }
    Some(reservations)
}
