//! The parameter list of MODE SELECT (SPC-5 6.11, 6.12, 7.5).

use super::{BlockDescriptor, PageCode};
use crate::{FieldPointer, SenseData};

/// PS in the first byte of a page; reserved in MODE SELECT.
const PS: u8 = 0x80;
/// SPF: the page has a subpage code and two bytes of length.
const SPF: u8 = 0x40;
const PAGE_CODE: u8 = 0x3f;
const LONGLBA: u8 = 0x01;

/// The form of the command, which determines the header of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectListForm {
    /// MODE SELECT(6): a header of four bytes.
    Six,
    /// MODE SELECT(10): a header of eight bytes.
    Ten,
}

/// The parameter list of MODE SELECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectList<'a> {
    /// The block descriptor and its offset in the list.
    pub descriptor: Option<(BlockDescriptor, u16)>,
    /// The pages in their order.
    pub pages: Vec<SelectedPage<'a>>,
}

/// A page of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectedPage<'a> {
    /// The page code.
    pub code: PageCode,
    /// The subpage code; zero for a page without.
    pub subpage: u8,
    /// The parameters, after the length.
    pub parameters: &'a [u8],
    /// The offset of the page in the list.
    pub at: u16,
}

impl SelectedPage<'_> {
    /// The field of the page code.
    pub fn code_field(&self) -> FieldPointer {
        FieldPointer::data(self.at).bit(5)
    }

    /// The field of the subpage code.
    pub fn subpage_field(&self) -> FieldPointer {
        FieldPointer::data(self.at + 1)
    }

    /// The field PAGE LENGTH.
    pub fn length_field(&self) -> FieldPointer {
        FieldPointer::data(self.at + if self.subpage == 0 { 1 } else { 2 })
    }

    /// The field of bit `bit` in the parameter byte `index`.
    pub fn parameter_field(&self, index: usize, bit: u8) -> FieldPointer {
        let header = if self.subpage == 0 { 2 } else { 4 };
        FieldPointer::data(self.at + header + index as u16).bit(bit)
    }
}

/// Parses a list of at most 65,535 bytes. MODE DATA LENGTH and DEVICE-SPECIFIC PARAMETER are reserved in MODE SELECT
/// and ignored, because initiators return what they have read.
///
/// # Errors
///
/// Sense data: PARAMETER LIST LENGTH ERROR for a list that ends inside the header, the descriptor or a page; INVALID
/// FIELD IN PARAMETER LIST for a reserved bit, or for a BLOCK DESCRIPTOR LENGTH that no descriptor has.
pub fn parse(list: &[u8], form: SelectListForm) -> Result<SelectList<'_>, SenseData> {
    let (medium_at, header_len) = match form {
        SelectListForm::Six => (1, 4),
        SelectListForm::Ten => (2, 8),
    };
    let list = &list[..list.len().min(usize::from(u16::MAX))];
    let (header, mut rest) = list.split_at_checked(header_len).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    if header[medium_at] != 0 {
        return Err(FieldPointer::data(medium_at as u16).into());
    }
    let (long, descriptor_len, len_at) = match form {
        SelectListForm::Six => (false, usize::from(header[3]), 3),
        SelectListForm::Ten => {
            if header[4] & !LONGLBA != 0 {
                return Err(FieldPointer::data(4).bit((header[4] & !LONGLBA).ilog2() as u8).into());
            }
            (header[4] & LONGLBA != 0, usize::from(u16::from_be_bytes([header[6], header[7]])), 6)
        }
    };
    let mut descriptor = None;
    if descriptor_len > 0 {
        let (bytes, behind) = rest.split_at_checked(descriptor_len).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
        let decoded = BlockDescriptor::decode(bytes, long).ok_or(FieldPointer::data(len_at))?;
        descriptor = Some((decoded, header_len as u16));
        rest = behind;
    }
    let mut pages = Vec::new();
    while !rest.is_empty() {
        let (page, behind) = split_page(rest, (list.len() - rest.len()) as u16)?;
        pages.push(page);
        rest = behind;
    }
    Ok(SelectList { descriptor, pages })
}

/// Splits the first page from `list`, which begins at byte `at` of the whole list.
fn split_page(list: &[u8], at: u16) -> Result<(SelectedPage<'_>, &[u8]), SenseData> {
    let (subpage, len, body) = match list {
        [first, subpage, high, low, body @ ..] if first & SPF != 0 => {
            (*subpage, usize::from(u16::from_be_bytes([*high, *low])), body)
        }
        [first, len, body @ ..] if first & SPF == 0 => (0, usize::from(*len), body),
        _ => return Err(SenseData::PARAMETER_LIST_LENGTH_ERROR),
    };
    if list[0] & PS != 0 {
        return Err(FieldPointer::data(at).bit(7).into());
    }
    let (parameters, rest) = body.split_at_checked(len).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    Ok((SelectedPage { code: PageCode(list[0] & PAGE_CODE), subpage, parameters, at }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_forms_have_header_descriptor_and_pages() {
        let six = [0, 0, 0x10, 8, 0, 0, 0, 9, 0, 0, 2, 0, 0x08, 1, 0xaa, 0x4a, 1, 0, 2, 0xbb, 0xcc];
        let list = parse(&six, SelectListForm::Six).unwrap();
        assert_eq!(list.descriptor, Some((BlockDescriptor { blocks: 9, block_len: 512 }, 4)));
        assert_eq!(list.pages.len(), 2);
        assert_eq!(
            (list.pages[0].code, list.pages[0].parameters, list.pages[0].at),
            (PageCode::CACHING, &[0xaa][..], 12)
        );
        let control = list.pages[1];
        assert_eq!((control.code, control.subpage, control.parameters), (PageCode::CONTROL, 1, &[0xbb, 0xcc][..]));
        assert_eq!(control.parameter_field(1, 3), FieldPointer::data(20).bit(3));
        let ten = [0, 0, 0, 0, 1, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 16, 0, 0x08, 0];
        let list = parse(&ten, SelectListForm::Ten).unwrap();
        assert_eq!(list.descriptor, Some((BlockDescriptor { blocks: 0x1_0000_0002, block_len: 4096 }, 8)));
        assert_eq!(list.pages[0].at, 24);
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let refused = |list: &[u8], form| parse(list, form).unwrap_err();
        for cut in [&[0, 0, 0][..], &[0, 0, 0, 8, 0], &[0, 0, 0, 0, 0x08], &[0, 0, 0, 0, 0x08, 2, 0]] {
            assert_eq!(refused(cut, SelectListForm::Six), SenseData::PARAMETER_LIST_LENGTH_ERROR, "{cut:?}");
        }
        assert_eq!(refused(&[0, 7, 0, 0], SelectListForm::Six).field, Some(FieldPointer::data(1)));
        assert_eq!(refused(&[0, 0, 0, 3, 0, 0, 0], SelectListForm::Six).field, Some(FieldPointer::data(3)));
        assert_eq!(refused(&[0, 0, 0, 0, 0x88, 0], SelectListForm::Six).field, Some(FieldPointer::data(4).bit(7)));
        assert_eq!(refused(&[0, 0, 0, 0, 4, 0, 0, 0], SelectListForm::Ten).field, Some(FieldPointer::data(4).bit(2)));
        assert_eq!(
            refused(&[0, 0, 0, 0, 1, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0], SelectListForm::Ten).field,
            Some(FieldPointer::data(6))
        );
    }

    proptest! {
        #[test]
        fn parsing_never_panics(list in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..80), ten: bool) {
            let form = if ten { SelectListForm::Ten } else { SelectListForm::Six };
            if let Ok(parsed) = parse(&list, form) {
                for page in parsed.pages {
                    let at = usize::from(page.at);
                    prop_assert!(at + page.parameters.len() <= list.len());
                }
            }
        }
    }
}
