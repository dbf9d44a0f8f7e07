//! The byte stream, cut into headers and data segments.
//!
//! A header is collected (it is short); a data segment is not: its bytes go straight to the place that the header's
//! owner names, digested on the way, so no PDU is ever held as a whole.

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

/// A PDU without additional header segments that begins what was received, digests unchecked.
#[derive(Debug)]
pub(crate) struct FrontPdu<'a> {
    /// The header with its digest.
    head: &'a [u8],
    /// The data segment with its pad and its digest, if it is here to its last byte.
    segment: Option<&'a [u8]>,
    /// The bytes received behind it; behind the header when the data segment is not here.
    rest: &'a [u8],
}

impl FrontPdu<'_> {
    #[inline]
    pub(crate) fn bhs(&self) -> &Bhs {
        Bhs::ref_from(&self.head[..BHS_LEN]).expect("48 bytes are a basic header segment")
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.segment.is_some()
    }

    /// The data segment, if it is whole.
    #[inline]
    pub(crate) fn data(&self) -> Option<&[u8]> {
        Some(&self.segment?[..self.bhs().data_segment_len()])
    }

    /// From the first byte of a whole PDU to its last.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.segment.map_or(0, <[u8]>::len)
    }
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

    /// Sets the digests and the longest data segment from the next header on.
    pub(crate) fn configure(&mut self, header_digest: bool, data_digest: bool, max_segment_len: u32) {
        self.header_digest = header_digest;
        self.data_digest = data_digest;
        self.max_segment_len = max_segment_len as usize;
    }

    /// Sets the longest data segment accepted from the next header on.
    pub(crate) fn limit_segments(&mut self, max_segment_len: u32) {
        self.max_segment_len = max_segment_len as usize;
    }

    /// The traffic received since the last call.
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

    /// The header of the PDU whose data segment was completed last, with its digest.
    pub(crate) fn last_head(&self) -> &[u8] {
        let digest_len = if self.header_digest { DIGEST_LEN } else { 0 };
        &self.head[..BHS_LEN + self.bhs().ahs_len() + digest_len]
    }

    /// The pad and the digest behind that data segment.
    pub(crate) fn last_tail(&self) -> &[u8] {
        &self.tail[..self.tail_filled]
    }

    /// The bytes of a PDU that has not come to its end. `segment` has those of its data segment.
    pub(crate) fn partial(&self, segment: &[u8]) -> Vec<u8> {
        let (segment_len, tail_len) = match self.stage {
            Stage::Header => (0, 0),
            Stage::Data => (self.segment_filled.min(segment.len()), self.tail_filled),
        };
        [&self.head[..self.head_filled], &segment[..segment_len], &self.tail[..tail_len]].concat()
    }

    /// Forgets these bytes: the next byte begins another PDU.
    pub(crate) fn drop_partial(&mut self) {
        (self.stage, self.head_filled) = (Stage::Header, 0);
    }

    /// Whether nothing of the next PDU has been collected.
    pub(crate) fn is_between_pdus(&self) -> bool {
        self.head_filled == 0
    }

    /// Whether the digests of a PDU are right that is whole, and its data segment no longer than it may be.
    #[inline]
    pub(crate) fn verifies(&self, pdu: &FrontPdu<'_>) -> bool {
        let Some(segment) = pdu.segment else { return false };
        let len = pdu.bhs().data_segment_len();
        if self.check_header(pdu.head, len).is_err() {
            return false;
        }
        if !self.data_digest || len == 0 {
            return true;
        }
        let (data, tail) = segment.split_at(len);
        let mut digest = Crc32c::new();
        digest.update(data);
        verify_segment(digest, len, tail).is_ok()
    }

    /// Counts a PDU whose data was copied from where it lay, behind its digest.
    pub(crate) fn took_whole(&mut self, data_len: usize) {
        self.traffic.received_pdus += 1;
        self.traffic.copied(data_len, false);
    }

    /// The PDU at the front of `input`, if it begins there and its header is here. Nothing is taken:
    /// [`header`](Self::header) may still be asked.
    #[inline]
    pub(crate) fn front_pdu<'a>(&self, input: &'a [u8]) -> Option<FrontPdu<'a>> {
        let head_len = BHS_LEN + if self.header_digest { DIGEST_LEN } else { 0 };
        if self.head_filled > 0 || input.len() < head_len {
            return None;
        }
        let (head, behind) = input.split_at(head_len);
        let bhs = Bhs::ref_from(&head[..BHS_LEN])?;
        let len = bhs.data_segment_len();
        let tail_len = if len > 0 { self.tail_len(len) } else { 0 };
        let (segment, rest) = match behind.split_at_checked(len + tail_len) {
            Some((segment, rest)) => (Some(segment), rest),
            None => (None, behind),
        };
        (bhs.ahs_len() == 0).then_some(FrontPdu { head, segment, rest })
    }

    /// Takes a PDU from the front of `input`, as [`header`](Self::header) takes its header. If it is not whole, its
    /// data segment is received by [`data`](Self::data), else by [`whole_data`](Self::whole_data).
    #[inline]
    pub(crate) fn take_front<'a>(&mut self, pdu: &FrontPdu<'a>, input: &mut &'a [u8]) -> Result<(), FrameError> {
        *input = pdu.rest;
        let checked = self.check_header(pdu.head, pdu.bhs().data_segment_len());
        self.note(checked)?;
        if !pdu.is_whole() {
            self.head[..pdu.head.len()].copy_from_slice(pdu.head);
            self.head_filled = pdu.head.len();
            self.begin_segment();
        }
        self.traffic.received_pdus += 1;
        Ok(())
    }

    /// Takes the data segment of a PDU that is whole, as [`data`](Self::data) does.
    #[inline]
    pub(crate) fn whole_data(&mut self, pdu: &FrontPdu<'_>, place: &mut [u8]) -> Result<(), FrameError> {
        let len = pdu.bhs().data_segment_len();
        let (kept, behind) = pdu.segment.unwrap_or_default().split_at(len.min(place.len()));
        let place = &mut place[..kept.len()];
        self.traffic.copied(kept.len(), self.data_digest);
        if !self.data_digest {
            place.copy_from_slice(kept);
            return Ok(());
        }
        let mut digest = Crc32c::new();
        digest.copy(place, kept);
        let (dropped, tail) = behind.split_at(len - kept.len());
        if !dropped.is_empty() {
            digest.update(dropped);
        }
        let verified = verify_segment(digest, len, tail);
        self.note(verified)
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
        let checked = self.check_header(&self.head[..digested + digest_len], self.bhs().data_segment_len());
        self.note(checked)?;
        self.traffic.received_pdus += 1;
        self.begin_segment();
        Ok(true)
    }

    /// A header is complete: what comes is its data segment.
    #[inline]
    fn begin_segment(&mut self) {
        self.stage = Stage::Data;
        self.segment_filled = 0;
        self.tail_filled = 0;
        self.digest = Crc32c::new();
    }

    /// Takes bytes of the data segment from the front of `input`. The segment's first bytes go to `place`; what does
    /// not fit there is digested and dropped. True when the segment is complete and verified. The next header follows
    /// then, and after a wrong data digest, too.
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
        if self.data_digest {
            let verified = verify_segment(self.digest, segment_len, &self.tail[..self.tail_filled]);
            self.note(verified)?;
        }
        Ok(true)
    }

    /// The part of `place` that the rest of this segment can be received into without passing through `input`, when
    /// that is worth a receive of its own.
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

    /// The next `len` bytes of the data segment are in their place already. False when the segment has not as many
    /// left, or when they had to be digested.
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
        let want = self.tail_len(segment_len);
        let taken = take(input, want - self.tail_filled);
        self.tail[self.tail_filled..self.tail_filled + taken.len()].copy_from_slice(taken);
        self.tail_filled += taken.len();
        self.tail_filled == want
    }

    /// Bytes of pad and digest behind a data segment that is not empty.
    #[inline]
    fn tail_len(&self, segment_len: usize) -> usize {
        pad_len(segment_len) + if self.data_digest { DIGEST_LEN } else { 0 }
    }

    /// Counts a wrong digest.
    #[inline]
    fn note(&mut self, checked: Result<(), FrameError>) -> Result<(), FrameError> {
        match checked {
            Err(FrameError::HeaderDigest) => self.traffic.header_digest_errors += 1,
            Err(FrameError::DataDigest) => self.traffic.data_digest_errors += 1,
            Ok(()) | Err(FrameError::TooLong(_)) => {}
        }
        checked
    }

    /// Checks a header that is here with its digest.
    #[inline]
    fn check_header(&self, head: &[u8], segment_len: usize) -> Result<(), FrameError> {
        if self.header_digest && !ends_with_digest(head) {
            return Err(FrameError::HeaderDigest);
        }
        if segment_len > self.max_segment_len {
            return Err(FrameError::TooLong(segment_len));
        }
        Ok(())
    }
}

#[inline]
fn ends_with_digest(head: &[u8]) -> bool {
    head.split_last_chunk::<DIGEST_LEN>().is_some_and(|(digested, wire)| matches(crc32c(digested), wire))
}

/// Checks the digest of a segment of `len` bytes, which stands in `tail` behind the pad.
#[inline]
fn verify_segment(mut digest: Crc32c, len: usize, tail: &[u8]) -> Result<(), FrameError> {
    if len == 0 {
        return Ok(());
    }
    // RFC 7143 section 11.7.4: the pad bytes are digested too.
    let (pad, wire) = tail.split_at(pad_len(len));
    if !pad.is_empty() {
        digest.update(pad);
    }
    if matches(digest.finish(), wire) { Ok(()) } else { Err(FrameError::DataDigest) }
}

fn take<'a>(input: &mut &'a [u8], at_most: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(at_most.min(input.len()));
    *input = rest;
    taken
}

/// Under `cfg(fuzzing)` every digest matches except all-ones, so fuzzers reach the code behind the check and its
/// failure path.
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
