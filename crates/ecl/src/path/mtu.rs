//! How long a datagram the path carries: the search of RFC 8899.
//!
//! Probes are packets that carry nothing but their length. What was acknowledged passes; what was lost [`PROBES`] times
//! does not. The first probe is as long as the interface allows, which most paths carry; otherwise the search halves
//! what lies between until it knows the length within [`STEP`] bytes. It begins again after [`RAISE_AFTER`], and when
//! packets vanish that are longer than [`MIN_DATAGRAM_LEN`]: a *black hole*.
//!
//! | state | probes | next |
//! |---|---|---|
//! | the candidate (the interface's length; after a black hole the last one that passed) | up to [`PROBES`] times | passes: settled. Lost: halving |
//! | halving | up to [`PROBES`] times for each length | within [`STEP`]: settled |
//! | settled | none | after [`RAISE_AFTER`], when the interface allows more: the candidate |

use std::time::Duration;

use lunette_session::Time;

use crate::limits::{MAX_DATAGRAM_LEN, MIN_DATAGRAM_LEN};

/// How often a length is probed before it counts as too long: a probe may be lost for other reasons (MAX_PROBES, RFC
/// 8899 section 5.1.2).
pub const PROBES: u32 = 3;

/// The search ends when the length is known within this many bytes.
pub const STEP: usize = 32;

/// How long a length is believed before a longer one is tried (PMTU_RAISE_TIMER, RFC 8899 section 5.1.1).
pub const RAISE_AFTER: Duration = Duration::from_mins(10);

/// Lost packets that make a black hole, when shorter ones pass.
pub const BLACK_HOLE_LOSSES: usize = 3;

/// A change of the length that the path carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Packets may be so long.
    Wider(usize),
    /// Packets must not be longer. Those that were are cut again and sent again.
    Narrower(usize),
}

/// The length of datagrams that the path to the peer carries, and the search for it. All lengths are those of the UDP
/// payload, or of the Ethernet payload: header and payload of a packet.
///
/// It learns from every packet: [`on_acknowledged`](Self::on_acknowledged) and [`on_lost`](Self::on_lost) of those that
/// carry something, [`on_probe_acknowledged`](Self::on_probe_acknowledged) and [`on_probe_lost`](Self::on_probe_lost)
/// of probes. The loss of a probe says nothing about congestion.
#[derive(Debug)]
pub struct PathMtu {
    interface_len: usize,
    /// The longest that has passed.
    passes: usize,
    /// The shortest that does not.
    fails: usize,
    search: Search,
    /// The probe under way.
    probe: Option<usize>,
    /// How many probes of the present length were lost.
    losses: u32,
    black_hole: BlackHole,
}

/// The next probe.
#[derive(Debug, Clone, Copy)]
enum Search {
    /// A length that probably passes.
    Candidate(usize),
    /// The middle between a length that passes and one that does not.
    Halving,
    /// Nothing until then.
    Settled(Time),
}

impl PathMtu {
    /// Begins a search on an interface that takes datagrams of `interface_len` bytes. Until there is a result, the path
    /// carries [`MIN_DATAGRAM_LEN`].
    pub fn new(now: Time, interface_len: usize) -> Self {
        let mut path = Self {
            interface_len: bounded(interface_len),
            passes: MIN_DATAGRAM_LEN,
            fails: MIN_DATAGRAM_LEN + 1,
            search: Search::Halving,
            probe: None,
            losses: 0,
            black_hole: BlackHole::default(),
        };
        path.begin(now, path.interface_len);
        path
    }

    /// The longest packet that may carry something now.
    pub const fn datagram_len(&self) -> usize {
        self.passes
    }

    /// Whether the search has ended, so that [`datagram_len`](Self::datagram_len) is what the path carries and not only
    /// what is known of it.
    pub const fn is_settled(&self) -> bool {
        matches!(self.search, Search::Settled(_))
    }

    /// The length of a probe that is to be sent now, if one is. From then on it is under way: the caller sends it, and
    /// says what became of it.
    pub fn probe_due(&mut self, now: Time) -> Option<usize> {
        if self.probe.is_some() {
            return None;
        }
        if let Search::Settled(since) = self.search
            && now - since >= RAISE_AFTER
        {
            self.begin(now, self.interface_len);
        }
        self.probe = match self.search {
            Search::Candidate(len) => Some(len),
            Search::Halving => Some(usize::midpoint(self.passes, self.fails)),
            Search::Settled(_) => None,
        };
        self.probe
    }

    /// When [`probe_due`](Self::probe_due) is to be called although nothing was acknowledged or lost.
    pub fn next_timeout(&self) -> Option<Time> {
        match self.search {
            Search::Settled(since) => (self.passes < self.interface_len).then(|| since + RAISE_AFTER),
            _ => None,
        }
    }

    /// A probe of `len` bytes was acknowledged.
    pub fn on_probe_acknowledged(&mut self, now: Time, len: usize) -> Option<Change> {
        if self.probe.take_if(|probe| *probe == len).is_none() || len <= self.passes {
            return None;
        }
        self.passes = len;
        self.black_hole = BlackHole::default();
        self.next(now);
        Some(Change::Wider(len))
    }

    /// A probe of `len` bytes was lost.
    pub fn on_probe_lost(&mut self, now: Time, len: usize) {
        if self.probe.take_if(|probe| *probe == len).is_none() {
            return;
        }
        self.losses += 1;
        if self.losses >= PROBES {
            self.fails = len;
            self.next(now);
        }
    }

    /// A packet that carried something was acknowledged.
    pub fn on_acknowledged(&mut self, now: Time, packet_number: u64, len: usize) -> Option<Change> {
        self.black_hole.on_acknowledged(packet_number, len, self.passes);
        self.check_black_hole(now)
    }

    /// A packet that carried something was lost. Losses are told in the order of their numbers.
    pub fn on_lost(&mut self, now: Time, packet_number: u64, len: usize) -> Option<Change> {
        if len <= self.passes {
            self.black_hole.on_lost(packet_number, len);
        }
        self.check_black_hole(now)
    }

    /// The interface has refused a datagram of `len` bytes. This is certain, so it holds at once. It does not say what
    /// would pass: the search goes on below.
    pub fn on_refused(&mut self, now: Time, len: usize) -> Option<Change> {
        let len = len.max(MIN_DATAGRAM_LEN + 1);
        if len >= self.fails {
            return None;
        }
        let before = self.passes;
        self.fails = len;
        if len <= before {
            self.passes = MIN_DATAGRAM_LEN;
        }
        self.next(now);
        (self.passes < before).then_some(Change::Narrower(self.passes))
    }

    /// Begins a search for what lies between what passes and `candidate`.
    fn begin(&mut self, now: Time, candidate: usize) {
        self.fails = candidate + 1;
        self.search = Search::Candidate(candidate);
        self.probe = None;
        self.losses = 0;
        if candidate == self.passes {
            self.next(now);
        }
    }

    /// Goes on after a result.
    fn next(&mut self, now: Time) {
        self.probe = None;
        self.losses = 0;
        let is_settled = self.fails - self.passes <= STEP;
        self.search = if is_settled { Search::Settled(now) } else { Search::Halving };
    }

    fn check_black_hole(&mut self, now: Time) -> Option<Change> {
        if !self.black_hole.is_found() || self.passes == MIN_DATAGRAM_LEN {
            return None;
        }
        self.black_hole = BlackHole::default();
        let candidate = std::mem::replace(&mut self.passes, MIN_DATAGRAM_LEN);
        self.begin(now, candidate);
        Some(Change::Narrower(MIN_DATAGRAM_LEN))
    }
}

fn bounded(len: usize) -> usize {
    len.clamp(MIN_DATAGRAM_LEN, MAX_DATAGRAM_LEN)
}

/// Evidence that long packets vanish while short ones pass (RFC 8899 section 4.3). A packet is *short* when it is no
/// longer than [`MIN_DATAGRAM_LEN`]; of a long one that was lost is suspected that it was too long, until one as long,
/// and sent later, has passed.
#[derive(Debug, Default)]
struct BlackHole {
    /// Lost long packets, which suggest a black hole.
    lost: usize,
    /// The number of the first one.
    first: u64,
    /// The length of the shortest one.
    shortest: usize,
    /// One more than the largest number of a packet of full length that has passed, and of a short one.
    full_passed: u64,
    short_passed: u64,
}

impl BlackHole {
    fn on_lost(&mut self, packet_number: u64, len: usize) {
        if len <= MIN_DATAGRAM_LEN || packet_number < self.full_passed {
            return;
        }
        if self.lost == 0 {
            (self.first, self.shortest) = (packet_number, len);
        }
        self.lost += 1;
        self.shortest = self.shortest.min(len);
    }

    fn on_acknowledged(&mut self, packet_number: u64, len: usize, full: usize) {
        let passed = packet_number.saturating_add(1);
        if len <= MIN_DATAGRAM_LEN {
            self.short_passed = self.short_passed.max(passed);
        }
        if len >= full {
            self.full_passed = self.full_passed.max(passed);
        }
        if self.lost > 0 && len >= self.shortest && packet_number > self.first {
            self.lost = 0;
        }
    }

    const fn is_found(&self) -> bool {
        self.lost >= BLACK_HOLE_LOSSES && self.short_passed > self.first
    }
}

#[cfg(test)]
mod tests;
