//! `STARTTLS` among the other options, and plain text behind it.

use std::os::unix::net::UnixListener;

use lunette_tls::{Servers, UNNAMED, stream_client};
use rustls::pki_types::ServerName;

use super::*;
use crate::Client;
use crate::handshake::{End, negotiate};
use crate::limited::Limited;
use crate::limited::testing::{Slow, now};
use crate::limits::HANDSHAKE_TIMEOUT;
use crate::wire::{OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHeader, Request, SERVER_MAGIC, command, option};
use crate::wire::{info, option_reply, reply};

/// The length of the server's first words.
const GREETING_LEN: usize = 18;

fn say(option: u32, data: &[u8]) -> Vec<u8> {
    [&OptionHeader { option, len: data.len() as u32 }.emit()[..], data].concat()
}

fn go() -> Vec<u8> {
    say(option::GO, b"\0\0\0\x04disk\0\0")
}

/// The options that are answered, with the kind of each reply.
fn kinds(mut said: &[u8]) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    while let Some((header, rest)) = said.split_first_chunk::<20>() {
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(header[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        found.push((number(8), number(12)));
        said = &rest[number(16) as usize..];
    }
    found
}

fn export() -> Export {
    Export::new("disk", Arc::new(MemoryStore::new(1 << 20).unwrap()), false).unwrap()
}

#[test]
fn nothing_but_starttls_and_abort_is_answered_before_tls() {
    let (tls, export) = (Certificates::new().server(Admitted::Any), export());
    let before = [option::LIST, option::INFO, option::STRUCTURED_REPLY, option::SET_META_CONTEXT, 99];
    let mut script = 3_u32.to_be_bytes().to_vec();
    script.extend(before.iter().flat_map(|number| say(*number, b"data")));
    script.extend([go(), say(option::STARTTLS, b"data"), say(option::STARTTLS, &[])].concat());
    let mut said = Vec::new();
    let end = negotiate(&mut Stream::new(&script[..], &mut said), &export, Client::default(), Some(&tls)).unwrap();
    let End::Tls(_, negotiation) = end else { panic!("the negotiation has ended without TLS") };
    let mut expected: Vec<_> = before.iter().map(|number| (*number, reply::ERR_TLS_REQD)).collect();
    expected.push((option::GO, reply::ERR_TLS_REQD));
    expected.extend([(option::STARTTLS, reply::ERR_INVALID), (option::STARTTLS, reply::ACK)]);
    assert_eq!(kinds(&said[GREETING_LEN..]), expected);

    let (script, mut said) = ([say(option::STARTTLS, &[]), say(option::LIST, &[]), go()].concat(), Vec::new());
    let end = negotiation.go_on(&mut Stream::new(&script[..], &mut said)).unwrap();
    assert!(matches!(end, End::Agreed(..)));
    assert_eq!(kinds(&said)[..2], [(option::STARTTLS, reply::ERR_INVALID), (option::LIST, reply::SERVER)]);

    let (script, mut said) = ([&3_u32.to_be_bytes()[..], &say(option::ABORT, &[])].concat(), Vec::new());
    let end = negotiate(&mut Stream::new(&script[..], &mut said), &export, Client::default(), Some(&tls)).unwrap();
    assert!(matches!(end, End::Left));
    assert_eq!(kinds(&said[GREETING_LEN..]), [(option::ABORT, reply::ACK)]);
}

#[test]
fn the_old_way_to_start_ends_the_connection_before_tls() {
    let (tls, export) = (Certificates::new().server(Admitted::Any), export());
    for flags in [0_u32, 3] {
        let script = [&flags.to_be_bytes()[..], &say(option::EXPORT_NAME, b"disk")].concat();
        let mut said = Vec::new();
        let end = negotiate(&mut Stream::new(&script[..], &mut said), &export, Client::default(), Some(&tls));
        assert!(matches!(end, Err(ConnectionError::WithoutTls)));
        assert_eq!(said.len(), GREETING_LEN);
    }
}

/// The first bytes of a client's handshake of TLS.
fn hello() -> Vec<u8> {
    let config = Arc::new(stream_client(Servers::Any, None, UNNAMED).unwrap());
    let mut handshake = Handshake::client(&config, ServerName::try_from(SERVER).unwrap()).unwrap();
    let mut out = Sealed::default();
    handshake.receive(&[], &mut out).unwrap();
    out.unsent().to_vec()
}

#[test]
fn plain_text_behind_starttls_is_a_part_of_the_handshake_and_nothing_else() {
    let tls = Certificates::new().server(Admitted::Any);
    let start = [&3_u32.to_be_bytes()[..], &say(option::STARTTLS, &[])].concat();
    let write = Request { flags: 0, command: command::WRITE, cookie: 1, offset: 0, len: 512 }.emit();
    let injected = [go(), write.to_vec(), vec![7; 512]].concat();
    for (behind, is_handshake) in [(injected.clone(), false), ([injected, hello()].concat(), false), (hello(), true)] {
        let (said, served) = raw_client(tls.clone(), &[start.clone(), behind].concat());
        let (plain, rest) = said[GREETING_LEN..].split_at(20);
        assert_eq!(kinds(plain), [(option::STARTTLS, reply::ACK)]);
        // A handshake, or an alert: no option and no request is answered.
        assert_eq!(rest.first().copied(), Some(if is_handshake { 22 } else { 21 }), "{rest:?}");
        match served {
            Err(ConnectionError::Tls(_)) => assert!(!is_handshake),
            Err(ConnectionError::Io(error)) => assert!(is_handshake, "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn plain_text_behind_the_answer_to_starttls_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let greeting = [&SERVER_MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &[0, 3]].concat();
        stream.write_all(&greeting).unwrap();
        stream.read_exact(&mut [0; 4 + 16]).unwrap();
        let facts = [&info::EXPORT.to_be_bytes()[..], &(1_u64 << 20).to_be_bytes(), &[0, 1]].concat();
        let injected = [
            &option_reply(option::STARTTLS, reply::ACK, 0)[..],
            &option_reply(option::STRUCTURED_REPLY, reply::ACK, 0),
            &option_reply(option::GO, reply::INFO, 12),
            &facts,
            &option_reply(option::GO, reply::ACK, 0),
        ];
        stream.write_all(&injected.concat()).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        heard
    });
    let url = format!("nbds+unix:///secret?socket={}&tls-verify-peer=0", socket.display());
    let opened = NbdStore::open(&url.parse().unwrap(), false);
    assert!(matches!(opened, Err(OpenError::Secure(_))), "{opened:?}");
    let heard = server.join().unwrap();
    assert!(!heard.windows(6).any(|bytes| bytes == b"secret"), "the name of the export is for TLS");
}

#[test]
fn the_handshake_of_tls_has_the_time_of_the_negotiation() {
    let tls = Certificates::new().server(Admitted::Any);
    let script = [&3_u32.to_be_bytes()[..], &say(option::STARTTLS, &[])].concat();
    let start = now();
    let mut slow = Limited::with_clock((&script[..]).chain(Slow(&[22, 3, 1, 2, 0])), now);
    slow.start(HANDSHAKE_TIMEOUT);
    let (mut said, export) = (Vec::new(), export());
    let stream = Stream { reader: BufReader::new(slow), writer: Limited::new(&mut said) };
    let io: crate::SharedIo = Arc::new(InlineIo);
    let served = crate::serve(stream, &export, Client::default(), &io, Some(&tls));
    assert!(matches!(served, Err(ConnectionError::Io(error)) if error.kind() == io::ErrorKind::TimedOut));
    assert_eq!(now() - start, HANDSHAKE_TIMEOUT);
}
