//! Random bytes, given from outside so that tests decide them.

use std::io;
use std::sync::Arc;

/// Fills a buffer with bytes that nobody can guess.
pub type Entropy = Arc<dyn Fn(&mut [u8]) -> io::Result<()> + Send + Sync>;

/// The random numbers of the system.
pub fn system_entropy() -> Entropy {
    Arc::new(|bytes| getrandom::fill(bytes).map_err(io::Error::other))
}
