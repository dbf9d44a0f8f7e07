//! The extents of files: where their blocks are, and whether others have them too.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::vec;

use rustix::io::Errno;
use rustix::ioctl::{Direction, Opcode, Updater, ioctl, opcode};

/// `FS_IOC_FIEMAP` of linux/fs.h, whose size is that of a `struct fiemap` without extents.
const FIEMAP: Opcode = opcode::from_components(Direction::ReadWrite, b'f', 11, 32);

/// The extents of one call.
const EXTENTS: usize = 128;

/// `FIEMAP_EXTENT_UNWRITTEN`.
const UNWRITTEN: u32 = 0x800;

/// `FIEMAP_EXTENT_SHARED`.
const SHARED: u32 = 0x2000;

/// Flags of extents whose place does not tell what they hold: `UNKNOWN`, `DELALLOC`, `ENCODED`, `DATA_ENCRYPTED`,
/// `NOT_ALIGNED`, `DATA_INLINE` and `DATA_TAIL`.
const VAGUE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;

/// A range of a file that has space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The range of the file, in bytes.
    pub range: Range<u64>,
    /// The place of its first byte on the medium, in bytes. `None` when it is not known, or when the bytes do not stand
    /// there as they are.
    pub place: Option<u64>,
    /// Whether it was never written, and reads as zeroes.
    pub is_unwritten: bool,
    /// Whether other files, or other ranges of the file, have the space too.
    pub is_shared: bool,
}

/// The extents of a range of a file, in the order of their offsets. They are read piece by piece, so a file that
/// changes meanwhile shows some extents of before and some of after the change.
///
/// Bytes in the page cache may have no extent yet. Synchronize the file first.
#[derive(Debug)]
pub struct Extents<'f> {
    file: &'f File,
    /// The bytes that were not asked for yet.
    rest: Range<u64>,
    batch: vec::IntoIter<Extent>,
}

impl<'f> Extents<'f> {
    /// The extents of this range of a file. An extent that reaches beyond the range is cut.
    pub fn of(file: &'f File, range: Range<u64>) -> Self {
        Self { file, rest: range, batch: Vec::new().into_iter() }
    }

    /// Asks the system for the next extents.
    fn ask(&mut self) -> Result<(), Errno> {
        let map = map(self.file, self.rest.start, self.rest.end - self.rest.start)?;
        let found = map.extents.get(..map.mapped_extents as usize).ok_or(Errno::IO)?;
        let mut batch = Vec::with_capacity(found.len());
        for extent in found {
            let end = extent.logical.checked_add(extent.len).ok_or(Errno::IO)?.min(self.rest.end);
            let start = extent.logical.max(self.rest.start);
            if start < end {
                batch.push(extent.within(start..end));
                self.rest.start = end;
            }
        }
        if found.len() < EXTENTS || batch.is_empty() {
            self.rest.start = self.rest.end;
        }
        self.batch = batch.into_iter();
        Ok(())
    }
}

/// An error ends the extents. Its kind is `Unsupported` where the file system does not tell them.
impl Iterator for Extents<'_> {
    type Item = io::Result<Extent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.len() == 0
            && !self.rest.is_empty()
            && let Err(error) = self.ask()
        {
            self.rest.start = self.rest.end;
            return Some(Err(error.into()));
        }
        self.batch.next().map(Ok)
    }
}

/// `struct fiemap` of linux/fiemap.h, with room for extents.
#[repr(C)]
struct Map {
    start: u64,
    len: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    _reserved: u32,
    extents: [MapExtent; EXTENTS],
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MapExtent {
    logical: u64,
    physical: u64,
    len: u64,
    _reserved: [u64; 2],
    flags: u32,
    _more: [u32; 3],
}

impl MapExtent {
    /// The part of the extent in a range of the file that it covers.
    fn within(&self, range: Range<u64>) -> Extent {
        let place = self.physical.checked_add(range.start - self.logical);
        Extent {
            place: place.filter(|_| self.flags & VAGUE == 0),
            is_unwritten: self.flags & UNWRITTEN != 0,
            is_shared: self.flags & SHARED != 0,
            range,
        }
    }
}

const _: () = assert!(size_of::<MapExtent>() == 56 && size_of::<Map>() == 32 + EXTENTS * 56);

fn map(file: &File, start: u64, len: u64) -> Result<Map, Errno> {
    let none = MapExtent { logical: 0, physical: 0, len: 0, _reserved: [0; 2], flags: 0, _more: [0; 3] };
    let mut map = Map {
        start,
        len,
        flags: 0,
        mapped_extents: 0,
        extent_count: EXTENTS as u32,
        _reserved: 0,
        extents: [none; EXTENTS],
    };
    // SAFETY: the request reads and writes a `fiemap` with as many extents as it says, whose layout is that of `Map`,
    // and any bytes are valid numbers.
    unsafe { ioctl(file, Updater::<FIEMAP, Map>::new(&mut map)) }?;
    Ok(map)
}
