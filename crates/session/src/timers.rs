//! The time limits of connections.

use std::time::Duration;

use crate::limits::LOGIN_TIMEOUT;

/// The time limits of a connection, on either side.
#[derive(Debug, Clone, Copy)]
pub struct Timers {
    /// The time limit for the whole login.
    pub login: Duration,
    /// The time without a PDU after which the peer is pinged (NOP-In or NOP-Out).
    pub ping_after: Duration,
    /// The time limit for the answer to a ping; then the connection is closed.
    pub ping_answer: Duration,
    /// The time after which a PDU that was lost is requested again, from recovery level 1 on.
    pub resend: Duration,
    /// The interval at which the target checks whether data phases make progress. One that has stalled is ended at the
    /// second check, so after twice this time at most; its connection at the third.
    pub progress: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            login: LOGIN_TIMEOUT,
            ping_after: Duration::from_secs(30),
            ping_answer: Duration::from_secs(30),
            resend: Duration::from_secs(5),
            progress: Duration::from_secs(30),
        }
    }
}
