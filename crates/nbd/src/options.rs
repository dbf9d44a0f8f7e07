//! The data of options, parsed without trust. Everything here is pure.

use crate::limits::MAX_STRING_LEN;
use crate::wire::{BASE_ALLOCATION, Fields};

/// The data of `INFO` and `GO`. The kinds of information that the client lists do not matter: it gets all that there
/// are, which the protocol allows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InfoRequest<'a> {
    pub(crate) export: &'a str,
    /// Whether the client asks for the export's name.
    pub(crate) wants_name: bool,
}

impl<'a> InfoRequest<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let export = string(&mut fields)?;
        let count = fields.u16()?;
        let mut wants_name = false;
        for _ in 0..count {
            wants_name |= fields.u16()? == crate::wire::info::NAME;
        }
        fields.end()?;
        Some(Self { export, wants_name })
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ContextRequest<'a> {
    pub(crate) export: &'a str,
    /// Whether one of the queries is exactly `base:allocation`.
    pub(crate) names_allocation: bool,
    /// Whether a list of contexts would hold `base:allocation`: the client names it, or all of `base:`, or sends no
    /// query at all.
    pub(crate) lists_allocation: bool,
}

impl<'a> ContextRequest<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let export = string(&mut fields)?;
        let count = fields.u32()?;
        let (mut names_allocation, mut whole_base) = (false, false);
        // The loop ends at the end of the data, long before a large count does.
        for _ in 0..count {
            let query = string(&mut fields)?;
            names_allocation |= query == BASE_ALLOCATION;
            whole_base |= query == "base:";
        }
        fields.end()?;
        Some(Self { export, names_allocation, lists_allocation: names_allocation || whole_base || count == 0 })
    }
}

/// Reads a length and as many bytes of UTF-8.
fn string<'a>(fields: &mut Fields<'a>) -> Option<&'a str> {
    let len = fields.u32()? as usize;
    if len > MAX_STRING_LEN {
        return None;
    }
    std::str::from_utf8(fields.bytes(len)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Vec<u8> {
        [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
    }

    #[test]
    fn info_requests_are_read_to_their_end() {
        let data = [text("disk"), vec![0, 2, 0, 3, 0, 1]].concat();
        assert_eq!(InfoRequest::parse(&data), Some(InfoRequest { export: "disk", wants_name: true }));
        assert_eq!(
            InfoRequest::parse(&[text(""), vec![0, 0]].concat()),
            Some(InfoRequest { export: "", wants_name: false })
        );
        for cut in 0..data.len() {
            assert_eq!(InfoRequest::parse(&data[..cut]), None, "cut to {cut} bytes");
        }
        assert_eq!(InfoRequest::parse(&[&data[..], &[0]].concat()), None, "a byte too many");
        assert_eq!(InfoRequest::parse(&[text(&"x".repeat(4097)), vec![0, 0]].concat()), None, "a long name");
        assert_eq!(InfoRequest::parse(&[&2u32.to_be_bytes()[..], &[0xff, 0xfe, 0, 0]].concat()), None, "not UTF-8");
    }

    #[test]
    fn context_queries_choose() {
        let request = |queries: &[&str]| {
            let count = (queries.len() as u32).to_be_bytes().to_vec();
            let data = [vec![text("d"), count], queries.iter().map(|query| text(query)).collect()].concat().concat();
            let request = ContextRequest::parse(&data).unwrap();
            (request.names_allocation, request.lists_allocation)
        };
        assert_eq!(request(&[]), (false, true));
        assert_eq!(request(&["base:"]), (false, true));
        assert_eq!(request(&["x-other:thing"]), (false, false));
        assert_eq!(request(&["x-other:thing", "base:allocation"]), (true, true));
        let endless = [text("d"), u32::MAX.to_be_bytes().to_vec()].concat();
        assert_eq!(ContextRequest::parse(&endless), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(data: Vec<u8>) {
            let _ = InfoRequest::parse(&data);
            let _ = ContextRequest::parse(&data);
        }
    }
}
