//! The names of disks.

use std::fmt;
use std::str::FromStr;

use lunette_initiator::{KeyParameters, Url, UrlError, is_url};
use lunette_longhorn::LonghornName;
use lunette_nbd::client::NbdUrl;
use lunette_rbd::RbdUrl;
use lunette_store::OpenOptions;
use serde::{Deserialize, Deserializer};

use super::file::FilePath;
use super::iscsi::RemoteName;
use super::kind::Opened;
use super::memory::Memory;
use super::volume::{self, VolumeName, VolumeNameError};
use super::{Place, encrypted};
use crate::failure::Failure;
use crate::size::NotASize;
use crate::text;

/// The location of a disk's blocks, as a user writes it. `?keys=...` behind all but memory makes it an encrypted disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiskName {
    pub(crate) place: Place,
    pub(crate) keys: Option<KeyParameters>,
}

/// Says what is wrong with the name of a disk.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskNameError {
    #[error(transparent)]
    Size(#[from] NotASize),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Image(#[from] lunette_rbd::UrlError),
    #[error(transparent)]
    Nbd(#[from] lunette_nbd::client::UrlError),
    #[error(transparent)]
    Longhorn(#[from] lunette_longhorn::NameError),
    #[error(transparent)]
    Volume(#[from] VolumeNameError),
    /// Without the text, which may hold a password.
    #[error(
        "the URL of a disk begins with iscsi://, ecl://, ecl+eth://, nbd://, nbds://, nbd+unix://, nbds+unix:// or rbd:; \
         write ./ before the name of a file with \"://\""
    )]
    Scheme,
}

/// A URL with parameters of its own, without the keys of an encrypted disk that stand behind it, and these.
fn without_keys(text: &str) -> Result<(String, Option<KeyParameters>), DiskNameError> {
    let Some((place, query)) = text.split_once('?') else { return Ok((text.into(), None)) };
    let is_of_keys = |parameter: &&str| KeyParameters::split(&format!("?{parameter}")).is_some();
    let (keys, own): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_of_keys);
    let keys = (!keys.is_empty()).then(|| KeyParameters::parse(&keys.join("&"))).transpose()?;
    let url = if own.is_empty() { place.into() } else { format!("{place}?{}", own.join("&")) };
    Ok((url, keys))
}

/// The schemes that a name may begin with by mistake, without the two slashes.
const KNOWN_SCHEMES: [&str; 8] = ["iscsi", "ecl", "ecl+eth", "iser", "nbd", "nbd+unix", "nbds", "nbds+unix"];

/// Whether a text that is no URL of a disk begins like one, such as `iscis://` or `iscsi:`.
fn has_scheme(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '+';
    text.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.chars().all(is_part)
            && (rest.starts_with("//") || KNOWN_SCHEMES.contains(&&*scheme.to_ascii_lowercase()))
    })
}

impl DiskName {
    /// Why the disk cannot be opened, as far as its name and the files beside it tell.
    pub(crate) fn lack(&self) -> Option<String> {
        self.place.kind().lack().or_else(|| encrypted::lack(self.keys.as_ref()?))
    }

    /// Opens the disk: the plain text of one with keys. A missing file is created as `options` say.
    pub(crate) fn open(&self, options: &OpenOptions) -> Result<Opened, Failure> {
        match &self.keys {
            Some(keys) => encrypted::open(&self.place, keys, options),
            None => self.place.open(options),
        }
    }
}

impl fmt::Display for DiskName {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

impl FromStr for DiskName {
    type Err = DiskNameError;

    fn from_str(text: &str) -> Result<Self, DiskNameError> {
        if let Some(size) = text.strip_prefix("mem:") {
            return Ok(Self { place: Place::Memory(Memory(size.parse()?)), keys: None });
        }
        if is_url(text) {
            let mut url = Box::new(Url::parse(text)?);
            let keys = url.keys.take();
            return Ok(Self { place: Place::Iscsi(RemoteName::new(url, text)), keys });
        }
        if RbdUrl::is_meant(text) {
            let (url, keys) = without_keys(text)?;
            return Ok(Self { place: Place::Image(url.parse()?), keys });
        }
        if NbdUrl::is_meant(text) {
            let (url, keys) = without_keys(text)?;
            return Ok(Self { place: Place::Nbd(url.parse()?), keys });
        }
        if LonghornName::is_meant(text) {
            let (name, keys) = without_keys(text)?;
            return Ok(Self { place: Place::Longhorn(name.parse()?), keys });
        }
        if has_scheme(text) {
            return Err(DiskNameError::Scheme);
        }
        let (path, keys) = match KeyParameters::split(text) {
            Some((path, query)) => (path, Some(KeyParameters::parse(query)?)),
            None => (text, None),
        };
        if let Some(name) = path.strip_prefix(volume::SCHEME) {
            return Ok(Self { place: Place::Volume(VolumeName::parse(name)?), keys });
        }
        Ok(Self { place: Place::File(FilePath(path.into())), keys })
    }
}

impl<'de> Deserialize<'de> for DiskName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        text::read(from)
    }
}

#[cfg(test)]
mod tests {
    use super::super::identities;
    use super::*;
    use crate::size::Size;

    #[test]
    fn names_tell_memory_from_paths() {
        let place = |text: &str| text.parse::<DiskName>().unwrap().place;
        assert_eq!(place("mem:64M"), Place::Memory(Memory(Size(64 << 20))));
        assert!("mem:12Q".parse::<DiskName>().is_err());
        assert_eq!(place("./mem"), Place::File(FilePath("./mem".into())));
        assert_eq!(place("iscsi://h/iqn.a:b/0").to_string(), "iscsi://h:3260/iqn.a:b/0");
    }

    #[test]
    fn one_place_has_one_identity_under_all_its_names() {
        let identity = |text: &str| identities(&[&text.parse::<DiskName>().unwrap().place]).remove(0);
        let one = identity("iscsi://h/iqn.a:b/0");
        assert!(one.is_some());
        for same in [
            "ecl://h/iqn.a:b/0",
            "iscsi://u@H:3260/iqn.a:b/0?header_digest=crc32c",
            "iscsi://h/iqn.a%3ab/0?keys=file:k",
        ] {
            assert_eq!(identity(same), one, "{same}");
        }
        for other in ["iscsi://h/iqn.a:b/1", "iscsi://h/iqn.a:c/0", "iscsi://h:3261/iqn.a:b/0", "mem:1M"] {
            assert_ne!(identity(other), one, "{other}");
        }
        let folder = tempfile::tempdir().unwrap();
        let (disk, link) = (folder.path().join("disk"), folder.path().join("link"));
        std::fs::write(&disk, "").unwrap();
        let hard_link = folder.path().join("hard");
        std::os::unix::fs::symlink(&disk, &link).unwrap();
        std::fs::hard_link(&disk, &hard_link).unwrap();
        assert_eq!(identity(disk.to_str().unwrap()), identity(&format!("{}?keys=file:k", link.display())));
        assert_eq!(identity(disk.to_str().unwrap()), identity(hard_link.to_str().unwrap()));
    }

    #[test]
    fn an_image_has_its_own_parameters_and_those_of_keys() {
        let name: DiskName = "rbd:p/i?conf=/c&keys=file:k&user=u&passphrase_file=p".parse().unwrap();
        assert_eq!(name.place.to_string(), "rbd:p/i?conf=/c&user=u");
        assert_eq!(name.keys.unwrap().keys, "file:k");
        assert_eq!("rbd:p/i".parse::<DiskName>().unwrap().keys, None);
        let identity = |text: &str| identities(&[&text.parse::<DiskName>().unwrap().place]).remove(0);
        assert_eq!(identity("rbd:p/i@s?user=a&keys=file:k"), identity("rbd:p/i?keyring=b"));
        assert_ne!(identity("rbd:p/i"), identity("rbd:p/n/i"));
        assert_ne!(identity("rbd:p/i?conf=/a"), identity("rbd:p/i?conf=/b"));
        for wrong in ["iscis://u%hush@h/iqn.a/0", "iscsi:/u%hush@h", "rbd:p/i?key=hush"] {
            let error = wrong.parse::<DiskName>().unwrap_err().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
        for wrong in ["rbd:i", "rbd:p/i?id=me", "rbd:p/i?keys=", "rbd:p/i?"] {
            assert!(wrong.parse::<DiskName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_export_has_a_socket_and_keys() {
        let name: DiskName = "nbd+unix:///a?keys=file:k&socket=/s&passphrase_file=p".parse().unwrap();
        assert_eq!(name.place.to_string(), "nbd+unix:///a?socket=/s");
        assert_eq!(name.keys.unwrap().keys, "file:k");
        let identity = |text: &str| identities(&[&text.parse::<DiskName>().unwrap().place]).remove(0);
        assert_eq!(identity("nbd://H/a?keys=file:k"), identity("nbd://h:10809/%61"));
        assert_ne!(identity("nbd://h/a"), identity("nbd://h/A"));
        let name: DiskName = "nbds://h/a?tls=k&keys=file:k&tls-certificates=/d&tls-hostname=n".parse().unwrap();
        assert_eq!(name.place.to_string(), "nbds://h:10809/a?tls-certificates=/d&tls-hostname=n");
        assert_eq!(identity("nbds://h/a?tls-certificates=/d"), identity("nbd://h/a"));
        for (wrong, why) in [
            ("nbds://h/a", "tls-certificates"),
            ("nbd+unix:///a", "socket"),
            ("nbd:unix:/s", "begins with"),
            ("nbd://h/a?sokcet=/s", "sokcet"),
        ] {
            let error = wrong.parse::<DiskName>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn keys_stand_behind_paths_and_urls() {
        for disk in ["a.img", "iscsi://u%25secret@h/iqn.a:b/0"] {
            let name: DiskName = format!("{disk}?keys=file:k&passphrase_file=p").parse().unwrap();
            assert_eq!(name.keys.as_ref().unwrap().keys, "file:k");
            assert!(!format!("{name:?}").contains("secret"));
            assert_eq!(disk.parse::<DiskName>().unwrap().keys, None);
        }
        for disk in ["a.img?keys=", "a.img?tls=d", "iscsi://h/iqn.a:b/0?tls=d"] {
            assert!(disk.parse::<DiskName>().is_err(), "{disk}");
        }
    }
}
