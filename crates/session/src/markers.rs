//! Fixed interval markers (RFC 3720 appendix A): where they stand in the stream, and what they say.
//!
//! A marker is 8 bytes: twice the number of bytes from its end to the next header, other markers not counted. So a pointer
//! cannot lead backward nor into a marker. Markers stand at fixed distances from the first byte of the connection, as if there had
//! been markers in the login too (appendix A.2). They are no part of any digest.

use std::ops::Range;

pub(crate) const MARKER_LEN: usize = 8;

/// How far it is to the next marker of a stream, in bytes that are no markers.
#[derive(Debug, Clone, Copy)]
struct Distance {
    interval: u32,
    left: u32,
}

impl Distance {
    /// `login_len` bytes have gone by without markers.
    fn after_login(login_len: u64, interval: u32) -> Self {
        let period = u64::from(interval) + MARKER_LEN as u64;
        let gone = login_len % period;
        // When the login has ended where a marker would be, that one is left out.
        let left = if gone <= u64::from(interval) { 0 } else { period } + u64::from(interval) - gone;
        Self { interval, left: left as u32 }
    }

    fn is_over(self) -> bool {
        self.left == 0
    }

    /// Of `len` bytes, those that come before the next marker.
    fn before_marker(self, len: usize) -> usize {
        len.min(self.left as usize)
    }

    fn pass(&mut self, len: usize) {
        self.left -= len as u32;
    }

    fn pass_marker(&mut self) {
        self.left = self.interval;
    }
}

/// What the sender does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Woven {
    Marker([u8; MARKER_LEN]),
    /// This part of the bytes that it was asked about.
    Bytes(Range<usize>),
}

/// Puts markers between the bytes that are sent.
pub(crate) struct Weaver {
    next: Distance,
}

impl Weaver {
    /// For a connection whose login was `login_len` bytes in this direction. `interval` is in bytes.
    pub(crate) fn new(login_len: u64, interval: u32) -> Self {
        Self { next: Distance::after_login(login_len, interval) }
    }

    /// The marker that stands right before a PDU, if there is one. It names that PDU's header.
    pub(crate) fn before_pdu(&mut self) -> Option<[u8; MARKER_LEN]> {
        self.next.is_over().then(|| {
            self.next.pass_marker();
            [0; MARKER_LEN]
        })
    }

    /// Cuts the next `len` bytes of a PDU at markers. `pdu_left` counts down the bytes up to its end: the next header begins
    /// there.
    pub(crate) fn weave(&mut self, len: usize, pdu_left: &mut u32, mut put: impl FnMut(Woven)) {
        let mut from = 0;
        while from < len {
            if self.next.is_over() {
                self.next.pass_marker();
                let pointer = pdu_left.to_be_bytes();
                let mut marker = [0; MARKER_LEN];
                marker[..4].copy_from_slice(&pointer);
                marker[4..].copy_from_slice(&pointer);
                put(Woven::Marker(marker));
            }
            let piece = self.next.before_marker(len - from);
            put(Woven::Bytes(from..from + piece));
            self.next.pass(piece);
            *pdu_left -= piece as u32;
            from += piece;
        }
    }
}

/// Why a marker does not tell where the next header is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PointerError {
    #[error("the pointers of a marker, {0} and {1}, differ")]
    Differ(u32, u32),
    #[error("a marker points {0} bytes ahead, beyond the end of the longest PDU")]
    Outside(u32),
}

/// What a marker says, in a stream whose PDUs have at most `max_pdu_len` bytes.
fn pointer(marker: [u8; MARKER_LEN], max_pdu_len: usize) -> Result<u32, PointerError> {
    let both = u64::from_be_bytes(marker);
    // The two lowest bits are reserved and taken as 0.
    let (first, second) = ((both >> 32) as u32 & !3, both as u32 & !3);
    if first != second {
        return Err(PointerError::Differ(first, second));
    }
    if first as usize > max_pdu_len { Err(PointerError::Outside(first)) } else { Ok(first) }
}

/// Whether the receiver knows where headers begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    In,
    /// It does not: bytes are dropped up to a marker.
    Lost,
    /// A marker has named the place, so many bytes ahead.
    Named(u32),
}

/// Takes markers out of the bytes that are received.
pub(crate) struct Stripper {
    next: Distance,
    marker: [u8; MARKER_LEN],
    /// Bytes of the marker that have arrived.
    marker_filled: usize,
    step: Step,
}

impl Stripper {
    /// As for [`Weaver::new`].
    pub(crate) fn new(login_len: u64, interval: u32) -> Self {
        Self {
            next: Distance::after_login(login_len, interval),
            marker: [0; MARKER_LEN],
            marker_filled: 0,
            step: Step::In,
        }
    }

    /// The receiver has lost its place: all bytes are dropped up to the next header that a marker names.
    pub(crate) fn lose_step(&mut self) {
        self.step = Step::Lost;
    }

    /// Takes what belongs to nobody from the front of `input`: markers, and bytes that are dropped. Gives what comes before the next
    /// marker, to be [`pass`](Self::pass)ed when it has been taken.
    pub(crate) fn piece<'a>(&mut self, input: &mut &'a [u8], max_pdu_len: usize) -> &'a [u8] {
        loop {
            if self.next.is_over() && !self.take_marker(input, max_pdu_len) {
                return &[];
            }
            let piece = &input[..self.next.before_marker(input.len())];
            let drop = match self.step {
                Step::In => return piece,
                Step::Lost => piece.len(),
                Step::Named(ahead) => piece.len().min(ahead as usize),
            };
            *input = &input[drop..];
            self.next.pass(drop);
            self.step = match self.step {
                Step::Named(ahead) if ahead as usize == drop => Step::In,
                Step::Named(ahead) => Step::Named(ahead - drop as u32),
                step => step,
            };
            if input.is_empty() {
                return &[];
            }
        }
    }

    /// Of the next `len` bytes, those that come before a marker.
    pub(crate) fn before_marker(&self, len: usize) -> usize {
        self.next.before_marker(len)
    }

    /// `len` bytes of a piece have been taken.
    pub(crate) fn pass(&mut self, len: usize) {
        self.next.pass(len);
    }

    /// False when it needs more bytes.
    fn take_marker(&mut self, input: &mut &[u8], max_pdu_len: usize) -> bool {
        let len = input.len().min(MARKER_LEN - self.marker_filled);
        let (taken, rest) = input.split_at(len);
        self.marker[self.marker_filled..self.marker_filled + len].copy_from_slice(taken);
        self.marker_filled += len;
        *input = rest;
        if self.marker_filled < MARKER_LEN {
            return false;
        }
        self.marker_filled = 0;
        self.next.pass_marker();
        if self.step == Step::Lost {
            match pointer(self.marker, max_pdu_len) {
                Ok(ahead) => self.step = Step::Named(ahead),
                // The next one may be whole.
                Err(error) => tracing::debug!(%error, "marker passed over"),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_stand_where_they_would_if_the_login_had_had_them() {
        // The example of appendix A.2: a login that ended with byte 1003, and a marker after byte 1031.
        for (login_len, interval, left) in [
            (1004, 512, 1032 - 1004),
            (0, 512, 512),
            (511, 512, 1),
            (512, 512, 0),
            (513, 512, 1032 - 513),
            (519, 512, 1032 - 519),
            (520, 512, 512),
            (1032, 512, 0),
        ] {
            assert_eq!(Distance::after_login(login_len, interval).left, left, "after {login_len} bytes");
        }
    }

    /// A marker with these two pointers.
    fn marker(first: u32, second: u32) -> [u8; MARKER_LEN] {
        let mut marker = [0; MARKER_LEN];
        marker[..4].copy_from_slice(&first.to_be_bytes());
        marker[4..].copy_from_slice(&second.to_be_bytes());
        marker
    }

    #[test]
    fn markers_point_to_the_end_of_the_pdu_that_they_stand_in() {
        let mut weaver = Weaver::new(256, 256);
        let (mut woven, mut left) = (Vec::new(), 600);
        assert_eq!(weaver.before_pdu(), Some(marker(0, 0)));
        assert_eq!(weaver.before_pdu(), None);
        weaver.weave(48, &mut left, |part| woven.push(part));
        weaver.weave(552, &mut left, |part| woven.push(part));
        let expected = [
            Woven::Bytes(0..48),
            Woven::Bytes(0..208),
            Woven::Marker(marker(344, 344)),
            Woven::Bytes(208..464),
            Woven::Marker(marker(88, 88)),
            Woven::Bytes(464..552),
        ];
        assert_eq!(woven, expected);
        assert_eq!(left, 0);
    }

    #[test]
    fn a_pointer_is_believed_when_both_copies_agree_and_it_stays_within_the_longest_pdu() {
        assert_eq!(pointer(marker(100, 100), 100), Ok(100));
        assert_eq!(pointer(marker(103, 101), 100), Ok(100), "reserved bits");
        assert_eq!(pointer(marker(0, 0), 100), Ok(0));
        assert_eq!(pointer(marker(100, 96), 100), Err(PointerError::Differ(100, 96)));
        assert_eq!(pointer(marker(104, 104), 100), Err(PointerError::Outside(104)));
        assert_eq!(pointer(marker(u32::MAX, u32::MAX), 100), Err(PointerError::Outside(0xffff_fffc)));
    }
}
