//! The functions of librados and librbd, found when they are first needed.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use libc::timespec;
use libloading::Library;

/// `rados_t`, `rados_ioctx_t`, `rbd_image_t` and `rbd_completion_t`: each points to what only the libraries know.
pub(super) type Handle = *mut c_void;

/// `rbd_callback_t`.
pub(super) type EndedCallback = unsafe extern "C" fn(completion: Handle, argument: *mut c_void);

/// `rbd_update_callback_t`.
pub(super) type ChangedCallback = unsafe extern "C" fn(argument: *mut c_void);

/// The callback of `rbd_diff_iterate2`.
pub(super) type ExtentCallback =
    unsafe extern "C" fn(offset: u64, len: usize, exists: c_int, argument: *mut c_void) -> c_int;

/// `rados_watchcb2_t`.
pub(super) type NotifiedCallback = unsafe extern "C" fn(
    argument: *mut c_void,
    id: u64,
    cookie: u64,
    notifier: u64,
    payload: *mut c_void,
    payload_len: usize,
);

/// `rados_watcherrcb_t`.
pub(super) type WatchLostCallback = unsafe extern "C" fn(argument: *mut c_void, cookie: u64, error: c_int);

/// `notify_ack_t`.
#[repr(C)]
pub(super) struct NotifyAck {
    pub(super) notifier: u64,
    pub(super) cookie: u64,
    pub(super) payload: *mut c_char,
    pub(super) payload_len: u64,
}

/// `rbd_config_option_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ConfigOption {
    pub(super) name: *mut c_char,
    pub(super) value: *mut c_char,
    pub(super) source: c_int,
}

/// `librbd_progress_fn_t`.
pub(super) type ProgressCallback = unsafe extern "C" fn(done: u64, total: u64, argument: *mut c_void) -> c_int;

/// `rbd_image_spec_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ImageSpec {
    pub(super) id: *mut c_char,
    pub(super) name: *mut c_char,
}

/// `rbd_snap_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SnapshotInfo {
    pub(super) id: u64,
    pub(super) len_bytes: u64,
    pub(super) name: *const c_char,
}

/// `rbd_linked_image_spec_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct LinkedImageSpec {
    pub(super) pool_id: i64,
    pub(super) pool_name: *mut c_char,
    pub(super) pool_namespace: *mut c_char,
    pub(super) image_id: *mut c_char,
    pub(super) image_name: *mut c_char,
    pub(super) is_in_trash: bool,
}

/// `rbd_snap_spec_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SnapshotSpec {
    pub(super) id: u64,
    pub(super) namespace_type: c_int,
    pub(super) name: *mut c_char,
}

/// Why the libraries cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// A library is not there.
    #[error("{library} cannot be loaded, which disks in Ceph need; install it (Debian: apt install librbd1): {reason}")]
    Absent {
        /// The library.
        library: &'static str,
        /// The error of the system.
        reason: String,
    },
    /// A library has not all the functions that are needed.
    #[error("{library} has no function {function}; Ceph 16 or newer has it")]
    Old {
        /// The library.
        library: &'static str,
        /// The function.
        function: &'static str,
    },
}

/// Declares functions of libraries as the fields of a table, and how to find them.
macro_rules! table {
    ($(#[$about:meta])* $table:ident: $($library:literal { $(fn $name:ident($($argument:ty),* $(,)?) $(-> $result:ty)?;)* })*) => {
        $(#[$about])*
        pub(super) struct $table {
            $($(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl $table {
            /// The functions of the installed libraries.
            pub(super) fn get() -> Result<&'static Self, LibraryError> {
                static TABLE: OnceLock<$table> = OnceLock::new();
                if let Some(table) = TABLE.get() {
                    return Ok(table);
                }
                let loaded = Self::load()?;
                Ok(TABLE.get_or_init(|| loaded))
            }

            fn load() -> Result<Self, LibraryError> {
                $($(let $name;)*)*
                $({
                    let library = open($library)?;
                    $(
                        // SAFETY: the type is that of the function in the headers of Ceph 16, and later versions have
                        // kept it.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                concat!(stringify!($name), "\0").as_bytes(),
                            )
                        };
                        $name = *found.map_err(|_| LibraryError::Old { library: $library, function: stringify!($name) })?;
                    )*
                    // The functions are called until the process ends.
                    std::mem::forget(library);
                })*
                Ok(Self { $($($name,)*)* })
            }
        }
    };
}

table! {
    /// The functions for images. The libraries stay loaded until the process ends.
    Table:
    "librados.so.2" {
        fn rados_create(*mut Handle, *const c_char) -> c_int;
        fn rados_conf_read_file(Handle, *const c_char) -> c_int;
        fn rados_conf_get(Handle, *const c_char, *mut c_char, usize) -> c_int;
        fn rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
        fn rados_connect(Handle) -> c_int;
        fn rados_shutdown(Handle);
        fn rados_mon_command(
            Handle, *const *const c_char, usize, *const c_char, usize, *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize,
        ) -> c_int;
        fn rados_buffer_free(*mut c_char);
        fn rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
        fn rados_ioctx_set_namespace(Handle, *const c_char);
        fn rados_ioctx_destroy(Handle);
        fn rados_set_pool_full_try(Handle);
    }
    "librbd.so.1" {
        fn rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        fn rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        fn rbd_close(Handle) -> c_int;
        fn rbd_get_size(Handle, *mut u64) -> c_int;
        fn rbd_get_features(Handle, *mut u64) -> c_int;
        fn rbd_get_flags(Handle, *mut u64) -> c_int;
        fn rbd_metadata_get(Handle, *const c_char, *mut c_char, *mut usize) -> c_int;
        fn rbd_get_id(Handle, *mut c_char, usize) -> c_int;
        fn rbd_config_image_list(Handle, *mut ConfigOption, *mut c_int) -> c_int;
        fn rbd_config_image_list_cleanup(*mut ConfigOption, c_int);
        fn rbd_lock_acquire(Handle, c_int) -> c_int;
        fn rbd_update_watch(Handle, *mut u64, ChangedCallback, *mut c_void) -> c_int;
        fn rbd_update_unwatch(Handle, u64) -> c_int;
        fn rbd_diff_iterate2(Handle, *const c_char, u64, u64, u8, u8, ExtentCallback, *mut c_void) -> c_int;
        fn rbd_aio_create_completion(*mut c_void, EndedCallback, *mut Handle) -> c_int;
        fn rbd_aio_get_return_value(Handle) -> isize;
        fn rbd_aio_release(Handle);
        fn rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
        fn rbd_aio_write(Handle, u64, usize, *const c_char, Handle) -> c_int;
        fn rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
        fn rbd_aio_flush(Handle, Handle) -> c_int;
    }
}

table! {
    /// The functions for gateways.
    #[allow(clippy::struct_field_names, reason = "the names are those of the functions")]
    ObjectTable:
    "librados.so.2" {
        fn rados_getaddrs(Handle, *mut *mut c_char) -> c_int;
        fn rados_wait_for_latest_osdmap(Handle) -> c_int;
        fn rados_read(Handle, *const c_char, *mut c_char, usize, u64) -> c_int;
        fn rados_create_write_op() -> Handle;
        fn rados_write_op_create(Handle, c_int, *const c_char);
        fn rados_write_op_cmpext(Handle, *const c_char, usize, u64, *mut c_int);
        fn rados_write_op_write_full(Handle, *const c_char, usize);
        fn rados_write_op_operate(Handle, Handle, *const c_char, *mut c_void, c_int) -> c_int;
        fn rados_release_write_op(Handle);
        fn rados_watch3(Handle, *const c_char, *mut u64, NotifiedCallback, WatchLostCallback, u32, *mut c_void) -> c_int;
        fn rados_unwatch2(Handle, u64) -> c_int;
        fn rados_watch_flush(Handle) -> c_int;
        fn rados_notify2(Handle, *const c_char, *const c_char, c_int, u64, *mut *mut c_char, *mut usize) -> c_int;
        fn rados_decode_notify_response(
            *mut c_char, usize, *mut *mut NotifyAck, *mut usize, *mut *mut c_void, *mut usize,
        ) -> c_int;
        fn rados_free_notify_response(*mut NotifyAck, usize, *mut c_void);
        fn rados_list_lockers(
            Handle, *const c_char, *const c_char, *mut c_int, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize,
            *mut c_char, *mut usize,
        ) -> isize;
        fn rados_break_lock(Handle, *const c_char, *const c_char, *const c_char, *const c_char) -> c_int;
        fn rados_notify_ack(Handle, *const c_char, u64, u64, *const c_char, c_int) -> c_int;
    }
}

table! {
    /// The functions that manage images. They are loaded when a pool is opened, so that a library without one of them
    /// still serves images.
    #[allow(clippy::struct_field_names, reason = "the names are those of the functions")]
    ManageTable:
    "librados.so.2" {
        fn rados_cluster_fsid(Handle, *mut c_char, usize) -> c_int;
        fn rados_ioctx_get_id(Handle) -> i64;
        fn rados_read(Handle, *const c_char, *mut c_char, usize, u64) -> c_int;
        fn rados_remove(Handle, *const c_char) -> c_int;
        fn rados_exec(
            Handle, *const c_char, *const c_char, *const c_char, *const c_char, usize, *mut c_char, usize,
        ) -> c_int;
    }
    "librbd.so.1" {
        fn rbd_list2(Handle, *mut ImageSpec, *mut usize) -> c_int;
        fn rbd_image_spec_list_cleanup(*mut ImageSpec, usize);
        fn rbd_image_options_create(*mut Handle);
        fn rbd_image_options_set_uint64(Handle, c_int, u64) -> c_int;
        fn rbd_image_options_destroy(Handle);
        fn rbd_create4(Handle, *const c_char, u64, Handle) -> c_int;
        fn rbd_clone3(Handle, *const c_char, *const c_char, Handle, *const c_char, Handle) -> c_int;
        fn rbd_rename(Handle, *const c_char, *const c_char) -> c_int;
        fn rbd_remove(Handle, *const c_char) -> c_int;
        fn rbd_pool_metadata_get(Handle, *const c_char, *mut c_char, *mut usize) -> c_int;
        fn rbd_pool_metadata_set(Handle, *const c_char, *const c_char) -> c_int;
        fn rbd_pool_metadata_remove(Handle, *const c_char) -> c_int;
        fn rbd_pool_metadata_list(Handle, *const c_char, u64, *mut c_char, *mut usize, *mut c_char, *mut usize) -> c_int;
        fn rbd_metadata_set(Handle, *const c_char, *const c_char) -> c_int;
        fn rbd_metadata_remove(Handle, *const c_char) -> c_int;
        fn rbd_metadata_list(Handle, *const c_char, u64, *mut c_char, *mut usize, *mut c_char, *mut usize) -> c_int;
        fn rbd_get_create_timestamp(Handle, *mut timespec) -> c_int;
        fn rbd_resize(Handle, u64) -> c_int;
        fn rbd_flush(Handle) -> c_int;
        fn rbd_lock_get_owners(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
        fn rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
        fn rbd_is_exclusive_lock_owner(Handle, *mut c_int) -> c_int;
        fn rbd_snap_list(Handle, *mut SnapshotInfo, *mut c_int) -> c_int;
        fn rbd_snap_list_end(*mut SnapshotInfo);
        fn rbd_snap_get_namespace_type(Handle, u64, *mut c_int) -> c_int;
        fn rbd_snap_get_timestamp(Handle, u64, *mut timespec) -> c_int;
        fn rbd_snap_create2(Handle, *const c_char, u32, ProgressCallback, *mut c_void) -> c_int;
        fn rbd_snap_remove(Handle, *const c_char) -> c_int;
        fn rbd_snap_rollback_with_progress(Handle, *const c_char, ProgressCallback, *mut c_void) -> c_int;
        fn rbd_flatten_with_progress(Handle, ProgressCallback, *mut c_void) -> c_int;
        fn rbd_get_parent(Handle, *mut LinkedImageSpec, *mut SnapshotSpec) -> c_int;
        fn rbd_linked_image_spec_cleanup(*mut LinkedImageSpec);
        fn rbd_snap_spec_cleanup(*mut SnapshotSpec);
        fn rbd_list_children3(Handle, *mut LinkedImageSpec, *mut usize) -> c_int;
        fn rbd_linked_image_spec_list_cleanup(*mut LinkedImageSpec, usize);
    }
}

fn open(library: &'static str) -> Result<Library, LibraryError> {
    // SAFETY: the code that runs when these libraries are loaded sets up their own data.
    let opened = unsafe { Library::new(library) };
    opened.map_err(|error| LibraryError::Absent { library, reason: error.to_string() })
}
