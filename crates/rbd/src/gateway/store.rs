//! The store of an image that comes and goes.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use lunette_store::{Capabilities, Completion, FileIo, Geometry, Op, Outcome, Space, Store, StoreError};

use crate::{OpenError, RbdStore, RbdUrl};

/// The store of an image that this gateway has or not. While it has not, all requests fail with
/// [`StoreError::ShutOut`].
pub struct GatewayStore {
    url: RbdUrl,
    image: RwLock<Option<Arc<RbdStore>>>,
    /// The geometry without the image; its length is the last known one.
    geometry: Geometry,
    capabilities: Capabilities,
    len_bytes: AtomicU64,
    on_resize: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl GatewayStore {
    /// Looks at the image, which stays closed until a [`Gateway`](crate::Gateway) has it. Waits for the cluster. With
    /// `exact`, requests are exact to the byte.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing and what to do. An image without the feature `exclusive-lock` is refused: no
    /// gateway could ever have it.
    pub fn open(url: &RbdUrl, exact: bool) -> Result<Self, OpenError> {
        Self::of(RbdStore::open(url, true)?, exact)
    }

    /// The store of an image that was opened to look at it.
    pub(crate) fn of(image: RbdStore, exact: bool) -> Result<Self, OpenError> {
        if !image.has_lock() {
            return Err(OpenError::unlockable(image.url()));
        }
        let image = if exact { image.exact() } else { image };
        let capabilities = Capabilities {
            read_only: false,
            unmap: true,
            unmap_zeroes: true,
            write_zeroes: true,
            ..image.capabilities()
        };
        let geometry = image.geometry();
        let len_bytes = AtomicU64::new(geometry.len_bytes);
        let url = image.url().clone();
        Ok(Self { url, image: RwLock::new(None), geometry, capabilities, len_bytes, on_resize: OnceLock::new() })
    }

    /// The URL of the image.
    pub fn url(&self) -> &RbdUrl {
        &self.url
    }

    pub(super) fn is_exact(&self) -> bool {
        self.geometry.granularity_bytes == 1
    }

    /// Calls `told` when the length has changed, on a thread of the image. False, and without effect, when something is
    /// called already.
    pub fn on_resize(&self, told: impl Fn() + Send + Sync + 'static) -> bool {
        self.on_resize.set(Box::new(told)).is_ok()
    }

    /// Requests go to this image from now on.
    pub(super) fn give(self: &Arc<Self>, image: &Arc<RbdStore>) {
        let (store, resized) = (Arc::downgrade(self), Arc::downgrade(image));
        image.on_resize(move |len_bytes| {
            if let (Some(store), Some(image)) = (store.upgrade(), resized.upgrade()) {
                image.serve_len(len_bytes);
                store.has_len(len_bytes);
            }
        });
        self.has_len(image.current_len());
        *self.image.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(image));
    }

    fn has_len(&self, len_bytes: u64) {
        if self.len_bytes.swap(len_bytes, Ordering::AcqRel) != len_bytes
            && let Some(told) = self.on_resize.get()
        {
            told();
        }
    }

    /// Requests fail from now on.
    pub(super) fn take(&self) {
        *self.image.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn image(&self) -> Option<Arc<RbdStore>> {
        self.image.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Store for GatewayStore {
    fn geometry(&self) -> Geometry {
        Geometry { len_bytes: self.len_bytes.load(Ordering::Acquire), ..self.geometry }
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn space(&self) -> io::Result<Option<Space>> {
        self.image().map_or(Ok(None), |image| image.space())
    }

    fn needs_file_io(&self) -> bool {
        false
    }

    fn submit(&self, op: Op, file_io: &dyn FileIo, done: Completion) {
        match self.image() {
            Some(image) => image.submit(op, file_io, done),
            // All that was answered is in the cluster.
            None if matches!(op, Op::Flush) => done.complete(Outcome::of(op, Ok(()))),
            None => {
                let error = StoreError::ShutOut("another gateway has the image".into());
                done.complete(Outcome::of(op, Err(error)));
            }
        }
    }
}
