//! The parameter list of SANITIZE with the OVERWRITE service action (SBC-4 5.30.2).

use crate::{FieldPointer, SenseData};

/// Bytes in front of the initialization pattern.
const HEADER_LEN: usize = 4;

const INVERT: u8 = 0x80;
const TEST: u8 = 0x60;
const OVERWRITE_COUNT: u8 = 0x1f;

const FLAGS_FIELD: FieldPointer = FieldPointer::data(0);
const PATTERN_LEN_FIELD: FieldPointer = FieldPointer::data(2);

/// The parameter list of OVERWRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverwriteList<'a> {
    /// INVERT: of two consecutive passes, one writes the pattern and the other its inversion.
    pub invert: bool,
    /// OVERWRITE COUNT: 1 to 31.
    pub passes: u8,
    /// INITIALIZATION PATTERN, from one byte to a whole block.
    pub pattern: &'a [u8],
}

impl<'a> OverwriteList<'a> {
    /// Whether PARAMETER LIST LENGTH may be `len` for blocks of `block_len` bytes.
    pub fn has_room(len: usize, block_len: u32) -> bool {
        (HEADER_LEN + 1..=HEADER_LEN + block_len as usize).contains(&len)
    }

    /// Parses the list. TEST requests vendor specific behaviour, which is not supported.
    ///
    /// # Errors
    ///
    /// Sense data: PARAMETER LIST LENGTH ERROR for a list that ends inside the pattern; INVALID FIELD IN PARAMETER
    /// LIST, with a pointer to the field, for the rest.
    pub fn parse(list: &'a [u8], block_len: u32) -> Result<Self, SenseData> {
        let (header, rest) = list.split_first_chunk::<HEADER_LEN>().ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
        let [flags, reserved, high, low] = *header;
        let passes = flags & OVERWRITE_COUNT;
        if flags & TEST != 0 {
            return Err(FLAGS_FIELD.bit(6).into());
        }
        if passes == 0 {
            return Err(FLAGS_FIELD.bit(4).into());
        }
        if reserved != 0 {
            return Err(FieldPointer::data(1).bit(reserved.ilog2() as u8).into());
        }
        let pattern_len = u16::from_be_bytes([high, low]);
        if pattern_len == 0 || u32::from(pattern_len) > block_len {
            return Err(PATTERN_LEN_FIELD.into());
        }
        let pattern = rest.get(..usize::from(pattern_len)).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
        Ok(Self { invert: flags & INVERT != 0, passes, pattern })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AdditionalSense;
    use proptest::prelude::*;

    #[test]
    fn a_list_has_flags_and_a_pattern() {
        let list = [0x83, 0, 0, 2, 0xab, 0xcd, 0xef];
        let parsed = OverwriteList::parse(&list, 512).unwrap();
        assert_eq!(parsed, OverwriteList { invert: true, passes: 3, pattern: &[0xab, 0xcd] });
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let field = |list: &[u8]| OverwriteList::parse(list, 512).unwrap_err().field;
        assert_eq!(field(&[0x21, 0, 0, 1, 0]), Some(FieldPointer::data(0).bit(6)), "TEST");
        assert_eq!(field(&[0x80, 0, 0, 1, 0]), Some(FieldPointer::data(0).bit(4)), "OVERWRITE COUNT");
        assert_eq!(field(&[0x01, 0x12, 0, 1, 0]), Some(FieldPointer::data(1).bit(4)));
        assert_eq!(field(&[0x01, 0, 0, 0, 0]), Some(FieldPointer::data(2)));
        assert_eq!(field(&[0x01, 0, 2, 1, 0]), Some(FieldPointer::data(2)), "513 bytes");
        let cut = OverwriteList::parse(&[0x01, 0, 0, 2, 0], 512).unwrap_err();
        assert_eq!(cut.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    }

    #[test]
    fn a_list_holds_a_byte_to_a_block_of_pattern() {
        let rooms = [4, 5, 516, 517].map(|len| OverwriteList::has_room(len, 512));
        assert_eq!(rooms, [false, true, true, false]);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(list in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(parsed) = OverwriteList::parse(&list, 512) {
                prop_assert!(parsed.passes > 0 && (1..=512).contains(&parsed.pattern.len()));
            }
        }
    }
}
