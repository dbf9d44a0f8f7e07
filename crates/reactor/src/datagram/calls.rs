//! recvmmsg(2) and sendmmsg(2).
#![expect(unsafe_code, reason = "there are no wrappers for these system calls that take what is needed")]

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use arrayvec::ArrayVec;
use rustix::io::Errno;

use super::control::Control;
use super::list::DatagramList;
use super::names::Name;
use super::received::MessageInfo;
use super::{Address, DatagramPath};

/// Messages received by one call at most.
pub(super) const RECEIVED_MESSAGES: usize = 16;
/// Room for each: UDP and what it joins never is longer.
pub(super) const SLOT_BYTES: usize = 64 << 10;
/// Messages sent by one call.
const SENT_MESSAGES: usize = 64;

/// The facts about the messages that one call received, each in its place; `None` for one that is not for us.
pub(super) type Messages = ArrayVec<Option<MessageInfo>, RECEIVED_MESSAGES>;

/// Receives what lies ready on a socket whose own address is `local`, each message into a slot of [`SLOT_BYTES`] of
/// `buffer`: no more messages than it has slots, nor more than [`RECEIVED_MESSAGES`].
pub(super) fn receive(socket: BorrowedFd<'_>, local: Address, buffer: &mut [u8]) -> Result<Messages, Errno> {
    let slots = buffer.chunks_exact_mut(SLOT_BYTES).take(RECEIVED_MESSAGES);
    let mut slices: ArrayVec<IoSliceMut<'_>, RECEIVED_MESSAGES> = slots.map(IoSliceMut::new).collect();
    // What is not used is not made: with one request under way that would be a part of its latency.
    let mut names: ArrayVec<Name, RECEIVED_MESSAGES> = slices.iter().map(|_| Name::default()).collect();
    let mut controls: ArrayVec<Control, RECEIVED_MESSAGES> = slices.iter().map(|_| Control::new()).collect();
    let places = slices.iter_mut().zip(&mut names).zip(&mut controls);
    let mut headers: ArrayVec<libc::mmsghdr, RECEIVED_MESSAGES> = places
        .map(|((slice, name), control)| libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_name: ptr::from_mut(name).cast(),
                msg_namelen: Name::BYTES as libc::socklen_t,
                // The standard library promises that it is an iovec.
                msg_iov: ptr::from_mut(slice).cast(),
                msg_iovlen: 1,
                msg_control: control.as_mut_ptr().cast(),
                msg_controllen: Control::BYTES as _,
                ..empty_header()
            },
            msg_len: 0,
        })
        .collect();
    let count = retry(|| {
        let (first, len) = (headers.as_mut_ptr(), headers.len() as libc::c_uint);
        // SAFETY: each header names a slot, a name and room for control messages of its own, with their lengths, all of
        // which outlive the call and may be written to.
        unsafe { libc::recvmmsg(socket.as_raw_fd(), first, len, libc::MSG_DONTWAIT as _, ptr::null_mut()) }
    })?;
    let seen = headers.iter().take(count).map(|header| (header.msg_len as usize, header.msg_hdr.msg_controllen));
    let info = |(((len, control_len), name), control): (((usize, usize), &Name), &Control)| {
        let said = control.said(control_len);
        let peer = name.address()?;
        let local = match (local, said.local) {
            (Address::Udp(mut local), Some(ip)) => {
                local.set_ip(ip);
                local.into()
            }
            (local, _) => local,
        };
        let path = DatagramPath { local, peer };
        Some(MessageInfo { path, ecn: said.ecn, len, segment_len: said.segment_len.unwrap_or(len) })
    };
    Ok(seen.zip(&names).zip(&controls).map(info).collect())
}

/// The ends of a socket, which it need not be told again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) local: Address,
    /// Whom it is connected to.
    pub(super) peer: Option<Address>,
}

/// The datagrams that left by one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) messages: usize,
    pub(super) datagrams: usize,
    pub(super) bytes: usize,
}

/// Sends the datagrams of `list` from `first` on, as many as one call takes. Neighbours may be `joined`.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    ends: Ends,
    list: &DatagramList<'_>,
    first: usize,
    joined: bool,
) -> Result<Sent, Errno> {
    let mut messages = ArrayVec::<_, SENT_MESSAGES>::new();
    let mut names = ArrayVec::<_, SENT_MESSAGES>::new();
    let mut controls = ArrayVec::<_, SENT_MESSAGES>::new();
    let mut next = first;
    while next < list.len() && !messages.is_full() {
        let message = list.message(next, joined);
        let path = list.path(next);
        let (name, name_len) = if ends.peer == Some(path.peer) { (Name::default(), 0) } else { Name::of(&path.peer) };
        let mut control = Control::new();
        if let Some(ip) = path.local_ip()
            && ends.local != path.local
        {
            control.set_source(ip);
        }
        if message.datagrams.len() > 1 {
            control.set_segment_len(message.segment_len as u16);
        }
        next = message.datagrams.end;
        names.push((name, name_len));
        controls.push(control);
        messages.push(message);
    }
    let places = messages.iter().zip(&mut names).zip(&mut controls);
    let mut headers: ArrayVec<libc::mmsghdr, SENT_MESSAGES> = places
        .map(|((message, (name, name_len)), control)| {
            let slices = list.slices(message.slices.clone());
            let msg_hdr = libc::msghdr {
                msg_name: if *name_len > 0 { ptr::from_mut(name).cast() } else { ptr::null_mut() },
                msg_namelen: *name_len as libc::socklen_t,
                // The standard library promises that an IoSlice is an iovec.
                msg_iov: slices.as_ptr().cast_mut().cast(),
                msg_iovlen: slices.len() as _,
                msg_control: if control.len() > 0 { control.as_mut_ptr().cast() } else { ptr::null_mut() },
                msg_controllen: control.len() as _,
                ..empty_header()
            };
            libc::mmsghdr { msg_hdr, msg_len: 0 }
        })
        .collect();
    let count = retry(|| {
        let (first, len) = (headers.as_mut_ptr(), headers.len() as libc::c_uint);
        // SAFETY: each header names slices of the list, a name and control messages, with their lengths, all of which
        // outlive the call. The system writes to the headers alone.
        unsafe { libc::sendmmsg(socket.as_raw_fd(), first, len, (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _) }
    })?;
    let left = messages.iter().take(count);
    Ok(left.fold(Sent::default(), |sent, message| Sent {
        messages: sent.messages + 1,
        datagrams: sent.datagrams + message.datagrams.len(),
        bytes: sent.bytes + message.len,
    }))
}

fn empty_header() -> libc::msghdr {
    // SAFETY: all zeroes is a valid header without anything; its padding, which some systems have, cannot be named.
    unsafe { std::mem::zeroed() }
}

fn retry(mut call: impl FnMut() -> libc::c_int) -> Result<usize, Errno> {
    loop {
        match usize::try_from(call()) {
            Ok(count) => return Ok(count),
            Err(_) => match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
                Errno::INTR => {}
                errno => return Err(errno),
            },
        }
    }
}
