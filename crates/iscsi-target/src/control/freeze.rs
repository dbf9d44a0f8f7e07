//! One instant at which the stores of several logical units stand still.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lunette_device::{FrozenUnit, LogicalUnit};

use super::{Asked, Control};

/// Why units could not be frozen. All that was stopped for it goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FreezeError {
    /// A unit is frozen already.
    #[error("logical unit {serial} is frozen by another caller; try again when that has ended")]
    Frozen {
        /// The serial number of the unit.
        serial: String,
    },
    /// Stores have not ended in time what they had begun.
    #[error("the stores of these logical units have not ended their requests within {limit:?}: {}; \
        see whether their media answer, then try again", serials.join(", "))]
    Busy {
        /// The serial numbers of the units.
        serials: Vec<String>,
        /// The time that they had.
        limit: Duration,
    },
    /// The server has ended, or is about to.
    #[error("the server is stopping")]
    Stopping,
}

/// Logical units whose stores are asked for nothing. Dropped, requests go on, on any thread and also in a panic.
///
/// Initiators notice nothing but the pause: commands are received with their data, and wait before their stores. Reads
/// wait as writes do. What a command has begun to send from a file ([`zero_copy`]) goes on, and so do flushes of what
/// is removed, or of a server that stops: neither changes a byte that a read would find.
///
/// The units are frozen, not the media below them:
///
/// - A store that works on its own, as the checkpoints of an encrypted volume do, goes on. A copy of its medium is what
///   a power cut would leave. Such a medium is not changed while its store is open.
/// - A unit that takes the place of a frozen one is not frozen itself. A caller that copies media makes no
///   [`Update`](crate::Update) meanwhile.
///
/// [`zero_copy`]: lunette_device::LogicalUnitConfig::zero_copy
#[derive(Debug)]
#[must_use = "the units are frozen as long as it is kept"]
pub struct Frozen {
    /// Never read: the units thaw when it is dropped.
    _units: Vec<FrozenUnit>,
    began: Instant,
}

/// Logical units to whose stores no request is submitted any more, and whose stores may still be at work.
#[derive(Debug)]
#[must_use = "the units are frozen as long as it is kept"]
pub struct PendingFreeze {
    /// The units whose stores may still be at work, by their number.
    busy: BTreeMap<usize, FrozenUnit>,
    quiet: Vec<FrozenUnit>,
    began: Instant,
    told: Receiver<usize>,
    /// Kept until all is told, or given up.
    _asker: Arc<Asker>,
}

/// The mark of a freeze that is waited for. When it is gone, the wait is over.
#[derive(Debug)]
pub(crate) struct Asker;

/// A question to all cores: when have the stores of `unit` ended what they had begun?
pub(crate) struct FreezeQuestion {
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) asker: Weak<Asker>,
    pub(crate) answer: FreezeAnswer,
}

/// The place that is told when the store of a unit is quiet.
pub(crate) struct FreezeAnswer {
    number: usize,
    tell: Sender<usize>,
}

impl Control {
    /// Keeps requests away from the stores of these units, and waits until the requests that stores have begun have
    /// ended, for `limit` at most. One unit may be named twice.
    ///
    /// It waits for all cores, so it must not be called on a thread of the server.
    ///
    /// # Errors
    ///
    /// [`FreezeError`]; then everything goes on as before.
    pub fn freeze(&self, units: &[Arc<LogicalUnit>], limit: Duration) -> Result<Frozen, FreezeError> {
        self.begin_freeze(units)?.wait(limit)
    }

    /// Begins a freeze, for callers that cannot wait here. From now on no request is submitted.
    ///
    /// # Errors
    ///
    /// [`FreezeError`]; then everything goes on as before.
    pub fn begin_freeze(&self, units: &[Arc<LogicalUnit>]) -> Result<PendingFreeze, FreezeError> {
        let (tell, told) = channel();
        let (asker, began) = (Arc::new(Asker), Instant::now());
        let mut busy: BTreeMap<usize, FrozenUnit> = BTreeMap::new();
        for unit in units {
            if busy.values().any(|frozen| Arc::ptr_eq(frozen.unit(), unit)) {
                continue;
            }
            let serial = || unit.config().serial.clone();
            let frozen = unit.freeze().ok_or_else(|| FreezeError::Frozen { serial: serial() })?;
            busy.insert(busy.len(), frozen);
        }
        for (number, frozen) in &busy {
            let answer = FreezeAnswer { number: *number, tell: tell.clone() };
            let question = FreezeQuestion { unit: Arc::clone(frozen.unit()), asker: Arc::downgrade(&asker), answer };
            self.updates.push(Asked::Freeze(question)).map_err(|_| FreezeError::Stopping)?;
        }
        self.waker.wake();
        Ok(PendingFreeze { busy, quiet: Vec::new(), began, told, _asker: asker })
    }
}

impl PendingFreeze {
    /// Waits until the stores have ended what they had begun, for `limit` since the beginning at most.
    ///
    /// # Errors
    ///
    /// [`FreezeError`]; then everything goes on as before.
    pub fn wait(mut self, limit: Duration) -> Result<Frozen, FreezeError> {
        while !self.busy.is_empty() {
            match self.told.recv_timeout(limit.saturating_sub(self.began.elapsed())) {
                Ok(number) => self.is_quiet(number),
                Err(RecvTimeoutError::Timeout) => {
                    let serials = self.busy.values().map(|frozen| frozen.unit().config().serial.clone()).collect();
                    return Err(FreezeError::Busy { serials, limit });
                }
                // A server that ends drops what it has not answered.
                Err(RecvTimeoutError::Disconnected) => return Err(FreezeError::Stopping),
            }
        }
        Ok(self.into_frozen())
    }

    /// The frozen units, if all stores are quiet by now.
    ///
    /// # Errors
    ///
    /// The freeze, which goes on, or `None` when the server has ended.
    pub fn poll(mut self) -> Result<Frozen, Option<Self>> {
        while !self.busy.is_empty() {
            match self.told.try_recv() {
                Ok(number) => self.is_quiet(number),
                Err(TryRecvError::Empty) => return Err(Some(self)),
                Err(TryRecvError::Disconnected) => return Err(None),
            }
        }
        Ok(self.into_frozen())
    }

    fn is_quiet(&mut self, number: usize) {
        self.quiet.extend(self.busy.remove(&number));
    }

    fn into_frozen(self) -> Frozen {
        Frozen { _units: self.quiet, began: self.began }
    }
}

impl Frozen {
    /// The instant before the first request was kept away. Until the drop it is the pause that initiators notice.
    pub fn began(&self) -> Instant {
        self.began
    }
}

impl FreezeAnswer {
    /// The store is quiet, on all cores.
    pub(crate) fn tell(self) {
        // The caller may have given up.
        let _ = self.tell.send(self.number);
    }
}
