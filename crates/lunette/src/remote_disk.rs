//! Disks behind iSCSI URLs, as stores.

use std::sync::Arc;

use lunette_initiator::{Initiator, RemoteStore, Url};
use lunette_store::Store;

use crate::failure::Failure;
use crate::remote::{self, remote_failure};

/// A remote disk, and the identity that distinguishes it from others.
pub(crate) struct RemoteDisk {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) identity: String,
}

/// Logs in and reads the properties of the disk. The session lives as long as the store.
pub(crate) fn open(url: &Url) -> Result<RemoteDisk, Failure> {
    let (Some(target), Some(lun)) = (&url.target, url.lun) else {
        return Err(Failure::Usage(format!("{url} names no disk; write iscsi://HOST/TARGET/LUN")));
    };
    let initiator = Initiator::start().map_err(remote_failure)?;
    let disk = remote::open(url, remote::options(url)?, &initiator)?;
    let facts = disk.facts();
    // The name of the unit does not change with its address. Some units have none.
    let unit = facts.name.clone().or_else(|| facts.serial_number.clone()).unwrap_or_default();
    let identity = format!("unit {target} {} {unit:?} {}", lun.number().unwrap_or_default(), facts.len_bytes());
    Ok(RemoteDisk { store: Arc::new(RemoteStore::new(disk)), identity })
}
