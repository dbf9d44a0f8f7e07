//! The error of a URL.

use std::fmt;

/// Says what is wrong with a URL, and how to write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlError(pub(super) String);

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UrlError {}

#[cfg(feature = "encryption")]
impl UrlError {
    pub(crate) fn new(what: String) -> Self {
        Self(what)
    }
}

pub(super) fn wrong<T>(what: impl Into<String>) -> Result<T, UrlError> {
    Err(UrlError(what.into()))
}
