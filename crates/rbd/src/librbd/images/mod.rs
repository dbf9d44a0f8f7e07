//! The images of a pool, managed: created, renamed, cloned and removed.

mod image;
mod lists;
mod metadata;
mod progress;
mod relatives;
mod snapshots;

use std::ffi::{CString, c_int};
use std::io;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::connection::Pool;
use super::table::{Handle, ImageSpec, ManageTable, Table};
use super::{OpenImage, check};
use crate::df::{self, PoolRoom};
use crate::{OpenError, PoolUrl};
pub use image::ManagedImage;
use lists::{name, owned};
pub use relatives::Relative;
pub use snapshots::ImageSnapshot;

/// `RBD_IMAGE_OPTION_CLONE_FORMAT`.
const CLONE_FORMAT: c_int = 12;

/// The format of clones whose origin needs no protection.
const CLONE_FORMAT_2: u64 = 2;

/// The room for the object with the id of an image.
const MAX_ID_OBJECT_BYTES: usize = 256;

/// Bytes of the length before a text, as Ceph encodes it.
const LENGTH_BYTES: usize = 4;

/// The images of a pool, and the one connection over which they are managed.
///
/// All methods wait for the cluster. None of their operations takes longer than the limit of the connection.
pub struct Images {
    url: PoolUrl,
    table: &'static ManageTable,
    pool: Arc<Pool>,
    /// Held while an image is opened.
    opening: Mutex<()>,
}

/// The name of an image, and the id that no other image of the pool ever has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    /// The name.
    pub name: String,
    /// The id.
    pub id: String,
}

impl Images {
    /// Connects to the cluster of a pool. An operation may take as long as `limit`, in whole seconds;
    /// [`MANAGE_LIMIT`](crate::limits::MANAGE_LIMIT) suits. Waits for the cluster.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing and what to do.
    pub fn connect(url: &PoolUrl, limit: Duration) -> Result<Self, OpenError> {
        let table = ManageTable::get()?;
        let pool = Arc::new(Pool::connect(Table::get()?, url, Some(limit))?);
        Ok(Self { url: url.clone(), table, pool, opening: Mutex::default() })
    }

    /// The URL of the pool.
    pub fn url(&self) -> &PoolUrl {
        &self.url
    }

    /// The images of the pool.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn list(&self) -> io::Result<Vec<ImageName>> {
        let empty = ImageSpec { id: null_mut(), name: null_mut() };
        let ask = |specs: &mut [ImageSpec], count: &mut usize| {
            // SAFETY: the pool is open, and there is room for `count` entries.
            unsafe { (self.table.rbd_list2)(self.pool.handle, specs.as_mut_ptr(), count) }
        };
        let mut specs = lists::grow(empty, ask)?;
        let names = specs.iter().map(|spec| {
            // SAFETY: librbd has filled the entries with texts, which live until the clean-up below.
            unsafe { ImageName { name: owned(spec.name), id: owned(spec.id) } }
        });
        let names = names.collect();
        // SAFETY: these are the entries that librbd has filled, and nothing refers to their texts any more.
        unsafe { (self.table.rbd_image_spec_list_cleanup)(specs.as_mut_ptr(), specs.len()) };
        Ok(names)
    }

    /// Opens an image, or a snapshot of one, to read what is known of it.
    ///
    /// # Errors
    ///
    /// `NotFound`, or an error of the cluster.
    pub fn open(&self, image: &str, snapshot: Option<&str>) -> io::Result<ManagedImage> {
        self.open_image(image, snapshot, true)
    }

    /// Opens an image to change it. Other clients may have it open, and one of them may have its lock.
    ///
    /// # Errors
    ///
    /// `NotFound`, or an error of the cluster.
    pub fn open_to_change(&self, image: &str) -> io::Result<ManagedImage> {
        self.open_image(image, None, false)
    }

    fn open_image(&self, image: &str, snapshot: Option<&str>, read_only: bool) -> io::Result<ManagedImage> {
        let snapshot = snapshot.map(name).transpose()?;
        // librbd blocks a thread of librados while it opens an image whose other pools are gone. So nothing may wait
        // for all threads meanwhile.
        let _alone = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = OpenImage::open_in(Arc::clone(&self.pool), &name(image)?, snapshot.as_deref(), read_only)?;
        // When an opening has ended, librbd (16.2) uses the image for a moment more, on a thread of librados. It would
        // crash if the image were closed before.
        self.pool.connection.settle_threads().map_err(io::Error::other)?;
        Ok(ManagedImage::new(self.table, opened))
    }

    /// Creates an image of zeroes, with the features that the configuration wants.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`, or an error of the cluster.
    pub fn create(&self, image: &str, len_bytes: u64) -> io::Result<()> {
        let (image, options) = (name(image)?, Options::new(self.table));
        // SAFETY: the pool is open, and name and options live beyond the call.
        check(unsafe { (self.table.rbd_create4)(self.pool.handle, image.as_ptr(), len_bytes, options.handle) })
    }

    /// Creates an image with the content of a snapshot of another one, on which it depends. It gets the metadata of
    /// that image, too.
    ///
    /// # Errors
    ///
    /// `NotFound` for the snapshot, `AlreadyExists`, or an error of the cluster.
    pub fn clone_image(&self, origin: &str, snapshot: &str, image: &str) -> io::Result<()> {
        let (origin, snapshot, image) = (name(origin)?, name(snapshot)?, name(image)?);
        let (pool, options) = (self.pool.handle, Options::new(self.table));
        options.set(CLONE_FORMAT, CLONE_FORMAT_2)?;
        // SAFETY: the pool is open, and names and options live beyond the call.
        check(unsafe {
            (self.table.rbd_clone3)(pool, origin.as_ptr(), snapshot.as_ptr(), pool, image.as_ptr(), options.handle)
        })
    }

    /// Gives an image another name. When it is interrupted, a name that the image has not may stay taken, which
    /// [`release_name`](Self::release_name) mends.
    ///
    /// # Errors
    ///
    /// `NotFound`, `AlreadyExists`, or an error of the cluster.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (name(from)?, name(to)?);
        // SAFETY: the pool is open, and the names live beyond the call.
        check(unsafe { (self.table.rbd_rename)(self.pool.handle, from.as_ptr(), to.as_ptr()) })
    }

    /// Frees a name that an interrupted [`rename`](Self::rename) or [`remove`](Self::remove) has left to the image of
    /// this id, which must not have the name any more. Nothing happens when the name is free, or belongs to another
    /// image.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn release_name(&self, image: &str, id: &str) -> io::Result<()> {
        if self.id_behind(image)?.as_deref() == Some(id) {
            let object = id_object(image)?;
            // SAFETY: the pool is open, and the name lives beyond the call.
            check(unsafe { (self.table.rados_remove)(self.pool.handle, object.as_ptr()) })?;
        }
        self.remove_from_directory(image, id)
    }

    /// The id of the image that has taken a name. An interrupted change may have left it behind.
    fn id_behind(&self, image: &str) -> io::Result<Option<String>> {
        let (object, mut bytes) = (id_object(image)?, [0_u8; MAX_ID_OBJECT_BYTES]);
        // SAFETY: the pool is open, the name lives beyond the call, and there is room for this many bytes.
        let code = unsafe {
            (self.table.rados_read)(self.pool.handle, object.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len(), 0)
        };
        if code == -libc::ENOENT {
            return Ok(None);
        }
        check(code)?;
        // The id stands behind its length.
        let id = bytes.get(LENGTH_BYTES..usize::try_from(code).unwrap_or(0)).unwrap_or_default();
        Ok(Some(String::from_utf8_lossy(id).into_owned()))
    }

    /// Removes the entry of an image in the directory of the pool, if it has one with this name and this id.
    fn remove_from_directory(&self, image: &str, id: &str) -> io::Result<()> {
        let entry = [encoded(image)?, encoded(id)?].concat();
        // SAFETY: the pool is open, names and entry live beyond the call, and there is no room for an answer.
        let code = unsafe {
            (self.table.rados_exec)(
                self.pool.handle,
                c"rbd_directory".as_ptr(),
                c"rbd".as_ptr(),
                c"dir_remove_image".as_ptr(),
                entry.as_ptr().cast(),
                entry.len(),
                null_mut(),
                0,
            )
        };
        // The name, or the id, is another one's.
        let is_anothers = [-libc::ENOENT, -libc::ESTALE].contains(&code);
        if is_anothers { Ok(()) } else { check(code) }
    }

    /// Removes an image, or what an interrupted removal has left of one. Then the name may stay taken, which
    /// [`release_name`](Self::release_name) mends.
    ///
    /// # Errors
    ///
    /// `NotFound`, `ResourceBusy` for an image that a client has open, `DirectoryNotEmpty` for one with snapshots, or
    /// an error of the cluster.
    pub fn remove(&self, image: &str) -> io::Result<()> {
        let image = name(image)?;
        // SAFETY: the pool is open, and the name lives beyond the call.
        check(unsafe { (self.table.rbd_remove)(self.pool.handle, image.as_ptr()) })
    }

    /// The room of the pool; `None` in a cluster without a manager.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn room(&self) -> io::Result<Option<PoolRoom>> {
        Ok(df::room(&self.pool.connection.ask(df::COMMAND)?, &self.url.pool))
    }
}

/// The object that gives an image its name.
fn id_object(image: &str) -> io::Result<CString> {
    name(&format!("rbd_id.{image}"))
}

/// A text as Ceph encodes it.
fn encoded(text: &str) -> io::Result<Vec<u8>> {
    let len: u32 = text.len().try_into().map_err(io::Error::other)?;
    Ok([&len.to_le_bytes(), text.as_bytes()].concat())
}

/// The options of a new image.
struct Options {
    table: &'static ManageTable,
    handle: Handle,
}

impl Options {
    fn new(table: &'static ManageTable) -> Self {
        let mut handle = null_mut();
        // SAFETY: `handle` is a place for the result.
        unsafe { (table.rbd_image_options_create)(&raw mut handle) };
        Self { table, handle }
    }

    fn set(&self, option: c_int, value: u64) -> io::Result<()> {
        // SAFETY: the handle is valid.
        check(unsafe { (self.table.rbd_image_options_set_uint64)(self.handle, option, value) })
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, and is not used again.
        unsafe { (self.table.rbd_image_options_destroy)(self.handle) };
    }
}
