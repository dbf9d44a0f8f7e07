//! The parameter list of MODE SELECT (SPC-5 6.11, 6.12, 7.5).

use super::{BlockDescriptor, PageCode};
use crate::{AdditionalSense, FieldPointer, SenseData};

/// PS in the first byte of a page; reserved in MODE SELECT.
const PS: u8 = 0x80;
/// SPF: the page has a subpage code and two bytes of length.
const SPF: u8 = 0x40;
const PAGE_CODE: u8 = 0x3f;
const LONGLBA: u8 = 0x01;

const LENGTH_ERROR: SenseData = SenseData::illegal_request(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

/// Which command the list belongs to: their headers differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListForm {
    /// MODE SELECT(6): a header of four bytes.
    Six,
    /// MODE SELECT(10): a header of eight bytes.
    Ten,
}

/// A whole parameter list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectList<'a> {
    /// The block descriptor and where it stands.
    pub descriptor: Option<(BlockDescriptor, u16)>,
    /// The pages in their order.
    pub pages: Vec<SelectedPage<'a>>,
}

/// One page of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectedPage<'a> {
    /// Its code.
    pub code: PageCode,
    /// Its subpage code; zero for pages without.
    pub subpage: u8,
    /// Its parameters, behind the length.
    pub parameters: &'a [u8],
    /// Where it stands in the list.
    pub at: u16,
}

impl SelectedPage<'_> {
    /// Where the page code stands.
    pub fn code_field(&self) -> FieldPointer {
        FieldPointer::data(self.at).bit(5)
    }

    /// Where the subpage code stands.
    pub fn subpage_field(&self) -> FieldPointer {
        FieldPointer::data(self.at + 1)
    }

    /// Where PAGE LENGTH stands.
    pub fn length_field(&self) -> FieldPointer {
        FieldPointer::data(self.at + if self.subpage == 0 { 1 } else { 2 })
    }

    /// Where the bit `bit` of the parameter byte `index` stands.
    pub fn parameter_field(&self, index: usize, bit: u8) -> FieldPointer {
        let header = if self.subpage == 0 { 2 } else { 4 };
        FieldPointer::data(self.at + header + index as u16).bit(bit)
    }
}

/// Reads a list of at most 65,535 bytes. MODE DATA LENGTH and DEVICE-SPECIFIC PARAMETER mean nothing in MODE SELECT and
/// are not looked at, as initiators send back what they have read.
///
/// # Errors
///
/// Sense data: PARAMETER LIST LENGTH ERROR for a list that is cut inside of the header, the descriptor or a page; INVALID
/// FIELD IN PARAMETER LIST for a reserved bit or a length of block descriptors that is none.
pub fn parse(list: &[u8], form: ListForm) -> Result<SelectList<'_>, SenseData> {
    let (medium_at, header_len) = match form {
        ListForm::Six => (1, 4),
        ListForm::Ten => (2, 8),
    };
    let list = &list[..list.len().min(usize::from(u16::MAX))];
    let (header, mut rest) = list.split_at_checked(header_len).ok_or(LENGTH_ERROR)?;
    if header[medium_at] != 0 {
        return Err(FieldPointer::data(medium_at as u16).into());
    }
    let (long, descriptor_len, len_at) = match form {
        ListForm::Six => (false, usize::from(header[3]), 3),
        ListForm::Ten => {
            if header[4] & !LONGLBA != 0 {
                return Err(FieldPointer::data(4).bit((header[4] & !LONGLBA).ilog2() as u8).into());
            }
            (header[4] & LONGLBA != 0, usize::from(u16::from_be_bytes([header[6], header[7]])), 6)
        }
    };
    let mut descriptor = None;
    if descriptor_len > 0 {
        let (bytes, behind) = rest.split_at_checked(descriptor_len).ok_or(LENGTH_ERROR)?;
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

/// The page at the start of `list`, which stands at byte `at` of the whole, and what follows it.
fn split_page(list: &[u8], at: u16) -> Result<(SelectedPage<'_>, &[u8]), SenseData> {
    let (subpage, len, body) = match list {
        [first, subpage, high, low, body @ ..] if first & SPF != 0 => {
            (*subpage, usize::from(u16::from_be_bytes([*high, *low])), body)
        }
        [first, len, body @ ..] if first & SPF == 0 => (0, usize::from(*len), body),
        _ => return Err(LENGTH_ERROR),
    };
    if list[0] & PS != 0 {
        return Err(FieldPointer::data(at).bit(7).into());
    }
    let (parameters, rest) = body.split_at_checked(len).ok_or(LENGTH_ERROR)?;
    Ok((SelectedPage { code: PageCode(list[0] & PAGE_CODE), subpage, parameters, at }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_forms_have_header_descriptor_and_pages() {
        let six = [0, 0, 0x10, 8, 0, 0, 0, 9, 0, 0, 2, 0, 0x08, 1, 0xaa, 0x4a, 1, 0, 2, 0xbb, 0xcc];
        let list = parse(&six, ListForm::Six).unwrap();
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
        let list = parse(&ten, ListForm::Ten).unwrap();
        assert_eq!(list.descriptor, Some((BlockDescriptor { blocks: 0x1_0000_0002, block_len: 4096 }, 8)));
        assert_eq!(list.pages[0].at, 24);
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let refused = |list: &[u8], form| parse(list, form).unwrap_err();
        for cut in [&[0, 0, 0][..], &[0, 0, 0, 8, 0], &[0, 0, 0, 0, 0x08], &[0, 0, 0, 0, 0x08, 2, 0]] {
            assert_eq!(refused(cut, ListForm::Six), LENGTH_ERROR, "{cut:?}");
        }
        assert_eq!(refused(&[0, 7, 0, 0], ListForm::Six).field, Some(FieldPointer::data(1)));
        assert_eq!(refused(&[0, 0, 0, 3, 0, 0, 0], ListForm::Six).field, Some(FieldPointer::data(3)));
        assert_eq!(refused(&[0, 0, 0, 0, 0x88, 0], ListForm::Six).field, Some(FieldPointer::data(4).bit(7)));
        assert_eq!(refused(&[0, 0, 0, 0, 4, 0, 0, 0], ListForm::Ten).field, Some(FieldPointer::data(4).bit(2)));
        assert_eq!(
            refused(&[0, 0, 0, 0, 1, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0], ListForm::Ten).field,
            Some(FieldPointer::data(6))
        );
    }

    proptest! {
        #[test]
        fn parsing_never_panics(list in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..80), ten: bool) {
            let form = if ten { ListForm::Ten } else { ListForm::Six };
            if let Ok(parsed) = parse(&list, form) {
                for page in parsed.pages {
                    let at = usize::from(page.at);
                    prop_assert!(at + page.parameters.len() <= list.len());
                }
            }
        }
    }
}
