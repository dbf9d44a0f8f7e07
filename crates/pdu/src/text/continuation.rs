//! Lists that are longer than one PDU (RFC 7143, 6.2): the C bit says that more follows, and the cut
//! may be anywhere, also inside a pair.

use super::TextError;

/// Puts the data segments of consecutive Login or Text PDUs together.
///
/// ```
/// use lunette_pdu::text::TextAssembler;
///
/// let mut text = TextAssembler::new(1024);
/// assert_eq!(text.push(b"SessionTy", true), Ok(None));
/// assert_eq!(text.push(b"pe=Normal\0", false), Ok(Some(b"SessionType=Normal\0".to_vec())));
/// ```
#[derive(Clone, Debug)]
pub struct TextAssembler {
    text: Vec<u8>,
    max_len: usize,
}

impl TextAssembler {
    /// An assembler of lists with up to `max_len` bytes.
    pub const fn new(max_len: usize) -> Self {
        Self { text: Vec::new(), max_len }
    }

    /// Takes a PDU's data segment, without pad, and its C bit. Returns the list when it is complete;
    /// the assembler is then ready for another.
    ///
    /// # Errors
    ///
    /// [`TextError::TooLong`] when the list grows beyond the limit. What was collected is dropped.
    pub fn push(&mut self, segment: &[u8], continue_bit: bool) -> Result<Option<Vec<u8>>, TextError> {
        let len = self.text.len().saturating_add(segment.len());
        if len > self.max_len {
            self.text = Vec::new();
            return Err(TextError::TooLong { len, max: self.max_len });
        }
        self.text.extend_from_slice(segment);
        Ok(if continue_bit { None } else { Some(core::mem::take(&mut self.text)) })
    }

    /// Whether a list has begun and not ended, so that the next PDU must bring more of it.
    pub fn is_partial(&self) -> bool {
        !self.text.is_empty()
    }
}

/// A piece of a list, for one PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextSegment<'a> {
    /// The data segment.
    pub bytes: &'a [u8],
    /// The C bit.
    pub continue_: bool,
}

/// Cuts a list into pieces of up to `max_segment` bytes, which is the receiver's
/// `MaxRecvDataSegmentLength`. An empty list is one empty piece.
///
/// # Panics
///
/// When `max_segment` is 0. The RFC allows no less than 512.
///
/// ```
/// use lunette_pdu::text::split_text;
///
/// let pieces: Vec<_> = split_text(b"A=1\0B=2\0", 5).map(|s| (s.bytes, s.continue_)).collect();
/// assert_eq!(pieces, [(&b"A=1\0B"[..], true), (&b"=2\0"[..], false)]);
/// ```
pub fn split_text(text: &[u8], max_segment: usize) -> TextSegments<'_> {
    assert!(max_segment > 0, "a text segment cannot be limited to no bytes");
    TextSegments { rest: Some(text), max_segment }
}

/// The pieces of a list. See [`split_text`].
#[derive(Clone, Debug)]
pub struct TextSegments<'a> {
    /// `None` after the last piece.
    rest: Option<&'a [u8]>,
    max_segment: usize,
}

impl<'a> Iterator for TextSegments<'a> {
    type Item = TextSegment<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest.take()?;
        let (bytes, rest) = text.split_at(text.len().min(self.max_segment));
        if !rest.is_empty() {
            self.rest = Some(rest);
        }
        Some(TextSegment { bytes, continue_: !rest.is_empty() })
    }
}

impl core::iter::FusedIterator for TextSegments<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_may_not_outgrow_its_limit() {
        let mut text = TextAssembler::new(6);
        assert_eq!(text.push(b"A=1\0", true), Ok(None));
        assert!(text.is_partial());
        assert_eq!(text.push(b"B=2\0", false), Err(TextError::TooLong { len: 8, max: 6 }));
        assert!(!text.is_partial());
        assert_eq!(text.push(b"C=34\0", false), Ok(Some(b"C=34\0".to_vec())));
    }

    #[test]
    fn an_empty_list_still_takes_a_pdu() {
        let pieces: Vec<_> = split_text(b"", 512).collect();
        assert_eq!(pieces, [TextSegment { bytes: b"", continue_: false }]);
        assert_eq!(TextAssembler::new(0).push(b"", false), Ok(Some(Vec::new())));
    }

    proptest! {
        #[test]
        fn pieces_come_together_again(
            text in prop::collection::vec(any::<u8>(), 0..200),
            max_segment in 1usize..210,
        ) {
            let mut assembler = TextAssembler::new(text.len());
            let mut whole = None;
            for piece in split_text(&text, max_segment) {
                prop_assert_eq!(&whole, &None, "no piece after the last");
                prop_assert!(piece.bytes.len() <= max_segment);
                whole = assembler.push(piece.bytes, piece.continue_).unwrap();
            }
            prop_assert_eq!(whole, Some(text));
        }
    }
}
