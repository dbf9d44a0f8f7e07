//! The access states that a device leaves to the process that takes its place.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1 |
//! | then for each unit and group: 8 | LUN, as REPORT LUNS lists it |
//! | 2 | TARGET PORT GROUP, big-endian |
//! | 1 | ASYMMETRIC ACCESS STATE |
//! | 1 | STATUS CODE |
//! | 1 | the configured ASYMMETRIC ACCESS STATE |

use std::collections::BTreeSet;

use lunette_scsi::Lun;
use lunette_scsi::port_groups::{AccessState, StatusCode};

use super::{GroupState, PortGroups, configured};
use crate::persist::ValueReader;

const VERSION: u8 = 1;

impl PortGroups {
    /// The access states of these units, and of those that have a state and are not there yet.
    pub(crate) fn handover(&self, units: impl Iterator<Item = Lun>) -> Vec<u8> {
        let luns: BTreeSet<Lun> = self.changed.keys().map(|(lun, _)| *lun).chain(units).collect();
        let mut bytes = vec![VERSION];
        for (lun, group) in luns.iter().flat_map(|lun| self.config.groups.iter().map(move |group| (*lun, group))) {
            let GroupState { state, status } = self.current(lun, group);
            bytes.extend_from_slice(&lun.encode());
            bytes.extend_from_slice(&group.id.to_be_bytes());
            bytes.extend_from_slice(&[state.code(), status as u8, configured(lun, group).state.code()]);
        }
        bytes
    }

    /// Takes over the access states of a predecessor for the units that `concerned` names. As with a [new
    /// configuration](Self::configure), a state stays where the configured one is the same, and everywhere when only
    /// initiators change states. `None`, and nothing changes, for other bytes than those of
    /// [`handover`](Self::handover).
    pub(crate) fn inherit(&mut self, bytes: &[u8], concerned: impl Fn(&Lun) -> bool) -> Option<()> {
        let mut reader = ValueReader(bytes);
        let mut states = Vec::new();
        if !reader.is_empty() && reader.take()? != [VERSION] {
            return None;
        }
        while !reader.is_empty() {
            let (lun, id) = (Lun::decode(reader.take()?), u16::from_be_bytes(reader.take()?));
            let [state, status, was_configured] = reader.take()?;
            let status = [StatusCode::None, StatusCode::Explicit, StatusCode::Implicit].get(usize::from(status))?;
            let current = GroupState { state: AccessState::decode(state)?, status: *status };
            states.push((lun, id, current, AccessState::decode(was_configured)?));
        }
        for (lun, id, current, was_configured) in states {
            let Some(group) = self.group(id) else { continue };
            let stays = self.config.keeps_states() || configured(lun, group).state == was_configured;
            if stays && concerned(&lun) && self.current(lun, group) != current {
                self.changed.insert((lun, id), current);
            }
        }
        Some(())
    }
}
