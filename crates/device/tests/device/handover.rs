//! Handovers: what initiators see of a unit is the same after its process was replaced.

mod at_random;
mod changes;
mod malformed;
mod parts;
mod shared;

use std::sync::Arc;

use lunette_device::{LogicalUnit, LogicalUnitConfig, Nexus, TargetDevice};
use lunette_handover::{Handover, Session};
use lunette_scsi::Lun;

use crate::fixture::Fixture;

/// The process that takes the place of another, as it has read its configuration: nothing is inherited yet.
pub(crate) struct Successor {
    pub(crate) device: Arc<TargetDevice>,
    pub(crate) unit: Arc<LogicalUnit>,
}

impl Successor {
    /// One with the same configuration, over the same disk and state file.
    pub(crate) fn of(fixture: &Fixture) -> Self {
        Self::with(fixture, |_| ())
    }

    /// One whose unit is configured otherwise.
    pub(crate) fn with(fixture: &Fixture, change: impl FnOnce(&mut LogicalUnitConfig)) -> Self {
        let mut config = fixture.unit.config().clone();
        change(&mut config);
        let unit = Arc::new(LogicalUnit::new(config).unwrap());
        let device = Arc::new(TargetDevice::new(fixture.device.name()));
        device.add(Lun::ZERO, Arc::clone(&unit)).unwrap();
        Self { device, unit }
    }

    /// Takes over from `fixture` and from its nexuses, those of `others` included.
    pub(crate) fn take_over(self, fixture: &Fixture, others: &[&Nexus]) -> (Fixture, Vec<Nexus>) {
        assert_eq!(fixture.unit.holds_up_handover(), None);
        let handover = handover(fixture, others);
        for unit in &handover.units {
            let own = self.device.units().into_iter().find(|(_, own)| own.config().serial == unit.serial);
            if let Some((_, own)) = own {
                own.inherit(unit).unwrap();
            }
        }
        self.device.inherit(&handover.targets[0]).unwrap();
        let mut nexuses = Vec::new();
        for (nexus, session) in [&fixture.nexus].into_iter().chain(others.iter().copied()).zip(&handover.sessions) {
            let come = self.device.attach(nexus.name().clone());
            come.inherit(&session.nexus);
            nexuses.push(come);
        }
        let first = nexuses.remove(0);
        (fixture.successor(self.device, self.unit, first), nexuses)
    }
}

/// The state that a process leaves, after its way as bytes.
pub(crate) fn handover(fixture: &Fixture, others: &[&Nexus]) -> Handover {
    let nexuses = [&fixture.nexus].into_iter().chain(others.iter().copied());
    let session = |nexus: &Nexus| Session { nexus: nexus.handover(), ..Session::default() };
    let left = Handover {
        sessions: nexuses.map(session).collect(),
        targets: vec![fixture.device.handover()],
        units: fixture.device.units().iter().map(|(_, unit)| unit.handover(fixture.device.name())).collect(),
        ..Handover::default()
    };
    let read = Handover::decode(&left.encode().unwrap()).unwrap();
    assert_eq!(read, left);
    read
}
