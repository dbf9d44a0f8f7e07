//! The names of pools: `rbd:POOL[/NAMESPACE][?conf=FILE&user=NAME&keyring=FILE]`.

use std::fmt;
use std::str::FromStr;

use super::parts::{self, Parameters};
use super::{RbdUrl, UrlError};

/// The name of a pool, or of a namespace of one, and the way to its cluster.
///
/// `%XX` stands for a byte in every part, as in an [`RbdUrl`].
///
/// ```
/// use lunette_rbd::PoolUrl;
///
/// let url: PoolUrl = "rbd:rbd/tenant?user=lunette".parse()?;
/// assert_eq!((&*url.pool, url.namespace.as_deref()), ("rbd", Some("tenant")));
/// assert_eq!(url.image("disk", Some("monday")).to_string(), "rbd:rbd/tenant/disk@monday?user=lunette");
/// # Ok::<(), lunette_rbd::UrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolUrl {
    /// The pool.
    pub pool: String,
    /// The namespace in the pool; `None` for the default one.
    pub namespace: Option<String>,
    /// The configuration file of the cluster; `None` for `$CEPH_CONF`, then `/etc/ceph/ceph.conf`.
    pub conf: Option<String>,
    /// The user, without `client.`; `None` for `admin`.
    pub user: Option<String>,
    /// The file with the user's key; `None` for the one that the configuration names.
    pub keyring: Option<String>,
}

impl PoolUrl {
    /// The name of an image of the pool, or of a snapshot of one.
    pub fn image(&self, image: &str, snapshot: Option<&str>) -> RbdUrl {
        let Self { pool, namespace, conf, user, keyring } = self.clone();
        RbdUrl { pool, namespace, image: image.into(), snapshot: snapshot.map(Into::into), conf, user, keyring }
    }
}

impl FromStr for PoolUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (path, Parameters { conf, user, keyring }) = parts::split(text)?;
        let parts: Vec<&str> = path.split('/').collect();
        let (pool, namespace) = match parts[..] {
            _ if path.contains('@') => return Err(UrlError::PoolParts(text.into())),
            [pool] => (pool, None),
            [pool, namespace] => (pool, Some(namespace)),
            _ => return Err(UrlError::PoolParts(text.into())),
        };
        let name = |part| parts::name(text, part);
        Ok(Self { pool: name(pool)?, namespace: namespace.map(name).transpose()?, conf, user, keyring })
    }
}

impl fmt::Display for PoolUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        parts::write_pool(f, &self.pool, self.namespace.as_deref())?;
        parts::write_parameters(f, [&self.conf, &self.user, &self.keyring])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_names_no_pool_is_refused() {
        let text = |text: &str| text.to_owned();
        for (url, error) in [
            ("rdb:p", UrlError::Scheme(text("rdb:p"))),
            ("rbd:", UrlError::Empty(text("rbd:"))),
            ("rbd:p/", UrlError::Empty(text("rbd:p/"))),
            ("rbd:p/n/i", UrlError::PoolParts(text("rbd:p/n/i"))),
            ("rbd:p@s", UrlError::PoolParts(text("rbd:p@s"))),
            ("rbd:p?id=me", UrlError::Parameter(text("id"))),
        ] {
            assert_eq!(url.parse::<PoolUrl>(), Err(error), "{url}");
        }
    }

    proptest! {
        #[test]
        fn an_image_of_a_pool_has_that_pool(
            pool in "[a-z/@?&%=ä]{1,8}",
            others in proptest::array::uniform5(proptest::option::of("[a-z/@?&%=ä]{1,8}")),
        ) {
            let [namespace, conf, user, keyring, snapshot] = others;
            let url = PoolUrl { pool, namespace, conf, user, keyring };
            prop_assert_eq!(url.to_string().parse(), Ok(url.clone()));
            let image: RbdUrl = url.image("i/m", snapshot.as_deref()).to_string().parse().unwrap();
            prop_assert_eq!((&*image.image, &image.snapshot), ("i/m", &snapshot));
            prop_assert_eq!(image.pool_url(), url);
        }
    }
}
