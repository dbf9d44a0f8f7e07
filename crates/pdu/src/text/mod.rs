//! Text: the `key=value` lists of Login and Text PDUs (RFC 7143, section 6).
//!
//! [`pairs`] reads a list and [`TextWriter`] makes one. [`values`] reads and writes the kinds of
//! values. A list may be spread over several PDUs: [`TextAssembler`] puts one together, [`split_text`]
//! cuts one. What keys there are and what they mean is for the session.

mod continuation;
mod pairs;
pub mod values;
mod writer;

pub use continuation::{TextAssembler, TextSegment, TextSegments, split_text};
pub use pairs::{Pairs, TextError, pairs};
pub use writer::TextWriter;

/// Most bytes in a key (RFC 7143, 6.1).
pub const MAX_KEY_LEN: usize = 63;

/// Most bytes in a value. RFC 7143, 6.1 requires 255 unless a key says otherwise; the longest that
/// one says is 8192, for SPKM and Kerberos tokens and lists of addresses.
pub const MAX_VALUE_LEN: usize = 8192;
