//! The datagrams of one call into the system.

use super::DatagramPath;

/// A datagram that was received.
#[derive(Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Where it came from, and the address of ours that it came to.
    pub path: &'a DatagramPath,
    /// The ECN field as the network has left it.
    pub ecn: Ecn,
    /// The bytes of the datagram. They may be changed: the buffer is the reactor's.
    pub bytes: &'a mut [u8],
}

/// The ECN field of an IP packet (RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ecn {
    /// The sender does not know ECN, or there is no such field.
    #[default]
    NotEct = 0,
    /// ECT(1).
    Ect1 = 1,
    /// ECT(0), which all datagrams of this crate are sent with.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// The field in the low bits of the IPv4 type of service or the IPv6 traffic class.
    pub fn of_traffic_class(class: u8) -> Self {
        [Self::NotEct, Self::Ect1, Self::Ect0, Self::Ce][usize::from(class & 3)]
    }
}

/// The facts about a message beside its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageInfo {
    pub(crate) path: DatagramPath,
    pub(crate) ecn: Ecn,
    pub(crate) len: usize,
    /// The length of its datagrams but the last; `len` if it is one.
    pub(crate) segment_len: usize,
}

impl MessageInfo {
    /// The number of its datagrams.
    pub(crate) fn datagrams(&self) -> usize {
        if self.segment_len == 0 { 1 } else { self.len.div_ceil(self.segment_len).max(1) }
    }
}

/// Goes through datagrams that were received together: at least one, in the order in which they came.
#[derive(Debug)]
pub struct Datagrams<'a> {
    messages: std::slice::Iter<'a, Option<MessageInfo>>,
    /// The places of the messages, one each.
    slots: std::slice::ChunksExactMut<'a, u8>,
    current: Option<(&'a MessageInfo, &'a mut [u8])>,
}

impl<'a> Datagrams<'a> {
    /// The bytes of each message lie at the beginning of a slot of `slot_len` bytes in `buffer`; `None` is passed over.
    pub(crate) fn new(messages: &'a [Option<MessageInfo>], buffer: &'a mut [u8], slot_len: usize) -> Self {
        Self { messages: messages.iter(), slots: buffer.chunks_exact_mut(slot_len), current: None }
    }

    fn next_message(&mut self) -> Option<(&'a MessageInfo, &'a mut [u8])> {
        loop {
            let (message, slot) = (self.messages.next()?, self.slots.next()?);
            if let Some(message) = message {
                return Some((message, slot.get_mut(..message.len)?));
            }
        }
    }
}

impl<'a> Iterator for Datagrams<'a> {
    type Item = Datagram<'a>;

    fn next(&mut self) -> Option<Datagram<'a>> {
        let (message, bytes) = self.current.take().or_else(|| self.next_message())?;
        let len = if message.segment_len == 0 { bytes.len() } else { message.segment_len.min(bytes.len()) };
        let (bytes, rest) = bytes.split_at_mut(len);
        self.current = (!rest.is_empty()).then_some((message, rest));
        Some(Datagram { path: &message.path, ecn: message.ecn, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(port: u16, len: usize, segment_len: usize) -> MessageInfo {
        let path = DatagramPath::to(super::super::Address::Udp(([127, 0, 0, 1], port).into()));
        MessageInfo { path, ecn: Ecn::Ect0, len, segment_len }
    }

    #[test]
    fn messages_are_cut_at_their_segments() {
        // Length of the message and of its segments, and the lengths of the datagrams.
        let cases: [(usize, usize, &[usize]); 7] = [
            (10, 10, &[10]),
            (10, 4, &[4, 4, 2]),
            (8, 4, &[4, 4]),
            (0, 0, &[0]),
            (5, 9, &[5]),
            (3, 0, &[3]),
            (16, 16, &[16]),
        ];
        let mut messages: Vec<Option<MessageInfo>> =
            cases.iter().map(|&(len, segment, _)| Some(message(len as u16, len, segment))).collect();
        messages.push(None);
        let mut buffer: Vec<u8> = (0..messages.len() * 16).map(|i| i as u8).collect();
        let datagrams: Vec<(usize, u8)> = Datagrams::new(&messages, &mut buffer, 16)
            .map(|datagram| (datagram.bytes.len(), datagram.bytes.first().copied().unwrap_or_default()))
            .collect();
        let mut expected = Vec::new();
        for (slot, (_, _, lens)) in cases.iter().enumerate() {
            let mut at = slot * 16;
            for &len in *lens {
                expected.push((len, if len > 0 { at as u8 } else { 0 }));
                at += len;
            }
        }
        assert_eq!(datagrams, expected);
    }

    #[test]
    fn a_message_that_claims_more_than_its_slot_ends_the_list() {
        let messages = [Some(message(1, 17, 17))];
        assert_eq!(Datagrams::new(&messages, &mut [0; 16], 16).next(), None);
    }

    #[test]
    fn the_field_is_the_two_low_bits() {
        for (class, ecn) in [(0, Ecn::NotEct), (0xb9, Ecn::Ect1), (2, Ecn::Ect0), (0xff, Ecn::Ce)] {
            assert_eq!(Ecn::of_traffic_class(class), ecn);
        }
    }
}
