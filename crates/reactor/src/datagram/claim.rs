//! One server for each interface: frames have no ports, so two would answer the same clients.
//!
//! The claim is a listening socket at an abstract address of unix(7), whose name has the interface's index. Such names
//! are those of a network namespace, as indexes are, and the system forgets one with its socket: nothing is left behind
//! by a process that was killed. Other users can take the name, too, and keep nothing from anyone: the system tells of
//! which user the holder is.

#![expect(
    unsafe_code,
    reason = "rustix does not know that the holder's process may be out of sight (unix(7), SO_PEERCRED)"
)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use rustix::process::geteuid;

/// Servers that may find the interface claimed before they can no longer be told by whom: each leaves a connection that
/// is not accepted, up to `net.core.somaxconn`.
const MAX_REFUSED: i32 = 4096;

/// The right to serve on an interface, which this process has until it is dropped.
#[derive(Debug)]
pub struct InterfaceClaim {
    interface: u32,
    _socket: OwnedFd,
}

impl InterfaceClaim {
    /// Claims the interface with that index. `None` when another user has put a socket in the way, which is logged:
    /// that user's processes are not let keep a server from its interface.
    ///
    /// # Errors
    ///
    /// When a server has claimed it, of this user or of root: [`io::ErrorKind::AddrInUse`].
    pub fn take(interface: u32) -> io::Result<Option<Self>> {
        let name = SocketAddrUnix::new_abstract_name(format!("lunette ecl eth {interface}").as_bytes())?;
        let socket = open()?;
        match bind(&socket, &name) {
            Ok(()) => {
                listen(&socket, MAX_REFUSED)?;
                Ok(Some(Self { interface, _socket: socket }))
            }
            Err(Errno::ADDRINUSE) => match holder(&name) {
                Some(holder) if holder.uid == 0 || holder.uid == geteuid().as_raw() => {
                    Err(io::Error::new(io::ErrorKind::AddrInUse, holder.refusal()))
                }
                holder => {
                    let user = holder.map_or(-1, |holder| i64::from(holder.uid));
                    tracing::warn!(
                        user,
                        "another user's process keeps servers on an interface from finding each other"
                    );
                    Ok(None)
                }
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The index of the interface.
    pub fn interface(&self) -> u32 {
        self.interface
    }
}

/// The process that listens at the address of a claim.
struct Holder {
    /// 0 when it is in another namespace of processes.
    pid: i32,
    uid: u32,
}

impl Holder {
    fn refusal(&self) -> String {
        const WHY: &str = "frames have no ports, so an interface has one server";
        match self.pid {
            pid if pid.cast_unsigned() == std::process::id() => format!("this server serves on it already; {WHY}"),
            0 => format!("another server serves on it; {WHY}"),
            pid => format!("process {pid} serves on it; {WHY}"),
        }
    }
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// `None` when it cannot be told: it does not listen, or its queue is full.
fn holder(name: &SocketAddrUnix) -> Option<Holder> {
    let socket = open().ok()?;
    connect(&socket, name).ok()?;
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&credentials) as libc::socklen_t;
    let (fd, into) = (socket.as_raw_fd(), (&raw mut credentials).cast());
    // SAFETY: the system writes no more than `len` bytes, which the structure has, and both outlive the call.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut len) };
    (result == 0).then_some(Holder { pid: credentials.pid, uid: credentials.uid })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index that no interface has.
    const INTERFACE: u32 = u32::MAX - 7;

    #[test]
    fn an_interface_has_one_claim_at_a_time() {
        let claim = InterfaceClaim::take(INTERFACE).unwrap().expect("the name is free");
        // Each attempt connects to the holder, which accepts none of them.
        for _ in 0..10 {
            let error = InterfaceClaim::take(INTERFACE).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            assert!(error.to_string().contains("this server serves on it already"), "{error}");
        }
        assert!(InterfaceClaim::take(INTERFACE - 1).unwrap().is_some(), "others are free");
        drop(claim);
        assert!(InterfaceClaim::take(INTERFACE).unwrap().is_some());
    }

    #[test]
    fn what_does_not_listen_is_no_server() {
        let name = SocketAddrUnix::new_abstract_name(format!("lunette ecl eth {}", INTERFACE - 2).as_bytes()).unwrap();
        let squatter = open().unwrap();
        bind(&squatter, &name).unwrap();
        assert!(InterfaceClaim::take(INTERFACE - 2).unwrap().is_none());
    }
}
