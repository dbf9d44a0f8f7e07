//! Disks of other targets, behind iSCSI URLs.

pub(crate) mod failure;
pub(crate) mod remote;

use std::fmt;
use std::sync::Arc;

use lunette_initiator::{Initiator, RemoteStore, Url};
use lunette_store::{OpenOptions, Store};

use super::kind::{Facts, Kind, Opened};
use crate::disks::iscsi::failure::remote_failure;
use crate::failure::Failure;

/// The URL of an iSCSI disk, without keys.
#[derive(Clone)]
pub(crate) struct RemoteName {
    url: Box<Url>,
    /// The text that distinguishes it from others. It may hold a password.
    text: String,
}

impl RemoteName {
    /// The name with this text, of which `url` is what it says.
    pub(super) fn new(url: Box<Url>, text: &str) -> Self {
        Self { url, text: text.into() }
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }
}

impl PartialEq for RemoteName {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for RemoteName {}

impl fmt::Debug for RemoteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RemoteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl Kind for RemoteName {
    /// Names of hosts are the same in either case; those of targets have one.
    fn identity(&self) -> Option<String> {
        let url = self.url.to_string().to_ascii_lowercase();
        Some(url.split_once("://").map_or_else(String::new, |(_, place)| place.into()))
    }

    fn refuses_create(&self) -> Option<&'static str> {
        Some("a disk of another target cannot be created; leave out create")
    }

    fn lack(&self) -> Option<String> {
        if self.url.target.is_none() || self.url.lun.is_none() {
            return Some(names_no_disk(&self.url));
        }
        self.url.options().err().map(|error| error.to_string())
    }

    fn open(&self, _options: &OpenOptions) -> Result<Opened, Failure> {
        let facts = Facts { has_own_blocks: true, ..Facts::default() };
        Ok(Opened { facts, ..Opened::new(open(&self.url)?.store) })
    }
}

/// A remote disk, and the identity that distinguishes it from others.
pub(crate) struct RemoteDisk {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) identity: String,
}

/// Logs in and reads the properties of the disk. The session lives as long as the store.
pub(crate) fn open(url: &Url) -> Result<RemoteDisk, Failure> {
    let (Some(target), Some(lun)) = (&url.target, url.lun) else {
        return Err(Failure::Usage(names_no_disk(url)));
    };
    let initiator = Initiator::start().map_err(remote_failure)?;
    let disk = remote::open(url, remote::options(url)?, &initiator)?;
    let facts = disk.facts();
    // The name of the unit does not change with its address. Some units have none.
    let unit = facts.name.clone().or_else(|| facts.serial_number.clone()).unwrap_or_default();
    let identity = format!("unit {target} {} {unit:?} {}", lun.number().unwrap_or_default(), facts.len_bytes());
    Ok(RemoteDisk { store: Arc::new(RemoteStore::new(disk)), identity })
}

fn names_no_disk(url: &Url) -> String {
    format!("{url} names no disk; write iscsi://HOST/TARGET/LUN")
}
