//! The bounds of the console. `docs/limits.md` has a row with a test for each.

use std::time::Duration;

/// Logins that are kept at once. One more ends the oldest.
pub const MAX_LOGINS: usize = 64;

/// How long a login holds.
pub const LOGIN_LIFETIME: Duration = Duration::from_hours(12);

/// The longest form of a login.
pub const MAX_LOGIN_BYTES: usize = 4096;

/// Rows of a list on one page. A filter finds the others.
pub const MAX_ROWS: usize = 200;

/// Logical units whose numbers a browser gets, those with the most commands first. Their sum covers all.
pub const MAX_CHARTED_LUNS: usize = 256;
