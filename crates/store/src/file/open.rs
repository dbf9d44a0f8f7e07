//! Opening files and block devices, and detecting their capabilities.

use std::fs::{self, File, FileType};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, fallocate, fcntl_getfl, fcntl_setfl, fstatfs, ioctl_blkpbszget,
    ioctl_blksszget, linkat, major, minor, statvfs,
};
use rustix::io::Errno;

use super::left::{self, Ownership};
use super::made::{Made, lacks_space, reserve, reserve_for_good};
use super::op::{PUNCH, retry};
use super::open_error::{OpenError, failed, missing, not_a_length, not_locked, not_reserved};
use super::{FileIdentity, lock};
use crate::{Capabilities, Geometry, LengthError, check_asked_len, whole_blocks};

/// Lengths of regular files are multiples of this, the smallest logical block of SCSI disks.
const FILE_GRANULARITY_BYTES: u32 = 512;

/// The assumed block size of a file system that reports no usable one.
const DEFAULT_BLOCK_BYTES: u32 = 4096;

/// Preferred I/O sizes beyond this (network file systems report megabytes) say nothing about the block size.
const MAX_BLOCK_BYTES: u32 = 64 << 10;

/// The permissions of a new file: a disk holds what other users of the machine may not read.
const PRIVATE: u32 = 0o600;

/// The file systems whose files live in memory, by the numbers that statfs(2) gives them: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Options to open a [`FileStore`](crate::FileStore). The default opens an existing file or device for reading and
/// writing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Creates a sparse file of this many bytes, a whole number of blocks of 512, when the path does not exist. An
    /// existing file is not changed.
    pub create: Option<u64>,
    /// Opens the file for reading only, without a lock.
    pub read_only: bool,
    /// Allocates the space of the whole file and keeps it, if the file is writable: no write fails for lack of space,
    /// and an unmap frees nothing.
    pub preallocate: bool,
    /// Permits a regular file of any length, with requests exact to the byte, for tools that copy files. Otherwise the
    /// store has the whole blocks of 512 bytes of a file, at least one.
    pub any_length: bool,
    /// Takes back what opening has made when the store is dropped before it was
    /// [kept](crate::FileStore::keep): for a change that may still be refused.
    pub tentative: bool,
}

pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) geometry: Geometry,
    pub(crate) capabilities: Capabilities,
    /// No read and no write waits for a medium.
    pub(crate) in_memory: bool,
    /// The files and space that opening has made, in this order.
    pub(crate) made: Vec<Made>,
    pub(crate) ownership: Ownership,
}

/// Opens the file or device at `path`. After a failure there is nothing on the file system that was not there before.
pub(crate) fn open(path: &Path, options: &OpenOptions) -> Result<Opened, OpenError> {
    // Before opening, because opening a pipe or a tape has side effects.
    let created = match fs::metadata(path) {
        Ok(found) => check_type(path, found.file_type()).map(|()| None)?,
        Err(error) if error.kind() == ErrorKind::NotFound => match options.create {
            Some(len_bytes) => create(path, len_bytes, options)?,
            None => return Err(missing(path, !options.read_only)),
        },
        Err(error) => return Err(failed(path, "look it up")(error)),
    };
    match open_existing(path, options) {
        Ok(mut opened) => {
            if let Some(file) = created {
                // With the file goes all that belongs to it.
                opened.made = vec![Made::new_file(path, &file)];
            }
            Ok(opened)
        }
        Err(error) => {
            if let Some(file) = created {
                Made::new_file(path, &file).take_back(&file);
            }
            Err(error.with_holder())
        }
    }
}

fn open_existing(path: &Path, options: &OpenOptions) -> Result<Opened, OpenError> {
    let is_device = fs::metadata(path).map_err(failed(path, "look it up"))?.file_type().is_block_device();
    let identity = FileIdentity::at(path).map_err(failed(path, "look it up"))?;
    // The locks of an earlier process would refuse another open file.
    let (file, ownership) = match left::take(identity, !options.read_only) {
        Some(left) => left,
        None => (open_path(path, is_device, options)?, Ownership::default()),
    };
    let found = examine(path, &file, is_device, options, &ownership).inspect_err(|_| {
        if ownership.is_ours() {
            lock::release(&file);
        }
    })?;
    let Examined { geometry, capabilities, made } = found;
    let in_memory = !is_device && is_in_memory(&file);
    Ok(Opened { file, geometry, capabilities, in_memory, made, ownership })
}

fn open_path(path: &Path, is_device: bool, options: &OpenOptions) -> Result<File, OpenError> {
    // On a block device, O_EXCL without O_CREAT fails while the device is mounted or in other use.
    let flags = match is_device {
        true if options.read_only => OFlags::empty(),
        true => OFlags::EXCL,
        // Another process may have a lease of a regular file (F_SETLEASE), for whose end the system would wait.
        false => OFlags::NONBLOCK,
    };
    let file = fs::OpenOptions::new()
        .read(true)
        .write(!options.read_only)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(failed(path, "open it"))?;
    if !is_device {
        // io_uring would take it as a wish that no request waits.
        fcntl_getfl(&file)
            .and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK))
            .map_err(|error| failed(path, "open it")(error.into()))?;
    }
    Ok(file)
}

/// The outcome of [`examine`].
struct Examined {
    geometry: Geometry,
    capabilities: Capabilities,
    made: Vec<Made>,
}

/// Locks an open file or device, and finds out what it can do.
fn examine(
    path: &Path,
    file: &File,
    is_device: bool,
    options: &OpenOptions,
    ownership: &Ownership,
) -> Result<Examined, OpenError> {
    let read_only = options.read_only;
    let metadata = file.metadata().map_err(failed(path, "look it up"))?;
    check_type(path, metadata.file_type())?;
    if !read_only {
        if is_device { lock::lock_bytes(file) } else { lock::lock_file(file) }.map_err(not_locked(path))?;
    }
    let mut geometry = if is_device { device_geometry(file, &metadata) } else { Ok(file_geometry(&metadata)) }
        .map_err(failed(path, "find out its block size"))?;
    geometry.len_bytes = len(file).map_err(failed(path, "find out its length"))?;
    if options.any_length && !is_device {
        geometry.granularity_bytes = 1;
    } else {
        let Geometry { len_bytes, granularity_bytes, .. } = geometry;
        geometry.len_bytes = whole_blocks(len_bytes, granularity_bytes);
        if is_device && len_bytes == 0 {
            return Err(OpenError::NoMedium { path: path.to_owned() });
        }
        if geometry.len_bytes == 0 {
            return Err(not_a_length(path)(LengthError { len_bytes, block_bytes: granularity_bytes }));
        }
    }
    let punches = !read_only && if is_device { device_zeroes(&metadata) } else { file_punches(file, &geometry) };
    let mut made = Vec::new();
    if options.preallocate && !read_only && !is_device {
        let len_bytes = geometry.len_bytes;
        if ownership.is_ours() {
            made.push(reserve(file, 0, len_bytes).map_err(not_reserved(path))?);
        } else {
            reserve_for_good(file, 0, len_bytes).map_err(not_reserved(path))?;
        }
    }
    let unmaps = punches && !options.preallocate;
    let capabilities = Capabilities {
        read_only,
        volatile_cache: !read_only,
        unmap: unmaps,
        unmap_zeroes: unmaps,
        // Zeroes are written, or set aside as unwritten extents.
        anchors: unmaps,
        write_zeroes: punches,
        memory: false,
    };
    Ok(Examined { geometry, capabilities, made })
}

/// Whether the file system has no medium. One that does not say has one.
fn is_in_memory(file: &File) -> bool {
    fstatfs(file).is_ok_and(|system| u64::try_from(system.f_type).is_ok_and(|number| IN_MEMORY.contains(&number)))
}

fn check_type(path: &Path, found: FileType) -> Result<(), OpenError> {
    let found = match found {
        _ if found.is_file() || found.is_block_device() => return Ok(()),
        _ if found.is_dir() => "directory",
        _ if found.is_char_device() => "character device",
        _ if found.is_fifo() => "pipe",
        _ if found.is_socket() => "socket",
        _ => "file of unknown type",
    };
    Err(OpenError::WrongType { path: path.to_owned(), found })
}

/// Creates a sparse file of its owner alone, which survives a power cut from the start. Gives the file, unless another
/// process has created it.
fn create(path: &Path, len_bytes: u64, options: &OpenOptions) -> Result<Option<File>, OpenError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if options.preallocate && statvfs(folder).is_ok_and(|system| lacks_space(&system, len_bytes)) {
        return Err(failed(path, "reserve its space")(Errno::NOSPC.into()));
    }
    if !options.any_length {
        check_asked_len(len_bytes, FILE_GRANULARITY_BYTES).map_err(not_a_length(path))?;
    }
    let created = if options.preallocate { create_filled(path, folder, len_bytes) } else { create_new(path) };
    let file = match created {
        Ok(file) => file,
        // It is opened like any existing file.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing(path, false)),
        Err(error) => return Err(failed(path, "create it")(error)),
    };
    let made = file.set_len(len_bytes).and_then(|()| file.sync_all()).and_then(|()| File::open(folder)?.sync_all());
    match made {
        Ok(()) => Ok(Some(file)),
        Err(error) => {
            Made::new_file(path, &file).take_back(&file);
            Err(failed(path, "give the new file its length")(error))
        }
    }
}

/// Creates a file that gets its space before its name: without the space it was never there. Some file systems have no
/// files without names.
fn create_filled(path: &Path, folder: &Path, len_bytes: u64) -> io::Result<File> {
    let nameless = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(folder, nameless, Mode::from_raw_mode(PRIVATE)) else {
        return create_new(path);
    };
    // What else can be wrong is found when it is opened.
    let reserved = retry(|| fallocate(&file, FallocateFlags::empty(), 0, len_bytes));
    if let Err(error @ (Errno::NOSPC | Errno::DQUOT)) = reserved {
        return Err(error.into());
    }
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    match linkat(CWD, opened, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(file.into()),
        Err(Errno::EXIST) => Err(Errno::EXIST.into()),
        // Without /proc it has no name to be linked by.
        Err(_) => create_new(path),
    }
}

fn create_new(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new().read(true).write(true).create_new(true).mode(PRIVATE).open(path)
}

/// The length of a file or block device, in bytes.
pub(crate) fn len(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

fn file_geometry(metadata: &fs::Metadata) -> Geometry {
    let usable = |bytes: &u32| bytes.is_power_of_two() && (FILE_GRANULARITY_BYTES..=MAX_BLOCK_BYTES).contains(bytes);
    let block = u32::try_from(metadata.blksize()).ok().filter(usable).unwrap_or(DEFAULT_BLOCK_BYTES);
    Geometry {
        len_bytes: metadata.len(),
        granularity_bytes: FILE_GRANULARITY_BYTES,
        physical_bytes: block,
        unmap_bytes: block,
    }
}

/// Whether the file system can free space. It is asked to punch a hole beyond the end of the file, which changes
/// nothing.
fn file_punches(file: &File, geometry: &Geometry) -> bool {
    let block = u64::from(geometry.unmap_bytes);
    let beyond = geometry.len_bytes.next_multiple_of(block);
    fallocate(file, PUNCH, beyond, block).is_ok()
}

fn device_geometry(file: &File, metadata: &fs::Metadata) -> io::Result<Geometry> {
    let logical = ioctl_blksszget(file)?;
    let discard = device_limit(metadata, "discard_granularity").and_then(|bytes| u32::try_from(bytes).ok());
    Ok(Geometry {
        len_bytes: 0,
        granularity_bytes: logical,
        physical_bytes: ioctl_blkpbszget(file)?.max(logical),
        unmap_bytes: discard.filter(|bytes| bytes.is_multiple_of(logical)).unwrap_or(0).max(logical),
    })
}

/// Whether a block device can free space: punching a hole in it sends its command to write zeroes, with permission to
/// unmap.
fn device_zeroes(metadata: &fs::Metadata) -> bool {
    device_limit(metadata, "write_zeroes_max_bytes").is_some_and(|bytes| bytes > 0)
}

/// A limit of a block device's queue; a partition has the queue of its disk.
fn device_limit(metadata: &fs::Metadata, name: &str) -> Option<u64> {
    let device = format!("/sys/dev/block/{}:{}", major(metadata.rdev()), minor(metadata.rdev()));
    let text =
        ["queue", "../queue"].iter().find_map(|queue| fs::read_to_string(format!("{device}/{queue}/{name}")).ok());
    text?.trim().parse().ok()
}
