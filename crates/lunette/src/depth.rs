//! How many requests a command keeps in flight.

use lunette_tuning::InFlight;

/// Bytes that a command puts in flight before it has measured anything, if it finds the number of requests by itself: what a line of
/// 155 Mb/s carries in 50 ms. TCP lets them out as fast as it trusts the path.
const START_BYTES: usize = 1 << 20;

/// The number of requests in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// As many as the user says.
    Given(usize),
    /// As many as fill the path, at most this many; measured on the way.
    Measured(usize),
}

impl Depth {
    /// The most requests that are ever in flight.
    pub(crate) fn most(self) -> usize {
        let (Self::Given(most) | Self::Measured(most)) = self;
        most
    }

    /// The number that the command begins with. Fewer than four leave a core idle that could prepare the next request, even on a
    /// path without delay.
    pub(crate) fn least(self) -> usize {
        match self {
            Self::Given(depth) => depth,
            Self::Measured(most) => most.min(4),
        }
    }

    /// The rule that finds the number, for requests of `request_len` bytes.
    pub(crate) fn rule<const KINDS: usize>(self, request_len: usize) -> InFlight<KINDS> {
        InFlight::starting_with(START_BYTES / request_len.max(1), self.least()..=self.most())
    }
}
