//! A model of iSCSI over a distance: what a path carries, what limits it, and which settings lift that limit.
//!
//! Layer 0: over no other crate; under lunette.
//!
//! The crate is arithmetic, without I/O, clock or dependency. The laboratory compares it with measurements, the tuner
//! finds settings with it, and the clients size their load in flight.
//!
//! # The closed form
//!
//! A session that keeps `W` requests of `S` bytes in flight moves
//!
//! ```text
//!                       W × S
//! ───────────────────────────────────────────────   bytes per second,
//! serialisation(S) + trips × round trip + latency
//! ```
//!
//! as long as that is less than each of the limits that do not depend on `W`:
//!
//! - the **line**: its rate, less what headers of iSCSI, TCP and IP take of it;
//! - **TCP**: the bytes that socket buffers and the congestion window under loss allow in one round trip, times the
//!   number of connections;
//! - the **target**: the commands that it answers in a second.
//!
//! `trips` is 1 for reads and for writes whose data is all unsolicited. Each round of R2Ts adds 1: a round asks for at
//! most MaxBurstLength × MaxOutstandingR2T bytes (RFC 7143 sections 13.13 and 13.17). A target sends the first R2T when
//! the command arrives. Up to a round trip of it passes while the unsolicited data is on the line, and does not count.
//! [`predict`] computes it and names the limit that holds.
//!
//! # Example
//!
//! One request of 64 KiB at a time over 50 ms moves 1.3 MB/s, whatever the line could carry:
//!
//! ```
//! use std::time::Duration;
//!
//! use lunette_tuning::{Limit, Path, Settings, Target, Transfer, predict};
//!
//! let path = Path { rate: 155e6 / 8.0, round_trip: Duration::from_millis(50), ..Path::default() };
//! let settings = Settings { request_len: 64 << 10, depth: 1, ..Settings::default() };
//! let prediction = predict(&path, &Target::default(), &settings, Transfer::Read);
//! assert_eq!(prediction.limit, Limit::InFlight);
//! assert!((1.2e6..1.3e6).contains(&prediction.bytes_per_second));
//! ```

#![forbid(unsafe_code)]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a model in floating point: lengths and counts lie far below 2^52, and nothing that is cast back is negative"
)]

mod in_flight;
mod model;
mod path;
mod search;
mod settings;
mod tcp;
mod tuner;

pub use in_flight::InFlight;
pub use model::{Limit, Prediction, predict};
pub use path::{CongestionControl, Path, Target};
pub use search::{Bounds, recommend};
pub use settings::{Settings, Transfer};
pub use tuner::{Candidate, Evidence, MAX_TRIALS, Rates, Stage, Survey, Trial, Tuner, Verdict, estimate};
