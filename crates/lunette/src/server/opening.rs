//! The opening of disks: side by side, against one deadline.
//!
//! A disk that is being opened has a stand-in, which initiators find in the process of becoming ready. The stand-in
//! owns the [attempt](super::attempts), so an attempt for a LUN that was removed or changed is given up with it.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lunette_device::{Readiness, TargetDevice};

use crate::config::{Config, LunEntry, Target};
use crate::server::attempts::{Attempt, Attempts};
use crate::server::unit::{self, Absence, Disk, DiskStore};

use crate::failure::Failure;
use crate::server::gateways;
use crate::server::reload::Spares;
use crate::server::served::{OnTrouble, Served, lun, take};

/// The time that disks have at the start, and when files are read again. The others are served then: an initiator waits
/// for a disk that becomes ready, and gives up a server that does not listen.
const LIMIT: Duration = Duration::from_secs(2);

/// The time that disks have at a start that fails without them. An image in Ceph whose last writer has died is locked
/// for half a minute, and systemd gives a start a minute and a half.
const STRICT_LIMIT: Duration = Duration::from_mins(1);

/// The time that disks have in a change that is refused without them. Whoever made it waits for the answer.
pub(crate) const CHANGE_LIMIT: Duration = Duration::from_secs(10);

/// The attempts of a server.
pub(crate) type Openings = Attempts<Disk>;

/// An attempt to open a disk.
pub(crate) type Opening = Attempt<Disk>;

/// The state of a disk after a look at its attempt.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The disk is open since this look.
    Opened,
    /// Nothing has changed.
    Same,
    /// The attempt has failed.
    Failed(Failure),
}

/// The time by which disks are to be open at a start with this configuration; `None` without a limit.
pub(crate) fn start_limit(config: &Config) -> Option<Duration> {
    let is_encrypted = |target: &Target| target.luns.iter().any(|entry| entry.disk.keys.is_some());
    if config.targets.iter().any(is_encrypted) && io::stdin().is_terminal() {
        // A person may be typing a passphrase.
        return None;
    }
    Some(if config.strict { STRICT_LIMIT } else { LIMIT })
}

/// The deadline of a change. `is_refused`: it is refused as a whole without one of its disks.
pub(crate) fn change_deadline(is_refused: bool) -> Instant {
    Instant::now() + if is_refused { CHANGE_LIMIT } else { LIMIT }
}

/// The deadline of a repeated attempt that is waited for.
pub(crate) fn retry_deadline() -> Instant {
    Instant::now() + LIMIT
}

impl Served {
    /// Begins to open a disk. Its stand-in becomes ready, or not, when it is [settled](Disk::settle). A store that is
    /// open already comes from `spares`. An attempt that cannot begin is a trouble like one that fails.
    pub(crate) fn begin(
        &self,
        target: &Target,
        entry: &LunEntry,
        device: &Arc<TargetDevice>,
        spares: &mut Spares,
        on_trouble: OnTrouble,
    ) -> Result<Disk, Failure> {
        let absence = match self.begin_attempt(target, entry, device, spares) {
            Ok(attempt) => Absence { why: late(entry).into(), attempt: Some(attempt) },
            Err(failure) if on_trouble == OnTrouble::Degrade => {
                Absence { why: failure.to_string().into(), attempt: None }
            }
            Err(failure) => return Err(failure),
        };
        unit::stand_in(entry.clone(), &target.name, absence)
    }

    /// Begins an attempt for a disk.
    fn begin_attempt(
        &self,
        target: &Target,
        entry: &LunEntry,
        device: &Arc<TargetDevice>,
        spares: &mut Spares,
    ) -> Result<Opening, Failure> {
        let (entry, name, number) = (entry.clone(), target.name.clone(), lun(&target.name, entry.number)?);
        let open = take(target, &entry, spares)?;
        let lane = entry.disk.place.plain_identity();
        let before = lane.as_ref().map(|lane| spares.take_attempts(lane)).unwrap_or_default();
        // The number of a clone is another one after a restart.
        let state = self.state.clone().filter(|_| !entry.is_given);
        let (gateways, device) = (target.gateways.clone(), Arc::clone(device));
        self.openings.begin(lane, move || {
            // They have ended, because they were in the lane before. If the change is refused, they are made again.
            for attempt in before {
                drop(attempt.take());
            }
            let Some(gateways) = gateways else { return unit::open(entry, &name, state.as_ref(), open) };
            let mut disk = unit::open_shared(entry, &name)?;
            if let DiskStore::Shared(store) = &disk.store {
                let gateway = gateways::start(&gateways, store, &device, number, &disk.unit)?;
                disk.gateway = Some(Arc::new(gateway));
            }
            Ok(disk)
        })
    }
}

impl Served {
    /// The attempt for a disk that is not open; a new one unless one goes on.
    pub(crate) fn retry(
        &mut self,
        target: &Target,
        entry: &LunEntry,
        spares: &mut Spares,
    ) -> Result<Option<Opening>, Failure> {
        let Some(open) = self.targets.get(&target.name) else { return Ok(None) };
        let Some(disk) = open.disks.get(&entry.number).filter(|disk| !disk.is_open()) else { return Ok(None) };
        if let Some(attempt) = disk.attempt().filter(|attempt| attempt.is_pending()) {
            return Ok(Some(attempt.clone()));
        }
        let attempt = self.begin_attempt(target, entry, &Arc::clone(&open.device), spares)?;
        let disk = self.targets.get_mut(&target.name).and_then(|open| open.disks.get_mut(&entry.number));
        if let Some(Disk { store: DiskStore::Absent(absence), .. }) = disk {
            absence.attempt = Some(attempt.clone());
        }
        Ok(Some(attempt))
    }
}

/// Says that a disk is being opened, and what to do when that takes long.
fn late(entry: &LunEntry) -> String {
    format!(
        "{}: it does not answer yet, and is served as soon as it does; check what it lies on: a server, a network, a \
         mounted file system",
        entry.disk.place
    )
}

impl Disk {
    /// The attempt to open the disk, while nothing is known of its end.
    pub(crate) fn attempt(&self) -> Option<&Opening> {
        match &self.store {
            DiskStore::Absent(absence) => absence.attempt.as_ref(),
            _ => None,
        }
    }

    /// Looks at the attempt. A disk that was opened takes the place of the stand-in.
    pub(crate) fn settle(&mut self) -> Settled {
        let DiskStore::Absent(absence) = &mut self.store else { return Settled::Same };
        let Some(attempt) = absence.attempt.clone().filter(|attempt| !attempt.runs()) else { return Settled::Same };
        match attempt.take() {
            Some(Ok(disk)) => {
                *self = disk;
                Settled::Opened
            }
            Some(Err(failure)) => {
                *absence = Absence { why: failure.to_string().into(), attempt: None };
                self.unit.set_readiness(Readiness::NotReady);
                Settled::Failed(failure)
            }
            // A change that was given up has had it.
            None => {
                absence.attempt = None;
                Settled::Same
            }
        }
    }

    /// Waits until the disk is open, at most until `until`. A disk that is late or has failed keeps its stand-in.
    /// `or_refuse`: that is a failure.
    pub(crate) fn await_opening(
        &mut self,
        target: &str,
        number: u16,
        until: Option<Instant>,
        or_refuse: bool,
    ) -> Result<(), Failure> {
        let is_late = self.attempt().is_some_and(|attempt| !attempt.wait(until));
        match self.settle() {
            Settled::Failed(failure) if or_refuse => Err(failure),
            _ if is_late && or_refuse => Err(Failure::disk(format!(
                "LUN {number} of {target}: {}: it does not answer; check what it lies on: a server, a network, a mounted \
                 file system",
                self.entry.disk.place
            ))),
            _ => Ok(()),
        }
    }
}
