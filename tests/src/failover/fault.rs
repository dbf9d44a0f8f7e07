//! The faults themselves.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::LIMIT;
use super::kind::Kind;
use super::load::Load;
use super::site::{Access, Site};
use crate::ceph::Ceph;
use crate::process::wait_until;
use crate::server::lunette;
use crate::tool::run_at_most;

/// How long clients have to find the other gateway by themselves, before the fault ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the OSD is stopped: longer than a gateway may be silent.
const OUTAGE: Duration = Duration::from_secs(5);

/// Makes the fault, waits until the other gateway has the disk, and ends the fault. The time from its begin until the
/// load goes on.
pub(super) fn move_disk(kind: Kind, image: &str, load: &Load, active: &mut Site, other: &Site) -> Duration {
    let began = Instant::now();
    match kind {
        Kind::Move => {
            let group = other.group.to_string();
            run_at_most(LIMIT, lunette().args(["gateway", "move", image, "--to", &group])).succeeded();
        }
        Kind::Stop => _ = active.take_server().stop(),
        Kind::Kill => active.take_server().kill(),
        Kind::Hang => active.server().signal(Signal::STOP),
        Kind::Partition | Kind::Osd => active.island.cut_off(),
    }
    other.await_access(Access::Active);
    let mut answered = load.reaches_within(other, PATIENCE).then(|| began.elapsed());
    match kind {
        Kind::Hang => active.server().signal(Signal::CONT),
        Kind::Partition => active.island.join_again(),
        _ => {}
    }
    if answered.is_none() && load.reaches_within(other, LIMIT) {
        answered = Some(began.elapsed());
    }
    answered.expect("the load goes on through the other gateway")
}

/// Stops the OSD for a while. The time until the load goes on, and no gateway loses the disk meanwhile.
pub(super) fn stop_cluster(ceph: &Ceph, load: &Load, active: &Site) -> Duration {
    let began = Instant::now();
    ceph.signal_osd(Signal::STOP);
    let changed = wait_until(OUTAGE, || (active.access() != Access::Active).then(|| active.server().log()));
    ceph.signal_osd(Signal::CONT);
    assert_eq!(changed, None, "the gateway gives up the disk when the cluster does not answer");
    load.await_requests(active);
    began.elapsed()
}
