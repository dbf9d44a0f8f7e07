//! The direction from the peer.

use std::io::{self, Read};
use std::ops::Range;

use lunette_tls::{ChannelError, Incoming, Opened};

use super::cut;

/// Bytes of records that are received at a time: a part of the processor's cache.
const RECEIVE_BYTES: usize = 128 << 10;

/// Bytes of a record before its content (RFC 8446 section 5.2).
const RECORD_HEADER_LEN: usize = 5;

/// Records that were received, and their content. A record is opened where its content goes if it fits there.
pub(crate) struct Opening {
    incoming: Incoming,
    bytes: Box<[u8]>,
    /// The content that was opened where its record stands, and that was not taken yet.
    content: Range<usize>,
    /// Records that were not opened yet. The last one may be there in part.
    records: Range<usize>,
    has_ended: bool,
}

impl Opening {
    /// The direction behind a handshake, with what has come behind that: content, and bytes of records.
    pub(crate) fn new(incoming: Incoming, content: Vec<u8>, records: &[u8]) -> Self {
        let mut bytes = content;
        let content = 0..bytes.len();
        bytes.extend_from_slice(records);
        let records = content.end..bytes.len();
        bytes.resize(bytes.len().max(RECEIVE_BYTES), 0);
        Self { incoming, bytes: bytes.into(), content, records, has_ended: false }
    }

    /// Reads content. `receive` is called once at most, and only when no record is whole. `WouldBlock` when what it has
    /// received leads to no content; so time limits are checked while a peer sends records without any.
    pub(crate) fn read(
        &mut self,
        into: &mut [u8],
        receive: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut receive = Some(receive);
        let mut filled = 0;
        loop {
            filled += self.take_content(&mut into[filled..]);
            let room = &mut into[filled..];
            if room.is_empty() || self.has_ended {
                return Ok(filled);
            }
            if let Some(record) = self.front()? {
                if !Incoming::fits(&self.bytes[record.clone()], room) && filled > 0 {
                    return Ok(filled);
                }
                filled += self.open(record, room)?;
            } else if filled > 0 {
                return Ok(filled);
            } else {
                let receive = receive.take().ok_or(io::ErrorKind::WouldBlock)?;
                self.receive(receive)?;
            }
        }
    }

    /// Moves content out.
    fn take_content(&mut self, into: &mut [u8]) -> usize {
        let len = self.content.len().min(into.len());
        into[..len].copy_from_slice(&self.bytes[self.content.start..][..len]);
        self.content.start += len;
        len
    }

    /// The first record, if it is whole.
    fn front(&self) -> Result<Option<Range<usize>>, ChannelError> {
        let rest = &self.bytes[self.records.clone()];
        let len = Incoming::record_len(rest)?.filter(|len| *len <= rest.len());
        Ok(len.map(|len| self.records.start..self.records.start + len))
    }

    /// Opens the first record: into `room` where it fits, else where it stands. Gives the length of what is in `room`.
    fn open(&mut self, record: Range<usize>, room: &mut [u8]) -> Result<usize, ChannelError> {
        self.records.start = record.end;
        let bytes = &mut self.bytes[record.clone()];
        let is_direct = Incoming::fits(bytes, room);
        let opened = if is_direct { self.incoming.open_into(bytes, room)? } else { self.incoming.open(bytes)? };
        let len = match opened {
            Opened::Data(data) => data.len(),
            Opened::Nothing => 0,
            Opened::End => {
                self.has_ended = true;
                0
            }
        };
        if is_direct {
            return Ok(len);
        }
        let start = record.start + RECORD_HEADER_LEN;
        self.content = start..start + len;
        Ok(0)
    }

    /// Receives bytes behind the front of a record. All content must have been taken.
    fn receive(&mut self, receive: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<()> {
        self.bytes.copy_within(self.records.clone(), 0);
        self.records = 0..self.records.len();
        let len = receive(&mut self.bytes[self.records.end..])?;
        // Each message of NBD says how long it is, so an end between two records takes nothing away unnoticed.
        if len == 0 && !self.records.is_empty() {
            return Err(cut());
        }
        self.has_ended = len == 0;
        self.records.end += len;
        Ok(())
    }
}

/// The reading half of a connection.
pub(crate) struct Opener<R> {
    from: R,
    opening: Opening,
}

impl<R> Opener<R> {
    pub(crate) fn new(from: R, opening: Opening) -> Self {
        Self { from, opening }
    }
}

impl<R: Read> Read for Opener<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Self { from, opening } = self;
        opening.read(into, |room| from.read(room))
    }
}
