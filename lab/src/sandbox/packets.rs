//! The received TCP segments, as a network card leaves them in memory: each frame in a slot of its own, headers of the
//! layers below first.

use anyhow::{Context, Result};
use lunette_buffer::{Buffer, Pool};

use super::cpu::Lines;

/// Payload of a TCP segment with time stamps and an MTU of 1,500 bytes.
pub(super) const PAYLOAD_LEN: usize = 1448;
/// Ethernet, IPv4, and TCP with time stamps.
const HEADERS_LEN: usize = 14 + 20 + 32;
/// Two frames lie in a page.
const SLOT_LEN: usize = 2048;

/// Bytes of a connection in frames.
pub(super) struct Packets {
    memory: Buffer,
    len: usize,
}

impl Packets {
    /// Cuts bytes into segments.
    pub(super) fn new(pool: &Pool, bytes: &[u8]) -> Result<Self> {
        let count = bytes.len().div_ceil(PAYLOAD_LEN);
        let mut memory = pool.take(count * SLOT_LEN).context("the pool is too small for packets")?;
        for (slot, payload) in memory.chunks_mut(SLOT_LEN).zip(bytes.chunks(PAYLOAD_LEN)) {
            slot[HEADERS_LEN..HEADERS_LEN + payload.len()].copy_from_slice(payload);
        }
        Ok(Self { memory, len: bytes.len() })
    }

    /// The payloads of the segments, in order.
    #[inline]
    pub(super) fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        let lens = (0..self.len).step_by(PAYLOAD_LEN).map(|from| (self.len - from).min(PAYLOAD_LEN));
        self.memory.chunks(SLOT_LEN).zip(lens).map(|(slot, len)| &slot[HEADERS_LEN..HEADERS_LEN + len])
    }

    /// The bytes of the connection from `from` on, up to `end` or to the end of their segment.
    #[inline]
    pub(super) fn piece(&self, from: usize, end: usize) -> &[u8] {
        let (segment, offset) = (from / PAYLOAD_LEN, from % PAYLOAD_LEN);
        let len = (end - from).min(PAYLOAD_LEN - offset);
        let at = segment * SLOT_LEN + HEADERS_LEN + offset;
        &self.memory[at..at + len]
    }

    /// Where all of it lies.
    pub(super) fn lines(&self) -> Lines {
        let at = self.memory.as_ptr() as usize;
        at..at + self.memory.len()
    }

    /// Where the headers of the layers below lie. The last line of each has the first bytes of the payload, too.
    pub(super) fn header_lines(&self) -> impl Iterator<Item = Lines> + use<> {
        let lines = self.lines();
        lines.step_by(SLOT_LEN).map(|at| at..at + HEADERS_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_what_was_cut() {
        let pool = Pool::new(1 << 20);
        for len in [1, PAYLOAD_LEN, PAYLOAD_LEN + 1, 8248] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let packets = Packets::new(&pool, &bytes).expect("room");
            assert_eq!(packets.payloads().collect::<Vec<_>>().concat(), bytes);
            let (mut from, mut pieces) = (0, Vec::new());
            while from < len {
                pieces.extend_from_slice(packets.piece(from, len));
                from = pieces.len();
            }
            assert_eq!(pieces, bytes);
            assert_eq!(packets.header_lines().count(), packets.payloads().count());
        }
    }
}
