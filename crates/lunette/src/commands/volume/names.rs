//! The names of volumes, snapshots and labels on the command line.

use std::fmt;
use std::str::FromStr;

use lunette_api::client::path;
use lunette_pools::Name;

use crate::failure::Failure;

/// `POOL/VOLUME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VolumePath {
    pool: Name,
    volume: Name,
}

/// `POOL/VOLUME[@SNAPSHOT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SnapshotPath {
    volume: VolumePath,
    snapshot: Option<Name>,
}

/// `POOL[/VOLUME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InPool {
    All(Name),
    One(VolumePath),
}

/// `KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label(pub(super) String, pub(super) String);

impl VolumePath {
    pub(super) fn pool(&self) -> &Name {
        &self.pool
    }

    /// The path of what stands below it in the API.
    pub(super) fn url(&self, below: &[&str]) -> String {
        let parts = ["volumes", self.pool.as_str(), self.volume.as_str()];
        path(&[&parts, below].concat())
    }
}

impl SnapshotPath {
    pub(super) fn pool(&self) -> &Name {
        &self.volume.pool
    }

    /// Refuses the name of a volume.
    pub(super) fn check_is_snapshot(&self) -> Result<(), Failure> {
        if self.snapshot.is_some() {
            return Ok(());
        }
        Err(Failure::Usage(format!("{self} names no snapshot; write POOL/VOLUME@SNAPSHOT")))
    }

    /// The name without its pool.
    pub(super) fn in_pool(&self) -> String {
        let snapshot = self.snapshot.as_ref().map_or(String::new(), |snapshot| format!("@{snapshot}"));
        format!("{}{snapshot}", self.volume.volume)
    }

    /// The path of what stands below it in the API.
    pub(super) fn url(&self, below: &[&str]) -> String {
        match &self.snapshot {
            None => self.volume.url(below),
            Some(snapshot) => self.volume.url(&[&["snapshots", snapshot.as_str()], below].concat()),
        }
    }
}

impl fmt::Display for VolumePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

impl fmt::Display for SnapshotPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.volume.pool, self.in_pool())
    }
}

impl FromStr for VolumePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pool, volume) = text.split_once('/').ok_or("write POOL/VOLUME")?;
        if volume.contains('@') {
            return Err("it names a snapshot; write POOL/VOLUME".into());
        }
        Ok(Self { pool: name(pool)?, volume: name(volume)? })
    }
}

impl FromStr for SnapshotPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('@') {
            None => Ok(Self { volume: text.parse()?, snapshot: None }),
            Some((volume, snapshot)) => Ok(Self { volume: volume.parse()?, snapshot: Some(name(snapshot)?) }),
        }
    }
}

impl FromStr for InPool {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') { text.parse().map(Self::One) } else { name(text).map(Self::All) }
    }
}

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("write KEY=VALUE")?;
        Ok(Self(key.into(), value.into()))
    }
}

fn name(text: &str) -> Result<Name, String> {
    text.parse().map_err(|error: lunette_pools::NameError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_paths_of_the_api() {
        let volume: VolumePath = "tank/db".parse().unwrap();
        assert_eq!(volume.url(&["actions", "flatten"]), "/v1/volumes/tank/db/actions/flatten");
        let snapshot: SnapshotPath = "tank/db@monday".parse().unwrap();
        assert_eq!(snapshot.url(&[]), "/v1/volumes/tank/db/snapshots/monday");
        assert_eq!((snapshot.to_string(), snapshot.in_pool()), ("tank/db@monday".into(), "db@monday".into()));
        assert_eq!("tank".parse::<InPool>().unwrap(), InPool::All("tank".parse().unwrap()));
        assert_eq!("tank/db".parse::<InPool>().unwrap(), InPool::One(volume));
        for wrong in ["db", "tank/", "/db", "tank/db@", "tank/a/b", "tank/db@a@b"] {
            assert!(wrong.parse::<SnapshotPath>().is_err(), "{wrong}");
        }
        assert_eq!("tank/db@monday".parse::<VolumePath>().unwrap_err(), "it names a snapshot; write POOL/VOLUME");
        assert_eq!("a=b=c".parse::<Label>().unwrap(), Label("a".into(), "b=c".into()));
        assert!("=b".parse::<Label>().is_err() && "a".parse::<Label>().is_err());
    }
}
