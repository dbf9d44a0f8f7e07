//! `lunette nbd`: a disk as an NBD server.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgGroup, Args};
use lunette_nbd::{Admitted, Export, Listener, Server, ServerTls, SharedIo};
use lunette_store::Store;

use crate::commands::io::PoolIo;
use crate::commands::local_export::{self, Source};
use crate::disks::DiskName;
use crate::failure::Failure;
use crate::output;
use crate::size::Size;
use crate::system;

const AFTER_HELP: &str = "\
Use it:
  nbdinfo 'nbd+unix:///?socket=/run/disk.sock'
  nbdcopy image.raw 'nbd+unix:///?socket=/run/disk.sock'
  nbd-client -unix /run/disk.sock /dev/nbd0
  qemu-system-x86_64 -drive file=nbd+unix:///?socket=/run/disk.sock,format=raw,if=virtio

Without --tls there is no encryption and no login: whoever reaches the socket or the address has the disk.
With --tls DIR clients must speak TLS 1.3. DIR has server-cert.pem and server-key.pem, in PEM. With ca-cert.pem there, clients need a
certificate of that authority, which is not in ca-crl.pem if that is there. Clients have the like: nbdinfo 'nbds://HOST/?tls-certificates=DIR'.
lunette keys ca issue makes such folders. The files are read at the start.
Without ?keys= an encrypted disk is served as it is, still encrypted; a warning says so, unless --read-only is given.
Signals: SIGTERM and Ctrl-C end what runs, flush, close an encrypted disk and exit; a second one exits at once. SIGHUP fetches the keys
of an encrypted disk again, which also happens once a minute, and when a quantum was read whose key is not known; that read waits for its
key, 20 seconds at most. SIGUSR1 prints on standard error how many quanta of an encrypted disk were sealed, opened, repaired and refused,
and so does the end.

Exit codes: 0 stopped in order, 1 other failure, 2 bad usage, 3 keys or certificates that cannot be used, 4 address or socket in use or not available, 5 disk missing,
unreadable or in use.";

/// Serve a disk over NBD, for nbd-client, QEMU and libnbd's tools.
///
/// Once it listens it prints its URI.
#[derive(Args)]
#[command(after_help = AFTER_HELP, group = ArgGroup::new("place").required(true))]
pub(crate) struct Arguments {
    /// A file, a block device, iscsi://HOST/TARGET/LUN, rbd:POOL/IMAGE, nbd://HOST/NAME, nbd+unix:///NAME?socket=PATH,
    /// or mem:SIZE (64M, 10G, ...); ?keys=file:KEYS behind it decrypts it
    #[arg(value_name = "SOURCE")]
    source: DiskName,
    /// Listen on a Unix socket at PATH
    #[arg(long, value_name = "PATH", group = "place")]
    socket: Option<PathBuf>,
    /// Listen on TCP; port 0 picks one (NBD's own port is 10809)
    #[arg(long, value_name = "ADDR:PORT", group = "place", value_parser = crate::address::one)]
    listen: Option<SocketAddr>,
    /// The name of the export; clients that give none get it too
    #[arg(long, value_name = "NAME", default_value = "", value_parser = export_name)]
    name: String,
    /// Speak TLS alone, with the certificates in DIR: server-cert.pem, server-key.pem, ca-cert.pem, ca-crl.pem
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
    /// Admit clients without a certificate, although there is an authority in the folder of --tls
    #[arg(long, requires = "tls")]
    tls_any_client: bool,
    /// Create a SOURCE that is missing, sparse
    #[arg(long, value_name = "SIZE")]
    create: Option<Size>,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    /// Print what an encrypted disk has done as one JSON object in a line
    #[arg(long)]
    json: bool,
}

fn export_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
    match text {
        _ if text.len() > lunette_nbd::limits::MAX_STRING_LEN => Err("it is too long".into()),
        _ if text.chars().all(plain) => Ok(text.into()),
        _ => Err("letters, digits, '-', '.', '_' and '~' are allowed".into()),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let &Arguments { create, read_only, json, .. } = arguments;
    // Before the disk is opened, or even made.
    let tls = arguments.tls()?;
    let source = Source { name: &arguments.source, create, read_only, json };
    local_export::run(&source, |store| arguments.serve(store, tls))
}

impl Arguments {
    fn tls(&self) -> Result<Option<ServerTls>, Failure> {
        let Some(folder) = &self.tls else { return Ok(None) };
        let admitted = if self.tls_any_client { Admitted::Any } else { Admitted::Proven };
        let tls = ServerTls::read(folder, admitted).map_err(Failure::configuration)?;
        if tls.admits_all() && !self.tls_any_client {
            output::note(format_args!(
                "lunette: {} has no ca-cert.pem, so clients need no certificate; --tls-any-client says that it is meant",
                folder.display()
            ));
        }
        Ok(Some(tls))
    }

    /// Serves a store until a signal ends it.
    fn serve(&self, store: Arc<dyn Store>, tls: Option<ServerTls>) -> Result<(), Failure> {
        let export = Export::new(self.name.clone(), store, self.read_only).map_err(Failure::disk)?;
        let io: SharedIo = Arc::new(PoolIo::start()?);
        let (listener, uri) = self.listen()?;
        let _file = self.socket.as_deref().map(SocketFile::of);
        let server = Server::new(Arc::new(export.clone()), Arc::clone(&io));
        let server = match tls {
            Some(tls) => server.with_tls(tls),
            None => server,
        };
        let stopper = server.stopper(&listener).map_err(Failure::other)?;
        system::stop_on_signals(move || stopper.stop()).map_err(Failure::no_thread)?;
        output::announce("the URI of the disk", vec![uri])?;
        server.run(&listener);
        export.flush(&io).map_err(Failure::other)
    }

    fn listen(&self) -> Result<(Listener, String), Failure> {
        let (name, scheme) = (&self.name, if self.tls.is_some() { "nbds" } else { "nbd" });
        match (&self.socket, self.listen) {
            (Some(path), _) => {
                let listener = Listener::unix(path).map_err(|error| socket_failure(path, &error))?;
                Ok((listener, format!("{scheme}+unix:///{name}?socket={}", path.display())))
            }
            (None, Some(address)) => {
                let listener = Listener::tcp(address).map_err(|error| system::listen_failure(address, &error))?;
                let bound = listener.address().unwrap_or(address);
                Ok((listener, format!("{scheme}://{bound}/{name}")))
            }
            (None, None) => Err(Failure::Usage("give --socket or --listen".into())),
        }
    }
}

/// The file of a socket, which goes with its server.
struct SocketFile<'a> {
    path: &'a Path,
    /// Device and inode.
    identity: Option<(u64, u64)>,
}

impl<'a> SocketFile<'a> {
    fn of(path: &'a Path) -> Self {
        Self { path, identity: Self::identity_at(path) }
    }

    fn identity_at(path: &Path) -> Option<(u64, u64)> {
        std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
    }
}

impl Drop for SocketFile<'_> {
    fn drop(&mut self) {
        // It may have been removed already, and another server may listen at its path.
        if self.identity.is_some() && Self::identity_at(self.path) == self.identity {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

fn socket_failure(path: &Path, error: &io::Error) -> Failure {
    let is_other = std::fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket());
    let what = match error.kind() {
        io::ErrorKind::AddrInUse if is_other => {
            "a file is there that is no socket; remove it, or choose another path".into()
        }
        io::ErrorKind::AddrInUse => "in use; stop the other server, or choose another path".into(),
        io::ErrorKind::NotFound => "its folder does not exist; create it, or choose another path".into(),
        io::ErrorKind::PermissionDenied => "permission denied; choose a folder that you may write to".into(),
        io::ErrorKind::InvalidInput => "a socket's path has at most 107 bytes; choose a shorter one".into(),
        _ => format!("{error}{}", lunette_files::remedy(error)),
    };
    Failure::Address(format!("cannot listen on {}: {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_another_server_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listen = || std::os::unix::net::UnixListener::bind(&path).unwrap();
        let first = (listen(), SocketFile::of(&path));
        std::fs::remove_file(&path).unwrap();
        let second = (listen(), SocketFile::of(&path));
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn names_of_exports_can_stand_in_a_uri() {
        for name in ["", "disk", "a-b_c.d~1"] {
            assert!(export_name(name).is_ok(), "{name}");
        }
        for name in ["a b", "a/b", "a?b", "ä", &"x".repeat(5000)] {
            assert!(export_name(name).is_err(), "{name}");
        }
    }
}
