//! Text: the `key=value` lists of Login and Text PDUs (RFC 7143, section 6).
//!
//! [`pairs`] reads a list and [`TextWriter`] makes one. The `parse_` and `format_` functions read and write the kinds
//! of values. A list may be spread over several PDUs: [`TextAssembler`] assembles it, [`split_text`] cuts it.
//! [`printable`] makes a peer's values fit for terminals and logs. The keys and their meanings are the session's
//! concern.

mod continuation;
mod pairs;
mod printable;
mod values;
mod writer;

pub use continuation::{TextAssembler, split_text};
pub use pairs::{Pairs, TextError, pairs};
pub use printable::printable;
pub use values::{
    ValueError, format_binary, format_boolean, format_range, parse_binary, parse_boolean, parse_list, parse_number,
    parse_range,
};
pub use writer::TextWriter;

/// The longest key, in bytes (RFC 7143, 6.1).
pub const MAX_KEY_LEN: usize = 63;

/// The longest value, in bytes. RFC 7143, 6.1 grants a value 255 bytes unless its key says otherwise, and 6.2 has each
/// side take 8192 bytes of keys in a negotiation: no value on which a peer may rely is longer than this.
pub const MAX_VALUE_LEN: usize = 8192;
