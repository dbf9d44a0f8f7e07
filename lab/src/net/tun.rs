//! The device at one end of the link: what the system sends into it is read here, what is written arrives there.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::sys;

const DEVICE: &str = "/dev/net/tun";

/// A TUN device, which carries IP packets. It vanishes when it is closed.
pub(crate) struct Tun {
    file: File,
}

impl Tun {
    /// Makes a device in the network namespace of the calling thread.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(DEVICE).with_context(|| {
            format!("cannot open {DEVICE}: load the module (modprobe tun), or give the container this device")
        })?;
        sys::attach_tun(&file, name).context("cannot make a TUN device: root needs CAP_NET_ADMIN for it")?;
        Ok(Self { file })
    }

    /// Reads the next packet. `None` if there is none now.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.file, &mut *buffer) {
                Ok(len) => return Ok(Some(len)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Hands a packet to the system. False if the system did not take it.
    pub(crate) fn write(&self, packet: &[u8]) -> bool {
        loop {
            match rustix::io::write(&self.file, packet) {
                Err(Errno::INTR) => {}
                outcome => return outcome.is_ok(),
            }
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
