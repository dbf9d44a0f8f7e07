//! Disks that are volumes of a Longhorn engine: `longhorn:SOCKET?size=BYTES`.

use std::sync::Arc;

use lunette_longhorn::{LonghornName, LonghornStore};
use lunette_store::OpenOptions;

use super::kind::{Kind, Opened};
use crate::failure::Failure;

impl Kind for LonghornName {
    /// The length is no part of it.
    fn identity(&self) -> Option<String> {
        Some(format!("longhorn:{}", self.socket.display()))
    }

    fn refuses_create(&self) -> Option<&'static str> {
        Some("a volume of Longhorn is made there; leave out create")
    }

    fn refuses_full(&self) -> Option<&'static str> {
        Some("a volume of Longhorn gets its space there; leave out provisioning")
    }

    fn open(&self, options: &OpenOptions) -> Result<Opened, Failure> {
        let store = LonghornStore::open(self, options.read_only);
        let store = store.map_err(|error| Failure::disk(format!("{self}: {error}; does the engine listen there?")))?;
        Ok(Opened::new(Arc::new(store)))
    }
}
