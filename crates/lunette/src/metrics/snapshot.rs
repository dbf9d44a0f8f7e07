//! The numbers of a server at one time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lunette_device::{InitiatorBytes, LogicalUnit, TargetDevice, UnitCounts};
use lunette_scsi::Lun;
use lunette_scsi::persistent::ReservationType;
use lunette_target::{LoginCounts, Monitor, Statistics};

use super::process::Process;
use super::reload::{Reload, last_reload};

/// Everything that is exported. Each number is right by itself; together they may be of some moments apart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) targets: Vec<TargetNumbers>,
    pub(super) logins: BTreeMap<Arc<str>, LoginCounts>,
    pub(super) cores: Vec<CoreNumbers>,
    pub(super) uptime: Duration,
    pub(super) reload: Option<Reload>,
    pub(super) process: Process,
}

/// One target.
#[derive(Debug, Clone, Default)]
pub(crate) struct TargetNumbers {
    pub(crate) name: Arc<str>,
    pub(crate) sessions: usize,
    pub(crate) luns: Vec<LunNumbers>,
    /// Empty unless they are asked for.
    pub(super) initiators: BTreeMap<Arc<str>, InitiatorBytes>,
}

/// One logical unit.
#[derive(Debug, Clone)]
pub(crate) struct LunNumbers {
    pub(crate) lun: Lun,
    pub(super) serial: String,
    pub(super) block_size: u32,
    pub(super) size_bytes: u64,
    pub(super) allocated_bytes: Option<u64>,
    pub(super) free_bytes: Option<u64>,
    pub(super) reservation: Option<ReservationType>,
    pub(crate) counts: UnitCounts,
}

/// One event loop.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CoreNumbers {
    pub(super) statistics: Statistics,
    pub(super) busy: Duration,
}

impl Snapshot {
    /// The numbers by now. It locks nothing that commands lock.
    pub(crate) fn take(monitor: &Monitor, with_initiators: bool) -> Self {
        let target = |device: Arc<TargetDevice>| TargetNumbers::of(&device, with_initiators);
        let cores = monitor.read_cores().zip(monitor.cpu_times());
        Self {
            targets: monitor.devices().into_iter().map(target).collect(),
            logins: monitor.logins(),
            cores: cores.map(|(statistics, busy)| CoreNumbers { statistics, busy }).collect(),
            uptime: monitor.uptime(),
            reload: last_reload(),
            process: Process::read(),
        }
    }
}

impl TargetNumbers {
    fn of(device: &TargetDevice, with_initiators: bool) -> Self {
        Self {
            name: device.name().into(),
            sessions: device.nexuses(),
            luns: device.units().iter().map(|(lun, unit)| LunNumbers::of(*lun, unit)).collect(),
            initiators: if with_initiators { device.initiator_bytes() } else { BTreeMap::new() },
        }
    }
}

impl LunNumbers {
    fn of(lun: Lun, unit: &LogicalUnit) -> Self {
        let space = unit.space();
        Self {
            lun,
            serial: unit.config().serial.clone(),
            block_size: unit.block_size(),
            size_bytes: unit.blocks() * u64::from(unit.block_size()),
            allocated_bytes: space.map(|space| space.used_bytes),
            free_bytes: space.map(|space| space.free_bytes),
            reservation: unit.reservation(),
            counts: unit.counts(),
        }
    }
}
