//! Encrypted disks: the plain text of any disk that has a volume.

pub(crate) mod keys;
pub(crate) mod volumes;

use std::path::PathBuf;

use lunette_files::Content;
use lunette_initiator::KeyParameters;
use lunette_initiator::encryption::key_source;
use lunette_keys::source::{KeyPlace, KeySource, PassphraseSource};
use lunette_store::OpenOptions;

use super::Place;
use super::kind::{Facts, Opened};
use crate::failure::Failure;
use keys::Keys;

/// Why an encrypted disk is not created when it is opened, and the remedy.
pub(crate) const REFUSES_CREATE: &str = "an encrypted disk is made by lunette quanta format; leave out create";

/// The key file and its passphrase, as far as they are looked at.
const KEY_FILE: Content = Content { name: "a key file", max_bytes: 0 };
const PASSPHRASE: Content = Content { name: "a passphrase", max_bytes: 0 };

/// Why the keys of a disk cannot be had, as far as this machine tells. Key servers are not asked.
pub(super) fn lack(keys: &KeyParameters) -> Option<String> {
    let KeySource { place, opening } = match key_source(keys) {
        Ok(source) => source,
        Err(error) => return Some(error.to_string()),
    };
    let key_file = if let KeyPlace::File(path) = &place { Some((path, KEY_FILE)) } else { None };
    let passphrase = match &opening.passphrase {
        Some(PassphraseSource::File(path)) => Some((path, PASSPHRASE)),
        Some(PassphraseSource::Credential(_)) | None => None,
    };
    let unreadable = |(path, content): (&PathBuf, Content)| lunette_files::open(path, content).err();
    [key_file, passphrase].into_iter().flatten().find_map(unreadable).map(|problem| problem.to_string())
}

/// Opens the volume on a disk for a server.
pub(super) fn open(place: &Place, keys: &KeyParameters, options: &OpenOptions) -> Result<Opened, Failure> {
    if options.create.is_some() {
        return Err(Failure::Usage(format!("{place}: {REFUSES_CREATE}")));
    }
    // Without keys there is no need to open the disk.
    let keys = Keys::fetch(keys)?;
    let below = place.open(&OpenOptions { any_length: true, tentative: false, ..*options })?;
    let store = keys.serve(place, below.store, options.read_only)?;
    let facts = Facts { is_encrypted: true, has_own_blocks: true, on_served: None, ..below.facts };
    Ok(Opened { facts, file: below.file, ..Opened::new(store) })
}
