//! The repeated attempts to serve disks, portals, secrets and places of the API that could not be served.
//!
//! Disks are opened beside one another and without a lock, because that may take long. The reloader puts each in its
//! place as soon as it is open, unless the configuration has changed.

use std::thread;
use std::time::{Duration, Instant};

use lunette_api::{Cause, Health};

use crate::failure::Failure;
use crate::server::control_plane::{self, ControlPlane, Door};
use crate::systemd::Sockets;

/// The shortest time between two attempts.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time between two attempts. The interval doubles while nothing changes.
const MAX_INTERVAL: Duration = Duration::from_secs(30);

/// Tries what could not be served, until the process ends. `closed`: the doors of the control plane that could not be
/// opened.
pub(crate) fn follow(control_plane: ControlPlane, mut closed: Vec<Door>) -> Result<(), Failure> {
    let health = control_plane.health().clone();
    let run = move || {
        let openings = control_plane.openings();
        let (mut interval, mut known, mut ends) = (MIN_INTERVAL, Vec::new(), 0);
        let mut next = Instant::now() + interval;
        loop {
            let ended = openings.wait_for_more(ends, next);
            if ended != ends {
                control_plane.settle();
            }
            ends = ended;
            if Instant::now() < next {
                continue;
            }
            let open_troubles = troubles(&health);
            interval = if open_troubles == known { (interval * 2).min(MAX_INTERVAL) } else { MIN_INTERVAL };
            known = open_troubles;
            next = Instant::now() + interval;
            if !known.is_empty() {
                control_plane.retry();
                control_plane.settle();
                closed.retain(|door| !reopen(door, &control_plane, &health));
            }
        }
    };
    thread::Builder::new().name("lunette-recovery".into()).spawn(run).map(drop).map_err(Failure::no_thread)
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
