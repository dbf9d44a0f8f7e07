//! Lists that are longer than one PDU (RFC 7143, 6.2): the C bit says that more follows, and the cut may be anywhere,
//! even inside a pair.

use super::TextError;

/// Assembles a list from the data segments of consecutive Login or Text PDUs.
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
    partial: bool,
}

impl TextAssembler {
    /// An assembler of lists with up to `max_len` bytes.
    pub const fn new(max_len: usize) -> Self {
        Self { text: Vec::new(), max_len, partial: false }
    }

    /// Takes a PDU's data segment, without pad, and its C bit. Returns the list when it is complete;
    /// the assembler is then ready for another.
    ///
    /// # Errors
    ///
    /// [`TextError::TooLong`] when the list grows beyond the limit. What was collected is dropped.
    pub fn push(&mut self, segment: &[u8], continue_bit: bool) -> Result<Option<Vec<u8>>, TextError> {
        self.partial = false;
        let len = self.text.len().saturating_add(segment.len());
        if len > self.max_len {
            self.text = Vec::new();
            return Err(TextError::TooLong { len, max: self.max_len });
        }
        self.text.extend_from_slice(segment);
        self.partial = continue_bit;
        Ok(if continue_bit { None } else { Some(core::mem::take(&mut self.text)) })
    }

    /// Bytes of the list collected so far.
    pub const fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether no byte of a list has been collected.
    pub const fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether a list has begun but not ended, so that the next PDU must continue it.
    pub const fn is_partial(&self) -> bool {
        self.partial
    }
}

/// Cuts a list into data segments of up to `max_segment` bytes, the receiver's `MaxRecvDataSegmentLength`. All but the
/// last are sent with the C bit. An empty list is one empty segment.
///
/// # Panics
///
/// When `max_segment` is 0. The RFC's minimum is 512.
///
/// ```
/// use lunette_pdu::text::split_text;
///
/// assert!(split_text(b"A=1\0B=2\0", 5).eq([&b"A=1\0B"[..], &b"=2\0"[..]]));
/// ```
pub fn split_text(text: &[u8], max_segment: usize) -> impl DoubleEndedIterator<Item = &[u8]> {
    text.chunks(max_segment).chain(text.is_empty().then_some(text))
}

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
        assert!(split_text(b"", 512).eq([b""]));
        assert_eq!(TextAssembler::new(0).push(b"", false), Ok(Some(Vec::new())));
    }

    #[test]
    fn an_empty_piece_that_promises_more_begins_a_list() {
        let mut text = TextAssembler::new(8);
        assert_eq!(text.push(b"", true), Ok(None));
        assert!(text.is_partial());
        assert_eq!(text.push(b"A=1\0", false), Ok(Some(b"A=1\0".to_vec())));
        assert!(!text.is_partial());
    }

    proptest! {
        #[test]
        fn pieces_come_together_again(
            text in prop::collection::vec(any::<u8>(), 0..200),
            max_segment in 1usize..210,
        ) {
            let mut assembler = TextAssembler::new(text.len());
            let mut pieces = split_text(&text, max_segment);
            let last = pieces.next_back().unwrap();
            for piece in pieces {
                prop_assert_eq!(piece.len(), max_segment);
                prop_assert_eq!(assembler.push(piece, true), Ok(None));
            }
            prop_assert!(last.len() <= max_segment);
            let whole = assembler.push(last, false).unwrap();
            prop_assert_eq!(whole, Some(text));
        }
    }
}
