//! A Unix socket of the API, and the users that may connect to it.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::Path;

use rustix::fs::{Gid, chown};
use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

/// A socket that is open. Its file stays behind when the process ends; the next one removes it.
pub(super) struct Socket {
    listener: StdListener,
    has_group: bool,
}

/// A socket that accepts connections.
pub(super) struct Listening {
    listener: UnixListener,
    has_group: bool,
}

impl Socket {
    pub(super) fn open(path: &Path, group: Option<u32>) -> io::Result<Self> {
        remove_stale_socket(path)?;
        let listener = StdListener::bind(path)?;
        if let Some(group) = group {
            chown(path, None, Some(Gid::from_raw(group)))?;
        }
        // Until here the mask of the process holds, and peers are asked for their user all the same.
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        fs::set_permissions(path, Permissions::from_mode(mode))?;
        Self::adopt(listener, group)
    }

    /// Takes over a socket that listens already.
    pub(super) fn adopt(listener: StdListener, group: Option<u32>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, has_group: group.is_some() })
    }

    pub(super) fn duplicate(&self) -> io::Result<StdListener> {
        self.listener.try_clone()
    }

    pub(super) fn listen(self) -> io::Result<Listening> {
        let listener = UnixListener::from_std(self.listener)?;
        Ok(Listening { listener, has_group: self.has_group })
    }
}

impl Listening {
    /// The next connection with its user; `None` for one that may not be.
    pub(super) async fn accept(&self) -> io::Result<Option<(UnixStream, u32)>> {
        let (stream, _) = self.listener.accept().await?;
        let user = stream.peer_cred()?.uid();
        // With a group, the permissions of the file have let the peer in.
        let may = self.has_group || user == 0 || user == geteuid().as_raw();
        if !may {
            tracing::warn!(user, "API: this user may not use the socket");
        }
        Ok(may.then_some((stream, user)))
    }
}

/// Removes the file of a socket that no process listens at: the last one was killed.
///
/// # Errors
///
/// When a process listens there, or the file is no socket.
pub fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "a file is there that is no socket; remove it, or choose another path",
        ));
    }
    match StdStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => {
            Err(io::Error::new(ErrorKind::AddrInUse, "another process listens there; stop it, or choose another path"))
        }
    }
}
