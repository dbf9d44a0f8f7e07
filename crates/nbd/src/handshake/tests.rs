use std::io::BufReader;
use std::sync::Arc;

use lunette_store::MemoryStore;

use super::*;
use crate::limited::Limited;
use crate::limited::testing::{Full, Slow, now};
use crate::limits::HANDSHAKE_TIMEOUT;
use crate::wire::OPTION_REPLY_MAGIC;

const LEN: u64 = 1 << 20;

fn export() -> Export {
    Export::new("disk", Arc::new(MemoryStore::new(LEN).unwrap()), false).unwrap()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn go(name: &str) -> Vec<u8> {
    option(option::GO, &[string(name), vec![0, 0]].concat())
}

fn contexts(kind: u32, queries: &[&str]) -> Vec<u8> {
    let list: Vec<u8> = queries.iter().flat_map(|query| string(query)).collect();
    option(kind, &[string("disk"), (queries.len() as u32).to_be_bytes().to_vec(), list].concat())
}

/// Sends flags and options. Returns the server's bytes without its first 18.
fn talk(flags: u32, options: &[Vec<u8>]) -> (Result<Option<Negotiated>, ConnectionError>, Vec<u8>) {
    let script = [&flags.to_be_bytes()[..], &options.concat()].concat();
    let (mut said, export) = (Vec::new(), export());
    let result =
        negotiate(&mut Stream::new(&script[..], &mut said), &export, Client::default(), None).map(|end| agreed(&end));
    assert_eq!(&said[..18], b"NBDMAGICIHAVEOPT\0\x03");
    (result, said.split_off(18))
}

/// The result of a negotiation without TLS.
fn agreed(end: &End<'_>) -> Option<Negotiated> {
    match end {
        End::Left => None,
        End::Agreed(_, agreed) => Some(*agreed),
        End::Tls(..) => panic!("there is no TLS"),
    }
}

/// The kinds of the replies, in order, with their data.
fn replies(mut said: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some((header, rest)) = said.split_first_chunk::<20>() {
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(header[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        let (data, rest) = rest.split_at(number(16) as usize);
        found.push((number(8), number(12), data.to_vec()));
        said = rest;
    }
    assert!(said.is_empty(), "bytes that do not make a reply: {said:?}");
    found
}

fn kinds(said: &[u8]) -> Vec<u32> {
    replies(said).into_iter().map(|(_, kind, _)| kind).collect()
}

#[test]
fn go_reports_size_flags_and_block_sizes() {
    let (result, said) = talk(3, &[option(option::STRUCTURED_REPLY, &[]), go("")]);
    assert_eq!(result.unwrap(), Some(Negotiated { structured: true, allocation: false }));
    let replies = replies(&said);
    assert_eq!(replies.iter().map(|reply| reply.1).collect::<Vec<_>>(), [reply::ACK, 3, 3, reply::ACK]);
    let flags = crate::wire::can::DF | export().flags(false);
    assert_eq!(replies[1].2, [&[0, 0][..], &LEN.to_be_bytes(), &flags.to_be_bytes()].concat());
    assert_eq!(replies[2].2, [&[0, 3][..], &[0, 0, 2, 0], &[0, 0, 16, 0], &[1, 0, 0, 0]].concat());
}

#[test]
fn info_leaves_the_negotiation_open() {
    let ask = option(option::INFO, &[string("disk"), vec![0, 1, 0, 1]].concat());
    let (result, said) = talk(3, &[ask, option(option::ABORT, &[])]);
    assert_eq!(result.unwrap(), None);
    assert_eq!(replies(&said)[1].2, b"\0\x01disk");
    assert_eq!(kinds(&said), [3, 3, 3, 1, 1]);
}

#[test]
fn export_name_answers_without_a_header() {
    let (result, said) = talk(3, &[option(option::EXPORT_NAME, b"disk")]);
    assert_eq!((result.unwrap(), said.len()), (Some(Negotiated::default()), 10));
    let (result, said) = talk(0, &[option(option::EXPORT_NAME, b"")]);
    assert_eq!((result.unwrap(), said.len()), (Some(Negotiated::default()), 134));
    let (result, said) = talk(3, &[option(option::EXPORT_NAME, b"other")]);
    assert!(matches!(result, Err(ConnectionError::UnknownExport(name)) if name == "other"));
    assert!(said.is_empty());
}

#[test]
fn list_names_the_export() {
    let (_, said) = talk(1, &[option(option::LIST, &[]), option(option::LIST, b"x")]);
    assert_eq!(kinds(&said), [reply::SERVER, reply::ACK, reply::ERR_INVALID]);
    assert_eq!(replies(&said)[0].2, string("disk"));
}

#[test]
fn contexts_need_structured_replies_and_the_last_selection_counts() {
    let structured = option(option::STRUCTURED_REPLY, &[]);
    let set = |queries: &[&str]| contexts(option::SET_META_CONTEXT, queries);
    let all = "base:allocation";
    let (_, said) = talk(1, &[set(&[all])]);
    assert_eq!(kinds(&said), [reply::ERR_INVALID]);
    let (result, said) = talk(1, &[structured.clone(), set(&["x:y", all]), go("disk")]);
    assert!(result.unwrap().unwrap().allocation);
    assert_eq!(replies(&said)[1].2, b"\0\0\0\x01base:allocation");
    let (result, said) = talk(1, &[structured.clone(), set(&[all]), set(&["x:y"]), go("disk")]);
    assert!(!result.unwrap().unwrap().allocation);
    assert_eq!(kinds(&said)[..4], [1, 4, 1, 1]);
    let (_, said) = talk(1, &[structured, contexts(option::LIST_META_CONTEXT, &["base:"])]);
    assert_eq!(kinds(&said), [1, 4, 1]);
}

/// Two exports, of which one is for clients with a certificate. It counts how often it is asked.
struct Two(std::sync::atomic::AtomicUsize);

impl Exports for Two {
    fn names(&self, client: &Client) -> Vec<String> {
        let secret = client.certificate.is_some().then(|| "secret".into());
        std::iter::once("open".into()).chain(secret).collect()
    }

    fn open(&self, client: &Client, name: &str) -> Option<Export> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let store = || Arc::new(MemoryStore::new(LEN).unwrap());
        let known = self.names(client).iter().any(|known| known == name);
        known.then(|| Export::new(name, store(), false).unwrap())
    }
}

#[test]
fn a_client_finds_the_exports_that_are_for_it() {
    let exports = Two(0.into());
    let ask = |client: Client, options: &[Vec<u8>]| {
        let script = [&3u32.to_be_bytes()[..], &options.concat()].concat();
        let mut said = Vec::new();
        let end = negotiate(&mut Stream::new(&script[..], &mut said), &exports, client, None).unwrap();
        (agreed(&end), replies(&said[18..]))
    };
    let list = option(option::LIST, &[]);
    let (end, said) = ask(Client::default(), &[list.clone(), go("secret"), go(""), go("open")]);
    assert!(end.is_some());
    let kinds: Vec<_> = said.iter().map(|reply| reply.1).collect();
    assert_eq!(kinds[..4], [reply::SERVER, reply::ACK, reply::ERR_UNKNOWN, reply::ERR_UNKNOWN]);
    let certificate = rcgen::generate_simple_self_signed(["db1".to_owned()]).unwrap();
    let known = Client { certificate: Peer::of(certificate.cert.der()), ..Client::default() };
    let (end, said) = ask(known, &[list, go("secret")]);
    assert!(end.is_some());
    assert_eq!([&said[0].2, &said[1].2], [&string("open"), &string("secret")]);
}

#[test]
fn an_export_is_opened_once_while_a_client_asks_about_it() {
    let exports = Two(0.into());
    let structured = option(option::STRUCTURED_REPLY, &[]);
    let contexts_of = |name: &str| {
        let list = string("base:allocation");
        option(option::SET_META_CONTEXT, &[string(name), 1u32.to_be_bytes().to_vec(), list].concat())
    };
    let info = option(option::INFO, &[string("open"), vec![0, 0]].concat());
    let script = [&3u32.to_be_bytes()[..], &structured, &contexts_of("open"), &info, &go("open")].concat();
    let mut said = Vec::new();
    let end = negotiate(&mut Stream::new(&script[..], &mut said), &exports, Client::default(), None).unwrap();
    assert!(agreed(&end).unwrap().allocation);
    assert_eq!(exports.0.into_inner(), 1);
}

#[test]
fn a_context_counts_for_the_export_that_it_was_agreed_for() {
    struct Any;
    impl Exports for Any {
        fn names(&self, _: &Client) -> Vec<String> {
            Vec::new()
        }
        fn open(&self, _: &Client, name: &str) -> Option<Export> {
            Export::new(name, Arc::new(MemoryStore::new(LEN).unwrap()), false).ok()
        }
    }
    let options = [option(option::STRUCTURED_REPLY, &[]), contexts(option::SET_META_CONTEXT, &["base:allocation"])];
    for (name, has_context) in [("disk", true), ("other", false)] {
        let script = [&3u32.to_be_bytes()[..], &options.concat(), &go(name)].concat();
        let mut said = Vec::new();
        let end = negotiate(&mut Stream::new(&script[..], &mut said), &Any, Client::default(), None).unwrap();
        assert_eq!(agreed(&end).unwrap().allocation, has_context, "{name}");
    }
}

#[test]
fn errors_keep_the_negotiation_going() {
    let too_long = option(option::INFO, &vec![0; MAX_OPTION_LEN as usize + 1]);
    let (result, said) = talk(
        1,
        &[
            option(option::STARTTLS, &[]),
            option(99, b"data"),
            too_long,
            go("other"),
            option(option::GO, b"x"),
            go("disk"),
        ],
    );
    assert!(result.unwrap().is_some());
    let expected = [reply::ERR_POLICY, reply::ERR_UNSUP, reply::ERR_TOO_BIG, reply::ERR_UNKNOWN, reply::ERR_INVALID];
    assert_eq!(kinds(&said)[..5], expected);
}

#[test]
fn what_cannot_be_answered_ends_the_connection() {
    let broken = |flags, options: &[Vec<u8>]| assert!(talk(flags, options).0.is_err(), "{flags} {options:?}");
    broken(4, &[]);
    broken(0, &[option(option::LIST, &[])]);
    broken(1, &[b"IHAVEOPX".to_vec(), vec![0; 8]]);
    broken(1, &[[&OPTION_MAGIC.to_be_bytes()[..], &[0, 0, 0, 7], &[0xff; 4]].concat()]);
    broken(1, &[go("disk")[..20].to_vec()]);
    broken(1, &vec![option(option::LIST, &[]); MAX_OPTIONS + 1]);
}

#[test]
fn a_client_may_leave_between_options() {
    let (mut said, export) = (Vec::new(), export());
    let end = negotiate(&mut Stream::new(&[][..], &mut said), &export, Client::default(), None).unwrap();
    assert_eq!(agreed(&end), None);
    assert_eq!(talk(3, &[]).0.unwrap(), None);
}

#[test]
fn the_whole_negotiation_has_one_time_limit() {
    let export = export();
    let timed_out =
        |result| matches!(result, Err(ConnectionError::Io(error)) if error.kind() == io::ErrorKind::TimedOut);
    let script = [&3u32.to_be_bytes()[..], &option(option::LIST, &[]).repeat(MAX_OPTIONS - 1)].concat();
    for (name, script) in
        [("one byte every two seconds", &script[..]), ("silence", &[]), ("half an option", &script[..9])]
    {
        let start = now();
        let mut slow = Limited::with_clock(Slow(script), now);
        slow.start(HANDSHAKE_TIMEOUT);
        let mut said = Vec::new();
        let mut stream = Stream { reader: BufReader::new(slow), writer: Limited::new(&mut said) };
        let result = negotiate(&mut stream, &export, Client::default(), None);
        assert!(timed_out(result), "{name}");
        assert_eq!(now() - start, HANDSHAKE_TIMEOUT, "{name}");
    }
    let mut full = Limited::with_clock(Full, now);
    full.start(HANDSHAKE_TIMEOUT);
    let mut stream = Stream { reader: BufReader::new(Limited::new(&script[..])), writer: full };
    assert!(timed_out(negotiate(&mut stream, &export, Client::default(), None)), "a client that reads no answer");
}
