//! librados and librbd behind handles that are safe to use. All unsafe code of the crate is in this folder.
//!
//! # Why the handles are safe
//!
//! - A handle ([`Connection`], [`Pool`], [`OpenImage`]) is the only owner of what it points to, closes it once, when it
//!   is dropped, and owns the one that it was made from, which is dropped later.
//! - The functions that are called through a shared reference may be called by several threads at once, as Ceph's
//!   headers say of all of them.
//! - A request is given to librbd as the address of its [`Job`]. From then on nothing else knows it, until librbd calls
//!   [`ended`] for its completion, which it does once. The job has the buffer, whose bytes stay where they are when it
//!   is moved, and a counted reference to the image. So both outlive the request, whatever becomes of the store.
#![allow(unsafe_code)]

mod connection;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod images;
mod lock;
mod object;
mod opened;
mod presence;
mod table;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::ops::Range;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::thread;

use crate::OpenError;
use crate::flight::{self, Job, Request};
use crate::latch::Latch;
use crate::url::RbdUrl;
use connection::{Pool, THREADS};
pub(crate) use object::{SharedObject, Watcher};
pub use presence::{exit, exit_now};
pub use table::LibraryError;
use table::{ConfigOption, Handle, Table};

/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
const EXCLUSIVE_LOCK: u64 = 1 << 2;

/// `RBD_FEATURE_JOURNALING`.
const JOURNALING: u64 = 1 << 6;

/// `RBD_FEATURE_FAST_DIFF`.
const FAST_DIFF: u64 = 1 << 4;

/// `RBD_FLAG_OBJECT_MAP_INVALID` and `RBD_FLAG_FAST_DIFF_INVALID`.
const FAST_DIFF_INVALID: u64 = 0b11;

/// `RBD_LOCK_MODE_EXCLUSIVE`.
const LOCK_EXCLUSIVE: c_int = 0;

/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`.
const THICK_PROVISION: c_int = 1;

/// Options of an image that there is room for. librbd 16 has some 60, and fails when there is no room for all.
const MAX_OPTIONS: u8 = u8::MAX;

/// An image, its watch apart.
struct OpenImage {
    pool: Arc<Pool>,
    handle: Handle,
}

/// An open image. It is closed on a thread of its own: that may take long, and on a thread of librbd it would never
/// end.
pub(crate) struct Image {
    parts: Option<Parts>,
    closed: Latch,
}

struct Parts {
    image: OpenImage,
    watch: Option<Watch>,
}

/// The receiver of changes to an image, for as long as `handle` is registered.
struct Watch {
    handle: u64,
    told: *mut Told,
}

type Told = Box<dyn Fn() + Send + Sync>;

// SAFETY: librados and librbd may be called by any thread, and by several at once.
unsafe impl Send for OpenImage {}
// SAFETY: as above.
unsafe impl Sync for OpenImage {}
// SAFETY: `told` is the only owner of something that is `Send` and `Sync`, and only librbd's callbacks use it
// meanwhile.
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

/// The facts that do not change while an image is open.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// The id of the image in the pool, which a new image of the same name does not have.
    pub(crate) id: String,
    pub(crate) len_bytes: u64,
    /// Whether the allocation is known without asking for each object.
    pub(crate) fast_diff: bool,
    /// Whether the image has the feature of an exclusive lock.
    pub(crate) has_lock: bool,
}

impl OpenImage {
    /// Connects to the cluster and opens the image, which has no caches if it is writable. Waits for both.
    fn connect(table: &'static Table, url: &RbdUrl, read_only: bool) -> Result<Self, OpenError> {
        let image = Self::open(Pool::connect(table, &url.pool_url(), None)?, url, read_only)?;
        if !read_only {
            image.refuse_caches()?;
        }
        image.use_one_thread()?;
        Ok(image)
    }

    /// Has one thread carry out and end the requests, unless the configuration file says how many. librbd blocks a
    /// thread, and waits for another one, while it opens an image whose other pools are gone, and when a snapshot of an
    /// image with a journal is unprotected.
    fn use_one_thread(&self) -> Result<(), OpenError> {
        if !self.pool.connection.may_choose_threads || self.features().map_err(OpenError::Image)? & JOURNALING != 0 {
            return Ok(());
        }
        self.pool.connection.set(THREADS, "1")
    }

    fn open(pool: Pool, url: &RbdUrl, read_only: bool) -> Result<Self, OpenError> {
        let snapshot = url.snapshot.as_deref().map(text).transpose()?;
        let image = Self::open_in(Arc::new(pool), &text(&url.image)?, snapshot.as_deref(), read_only);
        image.map_err(|error| OpenError::image(url, error))
    }

    /// Opens an image of a pool, or a snapshot of one. Waits for the cluster.
    fn open_in(pool: Arc<Pool>, name: &CStr, snapshot: Option<&CStr>, read_only: bool) -> io::Result<Self> {
        let table = pool.connection.table;
        let snapshot = snapshot.map_or(null(), CStr::as_ptr);
        let open = if read_only { table.rbd_open_read_only } else { table.rbd_open };
        let mut image = Self { pool, handle: null_mut() };
        // SAFETY: the pool is open, the names are null or texts that live beyond the call, and `handle` is a place for
        // the result.
        check(unsafe { open(image.pool.handle, name.as_ptr(), &raw mut image.handle, snapshot) })?;
        Ok(image)
    }

    fn table(&self) -> &'static Table {
        self.pool.connection.table
    }

    /// Fails when this client would hold back writes that it has answered.
    fn refuse_caches(&self) -> Result<(), OpenError> {
        let no_cache = |name: &CStr, value: &CStr| match name.to_bytes() {
            b"rbd_cache" => value.to_bytes() == b"false",
            b"rbd_persistent_cache_mode" => value.to_bytes() == b"disabled",
            _ => true,
        };
        let mut options = vec![ConfigOption { name: null_mut(), value: null_mut(), source: 0 }; MAX_OPTIONS.into()];
        let mut count = c_int::from(MAX_OPTIONS);
        let table = self.table();
        // SAFETY: the image is open, and there is room for `count` options.
        check(unsafe { (table.rbd_config_image_list)(self.handle, options.as_mut_ptr(), &raw mut count) })
            .map_err(OpenError::Image)?;
        let filled = options.iter().take(usize::try_from(count).unwrap_or(0));
        // SAFETY: librbd has filled this many options with texts, which live until the clean-up below.
        let cache = filled.map(|option| unsafe { (CStr::from_ptr(option.name), CStr::from_ptr(option.value)) });
        let found = cache.into_iter().find(|(name, value)| !no_cache(name, value));
        let found = found.map(|(name, _)| name.to_string_lossy().into_owned());
        // SAFETY: these are the options that librbd has filled, and nothing refers to their texts any more.
        unsafe { (table.rbd_config_image_list_cleanup)(options.as_mut_ptr(), count) };
        found.map_or(Ok(()), |option| Err(OpenError::Caches { option }))
    }

    fn features(&self) -> io::Result<u64> {
        let mut features = 0;
        // SAFETY: the image is open, and `features` is a place for the result.
        check(unsafe { (self.table().rbd_get_features)(self.handle, &raw mut features) })?;
        Ok(features)
    }

    /// Whether the image has the feature of an exclusive lock.
    fn has_lock(&self) -> io::Result<bool> {
        Ok(self.features()? & EXCLUSIVE_LOCK != 0)
    }

    /// Keeps other writers out. librbd would hand the lock to whoever writes, and back, with each write.
    fn lock(&self, url: &RbdUrl) -> Result<(), OpenError> {
        if !self.has_lock().map_err(OpenError::Image)? {
            return Ok(());
        }
        // SAFETY: the image is open.
        let locked = unsafe { (self.table().rbd_lock_acquire)(self.handle, LOCK_EXCLUSIVE) };
        check(locked).map_err(|error| OpenError::lock(url, &error))
    }

    fn facts(&self) -> io::Result<Facts> {
        let mut flags = 0;
        // SAFETY: the image is open, and `flags` is a place for the result.
        check(unsafe { (self.table().rbd_get_flags)(self.handle, &raw mut flags) })?;
        let features = self.features()?;
        let fast_diff = features & FAST_DIFF != 0 && flags & FAST_DIFF_INVALID == 0;
        let has_lock = features & EXCLUSIVE_LOCK != 0;
        Ok(Facts { id: self.id()?, len_bytes: self.len_bytes()?, fast_diff, has_lock })
    }

    fn id(&self) -> io::Result<String> {
        let mut id = [0_u8; 64];
        // SAFETY: the image is open, and there is room for this many bytes of its number.
        check(unsafe { (self.table().rbd_get_id)(self.handle, id.as_mut_ptr().cast(), id.len()) })?;
        let id = id.split(|byte| *byte == 0).next().unwrap_or(&[]);
        Ok(String::from_utf8_lossy(id).into_owned())
    }

    /// Asks the OSD of the image's header for what is never there. Waits for the answer.
    fn is_shut_out(&self) -> bool {
        let (mut value, mut len) = (0, 1);
        // SAFETY: the image is open, the key is a text, and `value` is a place for `len` bytes.
        let code =
            unsafe { (self.table().rbd_metadata_get)(self.handle, c"lunette".as_ptr(), &raw mut value, &raw mut len) };
        code == -libc::ESHUTDOWN
    }

    /// Calls `found` for the extents of a range that may differ between a snapshot and what is open, in their order,
    /// until it returns false: with their offset, their length, and whether they have space. Without `since`, for the
    /// extents that have space. Those of the origin count if `with_origin`.
    fn differences(
        &self,
        since: Option<&CStr>,
        range: Range<u64>,
        with_origin: bool,
        whole_objects: bool,
        found: &mut Found<'_>,
    ) -> io::Result<()> {
        let mut extents = Extents { found, stopped: false };
        // SAFETY: the image is open, `since` is null or a text that lives beyond the call, and so does `extents`.
        // `extent` is called within the call alone, for one extent after the other, though perhaps on other threads.
        let code = unsafe {
            (self.table().rbd_diff_iterate2)(
                self.handle,
                since.map_or(null(), CStr::as_ptr),
                range.start,
                range.end - range.start,
                with_origin.into(),
                whole_objects.into(),
                extent,
                (&raw mut extents).cast(),
            )
        };
        if extents.stopped { Ok(()) } else { check(code) }
    }

    fn len_bytes(&self) -> io::Result<u64> {
        let mut len_bytes = 0;
        // SAFETY: the image is open, and `len_bytes` is a place for the result.
        check(unsafe { (self.table().rbd_get_size)(self.handle, &raw mut len_bytes) })?;
        Ok(len_bytes)
    }
}

impl Drop for OpenImage {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: every request has a counted reference to this image, so none is under way.
            let closed = check(unsafe { (self.table().rbd_close)(self.handle) });
            if let Err(error) = closed {
                tracing::warn!(%error, "an image of Ceph could not be closed in order");
            }
        }
    }
}

impl Image {
    /// Connects to the cluster and opens the image. Waits for both. `told` is called when the image has changed, for
    /// instance its length.
    pub(crate) fn open(
        url: &RbdUrl,
        read_only: bool,
        told: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        Self::open_with(Table::get()?, url, read_only, told)
    }

    /// Like [`open`](Self::open), writable but without its lock: [`take_over`](Self::take_over) takes it.
    pub(crate) fn open_unlocked(url: &RbdUrl, told: impl Fn() + Send + Sync + 'static) -> Result<Self, OpenError> {
        Self::watching(OpenImage::connect(Table::get()?, url, false)?, told)
    }

    /// Takes the image over from another gateway. Requests that follow bring each OSD the map in which that one is on
    /// the blocklist, because this client waits until it has that map. Without the feature `exclusive-lock` there is
    /// nothing that excludes the other one. `fenced` is a client that is on the blocklist already: when it has the
    /// lock, librbd need not put it there once more.
    pub(crate) fn take_over(&self, url: &RbdUrl, fenced: Option<&str>) -> Result<(), OpenError> {
        if !self.image().has_lock().map_err(OpenError::Image)? {
            return Err(OpenError::unlockable(url));
        }
        if let Some(fenced) = fenced
            && let Err(error) = self.image().break_lock_of(fenced)
        {
            tracing::warn!(%error, client = fenced, "the lock of a client on the blocklist is left to librbd, which lists it for a shorter time");
        }
        self.image().lock(url)?;
        self.image().pool.connection.wait_for_latest_map().map_err(OpenError::Image)
    }

    /// The address of its client, as the blocklist takes it.
    pub(crate) fn client(&self) -> io::Result<String> {
        self.image().pool.connection.address()
    }

    fn open_with(
        table: &'static Table,
        url: &RbdUrl,
        read_only: bool,
        told: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let image = OpenImage::connect(table, url, read_only)?;
        if !read_only {
            image.lock(url)?;
        }
        Self::watching(image, told)
    }

    fn watching(image: OpenImage, told: impl Fn() + Send + Sync + 'static) -> Result<Self, OpenError> {
        let mut image = Self { parts: Some(Parts { image, watch: None }), closed: Latch::default() };
        image.watch(Box::new(told)).map_err(OpenError::Image)?;
        Ok(image)
    }

    fn watch(&mut self, told: Told) -> io::Result<()> {
        let Some(parts) = &mut self.parts else { return Ok(()) };
        let mut watch = Watch { handle: 0, told: Box::into_raw(Box::new(told)) };
        let table = parts.image.table();
        // SAFETY: the image is open; `told` lives until the watch is no more (`Parts::close`), and `changed` takes it
        // for what it is.
        let code =
            unsafe { (table.rbd_update_watch)(parts.image.handle, &raw mut watch.handle, changed, watch.told.cast()) };
        if let Err(error) = check(code) {
            // SAFETY: librbd does not know it, so this is its only owner.
            drop(unsafe { Box::from_raw(watch.told) });
            return Err(error);
        }
        parts.watch = Some(watch);
        Ok(())
    }

    /// Lets those who manage the image work through this handle when it has the lock.
    pub(crate) fn offer_lock(self: &Arc<Self>) {
        opened::add(self);
    }

    fn image(&self) -> &OpenImage {
        &self.parts.as_ref().expect("an image has its parts until it is dropped").image
    }

    /// Set when the image is closed and its connection has ended.
    pub(crate) fn closed(&self) -> &Latch {
        &self.closed
    }

    pub(crate) fn facts(&self) -> io::Result<Facts> {
        self.image().facts()
    }

    /// Whether the client is on the blocklist. Waits for the cluster.
    pub(crate) fn is_shut_out(&self) -> bool {
        self.image().is_shut_out()
    }

    pub(crate) fn len_bytes(&self) -> io::Result<u64> {
        self.image().len_bytes()
    }

    /// Asks the monitors something. Waits for the answer.
    pub(crate) fn ask(&self, command: &str) -> io::Result<Vec<u8>> {
        self.image().pool.connection.ask(command)
    }

    /// Gives a job to librbd, which ends it with [`flight::ended`], on any thread, perhaps within this call. A job that
    /// it does not take comes back, with the reason as a negative number.
    pub(crate) fn start(&self, mut job: Box<Job>) -> Result<(), (Box<Job>, isize)> {
        let (table, image) = (self.image().table(), self.image().handle);
        let (offset, len) = job.request().range();
        let bytes = match job.request_mut() {
            Request::Read { into, .. } => into.as_mut_ptr(),
            Request::Write { from, .. } => from.as_mut_ptr(),
            Request::Zero { .. } | Request::Flush => null_mut(),
        };
        let bytes = bytes.cast::<c_char>();
        let kind = Kind::of(job.request());
        let (job, mut completion) = (Box::into_raw(job), null_mut());
        // SAFETY: `completion` is a place for the result, and `ended` takes the job for what it is.
        let created = unsafe { (table.rbd_aio_create_completion)(job.cast(), ended, &raw mut completion) };
        if created < 0 {
            // SAFETY: there is no completion that knows the job, so this is its only owner.
            return Err((unsafe { Box::from_raw(job) }, created as isize));
        }
        // SAFETY: the image is open, and stays open until the job is dropped, which has a reference to it. `bytes` are
        // `len` bytes of the job's buffer, which stay where they are, and which nothing else reads or writes until the
        // job has ended.
        let started = unsafe {
            match kind {
                Kind::Read => (table.rbd_aio_read)(image, offset, len, bytes, completion),
                Kind::Write => (table.rbd_aio_write)(image, offset, len, bytes, completion),
                Kind::Zero { flags } => (table.rbd_aio_write_zeroes)(image, offset, len, completion, flags, 0),
                Kind::Flush => (table.rbd_aio_flush)(image, completion),
            }
        };
        if started < 0 {
            // SAFETY: librbd has not taken the request, so it does not call `ended`, and nothing else knows the
            // completion.
            unsafe { (table.rbd_aio_release)(completion) };
            // SAFETY: for the same reason this is the job's only owner.
            return Err((unsafe { Box::from_raw(job) }, started as isize));
        }
        Ok(())
    }

    /// Calls `found` for the extents of a range that have space, in their order, until it returns false. Waits for the
    /// cluster. With `whole_objects`, an object with any space has space everywhere.
    pub(crate) fn extents(
        &self,
        range: Range<u64>,
        whole_objects: bool,
        mut found: impl FnMut(u64, u64) -> bool + Send,
    ) -> io::Result<()> {
        self.image().differences(None, range, true, whole_objects, &mut |offset, len, has_space| {
            !has_space || found(offset, len)
        })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let (Some(parts), closed) = (self.parts.take(), self.closed.clone()) else { return };
        let close = move || {
            parts.close();
            closed.set();
        };
        if let Err(error) = thread::Builder::new().name("lunette-rbd-end".into()).spawn(close) {
            tracing::error!(%error, "no thread to close an image of Ceph");
        }
    }
}

impl Parts {
    fn close(mut self) {
        if let Some(watch) = self.watch.take() {
            let table = self.image.table();
            // SAFETY: the image is open, and the watch is its own.
            let ended = check(unsafe { (table.rbd_update_unwatch)(self.image.handle, watch.handle) });
            match ended {
                // SAFETY: librbd has forgotten it, and no call of it is under way, so this is the only owner.
                Ok(()) => drop(unsafe { Box::from_raw(watch.told) }),
                // It may be called again, so it stays.
                Err(error) => tracing::warn!(%error, "an image of Ceph is still watched"),
            }
        }
    }
}

/// The request to librbd.
enum Kind {
    Read,
    Write,
    Zero { flags: c_int },
    Flush,
}

impl Kind {
    fn of(request: &Request) -> Self {
        match request {
            Request::Read { .. } => Self::Read,
            Request::Write { .. } => Self::Write,
            Request::Zero { keep_space, .. } => Self::Zero { flags: if *keep_space { THICK_PROVISION } else { 0 } },
            Request::Flush => Self::Flush,
        }
    }
}

/// Called by librbd when a request has ended.
unsafe extern "C" fn ended(completion: Handle, argument: *mut c_void) {
    // SAFETY: the argument is what `Image::start` has given with this completion, for which this is the only call.
    let job = unsafe { Box::from_raw(argument.cast::<Job>()) };
    let table = job.image().image().table();
    // SAFETY: the completion is that of a request that has ended.
    let result = unsafe { (table.rbd_aio_get_return_value)(completion) };
    // SAFETY: the completion is not used again.
    unsafe { (table.rbd_aio_release)(completion) };
    flight::ended(job, result);
}

/// Called by librbd when an image has changed.
unsafe extern "C" fn changed(argument: *mut c_void) {
    // SAFETY: the argument is what `Image::watch` has given, which lives until librbd has forgotten it.
    let told = unsafe { &*argument.cast::<Told>() };
    told();
}

/// Called with the offset and the length of an extent, and whether it has space. The rest is not wanted when it returns
/// false.
type Found<'a> = dyn FnMut(u64, u64, bool) -> bool + Send + 'a;

/// The extents that `rbd_diff_iterate2` finds.
struct Extents<'a> {
    found: &'a mut Found<'a>,
    /// Whether the rest is not wanted.
    stopped: bool,
}

/// Called by librbd for each extent.
unsafe extern "C" fn extent(offset: u64, len: usize, exists: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is what `OpenImage::differences` has given, and nothing else uses it during the call.
    let extents = unsafe { &mut *argument.cast::<Extents<'_>>() };
    extents.stopped = extents.stopped || !(extents.found)(offset, len as u64, exists != 0);
    // A negative number ends the search.
    if extents.stopped { -libc::ECANCELED } else { 0 }
}

/// A text for C.
fn text(text: &str) -> Result<CString, OpenError> {
    CString::new(text).map_err(|_| OpenError::Nul(text.into()))
}

/// The error that a function returns as a negative number.
fn check(code: c_int) -> io::Result<()> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) }
}
