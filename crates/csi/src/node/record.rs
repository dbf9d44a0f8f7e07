//! Records of staged volumes, in a file each.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tonic::Status;

use super::{Inner, failed};
use crate::controller::{IQN, parse_portals};
use crate::limits::MAX_PORTALS;
use crate::names;

/// A target, as the contexts of a call name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Target {
    pub(super) iqn: String,
    pub(super) portals: Vec<String>,
    pub(super) lun: u16,
    /// The interface of open-iscsi.
    pub(super) interface: String,
    pub(super) has_chap: bool,
}

/// A staged volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) volume_id: String,
    pub(super) target: Target,
    pub(super) staging: PathBuf,
    /// Whether it has a file system.
    pub(super) is_mount: bool,
    /// Whether the node only reads.
    pub(super) read_only: bool,
}

impl Target {
    /// Reads the contexts of a call. That of the publication is newer, so it counts first.
    pub(super) fn new(volume: &HashMap<String, String>, publication: &HashMap<String, String>) -> Result<Self, Status> {
        let find = |key: &str| publication.get(key).or_else(|| volume.get(key)).map(String::as_str);
        let missing = |key: &str| Status::invalid_argument(format!("volume_context has no {key}"));
        let iqn = find(IQN).ok_or_else(|| missing(IQN))?;
        names::check_initiator(iqn).map_err(|_| Status::invalid_argument(format!("{iqn:?} is no name of a target")))?;
        let first = find("targetPortal").ok_or_else(|| missing("targetPortal"))?;
        let others = find("portals").unwrap_or("[]");
        let others: Vec<String> = serde_json::from_str(others)
            .map_err(|_| Status::invalid_argument(format!("portals is {others:?}; write a list in JSON")))?;
        let mut portals: Vec<String> = Vec::new();
        for portal in std::iter::once(first.to_owned()).chain(others) {
            // As csi-driver-iscsi takes them, without the port.
            let portal = if parse_portals(&portal).is_ok() { portal } else { format!("{portal}:3260") };
            parse_portals(&portal).map_err(Status::invalid_argument)?;
            if !portals.contains(&portal) && portals.len() < MAX_PORTALS {
                portals.push(portal);
            }
        }
        let lun = find("lun").unwrap_or("0");
        let interface = find("iscsiInterface").unwrap_or("default");
        if !interface.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c)) || interface.starts_with('-') {
            return Err(Status::invalid_argument(format!("{interface:?} is no name of an interface of open-iscsi")));
        }
        Ok(Self {
            iqn: iqn.into(),
            portals,
            lun: lun.parse().map_err(|_| Status::invalid_argument(format!("lun is {lun:?}, which is no number")))?,
            interface: interface.into(),
            has_chap: find("sessionCHAPAuth") == Some("true"),
        })
    }
}

impl Inner {
    /// The record of a volume, if it is staged.
    pub(super) fn record(&self, volume_id: &str) -> Result<Option<Record>, Status> {
        let path = self.record_path(volume_id);
        let text = match self.system.read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(failed(path.display()))?,
        };
        let record = serde_json::from_str(&text).map_err(|error| {
            Status::internal(format!("{}: {error}; remove the file, and log out of the target by hand", path.display()))
        })?;
        Ok(Some(record))
    }

    pub(super) fn keep(&self, record: &Record) -> Result<(), Status> {
        let path = self.record_path(&record.volume_id);
        let text = serde_json::to_string(record).map_err(|error| Status::internal(error.to_string()))?;
        self.system.write(&path, &text).map_err(failed(path.display()))
    }

    pub(super) fn forget(&self, volume_id: &str) -> Result<(), Status> {
        let path = self.record_path(volume_id);
        self.system.remove(&path).map_err(failed(path.display()))
    }

    fn record_path(&self, volume_id: &str) -> PathBuf {
        self.settings.state.join(format!("{}.json", names::digest(volume_id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(volume: &[(&str, &str)], publication: &[(&str, &str)]) -> Result<Target, Status> {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Target::new(&map(volume), &map(publication))
    }

    #[test]
    fn a_target_has_each_portal_once_and_the_newer_ones() {
        let iqn = ("iqn", "iqn.2026-11.org.example:a");
        let old = [iqn, ("targetPortal", "192.0.2.1"), ("portals", "[\"192.0.2.2:3260\", \"192.0.2.1:3260\"]")];
        let found = target(&old, &[]).unwrap();
        assert_eq!((found.portals, found.lun), (vec!["192.0.2.1:3260".into(), "192.0.2.2:3260".into()], 0));
        let found = target(&old, &[("targetPortal", "192.0.2.9:3260"), ("portals", "[]")]).unwrap();
        assert_eq!(found.portals, ["192.0.2.9:3260"]);
    }

    #[test]
    fn contexts_with_a_mistake_are_refused() {
        let (iqn, portal) = (("iqn", "iqn.2026-11.org.example:a"), ("targetPortal", "192.0.2.1:3260"));
        for pairs in [
            &[portal][..],
            &[iqn],
            &[portal, ("iqn", "--op=delete")],
            &[iqn, ("targetPortal", "-x")],
            &[iqn, portal, ("portals", "192.0.2.1")],
            &[iqn, portal, ("lun", "-1")],
            &[iqn, portal, ("iscsiInterface", "--help")],
        ] {
            assert_eq!(target(pairs, &[]).unwrap_err().code(), tonic::Code::InvalidArgument, "{pairs:?}");
        }
    }
}
