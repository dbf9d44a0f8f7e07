//! Blocks that files share: ranges of a file that have the blocks of another.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::ioctl::{Direction, Opcode, Setter, Updater, ioctl, opcode};

/// `FICLONERANGE` of linux/fs.h, whose size is that of a `struct file_clone_range`.
const FICLONERANGE: Opcode = opcode::from_components(Direction::Write, 0x94, 13, 32);

/// `FIDEDUPERANGE` of linux/fs.h, whose size is that of a `struct file_dedupe_range` without destinations.
const FIDEDUPERANGE: Opcode = opcode::from_components(Direction::ReadWrite, 0x94, 54, 24);

/// Lets a range of `into` have the blocks that `from` has there. Both ends of the range are at the bounds of a block of
/// the file system, or the end is that of both files. Bytes of the range that are not on the medium yet are brought
/// there first. The system keeps writers of either file away.
///
/// # Errors
///
/// The system's. Its kind is `Unsupported` where files cannot share blocks.
pub fn share_range(from: &File, into: &File, range: Range<u64>) -> io::Result<()> {
    let request = Sharing {
        file: i64::from(from.as_raw_fd()),
        offset: range.start,
        len: range.end.saturating_sub(range.start),
        into_offset: range.start,
    };
    if request.len == 0 {
        // To the system, no length is all that follows.
        return Ok(());
    }
    // SAFETY: the request reads a `file_clone_range`, whose layout is that of `Sharing`. The descriptor in it is open
    // as long as `from` is.
    unsafe { ioctl(into, Setter::<FICLONERANGE, Sharing>::new(request)) }?;
    Ok(())
}

/// Lets a range of `file` have the blocks that `other` has from an offset on, when both have the same bytes there. The
/// system compares them while it keeps writers away. Returns whether they were the same.
///
/// # Errors
///
/// The system's. Its kind is `Unsupported` where files cannot share blocks.
pub fn share_if_equal(other: &File, offset: u64, file: &File, range: Range<u64>) -> io::Result<bool> {
    let mut done = 0;
    let len = range.end.saturating_sub(range.start);
    while done < len {
        let mut request = Dedupe {
            offset: offset + done,
            len: len - done,
            destinations: 1,
            _reserved: [0; 3],
            file: i64::from(file.as_raw_fd()),
            file_offset: range.start + done,
            done: 0,
            status: 0,
            _more: 0,
        };
        // SAFETY: the request reads and writes a `file_dedupe_range` with as many destinations as it says, whose layout
        // is that of `Dedupe`, and any bytes are valid numbers. The descriptor in it is open as long as `file` is.
        unsafe { ioctl(other, Updater::<FIDEDUPERANGE, Dedupe>::new(&mut request)) }?;
        match request.status {
            0 if request.done > 0 => done = done.saturating_add(request.done),
            // FILE_DEDUPE_RANGE_DIFFERS
            1 => return Ok(false),
            0 => return Err(Errno::INVAL.into()),
            error => return Err(io::Error::from_raw_os_error(error.saturating_neg())),
        }
    }
    Ok(true)
}

/// `struct file_clone_range` of linux/fs.h.
#[repr(C)]
struct Sharing {
    file: i64,
    offset: u64,
    len: u64,
    into_offset: u64,
}

/// `struct file_dedupe_range` of linux/fs.h, with one `struct file_dedupe_range_info`.
#[repr(C)]
struct Dedupe {
    offset: u64,
    len: u64,
    destinations: u16,
    _reserved: [u16; 3],
    file: i64,
    file_offset: u64,
    done: u64,
    status: i32,
    _more: u32,
}

const _: () = assert!(size_of::<Sharing>() == 32 && size_of::<Dedupe>() == 24 + 32);
