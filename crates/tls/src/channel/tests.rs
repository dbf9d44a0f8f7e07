//! Two sides in memory, whose bytes are cut anywhere.

use std::sync::Arc;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::*;
use crate::{Established, Handshake, Identity, Servers, provider, stream_client, stream_server};

struct Files {
    _folder: tempfile::TempDir,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    certificate: Vec<u8>,
}

/// A server with the name `server`, and a client that trusts it.
fn files() -> Files {
    let folder = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec!["server".to_owned()]).unwrap();
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = parameters.self_signed(&key).unwrap();
    let [certificates, private] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    std::fs::write(&certificates, certificate.pem()).unwrap();
    std::fs::write(&private, key.serialize_pem()).unwrap();
    std::fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let own = Identity { certificates: &certificates, key: &private };
    let server = Arc::new(stream_server(own, None, crate::ISCSI).unwrap());
    let client = Arc::new(stream_client(Servers::SignedBy(&certificates), None, crate::ISCSI).unwrap());
    Files { server, client, certificate: certificate.der().to_vec(), _folder: folder }
}

fn name() -> ServerName<'static> {
    ServerName::try_from("server").unwrap()
}

/// Carries bytes between two handshakes, `step` at a time, until both have ended.
fn shake(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    step: usize,
) -> Result<[Established; 2], ChannelError> {
    let mut server = Handshake::server(server)?;
    let mut client = Handshake::client(client, name())?;
    let (mut to_server, mut to_client) = (Sealed::default(), Sealed::default());
    client.receive(&[], &mut to_server)?;
    let carry = |from: &mut Sealed, to: &mut Handshake, answer: &mut Sealed| {
        let piece = from.unsent()[..from.unsent().len().min(step)].to_vec();
        from.sent(piece.len());
        to.receive(&piece, answer)
    };
    while !to_server.is_empty() || !to_client.is_empty() {
        carry(&mut to_server, &mut server, &mut to_client)?;
        carry(&mut to_client, &mut client, &mut to_server)?;
    }
    assert!(server.is_done() && client.is_done());
    Ok([server.finish()?, client.finish()?])
}

/// All content in `bytes`, record for record, with what the client had with its handshake.
fn open_all(side: &mut Established, bytes: &[u8]) -> Result<(Vec<u8>, bool), ChannelError> {
    side.received.extend_from_slice(bytes);
    let mut all = std::mem::take(&mut side.content);
    let mut received = std::mem::take(&mut side.received);
    let mut rest = received.as_mut_slice();
    while let Some(len) = Incoming::record_len(rest)?.filter(|len| *len <= rest.len()) {
        let (record, behind) = rest.split_at_mut(len);
        match side.incoming.open(record)? {
            Opened::Data(data) => all.extend_from_slice(data),
            Opened::Nothing => {}
            Opened::End => return Ok((all, true)),
        }
        rest = behind;
    }
    side.received = rest.to_vec();
    Ok((all, false))
}

fn seal(side: &mut Established, pieces: &[&[u8]]) -> Vec<u8> {
    let mut out = Sealed::default();
    side.outgoing.seal(pieces.iter().copied(), &mut out).unwrap();
    out.unsent().to_vec()
}

#[test]
fn content_arrives_however_the_bytes_are_cut() {
    let files = files();
    let long: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    for step in [1, 7, 1000, usize::MAX] {
        let [mut server, mut client] = shake(&files.server, &files.client, step).unwrap();
        let pieces: [&[u8]; 5] = [b"header", &long[..5000], &long, b"", b"digest"];
        let whole = pieces.concat();
        let sealed = seal(&mut client, &pieces);
        let mut arrived = Vec::new();
        for piece in sealed.chunks(step.max(500)) {
            arrived.extend(open_all(&mut server, piece).unwrap().0);
        }
        assert_eq!(arrived, whole, "step {step}");
        let back = seal(&mut server, &[b"answer"]);
        assert_eq!(open_all(&mut client, &back).unwrap(), (b"answer".to_vec(), false), "tickets are dealt with");
    }
}

#[test]
fn a_record_is_opened_where_its_content_belongs() {
    let files = files();
    let [mut server, mut client] = shake(&files.server, &files.client, usize::MAX).unwrap();
    let data = vec![7; 10_000];
    let record = seal(&mut client, &[&data]);
    let mut place = vec![0; 10_001];
    assert!(!Incoming::fits(&record, &place[1..]), "the type of the content has no room");
    assert!(Incoming::fits(&record, &place));
    assert_eq!(server.incoming.open_into(&record, &mut place).unwrap(), Opened::Data(&mut data.clone()));
}

#[test]
fn a_changed_bit_ends_the_connection() {
    let files = files();
    for bit in 0.. {
        let [mut server, mut client] = shake(&files.server, &files.client, usize::MAX).unwrap();
        let mut record = seal(&mut client, &[b"content"]);
        let Some(byte) = record.get_mut(bit / 8) else { return };
        *byte ^= 1 << (bit % 8);
        match Incoming::record_len(&record) {
            Ok(Some(len)) if len > record.len() => {}
            Ok(Some(len)) => assert!(server.incoming.open(&mut record[..len]).is_err(), "bit {bit}"),
            Ok(None) => panic!("there is a header"),
            Err(_) => assert!(bit < 8 * 5, "bit {bit} is none of the header"),
        }
    }
}

#[test]
fn a_record_comes_once_and_in_its_place() {
    let files = files();
    for order in [[1, 0], [0, 0]] {
        let [mut server, mut client] = shake(&files.server, &files.client, usize::MAX).unwrap();
        let records = [b"1", b"2"].map(|content| seal(&mut client, &[content]));
        let opened = order.map(|at| server.incoming.open(&mut records[at].clone()).is_ok());
        assert!(!opened[1] && opened[0] == (order[0] == 0), "{order:?}: {opened:?}");
    }
}

#[test]
fn an_end_is_told_from_a_cut() {
    let files = files();
    let [mut server, mut client] = shake(&files.server, &files.client, usize::MAX).unwrap();
    let mut out = Sealed::default();
    client.outgoing.seal([&b"last"[..]], &mut out).unwrap();
    client.outgoing.end(&mut out).unwrap();
    let len = out.unsent().len();
    client.outgoing.end(&mut out).unwrap();
    client.outgoing.seal([&b"more"[..]], &mut out).unwrap();
    assert_eq!(out.unsent().len(), len, "nothing follows an end");
    assert_eq!(open_all(&mut server, out.unsent()).unwrap(), (b"last".to_vec(), true));
}

#[test]
fn a_key_is_renewed_when_it_has_sealed_enough_and_when_the_peer_asks() {
    let files = files();
    let [mut server, mut client] = shake(&files.server, &files.client, usize::MAX).unwrap();
    client.outgoing.records_of_a_key = 2;
    for round in 0..9_u8 {
        let sealed = seal(&mut client, &[&[round]]);
        assert_eq!(open_all(&mut server, &sealed).unwrap().0, [round]);
    }
    assert!(client.outgoing.cipher.number() <= 2);
    // The client's own direction is renewed because the server asks for it.
    client.outgoing.records_of_a_key = u64::MAX;
    let mut out = Sealed::default();
    let asked = [message::KEY_UPDATE, 0, 0, 1, 1];
    server.outgoing.cipher.seal(content::HANDSHAKE, &asked, &mut out).unwrap();
    server.outgoing.cipher = Cipher::new(server.outgoing.shared.secrets().next_of_sender().unwrap()).unwrap();
    let answer = seal(&mut server, &[b"new"]);
    let both = [out.unsent(), &answer].concat();
    assert_eq!(open_all(&mut client, &both).unwrap().0, b"new");
    let longer = seal(&mut client, &[&[9]]);
    assert_eq!(open_all(&mut server, &longer).unwrap().0, [9]);
    assert_eq!(client.outgoing.cipher.number(), 1, "the key is a new one");
}

#[test]
fn messages_that_have_no_place_end_the_connection() {
    let files = files();
    let update = [message::KEY_UPDATE, 0, 0, 1, 0];
    let half = &update[..3];
    for (records, why) in [
        (vec![(content::HANDSHAKE, &[1, 0, 0, 0][..])], "no place"),
        (vec![(content::HANDSHAKE, &[message::NEW_SESSION_TICKET, 0, 0, 0])], "no place"),
        (vec![(content::HANDSHAKE, &[message::KEY_UPDATE, 0, 0, 1, 2])], "no place"),
        (vec![(content::HANDSHAKE, &[])], "wrong length"),
        (vec![(content::HANDSHAKE, half), (content::APPLICATION_DATA, b"x")], "in its midst"),
        (vec![(content::ALERT, &[2])], "wrong length"),
        (vec![(content::ALERT, &[2, 40])], "alert 40"),
        (vec![(99, b"x")], "unknown type"),
    ] {
        let [mut server, mut client] = shake(&files.server, &files.client, usize::MAX).unwrap();
        let mut out = Sealed::default();
        for (kind, bytes) in &records {
            client.outgoing.cipher.seal(*kind, bytes, &mut out).unwrap();
        }
        let error = open_all(&mut server, out.unsent()).unwrap_err().to_string();
        assert!(error.contains(why), "{records:?}: {error}");
    }
}

#[test]
fn records_without_data_are_bounded() {
    let files = files();
    let [mut server, mut client] = shake(&files.server, &files.client, usize::MAX).unwrap();
    let mut update = |server: &mut Established| {
        let mut out = Sealed::default();
        client.outgoing.cipher.seal(content::HANDSHAKE, &[message::KEY_UPDATE, 0, 0, 1, 0], &mut out).unwrap();
        client.outgoing.cipher = Cipher::new(client.outgoing.shared.secrets().next_of_sender().unwrap()).unwrap();
        open_all(server, out.unsent())
    };
    for _ in 0..MAX_IDLE_RECORDS {
        update(&mut server).unwrap();
    }
    assert!(update(&mut server).is_err());
    let [mut server, mut client] = shake(&files.server, &files.client, usize::MAX).unwrap();
    let mut out = Sealed::default();
    for _ in 0..=MAX_IDLE_RECORDS {
        client.outgoing.cipher.seal(content::APPLICATION_DATA, b"", &mut out).unwrap();
    }
    assert!(open_all(&mut server, out.unsent()).unwrap_err().to_string().contains("without data"));
}

#[test]
fn a_failure_is_told_by_its_alert() {
    let files = files();
    let [mut server, mut client] = shake(&files.server, &files.client, usize::MAX).unwrap();
    let error = server
        .incoming
        .open(&mut [23, 3, 3, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .unwrap_err();
    let mut out = Sealed::default();
    server.outgoing.alert(error.alert().unwrap(), &mut out).unwrap();
    assert!(matches!(open_all(&mut client, out.unsent()), Err(ChannelError::Alert(20))));
}

#[test]
fn handshakes_and_messages_are_bounded() {
    let files = files();
    let mut server = Handshake::server(&files.server).unwrap();
    // Records of a message that is a little longer than it may be.
    let mut out = Sealed::default();
    let mut record = vec![0; 5 + MAX_CONTENT_BYTES];
    record[..9].copy_from_slice(&[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xf0]);
    // The last one breaks the limit of rustls, or ours.
    let received: Vec<_> = (0..4).map(|_| server.receive(&record, &mut out).is_ok()).collect();
    assert!(received[0] && !received[3], "{received:?}");
    // Small records without an end, as a peer may send while both sides agree.
    let mut server = Handshake::server(&files.server).unwrap();
    let mut rounds = 0..crate::limits::MAX_HANDSHAKE_BYTES;
    assert!(rounds.any(|at| server.receive(&[22, 3, 1, 0, 1, u8::from(at == 0)], &mut out).is_err()));
    let [mut server, mut client] = shake(&files.server, &files.client, usize::MAX).unwrap();
    let tickets = seal(&mut server, &[b"x"]);
    open_all(&mut client, &tickets).unwrap();
    let mut out = Sealed::default();
    let mut message = vec![0; 16_000];
    message[..4].copy_from_slice(&[message::NEW_SESSION_TICKET, 0xff, 0xff, 0xff]);
    for _ in 0..3 {
        server.outgoing.cipher.seal(content::HANDSHAKE, &message, &mut out).unwrap();
    }
    assert!(open_all(&mut client, out.unsent()).unwrap_err().to_string().contains("wrong length"));
}

#[test]
fn a_second_connection_resumes_the_first() {
    let files = files();
    let [mut server, mut client] = shake(&files.server, &files.client, 100).unwrap();
    assert!(!server.is_resumed && !client.is_resumed);
    // Tickets come behind the handshake.
    let sealed = seal(&mut server, &[b"x"]);
    open_all(&mut client, &sealed).unwrap();
    let [server, client] = shake(&files.server, &files.client, 100).unwrap();
    assert!(server.is_resumed && client.is_resumed);
}

#[test]
fn a_pinned_server_needs_no_authority_and_no_name() {
    let files = files();
    let fingerprint = crate::Fingerprint::of(&files.certificate);
    let client = |fingerprint| Arc::new(stream_client(Servers::Pinned(fingerprint), None, crate::ISCSI).unwrap());
    let [_, established] = shake(&files.server, &client(fingerprint), 100).unwrap();
    assert_eq!(established.certificate.unwrap().as_ref(), files.certificate);
    let other = crate::Fingerprint::of(b"another");
    assert!(matches!(shake(&files.server, &client(other), 100), Err(ChannelError::Handshake(_))));
}

#[test]
fn old_versions_and_other_protocols_are_refused() {
    let files = files();
    let with = |versions: &[&'static SupportedProtocolVersion], protocol: &[u8]| {
        let mut trusted = RootCertStore::empty();
        trusted.add(files.certificate.clone().into()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(versions).unwrap();
        let mut config = builder.with_root_certificates(trusted).with_no_client_auth();
        config.enable_secret_extraction = true;
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    };
    assert!(shake(&files.server, &with(&[&TLS13], crate::ISCSI), 100).is_ok());
    assert!(matches!(shake(&files.server, &with(&[&TLS12], crate::ISCSI), 100), Err(ChannelError::Handshake(_))));
    assert!(matches!(shake(&files.server, &with(&[&TLS13], b"http/1.1"), 100), Err(ChannelError::Handshake(_))));
}

#[test]
fn a_changed_bit_at_the_front_of_a_handshake_ends_it() {
    let files = files();
    let hello = || {
        let (mut client, mut hello) = (Handshake::client(&files.client, name()).unwrap(), Sealed::default());
        client.receive(&[], &mut hello).unwrap();
        (client, hello.unsent().to_vec())
    };
    let answer = |hello: &[u8]| {
        let (mut server, mut answer) = (Handshake::server(&files.server).unwrap(), Sealed::default());
        server.receive(hello, &mut answer).map(|()| answer.unsent().to_vec())
    };
    // The front of what each side says first: the header of the record, that of the message, and its first fields.
    for (place, bit) in (0..60).flat_map(|place| (0..8).map(move |bit| (place, bit))) {
        let (mut client, mut hello) = hello();
        let mut back = answer(&hello).unwrap();
        hello[place] ^= 1 << bit;
        // It waits for more, or goes on with what the client does not take.
        drop(answer(&hello));
        back[place] ^= 1 << bit;
        let told = client.receive(&back, &mut Sealed::default());
        // The version of a record is ignored (RFC 8446 section 5.1).
        assert!(told.is_err() || !client.is_done() || place == 2, "byte {place}, bit {bit}");
    }
}
