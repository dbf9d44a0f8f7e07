//! Additional header segments (RFC 7143, 11.2.2): the part of a SCSI Command that its 48-byte header has no room for.

use crate::{MAX_AHS_LEN, pad_len};

/// Bytes of `AHSLength` and `AHSType`, which `AHSLength` does not count.
const PREFIX_LEN: usize = 3;

/// The type field of the third byte; the two bits above it are reserved.
const TYPE_MASK: u8 = 0x3f;

const EXTENDED_CDB: u8 = 1;
const BIDI_READ_LENGTH: u8 = 2;

/// One additional header segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahs<'a> {
    /// The bytes of the CDB after its first 16, at least one (RFC 7143, 11.2.2.3).
    ExtendedCdb(&'a [u8]),
    /// The number of bytes that a bidirectional command expects to read (RFC 7143, 11.2.2.4).
    BidiReadLength(u32),
    /// A segment of a type that the RFC does not assign.
    Unknown {
        /// The segment's type, six bits.
        ahs_type: u8,
        /// All bytes after the type, without pad.
        bytes: &'a [u8],
    },
}

/// A reason why bytes are not additional header segments, or cannot become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AhsError {
    /// The segment, with its pad, reaches past the end of the header.
    #[error("AHS at byte {offset} needs {needed} bytes, {left} are left")]
    Truncated {
        /// The start of the segment, counted from the first byte after the BHS.
        offset: usize,
        /// Bytes that the segment takes with its pad.
        needed: usize,
        /// Bytes from `offset` to the end.
        left: usize,
    },
    /// `AHSLength` does not fit the type.
    #[error("AHS at byte {offset} has type {ahs_type} and cannot have length {len}")]
    BadLength {
        /// The start of the segment, counted from the first byte after the BHS.
        offset: usize,
        /// The segment's type.
        ahs_type: u8,
        /// The segment's `AHSLength`.
        len: usize,
    },
    /// The buffer has no room for the segment that is to be written.
    #[error("AHS needs {needed} bytes, the buffer has {room}")]
    NoRoom {
        /// Bytes that the segment takes with its pad.
        needed: usize,
        /// Bytes of room in the buffer.
        room: usize,
    },
    /// A segment to be written is longer than all segments of a PDU may be.
    #[error("AHS of {needed} bytes is longer than a header can hold")]
    TooLong {
        /// Bytes that the segment would take with its pad.
        needed: usize,
    },
}

impl<'a> Ahs<'a> {
    /// Walks the additional header segments of a PDU. `bytes` is what stands between the BHS and the
    /// header digest, of length [`Bhs::ahs_len`](crate::Bhs::ahs_len).
    ///
    /// ```
    /// use lunette_pdu::Ahs;
    /// let bytes = [0, 5, 2, 0, 0, 0, 2, 0];
    /// let segments: Vec<_> = Ahs::iter(&bytes).collect();
    /// assert_eq!(segments, [Ok(Ahs::BidiReadLength(512))]);
    /// ```
    pub const fn iter(bytes: &'a [u8]) -> AhsIter<'a> {
        AhsIter { bytes, offset: 0 }
    }

    /// Bytes that this segment takes in a header, pad included.
    pub const fn wire_len(&self) -> usize {
        let len = PREFIX_LEN + self.ahs_length();
        len + pad_len(len)
    }

    /// Writes the segment, with its pad, to the start of `out`, and returns how many bytes that took.
    ///
    /// # Errors
    ///
    /// [`AhsError::NoRoom`] when `out` is too short, [`AhsError::TooLong`] when no header could hold
    /// the segment, and [`AhsError::BadLength`] for an extended CDB of no bytes.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, AhsError> {
        let needed = self.wire_len();
        let room = out.len();
        if needed > MAX_AHS_LEN {
            return Err(AhsError::TooLong { needed });
        }
        if matches!(self, Self::ExtendedCdb([])) {
            return Err(AhsError::BadLength { offset: 0, ahs_type: EXTENDED_CDB, len: 1 });
        }
        let out = out.get_mut(..needed).ok_or(AhsError::NoRoom { needed, room })?;
        out.fill(0);
        let (prefix, rest) = out.split_at_mut(PREFIX_LEN);
        let [high, low] = (self.ahs_length() as u16).to_be_bytes();
        prefix.copy_from_slice(&[high, low, self.ahs_type()]);
        match self {
            Self::ExtendedCdb(cdb) => rest[1..=cdb.len()].copy_from_slice(cdb),
            Self::BidiReadLength(len) => rest[1..5].copy_from_slice(&len.to_be_bytes()),
            Self::Unknown { bytes, .. } => rest[..bytes.len()].copy_from_slice(bytes),
        }
        Ok(needed)
    }

    const fn ahs_type(&self) -> u8 {
        match self {
            Self::ExtendedCdb(_) => EXTENDED_CDB,
            Self::BidiReadLength(_) => BIDI_READ_LENGTH,
            Self::Unknown { ahs_type, .. } => *ahs_type & TYPE_MASK,
        }
    }

    /// The `AHSLength` field. Both known types have a reserved byte before their content, and the
    /// length counts it.
    const fn ahs_length(&self) -> usize {
        match self {
            Self::ExtendedCdb(cdb) => 1 + cdb.len(),
            Self::BidiReadLength(_) => 5,
            Self::Unknown { bytes, .. } => bytes.len(),
        }
    }
}

/// The additional header segments of a PDU, in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct AhsIter<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> AhsIter<'a> {
    /// Cuts the next segment off. The caller checked that there are bytes left.
    fn parse(&mut self) -> Result<Ahs<'a>, AhsError> {
        let offset = self.offset;
        let left = self.bytes.len();
        let truncated = |needed| AhsError::Truncated { offset, needed, left };
        let (&[high, low, third], rest) = self.bytes.split_first_chunk().ok_or(truncated(PREFIX_LEN + 1))?;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let needed = PREFIX_LEN + len + pad_len(PREFIX_LEN + len);
        let after = self.bytes.get(needed..).ok_or(truncated(needed))?;
        let content = rest.get(..len).ok_or(truncated(needed))?;
        let ahs_type = third & TYPE_MASK;
        let ahs = match (ahs_type, content) {
            (EXTENDED_CDB, [_reserved, cdb @ ..]) if !cdb.is_empty() => Ahs::ExtendedCdb(cdb),
            (BIDI_READ_LENGTH, &[_reserved, a, b, c, d]) => Ahs::BidiReadLength(u32::from_be_bytes([a, b, c, d])),
            (EXTENDED_CDB | BIDI_READ_LENGTH, _) => {
                return Err(AhsError::BadLength { offset, ahs_type, len });
            }
            (_, bytes) => Ahs::Unknown { ahs_type, bytes },
        };
        self.bytes = after;
        self.offset += needed;
        Ok(ahs)
    }
}

impl<'a> Iterator for AhsIter<'a> {
    type Item = Result<Ahs<'a>, AhsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let ahs = self.parse();
        if ahs.is_err() {
            self.bytes = &[];
        }
        Some(ahs)
    }
}

impl core::iter::FusedIterator for AhsIter<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8]) -> Vec<Result<Ahs<'_>, AhsError>> {
        Ahs::iter(bytes).collect()
    }

    #[test]
    fn a_32_byte_cdb_has_length_17() {
        let mut bytes = [0; 20];
        bytes[..5].copy_from_slice(&[0, 17, 1, 0xee, 0xa1]);
        bytes[19] = 0xa2;
        let mut cdb = [0; 16];
        (cdb[0], cdb[15]) = (0xa1, 0xa2);
        assert_eq!(all(&bytes), [Ok(Ahs::ExtendedCdb(&cdb))]);
    }

    #[test]
    fn segments_follow_each_other_after_pad() {
        let bytes = [0, 2, 1, 0, 7, 0, 0, 0, 0, 5, 0xc2, 0, 0, 0, 0x10, 0, 0, 1, 9, 5];
        assert_eq!(
            all(&bytes),
            [Ok(Ahs::ExtendedCdb(&[7])), Ok(Ahs::BidiReadLength(4096)), Ok(Ahs::Unknown { ahs_type: 9, bytes: &[5] }),]
        );
    }

    #[test]
    fn lengths_that_do_not_fit_the_type_are_refused() {
        let bad = |offset, ahs_type, len| Err(AhsError::BadLength { offset, ahs_type, len });
        assert_eq!(all(&[0, 1, 1, 0]), [bad(0, 1, 1)]);
        assert_eq!(all(&[0, 0, 1, 0]), [bad(0, 1, 0)]);
        assert_eq!(all(&[0, 4, 2, 0, 0, 0, 2, 0]), [bad(0, 2, 4)]);
        assert_eq!(all(&[0, 1, 9, 0, 0, 1, 1, 0])[1..], [bad(4, 1, 1)]);
    }

    #[test]
    fn a_segment_past_the_end_is_refused() {
        let truncated = |needed, left| Err(AhsError::Truncated { offset: 0, needed, left });
        assert_eq!(all(&[0, 6, 9, 0, 0, 0, 0, 0]), [truncated(12, 8)]);
        assert_eq!(all(&[0, 5]), [truncated(4, 2)]);
        assert_eq!(all(&[0xff, 0xff, 9, 0]), [truncated(0x1_0004, 4)]);
        // The content is there but its pad is not.
        assert_eq!(all(&[0, 2, 9, 0, 0]), [truncated(8, 5)]);
    }

    #[test]
    fn emitting_checks_its_buffer_and_content() {
        let long = [0; MAX_AHS_LEN];
        let mut out = [0xff; MAX_AHS_LEN];
        let bidi = Ahs::BidiReadLength(1);
        assert_eq!(bidi.emit(&mut out[..7]), Err(AhsError::NoRoom { needed: 8, room: 7 }));
        let too_long = Ahs::ExtendedCdb(&long[..MAX_AHS_LEN - 3]);
        assert_eq!(too_long.emit(&mut out), Err(AhsError::TooLong { needed: MAX_AHS_LEN + 4 }));
        assert_eq!(Ahs::ExtendedCdb(&long[..MAX_AHS_LEN - 4]).emit(&mut out), Ok(MAX_AHS_LEN));
        assert!(Ahs::ExtendedCdb(&[]).emit(&mut out).is_err());
    }

    proptest! {
        #[test]
        fn emitted_segments_are_read_back(
            cdb in prop::collection::vec(any::<u8>(), 1..300),
            bidi: u32,
            ahs_type in 3u8..64,
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let segments =
                [Ahs::ExtendedCdb(&cdb), Ahs::BidiReadLength(bidi), Ahs::Unknown { ahs_type, bytes: &bytes }];
            let mut out = [0xff; MAX_AHS_LEN];
            let mut len = 0;
            for segment in &segments {
                len += segment.emit(&mut out[len..]).unwrap();
            }
            prop_assert!(len.is_multiple_of(4));
            prop_assert_eq!(all(&out[..len]), segments.map(Ok));
        }

        #[test]
        fn any_bytes_are_walked_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let segments = all(&bytes);
            let walked: usize = segments.iter().flatten().map(Ahs::wire_len).sum();
            prop_assert!(walked <= bytes.len());
            prop_assert_eq!(walked == bytes.len(), segments.iter().all(Result::is_ok));
        }
    }
}
