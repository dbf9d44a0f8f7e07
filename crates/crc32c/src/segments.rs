//! Scatter and gather: copies and digests over lists of segments.

use crate::Crc32c;

/// A piece of memory to read from, with the paper's C bit: whether its bytes are digested or only copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The bytes, which may be none.
    pub bytes: &'a [u8],
    /// The C bit.
    pub digested: bool,
}

/// A piece of memory to write to, with the paper's C bit.
#[derive(Debug, PartialEq, Eq)]
pub struct SegmentMut<'a> {
    /// The bytes to write, which may be none.
    pub bytes: &'a mut [u8],
    /// The C bit.
    pub digested: bool,
}

impl<'a> Segment<'a> {
    /// A segment whose bytes are digested.
    pub const fn digested(bytes: &'a [u8]) -> Self {
        Self { bytes, digested: true }
    }

    /// A segment whose bytes are not part of the message: a marker, a header.
    pub const fn only_copied(bytes: &'a [u8]) -> Self {
        Self { bytes, digested: false }
    }
}

impl<'a> SegmentMut<'a> {
    /// A destination whose bytes are digested.
    pub const fn digested(bytes: &'a mut [u8]) -> Self {
        Self { bytes, digested: true }
    }

    /// A destination for bytes that are not part of the message: a scratch buffer for markers.
    pub const fn only_copied(bytes: &'a mut [u8]) -> Self {
        Self { bytes, digested: false }
    }
}

impl Crc32c {
    /// Takes the digested segments of a list into the digest, and skips the others.
    ///
    /// ```
    /// use lunette_crc32c::{Crc32c, Segment};
    ///
    /// let mut digest = Crc32c::new();
    /// digest.update_segments(&[
    ///     Segment::digested(b"1234"),
    ///     Segment::only_copied(b"marker"),
    ///     Segment::digested(b"56789"),
    /// ]);
    /// assert_eq!(digest.finish(), 0xE306_9283);
    /// ```
    pub fn update_segments(&mut self, segments: &[Segment<'_>]) {
        for segment in segments.iter().filter(|segment| segment.digested) {
            self.update(segment.bytes);
        }
    }

    /// Copies the bytes of one list of segments to the destinations of another, which may be cut differently, and
    /// digests those bytes whose C bit is set on both sides.
    ///
    /// A receiver sets the bits of its destinations, a sender those of its sources; on the other side all bits are set.
    /// Each digested byte is read exactly once.
    ///
    /// ```
    /// use lunette_crc32c::{Crc32c, Segment, SegmentMut};
    ///
    /// let (mut data, mut marker) = ([0; 8], [0; 2]);
    /// let (before, after) = data.split_at_mut(3);
    /// let mut digest = Crc32c::new();
    /// digest.copy_segments(
    ///     &mut [
    ///         SegmentMut::digested(before),
    ///         SegmentMut::only_copied(&mut marker),
    ///         SegmentMut::digested(after),
    ///     ],
    ///     &[Segment::digested(b"123##456"), Segment::digested(b"78")],
    /// );
    /// assert_eq!(&data, b"12345678");
    /// assert_eq!(digest.finish(), lunette_crc32c::crc32c(b"12345678"));
    /// ```
    ///
    /// # Panics
    ///
    /// When the two lists differ in their total length: a mistake of the caller.
    pub fn copy_segments(&mut self, places: &mut [SegmentMut<'_>], segments: &[Segment<'_>]) {
        let room: usize = places.iter().map(|place| place.bytes.len()).sum();
        let total: usize = segments.iter().map(|segment| segment.bytes.len()).sum();
        assert_eq!(room, total, "copy between lists of different lengths");

        let mut segments = segments.iter();
        let mut source = Segment::digested(&[]);
        for place in places {
            let mut room = &mut *place.bytes;
            while !room.is_empty() {
                if source.bytes.is_empty() {
                    // Both lists have the same number of bytes left, so there is another segment.
                    let Some(next) = segments.next() else { return };
                    source = *next;
                }
                let len = room.len().min(source.bytes.len());
                let (piece, rest) = source.bytes.split_at(len);
                let (dst, more_room) = room.split_at_mut(len);
                if place.digested && source.digested {
                    self.copy(dst, piece);
                } else {
                    dst.copy_from_slice(piece);
                }
                (source.bytes, room) = (rest, more_room);
            }
        }
    }
}
