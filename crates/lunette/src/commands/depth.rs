//! How many requests a command keeps in flight.

use lunette_tuning::InFlight;

/// Bytes that a command puts in flight before it has measured anything, if it finds the number of requests by itself:
/// what a line of 155 Mb/s carries in 50 ms. TCP lets them out as fast as it trusts the path.
const START_BYTES: usize = 1 << 20;

/// Bytes that a command keeps in flight even on a path without delay: eight requests of 256 KiB, with which a copy
/// within a machine was as fast as with more, and took less CPU time than with four.
const LEAST_BYTES: usize = 2 << 20;

/// The number of requests in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The number that the user gives.
    Given(usize),
    /// The number that fills the path, at most this one; measured on the way.
    Measured(usize),
}

impl Depth {
    /// The most requests that are ever in flight.
    pub(crate) fn most(self) -> usize {
        let (Self::Given(most) | Self::Measured(most)) = self;
        most
    }

    /// The fewest requests of `request_len` bytes that the command keeps in flight. With fewer than four a core is idle
    /// that could prepare the next request, even on a path without delay; short ones need twice as many.
    fn least(self, request_len: usize) -> usize {
        match self {
            Self::Given(depth) => depth,
            Self::Measured(most) => (LEAST_BYTES / request_len.max(1)).clamp(4, 8).min(most),
        }
    }

    /// The rule that finds the number, for requests of `request_len` bytes.
    pub(crate) fn rule<const KINDS: usize>(self, request_len: usize) -> InFlight<KINDS> {
        InFlight::starting_with(START_BYTES / request_len.max(1), self.least(request_len)..=self.most())
    }
}
