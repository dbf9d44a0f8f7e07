//! iSCSI bytes: headers, additional header segments and text keys.
//!
//! Layer 0: over no other crate; under ecl, ecl-endpoint, iscsi-initiator, iscsi-target, lunette, session, testkit,
//! tunnel.
//!
//! `session` gives these bytes a meaning over time. This crate does no I/O, keeps no state between PDUs, and does not
//! know the negotiated keys.
//!
//! # Contract
//!
//! * Two tiers. [`Bhs`] is a view over the 48 bytes of a basic header segment with the fields that
//!   every PDU has. A struct per PDU, such as [`ScsiCommand`], has the rest by the names of RFC 7143,
//!   with `parse(&Bhs)` and `emit()`. [`InitiatorPdu`] and [`TargetPdu`] choose the struct by opcode.
//! * No input makes this crate panic. Header codecs do not allocate; text codecs allocate no more
//!   than a limit that the caller names.
//! * Reserved bits are ignored when read and zero when written. A PDU is refused only where the RFC calls it an error;
//!   whether it is welcome *now* is for the session to decide.
//! * Protocol numbers without a name here are kept: `Opcode(0x2b)` prints as it is written.
//!
//! The layouts are those of RFC 7143 section 11, with the command priority, status qualifier and
//! task management functions that RFC 7144 adds.
//!
//! # Example
//!
//! ```
//! use lunette_pdu::{Bhs, InitiatorPdu, InitiatorTaskTag, LunField, NopOut, SerialNumber, TargetTransferTag};
//!
//! let ping = NopOut {
//!     immediate: true,
//!     lun: LunField::default(),
//!     itt: InitiatorTaskTag(7),
//!     ttt: TargetTransferTag::RESERVED,
//!     cmd_sn: SerialNumber(1),
//!     exp_stat_sn: SerialNumber(2),
//!     data_segment_len: 0,
//! };
//! let bhs = Bhs::from(ping.emit());
//! assert_eq!(InitiatorPdu::parse(&bhs), Ok(InitiatorPdu::NopOut(ping)));
//! ```
#![forbid(unsafe_code)]

mod codes;

mod ahs;
mod bhs;
mod error;
mod header;
mod ids;
mod opcode;
pub mod sense;
pub mod text;

pub use ahs::{Ahs, AhsError, AhsIter};
pub use bhs::Bhs;
pub use error::PduError;
pub use header::*;
pub use ids::{Cid, InitiatorTaskTag, Isid, IsidType, LunField, SerialNumber, TargetTransferTag, Tsih};
pub use opcode::Opcode;

/// The length of a basic header segment, in bytes (RFC 7143, 11.2.1).
pub const BHS_LEN: usize = 48;

/// The length of a header or data digest, in bytes (RFC 7143, 11.2.3).
pub const DIGEST_LEN: usize = 4;

/// The most bytes that all additional header segments of a PDU take: `TotalAHSLength` counts up to 255 four-byte words
/// (RFC 7143, 11.2.1.5).
pub const MAX_AHS_LEN: usize = 255 * 4;

/// The most bytes in a data segment, not counting its pad: `DataSegmentLength` has 24 bits (RFC 7143, 11.2.1.6).
pub const MAX_DATA_SEGMENT_LEN: usize = 0xff_ffff;

/// The number of pad bytes that follow a segment of `len` bytes: segments end on a four-byte boundary (RFC 7143, 11.1).
///
/// ```
/// assert_eq!(lunette_pdu::pad_len(5), 3);
/// assert_eq!(lunette_pdu::pad_len(8), 0);
/// ```
pub const fn pad_len(len: usize) -> usize {
    len.wrapping_neg() & 3
}
