//! Any bytes in the place of a TLS handshake, on either side, and of the records behind it.

use std::fs;
use std::sync::{Arc, OnceLock};

use lunette_tls::{Handshake, ISCSI, Identity, Incoming, Sealed, Servers, stream_client, stream_server};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use crate::input::{Input, Random};

/// The most bytes that a side takes at once.
const MAX_PIECE: usize = 600;

/// The configurations of both sides. The server is its own authority.
struct Sides {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

fn sides() -> &'static Sides {
    static SIDES: OnceLock<Sides> = OnceLock::new();
    SIDES.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let own = rcgen::generate_simple_self_signed(["target".to_owned()]).expect("a certificate");
        let [certificates, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        fs::write(&certificates, own.cert.pem()).expect("a file in the folder");
        fs::write(&key, own.signing_key.serialize_pem()).expect("a file in the folder");
        let server = stream_server(Identity { certificates: &certificates, key: &key }, None, ISCSI);
        let client = stream_client(Servers::SignedBy(&certificates), None, ISCSI);
        Sides { server: Arc::new(server.expect("a server")), client: Arc::new(client.expect("a client")) }
    })
}

/// The target. The first byte says which side takes the bytes, and the second how they are cut.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (is_server, step) = (input.byte().is_multiple_of(2), usize::from(input.byte()) + 1);
    let mut out = Sealed::default();
    let mut handshake = if is_server {
        Handshake::server(&sides().server).expect("a handshake")
    } else {
        let mut client = Handshake::client(&sides().client, name()).expect("a handshake");
        client.receive(&[], &mut out).expect("the first message");
        client
    };
    while !input.is_empty() {
        if handshake.receive(input.bytes(step), &mut out).is_err() {
            break;
        }
    }
    assert!(!handshake.is_done(), "the keys of the other side cannot be guessed");
    records(data);
}

/// Bytes behind the handshake, as records of a peer that has no keys.
fn records(data: &[u8]) {
    let mut bytes = data.to_vec();
    while let Ok(Some(len)) = Incoming::record_len(&bytes) {
        assert!(len > 0 && len <= 5 + (1 << 14) + 256);
        let mut place = vec![0; usize::from(bytes[0])];
        assert!(!Incoming::fits(&bytes[..len.min(bytes.len())], &place) || place.len() + 21 >= len.min(bytes.len()));
        place.clear();
        bytes.drain(..len.min(bytes.len()));
    }
}

fn name() -> ServerName<'static> {
    ServerName::try_from("target").expect("a name")
}

/// A first message of the other side, changed at some places and cut.
pub fn random(random: &mut Random) -> Vec<u8> {
    let is_server = random.below(2) == 0;
    let mut message = if is_server { hello() } else { answer() };
    for _ in 0..random.below(4) {
        let at = random.below(message.len());
        message[at] = random.number() as u8;
    }
    message.truncate(message.len() - random.below(message.len() / 4));
    if random.below(3) == 0 {
        let at = random.below(message.len());
        let piece: Vec<u8> = (0..random.below(MAX_PIECE)).map(|_| random.number() as u8).collect();
        message.splice(at..at, piece);
    }
    [vec![u8::from(!is_server), random.number() as u8], message].concat()
}

/// The first message of a client.
fn hello() -> Vec<u8> {
    let mut out = Sealed::default();
    let mut client = Handshake::client(&sides().client, name()).expect("a handshake");
    client.receive(&[], &mut out).expect("the first message");
    out.unsent().to_vec()
}

/// The answer of a server to another client.
fn answer() -> Vec<u8> {
    let mut out = Sealed::default();
    let mut server = Handshake::server(&sides().server).expect("a handshake");
    server.receive(&hello(), &mut out).expect("an answer");
    out.unsent().to_vec()
}

/// Inputs to start from.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let server = [vec![0, 255], hello()].concat();
    let client = [vec![1, 99], answer()].concat();
    // A message in two records, of which the second one breaks the protocol.
    let split = [&[0, 255, 22, 3, 1, 0, 5, 1, 0, 0xff, 0xf0, 0][..], &[22, 3, 1, 0, 1, 0, 99, 9, 9, 9, 9, 9]].concat();
    [("hello", server), ("answer", client), ("split", split)].map(|(name, bytes)| (name.to_owned(), bytes)).into()
}
