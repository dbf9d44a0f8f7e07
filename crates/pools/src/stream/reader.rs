//! The reader of a stream: a state machine that is fed.

use std::ops::Range;

use super::header::Header;
use super::{
    CRC_BYTES, DATA, END, MAGIC, PREAMBLE_BYTES, RECORD_BYTES, Record, StreamError, VERSION, ZEROES, chained, u32_at,
};
use crate::limits::{BLOCK_BYTES, MAX_CHUNK_BYTES, MAX_STREAM_HEADER_BYTES};

/// The next thing of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// The header, which is the first.
    Header(Box<Header>),
    /// The bytes that were just fed are those of this offset.
    Data(u64),
    /// The range has only zeroes.
    Zeroes(Range<u64>),
    /// The stream is whole. What may follow is no part of it.
    End,
}

/// The reader of a stream. Its user feeds it as many bytes as it wants, again and again, until the end.
///
/// ```
/// use lunette_pools::stream::{Reader, StreamError};
///
/// let mut reader = Reader::default();
/// assert_eq!(reader.wanted(), 16);
/// assert_eq!(reader.feed(&[0; 16]), Err(StreamError::Magic));
/// ```
#[derive(Debug, Default)]
pub struct Reader {
    state: State,
    /// The position in the stream of what is fed next.
    at: u64,
    chain: u32,
    count: u64,
    /// The offset at which the next record may begin, and the length of the content.
    next: u64,
    size_bytes: u64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Preamble,
    Header {
        preamble: [u8; PREAMBLE_BYTES],
        len: usize,
    },
    Record,
    Data(Record),
    End(Record),
    Ended,
}

impl Reader {
    /// The number of bytes to feed next. Zero when the stream has ended.
    pub fn wanted(&self) -> usize {
        match &self.state {
            State::Preamble => PREAMBLE_BYTES,
            State::Header { len, .. } => len + CRC_BYTES,
            State::Record => RECORD_BYTES,
            State::Data(record) | State::End(record) => usize::try_from(record.len).unwrap_or(MAX_CHUNK_BYTES),
            State::Ended => 0,
        }
    }

    /// Whether the bytes that are wanted are data, and not of the format.
    pub fn wants_data(&self) -> bool {
        matches!(self.state, State::Data(_))
    }

    /// Takes the bytes that are [wanted](Self::wanted). After an error the stream is of no use.
    ///
    /// # Errors
    ///
    /// [`StreamError`] when they are no part of a stream, or another number than wanted.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Item>, StreamError> {
        let at = self.at;
        if bytes.len() != self.wanted() {
            return Err(StreamError::Damaged(at));
        }
        self.at = at.saturating_add(bytes.len() as u64);
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Preamble => self.preamble(bytes).map(|()| None),
            State::Header { preamble, len } => self.header(&preamble, bytes, len).map(Some),
            State::Record => self.record(bytes, at),
            State::Data(record) => {
                if lunette_crc32c::crc32c(bytes) != record.data_crc {
                    return Err(StreamError::Damaged(at));
                }
                self.state = State::Record;
                Ok(Some(Item::Data(record.offset)))
            }
            State::End(record) => {
                let is_whole = record.offset == self.count && u32_at(bytes, 0) == self.chain;
                if lunette_crc32c::crc32c(bytes) != record.data_crc {
                    return Err(StreamError::Damaged(at));
                }
                if is_whole { Ok(Some(Item::End)) } else { Err(StreamError::Chain) }
            }
            State::Ended => Ok(None),
        }
    }

    fn preamble(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(StreamError::Magic);
        }
        let (version, len) = (u32_at(bytes, 8), u32_at(bytes, 12));
        if version != VERSION {
            return Err(StreamError::Version(version));
        }
        let fits = usize::try_from(len).ok().filter(|len| *len <= MAX_STREAM_HEADER_BYTES);
        let len_bytes = fits.ok_or(StreamError::LongHeader(len))?;
        let preamble = std::array::from_fn(|index| bytes[index]);
        self.state = State::Header { preamble, len: len_bytes };
        Ok(())
    }

    fn header(&mut self, preamble: &[u8; PREAMBLE_BYTES], bytes: &[u8], len: usize) -> Result<Item, StreamError> {
        let (text, crc) = bytes.split_at(len);
        let mut digest = lunette_crc32c::Crc32c::new();
        digest.update(preamble);
        digest.update(text);
        if digest.finish() != u32_at(crc, 0) {
            return Err(StreamError::Damaged(PREAMBLE_BYTES as u64));
        }
        let header = Header::parse(text)?;
        (self.next, self.size_bytes) = (header.from, header.size_bytes);
        self.state = State::Record;
        Ok(Item::Header(Box::new(header)))
    }

    fn record(&mut self, bytes: &[u8], at: u64) -> Result<Option<Item>, StreamError> {
        let bytes = std::array::from_fn(|index| bytes[index]);
        let record = Record::parse(&bytes).ok_or(StreamError::Damaged(at))?;
        let wrong = |why| StreamError::Record { at, why };
        if record.kind == END {
            if record.len != CRC_BYTES as u64 {
                return Err(wrong("the end has another length"));
            }
            self.state = State::End(record);
            return Ok(None);
        }
        let end = record.offset.checked_add(record.len).filter(|end| *end <= self.size_bytes);
        let end = end.ok_or(wrong("it is beyond the end of the volume"))?;
        let is_whole = [record.offset, record.len].iter().all(|number| number.is_multiple_of(BLOCK_BYTES.into()));
        match record.kind {
            _ if record.len == 0 || !is_whole => return Err(wrong("it is not of whole blocks")),
            _ if record.offset < self.next => return Err(wrong("it is before the one before")),
            DATA if record.len > MAX_CHUNK_BYTES as u64 => return Err(wrong("it is too long")),
            DATA | ZEROES => {}
            _ => return Err(wrong("its kind is unknown")),
        }
        (self.next, self.count) = (end, self.count.saturating_add(1));
        self.chain = chained(self.chain, &bytes);
        if record.kind == DATA {
            self.state = State::Data(record);
            return Ok(None);
        }
        self.state = State::Record;
        Ok(Some(Item::Zeroes(record.offset..end)))
    }
}
