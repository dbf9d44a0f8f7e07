//! The service manager: what it passes (sockets, credentials), and what it is told (sd_notify(3)), by datagrams to the
//! socket that `NOTIFY_SOCKET` names.

pub(crate) mod credentials;
mod pulse;
mod sockets;

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

pub(crate) use pulse::accompany;
pub(crate) use sockets::Sockets;

/// Tells the service manager about a new state, where there is one. It may be gone, which changes nothing here.
pub(crate) fn notify(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(?socket, %error, "the service manager cannot be told");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address(socket)?).map(drop)
}

/// A path, or behind `@` a name in the abstract namespace.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_abstract_names_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("@lunette-test-{}", std::process::id());
        let receivers = [path.as_os_str(), OsStr::new(&name)].map(|socket| {
            let receiver = UnixDatagram::bind_addr(&address(socket).unwrap()).unwrap();
            send(socket, "READY=1").unwrap();
            receiver
        });
        for receiver in receivers {
            let mut bytes = [0; 64];
            let len = receiver.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..len], b"READY=1");
        }
    }
}
