//! The values of TargetAddress in a text, rewritten piece by piece: the text may be cut anywhere, over several PDUs.

use crate::Ways;
use crate::follower::Broken;
use crate::limits::{MAX_ADDRESS_BYTES, MAX_WAITING_BYTES};

const KEY: &[u8] = b"TargetAddress=";

/// The text of one negotiation, as far as it has come.
#[derive(Default)]
pub(crate) struct Addresses {
    place: Place,
    /// Rewritten text that has not left yet.
    waiting: Vec<u8>,
    /// Addresses that were left out so far.
    left_out: u64,
}

/// The place in the text.
enum Place {
    /// In a pair that begins with this many bytes of [`KEY`].
    Key(usize),
    /// In the value of [`KEY`], of which these bytes have come.
    Value(Vec<u8>),
    /// In another pair.
    Other,
}

impl Default for Place {
    fn default() -> Self {
        Self::Key(0)
    }
}

/// A segment of the text.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub(crate) text: &'a [u8],
    /// No other one continues it.
    pub(crate) is_last: bool,
    /// The bytes that the segment in its place may have.
    pub(crate) room: usize,
}

impl Addresses {
    /// Gives the segment that takes the place of this one.
    pub(crate) fn rewrite(&mut self, segment: Segment<'_>, ways: &mut Ways<'_>) -> Result<Vec<u8>, Broken> {
        let mut rest = segment.text;
        while let Some((&byte, behind)) = rest.split_first() {
            match &mut self.place {
                Place::Key(len) if KEY[*len] == byte => {
                    rest = behind;
                    *len += 1;
                    if *len == KEY.len() {
                        self.place = Place::Value(Vec::new());
                    }
                }
                Place::Key(len) => {
                    self.waiting.extend_from_slice(&KEY[..*len]);
                    self.place = Place::Other;
                }
                Place::Other => {
                    let pair = until_nul(rest);
                    self.waiting.extend_from_slice(pair);
                    rest = &rest[pair.len()..];
                    if pair.ends_with(&[0]) {
                        self.place = Place::Key(0);
                    }
                }
                Place::Value(value) => {
                    let more = until_nul(rest);
                    rest = &rest[more.len()..];
                    value.extend_from_slice(more);
                    if value.len() > MAX_ADDRESS_BYTES + 1 {
                        return Err(Broken::AddressTooLong);
                    }
                    if value.pop_if(|last| *last == 0).is_some() {
                        let value = std::mem::take(value);
                        self.place = Place::Key(0);
                        let room = if segment.is_last { segment.room } else { MAX_WAITING_BYTES };
                        self.push(&value, room.saturating_sub(rest.len()), ways);
                    }
                }
            }
        }
        if segment.is_last {
            self.finish(segment.room)
        } else {
            let len = self.waiting.len().min(segment.room);
            Ok(self.waiting.drain(..len).collect())
        }
    }

    /// The addresses that were left out since the last call.
    pub(crate) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// Appends what takes the place of an address, unless there is none, or more than `room` bytes would wait then.
    fn push(&mut self, value: &[u8], room: usize, ways: &mut Ways<'_>) {
        let text = String::from_utf8_lossy(value);
        let (address, group) = text.split_once(',').map_or((&*text, None), |(address, group)| (address, Some(group)));
        let Some(way) = ways(address) else {
            self.left_out += 1;
            return;
        };
        let (comma, group) = group.map_or(("", ""), |group| (",", group));
        let len = KEY.len() + way.len() + comma.len() + group.len() + 1;
        if self.waiting.len() + len > room {
            self.left_out += 1;
            return;
        }
        self.waiting.extend_from_slice(KEY);
        for part in [&way, comma, group, "\0"] {
            self.waiting.extend_from_slice(part.as_bytes());
        }
    }

    fn finish(&mut self, room: usize) -> Result<Vec<u8>, Broken> {
        match std::mem::take(&mut self.place) {
            Place::Key(len) => self.waiting.extend_from_slice(&KEY[..len]),
            Place::Value(_) => return Err(Broken::Unterminated),
            Place::Other => {}
        }
        if self.waiting.len() > room {
            return Err(Broken::NoRoom);
        }
        Ok(std::mem::take(&mut self.waiting))
    }
}

/// The front of a text, with its first NUL.
fn until_nul(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == 0).map_or(text.len(), |nul| nul + 1);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] =
        b"TargetName=iqn.a\0TargetAddress=192.0.2.1:3260,1\0TargetAddress=[2001:db8::1]:3260\0TargetAlias=x\0";

    fn segment(text: &[u8], is_last: bool) -> Segment<'_> {
        Segment { text, is_last, room: 8192 }
    }

    #[test]
    fn addresses_are_replaced_and_keep_their_groups() {
        let mut ways = |address: &str| Some(if address.starts_with('[') { "six" } else { "four" }.to_owned());
        let whole = Addresses::default().rewrite(segment(TEXT, true), &mut ways).unwrap();
        assert_eq!(whole, b"TargetName=iqn.a\0TargetAddress=four,1\0TargetAddress=six\0TargetAlias=x\0");
    }

    #[test]
    fn a_text_that_is_cut_becomes_what_a_whole_one_does() {
        let mut ways = |_: &str| Some("a-longer-name-than-before.example:65535".to_owned());
        let whole = Addresses::default().rewrite(segment(TEXT, true), &mut ways).unwrap();
        for cut in 0..=TEXT.len() {
            let mut addresses = Addresses::default();
            let mut text = addresses.rewrite(segment(&TEXT[..cut], false), &mut ways).unwrap();
            text.extend(addresses.rewrite(segment(&TEXT[cut..], true), &mut ways).unwrap());
            assert_eq!(text, whole, "cut at {cut}");
        }
    }

    #[test]
    fn an_address_without_a_way_is_left_out() {
        let mut addresses = Addresses::default();
        let text = addresses.rewrite(segment(TEXT, true), &mut |_| None).unwrap();
        assert_eq!(text, b"TargetName=iqn.a\0TargetAlias=x\0");
        assert_eq!((addresses.take_left_out(), addresses.take_left_out()), (2, 0));
    }

    #[test]
    fn no_segment_is_longer_than_the_initiator_takes() {
        let mut ways = |_: &str| Some("x".repeat(100));
        let tight = Segment { text: TEXT, is_last: true, room: TEXT.len() };
        let mut addresses = Addresses::default();
        let text = addresses.rewrite(tight, &mut ways).unwrap();
        assert!(text.len() <= TEXT.len() && text.ends_with(b"TargetAlias=x\0"));
        assert!(addresses.take_left_out() > 0);
        // Where another segment follows, what has no room waits for it.
        let mut addresses = Addresses::default();
        let first = addresses.rewrite(Segment { is_last: false, ..tight }, &mut ways).unwrap();
        let second = addresses.rewrite(segment(b"", true), &mut ways).unwrap();
        assert_eq!((first.len(), addresses.take_left_out()), (TEXT.len(), 0));
        let both = String::from_utf8([first, second].concat()).unwrap();
        assert_eq!(both.matches('x').count(), 201);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut addresses = Addresses::default();
        let one = b"TargetAddress=a\0";
        let mut left_out = 0;
        for _ in 0..10_000 {
            let piece = Segment { text: one, is_last: false, room: one.len() };
            addresses.rewrite(piece, &mut |_| Some("x".repeat(200))).unwrap();
            assert!(addresses.waiting.len() <= MAX_WAITING_BYTES);
            left_out += addresses.take_left_out();
        }
        assert!(left_out > 0);
    }

    #[test]
    fn an_address_without_an_end_is_refused() {
        let long = [KEY, &[b'1'; MAX_ADDRESS_BYTES + 1], &[0]].concat();
        let rewrite = |text: &[u8]| Addresses::default().rewrite(segment(text, true), &mut |_| None);
        assert!(matches!(rewrite(&long), Err(Broken::AddressTooLong)));
        assert!(matches!(rewrite(b"TargetAddress=1"), Err(Broken::Unterminated)));
        assert_eq!(rewrite(b"TargetA").unwrap(), b"TargetA");
        assert_eq!(rewrite(b"\0\0\0").unwrap(), b"\0\0\0");
    }
}
