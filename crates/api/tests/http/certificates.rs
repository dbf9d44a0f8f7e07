//! Clients that prove themselves by certificates.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use lunette_api::{Certificates, Event, Events, Grant, Listener, Place, Role, TokenFile, serve};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use tempfile::TempDir;

use super::{Fake, TOKEN};

type Stream = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// A certificate with its key.
#[derive(Clone)]
struct Pair(CertificateDer<'static>, Vec<u8>);

impl Pair {
    fn signed(issuer: &Issuer<'_, KeyPair>, name: &str) -> Self {
        let mut parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        Self(parameters.signed_by(&key, issuer).unwrap().der().clone(), key.serialize_der())
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.1.clone()).unwrap()
    }
}

/// The certificates of a server, which knows clients until they are taken out.
struct Known {
    config: Arc<ServerConfig>,
    grants: Mutex<Vec<(CertificateDer<'static>, Grant)>>,
}

impl Certificates for Known {
    fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    fn grant(&self, shown: &[CertificateDer<'_>]) -> Option<Grant> {
        let grants = self.grants.lock().unwrap();
        grants.iter().find(|(certificate, _)| *certificate == shown[0]).map(|(_, grant)| grant.clone())
    }
}

struct Port {
    _place: TempDir,
    address: SocketAddr,
    known: Arc<Known>,
    events: Events,
    roots: RootCertStore,
    admin: Pair,
    reader: Pair,
    stranger: Pair,
}

impl Port {
    /// A port with an administrator and a reader, and with these tokens.
    fn new(tokens: Option<&str>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = parameters.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(parameters, key);
        let [own, admin, reader, stranger] =
            ["own", "admin", "reader", "stranger"].map(|name| Pair::signed(&issuer, name));
        let mut roots = RootCertStore::empty();
        roots.add(authority).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots.clone())).allow_unauthenticated().build().unwrap();
        let config = ServerConfig::builder().with_client_cert_verifier(verifier);
        let config = Arc::new(config.with_single_cert(vec![own.0.clone()], own.key()).unwrap());
        let grant = |name: &str, role| Grant { name: name.into(), is_named: true, role, targets: None };
        let grants = vec![(admin.0.clone(), grant("alice", Role::Admin)), (reader.0.clone(), grant("bob", Role::Read))];
        let known = Arc::new(Known { config, grants: Mutex::new(grants) });
        let tokens = tokens.map(|tokens| {
            std::fs::write(place.path().join("tokens"), tokens).unwrap();
            TokenFile::open(place.path().join("tokens")).unwrap()
        });
        let certificates = Arc::clone(&known) as Arc<dyn Certificates>;
        let port = Place::Tcp { address: "127.0.0.1:0".parse().unwrap(), listener: None, certificates, tokens };
        let listener = Listener::open(port).unwrap();
        let address = listener.address().unwrap();
        let server = Fake::default();
        let events = server.events.clone();
        serve(vec![listener], Arc::new(server)).unwrap();
        Self { _place: place, address, known, events, roots, admin, reader, stranger }
    }

    fn connect(&self, own: Option<&Pair>) -> Stream {
        let config = ClientConfig::builder().with_root_certificates(self.roots.clone());
        let config = match own {
            Some(own) => config.with_client_auth_cert(vec![own.0.clone()], own.key()).unwrap(),
            None => config.with_no_client_auth(),
        };
        let session = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        BufReader::new(StreamOwned::new(session, TcpStream::connect(self.address).unwrap()))
    }

    /// The status of the answer to a request of a client on a connection of its own.
    fn status(&self, own: Option<&Pair>, request: &str, headers: &str) -> u16 {
        let mut stream = self.connect(own);
        send(&mut stream, request, &format!("Connection: close\r\n{headers}"));
        status(&mut stream)
    }
}

fn send(stream: &mut Stream, request: &str, headers: &str) {
    let stream = stream.get_mut();
    write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").unwrap();
    stream.flush().unwrap();
}

/// Reads the answer to a request, all but its body.
fn status(stream: &mut Stream) -> u16 {
    let mut first = String::new();
    stream.read_line(&mut first).unwrap();
    first.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Reads the headers of an answer, and the body if it has a length.
fn finish(stream: &mut Stream) -> String {
    let (mut len, mut line) = (0, String::new());
    loop {
        line.clear();
        stream.read_line(&mut line).unwrap();
        let lower = line.trim().to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length: ") {
            len = value.parse().unwrap();
        } else if lower.is_empty() {
            break;
        }
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

#[test]
fn a_certificate_has_the_role_of_its_client() {
    let port = Port::new(None);
    let (admin, reader, stranger) = (Some(&port.admin), Some(&port.reader), Some(&port.stranger));
    for (own, request, expected) in [
        (admin, "DELETE /v1/targets/iqn.a", 204),
        (reader, "GET /v1/targets", 200),
        (reader, "DELETE /v1/targets/iqn.a", 403),
        (stranger, "GET /v1/targets", 401),
        (None, "GET /v1/targets", 401),
        (None, "GET /healthz", 200),
    ] {
        assert_eq!(port.status(own, request, ""), expected, "{request}");
    }
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(port.status(None, "GET /v1/targets", &token), 401, "the port takes no tokens");
}

#[test]
fn a_token_counts_before_a_certificate() {
    let port = Port::new(Some(&format!("{TOKEN}\n{TOKEN}-read role=read")));
    let bearer = |end: &str| format!("Authorization: Bearer {TOKEN}{end}\r\n");
    for (own, end, expected) in [(&port.reader, "", 204), (&port.admin, "-read", 403), (&port.admin, "-wrong", 401)] {
        assert_eq!(port.status(Some(own), "DELETE /v1/targets/iqn.a", &bearer(end)), expected, "{end}");
    }
    let basic = "Authorization: Basic 0123\r\n";
    assert_eq!(port.status(Some(&port.admin), "GET /v1/targets", basic), 401, "another proof that is none");
}

#[test]
fn the_audit_log_has_the_name_of_the_client() {
    let port = Port::new(None);
    assert_eq!(port.status(Some(&port.admin), "DELETE /v1/targets/iqn.a", ""), 204);
    let mut stream = port.connect(Some(&port.admin));
    send(&mut stream, "GET /v1/audit", "");
    assert_eq!(status(&mut stream), 200);
    let log = finish(&mut stream);
    assert!(log.contains("\"who\":\"alice\"") && log.contains("\"from\":\"127.0.0.1:"), "{log}");
}

#[test]
fn a_connection_that_is_kept_ends_with_its_certificate() {
    let port = Port::new(None);
    let mut stream = port.connect(Some(&port.admin));
    for _ in 0..2 {
        send(&mut stream, "GET /v1/targets", "");
        assert_eq!(status(&mut stream), 200);
        finish(&mut stream);
    }
    let mut events = port.connect(Some(&port.admin));
    send(&mut events, "GET /v1/events", "");
    assert_eq!(status(&mut events), 200);
    finish(&mut events);
    port.known.grants.lock().unwrap().clear();
    send(&mut stream, "GET /v1/targets", "");
    assert_eq!(status(&mut stream), 401);
    port.events.send(Event { kind: "change".into(), text: "secret".into(), target: None, initiator: None });
    let mut rest = Vec::new();
    let _ = events.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("secret"));
}

#[test]
fn a_page_of_another_site_has_nothing_of_a_certificate() {
    let port = Port::new(Some(TOKEN));
    let (change, read) = ("DELETE /v1/targets/iqn.a", "GET /v1/targets");
    let (own, foreign) = ("Origin: https://localhost\r\n", "Origin: https://evil.example\r\n");
    let (cross, htmx) = ("Sec-Fetch-Site: cross-site\r\n", "HX-Request: true\r\n");
    for (request, headers, expected) in [
        (change, String::new(), 204),
        (change, format!("{own}{htmx}"), 204),
        (change, own.into(), 403),
        (change, format!("{foreign}{htmx}"), 403),
        (change, format!("{cross}{htmx}"), 403),
        (read, cross.into(), 403),
        (read, foreign.into(), 403),
        (read, format!("{cross}Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n"), 200),
    ] {
        assert_eq!(port.status(Some(&port.admin), request, &headers), expected, "{request} {headers}");
    }
    // A browser adds no token by itself.
    let token = format!("Authorization: Bearer {TOKEN}\r\n{cross}");
    assert_eq!(port.status(Some(&port.admin), change, &token), 204);
}
