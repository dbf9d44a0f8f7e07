//! The byte stream, cut into headers and data segments.
//!
//! A header is collected (it is short); a data segment is not: its bytes go straight to the place that the header's owner
//! names, digested on the way, so no PDU is ever held as a whole.

use lunette_crc32c::{Crc32c, crc32c, from_wire};
use lunette_pdu::{BHS_LEN, Bhs, DIGEST_LEN, MAX_AHS_LEN, pad_len};

use crate::limits::DIRECT_RECEIVE_BYTES;
use crate::traffic::Traffic;

/// Why the stream cannot be cut any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the header digest is wrong")]
    HeaderDigest,
    #[error("the data digest is wrong")]
    DataDigest,
    #[error("a data segment of {0} bytes is longer than MaxRecvDataSegmentLength")]
    TooLong(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Collecting a header.
    Header,
    /// A header is complete; its data segment comes next.
    Data,
}

/// A PDU that lies in received bytes as a whole. It has no additional header segments, and nothing of it is verified yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholePdu<'i> {
    pub(crate) bhs: &'i Bhs,
    pub(crate) data: &'i [u8],
    /// From its first byte to its last.
    pub(crate) bytes: &'i [u8],
}

/// Cuts one direction of one connection.
pub(crate) struct Receiver {
    head: [u8; BHS_LEN + MAX_AHS_LEN + DIGEST_LEN],
    head_filled: usize,
    stage: Stage,
    /// Bytes of the data segment that have arrived.
    segment_filled: usize,
    /// Pad and digest after the segment.
    tail: [u8; 3 + DIGEST_LEN],
    tail_filled: usize,
    digest: Crc32c,
    header_digest: bool,
    data_digest: bool,
    max_segment_len: usize,
    traffic: Traffic,
}

impl Receiver {
    pub(crate) fn new(max_segment_len: u32) -> Self {
        Self {
            head: [0; BHS_LEN + MAX_AHS_LEN + DIGEST_LEN],
            head_filled: 0,
            stage: Stage::Header,
            segment_filled: 0,
            tail: [0; 3 + DIGEST_LEN],
            tail_filled: 0,
            digest: Crc32c::new(),
            header_digest: false,
            data_digest: false,
            max_segment_len: max_segment_len as usize,
            traffic: Traffic::default(),
        }
    }

    /// What holds from the next header on.
    pub(crate) fn configure(&mut self, header_digest: bool, data_digest: bool, max_segment_len: u32) {
        self.header_digest = header_digest;
        self.data_digest = data_digest;
        self.max_segment_len = max_segment_len as usize;
    }

    /// Segments of the headers that come may be so long.
    pub(crate) fn limit_segments(&mut self, max_segment_len: u32) {
        self.max_segment_len = max_segment_len as usize;
    }

    /// What has been received since this was asked last.
    pub(crate) fn take_traffic(&mut self) -> Traffic {
        std::mem::take(&mut self.traffic)
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// The header that is complete, while the stage is [`Stage::Data`].
    pub(crate) fn bhs(&self) -> &Bhs {
        Bhs::ref_from(&self.head[..BHS_LEN]).expect("48 bytes are a basic header segment")
    }

    /// The additional header segments of that header.
    pub(crate) fn ahs(&self) -> &[u8] {
        &self.head[BHS_LEN..BHS_LEN + self.bhs().ahs_len()]
    }

    /// Whether nothing of the next PDU has been collected.
    pub(crate) fn is_between_pdus(&self) -> bool {
        self.stage == Stage::Header && self.head_filled == 0
    }

    /// The PDU at the front of `input`, when all of it is there and nothing of it has been collected before.
    #[inline]
    pub(crate) fn whole<'i>(&self, input: &'i [u8]) -> Option<WholePdu<'i>> {
        let bhs = Bhs::ref_from(input.get(..BHS_LEN)?)?;
        let data_len = bhs.data_segment_len();
        let data_at = BHS_LEN + if self.header_digest { DIGEST_LEN } else { 0 };
        let digest_len = if self.data_digest && data_len > 0 { DIGEST_LEN } else { 0 };
        let bytes = input.get(..data_at + data_len + pad_len(data_len) + digest_len)?;
        (bhs.ahs_len() == 0).then(|| WholePdu { bhs, data: &bytes[data_at..data_at + data_len], bytes })
    }

    /// Whether the digests of such a PDU are right.
    #[inline]
    pub(crate) fn verifies(&self, pdu: &WholePdu<'_>) -> bool {
        let WholePdu { data, bytes, .. } = *pdu;
        if self.header_digest {
            let (header, rest) = bytes.split_at(BHS_LEN);
            if !matches(crc32c(header), &rest[..DIGEST_LEN]) {
                return false;
            }
        }
        if !self.data_digest || data.is_empty() {
            return true;
        }
        let (before, digest) = bytes.split_at(bytes.len() - DIGEST_LEN);
        let padded = &before[before.len() - data.len() - pad_len(data.len())..];
        matches(crc32c(padded), digest)
    }

    /// Counts a PDU that was taken as a whole.
    pub(crate) fn took_whole(&mut self) {
        self.traffic.received_pdus += 1;
    }

    /// Collects a header from the front of `input`. True when one is complete and the stage has become [`Stage::Data`].
    #[expect(clippy::inline_always, reason = "a call would cost a tenth of it")]
    #[inline(always)]
    pub(crate) fn header(&mut self, input: &mut &[u8]) -> Result<bool, FrameError> {
        if !self.collect(BHS_LEN, input) {
            return Ok(false);
        }
        let digested = BHS_LEN + self.bhs().ahs_len();
        let digest_len = if self.header_digest { DIGEST_LEN } else { 0 };
        if !self.collect(digested + digest_len, input) {
            return Ok(false);
        }
        if self.header_digest && !matches(crc32c(&self.head[..digested]), &self.head[digested..digested + DIGEST_LEN]) {
            return Err(FrameError::HeaderDigest);
        }
        let segment_len = self.bhs().data_segment_len();
        if segment_len > self.max_segment_len {
            return Err(FrameError::TooLong(segment_len));
        }
        self.traffic.received_pdus += 1;
        self.stage = Stage::Data;
        self.segment_filled = 0;
        self.tail_filled = 0;
        self.digest = Crc32c::new();
        Ok(true)
    }

    /// Takes bytes of the data segment from the front of `input`. The segment's first bytes go to `place`; what does not fit
    /// there is digested and dropped. True when the segment is complete and verified. The next header follows then, and after a
    /// wrong data digest, too.
    #[expect(clippy::inline_always, reason = "a call would cost a tenth of it")]
    #[inline(always)]
    pub(crate) fn data(&mut self, input: &mut &[u8], place: &mut [u8]) -> Result<bool, FrameError> {
        let segment_len = self.bhs().data_segment_len();
        if segment_len > 0 {
            self.copy_segment(input, place, segment_len);
            if self.segment_filled < segment_len || !self.collect_tail(input, segment_len) {
                return Ok(false);
            }
        }
        self.stage = Stage::Header;
        self.head_filled = 0;
        self.verify_segment(segment_len).map(|()| true)
    }

    /// The part of `place` that the rest of this segment can be received into without passing through `input`, when that is
    /// worth a receive of its own.
    pub(crate) fn direct<'a>(&self, place: &'a mut [u8]) -> Option<&'a mut [u8]> {
        if self.stage != Stage::Data {
            return None;
        }
        let end = self.bhs().data_segment_len().min(place.len());
        let rest = place.get_mut(self.segment_filled..end)?;
        (rest.len() >= DIRECT_RECEIVE_BYTES).then_some(rest)
    }

    /// `len` bytes have been put where [`Receiver::direct`] said.
    pub(crate) fn direct_filled(&mut self, place: &[u8], len: usize) {
        let filled = &place[self.segment_filled..self.segment_filled + len];
        if self.data_digest {
            self.digest.update(filled);
        }
        self.segment_filled += len;
        self.traffic.direct_receives += 1;
    }

    /// Bytes of the data segment that have come.
    pub(crate) fn segment_filled(&self) -> usize {
        self.segment_filled
    }

    /// The next `len` bytes of the data segment are in their place already. False when the segment has not as many left, or when they had to be
    /// digested.
    pub(crate) fn skip_placed(&mut self, len: usize) -> bool {
        let left = self.bhs().data_segment_len().saturating_sub(self.segment_filled);
        let fits = self.stage == Stage::Data && !self.data_digest && len <= left;
        if fits {
            self.segment_filled += len;
            self.traffic.copied(len, false);
        }
        fits
    }

    /// Forgets what has been collected of a header: the next byte begins another one.
    pub(crate) fn drop_header(&mut self) {
        self.head_filled = 0;
    }

    /// The most bytes that a PDU has.
    pub(crate) fn max_pdu_len(&self) -> usize {
        let digest_len = |on| if on { DIGEST_LEN } else { 0 };
        let header_len = BHS_LEN + MAX_AHS_LEN + digest_len(self.header_digest);
        header_len + self.max_segment_len + pad_len(self.max_segment_len) + digest_len(self.data_digest)
    }

    fn collect(&mut self, want: usize, input: &mut &[u8]) -> bool {
        let missing = want.saturating_sub(self.head_filled);
        let taken = take(input, missing);
        self.head[self.head_filled..self.head_filled + taken.len()].copy_from_slice(taken);
        self.head_filled += taken.len();
        self.head_filled >= want
    }

    fn copy_segment(&mut self, input: &mut &[u8], place: &mut [u8], segment_len: usize) {
        let room = place.get_mut(self.segment_filled..).unwrap_or_default();
        let room_len = room.len().min(segment_len - self.segment_filled);
        let kept = take(input, room_len);
        let room = &mut room[..kept.len()];
        if self.data_digest {
            self.digest.copy(room, kept);
        } else {
            room.copy_from_slice(kept);
        }
        self.traffic.copied(kept.len(), self.data_digest);
        self.segment_filled += kept.len();
        if kept.len() == room_len {
            let dropped = take(input, segment_len - self.segment_filled);
            if self.data_digest {
                self.digest.update(dropped);
            }
            self.segment_filled += dropped.len();
        }
    }

    fn collect_tail(&mut self, input: &mut &[u8], segment_len: usize) -> bool {
        let want = pad_len(segment_len) + if self.data_digest { DIGEST_LEN } else { 0 };
        let taken = take(input, want - self.tail_filled);
        self.tail[self.tail_filled..self.tail_filled + taken.len()].copy_from_slice(taken);
        self.tail_filled += taken.len();
        self.tail_filled == want
    }

    fn verify_segment(&mut self, segment_len: usize) -> Result<(), FrameError> {
        if !self.data_digest || segment_len == 0 {
            return Ok(());
        }
        // RFC 7143 section 11.7.4: the pad bytes are digested too.
        let pad = pad_len(segment_len);
        self.digest.update(&self.tail[..pad]);
        if matches(self.digest.finish(), &self.tail[pad..pad + DIGEST_LEN]) {
            Ok(())
        } else {
            Err(FrameError::DataDigest)
        }
    }
}

fn take<'a>(input: &mut &'a [u8], at_most: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(at_most.min(input.len()));
    *input = rest;
    taken
}

/// A fuzzer cannot guess digests; it sees through them. One is wrong to it, too.
fn matches(computed: u32, wire: &[u8]) -> bool {
    (cfg!(fuzzing) && wire != [0xff; DIGEST_LEN])
        || <[u8; DIGEST_LEN]>::try_from(wire).is_ok_and(|wire| from_wire(wire) == computed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lunette_crc32c::to_wire;

    /// A NOP-Out that carries `data`, as it stands on the wire.
    fn wire(data: &[u8], header_digest: bool, data_digest: bool) -> Vec<u8> {
        let mut bytes = vec![0; BHS_LEN];
        bytes[1] = 0x80;
        bytes[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        if header_digest {
            let digest = crc32c(&bytes);
            bytes.extend(to_wire(digest));
        }
        if !data.is_empty() {
            let mut segment = data.to_vec();
            segment.resize(data.len() + pad_len(data.len()), 0);
            let digest = crc32c(&segment);
            bytes.extend(segment);
            if data_digest {
                bytes.extend(to_wire(digest));
            }
        }
        bytes
    }

    fn receiver(header_digest: bool, data_digest: bool) -> Receiver {
        let mut receiver = Receiver::new(8192);
        receiver.configure(header_digest, data_digest, 8192);
        receiver
    }

    /// Receives one PDU whose bytes come in pieces of `step`.
    fn receive(receiver: &mut Receiver, bytes: &[u8], step: usize, place: &mut [u8]) -> Result<bool, FrameError> {
        for mut piece in bytes.chunks(step) {
            while !piece.is_empty() || receiver.stage() == Stage::Data {
                let done = match receiver.stage() {
                    Stage::Header => receiver.header(&mut piece).map(|_| false)?,
                    Stage::Data => receiver.data(&mut piece, place)?,
                };
                if done {
                    return Ok(true);
                }
                if piece.is_empty() {
                    break;
                }
            }
        }
        Ok(false)
    }

    #[test]
    fn any_cut_of_the_stream_gives_the_same_segment() {
        let data: Vec<u8> = (0..=250).collect();
        for (header_digest, data_digest) in [(false, false), (true, false), (false, true), (true, true)] {
            let bytes = wire(&data, header_digest, data_digest);
            for step in 1..=bytes.len() {
                let mut receiver = receiver(header_digest, data_digest);
                let mut place = vec![0; data.len()];
                assert_eq!(receive(&mut receiver, &bytes, step, &mut place), Ok(true), "step {step}");
                assert_eq!(place, data);
                assert_eq!(receiver.stage(), Stage::Header);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_dropped_but_digested() {
        let data: Vec<u8> = (0..100).collect();
        let bytes = wire(&data, true, true);
        for step in [1, 7, 64, 200] {
            let mut place = [0xee; 30];
            assert_eq!(receive(&mut receiver(true, true), &bytes, step, &mut place), Ok(true));
            assert_eq!(place, data[..30]);
        }
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is() {
        let bytes = wire(&[0x5a; 61], true, true);
        for at in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[at / 8] ^= 1 << (at % 8);
            let mut place = [0; 61];
            let outcome = receive(&mut receiver(true, true), &bad, 1000, &mut place);
            assert_ne!(outcome, Ok(true), "bit {at}");
        }
    }

    #[test]
    fn a_segment_beyond_the_limit_is_refused_before_it_arrives() {
        let mut receiver = receiver(false, false);
        let mut header = [0; BHS_LEN];
        header[5..8].copy_from_slice(&8193_u32.to_be_bytes()[1..]);
        assert_eq!(receiver.header(&mut &header[..]), Err(FrameError::TooLong(8193)));
    }

    #[test]
    fn large_rests_are_offered_for_direct_receive() {
        let data: Vec<u8> = (0..40_000_u32).map(|n| n as u8).collect();
        let bytes = wire(&data, false, true);
        let mut receiver = receiver(false, true);
        receiver.configure(false, true, 65_536);
        let mut place = vec![0; data.len()];
        let mut first = &bytes[..1000];
        assert_eq!(receiver.header(&mut first), Ok(true));
        assert_eq!(receiver.data(&mut first, &mut place), Ok(false));
        let filled = 1000 - BHS_LEN;
        let direct = receiver.direct(&mut place).expect("39,048 bytes are worth it");
        assert_eq!(direct.len(), data.len() - filled);
        direct.copy_from_slice(&data[filled..]);
        receiver.direct_filled(&place, data.len() - filled);
        assert!(receiver.direct(&mut place).is_none());
        assert_eq!(receiver.data(&mut &bytes[BHS_LEN + data.len()..], &mut place), Ok(true));
        assert_eq!(place, data);
    }
}
