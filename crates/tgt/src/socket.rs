//! The socket, and the thread that serves it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lunette_api::{Server, remove_stale_socket};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use crate::adapter::Adapter;
use crate::limits::CLIENT_TIMEOUT;
use crate::wire::{Fault, REQUEST_LEN, Request, answer};

/// A socket that is open and not served yet. Its file stays behind when the process ends; the next one removes it.
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// The file that tgtd locks, too, before it takes the socket away.
    lock: File,
}

impl Socket {
    /// Opens the socket, and makes its folder when it is missing. Only root and the user of this process may connect.
    ///
    /// # Errors
    ///
    /// When another process listens there, such as tgtd, or the file cannot be made.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let lock = lock(path)?;
        remove_stale_socket(path)?;
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self { listener, path: path.to_owned(), lock })
    }

    /// Serves the socket on a thread of its own. `folder` keeps what the API has no place for.
    ///
    /// # Errors
    ///
    /// When the folder cannot be used, or there is no thread left.
    pub fn serve(self, server: Arc<dyn Server>, folder: &Path) -> io::Result<()> {
        let Self { listener, path, lock } = self;
        let mut adapter = Adapter::new(server, folder, &path.display().to_string())?;
        let serve = move || {
            let _lock = lock;
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
    let end = Instant::now() + timeout;
    let mut header = [0; REQUEST_LEN];
    read_until(&mut stream, &mut header, end)?;
    let outcome = match Request::decode(&header) {
        Ok(request) => {
            let mut parameters = vec![0; request.parameter_bytes];
            read_until(&mut stream, &mut parameters, end)?;
            reply(&request, &parameters)
        }
        Err(fault) => Err(fault),
    };
    write_until(&mut stream, &answer(&outcome), Instant::now() + timeout)
}

/// Fills `into`, however slowly the bytes come, until an instant.
fn read_until(stream: &mut UnixStream, into: &mut [u8], end: Instant) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest @ [_, ..]) = into.get_mut(filled..) {
        stream.set_read_timeout(Some(left_until(end)?))?;
        match stream.read(rest)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            len => filled += len,
        }
    }
    Ok(())
}

/// Writes all of `from`, however slowly it is taken, until an instant.
fn write_until(stream: &mut UnixStream, mut from: &[u8], end: Instant) -> io::Result<()> {
    while !from.is_empty() {
        stream.set_write_timeout(Some(left_until(end)?))?;
        let len = stream.write(from)?;
        from = from.get(len..).unwrap_or_default();
    }
    Ok(())
}

/// The time until an instant.
fn left_until(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Takes the lock that tgtd takes, in a file beside the socket. It holds until the file is closed.
fn lock(path: &Path) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&name)?;
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| io::Error::new(ErrorKind::AddrInUse, "another process has the socket, such as tgtd; stop it"))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn a_client_that_sends_nothing_or_byte_by_byte_is_given_up() {
        for sends in [false, true] {
            let (client, server) = UnixStream::pair().unwrap();
            let mut sending = client.try_clone().unwrap();
            // It ends when the other end does.
            let sender = thread::spawn(move || while sends && sending.write_all(&[0]).is_ok() {});
            let mut asked = false;
            // Nothing is left of the time, however fast the bytes come.
            let limit = if sends { Duration::ZERO } else { SHORT };
            let error = exchange(server, limit, |_, _| {
                asked = true;
                Ok(String::new())
            });
            // Bytes that are there are not read any more.
            let expected = if sends { ErrorKind::TimedOut } else { ErrorKind::WouldBlock };
            assert_eq!((error.unwrap_err().kind(), asked), (expected, false));
            sender.join().unwrap();
        }
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket.0");
        fs::write(&path, "text").unwrap();
        assert_eq!(Socket::open(&path).err().unwrap().kind(), ErrorKind::AlreadyExists);
        fs::remove_file(&path).unwrap();
        let first = Socket::open(&path).unwrap();
        // The lock is that of the process.
        assert_eq!(Socket::open(&path).err().unwrap().kind(), ErrorKind::AddrInUse);
        drop(first);
        Socket::open(&path).unwrap();
    }
}
