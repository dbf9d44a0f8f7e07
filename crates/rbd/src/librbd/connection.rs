//! Connections to clusters, and the pools that are open over them.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::ptr::{null, null_mut};
use std::time::Duration;

use super::presence::{self, Present};
use super::table::{Handle, ObjectTable, Table};
use super::{check, text};
use crate::OpenError;
use crate::limits::CONNECT_TIMEOUT;
use crate::url::PoolUrl;

/// Options of every client. They have precedence over the configuration file.
const OPTIONS: [(&str, &str); 3] = [
    // A write that was answered is in the cluster.
    ("rbd_cache", "false"),
    // librbd answers a write when it no longer needs the buffer, and nothing changes the buffer before.
    ("rbd_disable_zero_copy_writes", "false"),
    // Seconds between the signs of life of watches. With librados's 5, an OSD that stands still for as long would end
    // them (`WATCH_TIMEOUT`).
    ("objecter_tick_interval", "2"),
];

/// The number of threads that carry out and end requests. With two, librados's own default, a request goes from one to
/// the other, which takes 15 to 20% more CPU time (docs/measurements/2026-11-27-ceph-speed.md).
pub(super) const THREADS: &str = "librados_thread_count";

/// librados's own number of [`THREADS`].
const DEFAULT_THREADS: u32 = 2;

/// Bytes of the value of an option, with the zero at its end.
const MAX_VALUE_BYTES: usize = 256;

/// A connection to a cluster.
pub(super) struct Connection {
    pub(super) table: &'static Table,
    pub(super) handle: Handle,
    /// Whether the configuration file leaves the number of [`THREADS`] to us.
    pub(super) may_choose_threads: bool,
    /// Dropped last, when librados has ended the connection.
    _present: Present<'static>,
}

/// A pool, or a namespace of one.
pub(super) struct Pool {
    pub(super) connection: Connection,
    pub(super) handle: Handle,
}

// SAFETY: librados and librbd may be called by any thread, and by several at once.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}
// SAFETY: as above.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}
impl Connection {
    /// Connects to the cluster of a pool. Without `limit`, operations wait for as long as it takes: one that ends by a
    /// time limit may still be carried out, after the answer. Waits for the cluster.
    pub(super) fn open(table: &'static Table, url: &PoolUrl, limit: Option<Duration>) -> Result<Self, OpenError> {
        let mut connection = Self { table, handle: null_mut(), may_choose_threads: false, _present: presence::enter() };
        let user = url.user.as_deref().map(text).transpose()?;
        let user_pointer = user.as_ref().map_or(null(), |user| user.as_ptr());
        // SAFETY: `handle` is a place for the result, and the user is null or a text that lives beyond the call.
        check(unsafe { (table.rados_create)(&raw mut connection.handle, user_pointer) }).map_err(OpenError::Client)?;
        connection.read_configuration(url)?;
        if let Some(keyring) = &url.keyring {
            connection.set("keyring", keyring)?;
        }
        connection.set("client_mount_timeout", &CONNECT_TIMEOUT.as_secs().to_string())?;
        OPTIONS.into_iter().try_for_each(|(name, value)| connection.set(name, value))?;
        connection.limit_operations(limit)?;
        // SAFETY: the handle is valid and not connected yet.
        check(unsafe { (table.rados_connect)(connection.handle) }).map_err(|error| OpenError::connect(&error))?;
        Ok(connection)
    }

    /// Ends operations that take longer than `limit`, whatever the configuration file says.
    fn limit_operations(&self, limit: Option<Duration>) -> Result<(), OpenError> {
        let Some(limit) = limit else { return self.set("rados_osd_op_timeout", "0") };
        let limit_s = limit.as_secs().max(1).to_string();
        self.set("rados_osd_op_timeout", &limit_s)?;
        self.set("rados_mon_op_timeout", &limit_s)
    }

    fn read_configuration(&mut self, url: &PoolUrl) -> Result<(), OpenError> {
        let default_threads = self.get(THREADS)?;
        let conf = url.conf.as_deref().map(text).transpose()?;
        let conf_pointer = conf.as_ref().map_or(null(), |conf| conf.as_ptr());
        // SAFETY: the handle is valid, and the path is null or a text that lives beyond the call.
        check(unsafe { (self.table.rados_conf_read_file)(self.handle, conf_pointer) })
            .map_err(|error| OpenError::Configuration { file: url.conf.clone(), error })?;
        self.may_choose_threads = self.get(THREADS)? == default_threads;
        Ok(())
    }

    /// Waits until librados's threads are done with what they are doing, and leaves it as many threads as it had. When
    /// their number changes, librados ends its threads and starts new ones.
    pub(super) fn settle_threads(&self) -> Result<(), OpenError> {
        let threads = self.get(THREADS)?.to_string_lossy().parse().unwrap_or(DEFAULT_THREADS);
        self.set(THREADS, &(threads + 1).to_string())?;
        self.set(THREADS, &threads.to_string())
    }

    fn get(&self, name: &'static str) -> Result<CString, OpenError> {
        let (option, mut value) = (text(name)?, [0_u8; MAX_VALUE_BYTES]);
        // SAFETY: the handle is valid, the name lives beyond the call, and there is room for this many bytes.
        let got = unsafe {
            (self.table.rados_conf_get)(self.handle, option.as_ptr(), value.as_mut_ptr().cast(), value.len())
        };
        check(got).map_err(|error| OpenError::Option { name, error })?;
        Ok(CStr::from_bytes_until_nul(&value).unwrap_or_default().to_owned())
    }

    pub(super) fn set(&self, name: &'static str, value: &str) -> Result<(), OpenError> {
        let (option, value) = (text(name)?, text(value)?);
        // SAFETY: the handle is valid, and the texts live beyond the call.
        let set = check(unsafe { (self.table.rados_conf_set)(self.handle, option.as_ptr(), value.as_ptr()) });
        set.map_err(|error| OpenError::Option { name, error })
    }

    /// The address of this client, as the blocklist takes it.
    pub(super) fn address(&self) -> io::Result<String> {
        let mut addresses = null_mut();
        let table = ObjectTable::get().map_err(io::Error::other)?;
        // SAFETY: the handle is valid, and the place for the result is ours.
        check(unsafe { (table.rados_getaddrs)(self.handle, &raw mut addresses) })?;
        // SAFETY: librados has written a text, which is ours until it is freed.
        let text = unsafe { CStr::from_ptr(addresses) }.to_string_lossy().into_owned();
        // SAFETY: the text is librados's, and nothing refers to it any more.
        unsafe { (self.table.rados_buffer_free)(addresses) };
        Ok(plain_address(&text).into())
    }

    /// Waits until this client has the newest map of the OSDs, which its next requests bring to those that have an
    /// older one.
    pub(super) fn wait_for_latest_map(&self) -> io::Result<()> {
        let table = ObjectTable::get().map_err(io::Error::other)?;
        // SAFETY: the connection is valid.
        check(unsafe { (table.rados_wait_for_latest_osdmap)(self.handle) })
    }

    /// Asks the monitors something.
    pub(super) fn ask(&self, command: &str) -> io::Result<Vec<u8>> {
        let command = CString::new(command)?;
        let commands = [command.as_ptr()];
        let (mut answer, mut answer_len) = (null_mut::<c_char>(), 0);
        // SAFETY: the handle is valid, the command lives beyond the call, there is no input, the places for the answer
        // are ours, and no status is asked for.
        let code = unsafe {
            (self.table.rados_mon_command)(
                self.handle,
                commands.as_ptr(),
                commands.len(),
                null(),
                0,
                &raw mut answer,
                &raw mut answer_len,
                null_mut(),
                null_mut(),
            )
        };
        let bytes = if answer.is_null() {
            Vec::new()
        } else {
            // SAFETY: librados has allocated that many bytes there.
            let bytes = unsafe { std::slice::from_raw_parts(answer.cast::<u8>(), answer_len) }.to_vec();
            // SAFETY: the answer is librados's, and nothing refers to it any more.
            unsafe { (self.table.rados_buffer_free)(answer) };
            bytes
        };
        check(code).map(|()| bytes)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: all that was made from the handle is closed, because it owned this one.
            unsafe { (self.table.rados_shutdown)(self.handle) };
        }
    }
}

impl Pool {
    /// Connects to the cluster of a pool, and opens the pool. Waits for the cluster.
    pub(super) fn connect(table: &'static Table, url: &PoolUrl, limit: Option<Duration>) -> Result<Self, OpenError> {
        Self::open(Connection::open(table, url, limit)?, url)
    }

    fn open(connection: Connection, url: &PoolUrl) -> Result<Self, OpenError> {
        let (table, name) = (connection.table, text(&url.pool)?);
        let mut pool = Self { connection, handle: null_mut() };
        // SAFETY: the connection is made, the name lives beyond the call, and `handle` is a place for the result.
        check(unsafe { (table.rados_ioctx_create)(pool.connection.handle, name.as_ptr(), &raw mut pool.handle) })
            .map_err(|error| OpenError::pool(&url.pool, &error))?;
        if let Some(namespace) = &url.namespace {
            let namespace = text(namespace)?;
            // SAFETY: the pool is open, and the name lives beyond the call.
            unsafe { (table.rados_ioctx_set_namespace)(pool.handle, namespace.as_ptr()) };
        }
        // Writes to a full pool end with an error. Otherwise they wait until there is room.
        // SAFETY: the pool is open.
        unsafe { (table.rados_set_pool_full_try)(pool.handle) };
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: all that was made from the handle is closed, because it owned this one.
            unsafe { (self.connection.table.rados_ioctx_destroy)(self.handle) };
        }
    }
}

/// The first of the addresses that librados gives (`[v2:127.0.0.1:0/7,v1:127.0.0.1:0/7]`, for one `v2:[::1]:0/7`),
/// without what names its protocol.
pub(super) fn plain_address(addresses: &str) -> &str {
    let listed = addresses.strip_prefix('[').and_then(|list| list.strip_suffix(']'));
    let first = listed.unwrap_or(addresses).split(',').next().unwrap_or_default();
    match first.split_once(':') {
        Some(("v1" | "v2" | "any", rest)) => rest,
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_blocklist() {
        for addresses in
            ["127.0.0.1:0/7", "v2:127.0.0.1:0/7", "[v2:127.0.0.1:0/7,v1:127.0.0.1:0/7]", "any:127.0.0.1:0/7"]
        {
            assert_eq!(plain_address(addresses), "127.0.0.1:0/7");
        }
        for addresses in ["[::1]:0/7", "v2:[::1]:0/7", "[v2:[::1]:0/7,v1:[::1]:0/7]"] {
            assert_eq!(plain_address(addresses), "[::1]:0/7");
        }
    }
}
