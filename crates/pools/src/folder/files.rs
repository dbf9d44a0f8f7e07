//! The operations on files that the order of a change is made of.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

use lunette_store::Extent;

use crate::pool::PoolSpace;

/// The files of a pool. Paths are relative to its folder. Tests have files whose power fails.
///
/// # Errors
///
/// The methods give the error of the system, whose text names the operation and the file.
pub trait Files: Send + Sync + fmt::Debug {
    /// An open image.
    type Image: Send + Sync + fmt::Debug;

    /// The names in a folder that are UTF-8, in no order.
    fn names(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// The kind of what has this name; `None` when there is nothing. Links are not followed.
    fn kind(&self, path: &Path) -> io::Result<Option<Kind>>;

    /// The content of a record; `None` when there is no such file.
    fn read(&self, file: &Path) -> io::Result<Option<String>>;

    /// Creates a file with this content, which is on stable storage then. Its name is after [`sync`](Self::sync).
    fn write(&self, file: &Path, content: &str) -> io::Result<()>;

    /// Creates a folder.
    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Gives a file or folder another name, which is free: else the error is of the kind `AlreadyExists`. It happens as
    /// a whole or not at all, and is on stable storage after the `sync` of both folders.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file the name of another one, which goes; otherwise as [`rename`](Self::rename).
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;

    /// Brings the names in a folder to stable storage.
    fn sync(&self, folder: &Path) -> io::Result<()>;

    /// Creates an empty image, which others may only read if it `is_fixed`.
    fn make_image(&self, path: &Path, is_fixed: bool) -> io::Result<Self::Image>;

    /// Opens an image for reading.
    fn open_image(&self, path: &Path) -> io::Result<Self::Image>;

    /// Opens an image for reading and writing.
    fn change_image(&self, path: &Path) -> io::Result<Self::Image>;

    /// The length of an image in bytes.
    fn len(&self, image: &Self::Image) -> io::Result<u64>;

    /// Bytes of a block of an image: blocks are shared as a whole.
    fn block_bytes(&self, image: &Self::Image) -> io::Result<u64>;

    /// Gives an image another length. New bytes are zeroes.
    fn set_len(&self, image: &Self::Image, len_bytes: u64) -> io::Result<()>;

    /// Sets space aside for a range of an image, also behind its end, and changes neither content nor length.
    fn allocate(&self, image: &Self::Image, range: Range<u64>) -> io::Result<()>;

    /// Lets an image have the content of another, whose blocks it shares. It keeps a greater length. The error is of
    /// the kind `Unsupported` where files cannot share blocks.
    fn clone_into(&self, from: &Self::Image, into: &Self::Image) -> io::Result<()>;

    /// Lets a range of an image have the content of another one there, whose blocks it shares. Both are as long. The
    /// range begins and ends at a block, or ends where they do.
    fn clone_range(&self, from: &Self::Image, into: &Self::Image, range: Range<u64>) -> io::Result<()>;

    /// Brings content and length of an image to stable storage.
    fn flush(&self, image: &Self::Image) -> io::Result<()>;

    /// Gives a range of an image blocks of its own, and leaves its content alone, also while others write there. Where
    /// the file system cannot, the range keeps the blocks that it has.
    fn unshare(&self, image: &Self::Image, range: Range<u64>) -> io::Result<()>;

    /// The extents of an image that is flushed, also behind its end. The error is of the kind `Unsupported` where the
    /// file system does not tell.
    fn extents<'a>(&'a self, image: &'a Self::Image) -> Box<dyn Iterator<Item = io::Result<Extent>> + 'a>;

    /// The bytes that an image occupies.
    fn allocated_bytes(&self, image: &Self::Image) -> io::Result<u64>;

    /// The space of the file system.
    fn space(&self) -> io::Result<PoolSpace>;
}

/// A kind of what has a name in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A folder.
    Folder,
    /// A file, or something else that is no folder.
    File,
}

/// Removes a file, or a folder with all that is in it. Nothing need be there.
pub(super) fn remove_all<F: Files>(files: &F, path: &Path) -> io::Result<()> {
    match files.kind(path)? {
        None => Ok(()),
        Some(Kind::File) => files.remove_file(path),
        Some(Kind::Folder) => {
            for name in files.names(path)? {
                remove_all(files, &path.join(name))?;
            }
            files.remove_folder(path)
        }
    }
}
