//! Any bytes, said by a client to an NBD server: the negotiation, and requests behind it.

use std::sync::Arc;

use lunette_nbd::wire::{OPTION_MAGIC, Request, command, flag, option};
use lunette_nbd::{Client, Export, SharedIo, Stream, serve};
use lunette_store::{InlineIo, MemoryStore};

use crate::input::Random;

const LEN: u64 = 1 << 20;

/// The target. The server takes its leave and has not panicked, nor said more than the requests can have asked for.
pub fn run(data: &[u8]) {
    let export =
        Export::new("disk", Arc::new(MemoryStore::new(LEN).expect("short enough")), false).expect("blocks of one byte");
    let io: SharedIo = Arc::new(InlineIo);
    let mut said = Vec::new();
    // How it ends is the client's fault.
    let _ = serve(Stream::new(data, &mut said), &export, Client::default(), &io, None);
    assert!(said.starts_with(b"NBDMAGICIHAVEOPT"));
    let requests = 1 + data.len() / 16;
    assert!(said.len() as u64 <= requests as u64 * (LEN + 4096));
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [&OPTION_MAGIC.to_be_bytes()[..], &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn contexts(number: u32, name: &str) -> Vec<u8> {
    option(number, &[string(name), vec![0, 0, 0, 1], string("base:allocation")].concat())
}

fn go(name: &str) -> Vec<u8> {
    option(option::GO, &[string(name), vec![0, 1, 0, 3]].concat())
}

/// An option or two, then requests; a few bytes changed.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    for _ in 0..random.below(4) {
        let data = random.some_bytes(24);
        bytes.extend(match random.below(6) {
            0 => option(option::STRUCTURED_REPLY, &[]),
            1 => contexts(option::SET_META_CONTEXT, "disk"),
            2 => contexts(option::LIST_META_CONTEXT, ""),
            3 => option(option::LIST, &[]),
            4 => option(option::INFO, &[string("disk"), vec![0, 0]].concat()),
            _ => option(random.below(14) as u32, &data),
        });
    }
    if random.below(4) > 0 {
        bytes.extend(option(option::STRUCTURED_REPLY, &[]));
        bytes.extend(contexts(option::SET_META_CONTEXT, "disk"));
    }
    bytes.extend(if random.below(4) > 0 { go("disk") } else { option(option::EXPORT_NAME, b"disk") });
    for cookie in 0..random.below(8) as u64 {
        let blocks = 1 + random.below(8) as u32;
        let command = random.below(9) as u16;
        let request = Request {
            flags: if random.below(2) == 0 { 0 } else { 1 << random.below(6) },
            command: if command == command::DISC { command::FLUSH } else { command },
            cookie,
            offset: if command == command::FLUSH { 0 } else { random.below(2100) as u64 * 512 },
            len: if command == command::FLUSH { 0 } else { blocks * 512 },
        };
        bytes.extend(request.emit());
        if command == command::WRITE {
            bytes.resize(bytes.len() + request.len as usize, 0xa5);
        }
    }
    random.disturb(&mut bytes);
    bytes
}

/// A session of each kind.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let request = |command, flags, offset, len| Request { flags, command, cookie: 1, offset, len }.emit().to_vec();
    let hello = vec![0, 0, 0, 3];
    let structured = [
        hello.clone(),
        option(option::STRUCTURED_REPLY, &[]),
        contexts(option::SET_META_CONTEXT, "disk"),
        go("disk"),
        [request(command::WRITE, flag::FUA, 0, 512), vec![1; 512]].concat(),
        request(command::READ, flag::DF, 0, 1024),
        request(command::BLOCK_STATUS, 0, 0, LEN as u32),
        request(command::WRITE_ZEROES, flag::FAST_ZERO, 0, 4096),
        request(command::TRIM, 0, 0, 4096),
        request(command::FLUSH, 0, 0, 0),
        request(command::DISC, 0, 0, 0),
    ];
    let old = [vec![0; 4], option(option::EXPORT_NAME, b""), request(command::READ, 0, 512, 512)];
    let haggling = [hello, option(option::LIST, &[]), option(option::INFO, &[string(""), vec![0, 0]].concat())];
    vec![
        ("structured".into(), structured.concat()),
        ("export_name".into(), old.concat()),
        ("haggling".into(), [haggling.concat(), option(option::ABORT, &[])].concat()),
    ]
}
