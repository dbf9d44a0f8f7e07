//! The stream that is received: what is due is delivered, what is early is placed or kept.

use std::collections::BTreeMap;

use lunette_pdu::{BHS_LEN, Bhs, pad_len};

use crate::header::Header;
use crate::limits::{MAX_EARLY_BYTES, MAX_EARLY_BYTES_OF_LOGIN, MAX_EARLY_PACKETS, MAX_EARLY_PACKETS_OF_LOGIN};

/// The verdict on a packet of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The packet continues the stream from that byte of its part on; the bytes before it have come already.
    Due(usize),
    /// The packet belongs further back. Offer its payload to the place that its header names, then call
    /// [`Incoming::keep`].
    Early,
    /// Everything in it has come already.
    Repeated,
    /// The packet is early, and too much is kept: drop it, and do not acknowledge it.
    NoRoom,
}

/// The peer has broken a rule of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// More than was allowed.
    #[error("the stream goes to byte {end}, and credit was given up to byte {credit}")]
    Credit {
        /// Where the packet ends.
        end: u64,
        /// Where the credit ends.
        credit: u64,
    },
    /// Two packets disagree.
    #[error("packets of the stream overlap in a header at byte {0}")]
    Overlap(u64),
    /// A packet without a byte of the stream.
    #[error("a packet at byte {0} of the stream is empty")]
    Empty(u64),
    /// A packet's header does not say where in which PDU its bytes stand.
    #[error("the packet at byte {0} of the stream belongs to another PDU than the bytes before it")]
    Pdu(u64),
}

/// The next part of the stream that came early.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<P> {
    /// Bytes of the stream.
    Bytes(Vec<u8>),
    /// A basic header segment, and then bytes that are in their place.
    Placed {
        /// The basic header segment, when it has not been delivered yet.
        bhs: Option<[u8; BHS_LEN]>,
        /// The place that was given to [`Incoming::keep`]. The caller makes sure that it is the place where the session
        /// expects the bytes now: else the peer has made it take bytes for received that are not there.
        place: P,
        /// Bytes at the front of the place that were delivered before.
        skipped: usize,
        /// Bytes after them.
        len: usize,
    },
}

/// The payload of a packet that came early.
#[derive(Debug, Clone, Copy)]
pub enum Kept<'a, P> {
    /// In its place.
    Placed(P),
    /// Bytes of the stream without a place.
    Bytes(&'a [u8]),
}

enum Body<P> {
    Placed(P),
    Bytes(Vec<u8>),
}

struct Early<P> {
    bhs: [u8; BHS_LEN],
    pdu_offset: u32,
    len: usize,
    body: Body<P>,
}

impl<P> Early<P> {
    fn end(&self, offset: u64) -> u64 {
        offset + header_len(self.pdu_offset == 0) + self.len as u64
    }

    fn kept_bytes(&self) -> usize {
        if let Body::Bytes(bytes) = &self.body { bytes.len() } else { 0 }
    }
}

fn header_len(begins_pdu: bool) -> u64 {
    if begins_pdu { BHS_LEN as u64 } else { 0 }
}

/// The PDU whose bytes are delivered.
struct Current {
    bhs: [u8; BHS_LEN],
    /// Bytes after the basic header segment.
    len: usize,
    /// How many of these were delivered.
    delivered: usize,
}

impl Current {
    fn new(bhs: [u8; BHS_LEN]) -> Self {
        let header = Bhs::from(bhs);
        let data = header.data_segment_len();
        Self { bhs, len: header.ahs_len() + data + pad_len(data), delivered: 0 }
    }
}

/// The stream of one direction, as it comes. `P` is how the caller names a place.
pub struct Incoming<P> {
    /// Everything before was delivered.
    next: u64,
    current: Option<Current>,
    /// The early packets, by their position in the stream.
    early: BTreeMap<u64, Early<P>>,
    kept_bytes: usize,
    /// The login has passed.
    is_trusted: bool,
}

impl<P> Default for Incoming<P> {
    fn default() -> Self {
        Self { next: 0, current: None, early: BTreeMap::new(), kept_bytes: 0, is_trusted: false }
    }
}

impl<P> Incoming<P> {
    /// Up to where the stream was delivered.
    pub fn delivered(&self) -> u64 {
        self.next
    }

    /// Whether something came early and waits for what is before it.
    pub fn has_gaps(&self) -> bool {
        !self.early.is_empty()
    }

    /// The login has passed: more may be kept.
    pub fn trust(&mut self) {
        self.is_trusted = true;
    }

    /// Whether something that came early is due.
    pub fn has_due(&self) -> bool {
        self.early.first_key_value().is_some_and(|(offset, _)| *offset <= self.next)
    }

    /// The verdict on a packet of `payload_len` bytes. `credit` is where the stream may go to.
    ///
    /// # Errors
    ///
    /// [`StreamError`] when the packet cannot come from a peer that keeps the rules.
    pub fn check(&self, header: &Header, payload_len: usize, credit: u64) -> Result<Verdict, StreamError> {
        let start = header.stream_offset;
        let len = header_len(header.begins_pdu()) + payload_len as u64;
        if len == 0 {
            return Err(StreamError::Empty(start));
        }
        let end = start.checked_add(len).filter(|end| *end <= credit);
        let end = end.ok_or(StreamError::Credit { end: start.saturating_add(len), credit })?;
        if end <= self.next {
            return Ok(Verdict::Repeated);
        }
        // What is due and was kept, because the upper layer takes nothing now, is bounded like what is early.
        if start > self.next || self.has_due() {
            return Ok(self.check_early(start, end, payload_len));
        }
        let skipped = (self.next - start) as usize;
        if header.begins_pdu() && skipped > 0 && skipped < BHS_LEN {
            return Err(StreamError::Overlap(self.next));
        }
        Ok(Verdict::Due(skipped))
    }

    fn check_early(&self, start: u64, end: u64, payload_len: usize) -> Verdict {
        let before = self.early.range(..=start).next_back();
        if before.is_some_and(|(offset, early)| early.end(*offset) >= end) {
            return Verdict::Repeated;
        }
        // A packet that begins where another one begins is longer, and takes its place.
        let takes_place = self.early.contains_key(&start);
        let (packets, bytes) = if self.is_trusted {
            (MAX_EARLY_PACKETS, MAX_EARLY_BYTES)
        } else {
            (MAX_EARLY_PACKETS_OF_LOGIN, MAX_EARLY_BYTES_OF_LOGIN)
        };
        let is_full = self.early.len() >= packets && !takes_place;
        if is_full || self.kept_bytes + payload_len > bytes { Verdict::NoRoom } else { Verdict::Early }
    }

    /// Keeps an early packet of `payload_len` bytes.
    pub fn keep(&mut self, header: &Header, payload_len: usize, kept: Kept<'_, P>) {
        let body = match kept {
            Kept::Placed(place) => Body::Placed(place),
            Kept::Bytes(bytes) => Body::Bytes(bytes.to_vec()),
        };
        let early = Early { bhs: header.bhs, pdu_offset: header.pdu_offset, len: payload_len, body };
        self.kept_bytes += early.kept_bytes();
        if let Some(replaced) = self.early.insert(header.stream_offset, early) {
            self.kept_bytes -= replaced.kept_bytes();
        }
    }

    /// Counts a packet that is [due](Verdict::Due) as delivered.
    ///
    /// # Errors
    ///
    /// [`StreamError::Pdu`] when its header does not continue the PDU before it.
    pub fn deliver(&mut self, header: &Header, payload_len: usize) -> Result<(), StreamError> {
        self.advance(header.stream_offset, &header.bhs, header.pdu_offset, payload_len)
    }

    /// Moves on to the end of a packet that begins at or before the next byte. All packets of a PDU have the same basic
    /// header segment, and say the truth about where their bytes stand: what they placed follows from that.
    fn advance(
        &mut self,
        offset: u64,
        bhs: &[u8; BHS_LEN],
        pdu_offset: u32,
        payload_len: usize,
    ) -> Result<(), StreamError> {
        let begins_pdu = pdu_offset == 0;
        if begins_pdu && offset == self.next {
            if self.current.as_ref().is_some_and(|current| current.delivered < current.len) {
                return Err(StreamError::Pdu(offset));
            }
            self.current = Some(Current::new(*bhs));
            self.next += BHS_LEN as u64;
        }
        let skipped = self.next.checked_sub(offset + header_len(begins_pdu)).ok_or(StreamError::Overlap(self.next))?;
        let end = pdu_offset as usize + payload_len;
        let continues = |current: &&mut Current| {
            current.bhs == *bhs && current.delivered as u64 == u64::from(pdu_offset) + skipped && end <= current.len
        };
        let current = self.current.as_mut().filter(continues).ok_or(StreamError::Pdu(offset))?;
        self.next += (end - current.delivered) as u64;
        current.delivered = end;
        Ok(())
    }

    /// The next early part that is due. It counts as delivered.
    ///
    /// # Errors
    ///
    /// [`StreamError`] when it does not fit what was delivered.
    pub fn next_due(&mut self) -> Result<Option<Due<P>>, StreamError> {
        while let Some(entry) = self.early.first_entry() {
            let offset = *entry.key();
            if offset > self.next {
                return Ok(None);
            }
            let early = entry.remove();
            self.kept_bytes -= early.kept_bytes();
            if early.end(offset) <= self.next {
                continue;
            }
            let skipped = (self.next - offset) as usize;
            self.advance(offset, &early.bhs, early.pdu_offset, early.len)?;
            return due(early, skipped).map(Some).ok_or(StreamError::Overlap(offset + skipped as u64));
        }
        Ok(None)
    }
}

/// The rest of an early packet behind its first `skipped` bytes.
fn due<P>(early: Early<P>, skipped: usize) -> Option<Due<P>> {
    let (bhs, skipped) = match early.pdu_offset {
        0 if skipped == 0 => (Some(early.bhs), 0),
        0 => (None, skipped.checked_sub(BHS_LEN)?),
        _ => (None, skipped),
    };
    Some(match early.body {
        Body::Placed(place) => Due::Placed { bhs, place, skipped, len: early.len - skipped },
        Body::Bytes(bytes) => Due::Bytes([bhs.as_ref().map_or(&[][..], |bhs| bhs), &bytes[skipped..]].concat()),
    })
}

#[cfg(test)]
mod tests;
