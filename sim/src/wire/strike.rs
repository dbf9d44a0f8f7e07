//! The places at which faults strike a stream.

use std::ops::Range;
use std::time::Duration;

use lunette_pdu::{Bhs, InitiatorPdu, TargetPdu};

use super::{Side, WireId};
use crate::Transport;
use crate::env::Env;
use crate::fault::{Fault, FaultKind};
use crate::frames::{Format, Frames, Place};
use crate::records::Records;

/// The effect of a fault on a stream at one byte.
pub(super) enum Strike {
    End { at: usize, kind: FaultKind },
    Hold { span: Duration },
    Silence,
}

/// A byte that is changed, and the bits of it.
type Flip = (usize, u8);

/// Knows the parts of what is sent in one direction.
pub(super) enum Walk {
    Pdus(Frames),
    Records(Records),
}

impl Walk {
    pub(super) fn new(transport: Transport, to: Side) -> Self {
        match transport {
            Transport::Tls => Self::Records(Records::new(to)),
            Transport::Tcp | Transport::Ecl => Self::Pdus(Frames::new()),
        }
    }

    /// The login is through. Nothing of it can be seen in records.
    pub(super) fn enter_full_feature(&mut self, format: Format) {
        match self {
            Self::Pdus(frames) => frames.enter_full_feature(format),
            Self::Records(_) => {}
        }
    }

    /// Walks over what is sent, and finds the bytes of the parts that faults wait for. True when a login has been seen
    /// to end here.
    pub(super) fn places_to_strike(
        &mut self,
        armed: &mut Vec<Fault>,
        id: WireId,
        to: Side,
        bytes: &[u8],
        env: &mut Env,
    ) -> (Vec<Flip>, bool) {
        match self {
            Self::Pdus(frames) => in_pdus(frames, armed, id, to, bytes, env),
            Self::Records(records) => (in_records(records, armed, id, to, bytes, env), false),
        }
    }
}

/// Walks over the PDUs that are sent, and finds the bytes of the parts that faults wait for, with the bits that flip.
/// True when a login has ended here.
fn in_pdus(
    frames: &mut Frames,
    armed: &mut Vec<Fault>,
    id: WireId,
    to: Side,
    bytes: &[u8],
    env: &mut Env,
) -> (Vec<Flip>, bool) {
    let (mut at, mut flips, mut login_ended) = (0, Vec::new(), false);
    while let Some(region) = frames.next(bytes, at) {
        at = region.bytes.end;
        if let Some(header) = frames.finished_header().filter(|_| region.place == Place::Header) {
            env.note(|| format!("wire {id} to the {to:?}: {}", show(header, to)));
        }
        if frames.is_full_feature() {
            if frames.format().cover(region.place)
                && let Some(fault) = armed_for(armed, to, region.place)
            {
                env.tally.fault(fault.kind, to);
                env.note(|| format!("wire {id} to the {to:?}: {} of a {}", fault.kind.name(), region.opcode));
                flips.push(flip(region.bytes, env));
            }
        } else if to == Side::Initiator && frames.login_ended() {
            frames.enter_full_feature(env.scenario.format);
            login_ended = true;
        }
    }
    (flips, login_ended)
}

/// Walks over the records that are sent, and finds the bytes of the parts that faults wait for.
fn in_records(
    records: &mut Records,
    armed: &mut Vec<Fault>,
    id: WireId,
    to: Side,
    bytes: &[u8],
    env: &mut Env,
) -> Vec<Flip> {
    let (mut at, mut flips) = (0, Vec::new());
    while let Some(part) = records.next(bytes, at) {
        at = part.bytes.end;
        if let Some((kind, len)) = records.finished_header().filter(|_| part.place == Some(Place::Header)) {
            env.note(|| format!("wire {id} to the {to:?}: a record of type {kind} with {len} bytes"));
        }
        if let Some(fault) = part.place.and_then(|place| armed_for(armed, to, place)) {
            env.tally.fault(fault.kind, to);
            env.note(|| format!("wire {id} to the {to:?}: {} of a record", fault.kind.name()));
            flips.push(flip(part.bytes, env));
        }
    }
    flips
}

/// A change of one of these bytes.
fn flip(bytes: Range<usize>, env: &mut Env) -> Flip {
    (bytes.start + env.dice.place(bytes.len()), env.dice.between(1, 255) as u8)
}

/// A header in words.
fn show(header: &Bhs, to: Side) -> String {
    match to {
        Side::Target => InitiatorPdu::parse(header).map(|pdu| format!("{pdu:?}")),
        Side::Initiator => TargetPdu::parse(header).map(|pdu| format!("{pdu:?}")),
    }
    .unwrap_or_else(|error| error.to_string())
}

/// The fault that strikes a part that damage can be done to.
fn armed_for(armed: &mut Vec<Fault>, to: Side, place: Place) -> Option<Fault> {
    let at = armed.iter().position(|fault| fault.to == to && fault.kind.place() == Some(place))?;
    if armed[at].skip == 0 {
        return Some(armed.swap_remove(at));
    }
    armed[at].skip -= 1;
    None
}

/// The faults that strike within the next `len` bytes to this side.
pub(super) fn strikes(armed: &mut Vec<Fault>, to: Side, len: usize, env: &mut Env) -> Vec<(FaultKind, Strike)> {
    let mut struck = Vec::new();
    armed.retain_mut(|fault| {
        if fault.to != to || fault.kind.place().is_some() || fault.kind == FaultKind::RefusedDial {
            return true;
        }
        if fault.skip >= len as u64 {
            fault.skip -= len as u64;
            return true;
        }
        let strike = match fault.kind {
            FaultKind::Stall => Strike::Hold { span: env.dice.micros(500_000, 90_000_000) },
            FaultKind::Lag => Strike::Hold { span: env.dice.micros(1000, 500_000) },
            FaultKind::Silence => Strike::Silence,
            kind => Strike::End { at: fault.skip as usize, kind },
        };
        struck.push((fault.kind, strike));
        false
    });
    struck
}
