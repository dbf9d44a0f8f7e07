//! The logical units that an initiator would see if it logged in.

use lunette_session::iscsi_target::Origin;

use super::Core;
use super::identity::identities;
use crate::control::{Seen, Viewer};

impl Core {
    /// The logical units of all targets that let an initiator in without CHAP. A template has none before it has made
    /// a host of its own for the initiator.
    pub(super) fn view(&self, viewer: Viewer) -> Vec<Seen> {
        let Viewer { initiator, peer, certificate } = viewer;
        let origin = Origin { peer, identities: certificate.map(identities).unwrap_or_default() };
        let mut seen = Vec::new();
        for target in &self.lifecycle.directory().targets {
            let host = target.host_of(&initiator, &origin).filter(|host| !host.is_template && target.is_open(host));
            let (Some(host), Some(device)) = (host, self.lifecycle.device(&target.name)) else { continue };
            let units = device.units_of(&host.name).into_iter();
            seen.extend(units.map(|(lun, unit)| Seen { target: target.name.clone(), lun, unit }));
        }
        seen
    }
}
