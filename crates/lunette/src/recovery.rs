//! The repeated attempts to serve disks, portals, secrets and places of the API that could not be served.
//!
//! Disks are opened without a lock, because that may take long. The reloader then puts them in their places, unless the
//! configuration has changed.

use std::thread;
use std::time::Duration;

use lunette_api::{Cause, Health};

use crate::config::{LunEntry, Target};
use crate::control_plane::{self, ControlPlane, Door};
use crate::disk::{Disk, DiskStore};
use crate::failure::Failure;
use crate::reload::Spares;
use crate::served::Served;
use crate::systemd::Sockets;

/// The shortest time between two attempts.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time between two attempts. The interval doubles while nothing changes.
const MAX_INTERVAL: Duration = Duration::from_secs(30);

/// A disk that could not be opened before, and why it still cannot, if so.
pub(crate) struct Reopened {
    pub(crate) target: Target,
    pub(crate) entry: LunEntry,
    pub(crate) disk: Result<Disk, Failure>,
}

/// Places that stand in for disks, and what is needed to open these.
pub(crate) struct Absent {
    pub(crate) served: Served,
    pub(crate) spares: Spares,
    pub(crate) entries: Vec<(Target, LunEntry)>,
}

impl Absent {
    /// The troubles of these targets.
    pub(crate) fn of(served: &Served, spares: &Spares, targets: &[Target]) -> Self {
        let is_absent = |target: &Target, entry: &LunEntry| {
            let disk = served.targets.get(&target.name).and_then(|open| open.disks.get(&entry.number));
            disk.is_some_and(|disk| matches!(disk.store, DiskStore::Absent(_)))
        };
        let of_target = |target: &Target| {
            let absent = target.luns.iter().filter(|entry| is_absent(target, entry));
            absent.map(|entry| (target.clone(), entry.clone())).collect::<Vec<_>>()
        };
        let entries = targets.iter().flat_map(of_target).collect();
        Self { served: served.clone(), spares: spares.clone(), entries }
    }

    /// Opens those that can be opened by now.
    pub(crate) fn reopen(self) -> Vec<Reopened> {
        let Self { served, mut spares, entries } = self;
        let reopen = |(target, entry): (Target, LunEntry)| {
            let disk = served.reopen_disk(&target, &entry, &mut spares);
            Reopened { target, entry, disk }
        };
        entries.into_iter().map(reopen).collect()
    }
}

/// Tries what could not be served, until the process ends. `closed`: the doors of the control plane that could not be
/// opened.
pub(crate) fn follow(control_plane: ControlPlane, mut closed: Vec<Door>) -> Result<(), Failure> {
    let health = control_plane.health().clone();
    let run = move || {
        let (mut interval, mut known) = (MIN_INTERVAL, Vec::new());
        loop {
            thread::sleep(interval);
            let open_troubles = troubles(&health);
            interval = if open_troubles == known { (interval * 2).min(MAX_INTERVAL) } else { MIN_INTERVAL };
            known = open_troubles;
            if known.is_empty() {
                continue;
            }
            control_plane.recover();
            closed.retain(|door| !reopen(door, &control_plane, &health));
        }
    };
    thread::Builder::new().name("lunette-recovery".into()).spawn(run).map(drop).map_err(Failure::other)
}

/// The troubles that end when something can be opened or read.
fn troubles(health: &Health) -> Vec<(String, Option<String>, String)> {
    let is_ours = |cause| matches!(cause, Cause::NotOpened | Cause::Secret);
    let troubles = health.troubles_now().into_iter().filter(|trouble| is_ours(trouble.cause));
    troubles.map(|trouble| (trouble.kind, trouble.target, trouble.name)).collect()
}

/// Opens a door that could not be opened. Whether it is open now.
fn reopen(door: &Door, control_plane: &ControlPlane, health: &Health) -> bool {
    let opened = control_plane::open_door(&control_plane.config(), door, &mut Sockets::default())
        .and_then(|listener| control_plane::start(vec![listener], control_plane.clone()));
    match &opened {
        Ok(()) => health.clear(&door.subject(), Cause::NotOpened),
        Err(failure) => health.report(door.subject(), Cause::NotOpened, failure.to_string()),
    }
    opened.is_ok()
}
