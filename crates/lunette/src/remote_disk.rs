//! Disks behind iSCSI URLs.

use std::sync::Arc;

use lunette_initiator::{Disk, Error, Initiator, Options, Portal, RemoteStore, Session, wait};
use lunette_store::Store;

use crate::failure::Failure;
use crate::url::Url;

/// Who logs in, when the URL does not say.
const INITIATOR_NAME: &str = "iqn.2026-11.lunette:initiator";

/// A remote disk, and what tells it from others.
pub(crate) struct RemoteDisk {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) identity: String,
}

/// Logs in and finds out what the disk is like. The session lives as long as the store.
pub(crate) fn open(url: &Url) -> Result<RemoteDisk, Failure> {
    let (Some(target), Some(lun)) = (&url.target, url.lun) else {
        return Err(Failure::Usage(format!("{url} names no disk; write iscsi://HOST/TARGET/LUN")));
    };
    let mut options = Options::new(url.initiator_name.as_deref().unwrap_or(INITIATOR_NAME));
    options.chap = url.chap(|variable| std::env::var(variable).ok())?;
    options.offers = url.offers.clone();
    if url.shows_secrets() {
        eprintln!(
            "lunette: warning: other users of this machine can read the password in the URL; put it into \
             LUNETTE_CHAP_PASSWORD, or into a file and write chap_secret_file=FILE"
        );
    }
    let failed = |error: Error| Failure::disk(format!("{url}: {error}"));
    let portal = Portal { host: url.host.clone(), port: url.port };
    let initiator = Initiator::start().map_err(failed)?;
    let session = wait(Session::connect(&initiator, &portal, target, options)).map_err(failed)?;
    let disk = wait(Disk::open(session, lun)).map_err(failed)?;
    let facts = disk.facts();
    // The name of the unit stays when its address changes. Not all have one.
    let unit = facts.name.clone().or_else(|| facts.serial_number.clone()).unwrap_or_default();
    let identity = format!("unit {target} {} {unit:?} {}", lun.number().unwrap_or_default(), facts.len_bytes());
    Ok(RemoteDisk { store: Arc::new(RemoteStore::new(disk)), identity })
}
