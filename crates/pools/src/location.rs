//! Where a pool is, as users write it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use lunette_rbd::limits::MANAGE_LIMIT;
use lunette_rbd::{PoolUrl, RbdUrl};

use crate::ceph::CephPool;
use crate::error::PoolError;
use crate::folder::FolderPool;
use crate::name::Name;
use crate::pool::{Place, Pool};

/// The location of a pool: a folder, or `rbd:POOL[/NAMESPACE]` with the parameters of an `rbd:` URL.
///
/// ```
/// use lunette_pools::{Location, Place};
///
/// let location: Location = "/srv/tank".parse()?;
/// let place = location.place(&"db".parse().expect("a name"), None);
/// assert_eq!(place, Place::File("/srv/tank/db/disk.img".into()));
/// # Ok::<(), lunette_pools::LocationError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A folder of a file system with reflinks.
    Folder(PathBuf),
    /// A pool of Ceph, or a namespace of one.
    Ceph(PoolUrl),
}

/// Says why a text is no location of a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The path is not absolute, so it would depend on where the server is started.
    #[error("the place of a pool is an absolute path, such as /srv/tank, or rbd:POOL")]
    Path,
    /// The name of a pool of Ceph is none.
    #[error(transparent)]
    Ceph(#[from] lunette_rbd::UrlError),
}

impl Location {
    /// Where the blocks of a volume are, or those of its snapshot. It follows from the names, so neither need be there.
    pub fn place(&self, volume: &Name, snapshot: Option<&Name>) -> Place {
        match self {
            Self::Folder(path) => {
                let folder = path.join(volume.as_str());
                Place::File(match snapshot {
                    None => folder.join("disk.img"),
                    Some(snapshot) => folder.join("snapshots").join(format!("{snapshot}.img")),
                })
            }
            Self::Ceph(pool) => Place::Image(Box::new(pool.image(volume.as_str(), snapshot.map(Name::as_str)))),
        }
    }

    /// Opens the pool, and ends or undoes what was interrupted in it. Waits for the medium.
    ///
    /// # Errors
    ///
    /// [`PoolError::Unusable`], with the reason.
    pub fn open(&self) -> Result<Arc<dyn Pool>, PoolError> {
        Ok(match self {
            Self::Folder(path) => Arc::new(FolderPool::open(path)?),
            Self::Ceph(pool) => Arc::new(CephPool::open(pool, MANAGE_LIMIT)?),
        })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => path.display().fmt(f),
            Self::Ceph(pool) => pool.fmt(f),
        }
    }
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        match text {
            text if text.starts_with('/') => Ok(Self::Folder(text.into())),
            text if RbdUrl::is_meant(text) => Ok(Self::Ceph(text.parse()?)),
            _ => Err(LocationError::Path),
        }
    }
}
