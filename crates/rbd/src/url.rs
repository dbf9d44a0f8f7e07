//! The names of images: `rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT][?conf=FILE&user=NAME&keyring=FILE]`.

use std::fmt::{self, Write};
use std::str::FromStr;

use crate::limits::MAX_URL_LEN;

/// The beginning of every URL.
const SCHEME: &str = "rbd:";

/// The form, for error messages.
const FORM: &str = "rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT]";

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

/// Why a text is no name of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The name does not begin with `rbd:`.
    #[error("{0:?} does not begin with {SCHEME:?}")]
    Scheme(String),
    /// The name is longer than [`MAX_URL_LEN`].
    #[error("an rbd: URL has up to {MAX_URL_LEN} bytes")]
    Length,
    /// The parts of the name are not a pool and an image, perhaps with a namespace between them.
    #[error("{0:?} names no image; write {FORM}")]
    Parts(String),
    /// A part is empty.
    #[error("{0:?} has an empty name; write {FORM}")]
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
    pub const PARAMETERS: [&str; 3] = ["conf", "user", "keyring"];

    /// Whether `text` is meant as such a URL.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    fn parameter(&mut self, name: &str) -> Option<&mut Option<String>> {
        match name {
            "conf" => Some(&mut self.conf),
            "user" => Some(&mut self.user),
            "keyring" => Some(&mut self.keyring),
            _ => None,
        }
    }

    fn set(&mut self, parameter: &str) -> Result<(), UrlError> {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        // Without the value, which may be a key.
        let unknown = || UrlError::Parameter(name.into());
        let place = self.parameter(name).ok_or_else(unknown)?;
        if value.is_empty() {
            return Err(unknown());
        }
        match place.replace(decode(value)?) {
            None => Ok(()),
            Some(_) => Err(UrlError::Twice(name.into())),
        }
    }
}

impl FromStr for RbdUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.len() > MAX_URL_LEN {
            return Err(UrlError::Length);
        }
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| UrlError::Scheme(text.into()))?;
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        let (place, snapshot) = match path.split_once('@') {
            Some((place, snapshot)) => (place, Some(snapshot)),
            None => (path, None),
        };
        let part = |part: &str| match decode(part) {
            Ok(name) if name.is_empty() => Err(UrlError::Empty(text.into())),
            other => other,
        };
        let parts: Vec<&str> = place.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [pool, image] => (pool, None, image),
            [pool, namespace, image] => (pool, Some(namespace), image),
            _ => return Err(UrlError::Parts(text.into())),
        };
        let mut url = Self {
            pool: part(pool)?,
            namespace: namespace.map(part).transpose()?,
            image: part(image)?,
            snapshot: snapshot.map(part).transpose()?,
            conf: None,
            user: None,
            keyring: None,
        };
        query.into_iter().flat_map(|query| query.split('&')).try_for_each(|parameter| url.set(parameter))?;
        Ok(url)
    }
}

impl fmt::Display for RbdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", Encoded(&self.pool))?;
        if let Some(namespace) = &self.namespace {
            write!(f, "/{}", Encoded(namespace))?;
        }
        write!(f, "/{}", Encoded(&self.image))?;
        if let Some(snapshot) = &self.snapshot {
            write!(f, "@{}", Encoded(snapshot))?;
        }
        let values = Self::PARAMETERS.into_iter().zip([&self.conf, &self.user, &self.keyring]);
        let mut mark = '?';
        for (name, value) in values.filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            write!(f, "{mark}{name}={}", EncodedValue(value))?;
            mark = '&';
        }
        Ok(())
    }
}

/// A name as a part of a URL.
struct Encoded<'a>(&'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        encode(f, self.0, "/@?&%")
    }
}

/// A value of a parameter: paths keep their slashes.
struct EncodedValue<'a>(&'a str);

impl fmt::Display for EncodedValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        encode(f, self.0, "?&%")
    }
}

fn encode(f: &mut fmt::Formatter<'_>, text: &str, special: &str) -> fmt::Result {
    for c in text.chars() {
        if special.contains(c) {
            write!(f, "%{:02x}", c as u32)?;
        } else {
            f.write_char(c)?;
        }
    }
    Ok(())
}

/// Puts bytes in the place of `%XX`.
fn decode(text: &str) -> Result<String, UrlError> {
    let wrong = || UrlError::Escape(text.into());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|name| !name.contains('\0')).ok_or_else(wrong)
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
