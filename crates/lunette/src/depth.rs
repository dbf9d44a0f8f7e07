//! How many requests a command keeps in flight.

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
}
