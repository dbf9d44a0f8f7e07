//! The configuration of a logical unit, and its checks.

use std::sync::Arc;

use lunette_quanta::QuantumSize;
use lunette_state::{StateError, StateStore};
use lunette_store::{Geometry, Store};

use super::medium::Readiness;
use super::quanta::{MIN_SCRUB_RATE, QuantaOptions};
use crate::environment::{Clock, system_clock};
use crate::environment::{Entropy, system_entropy};
use crate::limits::{BLOCK_SIZES, SANITIZE_WRITE_BYTES};

/// The default VENDOR IDENTIFICATION.
pub const DEFAULT_VENDOR: &str = "LUNETTE";
/// The default PRODUCT IDENTIFICATION.
pub const DEFAULT_PRODUCT: &str = "DISK";
/// The default PRODUCT REVISION LEVEL.
pub const DEFAULT_REVISION: &str = "0001";

/// Bytes of VENDOR IDENTIFICATION, PRODUCT IDENTIFICATION and PRODUCT REVISION LEVEL (SPC-5 6.6.2).
const VENDOR_LEN: usize = 8;
const PRODUCT_LEN: usize = 16;
const REVISION_LEN: usize = 4;
/// Bytes of a serial number: it fits into the T10 vendor ID designator beside vendor and product, with room to spare.
const MAX_SERIAL_LEN: usize = 200;

/// The slowest sanitize rate, in bytes per second: one chunk per second.
pub const MIN_SANITIZE_RATE: u64 = SANITIZE_WRITE_BYTES as u64;

/// The configuration of a logical unit.
#[derive(Clone)]
pub struct LogicalUnitConfig {
    /// The store that holds the blocks.
    pub store: Arc<dyn Store>,
    /// Whether the store is there. A unit whose store is not has a place holder as its store, of any length; see
    /// [`set_readiness`](crate::LogicalUnit::set_readiness).
    pub readiness: Readiness,
    /// Length of a logical block in bytes: one of [`BLOCK_SIZES`](crate::BLOCK_SIZES).
    pub block_size: u32,
    /// Refuses writes, even when the store could take them.
    pub read_only: bool,
    /// Lets initiators eject the medium (START STOP UNIT). The unit is then unusable until the medium is loaded again.
    pub removable: bool,
    /// The soft threshold in bytes, rounded down to MiB: initiators get a unit attention when the store has no more
    /// than this much space left.
    pub soft_threshold_bytes: Option<u64>,
    /// The most bytes per second that a sanitize operation overwrites, so that it leaves bandwidth of the medium to
    /// commands; at least [`MIN_SANITIZE_RATE`].
    pub sanitize_rate: Option<u64>,
    /// The options for quanta, which need blocks of the length of an EDU.
    pub quanta: QuantaOptions,
    /// Accepts 32-byte CDBs. SBC-4 requires most of them only on media with type 2 protection information, and some
    /// initiators do not expect CDBs of this length in REPORT SUPPORTED OPERATION CODES.
    pub long_cdbs: bool,
    /// Sends long reads straight from the store's file, where the store and the transport support it. A byte that is
    /// written during the read may be sent with its old or its new value, and may differ when it is sent again.
    pub zero_copy: bool,
    /// The serial number: printable ASCII, 1 to 200 bytes. The worldwide designators are derived from it, so two units
    /// with the same serial number are one unit to an initiator.
    pub serial: String,
    /// VENDOR IDENTIFICATION: printable ASCII, up to 8 bytes.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION: printable ASCII, up to 16 bytes.
    pub product: String,
    /// PRODUCT REVISION LEVEL: printable ASCII, up to 4 bytes.
    pub revision: String,
    /// The time of day, for timestamps.
    pub clock: Clock,
    /// The source of random bytes, for ROD tokens.
    pub entropy: Entropy,
    /// Whether other servers offer the same unit through other target ports, and one of them at a time has its store.
    /// Commands whose effect the others would have to know are not supported then, and a store that is [shut
    /// out](lunette_store::StoreError::ShutOut) is a change of the access state.
    pub shared: bool,
    /// The state store, which holds under the serial number what survives a restart: persistent reservations (APTPL),
    /// saved mode pages, identifying information, and running sanitize operations. Without a state store the first
    /// three are not supported, and a restart forgets a sanitize operation.
    pub state: Option<Arc<dyn StateStore>>,
}

impl LogicalUnitConfig {
    /// A writable unit with 512-byte blocks and the default names.
    pub fn new(store: Arc<dyn Store>, serial: impl Into<String>) -> Self {
        Self {
            store,
            readiness: Readiness::Ready,
            block_size: 512,
            read_only: false,
            removable: false,
            soft_threshold_bytes: None,
            sanitize_rate: None,
            quanta: QuantaOptions::default(),
            long_cdbs: false,
            zero_copy: false,
            serial: serial.into(),
            vendor: DEFAULT_VENDOR.into(),
            product: DEFAULT_PRODUCT.into(),
            revision: DEFAULT_REVISION.into(),
            clock: system_clock(),
            entropy: system_entropy(),
            shared: false,
            state: None,
        }
    }

    /// Checks that a unit can be created from the configuration.
    pub(super) fn check(&self) -> Result<(), LogicalUnitError> {
        if let Some(error) = self.wrong_settings().into_iter().next() {
            return Err(error);
        }
        if self.readiness == Readiness::Ready { self.check_store() } else { Ok(()) }
    }

    /// Checks that the store can hold the blocks.
    fn check_store(&self) -> Result<(), LogicalUnitError> {
        let block_size = self.block_size;
        let Geometry { len_bytes, granularity_bytes, .. } = self.store.geometry();
        if !block_size.is_multiple_of(granularity_bytes.max(1)) {
            return Err(LogicalUnitError::Granularity { granularity_bytes, block_size });
        }
        if len_bytes < u64::from(block_size) {
            return Err(LogicalUnitError::Empty { len_bytes, block_size });
        }
        if self.soft_threshold_bytes.is_some() && !self.store.capabilities().unmap {
            return Err(LogicalUnitError::Threshold);
        }
        Ok(())
    }

    /// All settings that do not fit, whatever the store is.
    pub fn wrong_settings(&self) -> Vec<LogicalUnitError> {
        let block_size = self.block_size;
        let is_quantum = QuantumSize::of_edu_len(block_size.into()).is_some();
        let slow = |rate: Option<u64>, least: u64| rate.filter(|rate| *rate < least);
        let texts = [
            ("serial", &self.serial, MAX_SERIAL_LEN),
            ("vendor", &self.vendor, VENDOR_LEN),
            ("product", &self.product, PRODUCT_LEN),
            ("revision", &self.revision, REVISION_LEN),
        ];
        let numbers = [
            (!BLOCK_SIZES.contains(&block_size)).then_some(LogicalUnitError::BlockSize(block_size)),
            slow(self.sanitize_rate, MIN_SANITIZE_RATE).map(LogicalUnitError::SanitizeRate),
            (self.quanta.any() && !is_quantum).then_some(LogicalUnitError::Quanta(block_size)),
            slow(self.quanta.scrub_rate, MIN_SCRUB_RATE).map(LogicalUnitError::ScrubRate),
        ];
        let of_texts = texts.into_iter().filter_map(|(field, value, max_len)| check_text(field, value, max_len).err());
        numbers.into_iter().flatten().chain(of_texts).collect()
    }
}

/// Why a logical unit cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogicalUnitError {
    /// The block size is none of [`BLOCK_SIZES`](crate::BLOCK_SIZES).
    #[error("block size {0} is not supported; use one of {BLOCK_SIZES:?}")]
    BlockSize(u32),
    /// The sanitize rate is below [`MIN_SANITIZE_RATE`].
    #[error("a sanitize rate of {0} bytes per second is too slow; use {MIN_SANITIZE_RATE} or more")]
    SanitizeRate(u64),
    /// An option of quanta is on, and a block is none.
    #[error("a block of {0} bytes is no quantum with its slot; leave out what quanta are checked for")]
    Quanta(u32),
    /// The rate of the scrub is below [`MIN_SCRUB_RATE`].
    #[error("a scrub of {0} bytes per second is too slow; use {MIN_SCRUB_RATE} or more")]
    ScrubRate(u64),
    /// The store cannot address single blocks.
    #[error(
        "the store works in units of {granularity_bytes} bytes; a block of {block_size} bytes is no multiple of that"
    )]
    Granularity {
        /// The store's granularity in bytes.
        granularity_bytes: u32,
        /// The configured block size.
        block_size: u32,
    },
    /// The store is shorter than one block.
    #[error("the store of {len_bytes} bytes has no room for a block of {block_size} bytes; make it larger")]
    Empty {
        /// Length of the store in bytes.
        len_bytes: u64,
        /// The configured block size.
        block_size: u32,
    },
    /// A soft threshold is configured, and the store is not thin.
    #[error("the store takes all of its space at once; leave out the threshold")]
    Threshold,
    /// The saved state of the unit cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// A text is empty, too long, or not printable ASCII.
    #[error("{field} {value:?} must be printable ASCII of 1 to {max_len} bytes")]
    Text {
        /// The name of the field.
        field: &'static str,
        /// The value of the field.
        value: String,
        /// The longest value in bytes.
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
