//! System calls of zero-copy for which no safe wrapper exists: MSG_ZEROCOPY and `TCP_ZEROCOPY_RECEIVE`.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::ptr;

use anyhow::{Context, Result};

/// Allows MSG_ZEROCOPY on a socket.
pub(super) fn allow_zero_copy(stream: &TcpStream) -> Result<()> {
    set_option(stream, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1).context("the system has no MSG_ZEROCOPY")
}

/// Sends some bytes that the system does not copy. They may not change until [`reap`] has been told, which a sender of
/// constant bytes needs not look at. With `ends`, nothing that is sent later shares a segment with them.
pub(super) fn send_zero_copy(stream: &TcpStream, bytes: &[u8], ends: bool) -> Result<usize> {
    let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL | if ends { libc::MSG_EOR } else { 0 };
    loop {
        match send(stream, bytes, flags) {
            // The system's memory for notifications is full.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => reap(stream, true)?,
            sent => return sent.context("cannot send"),
        }
    }
}

/// Sends bytes that share no segment with what is sent later.
pub(super) fn send_apart(stream: &TcpStream, bytes: &[u8]) -> Result<usize> {
    send(stream, bytes, libc::MSG_NOSIGNAL | libc::MSG_EOR).context("cannot send")
}

fn send(stream: &TcpStream, bytes: &[u8], flags: i32) -> io::Result<usize> {
    // SAFETY: the call reads `bytes`. With MSG_ZEROCOPY the system reads them later, too: it keeps their pages, and
    // callers let them be.
    let sent = unsafe { libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Takes all notifications of MSG_ZEROCOPY that have come; waits for one if asked to.
pub(super) fn reap(stream: &TcpStream, wait: bool) -> Result<()> {
    if wait {
        let mut poll = libc::pollfd { fd: stream.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one `pollfd`, which outlives the call. POLLERR is always reported.
        unsafe { libc::poll(&raw mut poll, 1, 1000) };
    }
    loop {
        let mut control = [0_u64; 16];
        // SAFETY: all zeroes are a valid, empty `msghdr`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the message has no buffers but `control`, which outlives the call.
        let outcome =
            unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
        if outcome < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error.into()) };
        }
    }
}

fn set_option(stream: &TcpStream, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option is an int, and it outlives the call.
    let result = unsafe { libc::setsockopt(stream.as_raw_fd(), level, option, (&raw const value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reports received bytes once that many are there.
pub(super) fn set_low_water(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    set_option(stream, libc::SOL_SOCKET, libc::SO_RCVLOWAT, libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX))
}

/// Addresses at which the system shows pages that it has received.
pub(super) struct Window {
    at: *mut libc::c_void,
    len: usize,
}

/// The fate of a request to show pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shown {
    /// Bytes that are shown, in whole pages.
    pub(super) mapped: usize,
    /// Bytes that follow them and have to be copied.
    pub(super) to_copy: usize,
}

/// `struct tcp_zerocopy_receive`, as far as Linux 5.9 has it.
#[repr(C)]
#[derive(Default)]
struct ZeroCopyReceive {
    address: u64,
    length: u32,
    recv_skip_hint: u32,
    inq: u32,
    err: i32,
}

impl Window {
    pub(super) fn new(stream: &TcpStream, len: usize) -> Result<Self> {
        let protection = libc::PROT_READ;
        // SAFETY: a new mapping at a place that the system chooses.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, stream.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("the system maps no received pages");
        }
        Ok(Self { at, len })
    }

    /// Shows up to `len` bytes that have been received at `offset`, in the place of what was shown there.
    pub(super) fn show(&mut self, stream: &TcpStream, offset: usize, len: usize) -> Result<Shown> {
        /// `TCP_ZEROCOPY_RECEIVE`.
        const OPTION: i32 = 35;
        assert!(offset + len <= self.len, "the window is as long as a payload");
        let mut request =
            ZeroCopyReceive { address: (self.at as usize + offset) as u64, length: len as u32, ..Default::default() };
        let mut size = size_of_val(&request) as libc::socklen_t;
        // SAFETY: the call reads and writes the request, and replaces pages of the mapping, to which no reference
        // exists.
        let outcome = unsafe {
            libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, OPTION, (&raw mut request).cast(), &raw mut size)
        };
        if outcome != 0 {
            return Err(io::Error::last_os_error()).context("the system shows no received pages");
        }
        Ok(Shown { mapped: request.length as usize, to_copy: request.recv_skip_hint as usize })
    }

    /// A byte of what is shown.
    pub(super) fn byte(&self, offset: usize) -> u8 {
        assert!(offset < self.len, "inside of the window");
        // SAFETY: the caller has been told that this page is shown, and the mapping lives as long as this value.
        unsafe { self.at.cast::<u8>().add(offset).read_volatile() }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nothing refers to it.
        unsafe { libc::munmap(self.at, self.len) };
    }
}
