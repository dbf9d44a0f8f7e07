//! The ranges in which two images may differ, by the places of their blocks.
//!
//! A block that two images share is never written in place, and its place is not given to another one while an image
//! has it. So blocks in one place are equal.

use std::io::{self, ErrorKind};
use std::iter::Peekable;
use std::ops::Range;

use lunette_store::Extent;

use super::files::Files;
use crate::changes::Changes;
use crate::pool::Change;

/// A range of an image with one kind of content.
#[derive(Debug, Clone)]
struct Stretch {
    range: Range<u64>,
    content: Content,
}

/// The knowledge of the bytes from one offset on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Zeroes,
    /// The blocks from this place on.
    At(u64),
    Unknown,
}

/// The ranges of `later`, which is flushed, that may differ from `earlier`, or from zeroes.
pub(super) fn differences<F: Files>(
    files: &F,
    earlier: Option<&F::Image>,
    later: &F::Image,
) -> io::Result<Vec<Change>> {
    let len_bytes = files.len(later)?;
    let mut after = stretches(files.extents(later), len_bytes).peekable();
    let mut before = match earlier {
        Some(earlier) => stretches(files.extents(earlier), files.len(earlier)?),
        None => stretches(Box::new(std::iter::empty()), len_bytes),
    }
    .peekable();
    let mut changes = Changes::new();
    let mut next = 0;
    while next < len_bytes {
        let Some((now, now_end)) = content_at(&mut after, next)? else { break };
        let (end, is_same, is_zero) = match content_at(&mut before, next)? {
            Some((then, then_end)) => (now_end.min(then_end), now == then, now == Content::Zeroes),
            // The earlier image is shorter.
            None => (now_end, false, now == Content::Zeroes),
        };
        if !is_same || now == Content::Unknown {
            changes.push(next..end, is_zero);
        }
        next = end;
    }
    Ok(changes.into_list())
}

/// The content from an offset on, and the end of what has it. `None` behind the end.
fn content_at(
    stretches: &mut Peekable<impl Iterator<Item = io::Result<Stretch>>>,
    offset: u64,
) -> io::Result<Option<(Content, u64)>> {
    while let Some(stretch) = stretches.next_if(|stretch| stretch.as_ref().is_ok_and(|it| it.range.end <= offset)) {
        stretch?;
    }
    match stretches.peek() {
        None => Ok(None),
        Some(Ok(Stretch { range, content })) => {
            let content = match *content {
                Content::At(place) => Content::At(place.saturating_add(offset - range.start)),
                content => content,
            };
            Ok(Some((content, range.end)))
        }
        Some(Err(_)) => match stretches.next() {
            Some(Err(error)) => Err(error),
            _ => Ok(None),
        },
    }
}

/// The content of an image as a whole, without gaps.
fn stretches<'a>(
    extents: Box<dyn Iterator<Item = io::Result<Extent>> + 'a>,
    len_bytes: u64,
) -> impl Iterator<Item = io::Result<Stretch>> + 'a {
    let mut next = 0;
    let mut extents = Some(extents);
    let with_gaps = move || {
        let found = extents.as_mut().and_then(Iterator::next);
        let stretch = |range, content| Ok(Stretch { range, content });
        match found {
            Some(Ok(extent)) if extent.range.start < len_bytes => {
                let gap = next..extent.range.start;
                let range = extent.range.start..extent.range.end.min(len_bytes);
                next = range.end;
                let content = match extent {
                    Extent { place: Some(_), is_unwritten: true, .. } => Content::Zeroes,
                    Extent { place: Some(place), .. } => Content::At(place),
                    Extent { place: None, .. } => Content::Unknown,
                };
                Some(vec![stretch(gap, Content::Zeroes), stretch(range, content)])
            }
            Some(Err(error)) if error.kind() == ErrorKind::Unsupported => {
                extents = None;
                let rest = std::mem::replace(&mut next, len_bytes)..len_bytes;
                Some(vec![stretch(rest, Content::Unknown)])
            }
            Some(Err(error)) => {
                extents = None;
                next = len_bytes;
                Some(vec![Err(error)])
            }
            Some(Ok(_)) | None if next < len_bytes => {
                extents = None;
                let rest = std::mem::replace(&mut next, len_bytes)..len_bytes;
                Some(vec![stretch(rest, Content::Zeroes)])
            }
            Some(Ok(_)) | None => None,
        }
    };
    let is_some = |stretch: &io::Result<Stretch>| stretch.as_ref().map_or(true, |stretch| !stretch.range.is_empty());
    std::iter::from_fn(with_gaps).flatten().filter(is_some)
}
