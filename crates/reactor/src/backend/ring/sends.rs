//! Sends of a batch, by one call.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::opcode;
use io_uring::types::Fd;
use rustix::io::{Errno, ioctl_fionbio};

use super::{Ring, Token};
use crate::backend::{MAX_SENDS, NO_RESULTS, Outgoing, SendResults, send_by_calls};
use crate::sys::Moved;

const EMPTY_HEADER: libc::msghdr = libc::msghdr {
    msg_name: std::ptr::null_mut(),
    msg_namelen: 0,
    msg_iov: std::ptr::null_mut(),
    msg_iovlen: 0,
    msg_control: std::ptr::null_mut(),
    msg_controllen: 0,
    msg_flags: 0,
};

impl Ring {
    /// Sends by calls what lies in a file: the system splices it through a pipe of its own, which a ring would have to
    /// be told in three steps.
    ///
    /// sendfile(2) has no flag that keeps it from waiting for room in the socket, so the socket says it, and for the
    /// time of the call alone: for a ring it would mean that armed requests shall fail rather than wait.
    fn send_file(&self, outgoing: &Outgoing<'_>) -> Moved {
        self.counters.system_calls.add(2);
        let before = ioctl_fionbio(outgoing.socket, true);
        let moved = before.map(|()| send_by_calls(outgoing, &self.counters));
        moved
            .and_then(|moved| ioctl_fionbio(outgoing.socket, false).map(|()| moved))
            .unwrap_or_else(|error| Moved::Failed(error.into()))
    }

    /// Does each of `sends` once, all by one call, which also lets the system do what it has for us.
    pub(in crate::backend) fn send(&mut self, sends: &[Option<Outgoing<'_>>; MAX_SENDS]) -> io::Result<SendResults> {
        let mut headers: [libc::msghdr; MAX_SENDS] = [EMPTY_HEADER; MAX_SENDS];
        let mut results = NO_RESULTS;
        let mut missing = 0;
        // Room for all of them, so that no call is made before the last is queued.
        while self.free_submissions() < MAX_SENDS {
            self.enter(0, None)?;
        }
        for ((send, header), index) in sends.iter().zip(&mut headers).zip(0..) {
            let Some(outgoing) = send else { continue };
            if outgoing.list.file().is_some() {
                results[index as usize] = Some(self.send_file(outgoing));
                continue;
            }
            let Outgoing { socket, list } = outgoing;
            let (socket, flags) = (Fd(socket.as_raw_fd()), (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as u32);
            header.msg_iov = list.slices().as_ptr().cast_mut().cast();
            header.msg_iovlen = list.slices().len();
            let entry = opcode::SendMsg::new(socket, header).flags(flags).build().user_data(Token::Send(index).pack());
            // SAFETY: header and slices are borrowed until this function returns, which is after the completion: from
            // the first push on nothing returns early, for there is room and pushing makes no call.
            unsafe { self.push(&entry)? };
            missing += 1;
        }
        let mut told = self.completed.len();
        while missing > 0 {
            if let Err(error) = self.enter(1, None) {
                // The system may still have our slices, and nothing tells when it lets go of them.
                tracing::error!(%error, "the ring is broken in the middle of a send");
                std::process::abort();
            }
            for entry in &self.completed[told..] {
                if let Token::Send(index) = Token::unpack(entry.user_data())
                    && let Some(result) = results.get_mut(index as usize)
                {
                    *result = Some(moved(entry.result()));
                    missing -= 1;
                }
            }
            told = self.completed.len();
        }
        Ok(results)
    }
}

fn moved(result: i32) -> Moved {
    match result {
        len @ 0.. => Moved::Bytes(len.unsigned_abs() as usize),
        errno => match Errno::from_raw_os_error(-errno) {
            Errno::AGAIN | Errno::INTR => Moved::WouldBlock,
            error => Moved::Failed(error.into()),
        },
    }
}
