//! The two directions without a socket.

use std::io::IoSlice;

use lunette_tls::{Servers, UNNAMED, stream_client};
use rustls::pki_types::ServerName;

use super::*;

/// A server and a client whose handshake has ended.
fn sides() -> [Established; 2] {
    let config = Arc::new(stream_client(Servers::Any, None, UNNAMED).unwrap());
    let mut client = Handshake::client(&config, ServerName::try_from(SERVER).unwrap()).unwrap();
    let mut server = Handshake::server(&(Certificates::new().server(Admitted::Any).config)()).unwrap();
    let (mut to_server, mut to_client) = (Sealed::default(), Sealed::default());
    client.receive(&[], &mut to_server).unwrap();
    while !to_server.is_empty() || !to_client.is_empty() {
        server.receive(to_server.unsent(), &mut to_client).unwrap();
        to_server.sent(usize::MAX);
        client.receive(to_client.unsent(), &mut to_server).unwrap();
        to_client.sent(usize::MAX);
    }
    [server.finish().unwrap(), client.finish().unwrap()]
}

/// The two ends of a direction from the client to the server.
fn direction() -> (Sealing, Opening) {
    let [server, client] = sides();
    (Sealing::new(client.outgoing), Opening::new(server.incoming, server.content, &server.received))
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Seals `content` as pieces.
fn sealed(sealing: &mut Sealing, content: &[u8]) -> Vec<u8> {
    let (mut out, mut done) = (Vec::new(), 0);
    while done < content.len() {
        let pieces = content[done..].chunks(10_000).map(IoSlice::new).collect::<Vec<_>>();
        done += sealing.write(&pieces, |bytes| out.write_vectored(bytes)).unwrap();
    }
    out
}

/// Reads to the end, `step` bytes at a time.
fn read_all(opening: &mut Opening, mut from: &[u8], step: usize) -> io::Result<Vec<u8>> {
    let (mut all, mut piece) = (Vec::new(), vec![0; step]);
    loop {
        match opening.read(&mut piece, |room| from.read(room)) {
            Ok(0) => return Ok(all),
            Ok(len) => all.extend_from_slice(&piece[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn content_arrives_whatever_is_read_at_a_time() {
    let content = content(1 << 20);
    for step in [1000, 16 << 10, (16 << 10) + 1, 64 << 10, 1 << 20] {
        let (mut sealing, mut opening) = direction();
        let records = sealed(&mut sealing, &content);
        assert!(read_all(&mut opening, &records, step).unwrap() == content, "{step} bytes at a time");
    }
}

#[test]
fn content_that_came_with_the_handshake_comes_first() {
    let [server, client] = sides();
    let mut sealing = Sealing::new(client.outgoing);
    let records = [sealed(&mut sealing, b"second"), sealed(&mut sealing, b"third")].concat();
    let (with, behind) = records.split_at(10);
    let mut opening = Opening::new(server.incoming, b"first".to_vec(), with);
    assert_eq!(read_all(&mut opening, behind, 3).unwrap(), b"firstsecondthird");
}

#[test]
fn an_end_within_a_record_is_an_error_and_one_between_records_an_end() {
    let cut = |len: Option<usize>| {
        let (mut sealing, mut opening) = direction();
        let first = sealed(&mut sealing, b"first");
        let both = [first.clone(), sealed(&mut sealing, b"second")].concat();
        let len = len.unwrap_or(both.len());
        (read_all(&mut opening, &both[..len.min(both.len())], 100), first.len(), both.len())
    };
    let (whole, first, both) = cut(None);
    assert_eq!(whole.unwrap(), b"firstsecond");
    for len in 0..both {
        match cut(Some(len)).0 {
            Ok(all) if len == 0 => assert!(all.is_empty()),
            Ok(all) => assert_eq!((len, &*all), (first, &b"first"[..])),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len}: {error}"),
        }
    }
}

#[test]
fn what_follows_the_farewell_is_not_read() {
    let (mut sealing, mut opening) = direction();
    let mut records = sealed(&mut sealing, b"last");
    sealing.end(|bytes| records.write_vectored(bytes));
    let len = records.len();
    records.extend_from_slice(b"GET / HTTP/1.1");
    assert_eq!(read_all(&mut opening, &records, 100).unwrap(), b"last");
    sealing.end(|_| panic!("it is said once"));
    assert!(len > 0);
}

#[test]
fn what_leads_to_no_content_lets_time_limits_be_checked() {
    let [server, mut client] = sides();
    let mut opening = Opening::new(server.incoming, server.content, &server.received);
    let mut out = Sealed::default();
    client.outgoing.seal([&b"x"[..]], &mut out).unwrap();
    let record = out.unsent().to_vec();
    let mut room = [0; 10];
    let (front, back) = record.split_at(7);
    let waited = opening.read(&mut room, |into| (&mut &front[..]).read(into)).unwrap_err();
    assert_eq!(waited.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(opening.read(&mut room, |into| (&mut &back[..]).read(into)).unwrap(), 1);
}

/// Takes `len` bytes at a time.
fn take(len: usize, taken: &mut Vec<u8>) -> impl FnMut(&[IoSlice<'_>]) -> io::Result<usize> {
    move |bytes| {
        let now = &bytes[0][..len.min(bytes[0].len())];
        taken.extend_from_slice(now);
        Ok(now.len())
    }
}

#[test]
fn a_writer_says_so_when_all_records_are_sent() {
    let (mut sealing, mut opening) = direction();
    let (content, mut taken, mut waits) = (content(300 << 10), Vec::new(), 0);
    let mut rest = &content[..];
    while !rest.is_empty() {
        match sealing.write(&[IoSlice::new(rest)], take(10_000, &mut taken)) {
            Ok(len) => {
                assert!(!sealing.has_unsent());
                rest = &rest[len..];
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                waits += 1;
            }
        }
    }
    assert!(waits > 20, "{waits}");
    assert!(read_all(&mut opening, &taken, 1 << 20).unwrap() == content);
}

#[test]
fn what_is_accepted_is_sent_before_what_follows() {
    let (mut sealing, mut opening) = direction();
    let mut taken = Vec::new();
    assert_eq!(sealing.accept(&[IoSlice::new(b"first")], take(3, &mut taken)).unwrap(), 5);
    assert!(sealing.has_unsent());
    let waits = sealing.accept(&[IoSlice::new(b"second")], take(3, &mut taken)).unwrap_err();
    assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(sealing.accept(&[IoSlice::new(b"second")], take(1000, &mut taken)).unwrap(), 6);
    assert_eq!(sealing.accept(&[], |_| panic!("there is nothing")).unwrap(), 0);
    assert_eq!(read_all(&mut opening, &taken, 100).unwrap(), b"firstsecond");
}
