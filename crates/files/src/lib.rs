//! Reads files that are named from outside: by an argument, a configuration or a request. Replaces files of a program's
//! own.
//!
//! Layer 0: over no other crate; under api, csi, dashboard, iscsi-initiator, keys, lunette, pools, state, store,
//! targetcli, tgt, tls, volume.
//!
//! A name from outside may lead to a FIFO without a writer, to `/dev/zero`, or to a file that grows while it is read.
//! So a file is checked before it is opened, opened without waiting, must be regular, and is read up to a limit. Errors
//! name the path, the reason and the remedy.
//!
//! ```
//! use lunette_files::{Content, read_text};
//!
//! const GREETING: Content = Content { name: "a greeting", max_bytes: 100 };
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("greeting");
//! std::fs::write(&path, "Hello")?;
//! assert_eq!(read_text(&path, GREETING)?, "Hello");
//! let error = read_text("/dev/zero".as_ref(), GREETING).unwrap_err();
//! assert_eq!(error.to_string(), "/dev/zero: this is a character device; name a regular file that holds a greeting");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod problem;
mod public;
mod replace;
mod stamp;

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use zeroize::{Zeroize, Zeroizing};

pub use problem::{FileProblem, Reason, remedy, remedy_to_start};
pub use public::warn_if_public;
pub use replace::{UNFINISHED, replace, replace_content};
pub use stamp::Stamp;

/// The expected content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// The name of the content in messages, with its article: `a secret`.
    pub name: &'static str,
    /// The longest that is read.
    pub max_bytes: usize,
}

/// Bytes that are read at once.
const PIECE_BYTES: usize = 4096;

/// Opens a regular file for reading, without waiting.
///
/// # Errors
///
/// When the path leads to no regular file, or the system refuses.
pub fn open(path: &Path, content: Content) -> Result<File, FileProblem> {
    open_with(path, content, OpenOptions::new().read(true))
}

/// Opens a regular file that is there, without waiting, with these options.
///
/// # Errors
///
/// The errors of [`open`].
pub fn open_with(path: &Path, content: Content, options: &OpenOptions) -> Result<File, FileProblem> {
    let failed = |error| FileProblem::new(path, content, Reason::System(error));
    let check = |kind: FileType| match name_of(kind) {
        Some(name) => Err(FileProblem::new(path, content, Reason::NotRegular(name))),
        None => Ok(()),
    };
    // Before it is opened: to open some devices is to do something. Once more afterwards, because another file may have
    // taken its place.
    check(fs::metadata(path).map_err(failed)?.file_type())?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.clone().custom_flags(flags.bits().cast_signed()).open(path).map_err(failed)?;
    check(file.metadata().map_err(failed)?.file_type())?;
    Ok(file)
}

/// The bytes of a file.
///
/// # Errors
///
/// The errors of [`open`], and a file that is longer than its content may be.
pub fn read(path: &Path, content: Content) -> Result<Vec<u8>, FileProblem> {
    let mut bytes = Vec::new();
    fill(&mut bytes, &open(path, content)?, path, content)?;
    Ok(bytes)
}

/// The text of a file.
///
/// # Errors
///
/// The errors of [`read`], and content that is not UTF-8.
pub fn read_text(path: &Path, content: Content) -> Result<String, FileProblem> {
    String::from_utf8(read(path, content)?)
        .map_err(|error| FileProblem::new(path, content, Reason::NotText(error.utf8_error().valid_up_to())))
}

/// The text of a file that an argument of the command names. Pipes that the process was given are read to their end
/// too, as for `/dev/stdin` and `<(…)`.
///
/// # Errors
///
/// The errors of [`read_text`].
pub fn read_argument(path: &Path, content: Content) -> Result<String, FileProblem> {
    if !is_given_pipe(path) {
        return read_text(path, content);
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| FileProblem::of(path, content, error))?;
    fill(&mut bytes, &file, path, content)?;
    if bytes.is_empty() {
        return Err(FileProblem::new(path, content, Reason::Ended));
    }
    String::from_utf8(bytes)
        .map_err(|error| FileProblem::new(path, content, Reason::NotText(error.utf8_error().valid_up_to())))
}

/// Whether the path means a pipe among the descriptors of this process, whose content can be read once.
pub fn is_given_pipe(path: &Path) -> bool {
    let is_own = path == Path::new("/dev/stdin")
        || matches!(path.parent().and_then(Path::to_str), Some("/dev/fd" | "/proc/self/fd"));
    is_own && fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// The bytes of a secret, in memory that is overwritten afterwards. The log has a warning when other users may read the
/// file.
///
/// # Errors
///
/// The errors of [`read`].
pub fn read_secret(path: &Path, content: Content) -> Result<Zeroizing<Vec<u8>>, FileProblem> {
    let file = open(path, content)?;
    warn_if_public(path, content, &file);
    // With all of its capacity from the start, the vector never moves and leaves no copy behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(content.max_bytes));
    fill(&mut bytes, &file, path, content)?;
    Ok(bytes)
}

/// Reads all of an open file.
///
/// # Errors
///
/// The errors of [`read`].
pub fn fill(bytes: &mut Vec<u8>, mut file: &File, path: &Path, content: Content) -> Result<(), FileProblem> {
    let mut piece = Zeroizing::new([0; PIECE_BYTES]);
    loop {
        let len = match file.read(&mut *piece) {
            Ok(0) => return Ok(()),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(FileProblem::new(path, content, Reason::System(error))),
        };
        if bytes.len() + len > content.max_bytes {
            return Err(FileProblem::new(path, content, Reason::TooLong));
        }
        bytes.extend_from_slice(&piece[..len]);
        piece.zeroize();
    }
}

/// The name of a kind of file that is not regular.
fn name_of(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        return None;
    }
    let kinds = [
        (kind.is_dir(), "a directory"),
        (kind.is_fifo(), "a FIFO"),
        (kind.is_socket(), "a socket"),
        (kind.is_char_device(), "a character device"),
        (kind.is_block_device(), "a block device"),
    ];
    Some(kinds.into_iter().find(|(is, _)| *is).map_or("no regular file", |(_, name)| name))
}

#[cfg(test)]
mod tests;
