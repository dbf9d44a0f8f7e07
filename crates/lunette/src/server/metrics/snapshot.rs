//! The numbers of a server at one time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use lunette_api::jobs::Job;
use lunette_api::{Health, Trouble};
use lunette_device::{InitiatorBytes, LogicalUnit, STORE_FAILURES, TargetDevice, UnitCounts};
use lunette_scsi::Lun;
use lunette_scsi::persistent::ReservationType;
use lunette_scsi::port_groups::AccessState;
use lunette_target::{LoginCounts, Monitor, Statistics};

use super::process::Process;
use super::reload::{Reload, last_reload};
use crate::server::certificates::{self, End};
use crate::server::volumes::VolumeCounts;

/// Everything that is exported. Each number is right by itself; together they may be of some moments apart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) targets: Vec<TargetNumbers>,
    pub(super) sessions: BTreeMap<SessionLabels, usize>,
    pub(super) logins: BTreeMap<Arc<str>, LoginCounts>,
    pub(super) cores: Vec<CoreNumbers>,
    pub(super) uptime: Duration,
    pub(super) reload: Option<Reload>,
    pub(super) troubles: Vec<Trouble>,
    /// The jobs that the server keeps, if it has a control plane.
    pub(super) jobs: Vec<Arc<Job>>,
    pub(super) volumes: VolumeCounts,
    pub(super) certificates: Vec<End>,
    pub(super) process: Process,
}

/// The labels of a session in a metric. Sessions with the same labels are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SessionLabels {
    /// Empty in a discovery session.
    pub(super) target: String,
    pub(super) initiator: String,
    pub(super) address: IpAddr,
    pub(super) header_digest: &'static str,
    pub(super) data_digest: &'static str,
    pub(super) level: u32,
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
    /// By target port group.
    pub(super) access: Vec<(u16, AccessState)>,
    /// In the order of [`STORE_FAILURES`].
    pub(super) store_failures: [u64; STORE_FAILURES.len()],
    pub(crate) counts: UnitCounts,
}

/// One event loop.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CoreNumbers {
    pub(super) statistics: Statistics,
    pub(super) busy: Duration,
}

impl Snapshot {
    pub(crate) fn with_jobs(self, jobs: Vec<Arc<Job>>) -> Self {
        Self { jobs, ..self }
    }

    pub(crate) fn with_volumes(self, volumes: VolumeCounts) -> Self {
        Self { volumes, ..self }
    }

    /// The numbers by now. It locks nothing that commands lock.
    pub(crate) fn take(monitor: &Monitor, health: &Health, with_initiators: bool) -> Self {
        let target = |device: Arc<TargetDevice>| TargetNumbers::of(&device, with_initiators);
        let cores = monitor.read_cores().zip(monitor.cpu_times());
        Self {
            targets: monitor.devices().into_iter().map(target).collect(),
            sessions: sessions(monitor),
            logins: monitor.logins(),
            cores: cores.map(|(statistics, busy)| CoreNumbers { statistics, busy }).collect(),
            uptime: monitor.uptime(),
            reload: last_reload(),
            troubles: health.troubles_now(),
            jobs: Vec::new(),
            volumes: VolumeCounts::default(),
            certificates: certificates::in_use(),
            process: Process::read(),
        }
    }
}

fn sessions(monitor: &Monitor) -> BTreeMap<SessionLabels, usize> {
    let mut counted = BTreeMap::new();
    for (session, address) in monitor.sessions() {
        let keys = &session.parameters;
        let labels = SessionLabels {
            target: session.target.as_ref().map(|target| target.name.clone()).unwrap_or_default(),
            initiator: session.initiator_name.clone(),
            address,
            header_digest: keys.header_digest.value(),
            data_digest: keys.data_digest.value(),
            level: keys.error_recovery_level,
        };
        *counted.entry(labels).or_default() += 1;
    }
    counted
}

impl TargetNumbers {
    fn of(device: &TargetDevice, with_initiators: bool) -> Self {
        Self {
            name: device.name().into(),
            sessions: device.nexuses(),
            luns: device.units().iter().map(|(lun, unit)| LunNumbers::of(device, *lun, unit)).collect(),
            initiators: if with_initiators { device.initiator_bytes() } else { BTreeMap::new() },
        }
    }
}

impl LunNumbers {
    fn of(device: &TargetDevice, lun: Lun, unit: &LogicalUnit) -> Self {
        let space = unit.space();
        Self {
            lun,
            serial: unit.config().serial.clone(),
            block_size: unit.block_size(),
            size_bytes: unit.blocks() * u64::from(unit.block_size()),
            allocated_bytes: space.map(|space| space.used_bytes),
            free_bytes: space.map(|space| space.free_bytes),
            reservation: unit.reservation(),
            access: device.access_states(lun),
            store_failures: unit.store_failures(),
            counts: unit.counts(),
        }
    }
}
