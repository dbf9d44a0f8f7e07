//! The cluster, as far as the servers share something there.

use std::io;
use std::time::Duration;

/// The answer of a server to a question of another one. It is called without a question when the server hears
/// questions again.
pub type Answered = Box<dyn Fn(Option<&[u8]>) -> Vec<u8> + Send + Sync>;

/// The place of the configuration that all servers share, and the way to ask them. All methods may wait.
pub trait Cluster: Send + Sync + 'static {
    /// The value and its version; an empty one with version 0 before the first.
    ///
    /// # Errors
    ///
    /// When the cluster does not answer.
    fn read(&self) -> io::Result<(u64, Vec<u8>)>;

    /// Replaces the value of this version by the next one. Whether it still had that version.
    ///
    /// # Errors
    ///
    /// When the cluster does not answer. Then the value may be replaced later.
    fn replace(&self, version: u64, value: &[u8]) -> io::Result<bool>;

    /// Asks all servers, this one among them. The answers that came within `limit`.
    ///
    /// # Errors
    ///
    /// When the cluster does not answer.
    fn ask(&self, question: &[u8], limit: Duration) -> io::Result<Vec<Vec<u8>>>;

    /// The name of an image for the API.
    fn disk(&self, pool: &str, image: &str) -> String;

    /// Whether there is an image of this name.
    ///
    /// # Errors
    ///
    /// When it cannot be opened for another reason, or several servers could not share it.
    fn has_image(&self, pool: &str, image: &str) -> io::Result<bool>;
}
