use std::collections::HashMap;
use std::io::{IoSlice, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lunette_store::filters::{Delay, Fault, Rule};
use lunette_store::{InlineIo, MemoryStore, Store, StoreError};
use rustix::net::SendFlags;

use super::*;
use crate::limited::testing::{Full, Slow, now};
use crate::limits::{MAX_PAYLOAD_LEN, MAX_REQUESTS};
use crate::socket::send;
use crate::wire::{CHUNK_MAGIC, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, chunk, flag, simple_reply};

const LEN: u64 = 64 << 20;
const ALL: Negotiated = Negotiated { structured: true, allocation: true };
const PLAIN: Negotiated = Negotiated { structured: false, allocation: false };

fn memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(LEN).unwrap())
}

fn request(command: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    Request { flags, command, cookie, offset, len }.emit().to_vec()
}

/// A connection without limits of time.
fn stream<R: Read, W>(reader: R, writer: W) -> Stream<R, W> {
    Stream { reader: BufReader::new(Limited::new(reader)), writer: Limited::new(writer) }
}

/// Sends the script and then end-of-file; gives the bytes that came back.
fn talk(store: Arc<dyn Store>, negotiated: Negotiated, script: &[Vec<u8>]) -> (Result<(), ConnectionError>, Vec<u8>) {
    let export = Export::new("disk", store, false).unwrap();
    let io: SharedIo = Arc::new(InlineIo);
    let mut said = Vec::new();
    let script = script.concat();
    let result = run(stream(&script[..], &mut said), &export, &io, negotiated);
    (result, said)
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

/// The errors of simple replies without data, by cookie.
fn errors(said: &[u8]) -> HashMap<u64, u32> {
    let (replies, rest) = said.as_chunks::<16>();
    assert!(rest.is_empty());
    let each = |reply: &[u8; 16]| {
        assert_eq!(number(&reply[..4]), SIMPLE_REPLY_MAGIC);
        (u64::from_be_bytes(reply[8..].try_into().unwrap()), number(&reply[4..8]))
    };
    replies.iter().map(each).collect()
}

/// The type and payload of a single chunk.
fn only_chunk_of(said: &[u8], cookie: u64) -> (u16, &[u8]) {
    assert_eq!((number(&said[..4]), &said[4..6]), (CHUNK_MAGIC, &[0, 1][..]));
    assert_eq!(said[8..16], cookie.to_be_bytes());
    assert_eq!(number(&said[16..20]) as usize, said.len() - 20);
    (u16::from_be_bytes([said[6], said[7]]), &said[20..])
}

#[test]
fn a_long_read_of_a_disk_in_memory_brings_its_pieces_in_order() {
    const READ_LEN: usize = 3 << 20;
    let store = memory();
    // Pieces of the disk's memory begin and end within the read, and one was never written.
    let bytes: Vec<u8> = (0..READ_LEN).map(|at| if at < READ_LEN / 2 { (at % 251) as u8 } else { 0 }).collect();
    store.write(1024, &bytes[..READ_LEN / 2]).unwrap();
    let offsets = || (0..3).map(|page| page * PAGE_LEN as u64);
    let reads: Vec<_> =
        offsets().map(|offset| request(command::READ, 0, offset, offset + 1024, READ_LEN as u32)).collect();
    let (result, said) = talk(Arc::<MemoryStore>::clone(&store), PLAIN, &reads);
    result.unwrap();
    for (offset, reply) in offsets().zip(said.chunks(16 + READ_LEN)) {
        let mut expected = bytes[offset as usize..].to_vec();
        expected.resize(READ_LEN, 0);
        assert_eq!(reply[..16], simple_reply(offset, None));
        assert!(reply[16..] == expected, "from {offset}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    let store = memory();
    let write = [request(command::WRITE, flag::FUA, 1, 4096, 1024), vec![0xa5; 1024]].concat();
    let (result, said) = talk(Arc::<MemoryStore>::clone(&store), ALL, &[write]);
    result.unwrap();
    assert_eq!(errors(&said), HashMap::from([(1, 0)]));

    let read = [request(command::READ, 0, 9, 4096, 1024)];
    let (_, said) = talk(Arc::<MemoryStore>::clone(&store), ALL, &read);
    let (kind, payload) = only_chunk_of(&said, 9);
    assert_eq!(
        (kind, &payload[..8], &payload[8..]),
        (chunk::OFFSET_DATA, &4096u64.to_be_bytes()[..], &[0xa5; 1024][..])
    );

    let (_, said) = talk(store, PLAIN, &read);
    assert_eq!((errors(&said[..16]), &said[16..]), (HashMap::from([(9, 0)]), &[0xa5; 1024][..]));
}

#[test]
fn zeroes_trims_and_flushes_reach_the_store() {
    let store = memory();
    store.write(0, &[1; 4096]).unwrap();
    let script = [
        request(command::WRITE_ZEROES, flag::NO_HOLE, 1, 0, 512),
        request(command::WRITE_ZEROES, flag::FUA, 2, 512, 512),
        request(command::FLUSH, 0, 3, 0, 0),
        request(command::TRIM, flag::FUA, 4, 1024, 512),
    ];
    let (_, said) = talk(Arc::<MemoryStore>::clone(&store), ALL, &script);
    assert_eq!(errors(&said), HashMap::from([(1, 0), (2, 0), (3, 0), (4, 0)]));
    let mut bytes = [9; 2048];
    store.read(0, &mut bytes).unwrap();
    assert_eq!((&bytes[..1536], &bytes[1536..]), (&[0; 1536][..], &[1; 512][..]));
}

#[test]
fn block_status_reports_holes() {
    let store = memory();
    store.write(64 << 10, &[1; 512]).unwrap();
    let script = [request(command::BLOCK_STATUS, 0, 1, 0, 256 << 10)];
    let (_, said) = talk(Arc::<MemoryStore>::clone(&store), ALL, &script);
    let (kind, payload) = only_chunk_of(&said, 1);
    let words: Vec<u32> = payload.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
    assert_eq!((kind, &words[..]), (chunk::BLOCK_STATUS, &[1, 64 << 10, 3, 64 << 10, 0, 128 << 10, 3][..]));

    let script = [request(command::BLOCK_STATUS, flag::REQ_ONE, 1, 0, 256 << 10)];
    let (_, said) = talk(store, ALL, &script);
    assert_eq!(only_chunk_of(&said, 1).1.len(), 12);
}

#[test]
fn a_refused_write_does_not_lose_the_next_request() {
    let script = [
        request(command::WRITE, 0, 1, LEN, 512),
        vec![7; 512],
        request(command::WRITE, 0, 2, 0, MAX_PAYLOAD_LEN + 512),
        vec![7; MAX_PAYLOAD_LEN as usize + 512],
        request(command::FLUSH, 0, 3, 0, 0),
    ];
    let (result, said) = talk(memory(), ALL, &script);
    result.unwrap();
    assert_eq!(errors(&said), HashMap::from([(1, Errno::NoSpc as u32), (2, Errno::Inval as u32), (3, 0)]));
}

#[test]
fn failures_of_the_store_have_their_numbers() {
    let failing = |error| -> Arc<dyn Store> {
        let store = Fault::new(memory());
        store.add(Rule::always(error));
        Arc::new(store)
    };
    let write = [request(command::WRITE, 0, 1, 0, 512), vec![7; 512]];
    let (_, said) = talk(failing(|| StoreError::NoSpace), ALL, &write);
    assert_eq!(errors(&said), HashMap::from([(1, Errno::NoSpc as u32)]));
    let read = [request(command::READ, 0, 1, 0, 512)];
    let io = || StoreError::Io(io::ErrorKind::Other.into());
    let (_, said) = talk(failing(io), ALL, &read);
    let (kind, payload) = only_chunk_of(&said, 1);
    assert_eq!((kind, payload), (chunk::ERROR, &[0, 0, 0, Errno::Io as u8, 0, 0][..]));
    let (_, said) = talk(failing(io), PLAIN, &read);
    assert_eq!(errors(&said), HashMap::from([(1, Errno::Io as u32)]));
}

#[test]
fn garbage_ends_the_connection_and_earlier_requests_are_answered() {
    let mut bad = request(command::READ, 0, 2, 0, 512);
    bad[0] ^= 1;
    for (name, last) in [
        ("a wrong magic number", bad),
        ("half a header", REQUEST_MAGIC.to_be_bytes().to_vec()),
        ("half a payload", [request(command::WRITE, 0, 2, 0, 512), vec![0; 100]].concat()),
        ("an absurd length", request(command::WRITE, 0, 2, 0, u32::MAX)),
    ] {
        let (result, said) = talk(memory(), ALL, &[request(command::FLUSH, 0, 1, 0, 0), last]);
        assert!(result.is_err(), "{name}");
        assert_eq!(errors(&said), HashMap::from([(1, 0)]), "{name}");
    }
}

#[test]
fn disc_ends_the_connection_without_an_error() {
    let script = [request(command::FLUSH, 0, 1, 0, 0), request(command::DISC, 0, 2, 0, 0), vec![0xff; 100]];
    let (result, said) = talk(memory(), ALL, &script);
    result.unwrap();
    assert_eq!(errors(&said).len(), 1);
}

#[test]
fn requests_beyond_the_window_wait_on_the_wire() {
    let delay = Arc::new(Delay::new(memory()));
    delay.hold();
    let store: Arc<dyn Store> = Arc::<Delay>::clone(&delay);
    let export = Export::new("disk", store, false).unwrap();
    let io: SharedIo = Arc::new(InlineIo);
    let (mut client, server) = UnixStream::pair().unwrap();
    let script: Vec<u8> = (0..MAX_REQUESTS as u64 + 40).flat_map(|n| request(command::READ, 0, n, 0, 512)).collect();
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let result = run(stream(&server, &server), &export, &io, PLAIN);
            server.shutdown(Shutdown::Both).unwrap();
            result
        });
        client.write_all(&script).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        delay.wait_until_held(MAX_REQUESTS);
        // No reply has been written, so none of the other forty can enter, however long one waits.
        assert_eq!(delay.held(), MAX_REQUESTS);
        delay.release();
        let mut said = Vec::new();
        client.read_to_end(&mut said).unwrap();
        assert_eq!(said.len(), (MAX_REQUESTS + 40) * (16 + 512));
        serving.join().unwrap().unwrap();
    });
}

/// A socket that takes few bytes at once.
struct Sips<'a>(&'a UnixStream);

impl Output for Sips<'_> {
    fn write_now(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        send(self.0, &[IoSlice::new(&bytes[0][..bytes[0].len().min(5000)])], SendFlags::DONTWAIT)
    }
}

impl Output for &UnixStream {
    fn write_now(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        send(*self, bytes, SendFlags::DONTWAIT)
    }
}

impl Output for Broken {}
impl Output for Full {}
impl Output for io::Sink {}

impl Write for Sips<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&bytes[..bytes.len().min(5000)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn replies_are_whole_however_few_bytes_the_socket_takes() {
    const READ_LEN: u32 = 64 << 10;
    let store = memory();
    let content = |cookie: u64| vec![(cookie % 251) as u8; READ_LEN as usize];
    let count = LEN / u64::from(READ_LEN);
    (0..count).for_each(|at| store.write(at * u64::from(READ_LEN), &content(at)).unwrap());
    let script: Vec<u8> =
        (0..count).flat_map(|at| request(command::READ, 0, at, at * u64::from(READ_LEN), READ_LEN)).collect();
    // The store ends requests on the reading thread at once, or on the thread that releases them.
    for holds in [false, true] {
        let delay = Arc::new(Delay::new(Arc::<MemoryStore>::clone(&store)));
        if holds {
            delay.hold();
        }
        let export = Export::new("disk", Arc::<Delay>::clone(&delay), false).unwrap();
        let io: SharedIo = Arc::new(InlineIo);
        let (mut client, server) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                run(stream(&server, Sips(&server)), &export, &io, PLAIN).unwrap();
                server.shutdown(Shutdown::Both).unwrap();
            });
            client.write_all(&script).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            if holds {
                delay.wait_until_held(100);
                delay.release();
            }
            let mut said = Vec::new();
            client.read_to_end(&mut said).unwrap();
            let mut replies: Vec<_> = said
                .chunks(16 + READ_LEN as usize)
                .map(|reply| (u64::from_be_bytes(reply[8..16].try_into().unwrap()), &reply[16..]))
                .collect();
            replies.sort_by_key(|(cookie, _)| *cookie);
            assert_eq!(replies.len() as u64, count);
            assert!(replies.iter().zip(0..).all(|((cookie, bytes), at)| *cookie == at && *bytes == content(at)));
        });
    }
}

/// A writer that fails.
struct Broken;

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An endless repetition of one request, one for each timeout.
struct Endless(Vec<u8>);

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        into[..self.0.len()].copy_from_slice(&self.0);
        Ok(self.0.len())
    }
}

#[test]
fn a_client_that_takes_no_replies_is_given_up() {
    let export = Export::new("disk", memory(), false).unwrap();
    let io: SharedIo = Arc::new(InlineIo);
    let endless = Endless(request(command::READ, 0, 1, 0, 4096));
    let result = run(stream(endless, Broken), &export, &io, PLAIN);
    assert!(matches!(result, Err(ConnectionError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe));
}

fn timed_out(result: Result<(), ConnectionError>) -> bool {
    matches!(result, Err(ConnectionError::Io(error)) if error.kind() == io::ErrorKind::TimedOut)
}

#[test]
fn a_begun_request_has_a_time_limit_and_the_wait_for_one_has_none() {
    let export = Export::new("disk", memory(), false).unwrap();
    let io: SharedIo = Arc::new(InlineIo);
    let write = [request(command::WRITE, 0, 1, 0, 512), vec![7; 512]].concat();
    // A header takes 56 seconds.
    let flushes = request(command::FLUSH, 0, 1, 0, 0).repeat(8);
    for (name, script, in_time) in [
        ("a header that stops", &write[..20], false),
        ("a payload of one byte every two seconds", &write[..], false),
        ("whole requests, then silence", &flushes[..], true),
    ] {
        let start = now();
        let silence = Silence { before: Slow(script), look_ups: 1000 };
        let reader = BufReader::new(Limited::with_clock(silence, now));
        let result = run(Stream { reader, writer: Limited::new(io::sink()) }, &export, &io, PLAIN);
        if in_time {
            result.unwrap();
        } else {
            assert!(timed_out(result), "{name}");
            assert!(now() - start < 2 * REQUEST_TIMEOUT + Duration::from_secs(4), "{name}");
        }
    }
}

/// A reader that gives bytes, then times out for a while, and then ends.
struct Silence<'a> {
    before: Slow<'a>,
    look_ups: u32,
}

impl Read for Silence<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.before.0.is_empty() {
            let Some(left) = self.look_ups.checked_sub(1) else { return Ok(0) };
            self.look_ups = left;
        }
        self.before.read(into)
    }
}

#[test]
fn a_client_that_does_not_read_its_replies_is_given_up() {
    let export = Export::new("disk", memory(), false).unwrap();
    let io: SharedIo = Arc::new(InlineIo);
    // The client sends one request and then stays silent for ever.
    let script = request(command::READ, 0, 1, 0, 4096);
    let result =
        run(Stream { writer: Limited::with_clock(Full, now), ..stream(Slow(&script), Full) }, &export, &io, PLAIN);
    assert!(timed_out(result));
}
