//! The parts of a server that a plan looks at, and the failures that refuse it.

use lunette_target::PortalConfig;

use super::Wanted;
use crate::config::Config;
use crate::config::diff::Change;
use crate::server::served::OnTrouble;

/// The objects that a plan looks at, beside its changes, for what no configuration shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// All: an administrator lets the server look again, and has seen to files and media.
    All,
    /// Some targets: a client changes something of them, and knows nothing of the others.
    Targets(Vec<String>),
}

impl Scope {
    /// The targets that changes of a client are about.
    pub(super) fn of_client(wanted: &Wanted) -> Self {
        Self::Targets(wanted.changes.iter().filter_map(Change::target).collect())
    }

    pub(super) fn has(&self, target: &str) -> bool {
        match self {
            Self::All => true,
            Self::Targets(names) => names.iter().any(|name| name == target),
        }
    }
}

/// The failures that refuse the plan as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    All,
    /// Failures at what a client changes, which is told at once.
    Of {
        targets: Vec<String>,
        portals: Vec<PortalConfig>,
    },
    None,
}

impl Refusal {
    /// For files that were read again.
    pub(super) fn of_files(config: &Config) -> Self {
        if config.strict { Self::All } else { Self::None }
    }

    /// For changes that a client has asked for.
    pub(super) fn of_client(wanted: &Wanted, scope: &Scope) -> Self {
        let added =
            |change: &Change| if let Change::PortalAdded(portal) = change { Some(portal.clone()) } else { None };
        match scope {
            Scope::Targets(targets) if !wanted.config.strict => {
                let portals = wanted.changes.iter().filter_map(added).collect();
                Self::Of { targets: targets.clone(), portals }
            }
            _ => Self::All,
        }
    }

    pub(super) fn at(&self, target: &str) -> OnTrouble {
        match self {
            Self::All => OnTrouble::Refuse,
            Self::Of { targets, .. } if targets.iter().any(|name| name == target) => OnTrouble::Refuse,
            Self::Of { .. } | Self::None => OnTrouble::Degrade,
        }
    }

    /// The portals without which nothing is changed, where others may be closed.
    pub(super) fn portals(&self) -> Vec<PortalConfig> {
        if let Self::Of { portals, .. } = self { portals.clone() } else { Vec::new() }
    }

    pub(super) fn at_discovery(&self) -> OnTrouble {
        if *self == Self::All { OnTrouble::Refuse } else { OnTrouble::Degrade }
    }
}
