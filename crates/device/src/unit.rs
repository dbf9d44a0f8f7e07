//! Logical units: disks, with everything that commands read and change on them.

mod attached_nexuses;
mod block_limits;
pub(crate) mod change_watch;
pub(crate) mod clock;
mod config;
pub(crate) mod copy_records;
pub(crate) mod counters;
mod failures;
mod freeze;
pub(crate) mod handover;
pub(crate) mod identifying;
mod identity;
pub(crate) mod itl_nexus;
pub(crate) mod medium;
pub(crate) mod mode_pages;
pub(crate) mod quanta;
pub(crate) mod range_locks;
pub(crate) mod space;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lunette_gateway::Value;
use lunette_quanta::QuantumSize;
use lunette_scsi::persistent::ReservationType;
use lunette_scsi::{AdditionalSense, SenseFormat};
use lunette_store::{Capabilities, Space, Store, StoreError};

use crate::counts::UnitCounts;
use crate::gateway::{AskGateway, Gateway};
use crate::nexus::{ItNexus, NexusId};
use crate::preemption::Preemptions;
use crate::reservations::common::News;
use crate::reservations::shared::SharedReservations;
use crate::sanitize::Sanitize;
use attached_nexuses::AttachedNexuses;
use change_watch::ChangeWatches;
use clock::DeviceClock;
pub use config::{
    DEFAULT_PRODUCT, DEFAULT_REVISION, DEFAULT_VENDOR, LogicalUnitConfig, LogicalUnitError, MIN_SANITIZE_RATE,
};
use counters::Counters;
pub use counters::InitiatorBytes;
pub use failures::STORE_FAILURES;
use failures::StoreFailures;
use freeze::Freeze;
pub use freeze::FrozenUnit;
pub use handover::{HoldUp, InheritError};
use identifying::IdentifyingInformation;
use itl_nexus::ItlNexus;
use medium::MediumState;
pub use medium::{EjectError, MediumChangeError, Readiness};
use mode_pages::common::ModeChange;
use mode_pages::{ModeState, UnitTraits};
use quanta::UnitQuanta;
pub use quanta::{MIN_SCRUB_RATE, QuantaCounts, QuantaOptions, StoredDigests};
use range_locks::RangeLocks;
use space::SpaceMonitor;

/// A logical unit: a disk with blocks of a fixed size over a store.
pub struct LogicalUnit {
    config: LogicalUnitConfig,
    mode: ModeState,
    identifying: IdentifyingInformation,
    sanitize: Sanitize,
    medium: MediumState,
    counters: Counters,
    failures: StoreFailures,
    clock: DeviceClock,
    nexuses: AttachedNexuses,
    range_locks: Arc<RangeLocks>,
    freeze: Arc<Freeze>,
    reservations: SharedReservations,
    /// The gateway of a shared unit.
    gateway: Arc<Gateway>,
    preemptions: Arc<Preemptions>,
    space: SpaceMonitor,
    change_watches: ChangeWatches,
    running_copies: AtomicU32,
    /// Where an option of quanta is on.
    quanta: Option<Box<UnitQuanta>>,
}

impl LogicalUnit {
    /// Creates a logical unit over `config.store`.
    ///
    /// # Errors
    ///
    /// When the configuration cannot be served; see [`LogicalUnitError`].
    pub fn new(config: LogicalUnitConfig) -> Result<Self, LogicalUnitError> {
        config.check()?;
        let state = config.state.as_ref();
        let mode = ModeState::open(UnitTraits::of(&config), state, &config.serial, config.shared)?;
        let identifying = IdentifyingInformation::open(state, &config.serial)?;
        let sanitize = Sanitize::open(state, &config.serial)?;
        let (medium, counters) = (MediumState::new(config.readiness), Counters::default());
        let clock = DeviceClock::new(Arc::clone(&config.clock));
        let (nexuses, range_locks) = (AttachedNexuses::default(), Arc::default());
        let reservations = SharedReservations::open(state, &config.serial, config.shared)?;
        let size = QuantumSize::of_edu_len(config.block_size.into()).filter(|_| config.quanta.any());
        let quanta = size.map(|size| Box::new(UnitQuanta::new(size, config.quanta, &config.serial, &config.clock)));
        let (change_watches, running_copies) = (ChangeWatches::new(Arc::clone(&config.clock)), AtomicU32::new(0));
        Ok(Self {
            config,
            mode,
            identifying,
            sanitize,
            medium,
            counters,
            failures: StoreFailures::default(),
            clock,
            nexuses,
            range_locks,
            freeze: Arc::default(),
            reservations,
            gateway: Arc::default(),
            preemptions: Arc::default(),
            space: SpaceMonitor::default(),
            change_watches,
            running_copies,
            quanta,
        })
    }

    /// The claims of commands on ranges of blocks.
    pub(crate) fn range_locks(&self) -> &Arc<RangeLocks> {
        &self.range_locks
    }

    /// The extents whose changes are watched, for ROD tokens.
    pub(crate) fn change_watches(&self) -> &ChangeWatches {
        &self.change_watches
    }

    /// The number of copies that run on the unit.
    pub(crate) fn running_copies(&self) -> &AtomicU32 {
        &self.running_copies
    }

    /// The state of the unit's quanta, where an option of them is on.
    #[inline]
    pub(crate) fn quanta(&self) -> Option<&UnitQuanta> {
        self.quanta.as_deref()
    }

    /// The length of a block where blocks are EDUs, of which a half is worth nothing; else 0.
    pub(crate) fn edu_len(&self) -> u16 {
        QuantumSize::of_edu_len(self.config.block_size.into()).map_or(0, |size| size.edu_len() as u16)
    }

    /// Whether the blocks are EDUs.
    pub(crate) fn has_edus(&self) -> bool {
        self.edu_len() > 0
    }

    /// The unit's findings about its quanta; `None` when no option of them is on.
    pub fn quanta_counts(&self) -> Option<QuantaCounts> {
        self.quanta.as_ref().map(|quanta| quanta.counts())
    }

    /// The configuration of the unit.
    pub fn config(&self) -> &LogicalUnitConfig {
        &self.config
    }

    /// The store that holds the blocks.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.config.store
    }

    /// Length of a logical block in bytes.
    pub fn block_size(&self) -> u32 {
        self.config.block_size
    }

    /// The bytes of the whole blocks that fit into `limit` bytes, at least one block's.
    pub(crate) fn whole_blocks(&self, limit: usize) -> usize {
        multiple(limit, self.block_size() as usize)
    }

    /// Like [`Self::whole_blocks`], and where `limit` has room for them whole units that the store frees at a time. A
    /// long erasure in such pieces leaves no unit that each of two requests has erased a part of, and that nothing
    /// frees.
    pub(crate) fn whole_freed_units(&self, limit: usize) -> usize {
        let block_size = self.block_size() as usize;
        let common = common_multiple(block_size, self.store().geometry().unmap_bytes.max(1) as usize);
        multiple(limit, if common <= limit { common } else { block_size })
    }

    /// Capacity of the unit in whole blocks. It follows the store, which may grow or shrink.
    pub fn blocks(&self) -> u64 {
        self.config.store.geometry().len_bytes / u64::from(self.config.block_size)
    }

    /// Raises CAPACITY DATA HAS CHANGED for all nexuses, after the store has grown or shrunk. A unit that has lost all
    /// of its blocks is not ready, as one whose store is [not there](Self::set_readiness), until it has one again. The
    /// store of a shared unit is empty while another gateway has it.
    pub fn capacity_changed(&self) {
        let is_empty = self.blocks() == 0 && !self.config.shared;
        if self.medium.set_empty(is_empty) && !is_empty {
            self.announce_medium();
        }
        self.raise(AdditionalSense::CAPACITY_DATA_CHANGED, |_| true);
    }

    /// Another server may have written to the store of this shared unit: point in time copies of it are worth nothing
    /// any more.
    pub fn changed_elsewhere(&self) {
        self.change_watches.change_all();
    }

    /// Whether writes are refused: by configuration, by the store, or by an initiator (SWP).
    pub fn read_only(&self) -> bool {
        self.write_protection().is_some()
    }

    /// Whether the medium is removable.
    pub fn removable(&self) -> bool {
        self.config.removable
    }

    /// Whether the medium is loaded.
    pub fn medium_present(&self) -> bool {
        self.medium.present()
    }

    /// Whether the store is there, with a block at least.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.medium.ready()
    }

    /// Says whether the store is there. While it is not, INQUIRY, REPORT LUNS, REQUEST SENSE and the commands on target
    /// port groups are answered as always. All others end with NOT READY and what [`Readiness`] names. All nexuses
    /// learn of its return by the unit attention NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED.
    pub fn set_readiness(&self, readiness: Readiness) {
        if self.medium.set_readiness(readiness) && readiness == Readiness::Ready {
            self.announce_medium();
        }
    }

    /// Lets all nexuses know that the unit is ready, perhaps with other blocks.
    fn announce_medium(&self) {
        self.change_watches.change_all();
        self.raise(AdditionalSense::MEDIUM_MAY_HAVE_CHANGED, |_| true);
    }

    /// Why commands on the medium are refused, if they are.
    #[inline]
    pub(crate) fn not_ready(&self) -> Option<AdditionalSense> {
        self.medium.not_ready()
    }

    /// Loads the medium. All nexuses get the unit attention MEDIUM MAY HAVE CHANGED.
    pub fn load(&self) {
        self.load_for(None);
    }

    /// Ejects the medium: commands that need it end with NOT READY, MEDIUM NOT PRESENT until [`Self::load`]. Data that
    /// is not flushed stays in the store. Ejecting twice is no error.
    ///
    /// # Errors
    ///
    /// When the unit is not removable, or an initiator prevents the removal.
    pub fn eject(&self) -> Result<(), EjectError> {
        self.may_eject()?;
        if self.medium.set_present(false) {
            self.counters.unloads.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn may_eject(&self) -> Result<(), EjectError> {
        if !self.config.removable {
            return Err(EjectError::Fixed);
        }
        if self.sanitize.runs() {
            return Err(EjectError::SanitizeRule);
        }
        let prevented = self.nexuses.attached().iter().any(|itl| itl.prevents_removal.load(Ordering::Acquire));
        if prevented { Err(EjectError::Prevented) } else { Ok(()) }
    }

    /// Loads the medium on behalf of the nexus `by`, which gets no unit attention.
    pub(crate) fn load_for(&self, by: Option<NexusId>) {
        if self.medium.set_present(true) {
            self.change_watches.change_all();
            self.raise(AdditionalSense::MEDIUM_MAY_HAVE_CHANGED, |itl| Some(itl.nexus) != by);
        }
    }

    /// The device clock.
    pub(crate) fn clock(&self) -> &DeviceClock {
        &self.clock
    }

    /// The counts of commands since the unit was made.
    pub fn counts(&self) -> UnitCounts {
        self.counters.total()
    }

    /// The counters behind log pages and metrics.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How often the store has failed in each of the ways [`STORE_FAILURES`].
    pub fn store_failures(&self) -> [u64; STORE_FAILURES.len()] {
        self.failures.counts()
    }

    /// Calls `told` with each failure of the store from now on, on the thread of a command, so it must not wait. False,
    /// and without effect, when something is called already.
    pub fn on_store_failure(&self, told: impl Fn(&StoreError) + Send + Sync + 'static) -> bool {
        self.failures.tell(Box::new(told))
    }

    /// The failures of the store.
    pub(crate) fn failures(&self) -> &StoreFailures {
        &self.failures
    }

    /// The reason why writes are refused, if they are.
    pub(crate) fn write_protection(&self) -> Option<AdditionalSense> {
        if self.config.read_only || self.capabilities().read_only {
            return Some(AdditionalSense::WRITE_PROTECTED);
        }
        self.mode.write_protect().then_some(AdditionalSense::SOFTWARE_WRITE_PROTECTED)
    }

    /// Whether every write has to be a FUA write: the store has a volatile cache, and an initiator has cleared WCE.
    pub(crate) fn write_through(&self) -> bool {
        self.capabilities().volatile_cache && !self.mode.write_cache()
    }

    /// The mode parameters.
    pub(crate) fn mode(&self) -> &ModeState {
        &self.mode
    }

    /// The identifying information that initiators have set.
    pub(crate) fn identifying(&self) -> &IdentifyingInformation {
        &self.identifying
    }

    /// Whether a sanitize operation is running on the unit.
    pub fn is_being_sanitized(&self) -> bool {
        self.sanitize.runs()
    }

    /// Prepares the removal of the unit: no sanitize operation begins from now on. False, and without effect, while one
    /// is running, because only this unit can continue it.
    pub fn prepare_removal(&self) -> bool {
        self.sanitize.prepare_removal()
    }

    /// Undoes [`Self::prepare_removal`]: the unit stays.
    pub fn cancel_removal(&self) {
        self.sanitize.cancel_removal();
    }

    /// The sanitize state of the unit.
    pub(crate) fn sanitize(&self) -> &Sanitize {
        &self.sanitize
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.config.store.capabilities()
    }

    /// Queries the free space of the store, and [observes](Self::observe_space) it. The call may wait for the medium;
    /// the embedding program makes it periodically.
    pub fn refresh_space(&self) {
        let space = self.config.store.space().unwrap_or_else(|error| {
            tracing::warn!(serial = %self.config.serial, %error, "how much space is left cannot be told");
            None
        });
        self.observe_space(space);
    }

    /// Takes the space of the store as the caller has found it, for example once for all units of a pool. Nexuses get a
    /// unit attention each time that the free space has fallen to the soft threshold, unless LBPERE is cleared.
    pub fn observe_space(&self, space: Option<Space>) {
        if self.space.update(space, self.config.soft_threshold_bytes, self.mode.reports_thresholds()) {
            tracing::warn!(serial = %self.config.serial, ?space, "the soft threshold of the space is reached");
            self.raise(AdditionalSense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED, |_| true);
        }
    }

    /// The space that was last observed.
    pub fn space(&self) -> Option<Space> {
        self.space.last()
    }

    /// The format of sense data (`D_SENSE`).
    pub(crate) fn sense_format(&self) -> SenseFormat {
        self.mode.sense_format()
    }

    /// The nexuses attached to the unit.
    pub(crate) fn nexuses(&self) -> &AttachedNexuses {
        &self.nexuses
    }

    /// The registrations and reservations of the unit.
    pub(crate) fn reservations(&self) -> &SharedReservations {
        &self.reservations
    }

    /// Gives a shared unit its gateway, which commands ask from now on. False, and without effect, when it has one.
    pub fn set_gateway(&self, ask: AskGateway) -> bool {
        self.gateway.set(ask)
    }

    /// Lets commands find what the servers of a shared unit have in common. `done` is called when they do and no task
    /// goes on that had to end: during this call, or later on the thread of a task. It is dropped when the server ends
    /// first, and when the value has an entry that this version of Lunette does not know.
    pub fn publish(&self, value: &Value, done: Box<dyn FnOnce() + Send>) {
        let (Some(News { attentions, aborted }), Ok(changed)) =
            (self.reservations.publish(value), self.mode.publish(value))
        else {
            let (serial, version) = (&self.config.serial, value.version);
            tracing::error!(%serial, version, "what the gateways have in common is of an unknown version; update this one");
            return;
        };
        if let Some(ModeChange { by }) = changed {
            self.raise(AdditionalSense::MODE_PARAMETERS_CHANGED, |itl| Some(&itl.it_nexus) != by.as_ref());
        }
        for (nexus, code) in &attentions {
            self.raise_for(nexus, *code);
        }
        // A nexus that is gone is among them as long as a store works on its tasks.
        if self.nexuses.attached().iter().any(|itl| aborted.contains(&itl.it_nexus)) {
            self.preemptions.add(aborted, done);
        } else {
            done();
        }
    }

    /// The gateway of a shared unit.
    pub(crate) fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// The tasks that other servers of the unit have preempted.
    pub(crate) fn preemptions(&self) -> &Arc<Preemptions> {
        &self.preemptions
    }

    /// The type of the persistent reservation that is held.
    pub fn reservation(&self) -> Option<ReservationType> {
        self.reservations.read(|reservations| reservations.reservation().map(|(_, kind)| kind))
    }

    /// Whether initiators have registered keys for persistent reservations that end with the unit. Those with APTPL are
    /// there again when it is opened again.
    pub fn has_volatile_registrations(&self) -> bool {
        self.reservations.read(|all| !all.persists() && all.registrations().next().is_some())
    }

    /// Raises a unit attention for a nexus, on all its connections.
    pub(crate) fn raise_for(&self, nexus: &ItNexus, code: AdditionalSense) {
        self.nexuses.notify(nexus, |itl| itl.unit_attentions.raise(code));
    }

    /// Detaches a nexus from the unit. The nexus is lost unless it is still attached by another connection.
    pub(crate) fn nexus_detached(&self, gone: &ItlNexus) {
        if self.nexuses.detach(gone) {
            self.reservations.nexus_lost(&gone.it_nexus);
        }
    }

    /// Raises the unit attention `code` for all nexuses but `by`.
    pub(crate) fn raise_for_others(&self, by: NexusId, code: AdditionalSense) {
        self.raise(code, |itl| itl.nexus != by);
    }

    fn raise(&self, code: AdditionalSense, concerned: impl Fn(&ItlNexus) -> bool) {
        self.nexuses.notify_all(|itl| {
            if concerned(&itl) {
                itl.unit_attentions.raise(code);
            }
        });
    }

    /// A logical unit reset (SAM-5 6.3.3). The requesting nexus gets the unit attention too.
    pub(crate) fn reset(&self) {
        self.mode.reset();
        self.reservations.reset();
        self.nexuses.notify_all(|itl| {
            itl.prevents_removal.store(false, Ordering::Release);
            itl.unit_attentions.reset(AdditionalSense::BUS_DEVICE_RESET);
        });
    }
}

/// The longest multiple of `unit` up to `limit`, at least one.
fn multiple(limit: usize, unit: usize) -> usize {
    (limit - limit % unit).max(unit)
}

/// The least common multiple of two lengths of blocks, or 0.
pub(crate) fn common_multiple(one: usize, other: usize) -> usize {
    let (mut gcd, mut rest) = (one, other);
    while rest != 0 {
        (gcd, rest) = (rest, gcd % rest);
    }
    one / gcd.max(1) * other
}

impl fmt::Debug for LogicalUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogicalUnit")
            .field("serial", &self.config.serial)
            .field("block_size", &self.config.block_size)
            .field("blocks", &self.blocks())
            .field("read_only", &self.read_only())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lunette_store::MemoryStore;

    use super::*;
    use crate::BLOCK_SIZES;
    use crate::limits::SANITIZE_ERASE_BYTES;

    #[test]
    fn a_long_erasure_leaves_no_unit_of_the_store_half_erased() {
        for block_size in BLOCK_SIZES {
            let store = Arc::new(MemoryStore::new(1 << 30).unwrap().exact());
            let config = LogicalUnitConfig { block_size, ..LogicalUnitConfig::new(store, "serial") };
            let unit = LogicalUnit::new(config).unwrap();
            let piece = unit.whole_freed_units(SANITIZE_ERASE_BYTES);
            assert!(piece <= SANITIZE_ERASE_BYTES && piece > SANITIZE_ERASE_BYTES / 2, "{block_size}");
            assert!(piece.is_multiple_of(block_size as usize), "{block_size}");
            assert!(piece.is_multiple_of(unit.store().geometry().unmap_bytes as usize), "{block_size}");
            let short = unit.whole_freed_units(5000);
            assert_eq!(short % block_size as usize, 0, "one that has no room for a unit of the store has whole blocks");
        }
    }
}
