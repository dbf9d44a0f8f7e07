//! Gateways to one disk: those of this process, and `lunette gateway`, which looks at them and moves a disk.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, Subcommand};
use lunette_device::{LogicalUnit, TargetDevice, system_entropy};
use lunette_rbd::{Access, Gateway, GatewayStore, RbdUrl, gateways_of, move_image};
use lunette_scsi::Lun;
use lunette_scsi::port_groups::AccessState;

use crate::config::gateways::Gateways;
use crate::failure::Failure;
use crate::output;

/// The time that all gateways of this process together have to give up their images at the end.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// The time that an image has to get from one gateway to another.
const MOVE_LIMIT: Duration = Duration::from_secs(30);

static RUNNING: Mutex<Vec<Gateway>> = Mutex::new(Vec::new());

/// Offers a disk together with other gateways, until what is returned is dropped. Once it is [kept](keep), [`leave`]
/// ends it.
pub(crate) fn start(
    config: &Gateways,
    store: &Arc<GatewayStore>,
    device: &Arc<TargetDevice>,
    lun: Lun,
    unit: &Arc<LogicalUnit>,
) -> Result<Started, Failure> {
    let mut incarnation = [0; 8];
    system_entropy()(&mut incarnation).map_err(Failure::other)?;
    let resized = Arc::downgrade(unit);
    store.on_resize(move || {
        if let Some(unit) = resized.upgrade() {
            unit.capacity_changed();
        }
    });
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
    Ok(Started(Some(gateway)))
}

/// A gateway whose disk has no place yet.
pub(crate) struct Started(Option<Gateway>);

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(gateway) = self.0.take() {
            give_up(gateway, LEAVE_LIMIT);
        }
    }
}

/// Lets a gateway run until [`leave`] ends it.
pub(crate) fn keep(started: Option<Started>) {
    let gateway = started.and_then(|mut started| started.0.take());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).extend(gateway);
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
    let gateways = std::mem::take(&mut *RUNNING.lock().unwrap_or_else(PoisonError::into_inner));
    let deadline = std::time::Instant::now() + LEAVE_LIMIT;
    for gateway in gateways {
        give_up(gateway, deadline.saturating_duration_since(std::time::Instant::now()));
    }
}

fn give_up(gateway: Gateway, limit: Duration) {
    if !gateway.leave(limit) {
        tracing::warn!("an image was not given up in time: the other gateways take it when they notice");
    }
}

/// Look at the gateways of a disk in Ceph, or let another one have it.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Print the gateways that are running, and which one has the disk
    List {
        /// rbd:POOL/IMAGE, as the gateways name it
        image: RbdUrl,
    },
    /// Let the gateway of a group have the disk; prints how long it took
    Move {
        /// rbd:POOL/IMAGE, as the gateways name it
        image: RbdUrl,
        /// The target port group of the gateway
        #[arg(long, value_name = "GROUP")]
        to: u16,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.what {
        What::List { image } => list(image),
        What::Move { image, to } => {
            let took = move_image(image, *to, MOVE_LIMIT).map_err(|error| failure(image, &error))?;
            output::line(format!("group {to} has the disk after {:.3} s", took.as_secs_f64()))
        }
    }
}

fn list(image: &RbdUrl) -> Result<(), Failure> {
    let value = gateways_of(image).map_err(|error| failure(image, &error))?;
    let members =
        value.iter().flat_map(|value| value.members().map(|member| (member.group, value.access(member.group))));
    for (group, access) in members {
        output::line(format!("group {group}: {}", word(access)))?;
    }
    Ok(())
}

fn word(access: Access) -> &'static str {
    match access {
        Access::Active => "active",
        Access::Standby => "standby",
        Access::Transitioning => "transitioning",
    }
}

fn failure(image: &RbdUrl, error: &lunette_rbd::OpenError) -> Failure {
    Failure::disk(format!("{image}: {error}"))
}
