//! The key server and its client over TLS: certificates, limits, and servers that go away.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use lunette_keys::client::{Client, ClientError};
use lunette_keys::keyfile::{Cipher, NewHolder, Unlocked};
use lunette_keys::kmip::{Attribute, Kind, ManagedObject, ResultReason, RevocationCode};
use lunette_keys::server::limits::{MAX_CLIENT_CONNECTIONS, MAX_CONNECTIONS, MAX_REQUEST_BYTES};
use lunette_keys::server::{AuditLog, Engine, Master, ObjectStore, Server, Service, Stopper};
use lunette_keys::source::{KeySource, Opening, publish};
use lunette_keys::{Argon2Cost, Key, Passphrase};
use lunette_tls::authority::{Authority, Identities};
use lunette_tls::folder::TlsFiles;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().cast_signed()
}

/// The interval at which a condition is polled.
const POLL: Duration = Duration::from_millis(5);

/// The name of the authority in its certificate.
const AUTHORITY: &str = "Lunette key authority";

const DAY: i64 = 24 * 3600;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server in a folder with its authority.
struct Running {
    folder: PathBuf,
    address: SocketAddr,
    log: Log,
    stopper: Option<Stopper>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(folder: &Path) -> Self {
        Self::start_for(folder, &["localhost", "127.0.0.1"])
    }

    fn start_for(folder: &Path, hosts: &[&str]) -> Self {
        if !folder.join("ca/server").exists() {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            Authority::open_or_create(&folder.join("ca"), AUTHORITY, now())
                .unwrap()
                .issue("server", &Identities::server(&hosts), now(), now() + DAY)
                .unwrap();
        }
        let key = Key::from_slice(&[7; 32]).unwrap();
        let store = ObjectStore::open(&folder.join("keys"), Master::Key(&key)).unwrap();
        let engine = Engine::new(store.load().unwrap());
        let log = Log::default();
        let service = Service::new(engine, store, AuditLog::to(log.clone()));
        let listener = Server::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let files = TlsFiles::in_folder(&folder.join("ca/server"));
        let server = Server::new(listener, files, service).unwrap();
        let stopper = server.stopper().unwrap();
        let thread = thread::spawn(move || server.run());
        Self { folder: folder.into(), address, log, stopper: Some(stopper), thread: Some(thread) }
    }

    fn authority(&self) -> Authority {
        Authority::open_or_create(&self.folder.join("ca"), AUTHORITY, now()).unwrap()
    }

    fn files(&self, client: &str) -> TlsFiles {
        TlsFiles::in_folder(&self.authority().issue(client, &Identities::default(), now(), now() + DAY).unwrap())
    }

    fn connect(&self, files: &TlsFiles) -> Result<Client, ClientError> {
        Client::connect(&self.address.to_string(), files)
    }

    /// Connects when a connection that has ended has left.
    fn connect_soon(&self, files: &TlsFiles) -> Client {
        for _ in 0..1000 {
            match self.connect(files) {
                Ok(client) => return client,
                Err(_) => thread::sleep(POLL),
            }
        }
        panic!("no connection is free: {}", self.log());
    }

    /// A TLS connection without a KMIP client on it.
    fn raw(&self, files: &TlsFiles) -> StreamOwned<ClientConnection, TcpStream> {
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(files.client().unwrap(), name).unwrap();
        StreamOwned::new(tls, TcpStream::connect(self.address).unwrap())
    }

    fn log(&self) -> String {
        String::from_utf8(self.log.0.lock().unwrap().clone()).unwrap()
    }

    /// Waits until the audit log has a text: a client can have its answer before.
    fn logs(&self, text: &str) {
        let found = (0..1000).any(|_| {
            let found = self.log().contains(text);
            if !found {
                thread::sleep(POLL);
            }
            found
        });
        assert!(found, "no {text:?} in {}", self.log());
    }

    fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let (Some(stopper), Some(thread)) = (self.stopper.take(), self.thread.take()) {
            stopper.stop();
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn message(outcome: Result<impl Sized, ClientError>) -> String {
    outcome.err().expect("this fails").to_string()
}

#[test]
fn an_object_that_is_no_key_file_does_not_keep_one_of_its_name_from_being_read() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path());
    let mut client = server.connect(&server.files("alice")).unwrap();
    let other = ManagedObject { kind: Kind::OpaqueData(0x8000_0000), material: b"no key file".to_vec().into() };
    client.register(other, vec![Attribute::named("vm1")]).unwrap();
    let passphrase = Passphrase::new(b"open sesame".to_vec()).unwrap();
    let cost = Argon2Cost { memory_kib: Argon2Cost::MIN_MEMORY_KIB, passes: 1, lanes: 1 };
    let holder = NewHolder::Passphrase { passphrase: &passphrase, cost };
    let file = Unlocked::create("alice", holder, Cipher::Aegis256, 0).unwrap();
    let first = publish(&mut client, "vm1", &file.to_bytes()).unwrap();
    // The key file is found, and replaced.
    assert_ne!(publish(&mut client, "vm1", &file.to_bytes()).unwrap(), first);
    assert!(client.get(&first).is_err());
    drop(client);
    server.stop();
}

#[test]
fn keys_are_there_after_a_restart_and_gone_when_destroyed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path());
    let files = server.files("alice");
    let mut client = server.connect(&files).unwrap();
    let created = client.create_key("one", 256).unwrap();
    let own = Key::random();
    let registered = client.register_key("two", &own).unwrap();
    client.activate(&created).unwrap();
    let key = client.get_key(&created).unwrap();
    drop(client);
    server.stop();

    let server = Running::start(folder.path());
    let mut client = server.connect(&files).unwrap();
    assert!(client.get_key(&created).unwrap().same_as(&key));
    let two = client.find("two").unwrap();
    assert!(client.get_key(&two).unwrap().same_as(&own));
    assert_eq!(client.find("one").unwrap(), created);
    assert_eq!(client.locate(Vec::new()).unwrap().len(), 2);
    client.revoke(&created, RevocationCode::CessationOfOperation).unwrap();
    for id in [&created, &registered] {
        client.destroy(id).unwrap();
        let ClientError::Refused(refusal) = client.get(id).unwrap_err() else { panic!() };
        assert_eq!(refusal.reason, ResultReason::ItemNotFound);
    }
    assert!(message(client.find("one")).contains("no object one"));
    drop(client);
    server.stop();
    let bytes = std::fs::read(folder.path().join("keys")).unwrap();
    assert!(!bytes.windows(32).any(|window| window == key.expose()));
}

#[test]
fn clients_do_not_see_each_others_keys() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path());
    let mut alice = server.connect(&server.files("alice")).unwrap();
    let mut bob = server.connect(&server.files("bob")).unwrap();
    let id = alice.create_key("secret", 128).unwrap();
    assert!(bob.locate(vec![Attribute::named("secret")]).unwrap().is_empty());
    assert!(message(bob.get(&id)).contains("there is no object"));
    assert!(server.log().contains("\"client\":\"bob\",\"operation\":\"Get\""));
}

#[test]
fn a_client_of_another_authority_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path());
    let mut other = Authority::open_or_create(&folder.path().join("other"), AUTHORITY, now()).unwrap();
    let files = other.issue("alice", &Identities::default(), now(), now() + DAY).unwrap();
    // It trusts the server, so that it is the server that refuses.
    std::fs::copy(folder.path().join("ca/ca-cert.pem"), files.join("ca-cert.pem")).unwrap();
    let said = message(server.connect(&TlsFiles::in_folder(&files)));
    assert!(said.contains("the server does not trust"), "{said}");
    server.logs("TLS handshake failed");
}

#[test]
fn a_server_of_another_authority_or_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start_for(folder.path(), &["keys.example"]);
    let files = server.files("alice");
    let said = message(server.connect(&files));
    assert!(said.contains("is for another name"), "{said}");
    let other = tempfile::tempdir().unwrap();
    let server = Running::start(other.path());
    let said = message(server.connect(&files));
    assert!(said.contains("not of the CA"), "{said}");
}

#[test]
fn an_expired_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path());
    let files = server.authority().issue("alice", &Identities::default(), now(), now() - 60).unwrap();
    let said = message(server.connect(&TlsFiles::in_folder(&files)));
    assert!(said.contains("has expired"), "{said}");
}

#[test]
fn a_revoked_client_is_refused_at_its_next_request() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path());
    let (alices, bobs) = (server.files("alice"), server.files("bob"));
    let mut alice = server.connect(&alices).unwrap();
    let id = alice.create_key("one", 256).unwrap();
    server.authority().revoke("alice", now()).unwrap();
    assert!(matches!(alice.get_key(&id), Err(ClientError::Lost { .. })), "the connection ends");
    let said = message(server.connect(&alices));
    assert!(said.contains("was revoked"), "{said}");
    server.connect(&bobs).unwrap();
    server.logs("Revoked");
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path());
    let files = server.authority().issue("alice", &Identities::default(), now(), now() + DAY).unwrap();
    std::fs::remove_file(files.join("client-key.pem")).unwrap();
    let said = message(server.connect(&TlsFiles::in_folder(&files)));
    assert!(said.contains("client-key.pem") && said.contains("No such file"), "{said}");
    // Plain text is no handshake.
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    // A reset is an end, too.
    let _ = socket.read_to_end(&mut answer);
    assert!(answer.len() < 100);
}

#[test]
fn a_server_that_goes_away_is_named_and_a_new_connection_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path());
    let files = server.files("alice");
    let mut client = server.connect(&files).unwrap();
    let id = client.create_key("one", 256).unwrap();
    let address = server.address.to_string();
    server.stop();
    let said = message(client.get_key(&id));
    assert!(said.contains(&address) && said.contains("failed"), "{said}");
    let said = message(Client::connect(&address, &files));
    assert!(said.contains(&address) && said.contains("cannot be reached"), "{said}");
    let server = Running::start(folder.path());
    assert!(server.connect(&files).unwrap().get_key(&id).is_ok());
}

/// Gives the server a key file as an object, as an interrupted publication leaves it beside others.
fn register(client: &mut Client, bytes: &[u8]) {
    let object = ManagedObject { kind: Kind::OpaqueData(0x8000_0000), material: bytes.to_vec().into() };
    client.register(object, vec![Attribute::named("vm1")]).unwrap();
}

#[test]
fn a_published_key_file_takes_the_place_of_older_ones() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path());
    let tls = server.authority().issue("alice", &Identities::default(), now(), now() + DAY).unwrap();
    let mut client = server.connect(&TlsFiles::in_folder(&tls)).unwrap();
    let cost = Argon2Cost { memory_kib: 8192, passes: 1, lanes: 1 };
    let secret = Passphrase::new(b"open sesame".to_vec()).unwrap();
    let holder = NewHolder::Passphrase { passphrase: &secret, cost };
    let mut keys = Unlocked::create("alice", holder, Cipher::Aegis256, 0).unwrap();
    let old = keys.to_bytes();
    keys.rotate(Cipher::Aegis256, 1).unwrap();
    // The newest one by generation is neither the first nor the last that was registered.
    for bytes in [&old, &keys.to_bytes(), &old] {
        register(&mut client, bytes);
    }
    let place = format!("kmip://{}/vm1", server.address).parse().unwrap();
    let source = KeySource { place, opening: Opening { passphrase: None, tls: Some(tls) } };
    assert_eq!(source.read().unwrap().generation(), 2);
    let error = publish(&mut client, "vm1", &old).unwrap_err().to_string();
    assert!(error.contains("newer key file"), "{error}");

    keys.rotate(Cipher::Aegis256, 2).unwrap();
    publish(&mut client, "vm1", &keys.to_bytes()).unwrap();
    assert_eq!(client.locate(vec![Attribute::named("vm1")]).unwrap().len(), 1);
    assert_eq!(source.read().unwrap().generation(), 3);
    let other = Unlocked::create("bob", holder, Cipher::Aegis256, 0).unwrap();
    let error = publish(&mut client, "vm1", &other.to_bytes()).unwrap_err().to_string();
    assert!(error.contains("another volume"), "{error}");

    // However many there are, no more than 16 are fetched.
    for _ in 0..20 {
        register(&mut client, &old);
    }
    source.read().unwrap();
    let fetched = server.log().lines().rev().take_while(|line| line.contains("\"Get\"")).count();
    assert_eq!(fetched, 16);
}

#[test]
fn a_request_that_is_too_long_or_no_message_ends_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path());
    let files = server.files("alice");
    for len in [MAX_REQUEST_BYTES as u32 - 7, u32::MAX] {
        let mut stream = server.raw(&files);
        stream.write_all(&[0x42, 0, 0x78, 1]).unwrap();
        stream.write_all(&len.to_be_bytes()).unwrap();
        let mut answer = Vec::new();
        // The server may close without a word.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{len}");
    }
    let mut stream = server.raw(&files);
    stream.write_all(&[0; 8]).unwrap();
    let mut header = [0; 8];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header[..4], [0x42, 0, 0x7b, 1], "a response message");
    assert!(server.connect(&files).is_ok());
}

#[test]
fn connections_of_the_key_server_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path());
    let mut held = Vec::new();
    for number in 0..MAX_CONNECTIONS / MAX_CLIENT_CONNECTIONS {
        let files = server.files(&format!("client-{number}"));
        held.extend((0..MAX_CLIENT_CONNECTIONS).map(|_| server.connect_soon(&files)));
        let one_more = server.connect(&files);
        assert!(matches!(one_more, Err(ClientError::Lost { .. })), "client {number}");
    }
    let others = server.files("one-more");
    assert!(server.connect(&others).is_err(), "all connections are taken");
    held.pop();
    assert!(server.connect_soon(&others).query().is_ok());
    assert!(held.iter_mut().all(|client| client.query().is_ok()));
}

#[test]
fn connections_without_a_certificate_make_way_for_clients() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path());
    let files = server.files("alice");
    let mut client = server.connect(&files).unwrap();
    let idle: Vec<_> = (0..2 * MAX_CONNECTIONS).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert!(server.connect(&files).unwrap().query().is_ok());
    assert!(client.query().is_ok());
    drop(idle);
}

#[test]
fn the_authority_issues_a_name_once_and_refuses_what_is_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut authority = Authority::open_or_create(&folder.path().join("ca"), AUTHORITY, now()).unwrap();
    authority.issue("alice", &Identities::default(), now(), now() + DAY).unwrap();
    let refused = authority.issue("alice", &Identities::default(), now(), now() + DAY).unwrap_err().to_string();
    assert!(refused.contains("valid certificate"), "{refused}");
    for name in ["", "a/b", "..", "a\nb"] {
        assert!(authority.issue(name, &Identities::default(), now(), now() + DAY).is_err(), "{name:?}");
    }
    assert!(authority.issue("server", &Identities::server(&["not a host".into()]), now(), now() + DAY).is_err());
    assert!(authority.revoke("unknown", now()).is_err());
    authority.revoke("alice", now()).unwrap();
    let mut authority = Authority::open_or_create(&folder.path().join("ca"), AUTHORITY, now()).unwrap();
    authority.issue("alice", &Identities::default(), now(), now() + DAY).unwrap();
    let states: Vec<_> = authority.issued().iter().map(|issued| issued.revoked.is_some()).collect();
    assert_eq!(states, [true, false]);
    std::fs::write(folder.path().join("ca/ca.json"), "{").unwrap();
    let damaged = Authority::open(&folder.path().join("ca")).err().unwrap().to_string();
    assert!(damaged.contains("ca.json"), "{damaged}");
}
