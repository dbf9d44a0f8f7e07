//! The socket, and the thread that serves it.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lunette_api::Server;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use crate::adapter::Adapter;
use crate::limits::CLIENT_TIMEOUT;
use crate::wire::{Fault, REQUEST_LEN, Request, answer};

/// A socket that is open and not served yet. Its file stays behind when the process ends; the next one removes it.
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Opens the socket, and makes its folder when it is missing. Only root and the user of this process may connect.
    ///
    /// # Errors
    ///
    /// When another process listens there, such as tgtd, or the file cannot be made.
    pub fn open(path: &Path) -> io::Result<Self> {
        remove_stale(path)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Serves the socket on a thread of its own. `folder` keeps what the API has no place for.
    ///
    /// # Errors
    ///
    /// When the folder cannot be used, or there is no thread left.
    pub fn serve(self, server: Arc<dyn Server>, folder: &Path) -> io::Result<()> {
        let Self { listener, path } = self;
        let mut adapter = Adapter::new(server, folder, &path.display().to_string())?;
        let serve = move || {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => {
                        if let Err(error) = serve_one(&mut adapter, stream) {
                            tracing::debug!(%error, "tgt: a client has not got its answer");
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "tgt: no connection is accepted");
                        thread::sleep(CLIENT_TIMEOUT);
                    }
                }
            }
        };
        thread::Builder::new().name("lunette-tgt".into()).spawn(serve).map(drop)
    }
}

/// Serves one request of a user that may ask.
fn serve_one(adapter: &mut Adapter, stream: UnixStream) -> io::Result<()> {
    let user = socket_peercred(&stream)?.uid;
    if !user.is_root() && user != geteuid() {
        tracing::warn!(user = user.as_raw(), "tgt: this user may not use the socket");
        return Ok(());
    }
    exchange(stream, CLIENT_TIMEOUT, |request, parameters| adapter.answer(request, parameters))
}

/// Reads a request and writes its answer. A client that takes longer than `timeout` for a step is given up.
fn exchange(
    mut stream: UnixStream,
    timeout: Duration,
    reply: impl FnOnce(&Request, &[u8]) -> Result<String, Fault>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut header = [0; REQUEST_LEN];
    stream.read_exact(&mut header)?;
    let outcome = match Request::decode(&header) {
        Ok(request) => {
            let mut parameters = vec![0; request.parameter_bytes];
            stream.read_exact(&mut parameters)?;
            reply(&request, &parameters)
        }
        Err(fault) => Err(fault),
    };
    stream.write_all(&answer(&outcome))
}

/// Removes a socket that no process listens at: the last one was killed.
fn remove_stale(path: &Path) -> io::Result<()> {
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
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(ErrorKind::AddrInUse, "another process listens there, such as tgtd; stop it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn a_client_that_sends_nothing_is_given_up() {
        let (client, server) = UnixStream::pair().unwrap();
        let mut asked = false;
        let error = exchange(server, SHORT, |_, _| {
            asked = true;
            Ok(String::new())
        });
        assert_eq!((error.unwrap_err().kind(), asked), (ErrorKind::WouldBlock, false));
        drop(client);
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket.0");
        fs::write(&path, "text").unwrap();
        assert_eq!(Socket::open(&path).err().unwrap().kind(), ErrorKind::AlreadyExists);
        fs::remove_file(&path).unwrap();
        let first = Socket::open(&path).unwrap();
        assert_eq!(Socket::open(&path).err().unwrap().kind(), ErrorKind::AddrInUse);
        drop(first);
        Socket::open(&path).unwrap();
    }
}
