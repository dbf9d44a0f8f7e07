//! The parameters that say where the keys of an encrypted disk are.

use std::path::PathBuf;

use super::decode;
use super::error::{UrlError, wrong};

/// Where the keys of an encrypted disk are, and what opens them: the parameters `keys`, `passphrase_file`,
/// `passphrase_credential` and `tls`. None of them is a secret itself. And `anchor`, by which the disk is checked for
/// what was rolled back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyParameters {
    /// The key file: `file:PATH`, or `kmip://HOST[:PORT]/NAME`.
    pub keys: String,
    /// The file that holds the passphrase of the key file.
    pub passphrase_file: Option<PathBuf>,
    /// The systemd credential that holds the passphrase of the key file.
    pub passphrase_credential: Option<String>,
    /// The folder with this client's certificate for key servers.
    pub tls: Option<PathBuf>,
    /// The file of the volume's anchor.
    pub anchor: Option<PathBuf>,
}

/// The names of the parameters, `keys` first.
pub(super) const NAMES: [&str; 5] = ["keys", "passphrase_file", "passphrase_credential", "tls", "anchor"];

/// The parameter that a name is, or a misspelling of.
fn meant(name: &str) -> Option<&'static str> {
    let name = name.replace('-', "_");
    NAMES.into_iter().find(|known| known.eq_ignore_ascii_case(&name))
}

fn unknown<T>(name: &str) -> Result<T, UrlError> {
    match meant(name) {
        Some(known) => wrong(format!("there is no parameter {name:?} of keys; write {known}")),
        None => wrong(format!("there is no parameter {name:?} of keys; those that there are: {}", NAMES.join(", "))),
    }
}

/// The values that were read so far, in the order of [`NAMES`].
pub(super) type Values = [Option<String>; NAMES.len()];

/// The place of `tls` among them, which `iscsis://` has without keys, too.
const FOLDER: usize = 3;

const _: () = assert!(matches!(NAMES[FOLDER].as_bytes(), b"tls"));

/// The folder of certificates.
pub(super) fn folder(values: &Values) -> Option<&str> {
    values[FOLDER].as_deref()
}

/// Whether keys are named.
pub(super) fn has_keys(values: &Values) -> bool {
    values[0].is_some()
}

/// The folder belongs to the session alone.
pub(super) fn forget_folder(values: &mut Values) {
    values[FOLDER] = None;
}

impl KeyParameters {
    /// Reads `NAME=VALUE&NAME=VALUE…`, as it stands behind the name of a disk that is no URL.
    ///
    /// # Errors
    ///
    /// [`UrlError`]: an unknown name, a name twice, no `keys`, a `%` that is no percent-encoding.
    pub fn parse(query: &str) -> Result<Self, UrlError> {
        let mut values = Values::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let Some(at) = NAMES.iter().position(|known| *known == name) else { return unknown(name) };
            if value.is_empty() {
                return wrong(format!("the parameter {name} has no value; write {name}=VALUE"));
            }
            if values[at].replace(decode(value)?).is_some() {
                return wrong(format!("the parameter {name} stands there twice"));
            }
        }
        Self::of(values)?.ok_or_else(|| UrlError("the parameter keys is missing".into()))
    }

    /// Splits the name of a disk that is no URL, such as `disk.img?keys=file:disk.keys`, into the disk and the query
    /// that [`parse`](Self::parse) reads. `None` when no parameter of keys follows a question mark: the question marks
    /// then belong to the name.
    ///
    /// A misspelt parameter (`passphrase-file`, `Keys`) makes it a query too, as does an unknown one beside one that is
    /// known. [`parse`](Self::parse) refuses both; as part of a name, either would lead to plain text in a file of that
    /// name.
    pub fn split(name: &str) -> Option<(&str, &str)> {
        let is_query = |query: &str| {
            let names = query.split('&').filter_map(|parameter| parameter.split('=').next());
            names.map(meant).any(|known| known.is_some())
        };
        // The last one that fits, because names of disks have question marks too, as have those of key files.
        let mut queries = name.rmatch_indices('?').map(|(at, mark)| (&name[..at], &name[at + mark.len()..]));
        queries.find(|(_, query)| is_query(query))
    }

    /// `None` when there are no values.
    pub(super) fn of(values: Values) -> Result<Option<Self>, UrlError> {
        let given = NAMES.iter().zip(&values).find(|(_, value)| value.is_some()).map(|(name, _)| name);
        let [keys, passphrase_file, passphrase_credential, tls, anchor] = values;
        match (given, keys) {
            (None, _) => Ok(None),
            (Some(name), None) => {
                wrong(format!("{name} is for an encrypted disk, and keys is missing; write keys=file:PATH"))
            }
            (Some(_), Some(_)) if passphrase_file.is_some() && passphrase_credential.is_some() => {
                wrong("the passphrase is in passphrase_file and in passphrase_credential; leave out one of them")
            }
            (Some(_), Some(keys)) => Ok(Some(Self {
                keys,
                passphrase_file: passphrase_file.map(Into::into),
                passphrase_credential,
                tls: tls.map(Into::into),
                anchor: anchor.map(Into::into),
            })),
        }
    }
}
