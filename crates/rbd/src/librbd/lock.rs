//! The lock of an image, when its owner is on the blocklist.
//!
//! librbd breaks the lock of a client that is gone, too. But it puts that client on the blocklist once more: for the
//! time that the cluster says instead of [`BLOCKLIST_S`](crate::limits::BLOCKLIST_S), and with the next change of the
//! monitors' map, which comes up to a second later.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;

use super::connection::plain_address;
use super::table::ObjectTable;
use super::{OpenImage, check};

/// `RBD_LOCK_NAME`: the lock of the image's header object.
const NAME: &CStr = c"rbd_lock";

/// Room for the texts of a list of lockers. The lock is exclusive, so there is one.
const MAX_LIST_BYTES: usize = 512;

/// Texts, each with a zero at its end, as librados lists them.
struct List {
    bytes: [u8; MAX_LIST_BYTES],
    len: usize,
}

impl List {
    fn new() -> Self {
        Self { bytes: [0; MAX_LIST_BYTES], len: MAX_LIST_BYTES }
    }

    fn as_mut_ptr(&mut self) -> *mut c_char {
        self.bytes.as_mut_ptr().cast()
    }

    fn first(&self) -> CString {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default().to_owned()
    }
}

impl OpenImage {
    /// Breaks the lock if `fenced` has it, by its address as the blocklist takes it.
    pub(super) fn break_lock_of(&self, fenced: &str) -> io::Result<()> {
        let (table, pool) = (ObjectTable::get().map_err(io::Error::other)?, self.pool.handle);
        // The request of this client brings the map with the blocklist to the OSD that has the lock, so the other one
        // cannot lock it again.
        self.pool.connection.wait_for_latest_map()?;
        let header = CString::new(format!("rbd_header.{}", self.id()?))?;
        let (mut exclusive, mut tag) = (0, List::new());
        let (mut clients, mut cookies, mut addresses) = (List::new(), List::new(), List::new());
        // SAFETY: the pool is open, the names live beyond the call, and each list has as much room as its length says.
        let lockers = unsafe {
            (table.rados_list_lockers)(
                pool,
                header.as_ptr(),
                NAME.as_ptr(),
                &raw mut exclusive,
                tag.as_mut_ptr(),
                &raw mut tag.len,
                clients.as_mut_ptr(),
                &raw mut clients.len,
                cookies.as_mut_ptr(),
                &raw mut cookies.len,
                addresses.as_mut_ptr(),
                &raw mut addresses.len,
            )
        };
        check(c_int::try_from(lockers).map_err(io::Error::other)?)?;
        let address = addresses.first();
        if lockers != 1 || plain_address(&address.to_string_lossy()) != fenced {
            return Ok(());
        }
        let (client, cookie) = (clients.first(), cookies.first());
        // SAFETY: the pool is open, and the texts live beyond the call.
        let broken = check(unsafe {
            (table.rados_break_lock)(pool, header.as_ptr(), NAME.as_ptr(), client.as_ptr(), cookie.as_ptr())
        });
        // Without such a locker the lock was broken or released meanwhile, which is as good.
        broken.or_else(|error| if error.raw_os_error() == Some(libc::ENOENT) { Ok(()) } else { Err(error) })
    }
}
