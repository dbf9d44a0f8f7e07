//! An object that gateways share: read and replaced as a whole, and watched.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lunette_gateway::limits::WATCH_TIMEOUT;

use super::check;
use super::connection::Pool;
use super::table::{NotifyAck, ObjectTable, Table};
use crate::limits::BLOCKLIST_S;
use crate::{OpenError, PoolUrl, RbdUrl};

/// `MAX_ERRNO`: a comparison that finds a difference gives a number beyond all errors.
const MAX_ERRNO: c_int = 4095;

/// The receiver of a watch's news.
pub(crate) trait Watcher: Send + Sync {
    /// A notify, which waits for [`SharedObject::acknowledge`].
    fn notified(&self, id: u64, cookie: u64, payload: &[u8]);

    /// The watch is no more.
    fn lost(&self);
}

/// An object that gateways share. It has a connection of its own.
pub(crate) struct SharedObject {
    watch: Mutex<Option<ObjectWatch>>,
    name: CString,
    table: &'static ObjectTable,
    pool: Pool,
}

struct ObjectWatch {
    cookie: u64,
    watcher: *mut Box<dyn Watcher>,
}

// SAFETY: `watcher` is the only owner of something that is `Send` and `Sync`, and only librados's callbacks use it
// meanwhile.
unsafe impl Send for ObjectWatch {}

impl SharedObject {
    /// Connects to the cluster of an image. Waits for it.
    pub(crate) fn open(url: &RbdUrl, name: &str) -> Result<Self, OpenError> {
        Self::open_in(&url.pool_url(), name, None)
    }

    /// Connects to the cluster of a pool, with a limit for the time of each operation. Waits for it.
    pub(crate) fn open_in(pool: &PoolUrl, name: &str, limit: Option<Duration>) -> Result<Self, OpenError> {
        let pool = Pool::connect(Table::get()?, pool, limit)?;
        Ok(Self { watch: Mutex::new(None), name: super::text(name)?, table: ObjectTable::get()?, pool })
    }

    /// The bytes of the object, up to `limit`; none when it is empty or not there.
    pub(crate) fn read(&self, limit: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0_u8; limit];
        // SAFETY: the pool is open, the name lives beyond the call, and there is room for this many bytes.
        let code = unsafe {
            (self.table.rados_read)(self.pool.handle, self.name.as_ptr(), bytes.as_mut_ptr().cast(), limit, 0)
        };
        let len = match code {
            missing if missing == -libc::ENOENT => 0,
            code => check(code).map(|()| usize::try_from(code).unwrap_or(0))?,
        };
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Replaces the bytes if the object begins with `expected`; zeroes stand for what is beyond its end. Whether it
    /// did.
    pub(crate) fn replace(&self, expected: &[u8], bytes: &[u8]) -> io::Result<bool> {
        let mut compared = 0;
        let code = self.write(|table, operation| {
            // SAFETY: the operation is not carried out yet; texts, bytes and the place for the result live beyond that.
            unsafe {
                (table.rados_write_op_cmpext)(
                    operation,
                    expected.as_ptr().cast(),
                    expected.len(),
                    0,
                    &raw mut compared,
                );
                (table.rados_write_op_write_full)(operation, bytes.as_ptr().cast(), bytes.len());
            }
        });
        if code <= -MAX_ERRNO {
            return Ok(false);
        }
        check(code).map(|()| true)
    }

    /// Makes the object, empty, unless it is there.
    fn create(&self) -> io::Result<()> {
        // SAFETY: the operation is not carried out yet; there is no category.
        check(self.write(|table, operation| unsafe { (table.rados_write_op_create)(operation, 0, null()) }))
    }

    /// Carries out an operation that `fill` has filled. It has no time of its own.
    fn write(&self, fill: impl FnOnce(&'static ObjectTable, *mut c_void)) -> c_int {
        let table = self.table;
        // SAFETY: this makes an operation, which is released below.
        let operation = unsafe { (table.rados_create_write_op)() };
        fill(table, operation);
        // SAFETY: operation and pool are valid, and the name lives beyond the call.
        let code =
            unsafe { (table.rados_write_op_operate)(operation, self.pool.handle, self.name.as_ptr(), null_mut(), 0) };
        // SAFETY: the operation has ended, and is not used again.
        unsafe { (table.rados_release_write_op)(operation) };
        code
    }

    /// Watches the object, which is made when it is missing, in the place of an earlier watch.
    pub(crate) fn watch(&self, watcher: Box<dyn Watcher>) -> io::Result<()> {
        self.create()?;
        self.unwatch();
        let mut watch = ObjectWatch { cookie: 0, watcher: Box::into_raw(Box::new(watcher)) };
        // SAFETY: the pool is open, the name lives beyond the call, the place for the cookie is ours, and the watcher
        // lives until the watch has ended.
        let code = unsafe {
            (self.table.rados_watch3)(
                self.pool.handle,
                self.name.as_ptr(),
                &raw mut watch.cookie,
                notified,
                lost,
                WATCH_TIMEOUT.as_secs() as u32,
                watch.watcher.cast(),
            )
        };
        // On failure the watcher may have been called already, so it stays.
        check(code)?;
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
        Ok(())
    }

    /// Ends the watch. Not to be called by a watcher.
    pub(crate) fn unwatch(&self) {
        let Some(watch) = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        // SAFETY: the watch is one of this pool. When it is lost this fails, and ends what librados keeps of it.
        let ended = check(unsafe { (self.table.rados_unwatch2)(self.pool.handle, watch.cookie) });
        // SAFETY: the connection is valid. After the call no callback of an ended watch runs.
        let flushed = check(unsafe { (self.table.rados_watch_flush)(self.pool.connection.handle) });
        match ended.and(flushed) {
            // SAFETY: nothing calls it any more, so this is its only owner.
            Ok(()) => drop(unsafe { Box::from_raw(watch.watcher) }),
            // It may be called again, so it stays.
            Err(error) => tracing::debug!(%error, "a watch of the gateways' object has not ended in order"),
        }
    }

    /// Notifies all that watch the object, and waits until they have acknowledged it, or `timeout` is over: what the
    /// acknowledgements say.
    pub(crate) fn notify(&self, payload: &[u8], timeout: Duration) -> io::Result<Vec<Vec<u8>>> {
        let (table, mut reply, mut reply_len) = (self.table, null_mut(), 0);
        let len = c_int::try_from(payload.len()).map_err(io::Error::other)?;
        // SAFETY: the pool is open, name and payload live beyond the call, and the places for the reply are ours.
        let code = unsafe {
            (table.rados_notify2)(
                self.pool.handle,
                self.name.as_ptr(),
                payload.as_ptr().cast(),
                len,
                timeout.as_millis() as u64,
                &raw mut reply,
                &raw mut reply_len,
            )
        };
        // A timeout is not an error here: the reply lists the watchers that acknowledged.
        let ended = check(code).or_else(|error| match error.raw_os_error() {
            Some(libc::ETIMEDOUT) if !reply.is_null() => Ok(()),
            _ => Err(error),
        });
        let (mut acks, mut acks_len, mut timeouts, mut timeouts_len) = (null_mut::<NotifyAck>(), 0, null_mut(), 0);
        let payloads = ended.and_then(|()| {
            // SAFETY: the reply has this many bytes, and the places for the lists are ours.
            check(unsafe {
                (table.rados_decode_notify_response)(
                    reply,
                    reply_len,
                    &raw mut acks,
                    &raw mut acks_len,
                    &raw mut timeouts,
                    &raw mut timeouts_len,
                )
            })?;
            // SAFETY: librados has written this many acknowledgements there; an empty list may have no address.
            let acks = if acks.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(acks, acks_len) } };
            Ok(acks.iter().map(payload_of).collect())
        });
        // SAFETY: the lists are librados's or empty, and nothing refers to them any more.
        unsafe { (table.rados_free_notify_response)(acks, acks_len, timeouts) };
        // SAFETY: the same goes for the reply.
        unsafe { (self.pool.connection.table.rados_buffer_free)(reply) };
        payloads
    }

    /// Acknowledges a notify.
    pub(crate) fn acknowledge(&self, id: u64, cookie: u64, payload: &[u8]) -> io::Result<()> {
        let len = c_int::try_from(payload.len()).map_err(io::Error::other)?;
        // SAFETY: the pool is open, and name and payload live beyond the call.
        check(unsafe {
            (self.table.rados_notify_ack)(
                self.pool.handle,
                self.name.as_ptr(),
                id,
                cookie,
                payload.as_ptr().cast(),
                len,
            )
        })
    }

    /// Puts a client on the blocklist, for [`BLOCKLIST_S`]. Waits until the monitors have agreed and this connection
    /// has the map that says so.
    pub(crate) fn blocklist(&self, client: &str) -> io::Result<()> {
        // librados 16 writes the time as a text, which the monitors refuse.
        let command = format!(
            r#"{{"prefix": "osd blocklist", "blocklistop": "add", "addr": "{client}", "expire": {BLOCKLIST_S}.0}}"#
        );
        self.pool.connection.ask(&command)?;
        self.pool.connection.wait_for_latest_map()
    }
}

impl Drop for SharedObject {
    fn drop(&mut self) {
        self.unwatch();
    }
}

fn payload_of(ack: &NotifyAck) -> Vec<u8> {
    if ack.payload.is_null() {
        return Vec::new();
    }
    // SAFETY: librados has written this many bytes there.
    unsafe { std::slice::from_raw_parts(ack.payload.cast::<u8>(), ack.payload_len as usize) }.to_vec()
}

/// Called by librados for a notify.
unsafe extern "C" fn notified(
    argument: *mut c_void,
    id: u64,
    cookie: u64,
    _: u64,
    payload: *mut c_void,
    payload_len: usize,
) {
    // SAFETY: the argument is what `SharedObject::watch` has given, which lives until librados has forgotten it.
    let watcher = unsafe { &*argument.cast::<Box<dyn Watcher>>() };
    let payload = if payload.is_null() {
        &[]
    } else {
        // SAFETY: librados gives this many bytes, which live beyond the call.
        unsafe { std::slice::from_raw_parts(payload.cast::<u8>(), payload_len) }
    };
    watcher.notified(id, cookie, payload);
}

/// Called by librados when a watch is lost.
unsafe extern "C" fn lost(argument: *mut c_void, _: u64, _: c_int) {
    // SAFETY: as above.
    let watcher = unsafe { &*argument.cast::<Box<dyn Watcher>>() };
    watcher.lost();
}
