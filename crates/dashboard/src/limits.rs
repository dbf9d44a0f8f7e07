//! The bounds of what a client of the calls can ask for.

use std::time::Duration;

/// The longest body of a request.
pub const MAX_FORM_BYTES: usize = 256 << 10;

/// The fields of a form.
pub const MAX_FIELDS: usize = 32;

/// The longest configuration of all gateways. The cluster has two of them while one is changed.
pub const MAX_DOCUMENT_BYTES: usize = 3 << 19;

/// The time in which all gateways say how they are.
pub const STATE_LIMIT: Duration = Duration::from_secs(5);

/// The time in which all gateways have made a change. The dashboard gives up a call after 45 s.
pub const FOLLOW_LIMIT: Duration = Duration::from_secs(25);

/// The time in which they have gone back from it. Those that are later try again by themselves.
pub const BACK_LIMIT: Duration = Duration::from_secs(10);

/// The time in which the gateways of a target let go of its images.
pub const REMAKE_LIMIT: Duration = Duration::from_secs(10);

/// The time between two attempts to make a target again.
pub const REMAKE_PAUSE: Duration = Duration::from_secs(2);

/// The time that a change waits for those of other gateways.
pub const CHANGE_WAIT: Duration = Duration::from_secs(30);

/// The time between two looks at the change of another gateway.
pub const CHANGE_PAUSE: Duration = Duration::from_secs(1);

/// The attempts of a change that other gateways are faster with.
pub const MAX_ATTEMPTS: usize = 8;

/// The longest serial number that a client may give a disk.
pub const MAX_SERIAL_BYTES: usize = 64;

/// The LUNs of a target.
pub const MAX_LUNS: u16 = 256;

/// The longest name of a gateway, group, pool or image.
pub const MAX_NAME_BYTES: usize = 223;

/// The file with what a gateway has made, as far as it is read and written.
pub const MAX_BOOK_BYTES: usize = 4 << 20;

/// The secrets that a gateway keeps in files.
pub const MAX_SECRETS: usize = 4096;
