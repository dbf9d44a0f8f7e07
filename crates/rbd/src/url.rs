//! The names of images: `rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT][?conf=FILE&user=NAME&keyring=FILE]`.

mod parts;
mod pool;

use std::fmt;
use std::str::FromStr;

use crate::limits::MAX_URL_LEN;
use parts::{Encoded, Parameters};
pub use pool::PoolUrl;

/// The name of an image, and the way to its cluster.
///
/// `%XX` stands for a byte in every part, so that names may hold `/`, `@`, `?`, `&` and `%`.
///
/// ```
/// use lunette_rbd::RbdUrl;
///
/// let url: RbdUrl = "rbd:rbd/tenant/disk@monday?conf=/etc/ceph/backup.conf&user=backup".parse()?;
/// assert_eq!((&*url.pool, url.namespace.as_deref(), &*url.image), ("rbd", Some("tenant"), "disk"));
/// assert_eq!(url.snapshot.as_deref(), Some("monday"));
/// # Ok::<(), lunette_rbd::UrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RbdUrl {
    /// The pool of the image.
    pub pool: String,
    /// The namespace in the pool; `None` for the default one.
    pub namespace: Option<String>,
    /// The image.
    pub image: String,
    /// The snapshot of the image. It cannot be written to.
    pub snapshot: Option<String>,
    /// The configuration file of the cluster; `None` for `$CEPH_CONF`, then `/etc/ceph/ceph.conf`.
    pub conf: Option<String>,
    /// The user, without `client.`; `None` for `admin`.
    pub user: Option<String>,
    /// The file with the user's key; `None` for the one that the configuration names.
    pub keyring: Option<String>,
}

/// Why a text is no name of an image or a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The name does not begin with `rbd:`.
    #[error("{0:?} does not begin with \"rbd:\"")]
    Scheme(String),
    /// The name is longer than [`MAX_URL_LEN`].
    #[error("an rbd: URL has up to {MAX_URL_LEN} bytes")]
    Length,
    /// The parts of the name are not a pool and an image, perhaps with a namespace between them.
    #[error("{0:?} names no image; write rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT]")]
    Parts(String),
    /// The parts of the name are not a pool, perhaps with a namespace.
    #[error("{0:?} names no pool; write rbd:POOL[/NAMESPACE]")]
    PoolParts(String),
    /// A part is empty.
    #[error("{0:?} has an empty name; a pool, a namespace, an image and a snapshot have names of one byte or more")]
    Empty(String),
    /// `%` does not stand before two hexadecimal digits, or a part is not UTF-8 or holds a NUL byte.
    #[error("{0:?} cannot be decoded: after % come two hexadecimal digits, and names are UTF-8 without NUL bytes")]
    Escape(String),
    /// A parameter is not known, or has no value.
    #[error("{0:?} is no parameter of an rbd: URL; known are conf=FILE, user=NAME and keyring=FILE")]
    Parameter(String),
    /// A parameter is there twice.
    #[error("the parameter {0} is there twice")]
    Twice(String),
}

impl RbdUrl {
    /// The names of the parameters.
    pub const PARAMETERS: [&str; 3] = parts::PARAMETERS;

    /// Whether `text` is meant as such a URL.
    pub fn is_meant(text: &str) -> bool {
        parts::is_meant(text)
    }

    /// The pool of the image, with the way to its cluster.
    pub fn pool_url(&self) -> PoolUrl {
        PoolUrl {
            pool: self.pool.clone(),
            namespace: self.namespace.clone(),
            conf: self.conf.clone(),
            user: self.user.clone(),
            keyring: self.keyring.clone(),
        }
    }
}

impl FromStr for RbdUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (path, Parameters { conf, user, keyring }) = parts::split(text)?;
        let (place, snapshot) = match path.split_once('@') {
            Some((place, snapshot)) => (place, Some(snapshot)),
            None => (path, None),
        };
        let parts: Vec<&str> = place.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [pool, image] => (pool, None, image),
            [pool, namespace, image] => (pool, Some(namespace), image),
            _ => return Err(UrlError::Parts(text.into())),
        };
        let name = |part| parts::name(text, part);
        Ok(Self {
            pool: name(pool)?,
            namespace: namespace.map(name).transpose()?,
            image: name(image)?,
            snapshot: snapshot.map(name).transpose()?,
            conf,
            user,
            keyring,
        })
    }
}

impl fmt::Display for RbdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        parts::write_pool(f, &self.pool, self.namespace.as_deref())?;
        write!(f, "/{}", Encoded(&self.image))?;
        if let Some(snapshot) = &self.snapshot {
            write!(f, "@{}", Encoded(snapshot))?;
        }
        parts::write_parameters(f, [&self.conf, &self.user, &self.keyring])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<RbdUrl, UrlError> {
        text.parse()
    }

    #[test]
    fn every_part_is_found() {
        let url = parse("rbd:pool/image").unwrap();
        assert_eq!((&*url.pool, &*url.image), ("pool", "image"));
        assert_eq!((url.namespace, url.snapshot, url.conf, url.user, url.keyring), (None, None, None, None, None));
        let url = parse("rbd:p%2Fq/ns/im%40ge@s?keyring=/a%26b&conf=/etc/ceph.conf&user=me").unwrap();
        assert_eq!((&*url.pool, url.namespace.as_deref(), &*url.image), ("p/q", Some("ns"), "im@ge"));
        assert_eq!(url.snapshot.as_deref(), Some("s"));
        assert_eq!(url.conf.as_deref(), Some("/etc/ceph.conf"));
        assert_eq!((url.user.as_deref(), url.keyring.as_deref()), (Some("me"), Some("/a&b")));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let text = |text: &str| text.to_owned();
        for (url, error) in [
            ("rdb:p/i", UrlError::Scheme(text("rdb:p/i"))),
            ("rbd:image", UrlError::Parts(text("rbd:image"))),
            ("rbd:a/b/c/d", UrlError::Parts(text("rbd:a/b/c/d"))),
            ("rbd:/i", UrlError::Empty(text("rbd:/i"))),
            ("rbd:p/i@", UrlError::Empty(text("rbd:p/i@"))),
            ("rbd:p//i", UrlError::Empty(text("rbd:p//i"))),
            ("rbd:p/i%4", UrlError::Escape(text("i%4"))),
            ("rbd:p/i%+4", UrlError::Escape(text("i%+4"))),
            ("rbd:p/i%00", UrlError::Escape(text("i%00"))),
            ("rbd:p/i%ff", UrlError::Escape(text("i%ff"))),
            ("rbd:p/i?", UrlError::Parameter(text(""))),
            ("rbd:p/i?conf=", UrlError::Parameter(text("conf"))),
            ("rbd:p/i?id=me", UrlError::Parameter(text("id"))),
            ("rbd:p/i?user=a&user=b", UrlError::Twice(text("user"))),
        ] {
            assert_eq!(parse(url), Err(error), "{url}");
        }
        assert_eq!(parse(&format!("rbd:p/{}", "i".repeat(MAX_URL_LEN))), Err(UrlError::Length));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            names in proptest::array::uniform2("[a-z/@?&%=ä]{1,8}"),
            others in proptest::array::uniform5(proptest::option::of("[a-z/@?&%=ä]{1,8}")),
        ) {
            let ([pool, image], [namespace, snapshot, conf, user, keyring]) = (names, others);
            let url = RbdUrl { pool, namespace, image, snapshot, conf, user, keyring };
            prop_assert_eq!(url.to_string().parse(), Ok(url));
        }

        #[test]
        fn no_text_makes_it_panic(text in "rbd:.{0,40}") {
            drop(parse(&text));
        }
    }
}
