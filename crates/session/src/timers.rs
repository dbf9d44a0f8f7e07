//! How long each side is patient.

use std::time::Duration;

use crate::limits::LOGIN_TIMEOUT;

/// How long to wait for what.
#[derive(Debug, Clone, Copy)]
pub struct Timers {
    /// For the whole login.
    pub login: Duration,
    /// Of silence before the peer is asked whether it is there.
    pub ping_after: Duration,
    /// For its answer.
    pub ping_answer: Duration,
    /// For what was lost to come again, from recovery level 1 on, before it is asked for once more.
    pub resend: Duration,
    /// Between two looks at whether data phases make progress (the target's side). One without is ended at the second look after it
    /// began to stand still, so after twice this time at most; the connection at the third.
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
