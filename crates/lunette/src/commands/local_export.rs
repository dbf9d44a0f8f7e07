//! A disk for this machine: opened, offered by a front end until it is told to end, flushed and closed.
//!
//! An encrypted disk gets its keys again on SIGHUP, and tells its counts on SIGUSR1 and at the end.

use std::sync::Arc;

use lunette_store::{OpenOptions, Store};
use signal_hook::consts::{SIGHUP, SIGUSR1};

use crate::disks::DiskName;
use crate::disks::encrypted::keys::volume_on;
use crate::disks::encrypted::volumes;
use crate::failure::Failure;
use crate::output;
use crate::server::counts;
use crate::size::Size;
use crate::system;

/// The disk, as arguments name it.
pub(crate) struct Source<'a> {
    pub(crate) name: &'a DiskName,
    /// The length of one that is missing, which is created then.
    pub(crate) create: Option<Size>,
    pub(crate) read_only: bool,
    /// Whether counts are printed as JSON.
    pub(crate) json: bool,
}

/// Opens a disk, has `serve` offer it until it returns, and closes it.
pub(crate) fn run(
    source: &Source<'_>,
    serve: impl FnOnce(Arc<dyn Store>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    system::outlive_signals().map_err(Failure::other)?;
    let hangups = system::hold(SIGHUP).map_err(Failure::other)?;
    let questions = system::hold(SIGUSR1).map_err(Failure::other)?;
    let store = source.open()?;
    let refresh = || {
        volumes::refresh();
    };
    hangups.answer_with("lunette-hangup", refresh).map_err(Failure::other)?;
    let json = source.json;
    questions.answer_with("lunette-counts", move || counts::print_volumes(json)).map_err(Failure::other)?;
    let closed = serve(Arc::clone(&store)).and_then(|()| volumes::close());
    counts::print_volumes(json);
    // Until here: a volume that was dropped before could neither be closed nor counted.
    drop(store);
    closed
}

impl Source<'_> {
    fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        let create = self.create.map(|Size(bytes)| bytes);
        let options = OpenOptions { create, read_only: self.read_only, ..OpenOptions::default() };
        let store = self.name.open(&options)?.store;
        if self.name.keys.is_none() && !self.read_only {
            self.warn_of_volume(&store);
        }
        Ok(store)
    }

    /// An encrypted disk may be served as it is, to copy it. A client that takes it for a plain one destroys it.
    fn warn_of_volume(&self, store: &Arc<dyn Store>) {
        let place = &self.name.place;
        if let Ok(Some(volume)) = volume_on(place, store) {
            output::note(format_args!(
                "lunette: warning: {place} has {volume}, which is served encrypted, and which a client can destroy; write \
                 {place}?keys=file:KEYS to decrypt it, or add --read-only"
            ));
        }
    }
}
