//! A table of functions that behave as those of Ceph do, over bytes in memory, for tests of all that is above them.
//!
//! What `?conf=` names is a [`World`]: a cluster with one image. Every handle that is given out has a counted reference
//! to it.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::Duration;

use super::table::{ChangedCallback, ConfigOption, EndedCallback, ExtentCallback, Handle, Table};
use super::{EXCLUSIVE_LOCK, FAST_DIFF, Image, JOURNALING};
use crate::{OpenError, RbdStore};

/// The length of an object.
pub(crate) const OBJECT_LEN: usize = 4096;

/// A cluster with one image.
#[derive(Default)]
pub(crate) struct World(Mutex<State>);

#[derive(Default)]
pub(crate) struct State {
    pub(crate) bytes: Vec<u8>,
    /// Requests that do not end until they are let go.
    held: Vec<Pending>,
    pub(crate) holds: bool,
    /// Whether requests end on another thread.
    pub(crate) threads: bool,
    /// The result with which requests are not even taken, or 0.
    pub(crate) refuses: c_int,
    /// The result of all requests, or 0 for what they are due.
    pub(crate) fails: c_int,
    /// The result of taking the lock.
    pub(crate) lock: c_int,
    /// The options of the client, with what the configuration file says of them.
    pub(crate) options: HashMap<String, String>,
    pub(crate) has_journal: bool,
    /// Whether the image lacks the feature of an exclusive lock.
    pub(crate) lacks_lock: bool,
    /// Whether the image's configuration has a cache.
    pub(crate) cache: bool,
    pub(crate) most_at_once: usize,
    under_way: usize,
    watch: Option<(ChangedCallback, usize)>,
}

/// A request.
struct Pending {
    completion: usize,
    what: What,
}

enum What {
    Read { offset: usize, len: usize, into: usize },
    Write { offset: usize, len: usize, from: usize },
    Zero { offset: usize, len: usize },
    Flush,
}

/// The state behind a completion.
struct Completion {
    callback: EndedCallback,
    argument: *mut c_void,
    result: isize,
    world: Option<Arc<World>>,
}

static WORLDS: OnceLock<Mutex<HashMap<String, Arc<World>>>> = OnceLock::new();

fn worlds() -> MutexGuard<'static, HashMap<String, Arc<World>>> {
    WORLDS.get_or_init(Mutex::default).lock().unwrap()
}

impl World {
    /// A new world of this name, with an image of `len` zeroes.
    pub(crate) fn new(name: &str, len: usize) -> Arc<Self> {
        let world = Arc::new(Self::default());
        world.state().bytes = vec![0; len];
        assert!(worlds().insert(name.into(), Arc::clone(&world)).is_none(), "{name} is there");
        world
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Opens the image of the world of this name. It is looked at when something of it has changed, and at no other
    /// time.
    pub(crate) fn open(name: &str) -> Result<RbdStore, OpenError> {
        Self::open_checked(name, Duration::from_hours(1))
    }

    /// Opens the image of the world of this name, which is looked at every `check_interval`, too.
    pub(crate) fn open_checked(name: &str, check_interval: Duration) -> Result<RbdStore, OpenError> {
        let url = format!("rbd:pool/image?conf={name}").parse().unwrap();
        let open = |url: &_, read_only, told| Image::open_with(table(), url, read_only, told);
        RbdStore::open_image(&url, false, check_interval, open)
    }

    /// Ends the oldest request that is held.
    pub(crate) fn let_one_go(&self) {
        let pending = self.state().held.remove(0);
        end(self, pending);
    }

    pub(crate) fn let_all_go(&self) {
        self.state().holds = false;
        let held = std::mem::take(&mut self.state().held);
        for pending in held {
            end(self, pending);
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.state().held.len()
    }

    /// Whether something watches the image.
    pub(crate) fn is_watched(&self) -> bool {
        self.state().watch.is_some()
    }

    /// Gives the image another length.
    pub(crate) fn resize(&self, len: usize) {
        self.state().bytes.resize(len, 0);
        self.notify();
    }

    /// Tells the client that something of the image has changed.
    pub(crate) fn notify(&self) {
        let watch = self.state().watch;
        if let Some((callback, argument)) = watch {
            // SAFETY: the watch is registered.
            unsafe { callback(argument as *mut c_void) };
        }
    }
}

/// Handles of clusters, pools and images are all the same: a counted reference to the world, once it is known.
type Slot = OnceLock<Arc<World>>;

fn slot<'a>(handle: Handle) -> &'a Slot {
    // SAFETY: handles come from `new_handle`, and are not used after `drop_handle`.
    unsafe { &*handle.cast::<Slot>() }
}

fn world<'a>(handle: Handle) -> &'a Arc<World> {
    slot(handle).get().expect("the configuration was read")
}

fn new_handle(world: Option<&Arc<World>>) -> Handle {
    let slot = Slot::new();
    if let Some(world) = world {
        assert!(slot.set(Arc::clone(world)).is_ok());
    }
    Box::into_raw(Box::new(slot)).cast()
}

fn drop_handle(handle: Handle) {
    // SAFETY: each handle is dropped once.
    drop(unsafe { Box::from_raw(handle.cast::<Slot>()) });
}

fn put<T>(place: *mut T, value: T) {
    // SAFETY: callers give a place for the result.
    unsafe { place.write(value) };
}

fn string(text: *const c_char) -> String {
    // SAFETY: callers give texts.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().into()
}

fn completion<'a>(handle: Handle) -> &'a mut Completion {
    // SAFETY: only the request that it belongs to uses a completion, until it is released.
    unsafe { &mut *handle.cast::<Completion>() }
}

/// Carries out a request, and ends it.
fn end(world: &World, pending: Pending) {
    tell(carry_out(world, pending));
}

fn carry_out(world: &World, Pending { completion: handle, what }: Pending) -> Handle {
    let handle = handle as Handle;
    let mut state = world.state();
    let len = state.bytes.len();
    let mut result = state.fails as isize;
    if result == 0 {
        match what {
            What::Read { offset, len: wanted, into } => {
                let read = wanted.min(len.saturating_sub(offset));
                // SAFETY: the buffer has that many bytes, and belongs to the request.
                unsafe { (into as *mut u8).copy_from_nonoverlapping(state.bytes[offset.min(len)..].as_ptr(), read) };
                result = read.cast_signed();
            }
            What::Write { offset, len, from } => {
                let place = state.bytes[offset..offset + len].as_mut_ptr();
                // SAFETY: as above.
                unsafe { place.copy_from_nonoverlapping(from as *const u8, len) };
            }
            What::Zero { offset, len } => state.bytes[offset..offset + len].fill(0),
            What::Flush => {}
        }
    }
    state.under_way -= 1;
    completion(handle).result = result;
    handle
}

fn tell(handle: Handle) {
    let completion = completion(handle);
    let (callback, argument) = (completion.callback, completion.argument);
    // SAFETY: this is the one call for the completion.
    unsafe { callback(handle, argument) };
}

fn begin(image: Handle, handle: Handle, what: What) -> c_int {
    let world = world(image);
    let mut state = world.state();
    if state.refuses != 0 {
        return state.refuses;
    }
    completion(handle).world = Some(Arc::clone(world));
    state.under_way += 1;
    state.most_at_once = state.most_at_once.max(state.under_way);
    let pending = Pending { completion: handle as usize, what };
    if state.holds {
        state.held.push(pending);
        drop(state);
    } else if state.threads {
        drop(state);
        let world = Arc::clone(world);
        thread::spawn(move || {
            let handle = carry_out(&world, pending);
            // The test may look at what is left as soon as it is told.
            drop(world);
            tell(handle);
        });
    } else {
        drop(state);
        end(world, pending);
    }
    0
}

unsafe extern "C" fn rados_create(place: *mut Handle, _user: *const c_char) -> c_int {
    put(place, new_handle(None));
    0
}

unsafe extern "C" fn rados_conf_read_file(cluster: Handle, path: *const c_char) -> c_int {
    // SAFETY: tests always name a file.
    let name = unsafe { CStr::from_ptr(path) }.to_str().unwrap();
    match worlds().get(name) {
        Some(world) => {
            assert!(slot(cluster).set(Arc::clone(world)).is_ok());
            0
        }
        None => -libc::ENOENT,
    }
}

/// Every option is 2 unless the file says something else, or it was set.
unsafe extern "C" fn rados_conf_get(cluster: Handle, name: *const c_char, into: *mut c_char, len: usize) -> c_int {
    let set = slot(cluster).get().and_then(|world| world.state().options.get(&string(name)).cloned());
    let value = CString::new(set.unwrap_or_else(|| "2".into())).unwrap();
    let bytes = value.as_bytes_with_nul();
    assert!(bytes.len() <= len);
    // SAFETY: there is room for this many bytes.
    unsafe { into.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
    0
}

unsafe extern "C" fn rados_conf_set(cluster: Handle, name: *const c_char, value: *const c_char) -> c_int {
    world(cluster).state().options.insert(string(name), string(value));
    0
}

unsafe extern "C" fn rados_connect(_: Handle) -> c_int {
    0
}

unsafe extern "C" fn rados_mon_command(
    _: Handle,
    _: *const *const c_char,
    _: usize,
    _: *const c_char,
    _: usize,
    _: *mut *mut c_char,
    _: *mut usize,
    _: *mut *mut c_char,
    _: *mut usize,
) -> c_int {
    -libc::EOPNOTSUPP
}

unsafe extern "C" fn rados_buffer_free(_: *mut c_char) {}

unsafe extern "C" fn drop_it(handle: Handle) {
    drop_handle(handle);
}

unsafe extern "C" fn rados_ioctx_create(cluster: Handle, _: *const c_char, place: *mut Handle) -> c_int {
    put(place, new_handle(Some(world(cluster))));
    0
}

unsafe extern "C" fn rados_ioctx_set_namespace(_: Handle, _: *const c_char) {}

unsafe extern "C" fn rados_set_pool_full_try(_: Handle) {}

unsafe extern "C" fn rbd_open(pool: Handle, _: *const c_char, place: *mut Handle, _: *const c_char) -> c_int {
    put(place, new_handle(Some(world(pool))));
    0
}

unsafe extern "C" fn rbd_close(image: Handle) -> c_int {
    assert_eq!(world(image).state().under_way, 0, "it is closed when nothing is under way");
    drop_handle(image);
    0
}

unsafe extern "C" fn rbd_get_size(image: Handle, place: *mut u64) -> c_int {
    put(place, world(image).state().bytes.len() as u64);
    0
}

unsafe extern "C" fn rbd_get_features(image: Handle, place: *mut u64) -> c_int {
    let state = world(image).state();
    let journaling = if state.has_journal { JOURNALING } else { 0 };
    let lock = if state.lacks_lock { 0 } else { EXCLUSIVE_LOCK };
    put(place, lock | FAST_DIFF | journaling);
    0
}

unsafe extern "C" fn rbd_get_flags(_: Handle, place: *mut u64) -> c_int {
    put(place, 0);
    0
}

unsafe extern "C" fn rbd_metadata_get(image: Handle, _: *const c_char, _: *mut c_char, _: *mut usize) -> c_int {
    match world(image).state().fails {
        0 => -libc::ENOENT,
        error => error,
    }
}

unsafe extern "C" fn rbd_get_id(_: Handle, place: *mut c_char, len: usize) -> c_int {
    assert!(len > 0);
    put(place, 0);
    0
}

unsafe extern "C" fn rbd_config_image_list(image: Handle, place: *mut ConfigOption, count: *mut c_int) -> c_int {
    let value = if world(image).state().cache { c"true" } else { c"false" };
    put(place, ConfigOption { name: c"rbd_cache".as_ptr().cast_mut(), value: value.as_ptr().cast_mut(), source: 2 });
    put(count, 1);
    0
}

unsafe extern "C" fn rbd_config_image_list_cleanup(_: *mut ConfigOption, count: c_int) {
    assert_eq!(count, 1);
}

unsafe extern "C" fn rbd_lock_acquire(image: Handle, _: c_int) -> c_int {
    world(image).state().lock
}

unsafe extern "C" fn rbd_update_watch(
    image: Handle,
    place: *mut u64,
    callback: ChangedCallback,
    argument: *mut c_void,
) -> c_int {
    world(image).state().watch = Some((callback, argument as usize));
    put(place, 1);
    0
}

unsafe extern "C" fn rbd_update_unwatch(image: Handle, handle: u64) -> c_int {
    assert_eq!(handle, 1);
    world(image).state().watch = None;
    0
}

unsafe extern "C" fn rbd_diff_iterate2(
    image: Handle,
    _: *const c_char,
    offset: u64,
    len: u64,
    _: u8,
    _: u8,
    callback: ExtentCallback,
    argument: *mut c_void,
) -> c_int {
    let bytes = world(image).state().bytes.clone();
    let (start, end) = (offset as usize, (offset + len) as usize);
    for first in (start / OBJECT_LEN * OBJECT_LEN..end).step_by(OBJECT_LEN) {
        let object = &bytes[first..(first + OBJECT_LEN).min(bytes.len())];
        if object.iter().all(|byte| *byte == 0) {
            continue;
        }
        let (from, to) = (first.max(start), (first + OBJECT_LEN).min(end));
        // SAFETY: the argument is the caller's.
        let code = unsafe { callback(from as u64, to - from, 1, argument) };
        if code < 0 {
            return code;
        }
    }
    0
}

unsafe extern "C" fn rbd_aio_create_completion(
    argument: *mut c_void,
    callback: EndedCallback,
    place: *mut Handle,
) -> c_int {
    let completion = Completion { callback, argument, result: 0, world: None };
    put(place, Box::into_raw(Box::new(completion)).cast());
    0
}

unsafe extern "C" fn rbd_aio_get_return_value(handle: Handle) -> isize {
    completion(handle).result
}

unsafe extern "C" fn rbd_aio_release(handle: Handle) {
    // SAFETY: each completion is released once.
    drop(unsafe { Box::from_raw(handle.cast::<Completion>()) });
}

unsafe extern "C" fn rbd_aio_read(image: Handle, offset: u64, len: usize, into: *mut c_char, handle: Handle) -> c_int {
    begin(image, handle, What::Read { offset: offset as usize, len, into: into as usize })
}

unsafe extern "C" fn rbd_aio_write(
    image: Handle,
    offset: u64,
    len: usize,
    from: *const c_char,
    handle: Handle,
) -> c_int {
    begin(image, handle, What::Write { offset: offset as usize, len, from: from as usize })
}

unsafe extern "C" fn rbd_aio_write_zeroes(
    image: Handle,
    offset: u64,
    len: usize,
    handle: Handle,
    _: c_int,
    _: c_int,
) -> c_int {
    begin(image, handle, What::Zero { offset: offset as usize, len })
}

unsafe extern "C" fn rbd_aio_flush(image: Handle, handle: Handle) -> c_int {
    begin(image, handle, What::Flush)
}

/// The functions.
pub(super) fn table() -> &'static Table {
    static TABLE: Table = Table {
        rados_create,
        rados_conf_read_file,
        rados_conf_get,
        rados_conf_set,
        rados_connect,
        rados_shutdown: drop_it,
        rados_mon_command,
        rados_buffer_free,
        rados_ioctx_create,
        rados_ioctx_set_namespace,
        rados_ioctx_destroy: drop_it,
        rados_set_pool_full_try,
        rbd_open,
        rbd_open_read_only: rbd_open,
        rbd_close,
        rbd_get_size,
        rbd_get_features,
        rbd_get_flags,
        rbd_metadata_get,
        rbd_get_id,
        rbd_config_image_list,
        rbd_config_image_list_cleanup,
        rbd_lock_acquire,
        rbd_update_watch,
        rbd_update_unwatch,
        rbd_diff_iterate2,
        rbd_aio_create_completion,
        rbd_aio_get_return_value,
        rbd_aio_release,
        rbd_aio_read,
        rbd_aio_write,
        rbd_aio_write_zeroes,
        rbd_aio_flush,
    };
    &TABLE
}
