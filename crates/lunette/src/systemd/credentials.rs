//! Credentials of systemd (`LoadCredential=`), where a key of the configuration names the file of a secret.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Deserializer};

/// The prefix of a value that names a credential instead of a path.
pub(crate) const PREFIX: &str = "credential:";

/// The path of a file that holds a secret: `credential:NAME`, or the path itself. Without the folder of the credentials
/// the name is kept as it is, so only what needs this secret is not served.
pub(crate) fn path(text: &str) -> Result<PathBuf, String> {
    let Some(name) = text.strip_prefix(PREFIX) else { return Ok(text.into()) };
    if !matches!(Path::new(name).components().collect::<Vec<_>>()[..], [Component::Normal(_)]) || name.ends_with('/') {
        return Err(format!("{text:?} names no credential; write {PREFIX}NAME, as LoadCredential=NAME:PATH has it"));
    }
    Ok(lunette_keys::source::credential(name).unwrap_or_else(|_| text.into()))
}

/// The file at such a path.
pub(crate) fn found(path: &Path) -> Result<PathBuf, String> {
    match path.to_str().and_then(|text| text.strip_prefix(PREFIX)) {
        Some(name) => lunette_keys::source::credential(name).map_err(|error| error.to_string()),
        None => Ok(path.into()),
    }
}

/// The path of a file in a folder. Where the folder is a credential, systemd has made a credential `FOLDER_FILE` of
/// each file (`LoadCredential=`, systemd.exec(5)).
pub(crate) fn in_folder(folder: &Path, file: &str) -> PathBuf {
    let credential = folder.to_str().and_then(|text| text.strip_prefix(PREFIX));
    let found = credential.and_then(|name| lunette_keys::source::credential(&format!("{name}_{file}")).ok());
    found.unwrap_or_else(|| folder.join(file))
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
        for text in ["credential:", "credential:a/b", "credential:..", "credential:/etc/passwd", "credential:a/"] {
            assert!(path(text).is_err(), "{text}");
        }
    }

    /// The tests have no folder of credentials.
    #[test]
    fn a_credential_that_is_not_given_is_missing_where_it_is_needed() {
        let kept = path("credential:db").unwrap();
        assert!(found(&kept).unwrap_err().contains("there is no credential db"));
        assert_eq!(found(Path::new("/etc/secret")), Ok("/etc/secret".into()));
        assert_eq!(in_folder(Path::new("credential:tls"), "key.pem"), Path::new("credential:tls/key.pem"));
        assert_eq!(in_folder(Path::new("/etc/tls"), "key.pem"), Path::new("/etc/tls/key.pem"));
    }
}
