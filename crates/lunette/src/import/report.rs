//! What an import has come to: a draft, its secrets, and what has no equivalent.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use super::draft::{Draft, User};
use crate::config;

/// A configuration that is being imported.
pub(super) struct Imported {
    pub(super) draft: Draft,
    folder: PathBuf,
    secrets: BTreeMap<PathBuf, String>,
    notes: Vec<Note>,
}

/// Something that has no equivalent.
pub(super) struct Note {
    place: String,
    what: String,
}

impl Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl Imported {
    /// Nothing yet. Secrets are for files in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        let (secrets, notes) = (BTreeMap::new(), Vec::new());
        Self { draft: Draft::default(), folder: folder.into(), secrets, notes }
    }

    /// Reports what has no equivalent, and where it stands. Neither may say a secret.
    pub(super) fn note(&mut self, place: impl Display, what: impl Into<String>) {
        self.notes.push(Note { place: place.to_string(), what: what.into() });
    }

    /// A user, whose secret is for a file named after `owner` (a target, a host) and the user.
    pub(super) fn user(&mut self, owner: &str, user: &str, secret: &str) -> User {
        let stem = plain_name(&format!("{owner}.{user}"));
        let names = (1_u32..).map(|n| if n == 1 { stem.clone() } else { format!("{stem}.{n}") });
        let mut paths = names.map(|name| self.folder.join(name));
        let is_free = |path: &PathBuf| self.secrets.get(path).is_none_or(|known| known == secret);
        let secret_file = paths.find(is_free).unwrap_or_default();
        self.secrets.insert(secret_file.clone(), secret.into());
        User { user: user.into(), secret_file }
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter()
    }

    /// The files of secrets, with their contents.
    pub(super) fn secrets(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.secrets.iter().map(|(path, secret)| (path.as_path(), secret.as_str()))
    }

    /// The text of the configuration, which is one that `lunette serve` reads.
    pub(super) fn to_toml(&self) -> Result<String, String> {
        let text = toml::to_string(&self.draft).map_err(|error| error.to_string())?;
        config::check_text(&text).map_err(|why| format!("it cannot be said in a configuration of ours: {why}"))?;
        Ok(text)
    }
}

/// A text as a name that files and hosts may have.
pub(super) fn plain_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
    text.chars().take(config::hosts::MAX_HOST_NAME_CHARACTERS).map(plain).collect()
}

/// An address with a port, as `listen` takes it; without a port when that is iSCSI's.
pub(super) fn address(host: &str, port: Option<&str>) -> String {
    let host = host.trim_matches(['[', ']']);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    match port {
        None | Some("3260") => host,
        Some(port) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_secret_has_a_file_of_its_own() {
        let mut imported = Imported::new(Path::new("/s"));
        let file = |imported: &mut Imported, owner, secret| imported.user(owner, "a/b", secret).secret_file;
        assert_eq!(file(&mut imported, "iqn.x:1", "one"), Path::new("/s/iqn.x_1.a_b"));
        assert_eq!(file(&mut imported, "iqn.x:1", "one"), Path::new("/s/iqn.x_1.a_b"));
        assert_eq!(file(&mut imported, "iqn.x:1", "two"), Path::new("/s/iqn.x_1.a_b.2"));
        assert_eq!(imported.secrets().map(|(_, secret)| secret).collect::<Vec<_>>(), ["one", "two"]);
    }

    #[test]
    fn addresses_have_brackets_and_ports_where_they_need_them() {
        for (host, port, expected) in [
            ("192.0.2.1", None, "192.0.2.1"),
            ("192.0.2.1", Some("3260"), "192.0.2.1"),
            ("192.0.2.1", Some("860"), "192.0.2.1:860"),
            ("::", Some("3260"), "[::]"),
            ("[2001:db8::1]", Some("860"), "[2001:db8::1]:860"),
        ] {
            assert_eq!(address(host, port), expected);
        }
    }
}
