//! SCSI bytes: logical unit numbers, CDBs, sense data, INQUIRY, VPD and mode pages, parameter lists.
//!
//! Floor 1 of the house. The crate turns bytes into checked values and values into bytes. It has no state, does no I/O and
//! knows neither stores nor sessions, so a device server and an initiator can both build on it.
//!
//! # The contract
//!
//! - No input panics. What cannot be read ends in an error that says which field is bad ([`FieldPointer`]), so that the
//!   device server can put the field into the sense data.
//! - Unknown values are kept, not lost: [`OpCode`], [`AdditionalSense`] and [`Lun`] print what they hold.
//! - Multi-byte fields are big-endian, as everywhere in SCSI.
//!
//! Names are those of SAM-5, SPC-5 and SBC-4.
//!
//! ```
//! use lunette_scsi::{AdditionalSense, SenseData, SenseFormat};
//!
//! let sense = SenseData::illegal_request(AdditionalSense::LBA_OUT_OF_RANGE);
//! let bytes = sense.encode(SenseFormat::Fixed);
//! assert_eq!((bytes[0], bytes[2], bytes[12]), (0x70, 0x05, 0x21));
//! ```

#![forbid(unsafe_code)]

pub mod answers;
mod attribute;
pub mod capacity;
mod cdb;
pub mod copy;
pub mod defects;
pub mod inquiry;
pub mod lba_status;
pub mod log;
mod lun;
pub mod mode;
mod opcode;
pub mod persistent;
pub mod port_groups;
pub mod report;
pub mod requests;
pub mod sanitize;
mod sense;
mod status;
pub mod unmap;
pub mod vpd;

pub use attribute::TaskAttribute;
pub use cdb::{BlockCdb, Cdb, CdbTooLong, MAX_CDB_LEN, check_additional_len, check_usage};
pub use lun::{Lun, MAX_FLAT_LUN};
pub use opcode::{OpCode, ServiceAction};
pub use sense::{
    AdditionalSense, EncodedSense, FieldPointer, MAX_SENSE_LEN, PointedArea, SenseData, SenseError, SenseFormat,
    SenseKey,
};
pub use status::Status;
