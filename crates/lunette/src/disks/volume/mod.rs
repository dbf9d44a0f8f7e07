//! Disks that are volumes of a pool, or snapshots of them: `volume:POOL/VOLUME[@SNAPSHOT]`.
//!
//! A name says nothing of where the blocks are; a pool of the configuration does. So a name is parsed first, and finds
//! its pool when the configuration is whole.

mod gates;
mod open;
pub(crate) mod takeover;
mod unfinished;
mod uses;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use lunette_pools::{Location, Name, NameError};
use lunette_store::OpenOptions;

use super::Place;
use super::file::FilePath;
use super::kind::{Kind, Opened};
use crate::failure::Failure;
use crate::size::Size;
pub(crate) use gates::gate;
pub(crate) use open::{open_pool, retain_pools};
pub(crate) use unfinished::{FILLING, check_finished, is_unfinished};
pub(crate) use uses::{Shut, shut};

/// The beginning of the name of every volume.
pub(super) const SCHEME: &str = "volume:";

/// Names a volume of a pool, or a snapshot of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeName {
    pub(crate) pool: Name,
    pub(crate) volume: Name,
    pub(crate) snapshot: Option<Name>,
    /// The pool's location and that of the blocks in it; `None` when the configuration has no such pool.
    found: Option<Found>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    pool: Location,
    low_space: Option<Size>,
    blocks: Box<Place>,
}

/// Says what is wrong with the name of a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VolumeNameError {
    #[error("a volume is named volume:POOL/VOLUME, or volume:POOL/VOLUME@SNAPSHOT")]
    Form,
    #[error(transparent)]
    Part(#[from] NameError),
}

impl VolumeName {
    /// The name without its scheme, as `POOL/VOLUME[@SNAPSHOT]`.
    pub(super) fn parse(text: &str) -> Result<Self, VolumeNameError> {
        let (pool, rest) = text.split_once('/').ok_or(VolumeNameError::Form)?;
        let (volume, snapshot) = match rest.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(snapshot)),
            None => (rest, None),
        };
        let snapshot = snapshot.map(Name::from_str).transpose()?;
        Ok(Self { pool: pool.parse()?, volume: volume.parse()?, snapshot, found: None })
    }

    /// Finds the blocks, in the pool that has this location, or nowhere.
    pub(crate) fn find(&mut self, pool: Option<(&Location, Option<Size>)>) {
        let found = |(pool, low_space): (&Location, Option<Size>)| {
            let blocks = Box::new(blocks(pool.place(&self.volume, self.snapshot.as_ref())));
            Found { pool: pool.clone(), low_space, blocks }
        };
        self.found = pool.map(found);
    }

    /// Whether the configuration has the pool.
    pub(crate) fn is_found(&self) -> bool {
        self.found.is_some()
    }

    /// The free space of the pool below which initiators that write are warned.
    pub(crate) fn low_space(&self) -> Option<Size> {
        self.found.as_ref()?.low_space.filter(|_| self.snapshot.is_none())
    }

    fn blocks(&self) -> Option<&dyn Kind> {
        self.found.as_ref().map(|found| found.blocks.kind())
    }

    /// The serial number of the volume, or another one for life of the snapshot.
    fn serial(&self, of_volume: &str) -> String {
        match &self.snapshot {
            None => of_volume.into(),
            Some(snapshot) => crate::text::digest16(&format!("{of_volume}@{snapshot}")),
        }
    }
}

/// The disk that the blocks of a volume or snapshot are.
fn blocks(place: lunette_pools::Place) -> Place {
    match place {
        lunette_pools::Place::File(path) => Place::File(FilePath(path)),
        lunette_pools::Place::Image(url) => Place::Image(*url),
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.pool, self.volume)?;
        self.snapshot.as_ref().map_or(Ok(()), |snapshot| write!(f, "@{snapshot}"))
    }
}

impl Kind for VolumeName {
    fn identity(&self) -> Option<String> {
        self.blocks().map_or_else(|| Some(self.to_string()), Kind::identity)
    }

    fn path(&self) -> Option<&Path> {
        self.blocks()?.path()
    }

    fn named_len(&self) -> Option<Size> {
        None
    }

    fn refuses_create(&self) -> Option<&'static str> {
        Some("a volume is made by lunette volume create; leave out create")
    }

    fn refuses_full(&self) -> Option<&'static str> {
        Some("a volume gets all of its space by lunette volume create --full; leave out provisioning")
    }

    fn lack(&self) -> Option<String> {
        let unknown = || format!("there is no [[pool]] {}; volumes are for the configuration of a server", self.pool);
        (!self.is_found()).then(unknown)
    }

    fn open(&self, options: &OpenOptions) -> Result<Opened, Failure> {
        open::open(self, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::DiskName;

    #[test]
    fn a_name_has_a_pool_a_volume_and_perhaps_a_snapshot() {
        for text in ["volume:tank/db", "volume:tank/db@monday"] {
            let name: DiskName = text.parse().unwrap();
            assert_eq!(name.place.to_string(), text);
            assert!(name.lack().unwrap().contains("no [[pool]] tank"));
        }
        for wrong in
            ["volume:", "volume:db", "volume:tank/", "volume:tank/db@", "volume:tank/../db", "volume://tank/db"]
        {
            assert!(wrong.parse::<DiskName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_volume_is_the_file_that_its_pool_keeps_it_in() {
        let mut name = VolumeName::parse("tank/db@monday").unwrap();
        let location: Location = "/srv/tank".parse().unwrap();
        name.find(Some((&location, None)));
        assert_eq!(name.path(), Some("/srv/tank/db/snapshots/monday.img".as_ref()));
        name.find(None);
        assert_eq!((name.path(), name.is_found()), (None, false));
    }

    #[test]
    fn a_snapshot_has_another_serial_number_than_its_volume() {
        let serial = |text: &str| VolumeName::parse(text).unwrap().serial("0123456789abcdef");
        assert_eq!(serial("tank/db"), "0123456789abcdef");
        assert_ne!(serial("tank/db@a"), serial("tank/db"));
        assert_ne!(serial("tank/db@a"), serial("tank/db@b"));
    }
}
