//! The ranges of a file that have no space. Seeking does not tell them apart from space that was never written.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;

use rustix::io::Errno;
use rustix::ioctl::{Direction, Opcode, Updater, ioctl, opcode};

/// `FS_IOC_FIEMAP` of linux/fs.h, whose size is that of a `struct fiemap` without extents.
const FIEMAP: Opcode = opcode::from_components(Direction::ReadWrite, b'f', 11, 32);

/// The extents of one call.
const EXTENTS: usize = 128;

/// The most ranges that are remembered.
const MAX_RANGES: usize = 1 << 16;

/// `struct fiemap` of linux/fiemap.h, with room for extents.
#[repr(C)]
struct Map {
    start: u64,
    len: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    _reserved: u32,
    extents: [Extent; EXTENTS],
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Extent {
    logical: u64,
    physical: u64,
    len: u64,
    _reserved: [u64; 2],
    flags: u32,
    _more: [u32; 3],
}

const _: () = assert!(size_of::<Extent>() == 56 && size_of::<Map>() == 32 + EXTENTS * 56);

/// The ranges between two offsets that have no space. `None` where the system does not tell, or there are too many.
pub(super) fn without_space(file: &File, from: u64, to: u64) -> Option<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    let mut next = from;
    while next < to {
        let map = map(file, next, to - next).ok()?;
        let extents = map.extents.get(..map.mapped_extents as usize)?;
        for extent in extents {
            if extent.logical > next {
                ranges.push(next..extent.logical.min(to));
            }
            next = next.max(extent.logical.checked_add(extent.len)?);
        }
        if ranges.len() > MAX_RANGES {
            return None;
        }
        if extents.len() < EXTENTS {
            break;
        }
    }
    if next < to {
        ranges.push(next..to);
    }
    Some(ranges)
}

fn map(file: &File, start: u64, len: u64) -> Result<Map, Errno> {
    let none = Extent { logical: 0, physical: 0, len: 0, _reserved: [0; 2], flags: 0, _more: [0; 3] };
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
