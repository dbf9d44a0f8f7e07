//! Server and client of this crate in TLS, and each with a scripted peer.

mod channel;
mod files;
mod negotiation;

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use lunette_buffer::Pool;
use lunette_store::{InlineIo, MemoryStore, Op, execute};
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};

use self::files::{Certificates, REVOKED, SERVER};
use super::*;
use crate::client::{NbdStore, NbdUrl, OpenError};
use crate::{Export, Listener, Server, Stopper};

/// A server of a disk in memory on a Unix socket.
struct Served {
    folder: tempfile::TempDir,
    stopper: Stopper,
    thread: JoinHandle<()>,
}

impl Served {
    fn start(tls: Option<ServerTls>) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), tls)
    }

    fn start_in(folder: tempfile::TempDir, tls: Option<ServerTls>) -> Self {
        let export = Export::new("disk", Arc::new(MemoryStore::new(8 << 20).unwrap()), false).unwrap();
        let server = Server::new(Arc::new(export), Arc::new(InlineIo));
        let server = match tls {
            Some(tls) => server.with_tls(tls),
            None => server,
        };
        let listener = Listener::unix(&folder.path().join("socket")).unwrap();
        let stopper = server.stopper(&listener).unwrap();
        let thread = thread::spawn(move || server.run(&listener));
        Self { folder, stopper, thread }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// The export for a client with files in `certificates`, in which the server has the name `name`.
    fn url(&self, certificates: &Path, name: &str) -> NbdUrl {
        let (socket, certificates) = (self.socket(), certificates.display());
        let socket = socket.display();
        let text = format!("nbds+unix:///disk?socket={socket}&tls-certificates={certificates}&tls-hostname={name}");
        text.parse().unwrap()
    }

    fn stop(self) -> tempfile::TempDir {
        self.stopper.stop();
        self.thread.join().unwrap();
        self.folder
    }
}

fn refusal(opened: Result<NbdStore, OpenError>) -> String {
    opened.expect_err("it is refused").to_string()
}

fn write(disk: &NbdStore, offset: u64, byte: u8, len: usize) {
    let mut from = Pool::new(len.next_power_of_two().max(4096)).take(len).unwrap();
    from.fill(byte);
    execute(disk, Op::Write { offset, from, fua: false }).result.unwrap();
}

fn read(disk: &NbdStore, offset: u64, len: usize) -> Vec<u8> {
    let into = Pool::new(len.next_power_of_two().max(4096)).take(len).unwrap();
    let outcome = execute(disk, Op::Read { offset, into });
    outcome.result.unwrap();
    outcome.buffer.unwrap().to_vec()
}

#[test]
fn short_and_long_requests_cross_in_tls() {
    let files = Certificates::new();
    let served = Served::start(Some(files.server(Admitted::Proven)));
    let disk = NbdStore::open(&served.url(&files.client("alice"), SERVER), false).unwrap();
    // Parts of a record, whole ones, and more than is sealed at a time.
    let mut offset = 0;
    for (byte, len) in [(1, 512), (2, 16 << 10), (3, 300 << 10), (4, 3 << 20)] {
        write(&disk, offset, byte, len);
        assert!(read(&disk, offset, len).iter().all(|found| *found == byte), "{len} bytes");
        offset += len as u64;
    }
    assert!(read(&disk, 0, 512).iter().all(|found| *found == 1), "the first bytes stay");
    execute(&disk, Op::Flush).result.unwrap();
    drop(disk);
    served.stop();
}

#[test]
fn a_client_has_to_prove_itself_where_an_authority_is_given() {
    let files = Certificates::new();
    let served = Served::start(Some(files.server(Admitted::Proven)));
    let without = refusal(NbdStore::open(&served.url(&files.client_without_certificate(), SERVER), false));
    assert!(without.contains("CertificateRequired"), "{without}");
    let revoked = refusal(NbdStore::open(&served.url(&files.client(REVOKED), SERVER), false));
    assert!(revoked.contains("CertificateRevoked"), "{revoked}");
    let strangers = Certificates::new();
    let stranger = files.client_with_certificate_of(&strangers);
    let stranger = refusal(NbdStore::open(&served.url(&stranger, SERVER), false));
    assert!(stranger.contains("UnknownCA") || stranger.contains("DecryptError"), "{stranger}");
    served.stop();
    for tls in [files.server(Admitted::Any), files.server_without_authority()] {
        assert!(tls.admits_all());
        let served = Served::start(Some(tls));
        NbdStore::open(&served.url(&files.client_without_certificate(), SERVER), false).unwrap();
        served.stop();
    }
}

#[test]
fn a_server_has_to_prove_its_name() {
    let files = Certificates::new();
    let served = Served::start(Some(files.server(Admitted::Any)));
    let folder = files.client_without_certificate();
    let other = refusal(NbdStore::open(&served.url(&folder, "other"), false));
    assert!(other.contains("not valid for name"), "{other}");
    let strangers = Certificates::new();
    let stranger = refusal(NbdStore::open(&served.url(&strangers.client_without_certificate(), SERVER), false));
    assert!(stranger.contains("UnknownIssuer"), "{stranger}");
    let unverified = format!("nbds+unix:///disk?socket={}&tls-verify-peer=0", served.socket().display());
    NbdStore::open(&unverified.parse().unwrap(), false).unwrap();
    served.stop();
    let served = Served::start(Some(files.revoked_server()));
    let revoked = refusal(NbdStore::open(&served.url(&folder, SERVER), false));
    assert!(revoked.contains("Revoked"), "{revoked}");
    served.stop();
}

#[test]
fn no_side_does_without_tls() {
    let files = Certificates::new();
    let served = Served::start(None);
    let refused = refusal(NbdStore::open(&served.url(&files.client("alice"), SERVER), false));
    assert!(refused.contains("the server refuses TLS (STARTTLS)"), "{refused}");
    let folder = served.stop();
    let served = Served::start_in(folder, Some(files.server(Admitted::Any)));
    let plain = format!("nbd+unix:///disk?socket={}", served.socket().display());
    let refused = refusal(NbdStore::open(&plain.parse().unwrap(), false));
    assert!(refused.contains("insists on TLS"), "{refused}");
    served.stop();
}

/// Sessions of a server, with the number of those that were resumed.
#[derive(Debug)]
struct Sessions {
    kept: Arc<ServerSessionMemoryCache>,
    resumed: AtomicUsize,
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.kept.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.kept.get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.kept.take(key).inspect(|_| {
            self.resumed.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[test]
fn a_lost_connection_resumes_its_session() {
    let files = Certificates::new();
    let sessions = Arc::new(Sessions { kept: ServerSessionMemoryCache::new(16), resumed: AtomicUsize::new(0) });
    let ServerTls { config, admits_all } = files.server(Admitted::Proven);
    let mut config = ServerConfig::clone(&config());
    config.session_storage = Arc::clone(&sessions) as _;
    let config = Arc::new(config);
    let tls = ServerTls { config: Arc::new(move || Arc::clone(&config)), admits_all };
    let served = Served::start(Some(tls.clone()));
    let disk = NbdStore::open(&served.url(&files.client("alice"), SERVER), false).unwrap();
    write(&disk, 0, 7, 4096);
    assert_eq!(sessions.resumed.load(Ordering::Relaxed), 0);
    let served = Served::start_in(served.stop(), Some(tls));
    write(&disk, 0, 9, 4096);
    assert!(read(&disk, 0, 4096).iter().all(|found| *found == 9));
    assert_eq!(sessions.resumed.load(Ordering::Relaxed), 1);
    drop(disk);
    served.stop();
}

/// A client of the server, in plain text, and what the server made of it.
fn raw_client(tls: ServerTls, say: &[u8]) -> (Vec<u8>, Result<(), ConnectionError>) {
    let (client, server) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || {
        let export = Export::new("disk", Arc::new(MemoryStore::new(1 << 20).unwrap()), false).unwrap();
        let socket = crate::socket::Socket::from(server);
        socket.prepare().unwrap();
        let io: crate::SharedIo = Arc::new(InlineIo);
        crate::serve(Stream::new(&socket, &socket), &export, crate::Client::default(), &io, Some(&tls))
    });
    (&client).write_all(say).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut said = Vec::new();
    (&client).read_to_end(&mut said).unwrap();
    (said, serving.join().unwrap())
}
