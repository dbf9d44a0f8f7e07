//! The gateways of this process, each to a disk that other gateways offer, too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lunette_device::{LogicalUnit, TargetDevice, system_entropy};
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
    let (device, shared, config, url) =
        (Arc::downgrade(device), Arc::downgrade(unit), config.clone(), store.url().clone());
    let gateway =
        Gateway::start(store, config.group, u64::from_be_bytes(incarnation), move |publication, published| {
            let (Some(device), Some(unit)) = (device.upgrade(), shared.upgrade()) else { return };
            let is_active = publication.access == Access::Active;
            let of = |group| if group == config.group { publication.access } else { publication.value.access(group) };
            let states: Vec<_> = config.groups.iter().map(|group| (*group, of(*group))).collect();
            let (changed, url) = (Arc::clone(&unit), url.clone());
            // Reservations first: this gateway may be about to have the disk.
            let show_access = move || {
                if is_active {
                    changed.changed_elsewhere();
                }
                for (group, access) in states {
                    if let Err(error) = device.set_access_state(Some(lun), group, state(access)) {
                        tracing::error!(image = %url, %error, "an access state cannot be set");
                    }
                }
                published();
            };
            unit.publish(&publication.value, Box::new(show_access));
        });
    let gateway = gateway.map_err(|error| Failure::disk(format!("{}: {error}", store.url())))?;
    let asker = gateway.asker();
    unit.set_gateway(Box::new(move |request, answered| asker.ask(request, answered)));
    Ok(RunningGateway::new(image, move |limit| gateway.leave(limit)))
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
pub(crate) struct RunningGateway(Arc<Entry>);

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
        Self(entry)
    }
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        let entry = Arc::clone(&self.0);
        // Leaving waits for the cluster, and a change has a lock.
        let leave = thread::Builder::new().name("lunette-leave".into()).spawn(move || entry.end(LEAVE_LIMIT));
        if leave.is_err() {
            self.0.end(LEAVE_LIMIT);
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
