//! Encrypted disks: the plain text of any disk that has a volume.

use lunette_initiator::KeyParameters;
use lunette_store::OpenOptions;

use super::Place;
use super::kind::{Facts, Opened};
use crate::encrypted::Keys;
use crate::failure::Failure;

/// Why an encrypted disk is not created when it is opened, and the remedy.
pub(crate) const REFUSES_CREATE: &str = "an encrypted disk is made by lunette quanta format; leave out create";

/// Opens the volume on a disk for a server.
pub(super) fn open(place: &Place, keys: &KeyParameters, options: &OpenOptions) -> Result<Opened, Failure> {
    if options.create.is_some() {
        return Err(Failure::Usage(format!("{place}: {REFUSES_CREATE}")));
    }
    // Without keys there is no need to open the disk.
    let keys = Keys::fetch(keys)?;
    let below = place.open(&OpenOptions { any_length: true, tentative: false, ..*options })?;
    let store = keys.serve(place, below.store, options.read_only)?;
    let facts = Facts { is_encrypted: true, has_own_blocks: true, on_served: None };
    Ok(Opened { facts, file: below.file, ..Opened::new(store) })
}
