//! The bounds of what is read from outside. Administrators alone reach them, and no peer of the server.

use std::time::Duration;

/// The longest line of a script, and the longest command of arguments.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// The longest script on standard input.
pub const MAX_SCRIPT_BYTES: usize = 4 << 20;

/// The longest file with what LIO has and the server has not.
pub const MAX_STATE_BYTES: usize = 64 << 20;

/// The longest `saveconfig.json`.
pub const MAX_SAVED_BYTES: usize = 64 << 20;

/// The longest file of a CHAP secret.
pub const MAX_SECRET_BYTES: usize = 4096;

/// The highest number of a logical unit of a target.
pub const MAX_LUN: u16 = 16_383;

/// The highest number under which an initiator sees a logical unit, as in LIO.
pub const MAX_MAPPED_LUN: u16 = 255;

/// The longest name of a storage object.
pub const MAX_NAME_BYTES: usize = 200;

/// How often a command is repeated because another client has changed the same objects meanwhile.
pub const MAX_ATTEMPTS: usize = 8;

/// The time that the server has for a request.
pub const API_TIMEOUT: Duration = Duration::from_mins(3);

/// The time for which another program is waited for. It may wait for the server itself.
pub const LOCK_TIMEOUT: Duration = Duration::from_mins(5);
