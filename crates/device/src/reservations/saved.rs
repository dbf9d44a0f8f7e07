//! Registrations and reservation as bytes, for a start after a crash or a power cut.
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

use super::{Persistent, Reservations};
use crate::nexus::{ItNexus, TargetPort};

const VERSION: u8 = 1;

/// The bytes; `None` when nothing has to survive.
pub(crate) fn encode(reservations: &Reservations) -> Option<Vec<u8>> {
    if !reservations.persist || reservations.registrations.is_empty() {
        return None;
    }
    let persistent = reservations.persistent.as_ref();
    let mut bytes = vec![VERSION, persistent.map_or(0, |reservation| reservation.kind.code())];
    for (nexus, key) in &reservations.registrations {
        let holds = persistent.and_then(|reservation| reservation.holder.as_ref()) == Some(nexus);
        bytes.extend_from_slice(&key.to_be_bytes());
        bytes.push(u8::from(holds));
        bytes.extend_from_slice(&nexus.port.relative.to_be_bytes());
        put_text(&mut bytes, &nexus.port.name);
        put_text(&mut bytes, &nexus.initiator);
    }
    Some(bytes)
}

/// What [`encode`] was given, but for the generation; `None` when the bytes are none of ours.
pub(crate) fn decode(bytes: &[u8]) -> Option<Reservations> {
    let mut reader = Reader(bytes);
    let [version, kind] = reader.take()?;
    if version != VERSION {
        return None;
    }
    let mut reservations = Reservations { persist: true, ..Reservations::default() };
    let mut holder = None;
    while !reader.0.is_empty() {
        let key = u64::from_be_bytes(reader.take()?);
        let [holds] = reader.take()?;
        let relative = u16::from_be_bytes(reader.take()?);
        let port = TargetPort { relative, name: reader.text()?.into() };
        let nexus = Arc::new(ItNexus { initiator: reader.text()?.into(), port });
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
        reservations.persistent = Some(Persistent { kind, holder });
    }
    Some(reservations)
}

/// Names are shorter than 64 KiB: login keys bound them.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let text = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(text);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = u16::from_be_bytes(self.take()?);
        let (text, rest) = self.0.split_at_checked(usize::from(len))?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}
