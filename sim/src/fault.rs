//! What the network does to the streams, beside being slow.

use crate::dice::Dice;
use crate::frames::{Format, Place};
use crate::wire::Side;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A byte of a basic header segment is another one.
    Header,
    /// A byte of an additional header segment is another one.
    Ahs,
    /// A byte of a header digest is another one.
    HeaderDigest,
    /// A byte of a data segment is another one.
    Data,
    /// A byte of the pad after a data segment is another one.
    Pad,
    /// A byte of a data digest is another one.
    DataDigest,
    /// A byte of a marker is another one.
    Marker,
    /// The connection is reset at some byte; what was under way the other way is lost too.
    Cut,
    /// One direction ends at some byte, the other one goes on.
    HalfClose,
    /// One direction brings nothing more, and neither side is told.
    Silence,
    /// One direction stands still for seconds or minutes.
    Stall,
    /// One direction stands still for milliseconds: other connections overtake it.
    Lag,
    /// An attempt to connect is refused.
    RefusedDial,
}

impl FaultKind {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 13] = [
        Self::Header,
        Self::Ahs,
        Self::HeaderDigest,
        Self::Data,
        Self::Pad,
        Self::DataDigest,
        Self::Marker,
        Self::Cut,
        Self::HalfClose,
        Self::Silence,
        Self::Stall,
        Self::Lag,
        Self::RefusedDial,
    ];

    /// As the report calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Header => "damaged header",
            Self::Ahs => "damaged additional header",
            Self::HeaderDigest => "damaged header digest",
            Self::Data => "damaged data",
            Self::Pad => "damaged pad",
            Self::DataDigest => "damaged data digest",
            Self::Marker => "damaged marker",
            Self::Cut => "cut",
            Self::HalfClose => "half-close",
            Self::Silence => "silence",
            Self::Stall => "stall",
            Self::Lag => "lag",
            Self::RefusedDial => "refused dial",
        }
    }

    /// The part of a PDU that is damaged.
    pub(crate) fn place(self) -> Option<Place> {
        Some(match self {
            Self::Header => Place::Header,
            Self::Ahs => Place::Ahs,
            Self::HeaderDigest => Place::HeaderDigest,
            Self::Data => Place::Data,
            Self::Pad => Place::Pad,
            Self::DataDigest => Place::DataDigest,
            Self::Marker => Place::Marker,
            _ => return None,
        })
    }

    /// Whether none of its harm goes unnoticed.
    fn is_fair(self, format: Format) -> bool {
        self.place().is_none_or(|place| format.cover(place))
    }
}

/// One fault that is to happen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// In the stream to this side.
    pub(crate) to: Side,
    /// It waits until this number of commands has been issued.
    pub(crate) after: u32,
    /// And until this number of bytes, or parts of PDUs of its kind, has been sent to that side since.
    pub(crate) skip: u64,
}

/// Draws the faults of a run.
pub(crate) fn draw(dice: &mut Dice, format: Format, commands: u32, most: u64) -> Vec<Fault> {
    let kinds: Vec<FaultKind> = FaultKind::ALL.into_iter().filter(|kind| kind.is_fair(format)).collect();
    let count = dice.below(most + 1);
    (0..count)
        .map(|_| {
            let kind = dice.pick(&kinds);
            let to = match kind {
                FaultKind::Ahs | FaultKind::RefusedDial => Side::Target,
                _ => dice.pick(&[Side::Target, Side::Initiator]),
            };
            let skip = match kind {
                FaultKind::RefusedDial => 0,
                _ if kind.place().is_some() => dice.below(12),
                _ => dice.below(20_000),
            };
            // Some come before or during the first login.
            let after = if dice.one_in(6) { 0 } else { dice.below(u64::from(commands)) as u32 };
            Fault { kind, to, after, skip }
        })
        .collect()
}
