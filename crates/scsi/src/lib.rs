//! SCSI bytes: LUNs, CDBs, sense data, INQUIRY data, VPD, mode and log pages, parameter lists.
//!
//! Layer 0: over no other crate; under device, iscsi-initiator, iscsi-target, lunette, testkit.
//!
//! The crate decodes bytes to checked values and encodes values to bytes, for a device server and for an initiator
//! ([`requests`] encodes CDBs, [`answers`] parses Data-In). It has no state, does no I/O, and knows neither stores nor
//! sessions.
//!
//! # Contract
//!
//! - No input panics. Bytes that cannot be decoded end in an error that names the bad field ([`FieldPointer`]), which
//!   the device server puts into the sense data.
//! - Unknown codes are kept: [`OpCode`], [`AdditionalSense`] and [`Lun`] print what they hold.
//! - Multi-byte fields are big-endian, as everywhere in SCSI.
//! - Names are those of SAM-5, SPC-5 and SBC-4.
//!
//! ```
//! use lunette_scsi::{AdditionalSense, FieldPointer, SenseData, SenseFormat, requests};
//!
//! let cdb = requests::read(0x1234, 8, false);
//! assert_eq!((cdb[0], cdb[4], cdb[5], cdb[8]), (0x28, 0x12, 0x34, 8));
//!
//! let sense = SenseData::illegal_request(AdditionalSense::LBA_OUT_OF_RANGE).with_field(FieldPointer::cdb(2));
//! let bytes = sense.encode(SenseFormat::Fixed);
//! assert_eq!((bytes[0], bytes[2], bytes[12]), (0x70, 0x05, 0x21));
//! assert_eq!(SenseData::decode(&bytes), Ok(sense));
//! ```

#![forbid(unsafe_code)]

pub mod answers;
mod attribute;
pub mod capacity;
mod cdb;
pub mod copy;
pub mod defects;
mod designator;
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
