//! The objects that a configuration names and this machine lacks.

use std::cell::LazyCell;
use std::net::SocketAddr;
use std::path::Path;

use lunette_api::Subject;

use super::Severity;
use super::secrets::Secrets;
use crate::config::api::{Api, Place as ApiPlace};
use crate::config::diff::{Change, LunChange};
use crate::config::mistakes::{Mistake, Step};
use crate::config::{Config, Listen, LunEntry, ecl};
use crate::disks::DiskName;
use crate::secret::SecretFiles;

/// Why something that is named cannot be used.
pub(crate) type Lack = (Severity, String);

/// The objects that a configuration may name. A test has a machine of its own.
pub(crate) trait Machine {
    /// Whether a portal can be opened at this address.
    fn listen(&self, address: SocketAddr) -> Result<(), Lack>;
    /// Whether there is a network interface of this name.
    fn interface(&self, name: &str) -> Result<(), Lack>;
    /// Reads the secrets in files.
    fn secrets(&self, files: &[&Path]) -> SecretFiles;
    /// Whether each of these disks can be opened.
    fn disks(&self, entries: &[LunEntry]) -> Vec<Result<(), Lack>>;
    /// Whether a file can be made where this one is to be.
    fn folder_of(&self, file: &Path) -> Result<(), Lack>;
    /// Whether the certificates in a folder can be used by a server.
    fn certificates(&self, folder: &Path) -> Result<(), Lack>;
    /// Whether what a place of the API needs is there.
    fn api(&self, api: &Api, place: &ApiPlace) -> Result<(), Lack>;
}

/// All objects that a configuration names and the machine lacks.
pub(crate) fn lacks(config: &Config, machine: &dyn Machine) -> Vec<(Severity, Mistake)> {
    let mut found = Lacks(Vec::new());
    let key = |name| vec![Step::Key(name)];
    let mut portals = Vec::new();
    for (index, listen) in config.listen.iter().flatten().enumerate() {
        found.listen(&[Step::Key("listen"), Step::Index(index)], listen, &mut portals, machine);
    }
    for (index, portal) in config.portals.iter().enumerate() {
        let at = [Step::Key("portal"), Step::Index(index), Step::Key("address")];
        found.listen(&at, &portal.address, &mut portals, machine);
        let at = [Step::Key("portal"), Step::Index(index), Step::Key("tls")];
        found.check(&at, portal.tls.as_deref().map_or(Ok(()), |folder| machine.certificates(folder)));
    }
    for (index, place) in config.ecl.iter().enumerate() {
        if let ecl::Place::Ethernet(interface) = place {
            found.check(&[Step::Key("ecl"), Step::Index(index)], machine.interface(interface));
        }
    }
    for (index, address) in config.metrics.iter().flat_map(|metrics| metrics.listen.iter().enumerate()) {
        found.check(&[Step::Key("metrics"), Step::Key("listen"), Step::Index(index)], machine.listen(*address));
    }
    for (index, address) in config.nbd.iter().flat_map(|nbd| nbd.listen.iter().enumerate()) {
        found.check(&[Step::Key("nbd"), Step::Key("listen"), Step::Index(index)], machine.listen(*address));
    }
    let of_nbd = config.nbd.as_ref().and_then(|nbd| nbd.tls.as_deref());
    found.check(&[Step::Key("nbd"), Step::Key("tls")], of_nbd.map_or(Ok(()), |folder| machine.certificates(folder)));
    if let Some(dashboard) = &config.adapters.dashboard {
        let at = [Step::Key("adapters"), Step::Key("dashboard"), Step::Key("listen")];
        found.check(&at, machine.listen(dashboard.listen));
    }
    if let Some(state) = &config.state {
        let refused = |(_, why)| (Severity::Error, why);
        found.check(&key("state"), machine.folder_of(state).map_err(refused));
    }
    for (index, place) in config.api.iter().flat_map(|api| api.listen.iter().enumerate()) {
        let at = [Step::Key("api"), Step::Key("listen"), Step::Index(index)];
        // What the text lacks is told already.
        let api = config.api.as_ref().filter(|api| api.check().is_ok());
        found.check(&at, api.map_or(Ok(()), |api| machine.api(api, place)));
    }
    found.0.extend(Secrets::read(config, machine).lacks());
    let disks: Vec<_> = config.targets.iter().flat_map(|target| &target.luns).cloned().collect();
    let mut of_disks = machine.disks(&disks).into_iter();
    for (index, target) in config.targets.iter().enumerate() {
        for (number, result) in (0..target.luns.len()).zip(&mut of_disks) {
            let at =
                [Step::Key("target"), Step::Index(index), Step::Key("lun"), Step::Index(number), Step::Key("disk")];
            found.check(&at, result);
        }
    }
    found.0
}

/// The obstacle to each of some changes that are made together, to `config`. `is_open`: whether the server has a disk
/// open already.
pub(crate) fn obstacles(
    changes: &[Change],
    config: &Config,
    is_open: &dyn Fn(&DiskName) -> bool,
    machine: &dyn Machine,
) -> Vec<Option<String>> {
    // They are read when a change needs them, and once.
    let secrets = LazyCell::new(|| Secrets::read(config, machine));
    let of_rules = |is_meant: &dyn Fn(&Subject) -> bool| secrets.obstacle(config, is_meant);
    let of_disks = |entries: &[LunEntry]| {
        let closed: Vec<_> = entries.iter().filter(|entry| !is_open(&entry.disk)).cloned().collect();
        machine.disks(&closed).into_iter().find_map(Result::err).map(|(_, why)| why)
    };
    let obstacle = |change: &Change| match change {
        Change::PortalAdded(portal) => {
            let port = portal.address.port();
            let makes_room =
                |change: &Change| matches!(change, Change::PortalRemoved(gone) if gone.address.port() == port);
            if changes.iter().any(makes_room) { None } else { machine.listen(portal.address).err().map(|(_, why)| why) }
        }
        Change::TargetAdded(name) => {
            let of_target = |subject: &Subject| subject.target() == Some(name);
            of_disks(&config.target(name)?.luns).or_else(|| of_rules(&of_target))
        }
        Change::Lun { target, number, change: LunChange::Added | LunChange::Replaced } => {
            of_disks(std::slice::from_ref(config.target(target)?.lun(*number)?))
        }
        Change::Host { target, name, .. } => of_rules(&|subject| *subject == Subject::host(target, name)),
        Change::Secrets(name) => of_rules(&|subject| *subject == Subject::Target(name.clone())),
        _ => None,
    };
    changes.iter().map(obstacle).collect()
}

struct Lacks(Vec<(Severity, Mistake)>);

impl Lacks {
    fn check(&mut self, at: &[Step], result: Result<(), Lack>) {
        if let Err((severity, text)) = result {
            self.0.push((severity, Mistake { at: at.to_vec(), text }));
        }
    }

    /// `portals`: those before it.
    fn listen(&mut self, at: &[Step], listen: &Listen, portals: &mut Vec<SocketAddr>, machine: &dyn Machine) {
        self.check(at, listen.unknown().map_or(Ok(()), |why| Err((Severity::Degraded, why.into()))));
        for address in &listen.addresses {
            let first = portals.iter().find(|first| keeps_out(**first, *address));
            let taken = first.map(|first| {
                let why = format!("portal {address}: the portal {first} listens there, too; leave out one of them");
                (Severity::Degraded, why)
            });
            self.check(at, taken.map_or_else(|| machine.listen(*address), Err));
        }
        portals.extend(&listen.addresses);
    }
}

/// Whether the system lets only one of two different portals listen. Port 0 is another port each time.
fn keeps_out(one: SocketAddr, other: SocketAddr) -> bool {
    let is_all = one.ip().is_unspecified() || other.ip().is_unspecified();
    one != other && one.port() != 0 && one.port() == other.port() && one.is_ipv4() == other.is_ipv4() && is_all
}
