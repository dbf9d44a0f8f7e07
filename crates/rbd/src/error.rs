//! Why an image cannot be opened.

use std::io;

use crate::limits::CONNECT_TIMEOUT;
use crate::{LibraryError, RbdUrl};

/// Why an image cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// librados or librbd cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A name holds a NUL byte.
    #[error("{0:?} holds a NUL byte")]
    Nul(String),
    /// No client can be made.
    #[error("no client of Ceph can be made: {0}")]
    Client(#[source] io::Error),
    /// The configuration file cannot be read.
    #[error("{}: {error}; name the cluster's ceph.conf with ?conf=FILE", .file.as_deref().unwrap_or("no ceph.conf is where Ceph looks for it"))]
    Configuration {
        /// The file; `None` for the usual places.
        file: Option<String>,
        /// The error of the system.
        error: io::Error,
    },
    /// An option is not taken.
    #[error("the option {name} cannot be set: {error}")]
    Option {
        /// The option.
        name: &'static str,
        /// The error of librados.
        error: io::Error,
    },
    /// The monitors do not answer, or refuse the user.
    #[error("{0}")]
    Connect(String),
    /// The pool is not there.
    #[error("{0}")]
    Pool(String),
    /// The image, its namespace or its snapshot is not there.
    #[error("{0}")]
    NoImage(String),
    /// Another client writes to the image.
    #[error("{0}")]
    InUse(String),
    /// The image is configured to hold back writes in this process.
    #[error(
        "its option {option} makes a client hold back writes that were answered; remove it: rbd config image remove IMAGE {option}"
    )]
    Caches {
        /// The option.
        option: String,
    },
    /// Nothing would keep two gateways from writing at the same time.
    #[error("an image of several gateways needs a feature: rbd feature enable {0} exclusive-lock")]
    Unlockable(String),
    /// Another error of librbd.
    #[error("{0}")]
    Image(#[source] io::Error),
    /// No thread for calls that wait for the cluster could be made.
    #[error("no thread for what waits for the cluster: {0}")]
    Thread(#[source] io::Error),
}

impl OpenError {
    /// The refusal of an image without the feature of an exclusive lock.
    pub fn unlockable(url: &RbdUrl) -> Self {
        let parts = [Some(&url.pool), url.namespace.as_ref(), Some(&url.image)];
        Self::Unlockable(parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join("/"))
    }

    pub(crate) fn connect(error: &io::Error) -> Self {
        Self::Connect(match error.raw_os_error() {
            Some(libc::ETIMEDOUT) => {
                format!("the monitors of the cluster do not answer within {} s", CONNECT_TIMEOUT.as_secs())
            }
            Some(libc::EACCES | libc::EPERM | libc::ENOENT) => {
                format!("the cluster does not let this user in: {error}; check ?user=NAME and ?keyring=FILE")
            }
            _ => format!("no connection to the cluster: {error}"),
        })
    }

    pub(crate) fn pool(pool: &str, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT) => Self::Pool(format!("the cluster has no pool {pool:?}")),
            _ => Self::Pool(format!("the pool {pool:?} cannot be used: {error}")),
        }
    }

    pub(crate) fn image(url: &RbdUrl, error: io::Error) -> Self {
        if error.raw_os_error() != Some(libc::ENOENT) {
            return Self::Image(error);
        }
        let snapshot = url.snapshot.as_ref().map(|name| format!(" with a snapshot {name:?}")).unwrap_or_default();
        let namespace = url.namespace.as_ref().map(|name| format!(" in its namespace {name:?}")).unwrap_or_default();
        Self::NoImage(format!("the pool {:?} has no image {:?}{snapshot}{namespace}", url.pool, url.image))
    }

    pub(crate) fn lock(url: &RbdUrl, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EROFS | libc::EBUSY | libc::EAGAIN) => Self::InUse(format!(
                "another client writes to it; end that one (rbd status {}/{} names it), or open the image read-only",
                url.pool, url.image
            )),
            _ => Self::Image(io::Error::new(error.kind(), format!("its exclusive lock cannot be taken: {error}"))),
        }
    }
}
