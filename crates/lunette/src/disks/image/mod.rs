//! Disks that are images in Ceph: `rbd:POOL/IMAGE`.

mod open;

use std::sync::Arc;

use lunette_rbd::RbdUrl;
use lunette_store::OpenOptions;

use super::kind::{Facts, Kind, Opened};
use crate::failure::Failure;
pub(crate) use open::{close, follow, open};

impl Kind for RbdUrl {
    fn identity(&self) -> Option<String> {
        Some(Self { snapshot: None, user: None, keyring: None, ..self.clone() }.to_string())
    }

    fn refuses_create(&self) -> Option<&'static str> {
        Some("an image is made by rbd create; leave out create")
    }

    fn refuses_full(&self) -> Option<&'static str> {
        Some("an image is always thin; leave out provisioning")
    }

    fn open(&self, options: &OpenOptions) -> Result<Opened, Failure> {
        let store = open(self, options)?;
        let image = Arc::downgrade(&store);
        let on_served = move |unit: &_| {
            if let Some(image) = image.upgrade() {
                open::served(&image, unit);
            }
        };
        let facts = Facts { on_served: Some(Arc::new(on_served)), ..Facts::default() };
        Ok(Opened { facts, ..Opened::new(store) })
    }
}
