//! An image as a store.

use std::fmt;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use lunette_store::{Capabilities, Completion, FileIo, Geometry, Op, Outcome, Space, Store, StoreError};

use crate::df::{self, PoolRoom};
use crate::errands::{self, Errand, MapRequest};
use crate::flight::{Flight, Request};
use crate::latch::Latch;
use crate::length::{GRANULARITY_BYTES, Length};
use crate::librbd::{Facts, Image};
use crate::limits::CHECK_INTERVAL;
use crate::{OpenError, RbdUrl};

/// The bytes that an OSD (BlueStore) writes without reading first.
const PHYSICAL_BYTES: u32 = 4096;

/// The smallest range worth freeing: librbd's own default for clients that align their discards
/// (`rbd_discard_granularity_bytes`).
const UNMAP_BYTES: u32 = 64 << 10;

/// An open image as a store.
///
/// A write that was answered is in the cluster, on as many OSDs as its pool wants (`min_size` at least), so there is no
/// volatile cache, and a flush only waits for what is under way.
///
/// For as long as a writable store is open, it holds the exclusive lock of an image that has that feature (images have
/// it by default). Other clients can read the image meanwhile, and neither write to it nor open another writable store
/// of it.
///
/// A client that the cluster has put on its blocklist is shut out for good: all requests fail with
/// [`StoreError::ShutOut`].
///
/// Dropping the store closes it in the background. [`close`](Self::close) waits for that.
pub struct RbdStore {
    url: RbdUrl,
    facts: Facts,
    read_only: bool,
    granularity_bytes: u32,
    flight: OpenFlight,
    length: Arc<Length>,
    errands: Sender<Errand>,
    closed: Latch,
}

/// The requests of a store, which takes no more of them when it is dropped.
struct OpenFlight(Arc<Flight>);

impl Drop for OpenFlight {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Closes an image, and waits for that. It does not keep the image open.
#[derive(Clone)]
pub struct Closer {
    flight: Weak<Flight>,
    closed: Latch,
}

impl Closer {
    /// Closes the image when the requests that are under way have ended; later ones fail. Waits for it, for at most
    /// `limit`. What has not ended then goes on in the background.
    ///
    /// # Errors
    ///
    /// [`NotClosed`] after `limit`.
    pub fn close(&self, limit: Duration) -> Result<(), NotClosed> {
        if let Some(flight) = self.flight.upgrade() {
            flight.close();
        }
        if self.closed.wait(limit) { Ok(()) } else { Err(NotClosed(limit)) }
    }

    /// Ends the requests that librbd does not end, of an image that does not close. The client of the image must be on
    /// the blocklist.
    pub(crate) fn abandon(&self) {
        if let Some(flight) = self.flight.upgrade() {
            flight.abandon();
        }
    }

    /// Whether the image is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.is_set()
    }
}

/// The error of [`Closer::close`].
#[derive(Debug, thiserror::Error)]
#[error("requests to the image, or its closing, take longer than {} s: the cluster does not answer", .0.as_secs())]
pub struct NotClosed(Duration);

impl RbdStore {
    /// Connects to the cluster and opens an image; a snapshot is always read-only. Waits for the cluster.
    ///
    /// An image whose last writer has died is locked until the cluster gives that one up, which takes up to half a
    /// minute. Then that writer is put on the blocklist, so that nothing of it arrives any more.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing and what to do.
    pub fn open(url: &RbdUrl, read_only: bool) -> Result<Self, OpenError> {
        Self::open_image(url, read_only, CHECK_INTERVAL, Image::open)
    }

    /// Like [`open`](Self::open), writable but without its lock: [`take_over`](Self::take_over) takes it. Nothing may
    /// be written before.
    pub(crate) fn open_unlocked(url: &RbdUrl) -> Result<Self, OpenError> {
        Self::open_image(url, false, CHECK_INTERVAL, |url, _, told| Image::open_unlocked(url, told))
    }

    /// Takes the lock of the image over from another gateway, whose client may be `fenced`: on the blocklist. Waits for
    /// the cluster.
    pub(crate) fn take_over(&self, fenced: Option<&str>) -> Result<(), OpenError> {
        let image = self.flight.0.image().map_err(|error| OpenError::Image(io::Error::other(error)))?;
        image.take_over(&self.url, fenced)
    }

    /// The address of its client, as the blocklist takes it.
    pub(crate) fn client(&self) -> io::Result<String> {
        self.flight.0.image().map_err(io::Error::other)?.client()
    }

    /// Whether the cluster takes nothing from this client any more.
    pub(crate) fn is_shut_out(&self) -> bool {
        self.flight.0.is_shut_out()
    }

    /// Opens an image with `open`, and asks every `check_interval` whether the cluster still takes its requests.
    pub(crate) fn open_image(
        url: &RbdUrl,
        read_only: bool,
        check_interval: Duration,
        open: impl FnOnce(&RbdUrl, bool, Box<dyn Fn() + Send + Sync>) -> Result<Image, OpenError>,
    ) -> Result<Self, OpenError> {
        let read_only = read_only || url.snapshot.is_some();
        let (errands, receiver) = channel();
        let told = errands.clone();
        let image = open(url, read_only, Box::new(move || errands::look_soon(&told)))?;
        let closed = image.closed().clone();
        let facts = image.facts().map_err(OpenError::Image)?;
        let image = Arc::new(image);
        if !read_only {
            image.offer_lock();
        }
        let (flight, length) = (Arc::new(Flight::new(image)), Arc::new(Length::new(facts.len_bytes)));
        errands::start(receiver, Arc::downgrade(&flight), Arc::clone(&length), check_interval)
            .map_err(OpenError::Thread)?;
        let granularity_bytes = GRANULARITY_BYTES;
        let flight = OpenFlight(flight);
        Ok(Self { url: url.clone(), facts, read_only, granularity_bytes, flight, length, errands, closed })
    }

    /// The store with requests exact to the byte, for blocks that are no whole number of sectors.
    #[must_use]
    pub fn exact(self) -> Self {
        Self { granularity_bytes: 1, ..self }
    }

    /// The URL of the image.
    pub fn url(&self) -> &RbdUrl {
        &self.url
    }

    /// The number of the image in its pool. A new image of the same name has another one.
    pub fn id(&self) -> &str {
        &self.facts.id
    }

    /// Whether the image has the feature of an exclusive lock.
    pub(crate) fn has_lock(&self) -> bool {
        self.facts.has_lock
    }

    /// The length of the image in bytes, as far as it is known. It may differ from what the store
    /// [serves](Self::serve_len).
    pub fn current_len(&self) -> u64 {
        self.length.current()
    }

    /// Serves `len_bytes` from now on, a length that [`on_resize`](Self::on_resize) has told.
    pub fn serve_len(&self, len_bytes: u64) {
        self.length.serve(len_bytes);
    }

    /// Calls `told` with each new length of the image, in bytes, on a thread of the store. The store goes on with the
    /// length that it serves. False, and without effect, when something is called already.
    pub fn on_resize(&self, told: impl Fn(u64) + Send + Sync + 'static) -> bool {
        self.length.on_resize(Box::new(told))
    }

    /// Closes the image: [`Closer::close`].
    ///
    /// # Errors
    ///
    /// [`NotClosed`] after `limit`.
    pub fn close(&self, limit: Duration) -> Result<(), NotClosed> {
        self.closer().close(limit)
    }

    /// A handle that closes the image, also when the store is gone.
    pub fn closer(&self) -> Closer {
        Closer { flight: Arc::downgrade(&self.flight.0), closed: self.closed.clone() }
    }

    fn map(&self, range: (u64, u64), found: Arc<lunette_store::AllocationMap>, done: Completion) {
        let image = match self.flight.0.image() {
            Ok(image) => image,
            Err(error) => return done.complete(Outcome::new(Err(error), None)),
        };
        let request = MapRequest { image, whole_objects: self.facts.fast_diff, range, found, done };
        if let Err(unsent) = self.errands.send(Errand::Map(request))
            && let Errand::Map(request) = unsent.0
        {
            let error = io::Error::other("the thread of the image has ended");
            request.done.complete(Outcome::new(Err(error.into()), None));
        }
    }
}

impl Store for RbdStore {
    fn geometry(&self) -> Geometry {
        Geometry {
            len_bytes: self.length.served(),
            granularity_bytes: self.granularity_bytes,
            physical_bytes: PHYSICAL_BYTES,
            unmap_bytes: UNMAP_BYTES,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            read_only: self.read_only,
            volatile_cache: false,
            unmap: !self.read_only,
            unmap_zeroes: !self.read_only,
            anchors: false,
            write_zeroes: !self.read_only,
            memory: false,
        }
    }

    /// The space of the image's objects, and what the pool has room for. Unknown without the feature `fast-diff`, and
    /// in a cluster without a manager.
    fn space(&self) -> io::Result<Option<Space>> {
        if !self.facts.fast_diff {
            return Ok(None);
        }
        let image = self.flight.0.image().map_err(io::Error::other)?;
        let room = df::room(&image.ask(df::COMMAND)?, &self.url.pool);
        let Some(PoolRoom { free_bytes, .. }) = room else { return Ok(None) };
        let mut used_bytes = 0;
        image.extents(0..self.length.current(), true, |_, len| {
            used_bytes += len;
            true
        })?;
        Ok(Some(Space { used_bytes, free_bytes }))
    }

    fn needs_file_io(&self) -> bool {
        false
    }

    fn submit(&self, op: Op, _: &dyn FileIo, done: Completion) {
        if let Err(error) = op.check(self.length.served(), self.read_only) {
            return done.complete(Outcome::of(op, Err(error)));
        }
        let is_empty = op.range().1 == 0 && !matches!(op, Op::Flush);
        let request = match op {
            op if is_empty => return done.complete(Outcome::of(op, Ok(()))),
            Op::Read { offset, into } => Request::Read { offset, into },
            Op::Write { offset, from, .. } => Request::Write { offset, from },
            Op::WriteZeroes { offset, len, may_unmap, .. } => Request::Zero { offset, len, keep_space: !may_unmap },
            // A discard leaves bytes at the edges as they are; this does not, and frees as much.
            Op::Unmap { offset, len } => Request::Zero { offset, len, keep_space: false },
            Op::Flush => Request::Flush,
            Op::Allocation { offset, len, found } => return self.map((offset, len), found, done),
            Op::Copy { .. } => {
                let error = io::Error::new(io::ErrorKind::Unsupported, "an image cannot copy from other stores");
                return done.complete(Outcome::new(Err(StoreError::Io(error)), None));
            }
        };
        self.flight.0.submit(request, done);
    }
}

impl fmt::Debug for RbdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RbdStore").field("url", &self.url).field("read_only", &self.read_only).finish_non_exhaustive()
    }
}
