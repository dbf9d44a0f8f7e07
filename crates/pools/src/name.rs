//! The names of volumes and snapshots.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::MAX_NAME_BYTES;

/// The name of a volume, or of a snapshot within its volume: letters, digits, `-`, `_` and `.`, and no dot first.
///
/// So it is a file name, the name of an image, and a part of a URL, as it is.
///
/// ```
/// use lunette_pools::Name;
///
/// assert_eq!("db-1".parse::<Name>()?.as_str(), "db-1");
/// assert!("../db".parse::<Name>().is_err());
/// # Ok::<(), lunette_pools::NameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Says why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a volume or snapshot: 1 to {MAX_NAME_BYTES} of a-z, A-Z, 0-9, '-', '_' and '.', and no '.' or '-' first"
)]
pub struct NameError(String);

impl Name {
    /// The name as a text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let fits = (1..=MAX_NAME_BYTES).contains(&text.len());
        if fits && text.chars().all(is_plain) && !text.starts_with(['.', '-']) {
            return Ok(Self(text));
        }
        // No more of it than a name may have.
        Err(NameError(text.chars().take(MAX_NAME_BYTES).collect()))
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        text.to_owned().try_into()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_file_names_and_parts_of_urls() {
        for good in ["a", "A-1_b.c", "0", &"x".repeat(64)] {
            assert_eq!(good.parse::<Name>().unwrap().to_string(), good);
        }
        for bad in ["", ".", "..", ".a", "-a", "a/b", "a@b", "a b", "ä", "a\0", &"x".repeat(65)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
        assert!("x".repeat(1 << 20).parse::<Name>().unwrap_err().to_string().len() < 300);
    }
}
