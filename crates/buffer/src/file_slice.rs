//! Bytes that stay in their file.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// A range of a file that is handed on instead of a copy of its bytes: the system sends it out of its page cache.
///
/// What is sent is what the file holds at that moment, also when a byte is sent a second time.
#[derive(Debug, Clone)]
pub struct FileSlice {
    file: Arc<File>,
    offset: u64,
    len: usize,
}

impl FileSlice {
    /// `len` bytes from byte `offset` on. Sending them fails if the file is shorter.
    pub fn new(file: Arc<File>, offset: u64, len: usize) -> Self {
        Self { file, offset, len }
    }

    /// The file that holds the bytes.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The position of the first byte in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes `range` of this slice, cut where the slice ends.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let end = range.end.min(self.len);
        let start = range.start.min(end);
        Self { file: Arc::clone(&self.file), offset: self.offset + start as u64, len: end - start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_of_a_slice_stays_within_it() {
        let file = Arc::new(File::open("/dev/null").unwrap());
        let whole = FileSlice::new(file, 4096, 100);
        let part = whole.slice(10..50).slice(5..1000);
        assert_eq!((part.offset(), part.len()), (4096 + 15, 35));
        assert!(part.slice(70..90).is_empty());
    }
}
