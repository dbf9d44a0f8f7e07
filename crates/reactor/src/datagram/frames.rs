//! Which frames of an interface a socket receives.
#![expect(unsafe_code, reason = "there is no wrapper for filters of sockets")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};

/// Four bytes that a frame's datagram has. The system drops frames without them before they cost the process anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameWord {
    /// Where they stand. A datagram that does not reach so far does not have them.
    pub at: u32,
    /// The bytes of the word, as a number in network byte order.
    pub word: u32,
}

impl FrameWord {
    /// Has `socket` receive frames with this word alone.
    pub(super) fn choose(self, socket: impl AsFd) -> io::Result<()> {
        // A program of the classic packet filter. It ends with the number of bytes that the socket takes; a load beyond
        // the frame ends it with 0.
        let program = [
            step(BPF_LD | BPF_W | BPF_ABS, self.at),
            // Over the next step when they are equal.
            sock_filter { jt: 1, ..step(BPF_JMP | BPF_JEQ, self.word) },
            step(BPF_RET, 0),
            step(BPF_RET, u32::MAX),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        let len = size_of_val(&filter) as libc::socklen_t;
        let (fd, value) = (socket.as_fd().as_raw_fd(), (&raw const filter).cast());
        // SAFETY: the option is a sock_fprog, which names the steps of `program` with their number. The system copies
        // them and writes to none.
        let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, len) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

fn step(code: u32, k: u32) -> sock_filter {
    sock_filter { code: (code | BPF_K) as u16, jt: 0, jf: 0, k }
}
