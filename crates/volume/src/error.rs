//! Why a volume cannot be found, made, opened or kept in order.

use lunette_quanta::packed::{LayoutError, ReplayError};
use lunette_quanta::{Cipher, HeaderError, UnitTooSmall, VolumeId};
use lunette_store::StoreError;

use crate::AnchorError;

/// Why a volume cannot be found, made, opened or kept in order.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The unit has no header of a volume, not even a damaged one.
    #[error("there is no encrypted volume on this unit; check which unit it is, or format it")]
    NoVolume,
    /// The header cannot be used, and neither can its other copy.
    #[error("no copy of the volume's header can be used: {0}")]
    Header(#[from] HeaderError),
    /// The unit was to be formatted, and has a volume already.
    #[error("the unit has the encrypted volume {0} already, which formatting would destroy; ask for that explicitly")]
    Exists(VolumeId),
    /// The unit is shorter than the native volume on it.
    #[error(transparent)]
    UnitTooSmall(#[from] UnitTooSmall),
    /// The unit is shorter than the packed volume on it.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The unit has no room for a volume.
    #[error("the unit has {unit_bytes} bytes, which is too short for a volume with a journal of {journal_bytes} bytes")]
    NoRoom {
        /// Bytes of the unit.
        unit_bytes: u64,
        /// Bytes of the journal that the volume was to have.
        journal_bytes: u64,
    },
    /// The journal was to have a length that it cannot have.
    #[error("a journal cannot have {0} bytes; give a multiple of 4096 from 24576 to 268435456")]
    JournalLen(u64),
    /// The unit's blocks have a length that no placement works with.
    #[error("the unit has blocks of {0} bytes; volumes lie on blocks of 512, 4096, 576, 1088, 2112 or 4160 bytes")]
    BlockLen(u32),
    /// The quantum asked for does not fit the unit's blocks.
    #[error("quanta of {size} bytes do not fit the unit, whose blocks have {block_len} bytes; {remedy}")]
    QuantumSize {
        /// Bytes of the quantum that was asked for.
        size: u64,
        /// Bytes of the unit's block.
        block_len: u32,
        /// The placement that would fit.
        remedy: &'static str,
    },
    /// The unit, or the volume as it was opened, refuses writes.
    #[error("the volume is read only")]
    ReadOnly,
    /// The two tails of the journal of a packed volume are damaged.
    #[error(
        "both tails of the volume's journal are damaged, so the quanta that were written last cannot be told from older ones; recover the volume with force"
    )]
    TailLost,
    /// The journal of a packed volume has lost records that had been flushed.
    #[error(
        "{0} records of the volume's journal that had been flushed are damaged or gone, so quanta that were written last would be older than they were; restore the volume from a copy, or recover it with force"
    )]
    RecordsLost(u64),
    /// The journal of a packed volume has quanta that are older than the anchor knows: it is one that was there before.
    #[error(
        "the volume's journal has {count} quanta that are older than the anchor knows, quantum {position} first: it was rolled back; restore the volume, or recover it without the anchor to take what is there"
    )]
    JournalRolledBack {
        /// The first of them.
        position: u64,
        /// How many they are.
        count: u64,
    },
    /// The journal of a packed volume holds what no client leaves there.
    #[error(transparent)]
    Journal(ReplayError),
    /// A packed volume was to have parity groups.
    #[error(
        "packed volumes have no parity groups; leave them out, or use a unit whose blocks have the length of an EDU"
    )]
    PackedParity,
    /// The keys are of another cipher than the volume.
    #[error("the keys are for the cipher {}, and the volume has {}; they are not the keys of this volume", keys.row().name, volume.row().name)]
    OtherCipher {
        /// The cipher of the keys.
        keys: Cipher,
        /// The cipher of the volume.
        volume: Cipher,
    },
    /// The newest of the keys is older than the newest epoch of the volume.
    #[error(
        "the newest key is that of epoch {keys}, and the volume has epoch {volume} already; fetch the keys of the volume again"
    )]
    OldKeys {
        /// The newest epoch of the keys.
        keys: u32,
        /// The newest epoch of the volume.
        volume: u32,
    },
    /// The anchor cannot be used.
    #[error(transparent)]
    Anchor(#[from] AnchorError),
    /// The system's generator of random numbers has failed.
    #[error("the system's random generator failed: {0}")]
    Random(#[from] getrandom::Error),
    /// The system refused a thread.
    #[error("the volume's thread could not be started: {0}")]
    Thread(#[source] std::io::Error),
    /// A request to the unit failed.
    #[error("{doing} failed: {error}")]
    Unit {
        /// The work that the request belonged to.
        doing: &'static str,
        /// The failure.
        #[source]
        error: StoreError,
    },
}

impl From<ReplayError> for VolumeError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::TailLost => Self::TailLost,
            ReplayError::RecordsLost(records) => Self::RecordsLost(records),
            ReplayError::Sequence(_) | ReplayError::TooManyQuanta => Self::Journal(error),
        }
    }
}
