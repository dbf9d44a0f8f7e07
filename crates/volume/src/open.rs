//! The open volume.

use std::sync::Arc;

use lunette_quanta::{Header, KeyRing};
use lunette_store::{Capabilities, Completion, FileIo, Geometry, Op, Store};

use crate::{Counts, Found, VolumeError};

/// How a volume is to be opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// Whether requests that change the volume are refused.
    pub read_only: bool,
}

/// An open volume: a store of plain text.
///
/// Requests are whole quanta ([`Geometry::granularity_bytes`]). They are sealed on the thread that submits them and opened on the thread that ends the
/// request below. What has to wait (for the journal, for buffers, for another request) goes on by a thread of the volume.
///
/// Dropping the volume leaves it as a killed process would: requests under way end, and a packed volume keeps in its journal what is there, for
/// the next [`open`](Self::open). [`close`](Self::close) leaves nothing to replay.
pub struct Volume(());

impl Volume {
    /// Opens the volume that [`find`](crate::find) has found, and replays its journal in memory if it is packed.
    ///
    /// When the newest of `keys` is newer than the volume's newest epoch, the header is changed to say so, unless the volume is opened
    /// read-only. One client at a time may open a packed volume for writing.
    ///
    /// # Errors
    ///
    /// [`VolumeError`]; [`VolumeError::TailLost`] is what [`recover`](crate::recover) is for.
    pub fn open(
        inner: Arc<dyn Store>,
        found: &Found,
        keys: KeyRing,
        options: OpenOptions,
    ) -> Result<Self, VolumeError> {
        let _ = (inner, found, keys, options);
        todo!()
    }

    /// The header as it is now.
    pub fn header(&self) -> Header {
        todo!()
    }

    /// What the volume has done so far.
    pub fn counts(&self) -> Counts {
        todo!()
    }

    /// Takes other keys: what is written from now on is sealed with the newest of them. Requests go on meanwhile.
    ///
    /// The header is written and flushed first when it does not know the newest epoch yet, so a client that finds it knows which keys to fetch.
    ///
    /// # Errors
    ///
    /// [`VolumeError::OtherCipher`], [`VolumeError::OldKeys`], and failures to write the header; the volume keeps its keys then.
    pub fn set_keys(&self, keys: KeyRing) -> Result<(), VolumeError> {
        let _ = keys;
        todo!()
    }

    /// Flushes everything acknowledged so far, and moves what is in the journal to its places, so that the next [`open`](Self::open) finds it empty.
    /// The volume can be used after that.
    ///
    /// # Errors
    ///
    /// [`VolumeError::Unit`].
    pub fn close(&self) -> Result<(), VolumeError> {
        todo!()
    }
}

impl Store for Volume {
    fn geometry(&self) -> Geometry {
        todo!()
    }

    fn capabilities(&self) -> Capabilities {
        todo!()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let _ = (op, io, done);
        todo!()
    }
}
