//! The client's side of the fixed newstyle negotiation, as a machine without I/O.

use super::OpenError;
use super::error::Said;
use super::limits::{MAX_OPTION_REPLIES, MAX_OPTION_REPLY_LEN, MAX_QUOTED_CHARS};
use crate::wire::{
    FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, Fields, OPTION_MAGIC, OPTION_REPLY_LEN, OptionHeader, OptionReply,
    SERVER_MAGIC, info, option, reply,
};

/// The length of the server's first bytes: two magic numbers and flags.
const GREETING_LEN: usize = 18;

/// The result of a negotiation, as the server says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) len_bytes: u64,
    pub(crate) flags: u16,
    /// The minimum, preferred and maximum length of a request.
    pub(crate) block_sizes: Option<[u32; 3]>,
    pub(crate) structured: bool,
}

/// A negotiation: takes the bytes that it [needs](Self::needs), and says what to send.
#[derive(Debug)]
pub(crate) struct Handshake<'a> {
    export: &'a str,
    /// TLS begins before all else.
    needs_tls: bool,
    awaited: Awaited,
    /// Replies so far.
    replies: usize,
    structured: bool,
    /// Length and flags of the export.
    found: Option<(u64, u16)>,
    block_sizes: Option<[u32; 3]>,
}

/// The step that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Bytes were put out to be sent, and more are received.
    GoOn,
    /// The handshake of TLS, behind which the negotiation [goes on](Handshake::go_on_in_tls).
    Tls,
    /// The negotiation has ended.
    Agreed(Agreed),
}

#[derive(Debug, Clone, Copy)]
enum Awaited {
    Greeting,
    /// The header of a reply to this option.
    Reply(u32),
    /// The data of a reply.
    Data(OptionReply),
}

impl<'a> Handshake<'a> {
    pub(crate) fn new(export: &'a str, needs_tls: bool) -> Self {
        let awaited = Awaited::Greeting;
        Self { export, needs_tls, awaited, replies: 0, structured: false, found: None, block_sizes: None }
    }

    /// The number of bytes that the next [`take`](Self::take) gets: one or more.
    pub(crate) fn needs(&self) -> usize {
        match self.awaited {
            Awaited::Greeting => GREETING_LEN,
            Awaited::Reply(_) => OPTION_REPLY_LEN,
            Awaited::Data(reply) => reply.len as usize,
        }
    }

    /// Takes the bytes that it needs, and puts what is to be sent next into `out`.
    pub(crate) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Step, OpenError> {
        match self.awaited {
            Awaited::Greeting => self.greeting(bytes, out).map(|()| Step::GoOn),
            Awaited::Reply(option) => {
                let header = bytes.try_into().ok().and_then(OptionReply::parse);
                let header = header.ok_or(OpenError::Protocol("a reply that does not start with its magic number"))?;
                self.replies += 1;
                if header.option != option {
                    return Err(OpenError::Protocol("a reply to an option that was not sent"));
                }
                if header.len > MAX_OPTION_REPLY_LEN || self.replies > MAX_OPTION_REPLIES {
                    return Err(OpenError::Protocol("a reply of absurd length, or too many of them"));
                }
                if header.len == 0 {
                    return self.reply(header, &[], out);
                }
                self.awaited = Awaited::Data(header);
                Ok(Step::GoOn)
            }
            Awaited::Data(header) => self.reply(header, bytes, out),
        }
    }

    fn greeting(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), OpenError> {
        let mut fields = Fields(bytes);
        if fields.u64() != Some(SERVER_MAGIC) {
            return Err(OpenError::Protocol("no server of NBD answers there"));
        }
        let is_newstyle = fields.u64() == Some(OPTION_MAGIC);
        let flags = fields.u16().unwrap_or_default();
        if !is_newstyle || flags & FLAG_FIXED_NEWSTYLE == 0 {
            return Err(OpenError::Lacks("fixed newstyle negotiation"));
        }
        let answer = FLAG_FIXED_NEWSTYLE | flags & FLAG_NO_ZEROES;
        out.extend(u32::from(answer).to_be_bytes());
        self.send(if self.needs_tls { option::STARTTLS } else { option::STRUCTURED_REPLY }, &[], out);
        Ok(())
    }

    /// Begins again in TLS: the server has forgotten what was agreed before.
    pub(crate) fn go_on_in_tls(&mut self, out: &mut Vec<u8>) {
        self.send(option::STRUCTURED_REPLY, &[], out);
    }

    fn send(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        out.extend(OptionHeader { option, len: data.len() as u32 }.emit());
        out.extend_from_slice(data);
        self.awaited = Awaited::Reply(option);
    }

    /// Takes a whole reply.
    fn reply(&mut self, header: OptionReply, data: &[u8], out: &mut Vec<u8>) -> Result<Step, OpenError> {
        self.awaited = Awaited::Reply(header.option);
        match (header.option, header.kind) {
            (option::STARTTLS, reply::ACK) if data.is_empty() => Ok(Step::Tls),
            (option::STARTTLS, kind) if kind & reply::ERR != 0 => Err(OpenError::NoTls(said(data))),
            (option::STRUCTURED_REPLY, kind) if kind == reply::ACK || kind & reply::ERR != 0 => {
                self.structured = kind == reply::ACK;
                let name = self.export.as_bytes();
                let kinds = [1_u16, info::BLOCK_SIZE].map(u16::to_be_bytes).concat();
                self.send(option::GO, &[&(name.len() as u32).to_be_bytes()[..], name, &kinds].concat(), out);
                Ok(Step::GoOn)
            }
            (option::GO, reply::INFO) => {
                self.info(data).ok_or(OpenError::Protocol("information of a wrong length"))?;
                Ok(Step::GoOn)
            }
            (option::GO, reply::ACK) => {
                let (len_bytes, flags) = self.found.ok_or(OpenError::Protocol("no information on the export"))?;
                let Self { block_sizes, structured, .. } = *self;
                Ok(Step::Agreed(Agreed { len_bytes, flags, block_sizes, structured }))
            }
            (option::GO, kind) if kind & reply::ERR != 0 => Err(refusal(kind, data)),
            _ => Err(OpenError::Protocol("a reply of the wrong kind")),
        }
    }

    /// Takes one piece of information on the export; `None` when it is malformed.
    fn info(&mut self, data: &[u8]) -> Option<()> {
        let mut fields = Fields(data);
        match fields.u16()? {
            info::EXPORT => {
                self.found = Some((fields.u64()?, fields.u16()?));
                fields.end()
            }
            info::BLOCK_SIZE => {
                self.block_sizes = Some([fields.u32()?, fields.u32()?, fields.u32()?]);
                fields.end()
            }
            // A server may tell more than it was asked for.
            _ => Some(()),
        }
    }
}

/// The error that a refused `GO` means.
fn refusal(kind: u32, data: &[u8]) -> OpenError {
    let said = said(data);
    match kind {
        reply::ERR_UNSUP => OpenError::Lacks("option NBD_OPT_GO"),
        reply::ERR_UNKNOWN => OpenError::Unknown(said),
        reply::ERR_TLS_REQD => OpenError::Tls(said),
        _ => OpenError::Refused(said),
    }
}

/// The text of a reply.
fn said(data: &[u8]) -> Said {
    let text = String::from_utf8_lossy(data);
    Said(text.chars().filter(|c| !c.is_control()).take(MAX_QUOTED_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lunette_store::MemoryStore;
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{can, option_reply};

    fn greeting(flags: u16) -> Vec<u8> {
        let mut bytes = [SERVER_MAGIC, OPTION_MAGIC].map(u64::to_be_bytes).concat();
        bytes.extend(flags.to_be_bytes());
        bytes
    }

    fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
        [&option_reply(option, kind, data.len() as u32)[..], data].concat()
    }

    fn export_info() -> Vec<u8> {
        [&info::EXPORT.to_be_bytes()[..], &(1_u64 << 20).to_be_bytes(), &can::HAS_FLAGS.to_be_bytes()].concat()
    }

    /// Lets a client called `name` read `bytes`.
    fn read(name: &str, bytes: &[u8]) -> (Vec<u8>, Result<Option<Agreed>, OpenError>) {
        let (out, step) = read_with(Handshake::new(name, false), bytes);
        (out, step.map(|step| if let Step::Agreed(agreed) = step { Some(agreed) } else { None }))
    }

    /// Lets a client read `bytes` up to a step of note.
    fn read_with(mut handshake: Handshake<'_>, mut bytes: &[u8]) -> (Vec<u8>, Result<Step, OpenError>) {
        let mut out = Vec::new();
        while let Some((taken, rest)) = bytes.split_at_checked(handshake.needs()) {
            assert!(!taken.is_empty());
            bytes = rest;
            match handshake.take(taken, &mut out) {
                Ok(Step::GoOn) => {}
                other => return (out, other),
            }
        }
        (out, Ok(Step::GoOn))
    }

    #[test]
    fn a_client_with_tls_asks_for_nothing_before_it_and_never_goes_on_without_it() {
        let answered = |kind, data: &[u8]| {
            let bytes = [greeting(FLAG_FIXED_NEWSTYLE), reply(option::STARTTLS, kind, data)].concat();
            read_with(Handshake::new("disk", true), &bytes)
        };
        let (out, step) = answered(reply::ACK, &[]);
        assert_eq!(step.unwrap(), Step::Tls);
        assert_eq!(out[4..], OptionHeader { option: option::STARTTLS, len: 0 }.emit());
        // As a man in the middle would answer, or a server without TLS.
        for kind in [reply::ERR_UNSUP, reply::ERR_POLICY, reply::ERR_INVALID, reply::ERR_SHUTDOWN] {
            let (out, step) = answered(kind, b"no");
            assert!(matches!(&step, Err(OpenError::NoTls(said)) if said.0 == "no"), "{step:?}");
            assert_eq!(out.len(), 4 + 16, "nothing of the export is said");
        }
        assert!(answered(reply::ACK, b"x").1.is_err() && answered(reply::INFO, &[]).1.is_err());
    }

    #[test]
    fn a_server_with_all_abilities_and_one_with_none_are_agreed_with() {
        let sizes =
            [&info::BLOCK_SIZE.to_be_bytes()[..], &[512, 4096, 1 << 20].map(u32::to_be_bytes).concat()].concat();
        let all = [
            greeting(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES),
            reply(option::STRUCTURED_REPLY, reply::ACK, &[]),
            reply(option::GO, reply::INFO, &[0, 9, 1, 2, 3]),
            reply(option::GO, reply::INFO, &sizes),
            reply(option::GO, reply::INFO, &export_info()),
            reply(option::GO, reply::ACK, &[]),
        ];
        let (out, agreed) = read("disk", &all.concat());
        let expected =
            Agreed { len_bytes: 1 << 20, flags: 1, block_sizes: Some([512, 4096, 1 << 20]), structured: true };
        assert_eq!(agreed.unwrap(), Some(expected));
        assert_eq!(out[..4], [0, 0, 0, 3]);
        assert!(out.ends_with(b"\0\0\0\x04disk\0\x01\0\x03"));
        let few = [
            greeting(FLAG_FIXED_NEWSTYLE),
            reply(option::STRUCTURED_REPLY, reply::ERR_UNSUP, b"no"),
            reply(option::GO, reply::INFO, &export_info()),
            reply(option::GO, reply::ACK, &[]),
        ];
        let (out, agreed) = read("", &few.concat());
        assert_eq!(out[..4], [0, 0, 0, 1]);
        let expected = Agreed { len_bytes: 1 << 20, flags: 1, block_sizes: None, structured: false };
        assert_eq!(agreed.unwrap(), Some(expected));
    }

    #[test]
    fn the_server_of_this_crate_is_understood() {
        let store = Arc::new(MemoryStore::new(1 << 20).unwrap());
        let export = crate::Export::new("disk", store, false).unwrap();
        let mut to_server = Vec::new();
        let agreed = loop {
            // What the client says does not depend on when it hears the server, so it may say all of it again.
            let mut from_server = Vec::new();
            let _ = crate::handshake::negotiate(
                &mut crate::Stream::new(&to_server[..], &mut from_server),
                &export,
                crate::Client::default(),
                None,
            );
            let (out, agreed) = read("disk", &from_server);
            if let Some(agreed) = agreed.unwrap() {
                break agreed;
            }
            assert!(out.len() > to_server.len(), "they come to an end");
            to_server = out;
        };
        assert_eq!((agreed.len_bytes, agreed.structured), (1 << 20, true));
        assert!(agreed.flags & can::FUA != 0 && agreed.block_sizes.is_some());
    }

    #[test]
    fn what_a_server_lacks_or_refuses_is_said() {
        let with_go = |kind, data: &[u8]| {
            let before = [greeting(FLAG_FIXED_NEWSTYLE), reply(option::STRUCTURED_REPLY, reply::ACK, &[])].concat();
            read("d", &[before, reply(option::GO, kind, data)].concat()).1.unwrap_err().to_string()
        };
        assert!(with_go(reply::ERR_UNSUP, &[]).contains("NBD_OPT_GO"));
        assert!(with_go(reply::ERR_UNKNOWN, b"no\n\x1b[31mdisk").ends_with("\"no[31mdisk\""));
        assert!(with_go(reply::ERR_TLS_REQD, &[]).contains("TLS"));
        assert!(with_go(reply::ERR_POLICY, b"go away").contains("go away"));
        assert!(with_go(reply::ACK, &[]).contains("no information"));
        assert!(with_go(reply::INFO, &[0, 0, 1]).contains("wrong length"));
        assert!(with_go(reply::SERVER, &[]).contains("wrong kind"));
        let first = |bytes: &[u8]| read("d", bytes).1.unwrap_err().to_string();
        assert!(first(&[7; GREETING_LEN]).contains("no server of NBD"));
        assert!(first(&greeting(0)).contains("fixed newstyle"));
        let other = [greeting(FLAG_FIXED_NEWSTYLE), reply(option::LIST, reply::ACK, &[])].concat();
        assert!(first(&other).contains("not sent"));
    }

    #[test]
    fn lengths_and_numbers_of_replies_are_bounded() {
        let before = [greeting(FLAG_FIXED_NEWSTYLE), reply(option::STRUCTURED_REPLY, reply::ACK, &[])].concat();
        let long = option_reply(option::GO, reply::INFO, MAX_OPTION_REPLY_LEN + 1);
        assert!(read("d", &[&before[..], &long].concat()).1.is_err());
        let many = reply(option::GO, reply::INFO, &[0, 9]).repeat(MAX_OPTION_REPLIES);
        assert!(read("d", &[&before[..], &many].concat()).1.is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            replies in proptest::collection::vec(
                (any::<bool>(), 1..9_u32, any::<u32>(), proptest::collection::vec(any::<u8>(), 0..20)), 0..8,
            ),
            rest: Vec<u8>,
        ) {
            let replies = replies.iter().map(|(is_go, small, any, data)| {
                let option = if *is_go { option::GO } else { option::STRUCTURED_REPLY };
                reply(option, if any % 2 == 0 { *small } else { *any }, data)
            });
            let bytes = [greeting(FLAG_FIXED_NEWSTYLE), replies.collect::<Vec<_>>().concat(), rest].concat();
            drop(read("d", &bytes));
        }
    }
}
