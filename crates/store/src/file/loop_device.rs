//! Loop devices, which show files as block devices.
#![allow(unsafe_code)]

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// `LOOP_GET_STATUS64` of linux/loop.h.
const GET_STATUS: Opcode = 0x4C05;

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct Status {
    /// The device and inode of the file, as stat(2) has them.
    device: u64,
    inode: u64,
    /// Offset, limit, flags, names and keys.
    _rest: [u64; 27],
}

const _: () = assert!(size_of::<Status>() == 232);

/// The loop device that shows `file` as a disk.
pub(super) fn over(file: &File) -> io::Result<Option<String>> {
    let metadata = file.metadata()?;
    // Where there is no sysfs, nothing is known of loop devices.
    let Ok(devices) = fs::read_dir("/sys/block") else { return Ok(None) };
    let names = devices.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut loops = names.filter(|name| name.starts_with("loop"));
    Ok(loops.find(|name| shows(name, &metadata)).map(|name| format!("/dev/{name}")))
}

/// Whether a loop device shows the file. The device knows that; users who may not ask it compare paths, which miss a
/// file that was renamed or has several names.
fn shows(name: &str, file: &Metadata) -> bool {
    let Ok(backing) = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")) else { return false };
    match status(name) {
        Ok(status) => (status.device, status.inode) == (file.dev(), file.ino()),
        Err(_) => fs::metadata(backing.trim_end_matches('\n'))
            .is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino())),
    }
}

fn status(name: &str) -> Result<Status, Errno> {
    let device =
        File::open(format!("/dev/{name}")).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    // SAFETY: the request writes a `loop_info64`, whose layout is that of `Status`, and any bytes are valid numbers.
    unsafe { ioctl(device, Getter::<GET_STATUS, Status>::new()) }
}
