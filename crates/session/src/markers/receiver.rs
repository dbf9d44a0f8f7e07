//! Markers taken out of what is received: pieces between them go the way of all bytes, so each byte is still copied
//! once and digested on the way.

use std::ops::{Deref, DerefMut};

use super::{Distance, MARKER_LEN, Markers, pointer};
use crate::limits::DIRECT_RECEIVE_BYTES;
use crate::receiver::{FrameError, FrontPdu, Receiver};

/// A receiver for a stream that has markers between its bytes, once there are some.
pub(crate) struct MarkedReceiver {
    receiver: Receiver,
    markers: Markers<MarkedStream>,
}

struct MarkedStream {
    stripper: Stripper,
    /// Bytes at the front of what comes next that were received before. Their markers are gone.
    put_back: usize,
    /// A wrong header digest costs the bytes up to the next header that a marker names, not the connection.
    resync: bool,
    /// How often that was.
    lost_headers: u64,
}

impl From<Receiver> for MarkedReceiver {
    fn from(receiver: Receiver) -> Self {
        Self { receiver, markers: Markers::default() }
    }
}

impl Deref for MarkedReceiver {
    type Target = Receiver;

    #[inline]
    fn deref(&self) -> &Receiver {
        &self.receiver
    }
}

impl DerefMut for MarkedReceiver {
    #[inline]
    fn deref_mut(&mut self) -> &mut Receiver {
        &mut self.receiver
    }
}

impl MarkedReceiver {
    /// The login has ended: from now on there are markers at this distance, in bytes, or none. `resync`: a wrong header
    /// digest costs the bytes up to the next header that a marker names, not the connection (RFC 7143 section 7.8).
    pub(crate) fn start_markers(&mut self, interval: Option<u32>, resync: bool) {
        let on = |next| MarkedStream { stripper: Stripper::new(next), put_back: 0, resync, lost_headers: 0 };
        self.markers.start(interval, on);
    }

    /// Whether there are markers between the bytes, or may come to be.
    pub(crate) fn has_markers(&self) -> bool {
        !matches!(self.markers, Markers::Off)
    }

    /// Headers with a wrong digest that did not end the connection, since it was asked last.
    pub(crate) fn take_lost_headers(&mut self) -> u64 {
        match &mut self.markers {
            Markers::On(stream) => std::mem::take(&mut stream.lost_headers),
            _ => 0,
        }
    }

    /// `len` bytes that the receiver has taken come once more, before all others.
    pub(crate) fn put_back(&mut self, len: usize) {
        if let Markers::On(stream) = &mut self.markers {
            stream.put_back += len;
        }
    }

    /// The PDU at the front, as [`Receiver::front_pdu`] gives it. There is none where markers may stand in it.
    #[inline]
    pub(crate) fn front_pdu<'a>(&self, input: &'a [u8]) -> Option<FrontPdu<'a>> {
        if matches!(self.markers, Markers::Off) { self.receiver.front_pdu(input) } else { None }
    }

    /// Reads a header, as [`Receiver::header`] does.
    #[inline]
    pub(crate) fn header(&mut self, input: &mut &[u8]) -> Result<bool, FrameError> {
        match self.markers {
            Markers::Off => self.receiver.header(input),
            _ => self.between_markers(input, Receiver::header),
        }
    }

    /// Reads data, as [`Receiver::data`] does.
    #[inline]
    pub(crate) fn data(&mut self, input: &mut &[u8], place: &mut [u8]) -> Result<bool, FrameError> {
        match self.markers {
            Markers::Off => self.receiver.data(input, place),
            _ => self.between_markers(input, |receiver, piece| receiver.data(piece, place)),
        }
    }

    /// The place for direct data, as [`Receiver::direct`] gives it, up to the next marker.
    pub(crate) fn direct<'a>(&self, place: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let mut rest = self.receiver.direct(place)?;
        if let Markers::On(stream) = &self.markers {
            let len = stream.stripper.next.before_marker(rest.len());
            rest = &mut rest[..len];
        }
        (rest.len() >= DIRECT_RECEIVE_BYTES).then_some(rest)
    }

    /// Notes directly received data, as [`Receiver::direct_filled`] does.
    pub(crate) fn direct_filled(&mut self, place: &[u8], len: usize) {
        self.receiver.direct_filled(place, len);
        if let Markers::On(stream) = &mut self.markers {
            stream.stripper.next.pass(len);
        }
    }

    /// Lets the receiver `take` the pieces of `input` between markers, until one of them completes something.
    #[inline(never)]
    fn between_markers(
        &mut self,
        input: &mut &[u8],
        mut take: impl FnMut(&mut Receiver, &mut &[u8]) -> Result<bool, FrameError>,
    ) -> Result<bool, FrameError> {
        let stream = match &mut self.markers {
            Markers::On(stream) => stream,
            Markers::Off => return take(&mut self.receiver, input),
            Markers::Login { len } => {
                let before = input.len();
                let outcome = take(&mut self.receiver, input);
                *len += (before - input.len()) as u64;
                return outcome;
            }
        };
        loop {
            let is_put_back = stream.put_back > 0;
            let piece = match stream.put_back {
                0 => stream.stripper.piece(input, self.receiver.max_pdu_len()),
                len => &input[..len.min(input.len())],
            };
            let mut rest = piece;
            let outcome = take(&mut self.receiver, &mut rest);
            let taken = piece.len() - rest.len();
            *input = &input[taken..];
            if is_put_back {
                stream.put_back -= taken;
            } else {
                stream.stripper.next.pass(taken);
            }
            match outcome {
                Ok(false) => {}
                Err(FrameError::HeaderDigest) if stream.resync => {
                    tracing::debug!("a header digest is wrong; the stream goes on where a marker says");
                    stream.lost_headers += 1;
                    stream.stripper.lose_step();
                    self.receiver.drop_header();
                }
                ended => return ended,
            }
            if input.is_empty() {
                return Ok(false);
            }
        }
    }
}

/// Whether the receiver knows where headers begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    In,
    /// The position is lost: bytes are dropped up to a marker.
    Lost,
    /// A marker has named the place, this number of bytes ahead.
    Named(u32),
}

/// Takes markers out of the bytes that are received.
struct Stripper {
    next: Distance,
    marker: [u8; MARKER_LEN],
    /// Bytes of the marker that have arrived.
    marker_filled: usize,
    step: Step,
}

impl Stripper {
    fn new(next: Distance) -> Self {
        Self { next, marker: [0; MARKER_LEN], marker_filled: 0, step: Step::In }
    }

    /// The receiver has lost its place: all bytes are dropped up to the next header that a marker names.
    fn lose_step(&mut self) {
        self.step = Step::Lost;
    }

    /// Takes markers, and bytes that are dropped, from the front of `input`. Gives what comes before the next marker,
    /// to be passed in [`Self::next`] when it has been taken.
    fn piece<'a>(&mut self, input: &mut &'a [u8], max_pdu_len: usize) -> &'a [u8] {
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
    use lunette_buffer::{Payload, Pool, SharedBuffer};
    use lunette_pdu::BHS_LEN;
    use proptest::prelude::*;

    use super::*;
    use crate::markers::MarkedOutbox;
    use crate::receiver::Stage;

    /// The n-th PDU, and its data.
    type Received = Vec<(u8, Vec<u8>)>;

    fn data(n: u8, len: usize) -> Vec<u8> {
        (0..len).map(|at| (at as u8).wrapping_mul(7) ^ n).collect()
    }

    fn shared(bytes: &[u8]) -> SharedBuffer {
        let mut buffer = Pool::new(1 << 20).take(bytes.len()).unwrap();
        buffer.copy_from_slice(bytes);
        buffer.share()
    }

    fn push(outbox: &mut MarkedOutbox, n: u8, len: usize) {
        let mut bhs = [0; BHS_LEN];
        bhs[0] = n;
        bhs[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
        let segment = if len == 0 { Payload::Empty } else { Payload::Shared(shared(&data(n, len))) };
        if n % 5 == 4 {
            bhs[4] = 3;
            outbox.push_with_ahs(bhs, &[n; 12], segment);
        } else {
            outbox.push(bhs, segment);
        }
    }

    fn drain(outbox: &mut MarkedOutbox) -> Vec<u8> {
        let wire: Vec<u8> = outbox.slices().flatten().copied().collect();
        outbox.sent(wire.len());
        wire
    }

    /// The two ends of a connection behind a login that carried `login_text` bytes.
    fn connection(login_text: usize, interval: u32, resync: bool) -> (MarkedOutbox, MarkedReceiver) {
        let (mut outbox, mut receiver) = (MarkedOutbox::default(), MarkedReceiver::from(Receiver::new(8192)));
        push(&mut outbox, 1, login_text);
        receive(&mut receiver, &drain(&mut outbox), usize::MAX).unwrap();
        outbox.configure(true, true);
        receiver.configure(true, true, 1 << 20);
        outbox.start_markers(Some(interval));
        receiver.start_markers(Some(interval), resync);
        (outbox, receiver)
    }

    /// The result of a receiver for a stream that comes in pieces of `step`.
    fn receive(receiver: &mut MarkedReceiver, wire: &[u8], step: usize) -> Result<Received, FrameError> {
        let (mut received, mut place) = (Vec::new(), vec![0; 1 << 20]);
        for mut input in wire.chunks(step.min(wire.len())) {
            loop {
                let complete = match receiver.stage() {
                    Stage::Header => receiver.header(&mut input)?,
                    Stage::Data => receiver.data(&mut input, &mut place)?,
                };
                if !complete {
                    break;
                }
                if receiver.stage() == Stage::Header {
                    received.push((receiver.bhs().as_array()[0], place[..receiver.bhs().data_segment_len()].to_vec()));
                }
            }
            assert!(input.is_empty(), "everything is taken");
        }
        Ok(received)
    }

    fn expected(lengths: &[usize]) -> Received {
        (0..).zip(lengths).map(|(n, len)| (n, data(n, *len))).collect()
    }

    proptest! {
        #[test]
        fn markers_are_taken_out_wherever_they_stand(
            login_text in 0..2000_usize,
            words in 1..300_u32,
            lengths in prop::collection::vec(prop_oneof![Just(0), 1..40_usize, 0..5000_usize], 1..40),
            step in prop_oneof![1..20_usize, 20..3000_usize],
        ) {
            let (mut outbox, mut receiver) = connection(login_text, words * 4, false);
            for (n, len) in (0..).zip(&lengths) {
                push(&mut outbox, n, *len);
            }
            prop_assert_eq!(receive(&mut receiver, &drain(&mut outbox), step), Ok(expected(&lengths)));
        }
    }

    /// Header k of a stream is damaged. Gives what was received of `pdus` empty ones, at an interval of 256 bytes, once
    /// the markers are as `damage` leaves them: it is given their number and the bytes.
    fn with_a_broken_header(k: usize, damage: impl Fn(usize, &mut [u8])) -> Vec<u8> {
        let (mut outbox, mut receiver) = connection(0, 256, true);
        for n in 0..40 {
            push(&mut outbox, if n % 5 == 4 { 0 } else { n }, 0);
        }
        let mut wire = drain(&mut outbox);
        // The login was 48 bytes. Between markers there are PDUs of 52 bytes.
        let markers: Vec<usize> = (256 - 48..wire.len()).step_by(256 + MARKER_LEN).collect();
        for (number, at) in markers.iter().enumerate() {
            damage(number, &mut wire[*at..at + MARKER_LEN]);
        }
        let header = k * 52;
        let at = header + MARKER_LEN * markers.iter().filter(|marker| **marker <= header).count();
        wire[at] ^= 0x40;
        let received = receive(&mut receiver, &wire, 7).unwrap();
        received.into_iter().map(|(n, _)| n).filter(|n| *n > 0).collect()
    }

    /// The PDUs from `from` on that carry a number.
    fn numbered(range: std::ops::Range<u8>) -> impl Iterator<Item = u8> {
        range.filter(|n| n % 5 != 4 && *n > 0)
    }

    #[test]
    fn a_wrong_header_digest_costs_the_pdus_up_to_the_next_that_a_marker_names() {
        // The first marker behind PDU 5 stands 464 bytes into the PDUs, in number 8, and names number 9, which has
        // none.
        let received = with_a_broken_header(5, |_, _| {});
        assert_eq!(received, numbered(0..5).chain(numbered(9..40)).collect::<Vec<_>>());
    }

    #[test]
    fn a_marker_that_cannot_be_right_is_passed_over() {
        let all_but = |to: u8| numbered(0..5).chain(numbered(to..40)).collect::<Vec<_>>();
        // The markers stand 208, 464, 720, … bytes into the PDUs: in numbers 4, 8, 13, …
        let differ = |number: usize, marker: &mut [u8]| {
            if number == 1 {
                marker[3] ^= 4;
            }
        };
        assert_eq!(with_a_broken_header(5, differ), all_but(14), "the two copies differ");
        let outside = |number: usize, marker: &mut [u8]| {
            if number == 1 {
                marker.copy_from_slice(&[0x7f; MARKER_LEN]);
            }
        };
        assert_eq!(with_a_broken_header(5, outside), all_but(14), "it points beyond the longest PDU");
        let elsewhere = |number: usize, marker: &mut [u8]| {
            if number == 1 {
                (marker[3], marker[7]) = (marker[3] + 4, marker[7] + 4);
            }
        };
        // What stands there has no right digest, and the next marker is asked.
        assert_eq!(with_a_broken_header(5, elsewhere), all_but(14), "it points into a header");
    }

    #[test]
    fn without_resynchronisation_a_wrong_header_digest_is_the_end() {
        let (mut outbox, mut receiver) = connection(0, 256, false);
        push(&mut outbox, 0, 0);
        let mut wire = drain(&mut outbox);
        wire[0] ^= 1;
        assert_eq!(receive(&mut receiver, &wire, 1000), Err(FrameError::HeaderDigest));
    }

    #[test]
    fn a_direct_receive_ends_at_a_marker() {
        let (mut outbox, mut receiver) = connection(0, 64 << 10, false);
        push(&mut outbox, 3, 100_000);
        let wire = drain(&mut outbox);
        let mut place = vec![0; 100_000];
        let mut input = &wire[..52];
        assert_eq!(receiver.header(&mut input), Ok(true));
        let before_marker = (64 << 10) - 48 - 52;
        let direct = receiver.direct(&mut place).expect("it is large");
        assert_eq!(direct.len(), before_marker);
        direct.copy_from_slice(&wire[52..][..before_marker]);
        receiver.direct_filled(&place, before_marker);
        assert_eq!(receiver.direct(&mut place), None, "a marker is next");
        let mut input = &wire[52 + before_marker..][..MARKER_LEN];
        assert_eq!(receiver.data(&mut input, &mut place), Ok(false));
        let rest = 100_000 - before_marker;
        let from = 52 + before_marker + MARKER_LEN;
        receiver.direct(&mut place).expect("it is large").copy_from_slice(&wire[from..][..rest]);
        receiver.direct_filled(&place, rest);
        assert_eq!(receiver.data(&mut &wire[from + rest..], &mut place), Ok(true));
        assert_eq!(place, data(3, 100_000));
    }
}
