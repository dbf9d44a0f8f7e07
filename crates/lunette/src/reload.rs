//! Rereading the configuration while the server runs.
//!
//! A [`Plan`] opens everything that is new beside what is served; when all of it is open, the server switches over as a
//! whole. A disk that moves (to another LUN or target), or is reopened with other settings, keeps its store, because a
//! second store cannot be opened beside it.

mod plan;
mod spares;

use std::path::PathBuf;

use lunette_target::{Control, UpdateError};

use crate::config::diff::{self, Change};
use crate::config::{self, Config};
use crate::failure::Failure;
use crate::serve::bind_failure;
use crate::served::{Served, check_encrypted};
use plan::Plan;
pub(crate) use spares::Spares;

/// The current configuration of a running server, and the handle that changes it.
pub(crate) struct Reloader {
    path: PathBuf,
    config: Config,
    served: Served,
    spares: Spares,
    control: Control,
}

impl Reloader {
    /// A reloader for a server that serves what was opened from `config`, which was read from `path`.
    pub(crate) fn new(path: PathBuf, config: Config, served: Served, control: Control) -> Self {
        Self { path, config, served, spares: Spares::default(), control }
    }

    /// Reads the file and applies it, or changes nothing; logs which.
    pub(crate) fn reload(&mut self) {
        let outcome = self.follow();
        let file = self.path.display();
        match outcome {
            Ok(changes) if changes.is_empty() => tracing::info!(%file, "configuration read again: nothing has changed"),
            Ok(changes) => {
                for change in changes {
                    tracing::info!("{change}");
                }
                tracing::info!(%file, "configuration read again: changes applied");
            }
            Err(failure) => tracing::error!(%file, "configuration refused, nothing is changed: {failure}"),
        }
    }

    fn follow(&mut self) -> Result<Vec<Change>, Failure> {
        let config = config::read(&self.path)?;
        let changes = diff::between(&self.config, &config).map_err(|all| Failure::Configuration(all.join("; ")))?;
        check_encrypted(&config)?;
        let mut plan = Plan::new(&self.served, &self.spares, &config, changes)?;
        if !plan.is_empty() {
            let update = plan.update(&config)?;
            self.control.apply(update).map_err(|error| match error {
                UpdateError::Refused(error) => bind_failure(error),
                UpdateError::Sanitizing { .. } => Failure::configuration(error),
                UpdateError::Stopping => Failure::other(error),
            })?;
        }
        (self.served, self.spares, self.config) = (plan.served, plan.spares, config);
        Ok(plan.changes)
    }
}
