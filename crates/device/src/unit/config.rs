//! What a logical unit is made of, and whether it can be served.

use std::sync::Arc;

use lunette_state::{StateError, StateStore};
use lunette_store::{Geometry, Store};

use crate::environment::{Clock, system_clock};
use crate::environment::{Entropy, system_entropy};
use crate::limits::SANITIZE_WRITE_BYTES;

/// VENDOR IDENTIFICATION when none is given.
pub const DEFAULT_VENDOR: &str = "LUNETTE";
/// PRODUCT IDENTIFICATION when none is given.
pub const DEFAULT_PRODUCT: &str = "DISK";
/// PRODUCT REVISION LEVEL when none is given.
pub const DEFAULT_REVISION: &str = "0001";

/// Bytes of VENDOR IDENTIFICATION, PRODUCT IDENTIFICATION and PRODUCT REVISION LEVEL (SPC-5 6.6.2).
const VENDOR_LEN: usize = 8;
const PRODUCT_LEN: usize = 16;
const REVISION_LEN: usize = 4;
/// Bytes of a serial number: what fits into the T10 vendor ID designator beside vendor and product, with room to spare.
const MAX_SERIAL_LEN: usize = 200;

/// The slowest pace of a sanitize operation, in bytes per second: a chunk per second.
pub const MIN_SANITIZE_RATE: u64 = SANITIZE_WRITE_BYTES as u64;

/// What a logical unit is made of.
#[derive(Clone)]
pub struct LogicalUnitConfig {
    /// Where the blocks live.
    pub store: Arc<dyn Store>,
    /// Bytes of a logical block: 512 or 4096.
    pub block_size: u32,
    /// Refuse writes, whether or not the store could take them.
    pub read_only: bool,
    /// Initiators may take the medium out (START STOP UNIT), and must then do without it until it is loaded again.
    pub removable: bool,
    /// Initiators are told when the store has not more than so many bytes left: a soft threshold, in MiB rounded down.
    pub soft_threshold_bytes: Option<u64>,
    /// How many bytes per second a sanitize operation overwrites at most, so that it leaves some of the medium's speed to
    /// others; at least [`MIN_SANITIZE_RATE`].
    pub sanitize_rate: Option<u64>,
    /// Take 32-byte CDBs too. SBC-4 wants most of them on media with type 2 protection information only, and what asks a
    /// disk for its commands may not expect any this long.
    pub long_cdbs: bool,
    /// Long reads are sent out of the store's file, where the store and the transport can do that. A byte that is written while
    /// a read of it is under way may be sent as it was or as it is, and change when it has to be sent again.
    pub zero_copy: bool,
    /// Stable identity: printable ASCII, 1 to 200 bytes. Designators that name the unit worldwide are derived from it, so
    /// two units with one serial number are one unit to an initiator.
    pub serial: String,
    /// Printable ASCII, up to 8 bytes.
    pub vendor: String,
    /// Printable ASCII, up to 16 bytes.
    pub product: String,
    /// Printable ASCII, up to 4 bytes.
    pub revision: String,
    /// The time of day, for time stamps.
    pub clock: Clock,
    /// Random bytes, for ROD tokens.
    pub entropy: Entropy,
    /// Where the unit keeps what must survive a restart, under its serial number: persistent reservations (APTPL), saved mode
    /// pages, identifying information. Without it there is no such thing. A sanitize operation goes on after a restart with it,
    /// and is forgotten without.
    pub state: Option<Arc<dyn StateStore>>,
}

impl LogicalUnitConfig {
    /// A writable unit with 512-byte blocks and the default names.
    pub fn new(store: Arc<dyn Store>, serial: impl Into<String>) -> Self {
        Self {
            store,
            block_size: 512,
            read_only: false,
            removable: false,
            soft_threshold_bytes: None,
            sanitize_rate: None,
            long_cdbs: false,
            zero_copy: false,
            serial: serial.into(),
            vendor: DEFAULT_VENDOR.into(),
            product: DEFAULT_PRODUCT.into(),
            revision: DEFAULT_REVISION.into(),
            clock: system_clock(),
            entropy: system_entropy(),
            state: None,
        }
    }

    /// Whether a unit can be made of it.
    pub(super) fn check(&self) -> Result<(), LogicalUnitError> {
        let block_size = self.block_size;
        if !matches!(block_size, 512 | 4096) {
            return Err(LogicalUnitError::BlockSize(block_size));
        }
        let Geometry { len_bytes, granularity_bytes, .. } = self.store.geometry();
        if !block_size.is_multiple_of(granularity_bytes.max(1)) {
            return Err(LogicalUnitError::Granularity { granularity_bytes, block_size });
        }
        if len_bytes < u64::from(block_size) {
            return Err(LogicalUnitError::Empty { len_bytes, block_size });
        }
        if let Some(rate) = self.sanitize_rate.filter(|rate| *rate < MIN_SANITIZE_RATE) {
            return Err(LogicalUnitError::SanitizeRate(rate));
        }
        if self.soft_threshold_bytes.is_some() && !self.store.capabilities().unmap {
            return Err(LogicalUnitError::Threshold);
        }
        check_text("serial number", &self.serial, MAX_SERIAL_LEN)?;
        check_text("vendor", &self.vendor, VENDOR_LEN)?;
        check_text("product", &self.product, PRODUCT_LEN)?;
        check_text("revision", &self.revision, REVISION_LEN)?;
        Ok(())
    }
}

/// Why a logical unit cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogicalUnitError {
    /// Neither 512 nor 4096.
    #[error("block size {0} is not supported; use 512 or 4096")]
    BlockSize(u32),
    /// A sanitize operation would hardly go on.
    #[error("a sanitize rate of {0} bytes per second is too slow; use {MIN_SANITIZE_RATE} or more")]
    SanitizeRate(u64),
    /// The store cannot address single blocks.
    #[error(
        "the store works in units of {granularity_bytes} bytes, blocks of {block_size} bytes are smaller; use 4096"
    )]
    Granularity {
        /// The store's unit in bytes.
        granularity_bytes: u32,
        /// The block size asked for.
        block_size: u32,
    },
    /// Not one whole block.
    #[error("the store of {len_bytes} bytes has no room for a block of {block_size} bytes; make it larger")]
    Empty {
        /// Length of the store.
        len_bytes: u64,
        /// The block size asked for.
        block_size: u32,
    },
    /// A threshold for a store that knows none.
    #[error("the store takes all of its space at once; leave out the threshold")]
    Threshold,
    /// What was kept of the unit cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// A text is empty, too long, or not printable ASCII.
    #[error("{field} {value:?} must be printable ASCII of at most {max_len} bytes")]
    Text {
        /// Which one.
        field: &'static str,
        /// What was given.
        value: String,
        /// How long it may be.
        max_len: usize,
    },
}

fn check_text(field: &'static str, value: &str, max_len: usize) -> Result<(), LogicalUnitError> {
    let printable = value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if value.is_empty() || value.len() > max_len || !printable {
        return Err(LogicalUnitError::Text { field, value: value.into(), max_len });
    }
    Ok(())
}
