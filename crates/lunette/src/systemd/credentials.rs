//! Credentials of systemd (`LoadCredential=`), where a key of the configuration names the file of a secret.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

/// The prefix of a value that names a credential instead of a path.
pub(crate) const PREFIX: &str = "credential:";

/// The path of a file that holds a secret: `credential:NAME`, or the path itself.
pub(crate) fn path(text: &str) -> Result<PathBuf, String> {
    match text.strip_prefix(PREFIX) {
        Some(name) => lunette_keys::source::credential(name).map_err(|error| error.to_string()),
        None => Ok(text.into()),
    }
}

/// [`path`], for a key of the configuration.
pub(crate) fn read_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    path(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// Reads a key that may be left out.
pub(crate) fn read_optional_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    read_path(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_credential_is_a_path() {
        assert_eq!(path("/etc/secret"), Ok("/etc/secret".into()));
        for text in ["credential:", "credential:a/b", "credential:..", "credential:/etc/passwd"] {
            assert!(path(text).is_err(), "{text}");
        }
    }
}
