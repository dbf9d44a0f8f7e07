//! All mistakes of a text in TOML, each with its place.
//!
//! A deserializer stops at its first mistake. So what a mistake stands in is left out, and the rest is read again,
//! until nothing is wrong any more.

use std::borrow::Cow;
use std::ops::Range;

use lunette_api::{Kind, Subject};
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};

use super::Step;
use crate::config::sources;

/// Mistakes of one text that are told.
pub(super) const MAX_MISTAKES: usize = 100;

/// A mistake in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) span: Option<Range<usize>>,
    pub(super) text: String,
    /// The portal or target that it stands in. A text that is no TOML has none.
    pub(super) object: Option<Subject>,
}

/// A text as far as it can be read.
pub(super) struct Reading<'i, T> {
    /// Without the parts that have mistakes.
    pub(super) value: Option<T>,
    pub(super) mistakes: Vec<Found>,
    tree: Spanned<DeTable<'i>>,
}

/// Reads a text.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Reading<'_, T> {
    let (mut tree, errors) = DeTable::parse_recoverable(text);
    let mut mistakes: Vec<_> = errors.iter().map(found).collect();
    let mut left_out: Vec<(Range<usize>, String)> = Vec::new();
    let mut value = None;
    while mistakes.len() < MAX_MISTAKES {
        let error = match T::deserialize(Deserializer::from(tree.clone())) {
            Ok(read) => {
                value = Some(read);
                break;
            }
            Err(error) => error,
        };
        let is_known = error.span().is_some_and(|span| {
            left_out.iter().any(|(table, key)| *table == span && error.message() == format!("missing field `{key}`"))
        });
        if !is_known {
            let object = error.span().and_then(|span| object(tree.get_ref(), &span));
            mistakes.push(Found { object, ..found(&error) });
        }
        let Some(span) = error.span() else { break };
        let root = tree.span();
        let Some(gone) = leave_out(tree.get_mut(), &root, &span) else { break };
        left_out.extend(gone);
    }
    mistakes.truncate(MAX_MISTAKES);
    Reading { value, mistakes, tree }
}

fn found(error: &toml::de::Error) -> Found {
    Found { span: error.span(), text: error.message().to_owned(), object: None }
}

/// The omission: the table and the key of an entry, or an element of a list.
type LeftOut = Option<(Range<usize>, String)>;

fn covers(part: &Range<usize>, span: &Range<usize>) -> bool {
    part.start <= span.start && span.end <= part.end
}

/// The portal or target that this part of the text is in.
fn object(tree: &DeTable<'_>, span: &Range<usize>) -> Option<Subject> {
    Kind::ALL.into_iter().find_map(|kind| {
        let (_, value) = tree.iter().find(|(key, _)| key.get_ref() == kind.table())?;
        let all = value.get_ref().as_array()?;
        let index = all.iter().position(|one| holds(one, span))?;
        let table = all.get(index)?.get_ref().as_table()?;
        let name = get(table, kind.name_key()).and_then(DeValue::as_str).map(str::to_owned);
        let name = name.unwrap_or_else(|| sources::nameless(index));
        part(table, &name, span).or_else(|| Some(sources::subject(kind, &name)))
    })
}

/// The logical unit or the host of a target that this part of the text is in.
fn part(target: &DeTable<'_>, name: &str, span: &Range<usize>) -> Option<Subject> {
    let within = |key| {
        let all = get(target, key)?.as_array()?;
        all.iter().find(|one| holds(one, span))?.get_ref().as_table()
    };
    if let Some(lun) = within("lun") {
        let DeValue::Integer(number) = get(lun, "number")? else { return None };
        let number = u16::from_str_radix(number.as_str(), number.radix()).ok()?;
        return Some(Subject::lun(name, number));
    }
    Some(Subject::host(name, get(within("host")?, "name")?.as_str()?))
}

/// The value of a key.
fn get<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<&'a DeValue<'i>> {
    table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value.get_ref())
}

/// Whether a part of the text is in this value. A table under a header does not cover its entries.
fn holds(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    covers(&value.span(), span)
        || match value.get_ref() {
            DeValue::Table(table) => table.iter().any(|(key, value)| covers(&key.span(), span) || holds(value, span)),
            DeValue::Array(list) => list.iter().any(|element| holds(element, span)),
            _ => false,
        }
}

/// Leaves out the smallest part that a mistake stands in; `None` when there is none.
fn leave_out(table: &mut DeTable<'_>, own: &Range<usize>, span: &Range<usize>) -> Option<LeftOut> {
    for (_, value) in table.iter_mut() {
        if let Some(gone) = leave_out_within(value, span) {
            return Some(gone);
        }
    }
    let is_meant = |key: &Spanned<Cow<'_, str>>, value: &Spanned<DeValue<'_>>| {
        covers(&key.span(), span) || covers(&value.span(), span)
    };
    let key = table.iter().find(|(key, value)| is_meant(key, value)).map(|(key, _)| key.clone())?;
    table.remove(&key);
    Some(Some((own.clone(), key.into_inner().into_owned())))
}

fn leave_out_within(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<LeftOut> {
    let own = value.span();
    match value.get_mut() {
        DeValue::Table(table) => leave_out(table, &own, span),
        DeValue::Array(list) => {
            if let Some(gone) = list.iter_mut().find_map(|element| leave_out_within(element, span)) {
                return Some(gone);
            }
            let at = list.iter().position(|element| covers(&element.span(), span))?;
            let all = std::mem::replace(list, DeArray::new()).into_iter().enumerate();
            *list = all.filter(|(index, _)| *index != at).map(|(_, element)| element).collect();
            Some(None)
        }
        _ => None,
    }
}

impl<T> Reading<'_, T> {
    /// Whether a mistake of the text stands in the value of a key. What is left of it says nothing.
    pub(super) fn is_partial(&self, key: &str) -> bool {
        let value = self.tree.get_ref().iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value);
        let spans = self.mistakes.iter().filter_map(|found| found.span.as_ref());
        value.is_some_and(|value| spans.into_iter().any(|span| holds(value, span)))
    }

    /// The place of what `path` names, or of the part of it that is there.
    pub(super) fn place(&self, path: &[Step]) -> Range<usize> {
        let mut place = self.tree.span();
        let mut rest = path.iter();
        let Some(Step::Key(first)) = rest.next() else { return place };
        let Some(mut value) = entry(self.tree.get_ref(), first, &mut place) else { return place };
        for step in rest {
            let next = match (step, value.get_ref()) {
                (Step::Key(key), DeValue::Table(table)) => entry(table, key, &mut place),
                (Step::Index(at), DeValue::Array(list)) => list.get(*at).inspect(|element| place = element.span()),
                _ => None,
            };
            let Some(next) = next else { return place };
            value = next;
        }
        place
    }
}

/// The value of a key. `place` becomes that of the value; of a table, that of its key.
fn entry<'a, 'i>(table: &'a DeTable<'i>, name: &str, place: &mut Range<usize>) -> Option<&'a Spanned<DeValue<'i>>> {
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    *place = if value.get_ref().is_table() || value.get_ref().is_array() { key.span() } else { value.span() };
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// The lines of the mistakes in a configuration, with their texts.
    fn lines(text: &str) -> Vec<(usize, String)> {
        let reading = read::<Config>(text);
        let line = |found: &Found| {
            let at = found.span.clone().unwrap_or_default().start;
            (text[..at].matches('\n').count() + 1, found.text.clone())
        };
        reading.mistakes.iter().map(line).collect()
    }

    #[test]
    fn all_mistakes_of_a_text_are_found_with_their_lines() {
        let text = "colour = 1\nlisten = [\"0.0.0:3260\", \"192.0.2.1\"]\ncores = \"many\"\n\
                    [[target]]\nname = \"iqn.a\"\nlun = [\n  { number = 0 },\n  { number = \"one\", disk = \"mem:1M\" },\n  \
                    { number = 2, disk = \"mem:1Q\", sise = 1 },\n]\n[[target]]\nalias = \"no name\"\n";
        let found = lines(text);
        let at = |line: usize, part: &str| {
            assert!(found.iter().any(|(at, text)| *at == line && text.contains(part)), "{line} {part}: {found:#?}");
        };
        at(1, "unknown field `colour`");
        at(2, "not an address");
        at(3, "invalid type");
        at(7, "missing field `disk`");
        at(8, "invalid type");
        at(9, "not a size");
        at(9, "unknown field `sise`");
        at(11, "missing field `name`");
        assert_eq!(found.len(), 8, "{found:#?}");
    }

    #[test]
    fn a_text_that_is_no_toml_has_all_its_mistakes_too() {
        let found = lines("listen = [\"192.0.2.1\"\ncores 2\n[[target]\nname = \"iqn.a\"\n");
        assert!(found.len() >= 2, "{found:#?}");
    }

    #[test]
    fn mistakes_are_bounded() {
        let luns: Vec<_> = (0..MAX_MISTAKES + 5).map(|_| "{ number = -1 }").collect();
        assert_eq!(lines(&format!("[[target]]\nname = \"iqn.a\"\nlun = [{}]", luns.join(", "))).len(), MAX_MISTAKES);
    }
}
