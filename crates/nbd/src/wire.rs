//! The bytes of the protocol: numbers, and the headers of requests, options and replies. All numbers are big endian.

/// "NBDMAGIC": the server's first word.
pub const SERVER_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT": the server's second word, and the first of every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The first word of a reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The first word of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// The first word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// The first word of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// A handshake flag of both sides: the fixed newstyle negotiation.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// A handshake flag of both sides: no 124 zeroes after the answer to `EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Options that a client sends during the negotiation.
pub mod option {
    #![expect(missing_docs, reason = "the names say it, in the words of the protocol")]
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// The kinds of reply to an option.
pub mod reply {
    #![expect(missing_docs, reason = "the names say it, in the words of the protocol")]
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// The bit of all errors.
    pub const ERR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERR | 1;
    pub const ERR_POLICY: u32 = ERR | 2;
    pub const ERR_INVALID: u32 = ERR | 3;
    pub const ERR_TLS_REQD: u32 = ERR | 5;
    pub const ERR_UNKNOWN: u32 = ERR | 6;
    pub const ERR_SHUTDOWN: u32 = ERR | 7;
    pub const ERR_TOO_BIG: u32 = ERR | 9;
}

/// The kinds of information in a reply to `INFO` and `GO`.
pub mod info {
    #![expect(missing_docs, reason = "the names say it, in the words of the protocol")]
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: the abilities of an export.
pub mod can {
    #![expect(missing_docs, reason = "the names say it, in the words of the protocol")]
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const FLUSH: u16 = 1 << 2;
    pub const FUA: u16 = 1 << 3;
    pub const TRIM: u16 = 1 << 5;
    pub const WRITE_ZEROES: u16 = 1 << 6;
    pub const DF: u16 = 1 << 7;
    pub const MULTI_CONN: u16 = 1 << 8;
    pub const FAST_ZERO: u16 = 1 << 11;
}

/// The types of request.
pub mod command {
    #![expect(missing_docs, reason = "the names say it, in the words of the protocol")]
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// The flags of commands.
pub mod flag {
    #![expect(missing_docs, reason = "the names say it, in the words of the protocol")]
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// The types of chunk, and the flag of the last one.
pub mod chunk {
    #![expect(missing_docs, reason = "the names say it, in the words of the protocol")]
    pub const DONE: u16 = 1 << 0;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    /// The bit of all errors.
    pub const ERR: u16 = 1 << 15;
    pub const ERROR: u16 = ERR | 1;
}

/// A state of `base:allocation`: no space is set aside.
pub const STATE_HOLE: u32 = 1 << 0;
/// A state of `base:allocation`: the bytes read as zero.
pub const STATE_ZERO: u32 = 1 << 1;

/// The only metadata context that is served.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The number of that context on every connection that selects it.
pub const BASE_ALLOCATION_ID: u32 = 1;

/// Error numbers of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: a write to a read-only export.
    Perm = 1,
    /// The medium failed.
    Io = 5,
    /// The request is malformed or out of range.
    Inval = 22,
    /// No space left.
    NoSpc = 28,
    /// A reply that may not be cut is too long.
    Overflow = 75,
    /// The zeroes cannot be written quickly, which `FAST_ZERO` asks for.
    NotSup = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

impl Errno {
    const ALL: [Self; 7] =
        [Self::Perm, Self::Io, Self::Inval, Self::NoSpc, Self::Overflow, Self::NotSup, Self::Shutdown];

    /// The error of a number; `None` for success. A client takes unknown numbers for [`Self::Inval`] ("Error values").
    pub fn of_number(number: u32) -> Option<Self> {
        let known = Self::ALL.into_iter().find(|known| *known as u32 == number);
        (number != 0).then_some(known.unwrap_or(Self::Inval))
    }
}

/// The length of a request before its payload, in bytes.
pub const REQUEST_LEN: usize = 28;
/// The length of an option before its data, in bytes.
pub const OPTION_HEADER_LEN: usize = 16;
/// The length of a reply to an option before its data, in bytes.
pub const OPTION_REPLY_LEN: usize = 20;
/// The length of a simple reply before its payload, in bytes.
pub const SIMPLE_REPLY_LEN: usize = 16;
/// The length of a chunk before its payload, in bytes.
pub const CHUNK_HEADER_LEN: usize = 20;

/// A request of the transmission phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The command flags.
    pub flags: u16,
    /// The type of the command.
    pub command: u16,
    /// The client's name for the request, which the reply repeats.
    pub cookie: u64,
    /// The first byte that the request concerns.
    pub offset: u64,
    /// The number of bytes.
    pub len: u32,
}

impl Request {
    /// Reads a request header; `None` when it does not start with [`REQUEST_MAGIC`].
    pub fn parse(bytes: &[u8; REQUEST_LEN]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.u32()? == REQUEST_MAGIC).then_some(())?;
        Some(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            len: fields.u32()?,
        })
    }

    /// The bytes of a request header.
    pub fn emit(&self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// The header of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHeader {
    /// The number of the option.
    pub option: u32,
    /// The length of the data behind the header, in bytes.
    pub len: u32,
}

impl OptionHeader {
    /// Reads the header of an option; `None` when it does not start with [`OPTION_MAGIC`].
    pub fn parse(bytes: &[u8; OPTION_HEADER_LEN]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.u64()? == OPTION_MAGIC).then_some(())?;
        Some(Self { option: fields.u32()?, len: fields.u32()? })
    }

    /// The bytes of the header.
    pub fn emit(self) -> [u8; OPTION_HEADER_LEN] {
        let mut bytes = [0; OPTION_HEADER_LEN];
        bytes[0..8].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.option.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// The header of a reply to an option, as a client reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionReply {
    /// The option that is answered.
    pub option: u32,
    /// The kind of reply.
    pub kind: u32,
    /// The length of the data behind the header, in bytes.
    pub len: u32,
}

impl OptionReply {
    /// Reads the header; `None` when it does not start with [`OPTION_REPLY_MAGIC`].
    pub fn parse(bytes: &[u8; OPTION_REPLY_LEN]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.u64()? == OPTION_REPLY_MAGIC).then_some(())?;
        Some(Self { option: fields.u32()?, kind: fields.u32()?, len: fields.u32()? })
    }
}

/// The header of a reply to a request, as a client reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A simple reply. The payload of a read that succeeded follows.
    Simple {
        /// The client's name for the request.
        cookie: u64,
        /// The error number, 0 for success.
        error: u32,
    },
    /// A chunk of a structured reply, before its payload.
    Chunk {
        /// The client's name for the request.
        cookie: u64,
        /// The flags of the chunk.
        flags: u16,
        /// The type of the chunk.
        kind: u16,
        /// The length of the payload in bytes.
        len: u32,
    },
}

impl ReplyHeader {
    /// Length of the header that begins with these bytes; `None` when they are no magic number of a reply.
    pub fn len_of(magic: [u8; 4]) -> Option<usize> {
        match u32::from_be_bytes(magic) {
            SIMPLE_REPLY_MAGIC => Some(SIMPLE_REPLY_LEN),
            CHUNK_MAGIC => Some(CHUNK_HEADER_LEN),
            _ => None,
        }
    }

    /// Reads a whole header.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let header = match fields.u32()? {
            SIMPLE_REPLY_MAGIC => {
                let error = fields.u32()?;
                Self::Simple { cookie: fields.u64()?, error }
            }
            CHUNK_MAGIC => {
                let (flags, kind) = (fields.u16()?, fields.u16()?);
                Self::Chunk { flags, kind, cookie: fields.u64()?, len: fields.u32()? }
            }
            _ => return None,
        };
        fields.end()?;
        Some(header)
    }
}

/// The header of a reply to `option`, before `len` bytes of data.
pub fn option_reply(option: u32, kind: u32, len: u32) -> [u8; OPTION_REPLY_LEN] {
    let mut bytes = [0; OPTION_REPLY_LEN];
    bytes[0..8].copy_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    bytes[8..12].copy_from_slice(&option.to_be_bytes());
    bytes[12..16].copy_from_slice(&kind.to_be_bytes());
    bytes[16..20].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// The header of a simple reply.
pub fn simple_reply(cookie: u64, error: Option<Errno>) -> [u8; SIMPLE_REPLY_LEN] {
    let mut bytes = [0; SIMPLE_REPLY_LEN];
    bytes[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.map_or(0, |error| error as u32).to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// The header of the only chunk of a structured reply, before `len` bytes.
pub fn only_chunk(cookie: u64, kind: u16, len: u32) -> [u8; CHUNK_HEADER_LEN] {
    let mut bytes = [0; CHUNK_HEADER_LEN];
    bytes[0..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&chunk::DONE.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..20].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// A reader of numbers and strings from the front of some bytes. Each gives `None` when too few are left.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Succeeds when nothing is left.
    pub(crate) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
