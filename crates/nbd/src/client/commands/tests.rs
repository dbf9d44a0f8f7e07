use lunette_buffer::{Buffer, Pool};
use lunette_store::OpKind;
use proptest::prelude::*;

use super::super::handshake::Agreed;
use super::*;
use crate::wire::{can, only_chunk, simple_reply};

const LEN: u64 = 1 << 20;

fn commands(structured: bool) -> Commands<u32> {
    let flags = can::HAS_FLAGS | can::FLUSH;
    let block_sizes = Some([1, 4096, 64 << 10]);
    let facts = Facts::new(&Agreed { len_bytes: LEN, flags, block_sizes, structured }, false).unwrap();
    Commands::new(facts, Instant::now())
}

fn buffer(len: usize) -> Buffer {
    let mut buffer = Pool::new(4 << 20).take(len).unwrap();
    buffer.fill(0xee);
    buffer
}

fn read(offset: u64, len: usize) -> Op {
    Op::Read { offset, into: buffer(len) }
}

fn write(offset: u64, len: usize, fua: bool) -> Op {
    Op::Write { offset, from: buffer(len), fua }
}

/// Sends all that is there, and gives the headers that went out.
fn send(commands: &mut Commands<u32>) -> Vec<Request> {
    let mut bytes = Vec::new();
    while commands.has_to_send() {
        let mut slices = ArrayVec::new();
        commands.gather(&mut slices);
        // Cut anywhere, as a socket does.
        let piece: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(1000).collect();
        bytes.extend_from_slice(&piece);
        drop(slices);
        commands.sent(piece.len());
    }
    let (mut rest, mut requests) = (&bytes[..], Vec::new());
    while let Some((head, after)) = rest.split_first_chunk() {
        let request = Request::parse(head).expect("a request begins here");
        let payload = if request.command == command::WRITE { request.len as usize } else { 0 };
        rest = &after[payload..];
        requests.push(request);
    }
    assert!(rest.is_empty());
    requests
}

fn receive(commands: &mut Commands<u32>, bytes: &[u8]) -> Result<Vec<Ended<u32>>, ReplyError> {
    let mut ended = Vec::new();
    commands.receive(bytes, &mut ended).map(|()| ended)
}

fn data(cookie: u64, flags: u16, offset: u64, bytes: &[u8]) -> Vec<u8> {
    let mut chunk = only_chunk(cookie, chunk::OFFSET_DATA, bytes.len() as u32 + 8);
    chunk[4..6].copy_from_slice(&flags.to_be_bytes());
    [&chunk[..], &offset.to_be_bytes(), bytes].concat()
}

fn hole(cookie: u64, flags: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut chunk = only_chunk(cookie, chunk::OFFSET_HOLE, 12);
    chunk[4..6].copy_from_slice(&flags.to_be_bytes());
    [&chunk[..], &offset.to_be_bytes(), &len.to_be_bytes()].concat()
}

fn error(cookie: u64, kind: u16, errno: u32, text: &[u8]) -> Vec<u8> {
    let head = only_chunk(cookie, kind, 6 + text.len() as u32);
    [&head[..], &errno.to_be_bytes(), &(text.len() as u16).to_be_bytes(), text].concat()
}

fn bytes_of(op: Op) -> Vec<u8> {
    op.into_buffer().expect("a read has a buffer").to_vec()
}

#[test]
fn replies_come_in_any_order_and_any_pieces() {
    for piece in [1, 7, 4096] {
        let mut commands = commands(false);
        commands.add(Waiting::new(read(0, 512), 1));
        commands.add(Waiting::new(write(512, 1024, false), 2));
        commands.add(Waiting::new(Op::Flush, 3));
        let sent = send(&mut commands);
        let read_reply = [&simple_reply(sent[0].cookie, None)[..], &[7; 512]].concat();
        let replies = [&simple_reply(sent[2].cookie, None)[..], &read_reply, &simple_reply(sent[1].cookie, None)];
        let mut ended = Vec::new();
        for bytes in replies.concat().chunks(piece) {
            commands.receive(bytes, &mut ended).unwrap();
        }
        let owners: Vec<u32> = ended.iter().map(|ended| ended.owner).collect();
        assert_eq!(owners, [3, 1, 2]);
        assert!(ended.iter().all(|ended| ended.result.is_ok()) && commands.is_empty());
        assert_eq!(bytes_of(ended.remove(1).op), [7; 512]);
    }
}

#[test]
fn chunks_fill_a_read_in_any_order() {
    let mut commands = commands(true);
    commands.add(Waiting::new(read(4096, 2048), 1));
    let cookie = send(&mut commands)[0].cookie;
    let chunks = [data(cookie, 0, 5120, &[3; 1024]), hole(cookie, 0, 4096, 512), data(cookie, 1, 4608, &[2; 512])];
    let ended = receive(&mut commands, &chunks.concat()).unwrap().remove(0);
    assert_eq!(ended.result, Ok(()));
    assert_eq!(bytes_of(ended.op), [&[0; 512][..], &[2; 512], &[3; 1024]].concat());
}

#[test]
fn a_payload_goes_straight_into_its_room() {
    let mut commands = commands(true);
    commands.add(Waiting::new(read(0, 1024), 1));
    let cookie = send(&mut commands)[0].cookie;
    assert!(commands.room().is_none());
    let reply = data(cookie, 1, 0, &[5; 1024]);
    assert!(receive(&mut commands, &reply[..100]).unwrap().is_empty());
    let (mut ended, mut at) = (Vec::new(), 100);
    while let Some(room) = commands.room() {
        let len = room.len().min(500);
        room[..len].copy_from_slice(&reply[at..at + len]);
        at += len;
        commands.filled(len, &mut ended).unwrap();
    }
    assert_eq!(bytes_of(ended.remove(0).op), [5; 1024]);
}

#[test]
fn errors_end_their_request_alone() {
    let mut commands = commands(true);
    commands.add(Waiting::new(read(0, 512), 1));
    commands.add(Waiting::new(write(0, 512, false), 2));
    commands.add(Waiting::new(Op::Flush, 3));
    let sent = send(&mut commands);
    let offset_error = error(sent[0].cookie, chunk::ERR | 2, 5, b"12345678");
    let replies = [
        &offset_error[..],
        &error(sent[1].cookie, chunk::ERROR, 28, b""),
        &simple_reply(sent[2].cookie, Some(Errno::Io)),
    ];
    let ended = receive(&mut commands, &replies.concat()).unwrap();
    let results: Vec<_> = ended.iter().map(|ended| (ended.owner, ended.result.unwrap_err())).collect();
    let failed = |errno, is_flush| Failed { errno, is_flush };
    let expected = [(1, failed(Errno::Io, false)), (2, failed(Errno::NoSpc, false)), (3, failed(Errno::Io, true))];
    assert_eq!(results, expected);
}

#[test]
fn a_server_that_shuts_down_is_left() {
    let mut commands = commands(false);
    commands.add(Waiting::new(write(0, 512, false), 1));
    let cookie = send(&mut commands)[0].cookie;
    assert_eq!(receive(&mut commands, &simple_reply(cookie, Some(Errno::Shutdown))).err(), Some(ReplyError::Shutdown));
    assert_eq!(commands.take_back().len(), 1, "the request is not lost");
}

#[test]
fn every_broken_rule_ends_the_connection() {
    /// The bytes of a server that got a request with this cookie.
    type Bytes = fn(u64) -> Vec<u8>;
    let cases: [(&str, bool, Bytes); 20] = [
        ("no magic number", true, |_| vec![1, 2, 3, 4]),
        ("an unknown cookie", true, |cookie| error(cookie ^ 1 << 20, chunk::ERROR, 5, b"")),
        ("an unknown slot", true, |cookie| error(cookie | 0xffff, chunk::ERROR, 5, b"")),
        ("a simple reply", true, |cookie| simple_reply(cookie, None).into()),
        ("a structured reply", false, |cookie| only_chunk(cookie, chunk::NONE, 0).into()),
        ("nothing", true, |cookie| only_chunk(cookie, chunk::NONE, 0).into()),
        ("a long nothing", true, |cookie| only_chunk(cookie, chunk::NONE, 1).into()),
        ("a status of blocks", true, |cookie| only_chunk(cookie, chunk::BLOCK_STATUS, 12).into()),
        ("no data", true, |cookie| data(cookie, 1, 0, &[])),
        ("less data", true, |cookie| data(cookie, 1, 512, &[1; 1023])),
        ("more data", true, |cookie| data(cookie, 1, 512, &[1; 1025])),
        ("data before the read", true, |cookie| data(cookie, 1, 511, &[1; 1024])),
        ("data behind the read", true, |cookie| data(cookie, 1, 513, &[1; 1024])),
        ("data far away", true, |cookie| data(cookie, 1, u64::MAX, &[1; 1024])),
        ("data twice", true, |cookie| [data(cookie, 0, 512, &[1; 512]), data(cookie, 1, 1023, &[1; 512])].concat()),
        ("a hole too long", true, |cookie| hole(cookie, 1, 512, u32::MAX)),
        ("no hole", true, |cookie| hole(cookie, 1, 512, 0)),
        ("an error of success", true, |cookie| error(cookie, chunk::ERROR, 0, b"")),
        ("a long error", true, |cookie| only_chunk(cookie, chunk::ERROR, MAX_ERROR_LEN + 1).into()),
        ("a text longer than its chunk", true, |cookie| {
            [&only_chunk(cookie, chunk::ERROR, 6)[..], &[0, 0, 0, 5, 0, 1]].concat()
        }),
    ];
    for (name, structured, bytes) in cases {
        let mut commands = commands(structured);
        commands.add(Waiting::new(read(512, 1024), 1));
        let cookie = send(&mut commands)[0].cookie;
        let reply = receive(&mut commands, &bytes(cookie));
        assert!(matches!(reply, Err(ReplyError::Protocol(_))), "{name}: {reply:?}");
    }
}

#[test]
fn a_reply_before_the_end_of_its_request_is_refused() {
    let mut commands = commands(false);
    commands.add(Waiting::new(write(0, 512, false), 1));
    commands.sent(REQUEST_LEN + 511);
    let cookie = commands.slots[0].as_ref().unwrap().request.cookie;
    assert!(receive(&mut commands, &simple_reply(cookie, None)).is_err());
}

#[test]
fn a_second_reply_is_refused() {
    let mut commands = commands(false);
    commands.add(Waiting::new(Op::Flush, 1));
    let cookie = send(&mut commands)[0].cookie;
    assert_eq!(receive(&mut commands, &simple_reply(cookie, None)).unwrap().len(), 1);
    commands.add(Waiting::new(Op::Flush, 2));
    send(&mut commands);
    assert!(receive(&mut commands, &simple_reply(cookie, None)).is_err());
}

#[test]
fn chunks_of_one_reply_are_bounded() {
    let mut commands = commands(true);
    commands.add(Waiting::new(read(0, 512), 1));
    let cookie = send(&mut commands)[0].cookie;
    let mut chunk = error(cookie, chunk::ERROR, 5, b"");
    chunk[4..6].fill(0);
    assert!(receive(&mut commands, &chunk.repeat(MAX_CHUNKS as usize)).unwrap().is_empty());
    assert!(receive(&mut commands, &chunk).is_err());
}

#[test]
fn commands_under_way_are_bounded() {
    let mut commands = commands(false);
    for owner in 0..MAX_COMMANDS as u32 {
        assert!(commands.has_room());
        commands.add(Waiting::new(Op::Flush, owner));
    }
    assert!(!commands.has_room());
    let cookie = send(&mut commands)[5].cookie;
    receive(&mut commands, &simple_reply(cookie, None)).unwrap();
    assert!(commands.has_room());
}

#[test]
fn a_request_that_is_not_answered_is_overdue() {
    let mut commands = commands(false);
    let begin = commands.now;
    commands.set_time(begin + REPLY_TIMEOUT);
    assert!(!commands.is_overdue(), "nothing is under way");
    // The server may not even read it.
    commands.add(Waiting::new(Op::Flush, 1));
    commands.set_time(begin + REPLY_TIMEOUT * 3 / 2);
    assert!(!commands.is_overdue());
    commands.set_time(begin + REPLY_TIMEOUT * 2);
    assert!(commands.is_overdue());
}

#[test]
fn answers_to_others_do_not_put_a_request_off_for_ever() {
    let mut commands = commands(false);
    let (begin, mut answered) = (commands.now, commands.now);
    commands.add(Waiting::new(Op::Flush, 1));
    send(&mut commands);
    while !commands.is_overdue() {
        answered += REPLY_TIMEOUT / 2;
        commands.set_time(answered);
        commands.add(Waiting::new(Op::Flush, 2));
        let cookie = send(&mut commands)[0].cookie;
        receive(&mut commands, &simple_reply(cookie, None)).unwrap();
    }
    assert!(answered - begin >= COMMAND_TIMEOUT);
}

#[test]
fn requests_of_a_lost_connection_begin_again_in_their_order() {
    let mut commands = commands(false);
    // Two pieces and a flush, because the server has no FUA.
    commands.add(Waiting::new(write(0, 100 << 10, true), 1));
    commands.add(Waiting::new(read(0, 512), 2));
    let sent = send(&mut commands);
    assert_eq!((sent[0].offset, sent[0].len), (0, 64 << 10));
    receive(&mut commands, &simple_reply(sent[0].cookie, None)).unwrap();
    assert_eq!(send(&mut commands)[0].len, 36 << 10);
    // The answer to the read has begun.
    let begun = [&simple_reply(sent[1].cookie, None)[..], &[1; 100]].concat();
    receive(&mut commands, &begun).unwrap();
    let back = commands.take_back();
    assert_eq!(back.iter().map(|waiting| (waiting.owner, waiting.tries)).collect::<Vec<_>>(), [(2, 1), (1, 1)]);
    let facts = commands.facts;
    commands.begin(facts);
    for waiting in back {
        commands.add(waiting);
    }
    let again = send(&mut commands);
    assert_eq!((again[1].offset, again[1].len), (0, 64 << 10), "the first piece, too");
    assert!(receive(&mut commands, &simple_reply(sent[1].cookie, None)).is_err(), "cookies are new");
}

/// A server's next bytes.
#[derive(Debug, Clone)]
enum Answer {
    Right(usize),
    Error(usize, u32),
    Chunk { which: usize, flags: u16, kind: u16, len: u32, fields: Vec<u8> },
    Bytes(Vec<u8>),
}

fn answers() -> impl Strategy<Value = Vec<Answer>> {
    let kind = prop_oneof![0..3_u16, Just(chunk::ERROR), Just(chunk::ERR | 2), any::<u16>()];
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let answer = prop_oneof![
        4 => any::<usize>().prop_map(Answer::Right),
        1 => (any::<usize>(), 0..120_u32).prop_map(|(which, errno)| Answer::Error(which, errno)),
        2 => (any::<usize>(), 0..2_u16, kind, prop_oneof![0..64_u32, any::<u32>()], bytes())
            .prop_map(|(which, flags, kind, len, fields)| Answer::Chunk { which, flags, kind, len, fields }),
        1 => bytes().prop_map(Answer::Bytes),
    ];
    proptest::collection::vec(answer, 0..40)
}

proptest! {
    #[test]
    fn whatever_a_server_sends_each_request_ends_once_or_stays(
        structured: bool,
        requests in proptest::collection::vec((0..4_u8, 0..100_u64, 1..300_usize), 1..20),
        answers in answers(),
        piece in 1..5000_usize,
    ) {
        let mut commands = commands(structured);
        for (owner, (kind, block, blocks)) in requests.iter().enumerate() {
            let (offset, len) = (block * 512, blocks * 512);
            let op = match kind {
                0 => read(offset, len),
                1 => write(offset, len, true),
                2 => Op::WriteZeroes { offset, len: len as u64, may_unmap: true, fua: true },
                _ => Op::Flush,
            };
            commands.add(Waiting::new(op, owner as u32));
        }
        let mut under_way = send(&mut commands);
        let mut ended = Vec::new();
        'stream: for answer in answers {
            let which = |which: usize| under_way.get(which % under_way.len().max(1)).copied();
            let mut done = None;
            let bytes = match answer {
                Answer::Right(at) | Answer::Error(at, 0) => {
                    let Some(request) = which(at) else { break };
                    done = Some(request.cookie);
                    let payload = vec![9; if request.command == command::READ { request.len as usize } else { 0 }];
                    if structured && !payload.is_empty() {
                        data(request.cookie, 1, request.offset, &payload)
                    } else {
                        [&simple_reply(request.cookie, None)[..], &payload].concat()
                    }
                }
                Answer::Error(at, errno) => {
                    let Some(request) = which(at) else { break };
                    done = Some(request.cookie);
                    if structured {
                        error(request.cookie, chunk::ERROR, errno, b"text")
                    } else {
                        let mut bytes = simple_reply(request.cookie, None);
                        bytes[4..8].copy_from_slice(&errno.to_be_bytes());
                        bytes.into()
                    }
                }
                Answer::Chunk { which: at, flags, kind, len, fields } => {
                    let Some(request) = which(at) else { break };
                    let mut head = only_chunk(request.cookie, kind, len);
                    head[4..6].copy_from_slice(&flags.to_be_bytes());
                    [&head[..], &fields].concat()
                }
                Answer::Bytes(bytes) => bytes,
            };
            for bytes in bytes.chunks(piece) {
                if commands.receive(bytes, &mut ended).is_err() {
                    break 'stream;
                }
            }
            under_way.retain(|request| Some(request.cookie) != done);
            under_way.extend(send(&mut commands));
        }
        for Ended { op, result, .. } in &ended {
            // A read that has succeeded has no byte of before.
            let is_read = op.kind() == OpKind::Read && result.is_ok();
            if let (true, Op::Read { into, .. }) = (is_read, op) {
                prop_assert!(into.iter().all(|byte| *byte != 0xee) || into.is_empty());
            }
        }
        let mut owners: Vec<u32> = ended.iter().map(|ended| ended.owner).collect();
        owners.extend(commands.take_back().iter().map(|waiting| waiting.owner));
        owners.sort_unstable();
        prop_assert_eq!(owners, (0..requests.len() as u32).collect::<Vec<_>>());
    }
}
