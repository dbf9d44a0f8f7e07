//! The datagrams that leave together.

use std::io::IoSlice;
use std::ops::Range;

use super::DatagramPath;

/// The most datagrams that one list takes.
pub const MAX_LIST_DATAGRAMS: usize = 256;

/// The most slices that one list takes: as many as the system takes of one message, so each list has room for any
/// message.
pub const MAX_LIST_SLICES: usize = 1024;

/// The most bytes of one message, with or without segments: what IPv4 has room for.
const MAX_MESSAGE_BYTES: usize = 65_507;
/// The most segments of one message (`UDP_MAX_SEGMENTS` of Linux before 6.9, where it was doubled).
const MAX_SEGMENTS: usize = 64;

/// Collects datagrams that leave by one system call, in order.
#[derive(Debug, Default)]
pub struct DatagramList<'a> {
    slices: Vec<IoSlice<'a>>,
    datagrams: Vec<Outgoing>,
    /// The paths, each once for all neighbours that go there.
    paths: Vec<DatagramPath>,
}

/// One datagram of a list.
#[derive(Debug)]
struct Outgoing {
    path: usize,
    /// Where its slices end; they begin where those of its predecessor end.
    slices_end: usize,
    len: usize,
}

/// Neighbours of a list that leave as one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Which datagrams of the list.
    pub(crate) datagrams: Range<usize>,
    pub(crate) slices: Range<usize>,
    /// The length of the datagrams, of which the last may be shorter.
    pub(crate) segment_len: usize,
    pub(crate) len: usize,
}

impl<'a> DatagramList<'a> {
    /// An empty list. The reactor brings its own; others are for tests of handlers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The list without its datagrams, for slices of another lifetime. It keeps its memory.
    pub(crate) fn emptied<'b>(mut self) -> DatagramList<'b> {
        self.slices.clear();
        self.datagrams.clear();
        self.paths.clear();
        // Collecting in place keeps the allocation, which a test holds.
        let slices = self.slices.into_iter().map(|_| IoSlice::new(&[])).collect();
        DatagramList { slices, datagrams: self.datagrams, paths: self.paths }
    }

    /// Appends one datagram on `path`, with the bytes of `slices` one behind the other. `false` when there was no room:
    /// it was not taken, and is offered again when the list is asked for again. One of more than [`MAX_LIST_SLICES`]
    /// slices never is taken.
    #[must_use = "a datagram that was not taken is not sent"]
    pub fn push(&mut self, path: &DatagramPath, slices: impl IntoIterator<Item = &'a [u8]>) -> bool {
        if self.is_full() {
            return false;
        }
        let begin = self.slices.len();
        let mut len = 0;
        for slice in slices.into_iter().filter(|slice| !slice.is_empty()) {
            if self.slices.len() == MAX_LIST_SLICES {
                self.slices.truncate(begin);
                return false;
            }
            len += slice.len();
            self.slices.push(IoSlice::new(slice));
        }
        if self.paths.last() != Some(path) {
            self.paths.push(*path);
        }
        self.datagrams.push(Outgoing { path: self.paths.len() - 1, slices_end: self.slices.len(), len });
        true
    }

    /// No further datagram fits.
    pub fn is_full(&self) -> bool {
        self.datagrams.len() == MAX_LIST_DATAGRAMS || self.slices.len() == MAX_LIST_SLICES
    }

    /// Nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// The number of datagrams.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// The datagrams, for tests of handlers: path, length and slices.
    pub fn iter(&self) -> impl Iterator<Item = (&DatagramPath, usize, &[IoSlice<'a>])> {
        (0..self.len()).map(|index| (self.path(index), self.datagrams[index].len, &self.slices[self.slices_of(index)]))
    }

    pub(crate) fn path(&self, index: usize) -> &DatagramPath {
        &self.paths[self.datagrams[index].path]
    }

    pub(crate) fn len_of(&self, index: usize) -> usize {
        self.datagrams[index].len
    }

    pub(crate) fn slices(&self, range: Range<usize>) -> &[IoSlice<'a>] {
        &self.slices[range]
    }

    fn slices_of(&self, index: usize) -> Range<usize> {
        let begin = index.checked_sub(1).map_or(0, |before| self.datagrams[before].slices_end);
        begin..self.datagrams[index].slices_end
    }

    /// The message that begins with the datagram `first`; it is alone unless they may be `joined`.
    pub(crate) fn message(&self, first: usize, joined: bool) -> Message {
        let Outgoing { path, len: segment_len, .. } = self.datagrams[first];
        let slices = self.slices_of(first);
        let mut message = Message { datagrams: first..first + 1, slices, segment_len, len: segment_len };
        if !joined || segment_len == 0 {
            return message;
        }
        for next in &self.datagrams[message.datagrams.end..] {
            let fits = message.datagrams.len() < MAX_SEGMENTS && message.len + next.len <= MAX_MESSAGE_BYTES;
            if !fits || next.path != path || next.len == 0 || next.len > segment_len {
                break;
            }
            message.datagrams.end += 1;
            message.slices.end = next.slices_end;
            message.len += next.len;
            if next.len < segment_len {
                break;
            }
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::Address;

    fn path(port: u16) -> DatagramPath {
        DatagramPath::to(Address::Udp(([127, 0, 0, 1], port).into()))
    }

    /// The numbers of datagrams in the messages that datagrams of these ports and lengths make.
    fn messages(datagrams: &[(u16, usize)], joined: bool) -> Vec<usize> {
        let bytes = vec![0; MAX_MESSAGE_BYTES];
        let mut list = DatagramList::new();
        for &(port, len) in datagrams {
            assert!(list.push(&path(port), [&bytes[..len.min(1)], &bytes[len.min(1)..len]]));
        }
        let mut first = 0;
        let mut slices = 0;
        let mut counts = Vec::new();
        while first < list.len() {
            let message = list.message(first, joined);
            assert_eq!((message.datagrams.start, message.slices.start), (first, slices));
            let lens: usize = list.slices(message.slices.clone()).iter().map(|slice| slice.len()).sum();
            assert_eq!(lens, message.len);
            (first, slices) = (message.datagrams.end, message.slices.end);
            counts.push(message.datagrams.len());
        }
        counts
    }

    #[test]
    fn neighbours_of_one_length_on_one_path_are_one_message() {
        type Case = (&'static [(u16, usize)], &'static [usize]);
        let cases: [Case; 9] = [
            (&[], &[]),
            (&[(1, 100)], &[1]),
            (&[(1, 100), (1, 100), (1, 100)], &[3]),
            // The last may be shorter, and ends the message.
            (&[(1, 100), (1, 100), (1, 99), (1, 99)], &[3, 1]),
            (&[(1, 100), (1, 101), (1, 101)], &[1, 2]),
            (&[(1, 100), (2, 100), (2, 100), (1, 100)], &[1, 2, 1]),
            // One without bytes would not be seen in a message of others.
            (&[(1, 0), (1, 0), (1, 5), (1, 0)], &[1, 1, 1, 1]),
            (&[(1, 4224); 20], &[15, 5]),
            (&[(1, 9); 70], &[64, 6]),
        ];
        for (datagrams, counts) in cases {
            assert_eq!(messages(datagrams, true), counts, "{datagrams:?}");
            assert_eq!(messages(datagrams, false), vec![1; datagrams.len()], "{datagrams:?}");
        }
        assert_eq!(messages(&[(1, 32_753), (1, 32_754)], true), [1, 1]);
        assert_eq!(messages(&[(1, 32_754), (1, 32_753)], true), [2], "as long as IPv4 takes");
        assert_eq!(messages(&[(1, 32_754), (1, 32_754)], true), [1, 1]);
    }

    #[test]
    fn a_full_list_takes_no_part_of_a_datagram() {
        let mut list = DatagramList::new();
        for _ in 0..MAX_LIST_SLICES / 5 {
            assert!(list.push(&path(1), [&b"x"[..]; 5]));
        }
        assert!(!list.push(&path(1), [&b"x"[..]; 5]));
        assert_eq!((list.slices.len(), list.len()), (MAX_LIST_SLICES / 5 * 5, MAX_LIST_SLICES / 5));
        assert!(list.push(&path(1), [&b"x"[..]; MAX_LIST_SLICES % 5]));
        assert!(list.is_full() && !list.push(&path(1), []));

        let mut list = DatagramList::new();
        for _ in 0..MAX_LIST_DATAGRAMS {
            assert!(list.push(&path(1), [&b"x"[..]]));
        }
        assert!(list.is_full() && !list.push(&path(1), []));
    }

    #[test]
    fn an_emptied_list_keeps_its_memory() {
        let mut list = DatagramList::new();
        {
            let bytes = [7; 100];
            let mut full = list;
            while full.push(&path(1), bytes.chunks(25)) {}
            list = full.emptied();
        }
        assert!(list.is_empty() && list.iter().next().is_none());
        assert!(list.slices.capacity() >= MAX_LIST_SLICES && list.datagrams.capacity() >= MAX_LIST_DATAGRAMS);
    }

    #[test]
    fn what_was_appended_can_be_looked_at() {
        let mut list = DatagramList::new();
        assert!(list.push(&path(1), [&b"head"[..], b"", b"er"]));
        assert!(list.push(&path(2), [&b"x"[..]]));
        let seen: Vec<_> = list.iter().map(|(path, len, slices)| (*path, len, slices.len())).collect();
        assert_eq!(seen, [(path(1), 6, 2), (path(2), 1, 1)]);
    }
}
