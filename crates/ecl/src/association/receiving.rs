//! The effects of a received datagram.

use lunette_session::Time;

use super::{Association, Content, Seal, State, Upper};
use crate::Entropy;
use crate::close::{Close, CloseCode};
use crate::header::{BHS_AT, CREDIT_UNIT, Flags, HEADER_LEN, Header, NOTHING_ACKNOWLEDGED, PacketType};
use crate::incoming::{Due, Kept, StreamError, Verdict};
use crate::outgoing::Outgoing;
use crate::path::address::{CHALLENGE_LEN, Source};
use crate::path::mtu::Change;
use crate::path::{Address, PathMtu};
use crate::recovery::ack_payload::AckRanges;
use crate::recovery::{Arrival, Outcome};

/// The meaning of a datagram.
#[derive(Debug)]
pub enum Received<'a> {
    /// Nothing that goes further than the association.
    Nothing,
    /// Bytes of the stream: [`Association::take`] them.
    Stream(StreamPacket<'a>),
}

/// A packet of the stream, authentic and undamaged.
#[derive(Debug)]
pub struct StreamPacket<'a> {
    header: Header,
    /// The basic header segment and the payload, as they came.
    bytes: &'a [u8],
    verdict: Verdict,
}

impl StreamPacket<'_> {
    fn payload(&self) -> &[u8] {
        &self.bytes[HEADER_LEN - BHS_AT..]
    }

    /// The bytes of the stream in the packet.
    fn stream_bytes(&self) -> &[u8] {
        if self.header.begins_pdu() { self.bytes } else { self.payload() }
    }
}

impl<P: Copy> Association<P> {
    /// Takes a datagram that came from `from`; `is_marked` when it met congestion (ECN's CE). What is damaged, forged
    /// or repeated is dropped.
    pub fn receive<'a>(
        &mut self,
        datagram: &'a mut [u8],
        from: &Address,
        is_marked: bool,
        now: Time,
        entropy: &mut Entropy<'_>,
    ) -> Received<'a> {
        if self.is_reset(datagram) {
            self.lost(Close::new(CloseCode::TIMEOUT, "the server knows the association no more"));
            return Received::Nothing;
        }
        let len = datagram.len();
        let Ok(header) = self.protection.open(now, datagram) else { return Received::Nothing };
        let payload_len = len - HEADER_LEN;
        if self.why_over().is_some() || !self.is_welcome(&header) {
            return Received::Nothing;
        }
        let is_of_others = self.login_end.is_some() && !header.flags.contains(Flags::BOUND);
        if is_of_others {
            // Others may know the login's keys: its number does not count as received, and what it acknowledges is of
            // the login alone.
            self.note_acknowledged(&header, &datagram[HEADER_LEN..], now);
            return Received::Nothing;
        }
        let verdict = match header.packet_type {
            PacketType::Stream => match self.incoming.check(&header, payload_len, self.told_credit) {
                Ok(verdict) => Some(verdict),
                Err(error) => {
                    self.broken(error);
                    return Received::Nothing;
                }
            },
            _ => None,
        };
        if verdict == Some(Verdict::NoRoom) || !self.note(&header, is_marked, now) {
            return Received::Nothing;
        }
        let payload = &datagram[HEADER_LEN..];
        self.note_address(&header, from, len, now, entropy);
        self.note_credit(&header);
        self.note_acknowledged(&header, payload, now);
        if self.why_over().is_some() {
            return Received::Nothing;
        }
        if let Some(verdict @ (Verdict::Due(_) | Verdict::Early)) = verdict {
            return Received::Stream(StreamPacket { header, bytes: &datagram[BHS_AT..], verdict });
        }
        self.control(&header, payload);
        Received::Nothing
    }

    /// Whether the datagram is the word of the server that it has forgotten the association.
    fn is_reset(&self, datagram: &[u8]) -> bool {
        self.reset_token.matches(self.peer_number, datagram)
    }

    /// Whether a packet with its keys may say what it says.
    fn is_welcome(&self, header: &Header) -> bool {
        let is_bound = header.flags.contains(Flags::BOUND);
        let is_of_login = header.packet_type == PacketType::Stream && !is_bound;
        if (self.config.seal == Seal::Everything || is_of_login) && !header.flags.contains(Flags::SEALED) {
            return false;
        }
        // A machine in the middle that relays the login knows its keys, and must not reach further than the login.
        is_bound || self.login_end.is_none() || header.packet_type == PacketType::Ack
    }

    /// Counts a packet. False when it came before.
    fn note(&mut self, header: &Header, is_marked: bool, now: Time) -> bool {
        let arrival = Arrival {
            packet_number: header.packet_number,
            is_acknowledged: header.packet_type.is_acknowledged(),
            ack_now: header.flags.contains(Flags::ACK_NOW),
            is_marked,
        };
        self.recovery.on_received(arrival, now)
    }

    fn note_address(&mut self, header: &Header, from: &Address, len: usize, now: Time, entropy: &mut Entropy<'_>) {
        let is_newest = self.largest_received.is_none_or(|largest| header.packet_number > largest);
        if is_newest {
            self.largest_received = Some(header.packet_number);
        }
        match self.address.on_packet(now, from, len, is_newest, entropy) {
            Source::Moved { same_host: false } => {
                self.mtu = PathMtu::new(now, self.config.interface_len);
                self.recovery.set_datagram_len(self.mtu.datagram_len());
                self.recovery.on_path_change(now);
            }
            Source::Moved { same_host: true } | Source::Known | Source::Returned | Source::Foreign => {}
        }
    }

    fn note_credit(&mut self, header: &Header) {
        // Credit counts up; a header that was overtaken says an older one.
        let units = header.credit.wrapping_sub((self.peer_credit / CREDIT_UNIT) as u32);
        if units < 1 << 31 {
            self.peer_credit = self.peer_credit.saturating_add(u64::from(units) * CREDIT_UNIT);
        }
    }

    fn note_acknowledged(&mut self, header: &Header, payload: &[u8], now: Time) {
        let is_bound = header.flags.contains(Flags::BOUND);
        let largest = header.acknowledged.largest;
        let is_beyond = |first: u64| largest != NOTHING_ACKNOWLEDGED && largest >= first;
        if !is_bound && self.first_bound_packet.is_some_and(is_beyond) {
            return;
        }
        let ranges = match header.packet_type {
            PacketType::Ack => AckRanges::parse(payload, largest),
            _ => Ok(AckRanges::NONE),
        };
        let Ok(ranges) = ranges else {
            return self.close(CloseCode::PROTOCOL, "the payload of an Ack packet is broken");
        };
        let Self { recovery, outgoing, mtu, .. } = self;
        let mut outcomes = Outcomes { outgoing, mtu, change: None, now };
        let noted =
            recovery.on_acknowledged(&header.acknowledged, ranges, header.congestion_count, now, &mut |outcome| {
                outcomes.note(outcome);
            });
        let change = outcomes.change;
        self.path_changed(change);
        if let Err(error) = noted {
            self.close(CloseCode::ACKNOWLEDGEMENT, &error.to_string());
        }
    }

    pub(super) fn path_changed(&mut self, change: Option<Change>) {
        if let Some(Change::Wider(len) | Change::Narrower(len)) = change {
            self.recovery.set_datagram_len(len);
        }
    }

    /// Packets that are no part of the stream.
    fn control(&mut self, header: &Header, payload: &[u8]) {
        match header.packet_type {
            PacketType::PathChallenge => {
                let challenge: Option<&[u8; CHALLENGE_LEN]> = payload.try_into().ok();
                self.response = challenge.copied().or(self.response);
            }
            PacketType::PathResponse => {
                self.address.on_response(payload);
            }
            PacketType::Close => {
                let broken = |_| Close::new(CloseCode::PROTOCOL, "a Close packet that is broken");
                self.lost(Close::parse(payload).unwrap_or_else(broken));
            }
            _ => {}
        }
    }

    fn broken(&mut self, error: StreamError) {
        let code = if matches!(error, StreamError::Credit { .. }) { CloseCode::CREDIT } else { CloseCode::PROTOCOL };
        self.close(code, &error.to_string());
    }

    // The stream.

    /// Takes a packet of the stream: delivers what is due, and places or keeps what is early.
    pub fn take(&mut self, packet: &StreamPacket<'_>, upper: &mut impl Upper<Place = P>) {
        let (header, payload) = (&packet.header, packet.payload());
        match packet.verdict {
            Verdict::Due(skipped)
                if self.placed.is_none()
                    && (upper.collects(packet.stream_bytes().len() - skipped) || upper.takes()) =>
            {
                if let Err(error) = self.incoming.deliver(header, payload.len()) {
                    return self.broken(error);
                }
                upper.deliver(&packet.stream_bytes()[skipped..]);
                if self.has_due() {
                    self.resume(upper);
                }
            }
            _ => self.keep(header, payload, upper),
        }
    }

    fn keep(&mut self, header: &Header, payload: &[u8], upper: &mut impl Upper<Place = P>) {
        let place =
            if payload.is_empty() { None } else { upper.place_early(&header.bhs, header.pdu_offset, payload.len()) };
        let kept = match place {
            Some((place, bytes)) => {
                bytes.copy_from_slice(payload);
                Kept::Placed(place)
            }
            None => Kept::Bytes(payload),
        };
        self.incoming.keep(header, payload.len(), kept);
    }

    /// Whether something that came early is due: [`resume`](Self::resume) delivers it.
    pub fn has_due(&self) -> bool {
        self.placed.is_some() || self.incoming.has_due()
    }

    /// Delivers what came early and is due now: to be called also when the upper layer takes bytes again.
    pub fn resume(&mut self, upper: &mut impl Upper<Place = P>) {
        while matches!(self.state, State::Open | State::Finishing(_)) && upper.takes() {
            if let Some((place, skipped, len)) = self.placed.take() {
                if !upper.placed(place, skipped, len) {
                    return self.close(CloseCode::PROTOCOL, "bytes were placed where they are not due");
                }
                // What they complete is dealt with.
                upper.deliver(&[]);
                continue;
            }
            match self.incoming.next_due() {
                Ok(None) => return,
                Ok(Some(Due::Bytes(bytes))) => upper.deliver(&bytes),
                Ok(Some(Due::Placed { bhs, place, skipped, len })) => {
                    // The header may be the last that the upper layer takes for now.
                    self.placed = Some((place, skipped, len));
                    if let Some(bhs) = bhs {
                        upper.deliver(&bhs);
                    }
                }
                Err(error) => return self.broken(error),
            }
        }
    }
}

/// Where outcomes of packets go.
pub(super) struct Outcomes<'a> {
    pub(super) outgoing: &'a mut Outgoing,
    pub(super) mtu: &'a mut PathMtu,
    pub(super) change: Option<Change>,
    pub(super) now: Time,
}

impl Outcomes<'_> {
    pub(super) fn note(&mut self, outcome: Outcome<Content>) {
        let now = self.now;
        let change = match outcome {
            Outcome::Acknowledged(Content::Stream { cut, packet_number, len }) => {
                self.outgoing.acknowledged(cut);
                self.mtu.on_acknowledged(now, packet_number, len as usize)
            }
            Outcome::Lost(Content::Stream { cut, packet_number, len }) => {
                self.outgoing.lost(cut);
                self.mtu.on_lost(now, packet_number, len as usize)
            }
            Outcome::Acknowledged(Content::PathProbe(len)) => self.mtu.on_probe_acknowledged(now, len as usize),
            Outcome::Lost(Content::PathProbe(len)) => {
                self.mtu.on_probe_lost(now, len as usize);
                None
            }
            Outcome::Acknowledged(Content::Control { packet_number, len }) => {
                self.mtu.on_acknowledged(now, packet_number, len as usize)
            }
            Outcome::Lost(Content::Control { .. }) => None,
        };
        self.change = change.or(self.change);
    }
}
