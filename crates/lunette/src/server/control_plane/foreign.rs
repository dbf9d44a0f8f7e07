//! The names of targets that a client may not see, in what it is told.

use lunette_api::{Caller, Catalog, Kind, Problem};

/// The words that stand for a name.
const HIDDEN: &str = "(not of this token)";

/// The problem as the client is told it: without the names of targets that it may not see.
pub(super) fn told(problem: Problem, caller: &Caller, catalog: &Catalog) -> Problem {
    let foreign = catalog.of(Kind::Target).map(|(name, ..)| name).filter(|name| !caller.sees(Some(name)));
    let detail = foreign.fold(problem.detail, |text, name| without(&text, name));
    Problem { detail, ..problem }
}

/// The text without a name, where that is not a part of a longer name.
fn without(text: &str, name: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(name) {
        let is_whole = !before.ends_with(is_of_name) && !after.trim_start_matches(['.', ':']).starts_with(is_of_name);
        kept.push_str(before);
        kept.push_str(if is_whole { HIDDEN } else { name });
        rest = after;
    }
    kept.push_str(rest);
    kept
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || "-.:".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_goes_as_a_whole_alone() {
        for (text, expected) in [
            (
                "target iqn.a: LUN 1 of iqn.a, another",
                "target (not of this token): LUN 1 of (not of this token), another",
            ),
            ("iqn.a", HIDDEN),
            ("iqn.ab, iqn.a:b, iqn.a.b, x.iqn.a", "iqn.ab, iqn.a:b, iqn.a.b, x.iqn.a"),
        ] {
            assert_eq!(without(text, "iqn.a"), expected);
        }
    }
}
