//! Locks against other programs that use the same file or device.
//!
//! Programs lock in different ways, and each sees only its own. So a writable disk takes two kinds of lock and looks
//! for a third: `flock`, as other servers of Lunette take it; byte locks that belong to the open file (`F_OFD_SETLK`),
//! on the bytes that QEMU uses; and any write lock of a record by another program. Loop devices and
//! swap space take none, so they are looked for.

use std::fs::{File, TryLockError};
use std::io;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::fallocate;

use super::op::{PUNCH, retry};
use super::{holders, loop_device};

/// A byte from here on is locked for each permission that a program of QEMU uses.
const USED_BASE: i64 = 100;

/// A byte from here on is locked for each permission that a program of QEMU does not leave to others.
const UNSHARED_BASE: i64 = 200;

/// Permissions of QEMU by their bit: to read, to write, to change the length.
const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// The operations of a writable disk, which it does not leave to others.
const USED: [i64; 3] = [READ, WRITE, RESIZE];
const UNSHARED: [i64; 2] = [WRITE, RESIZE];

/// Why a lock was not taken.
#[derive(Debug)]
pub(super) enum NotLocked {
    /// Another program has the file; its process, where the system says so.
    Held(Option<i32>),
    /// Something else has it, which this text names.
    By(String),
    Failed(io::Error),
}

impl From<io::Error> for NotLocked {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Takes all locks of a writable file. [`release`] gives them back, even some of them.
pub(super) fn lock_file(file: &File) -> Result<(), NotLocked> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(NotLocked::Held(None)),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    lock_bytes(file)?;
    if is_swapped_to(file)? {
        return Err(NotLocked::By(holders::SWAPPING.into()));
    }
    match loop_device::over(file)? {
        Some(device) => Err(NotLocked::By(format!("the loop device {device}"))),
        None => Ok(()),
    }
}

/// Takes the byte locks, which programs also take on block devices. `flock` on a device is udev's.
pub(super) fn lock_bytes(file: &File) -> Result<(), NotLocked> {
    let locked = USED.map(|byte| USED_BASE + byte).into_iter().chain(UNSHARED.map(|byte| UNSHARED_BASE + byte));
    for byte in locked {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&record(libc::F_RDLCK, byte, 1))) {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => return Err(holder(file, byte, 1, libc::F_RDLCK)),
            // A file system without such locks.
            Err(Errno::EINVAL | Errno::ENOLCK | Errno::ENOSYS | Errno::EOPNOTSUPP) => return Ok(()),
            Err(error) => return Err(NotLocked::Failed(error.into())),
        }
    }
    // As QEMU does: first lock, then look, so that of two programs that come together one sees the other.
    let refused = USED.map(|byte| UNSHARED_BASE + byte).into_iter().chain(UNSHARED.map(|byte| USED_BASE + byte));
    for byte in refused {
        look(file, byte, 1, libc::F_WRLCK)?;
    }
    look(file, 0, 0, libc::F_RDLCK)
}

/// Whether the system swaps to a file. Linux then refuses to punch holes into it, even a hole beyond its end, which
/// would change nothing. The file has no other mark.
fn is_swapped_to(file: &File) -> io::Result<bool> {
    let len_bytes = file.metadata()?.len();
    Ok(retry(|| fallocate(file, PUNCH, len_bytes, 1)) == Err(rustix::io::Errno::TXTBSY))
}

/// Releases all locks at once. Closing the file is not enough: a process that another thread is just starting still has
/// it open.
pub(super) fn release(file: &File) {
    let everything = record(libc::F_UNLCK, 0, 0);
    // Without locks there is nothing to release, and an error changes nothing.
    let _ = fcntl(file, FcntlArg::F_OFD_SETLK(&everything));
    let _ = file.unlock();
}

/// A lock of `len` bytes, or up to the end of the file for 0.
fn record(kind: i32, start: i64, len: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: len, l_pid: 0 }
}

/// Fails when another open file holds a lock that conflicts with this one.
fn look(file: &File, start: i64, len: i64, kind: i32) -> Result<(), NotLocked> {
    match holder(file, start, len, kind) {
        NotLocked::Held(Some(0)) => Ok(()),
        other => Err(other),
    }
}

/// The holder of a conflicting lock: process 0 where there is none.
fn holder(file: &File, start: i64, len: i64, kind: i32) -> NotLocked {
    let mut found = record(kind, start, len);
    match fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)) {
        Ok(_) if i32::from(found.l_type) == libc::F_UNLCK => NotLocked::Held(Some(0)),
        // Locks of an open file belong to no process.
        Ok(_) => NotLocked::Held(Some(found.l_pid).filter(|pid| *pid > 0)),
        Err(error) => NotLocked::Failed(error.into()),
    }
}
