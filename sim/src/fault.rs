//! The faults of the network for streams and datagrams, beside being slow.

use crate::Transport;
use crate::dice::Dice;
use crate::frames::{Format, Place};
use crate::wire::Side;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A byte of a basic header segment, or of the header of a record or datagram, is another one.
    Header,
    /// A byte of an additional header segment is another one.
    Ahs,
    /// A byte of a header digest is another one.
    HeaderDigest,
    /// A byte of a data segment, or of the body of a record or datagram, is another one.
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
    /// A few datagrams, one behind the other, do not arrive.
    Lost,
    /// A datagram arrives several times.
    Repeated,
    /// A datagram arrives long after those behind it.
    Overtaken,
    /// A datagram is cut short, or longer than it was.
    Length,
    /// One direction loses everything for a while.
    Blocked,
    /// All that one association sends and all that is sent to it is lost from now on: for the target, a client that has
    /// gone without a word.
    Vanished,
    /// The path carries only shorter datagrams than before, and the network does not say so.
    Narrow,
    /// The sender's interface carries only shorter datagrams than before, and the system says so.
    NarrowInterface,
    /// The path carries what it carried at first.
    Wide,
    /// The initiator has another address: another port, or another host.
    Moved,
    /// A datagram reaches the target from the address of an attacker, and not from that of its sender.
    Stolen,
    /// A few datagrams meet congestion (ECN's CE).
    Marked,
    /// An attacker makes datagrams up.
    Forged,
    /// An attacker sends datagrams of the past again, from their own address or from another one.
    Replayed,
    /// A datagram goes to its sender.
    Reflected,
    /// An attacker sends Initial packets from addresses that are not its own.
    Flood,
    /// An attacker begins handshakes from addresses of its own, and does not finish them.
    HalfOpen,
    /// The network says that the port of the target is not there.
    Unreachable,
}

/// Bytes of a handshake of TLS in each direction, and a little more.
const HANDSHAKE_BYTES: u64 = 2500;

/// The faults of streams, in the order of the report.
const OF_STREAMS: [FaultKind; 13] = [
    FaultKind::Header,
    FaultKind::Ahs,
    FaultKind::HeaderDigest,
    FaultKind::Data,
    FaultKind::Pad,
    FaultKind::DataDigest,
    FaultKind::Marker,
    FaultKind::Cut,
    FaultKind::HalfClose,
    FaultKind::Silence,
    FaultKind::Stall,
    FaultKind::Lag,
    FaultKind::RefusedDial,
];

/// The faults of streams within TLS, in the order of the report.
const OF_TLS: [FaultKind; 8] = [
    FaultKind::Header,
    FaultKind::Data,
    FaultKind::Cut,
    FaultKind::HalfClose,
    FaultKind::Silence,
    FaultKind::Stall,
    FaultKind::Lag,
    FaultKind::RefusedDial,
];

/// The faults of datagrams, in the order of the report.
const OF_DATAGRAMS: [FaultKind; 23] = [
    FaultKind::Lost,
    FaultKind::Repeated,
    FaultKind::Overtaken,
    FaultKind::Header,
    FaultKind::Data,
    FaultKind::Length,
    FaultKind::Lag,
    FaultKind::Stall,
    FaultKind::Blocked,
    FaultKind::Silence,
    FaultKind::Vanished,
    FaultKind::Narrow,
    FaultKind::NarrowInterface,
    FaultKind::Wide,
    FaultKind::Moved,
    FaultKind::Stolen,
    FaultKind::Marked,
    FaultKind::Forged,
    FaultKind::Replayed,
    FaultKind::Reflected,
    FaultKind::Flood,
    FaultKind::HalfOpen,
    FaultKind::Unreachable,
];

impl FaultKind {
    /// The faults of a transport, in the order of the report.
    pub fn of(transport: Transport) -> &'static [Self] {
        match transport {
            Transport::Tcp => &OF_STREAMS,
            Transport::Tls => &OF_TLS,
            Transport::Ecl => &OF_DATAGRAMS,
        }
    }

    /// The name in the report.
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
            Self::Lost => "lost",
            Self::Repeated => "repeated",
            Self::Overtaken => "overtaken",
            Self::Length => "another length",
            Self::Blocked => "blocked direction",
            Self::Vanished => "client gone without a word",
            Self::Narrow => "narrower path",
            Self::NarrowInterface => "narrower interface",
            Self::Wide => "wide path again",
            Self::Moved => "another client address",
            Self::Stolen => "stolen datagram",
            Self::Marked => "congestion mark",
            Self::Forged => "forged",
            Self::Replayed => "replayed",
            Self::Reflected => "reflected",
            Self::Flood => "flood of spoofed handshakes",
            Self::HalfOpen => "unfinished handshakes",
            Self::Unreachable => "port unreachable",
        }
    }

    /// The part of a PDU or of a record that is damaged.
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
    /// In what goes to this side.
    pub(crate) to: Side,
    /// The number of issued commands for which it waits.
    pub(crate) after: u32,
    /// The number of bytes, of parts of PDUs or records of its kind, or of datagrams to that side for which it waits
    /// then.
    pub(crate) skip: u64,
}

/// Draws the faults of a run over streams.
pub(crate) fn draw(dice: &mut Dice, format: Format, commands: u32, most: u64) -> Vec<Fault> {
    let kinds: Vec<FaultKind> = OF_STREAMS.into_iter().filter(|kind| kind.is_fair(format)).collect();
    let count = dice.below(most + 1);
    let mut one = || {
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
        Fault { kind, to, after: after(dice, commands), skip }
    };
    (0..count).map(|_| one()).collect()
}

/// Draws the faults of a run within TLS. Many of them strike a handshake, which a connection begins with.
pub(crate) fn draw_of_tls(dice: &mut Dice, commands: u32, most: u64) -> Vec<Fault> {
    let count = dice.below(most + 1);
    let mut one = || {
        let kind = dice.pick(&OF_TLS);
        let to = match kind {
            FaultKind::RefusedDial => Side::Target,
            _ => dice.pick(&[Side::Target, Side::Initiator]),
        };
        let skip = match kind {
            FaultKind::RefusedDial => 0,
            _ if kind.place().is_some() => dice.below(12),
            _ if dice.coin() => dice.below(HANDSHAKE_BYTES),
            _ => dice.below(20_000),
        };
        Fault { kind, to, after: after(dice, commands), skip }
    };
    (0..count).map(|_| one()).collect()
}

/// Draws the faults of a run over datagrams.
pub(crate) fn draw_of_datagrams(dice: &mut Dice, commands: u32, most: u64) -> Vec<Fault> {
    let count = dice.below(most + 1);
    let mut one = || {
        let kind = dice.pick(&OF_DATAGRAMS);
        let to = match kind {
            FaultKind::Moved | FaultKind::Stolen | FaultKind::Flood | FaultKind::HalfOpen | FaultKind::Unreachable => {
                Side::Target
            }
            _ => dice.pick(&[Side::Target, Side::Initiator]),
        };
        Fault { kind, to, after: after(dice, commands), skip: dice.below(40) }
    };
    (0..count).map(|_| one()).collect()
}

/// Some come before or during the first login.
fn after(dice: &mut Dice, commands: u32) -> u32 {
    if dice.one_in(6) { 0 } else { dice.below(u64::from(commands)) as u32 }
}
