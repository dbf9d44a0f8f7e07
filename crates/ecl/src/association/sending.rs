//! Packets are built.

use lunette_crc32c::Crc32c;
use lunette_session::Time;

use super::packet::{Body, Packet};
use super::{Association, Content, Seal, State};
use crate::close::MAX_CLOSE_LEN;
use crate::header::{CREDIT_UNIT, Flags, HEADER_LEN, Header, PacketType};
use crate::limits::MAX_READY_PACKETS;
use crate::outgoing::{Cut, Slices};
use crate::path::address::CHALLENGE_LEN;
use crate::recovery::ack_payload::MAX_ACK_PAYLOAD_LEN;
use crate::recovery::{Allowance, SentPacket, Told};

/// How many bytes are asked of the congestion window at a time.
const BURST_BYTES: usize = 64 * 1024;

impl<P: Copy> Association<P> {
    /// Builds the packets that may leave now.
    pub fn fill(&mut self, now: Time) {
        self.time_has_come(now);
        self.fill_path(now);
        if matches!(self.state, State::Open | State::Finishing(_)) {
            self.fill_stream(now);
            self.fill_probe(now);
            self.finish_if_empty(now);
        }
        self.fill_close(now);
        self.fill_ack(now);
    }

    /// How many packets wait for the socket.
    pub fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// The packet at `index` of those that wait: its header, and its payload as it lies in memory.
    pub fn packet(&self, index: usize) -> Slices<'_> {
        let packet = self.ready.get(index);
        packet.map_or(Slices::of(&[]), |packet| packet.payload(&self.outgoing).behind(&packet.header))
    }

    /// The first `count` packets have left, or cannot. True when that makes something possible: [`fill`](Self::fill)
    /// has more packets, or the association [is done](Self::is_done).
    pub fn sent(&mut self, count: usize) -> bool {
        let was_full = self.ready.len() >= MAX_READY_PACKETS;
        self.ready.drain(..count.min(self.ready.len()));
        was_full || self.is_done()
    }

    /// The system has refused a datagram of `len` bytes: its interface does not take it.
    pub fn on_too_long(&mut self, len: usize, now: Time) {
        let change = self.mtu.on_refused(now, len);
        self.path_changed(change);
    }

    pub(super) fn has_room(&self, len: usize) -> bool {
        self.ready.len() < MAX_READY_PACKETS && self.address.allowance() >= len as u64
    }

    // Kinds of packets.

    fn fill_path(&mut self, now: Time) {
        if !matches!(self.state, State::Open | State::Finishing(_)) {
            return;
        }
        if let Some(response) = self.response.take() {
            self.send_control(PacketType::PathResponse, &response, now);
        }
        if let Some(challenge) = self.address.challenge_due(now, HEADER_LEN + CHALLENGE_LEN) {
            self.send_control(PacketType::PathChallenge, &challenge, now);
        }
        if self.address.is_validated()
            && self.has_room(self.config.interface_len)
            && let Some(len) = self.mtu.probe_due(now)
        {
            let header = self.header(PacketType::Probe, now);
            let body = Body::Zeroes(len - HEADER_LEN);
            self.send_acknowledged(header, body, len, Content::PathProbe(len as u32), now);
        }
    }

    /// Where new bytes of our stream end. Those after the login wait for the keys that the login has confirmed.
    fn stream_limit(&self) -> u64 {
        match self.login_end {
            Some(end) if !self.protection.sends_bound() => end.min(self.peer_credit),
            _ => self.peer_credit,
        }
    }

    fn fill_stream(&mut self, now: Time) {
        self.paced_until = None;
        while self.outgoing.has_more(self.stream_limit()) && self.has_room(self.mtu.datagram_len()) {
            match self.recovery.allowance(BURST_BYTES, now) {
                Allowance::Bytes(bytes) => {
                    if !self.fill_burst(bytes, now) {
                        break;
                    }
                }
                Allowance::At(at) => {
                    self.paced_until = Some(at);
                    return;
                }
                Allowance::WindowFull => return,
            }
        }
        if !self.outgoing.has_more(self.stream_limit()) {
            self.recovery.on_nothing_to_send();
        }
    }

    /// Packets of the stream with up to that many bytes, and one at least. False when nothing more is to be sent.
    fn fill_burst(&mut self, bytes: usize, now: Time) -> bool {
        let mut left = bytes;
        let mut any = false;
        while self.has_room(self.mtu.datagram_len()) && (!any || left >= self.mtu.datagram_len()) {
            let Some(len) = self.send_next_cut(now) else { return false };
            any = true;
            left = left.saturating_sub(len);
        }
        any
    }

    fn send_next_cut(&mut self, now: Time) -> Option<usize> {
        let cut = self.outgoing.next_cut(self.payload_room() as u32, self.stream_limit())?;
        Some(self.send_cut(cut, now))
    }

    /// Bytes of payload that a stream packet has room for.
    fn payload_room(&self) -> usize {
        self.mtu.datagram_len() - HEADER_LEN
    }

    fn send_cut(&mut self, cut: Cut, now: Time) -> usize {
        let mut header = self.header(PacketType::Stream, now);
        if let Some(place) = self.outgoing.place(cut) {
            header.bhs = *place.bhs;
            header.stream_offset = place.stream_offset;
            header.pdu_offset = place.pdu_offset;
            if let Some(size) = place.quanta {
                header.flags = header.flags.with(Flags::QUANTA);
                header.log2_quantum = size.bytes().ilog2() as u8;
            }
        }
        let len = HEADER_LEN + cut.payload_len();
        let content = Content::Stream { cut, packet_number: header.packet_number, len: len as u32 };
        self.send_acknowledged(header, Body::Cut(cut), len, content, now);
        len
    }

    /// Packets that make the peer answer, because it has been silent for too long: bytes of the stream, and a short
    /// one, which also passes a path that has become narrower (RFC 9002 section 6.2.4 allows two).
    fn fill_probe(&mut self, now: Time) {
        if !std::mem::take(&mut self.probes) || !self.has_room(self.mtu.datagram_len()) {
            return;
        }
        if self.send_next_cut(now).is_none()
            && let Some(Content::Stream { cut, .. }) = self.recovery.oldest().copied()
            && self.outgoing.place(cut).is_some()
            && cut.payload_len() + HEADER_LEN <= self.mtu.datagram_len()
        {
            self.send_cut(cut, now);
        }
        self.send_control(PacketType::Probe, &[], now);
    }

    fn fill_ack(&mut self, now: Time) {
        let is_open = matches!(self.state, State::Open | State::Finishing(_));
        if !is_open
            || !(self.recovery.acknowledgement_is_due(now) || self.credit_is_due())
            || !self.has_room(HEADER_LEN)
        {
            return;
        }
        let mut ranges = [0; MAX_ACK_PAYLOAD_LEN];
        let len = self.recovery.ack_payload(&mut ranges);
        let header = self.header(PacketType::Ack, now);
        self.send_other(header, Body::Bytes(ranges[..len].into()), len, Told::WithRanges, now);
    }

    fn fill_close(&mut self, now: Time) {
        let State::Over { why, told: told @ false } = &mut self.state else { return };
        let mut payload = [0; MAX_CLOSE_LEN];
        let len = why.emit(&mut payload);
        *told = true;
        let header = self.header(PacketType::Close, now);
        self.send_other(header, Body::Bytes(payload[..len].into()), len, Told::InHeader, now);
    }

    fn send_control(&mut self, packet_type: PacketType, payload: &[u8], now: Time) {
        let header = self.header(packet_type, now);
        let len = HEADER_LEN + payload.len();
        let content = Content::Control { packet_number: header.packet_number, len: len as u32 };
        self.send_acknowledged(header, Body::Bytes(payload.into()), len, content, now);
    }

    // What all packets have in common.

    /// The header of the next packet.
    fn header(&mut self, packet_type: PacketType, now: Time) -> Header {
        let mut header = Header::new(packet_type, self.peer_number, self.recovery.next_packet_number());
        header.flags = self.protection.flags();
        if header.flags.contains(Flags::BOUND) {
            self.first_bound_packet.get_or_insert(header.packet_number);
        }
        if packet_type == PacketType::Probe {
            header.flags = header.flags.with(Flags::ACK_NOW);
        }
        let is_of_login = packet_type == PacketType::Stream && !header.flags.contains(Flags::BOUND);
        if self.config.seal == Seal::Everything || is_of_login {
            header.flags = header.flags.with(Flags::SEALED);
        }
        header.acknowledged = self.recovery.acknowledged(now);
        header.congestion_count = self.recovery.congestion_count();
        self.told_credit = self.credit();
        header.credit = (self.told_credit / CREDIT_UNIT) as u32;
        header
    }

    /// Where the peer's stream may go to.
    fn credit(&self) -> u64 {
        let credit = self.incoming.delivered().saturating_add(self.config.credit_bytes);
        (credit - credit % CREDIT_UNIT).max(self.told_credit)
    }

    /// Whether the peer should be told of credit although there is nothing else to say: half of its window is new.
    fn credit_is_due(&self) -> bool {
        self.credit() - self.told_credit > self.config.credit_bytes / 2
    }

    fn send_acknowledged(&mut self, header: Header, body: Body, len: usize, content: Content, now: Time) {
        let is_path_probe = matches!(content, Content::PathProbe(_));
        let packet_number = header.packet_number;
        self.build(header, body);
        self.recovery.on_sent(SentPacket { packet_number, bytes: len, is_path_probe, content }, now);
        self.left(len, Told::InHeader);
    }

    fn send_other(&mut self, header: Header, body: Body, payload_len: usize, told: Told, now: Time) {
        let packet_number = header.packet_number;
        self.build(header, body);
        self.recovery.on_other_sent(packet_number, now);
        self.left(HEADER_LEN + payload_len, told);
    }

    fn left(&mut self, len: usize, told: Told) {
        self.recovery.on_told(told);
        self.address.on_sent(len);
    }

    /// Protects a packet and lets it wait for the socket.
    fn build(&mut self, mut header: Header, body: Body) {
        let keys = self.protection.send_keys();
        let mut packet = Packet { header: [0; HEADER_LEN], body };
        if header.flags.contains(Flags::SEALED) {
            packet.header = header.emit();
            let len = packet.payload(&self.outgoing).map(<[u8]>::len).sum();
            let mut sealed = vec![0; len].into_boxed_slice();
            let mut header = packet.header;
            keys.seal_pieces(&mut header, packet.payload(&self.outgoing), &mut sealed);
            packet = Packet { header, body: Body::Bytes(sealed) };
        } else {
            let mut check = Crc32c::new();
            packet.payload(&self.outgoing).for_each(|slice| check.update(slice));
            header.payload_check = check.finish();
            packet.header = header.emit();
            keys.check_header(&mut packet.header);
        }
        self.ready.push_back(packet);
    }
}
