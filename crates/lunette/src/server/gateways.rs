//! The gateways of this process, each to a disk that other gateways offer, too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use lunette_device::{LogicalUnit, PortGroupsError, TargetDevice, system_entropy};
use lunette_rbd::{Access, Gateway, GatewayStore};
use lunette_scsi::Lun;
use lunette_scsi::port_groups::AccessState;

use crate::config::gateways::Gateways;
use crate::disks::Place;
use crate::failure::Failure;

/// The time that all gateways of this process together have to give up their images at the end.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// The gateways that have not left their images, so that [`leave`] finds them.
static RUNNING: Mutex<Vec<Arc<Entry>>> = Mutex::new(Vec::new());

/// Offers a disk together with other gateways, until what is returned is dropped. An image has one gateway of this
/// process at a time: another one would take it from the gateway that serves it.
pub(crate) fn start(
    config: &Gateways,
    store: &Arc<GatewayStore>,
    device: &Arc<TargetDevice>,
    lun: Lun,
    unit: &Arc<LogicalUnit>,
) -> Result<RunningGateway, Failure> {
    let image = Place::Image(store.url().clone()).plain_identity().unwrap_or_default();
    await_others(&image)?;
    let mut incarnation = [0; 8];
    system_entropy()(&mut incarnation).map_err(Failure::other)?;
    let resized = Arc::downgrade(unit);
    store.on_resize(move || {
        if let Some(unit) = resized.upgrade() {
            unit.capacity_changed();
        }
    });
    // An earlier disk of this LUN may have left its states.
    for group in &config.groups {
        if let Err(error) = device.set_access_state(Some(lun), *group, AccessState::Standby) {
            return Err(Failure::disk(format!("{}: {error}", store.url())));
        }
    }
    let shown = Arc::new(Shown::new(device, lun, unit));
    let (ends, shared, config, url) = (Arc::clone(&shown), Arc::downgrade(unit), config.clone(), store.url().clone());
    let gateway =
        Gateway::start(store, config.group, u64::from_be_bytes(incarnation), move |publication, published| {
            let Some(unit) = shared.upgrade() else { return };
            let is_active = publication.access == Access::Active;
            let of = |group| if group == config.group { publication.access } else { publication.value.access(group) };
            let states: Vec<_> = config.groups.iter().map(|group| (*group, of(*group))).collect();
            let (changed, shown, url) = (Arc::clone(&unit), Arc::clone(&shown), url.clone());
            // Reservations first: this gateway may be about to have the disk.
            let show_access = move || {
                if is_active {
                    changed.changed_elsewhere();
                }
                if let Err(error) = shown.show(states) {
                    tracing::error!(image = %url, %error, "an access state cannot be set");
                }
                published();
            };
            unit.publish(&publication.value, Box::new(show_access));
        });
    let gateway = gateway.map_err(|error| Failure::disk(format!("{}: {error}", store.url())))?;
    let asker = gateway.asker();
    unit.set_gateway(Box::new(move |request, answered| asker.ask(request, answered)));
    let mut running = RunningGateway::new(image, move |limit| gateway.leave(limit));
    running.shown = Some(ends);
    Ok(running)
}

/// The access states of a gateway, as initiators see them.
struct Shown {
    device: Weak<TargetDevice>,
    lun: Lun,
    unit: Weak<LogicalUnit>,
    stage: Mutex<Stage>,
}

/// The relation of a gateway to the states of its LUN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Sets them already, while the disk has not got its place yet.
    Comes,
    /// Sets them: the disk has its place.
    Serves,
    /// Leaves them to another disk.
    Over,
}

impl Shown {
    fn new(device: &Arc<TargetDevice>, lun: Lun, unit: &Arc<LogicalUnit>) -> Self {
        let (device, unit) = (Arc::downgrade(device), Arc::downgrade(unit));
        Self { device, lun, unit, stage: Mutex::new(Stage::Comes) }
    }

    /// Shows new states, unless the LUN has passed to another disk.
    fn show(&self, states: Vec<(u16, Access)>) -> Result<(), PortGroupsError> {
        let mut stage = lock(&self.stage);
        let Some(device) = self.device.upgrade() else { return Ok(()) };
        let has_place =
            device.units().iter().any(|(lun, unit)| *lun == self.lun && self.unit.as_ptr() == Arc::as_ptr(unit));
        *stage = match *stage {
            Stage::Comes | Stage::Serves if has_place => Stage::Serves,
            // A stand-in or an earlier disk has the place, or none has.
            Stage::Comes => Stage::Comes,
            Stage::Serves | Stage::Over => return Ok(()),
        };
        let set = |(group, access)| device.set_access_state(Some(self.lun), group, state(access));
        // All are set, also after one that is refused.
        states.into_iter().map(set).fold(Ok(()), Result::and)
    }

    /// Shows nothing from now on, whatever the gateway does until it ends.
    fn end(&self) {
        *lock(&self.stage) = Stage::Over;
    }
}

/// Waits for gateways of this process that leave the image.
///
/// # Errors
///
/// One of them goes on.
fn await_others(image: &str) -> Result<(), Failure> {
    let others: Vec<_> = lock(&RUNNING).iter().filter(|other| other.image == image).cloned().collect();
    for other in others {
        if !other.is_over.load(Ordering::Acquire) {
            return Err(Failure::disk(format!(
                "{image}: another target of this server offers it; remove that in one change, and add this in the next"
            )));
        }
        other.end(LEAVE_LIMIT);
    }
    Ok(())
}

/// A gateway to a disk. Dropping it gives up the image, so it runs as long as a disk that has it: that of a change that
/// is refused ends with the change, and that of a target that is removed with the target.
pub(crate) struct RunningGateway {
    entry: Arc<Entry>,
    shown: Option<Arc<Shown>>,
}

struct Entry {
    /// The identity of the image.
    image: String,
    is_over: AtomicBool,
    /// Gives up the image within a time. Whether that is done.
    leave: Mutex<Option<Leave>>,
}

type Leave = Box<dyn FnOnce(Duration) -> bool + Send>;

impl RunningGateway {
    pub(crate) fn new(image: String, leave: impl FnOnce(Duration) -> bool + Send + 'static) -> Self {
        let entry = Entry { image, is_over: AtomicBool::new(false), leave: Mutex::new(Some(Box::new(leave))) };
        let entry = Arc::new(entry);
        lock(&RUNNING).push(Arc::clone(&entry));
        Self { entry, shown: None }
    }
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        self.entry.is_over.store(true, Ordering::Release);
        if let Some(shown) = &self.shown {
            shown.end();
        }
        let entry = Arc::clone(&self.entry);
        // Leaving waits for the cluster, and a change has a lock.
        let leave = thread::Builder::new().name("lunette-leave".into()).spawn(move || entry.end(LEAVE_LIMIT));
        if leave.is_err() {
            self.entry.end(LEAVE_LIMIT);
        }
    }
}

impl Entry {
    /// Gives up the image, or waits until that is done.
    fn end(&self, limit: Duration) {
        let leave = &mut *lock(&self.leave);
        if leave.take().is_some_and(|leave| !leave(limit)) {
            tracing::warn!(image = self.image, "not given up in time: the other gateways take it when they notice");
        }
        lock(&RUNNING).retain(|other| !std::ptr::eq(&raw const **other, self));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn state(access: Access) -> AccessState {
    match access {
        Access::Active => AccessState::ActiveOptimized,
        Access::Standby => AccessState::Standby,
        Access::Transitioning => AccessState::Transitioning,
    }
}

/// Gives up all images, so that other gateways have them at once.
pub(crate) fn leave() {
    let gateways = std::mem::take(&mut *lock(&RUNNING));
    let deadline = Instant::now() + LEAVE_LIMIT;
    for gateway in gateways {
        gateway.end(deadline.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use lunette_device::{GroupAccess, LogicalUnitConfig, PortGroup, PortGroupsConfig};
    use lunette_scsi::port_groups::Management;
    use lunette_store::MemoryStore;

    use super::*;

    fn unit() -> Arc<LogicalUnit> {
        let store = Arc::new(MemoryStore::new(1 << 20).unwrap());
        Arc::new(LogicalUnit::new(LogicalUnitConfig::new(store, "s")).unwrap())
    }

    #[test]
    fn a_gateway_that_ends_late_leaves_the_states_of_the_next_disk() {
        let groups = vec![PortGroup {
            id: 1,
            ports: vec![1],
            access: GroupAccess { state: AccessState::Standby, preferred: false },
            units: [].into(),
            offline: false,
        }];
        let config = PortGroupsConfig { management: Management::Implicit, transition_time_s: 0, groups, state: None };
        let device = Arc::new(TargetDevice::with_port_groups("iqn.2026-11.test:a", config).unwrap());
        device.set_ports([("a,t,0x1", 1)]);
        let access = || device.access_states(Lun::ZERO)[0].1;
        let [stand_in, old, new] = [unit(), unit(), unit()];
        let [of_old, of_new] = [&old, &new].map(|unit| Shown::new(&device, Lun::ZERO, unit));
        device.assign(Lun::ZERO, Some(stand_in));
        of_old.show(vec![(1, Access::Active)]).unwrap();
        assert_eq!(access(), AccessState::ActiveOptimized, "before the disk has its place");
        device.assign(Lun::ZERO, Some(Arc::clone(&old)));
        of_old.show(vec![(1, Access::Transitioning)]).unwrap();
        assert_eq!(access(), AccessState::Transitioning);
        device.assign(Lun::ZERO, Some(Arc::clone(&new)));
        of_new.show(vec![(1, Access::Active)]).unwrap();
        of_old.show(vec![(1, Access::Standby)]).unwrap();
        assert_eq!(access(), AccessState::ActiveOptimized, "the place is another disk's");
        of_new.end();
        of_new.show(vec![(1, Access::Standby)]).unwrap();
        assert_eq!(access(), AccessState::ActiveOptimized, "the gateway is over");
    }
}
