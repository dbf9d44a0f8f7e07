//! Clones that initiators of templates get: volumes like others, found again by their labels.

use std::collections::BTreeMap;

use lunette_api::Problem;
use lunette_api::volumes::Labels;
use lunette_pools::{Name, NewVolume};

use super::change::drawn_serial;
use super::{At, Look, ServedVolumes, problem};
use crate::config::Target;
use crate::config::clones::CloneOf;
use crate::config::hosts::HostEntry;
use crate::text::digest16;

/// The labels of a clone: the target, its host that is the template, and the initiator.
const TARGET: &str = "lunette.target";
const TEMPLATE: &str = "lunette.host";
const INITIATOR: &str = "lunette.initiator";

/// The longest part of a clone's name that comes from its origin, and from its initiator.
const MAX_PART_CHARACTERS: usize = 24;

/// The initiator of a template, for which there is one clone at most.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CloneKey {
    pub(crate) target: String,
    pub(crate) template: String,
    pub(crate) initiator: String,
}

impl CloneKey {
    fn of(labels: &Labels) -> Option<Self> {
        let label = |key| labels.get(key).cloned();
        Some(Self { target: label(TARGET)?, template: label(TEMPLATE)?, initiator: label(INITIATOR)? })
    }

    fn labels(&self) -> Labels {
        let Self { target, template, initiator } = self;
        [(TARGET, target), (TEMPLATE, template), (INITIATOR, initiator)]
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .into()
    }

    /// The name of its clone: readable, and another for each key.
    fn volume(&self, origin: &Name) -> Name {
        let short = |text: &str| -> String {
            let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
            text.chars().map(plain).take(MAX_PART_CHARACTERS).collect()
        };
        let own = self.initiator.rsplit(':').next().unwrap_or_default();
        let digest = digest16(&format!("{} {} {}", self.target, self.template, self.initiator));
        let name = format!("{}-{}-{}", short(origin.as_str()), short(own), &digest[..8]);
        name.parse().expect("the beginning of a name, with plain characters")
    }
}

/// A host that makes clones.
pub(crate) struct Template {
    /// The host, as a path of the API.
    path: String,
    of: CloneOf,
}

impl From<(&Target, &HostEntry, &CloneOf)> for Template {
    fn from((target, host, of): (&Target, &HostEntry, &CloneOf)) -> Self {
        Self { path: format!("targets/{}/hosts/{}", target.name, host.name), of: of.clone() }
    }
}

impl Look {
    /// Refuses what would leave a host without the origin of its clones: this snapshot, or this volume as such.
    pub(super) fn check_is_no_origin(&self, at: &At, snapshot: Option<&Name>) -> Result<(), Problem> {
        let is_made_of_it = |Template { of: CloneOf { pool, origin }, .. }: &&Template| {
            let is_same_state = snapshot.is_none() || origin.snapshot.as_ref() == snapshot;
            (pool, &origin.volume) == (&at.pool, &at.volume) && is_same_state
        };
        let Some(Template { path, of }) = self.templates.iter().find(is_made_of_it) else { return Ok(()) };
        Err(Problem::in_use(format!("{path} makes clones of {of}; give it another clone, or remove it first")))
    }
}

impl ServedVolumes {
    /// The clones of a pool that initiators of templates have.
    pub(crate) fn clones(&self, pool: &Name) -> Result<BTreeMap<CloneKey, Name>, Problem> {
        let (volumes, _) = self.pool(pool.as_str())?.volumes().map_err(|error| problem(&error))?;
        let volumes = volumes.into_iter().filter(|volume| !volume.is_filling);
        Ok(volumes.filter_map(|volume| Some((CloneKey::of(&volume.labels)?, volume.name))).collect())
    }

    /// Makes the clone of an initiator.
    pub(crate) fn make_clone(&self, of: &CloneOf, key: &CloneKey) -> Result<Name, Problem> {
        let pool = self.pool(of.pool.as_str())?;
        let name = key.volume(&of.origin.volume);
        let serial = drawn_serial()?;
        let new = NewVolume { len_bytes: 0, is_full: false, is_filling: false, serial, labels: key.labels() };
        let at = At { pool: of.pool.clone(), volume: name.clone() };
        self.clone_volume(&*pool, &at, &of.origin, &new, None)?;
        Ok(name)
    }

    /// Removes a clone with its snapshots.
    pub(crate) fn remove_clone(&self, pool: &Name, volume: &Name) -> Result<(), Problem> {
        let at = At { pool: pool.clone(), volume: volume.clone() };
        let snapshots = self.pool(pool.as_str())?.snapshots(volume).map_err(|error| problem(&error))?;
        for snapshot in snapshots {
            self.remove_snapshot_of(&at, &snapshot.name)?;
        }
        self.remove_volume(&at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_have_readable_names_of_which_none_is_that_of_another() {
        let name = |target: &str, initiator: &str| {
            let key = CloneKey { target: target.into(), template: "web".into(), initiator: initiator.into() };
            assert_eq!(CloneKey::of(&key.labels()).as_ref(), Some(&key));
            key.volume(&"golden".parse().unwrap()).to_string()
        };
        assert!(name("iqn.a", "iqn.2026-11.org.example:web17").starts_with("golden-web17-"));
        assert_ne!(name("iqn.a", "iqn.x:web17"), name("iqn.a", "iqn.y:web17"));
        assert_ne!(name("iqn.a", "iqn.x:web17"), name("iqn.b", "iqn.x:web17"));
        for odd in ["iqn.x:", "eui.0123456789abcdef", "iqn.x:ä/../b", &format!("iqn.x:{}", "y".repeat(200))] {
            name("iqn.a", odd);
        }
        assert_eq!(CloneKey::of(&Labels::from([(TARGET.to_owned(), "iqn.a".to_owned())])), None);
    }
}
