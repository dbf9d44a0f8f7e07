//! Lists in pages.
//!
//! A token names the last entry of its page, not a number of entries. So entries that come and go between two pages
//! make no other entry missing, or come twice, and a token is good for ever.

use tonic::Status;

/// The place of an entry in a list: its age, and its identifier among those of one age.
pub(crate) type Place = (u64, String);

/// One page, and the token of the next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page<T> {
    pub(crate) entries: Vec<T>,
    pub(crate) next_token: String,
}

/// The page of `all` behind `starting_token`.
pub(crate) fn page<T>(
    mut all: Vec<T>,
    place: impl Fn(&T) -> Place,
    max_entries: i32,
    starting_token: &str,
) -> Result<Page<T>, Status> {
    let max_entries = usize::try_from(max_entries)
        .map_err(|_| Status::invalid_argument(format!("max_entries is {max_entries}, which is negative")))?;
    all.sort_by_cached_key(&place);
    if !starting_token.is_empty() {
        let last = parse(starting_token).ok_or_else(|| {
            Status::aborted(format!("{starting_token:?} is no token of a page; begin again without starting_token"))
        })?;
        all.retain(|entry| place(entry) > last);
    }
    let has_more = max_entries > 0 && all.len() > max_entries;
    if has_more {
        all.truncate(max_entries);
    }
    let next_token = if has_more { all.last().map(|last| format(&place(last))) } else { None };
    Ok(Page { entries: all, next_token: next_token.unwrap_or_default() })
}

fn format((age, id): &Place) -> String {
    format!("{age}:{id}")
}

fn parse(token: &str) -> Option<Place> {
    let (age, id) = token.split_once(':')?;
    Some((age.parse().ok()?, id.to_owned()))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn place((age, id): &(u64, &str)) -> Place {
        (*age, (*id).to_owned())
    }

    #[test]
    fn pages_have_each_entry_once_while_others_come_and_go() {
        let all = vec![(3, "d"), (1, "b"), (2, "c"), (1, "a")];
        let first = page(all, place, 2, "").unwrap();
        assert_eq!(first.entries, [(1, "a"), (1, "b")]);
        // The last entry of the first page is removed, and a new one is made.
        let all = vec![(4, "0"), (3, "d"), (2, "c"), (1, "a")];
        let second = page(all.clone(), place, 2, &first.next_token).unwrap();
        assert_eq!(second.entries, [(2, "c"), (3, "d")]);
        let third = page(all, place, 2, &second.next_token).unwrap();
        assert_eq!((third.entries, third.next_token), (vec![(4, "0")], String::new()));
    }

    #[test]
    fn without_a_limit_there_is_one_page() {
        let whole = page(vec![(1, "a"), (1, "b")], place, 0, "").unwrap();
        assert_eq!((whole.entries.len(), whole.next_token.as_str()), (2, ""));
        assert_eq!(page(vec![(1, "a"), (1, "b")], place, 2, "").unwrap().next_token, "");
    }

    #[test]
    fn a_text_that_is_no_token_is_refused() {
        for token in ["invalid-token", ":", "x:a", "-1:a", "18446744073709551616:a"] {
            let refused = page(vec![(1, "a")], place, 1, token).unwrap_err();
            assert_eq!(refused.code(), Code::Aborted, "{token}");
        }
        assert_eq!(page(vec![(1, "a")], place, -1, "").unwrap_err().code(), Code::InvalidArgument);
    }
}
