//! The outside of an event loop: connections to portals, and random numbers.

use std::io;
use std::sync::Arc;

use lunette_reactor::{Address, Stream};

use crate::options::Options;
use crate::portal::Portal;

/// The outside of an event loop.
pub(crate) struct Host {
    pub(crate) dialer: Arc<dyn Dialer>,
    pub(crate) entropy: RandomBytes,
}

/// Fills a buffer with random bytes.
pub type RandomBytes = Arc<dyn Fn(&mut [u8]) -> io::Result<()> + Send + Sync>;

/// Makes connections to portals, and reports each attempt once.
pub(crate) trait Dialer: Send + Sync {
    /// Begins to connect to `portal`, as `options` say. Does not wait.
    fn dial(&self, portal: Portal, options: &Options, report: Report);
}

/// The receiver of the outcome of an attempt to connect.
pub(crate) type Report = Box<dyn FnOnce(io::Result<Wire>) + Send>;

/// The result of an attempt.
pub(crate) enum Wire {
    /// A connection.
    Tcp(Stream),
    /// Where an association is to be begun.
    Ecl(Address),
}
