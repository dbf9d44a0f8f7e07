//! The files of a file system of this machine.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lunette_files::{Content, FileProblem};
use lunette_store::{Extent, Extents, share_if_equal, share_range};
use rustix::fs::{
    CWD, FallocateFlags, FlockOperation, OFlags, RenameFlags, fallocate, flock, fstatvfs, ioctl_ficlone, renameat_with,
};
use rustix::io::Errno;

use super::files::{Files, Kind};
use super::layout;
use crate::error::PoolError;
use crate::limits::MAX_RECORD_BYTES;
use crate::pool::PoolSpace;

/// The rights to a folder of a pool.
const FOLDER_MODE: u32 = 0o750;

/// The rights to a file that changes, as disks have them everywhere.
const FILE_MODE: u32 = 0o600;

/// The rights to a file that does not.
const FIXED_MODE: u32 = 0o440;

/// The unit in which stat(2) counts the blocks of a file.
const STAT_BLOCK_BYTES: u64 = 512;

/// Bytes that are copied at once to give them blocks of their own; btrfs shares no more at once.
const COPY_BYTES: u64 = 16 << 20;

const RECORD: Content = Content { name: "a record of a pool", max_bytes: MAX_RECORD_BYTES };
const IMAGE: Content = Content { name: "the blocks of a volume", max_bytes: usize::MAX };

/// The folder of a pool in a file system, which this process alone uses.
#[derive(Debug)]
pub struct System {
    root: PathBuf,
    /// Holds the lock as long as it is open.
    _lock: File,
}

impl System {
    /// Takes the folder of a pool for this process.
    pub(super) fn open(root: &Path) -> Result<Self, PoolError> {
        let unusable = |why: String| PoolError::Unusable { place: root.display().to_string(), why };
        let failed = |error: io::Error| unusable(format!("{error}{}", lunette_files::remedy(&error)));
        match fs::metadata(root) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(unusable("this is no folder; name the folder of the pool".into())),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(unusable("there is no such folder; create it in a file system with reflinks".into()));
            }
            Err(error) => return Err(failed(error)),
        }
        let work = root.join(layout::WORK);
        match fs::DirBuilder::new().mode(FOLDER_MODE).create(&work) {
            Ok(()) => File::open(root).and_then(|folder| folder.sync_all()).map_err(failed)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        let path = work.join(layout::LOCK);
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(FILE_MODE).open(path).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { root: root.to_owned(), _lock: lock }),
            Err(Errno::WOULDBLOCK) => Err(unusable("another process uses this pool; stop it first".into())),
            Err(error) => Err(failed(error.into())),
        }
    }

    fn at(&self, path: &Path) -> PathBuf {
        if path == Path::new("") { self.root.clone() } else { self.root.join(path) }
    }

    fn failed(&self, verb: &str, path: &Path, error: impl Into<io::Error>) -> io::Error {
        let error = error.into();
        io::Error::new(error.kind(), format!("cannot {verb} {}: {error}", self.at(path).display()))
    }

    fn rename_with(&self, from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
        renameat_with(CWD, self.at(from), CWD, self.at(to), flags).map_err(|error| self.failed("rename", from, error))
    }

    fn open_at(&self, path: &Path, options: &OpenOptions) -> io::Result<File> {
        lunette_files::open_with(&self.at(path), IMAGE, options).map_err(with_path)
    }

    /// Gives a range the blocks of a copy.
    fn share_with_copy(&self, image: &File, range: Range<u64>) -> io::Result<()> {
        let flags = OFlags::TMPFILE.bits().cast_signed();
        let work = self.root.join(layout::WORK);
        let copy = OpenOptions::new().read(true).write(true).mode(FILE_MODE).custom_flags(flags).open(work)?;
        let block_bytes = fstatvfs(image)?.f_frsize.max(1);
        let mut piece = vec![0; COPY_BYTES.min(range.end - range.start) as usize];
        let mut next = range.start;
        while next < range.end {
            let end = range.end.min(next + COPY_BYTES);
            let bytes = &mut piece[..(end - next) as usize];
            image.read_exact_at(bytes, next)?;
            copy.write_all_at(bytes, 0)?;
            share_where_equal(&copy, 0, image, next..end, block_bytes)?;
            // The next copy gets a place of its own.
            copy.set_len(0)?;
            next = end;
        }
        Ok(())
    }
}

/// Lets an image have the blocks of a copy where both are equal. A block that differs was written after it was copied.
/// So it has got a place of its own, and is kept.
fn share_where_equal(copy: &File, offset: u64, image: &File, range: Range<u64>, block_bytes: u64) -> io::Result<()> {
    let len = range.end - range.start;
    if share_if_equal(copy, offset, image, range.clone())? || len <= block_bytes {
        return Ok(());
    }
    let half = (len / 2).next_multiple_of(block_bytes);
    share_where_equal(copy, offset, image, range.start..range.start + half, block_bytes)?;
    share_where_equal(copy, offset + half, image, range.start + half..range.end, block_bytes)
}

impl Files for System {
    type Image = File;

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let failed = |error| self.failed("read the folder", folder, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(self.at(folder)).map_err(failed)? {
            names.extend(entry.map_err(failed)?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        match fs::symlink_metadata(self.at(path)) {
            Ok(metadata) if metadata.is_dir() => Ok(Some(Kind::Folder)),
            Ok(_) => Ok(Some(Kind::File)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(self.failed("look at", path, error)),
        }
    }

    fn read(&self, file: &Path) -> io::Result<Option<String>> {
        match lunette_files::read_text(&self.at(file), RECORD).map_err(with_path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, file: &Path, content: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(FILE_MODE).open(self.at(file));
        made.and_then(|mut made| {
            made.write_all(content.as_bytes())?;
            made.sync_all()
        })
        .map_err(|error| self.failed("write", file, error))
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let made = fs::DirBuilder::new().mode(FOLDER_MODE).create(self.at(path));
        made.map_err(|error| self.failed("create", path, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename_with(from, to, RenameFlags::NOREPLACE)
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(self.at(path)).map_err(|error| self.failed("remove", path, error))
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(self.at(path)).map_err(|error| self.failed("remove", path, error))
    }

    fn sync(&self, folder: &Path) -> io::Result<()> {
        let synced = File::open(self.at(folder)).and_then(|folder| folder.sync_all());
        synced.map_err(|error| self.failed("synchronize", folder, error))
    }

    fn make_image(&self, path: &Path, is_fixed: bool) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(if is_fixed { FIXED_MODE } else { FILE_MODE });
        options.open(self.at(path)).map_err(|error| self.failed("create", path, error))
    }

    fn open_image(&self, path: &Path) -> io::Result<File> {
        self.open_at(path, OpenOptions::new().read(true))
    }

    fn change_image(&self, path: &Path) -> io::Result<File> {
        self.open_at(path, OpenOptions::new().read(true).write(true))
    }

    fn len(&self, image: &File) -> io::Result<u64> {
        Ok(image.metadata()?.len())
    }

    fn block_bytes(&self, image: &File) -> io::Result<u64> {
        Ok(image.metadata()?.blksize())
    }

    fn set_len(&self, image: &File, len_bytes: u64) -> io::Result<()> {
        image.set_len(len_bytes).map_err(|error| in_words("change the length of an image", error))
    }

    fn allocate(&self, image: &File, range: Range<u64>) -> io::Result<()> {
        let allocated = fallocate(image, FallocateFlags::KEEP_SIZE, range.start, range.end - range.start);
        allocated.map_err(|error| in_words("set space aside for an image", error))
    }

    fn clone_into(&self, from: &File, into: &File) -> io::Result<()> {
        ioctl_ficlone(into, from).map_err(|error| match error {
            Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY | Errno::INVAL => ErrorKind::Unsupported.into(),
            error => in_words("share the blocks of an image", error),
        })
    }

    fn clone_range(&self, from: &File, into: &File, range: Range<u64>) -> io::Result<()> {
        share_range(from, into, range).map_err(|error| in_words("share blocks of an image", error))
    }

    fn flush(&self, image: &File) -> io::Result<()> {
        image.sync_all().map_err(|error| in_words("flush an image", error))
    }

    fn unshare(&self, image: &File, range: Range<u64>) -> io::Result<()> {
        let flags = FallocateFlags::UNSHARE_RANGE | FallocateFlags::KEEP_SIZE;
        let unshared = match fallocate(image, flags, range.start, range.end - range.start) {
            Err(Errno::OPNOTSUPP) => self.share_with_copy(image, range),
            unshared => unshared.map_err(io::Error::from),
        };
        match unshared {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
            unshared => unshared.map_err(|error| in_words("copy shared blocks of an image", error)),
        }
    }

    fn extents<'a>(&'a self, image: &'a File) -> Box<dyn Iterator<Item = io::Result<Extent>> + 'a> {
        Box::new(Extents::of(image, 0..u64::MAX))
    }

    fn allocated_bytes(&self, image: &File) -> io::Result<u64> {
        Ok(image.metadata()?.blocks().saturating_mul(STAT_BLOCK_BYTES))
    }

    fn space(&self) -> io::Result<PoolSpace> {
        let system = File::open(&self.root).and_then(|folder| Ok(fstatvfs(&folder)?));
        let system = system.map_err(|error| self.failed("look at the file system of", &layout::pool(), error))?;
        let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
        Ok(PoolSpace {
            total_bytes: bytes(system.f_blocks),
            used_bytes: bytes(system.f_blocks.saturating_sub(system.f_bfree)),
            free_bytes: bytes(system.f_bavail),
        })
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn with_path(problem: FileProblem) -> io::Error {
    let text = problem.to_string();
    io::Error::new(problem.into_io().kind(), text)
}

fn in_words(verb: &str, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("cannot {verb}: {error}"))
}
