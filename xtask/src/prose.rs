//! The check of comments and documents: line lengths, the openings of doc comments, words that are not used, and the
//! lengths of sentences in Markdown.
//!
//! CONTRIBUTING.md has the rules for writers. Markdown has no line length, because its tables and links cannot be
//! wrapped.

mod sentences;

use anyhow::{Result, bail};

use crate::tree::{self, File};

/// Columns of a line of Rust with a comment. `rustfmt.toml` has the same number for code.
const COLUMNS: usize = 120;

/// First words after which a doc comment cannot stand alone: they refer to something that is not there in rustdoc.
const OPENINGS: [&str; 29] = [
    "Also", "And", "As", "Both", "But", "Ditto", "Hence", "Here", "It", "Its", "Likewise", "Of", "Or", "Same", "So",
    "Such", "That", "Their", "Them", "Then", "There", "These", "They", "This", "Those", "Thus", "What", "Who", "Whose",
];

/// First words that are one of [`OPENINGS`] only as a pair.
const PAIRS: [[&str; 2]; 2] = [["The", "same"], ["Each", "of"]];

/// Words and phrases that no comment and no document has.
const RETIRED: [&str; 6] = ["anew", "in vain", "nobody", "somebody", "so many", "the house"];

/// Things, for which the pronoun is "that" or "which".
const THINGS: [&str; 22] = [
    "caller",
    "client",
    "command",
    "connection",
    "core",
    "driver",
    "gateway",
    "handler",
    "host",
    "initiator",
    "machine",
    "node",
    "peer",
    "program",
    "sender",
    "server",
    "session",
    "side",
    "store",
    "target",
    "task",
    "thread",
];

/// Folders of reports on past runs, which stay as they were written: their sentences may be long.
const REPORTS: [&str; 3] = ["docs/measurements/archive/", "docs/papers/", "lab/src/"];

/// The step: fails with every place that breaks a rule.
pub(crate) fn step() -> Result<()> {
    let mut faults = Vec::new();
    for file in tree::files("rs")? {
        rust(&file, &mut faults);
    }
    for file in tree::files("md")? {
        markdown(&file, &mut faults);
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{} places break the rules of CONTRIBUTING.md:\n{}", faults.len(), faults.join("\n"))
}

fn rust(file: &File, faults: &mut Vec<String>) {
    let mut before = None;
    let mut is_code = false;
    // The next text opens a comment or one of its sections.
    let mut opens = false;
    for (number, line) in (1..).zip(file.text.lines()) {
        let Some((kind, text)) = comment(line) else {
            before = None;
            continue;
        };
        let begins = before.replace(kind) != Some(kind);
        opens |= begins || text.starts_with("# ");
        let is_fence = text.starts_with("```");
        is_code = (is_code && !begins) ^ is_fence;
        if is_code || is_fence {
            continue;
        }
        let mut fault = |why: String| faults.push(format!("{}:{number}: {why}", file.path));
        let cannot_wrap = text.starts_with('|') || text.split_whitespace().any(|word| word.len() > COLUMNS - 20);
        if line.chars().count() > COLUMNS && !cannot_wrap {
            fault(format!("the comment has more than {COLUMNS} columns"));
        }
        let is_text = !text.is_empty() && !text.starts_with("# ");
        if is_text
            && std::mem::take(&mut opens)
            && kind != Kind::Plain
            && let Some(opening) = opening(text)
        {
            fault(format!("a doc comment opens with {opening:?}; begin with the noun of the item"));
        }
        words(text, &mut fault);
    }
}

fn markdown(file: &File, faults: &mut Vec<String>) {
    let mut is_code = false;
    for (number, line) in (1..).zip(file.text.lines()) {
        is_code ^= line.trim_start().starts_with("```");
        if !is_code && !line.starts_with("    ") {
            words(line, &mut |why| faults.push(format!("{}:{number}: {why}", file.path)));
        }
    }
    if !REPORTS.iter().any(|folder| file.path.starts_with(folder)) {
        sentences::check(&file.text, &mut |number, why| faults.push(format!("{}:{number}: {why}", file.path)));
    }
}

/// The kinds of comments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `//!`
    Inner,
    /// `///`
    Outer,
    /// `//`
    Plain,
}

/// The comment that a line consists of: its kind and its text.
fn comment(line: &str) -> Option<(Kind, &str)> {
    let kinds = [("//!", Kind::Inner), ("///", Kind::Outer), ("//", Kind::Plain)];
    let line = line.trim_start();
    kinds.iter().find_map(|(mark, kind)| line.strip_prefix(mark).map(|text| (*kind, text.trim_start())))
}

/// The words at the beginning of a text that refer to something before it.
fn opening(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace().map(|word| word.trim_matches(|char: char| !char.is_alphanumeric()));
    let (first, second) = (words.next()?, words.next().unwrap_or_default());
    let is_pair = PAIRS.contains(&[first, second]);
    (is_pair || OPENINGS.contains(&first)).then_some(first)
}

/// Looks for words that are not used, and for "who" behind a thing.
fn words(text: &str, fault: &mut dyn FnMut(String)) {
    let plain = text.to_lowercase();
    for retired in RETIRED {
        let is_word = |(at, _): (usize, &str)| {
            let ends = [plain[..at].chars().next_back(), plain[at + retired.len()..].chars().next()];
            ends.iter().flatten().all(|char| !char.is_alphanumeric() && *char != '_')
        };
        if plain.match_indices(retired).any(is_word) {
            fault(format!("{retired:?} is not used"));
        }
    }
    let words: Vec<&str> = plain.split_whitespace().collect();
    for pair in words.windows(2) {
        let thing = pair[0].trim_end_matches([',', ')']);
        let thing = thing.strip_suffix('s').filter(|one| THINGS.contains(one)).unwrap_or(thing);
        if matches!(pair[1], "who" | "whom") && THINGS.contains(&thing) {
            fault(format!("a {thing} is a thing: write \"that\" or \"which\""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.into(), text: text.into() };
        let mut faults = Vec::new();
        if path == "a.rs" {
            rust(&file, &mut faults);
        } else {
            markdown(&file, &mut faults);
        }
        faults
    }

    #[test]
    fn doc_comments_that_refer_to_something_else_are_found() {
        for opening in ["The same bytes.", "Of each.", "What it does.", "Its name.", "As [`push`](x).", "Each of them."]
        {
            assert_eq!(faults("a.rs", &format!("/// {opening}\nfn f() {{}}\n")).len(), 1, "{opening}");
            assert_eq!(faults("a.rs", &format!("// {opening}\n")).len(), 0, "{opening}");
            assert_eq!(faults("a.rs", &format!("/// The name.\n/// {opening}\n")).len(), 0, "{opening}");
            assert_eq!(faults("a.rs", &format!("/// The name.\n///\n/// # Errors\n///\n/// {opening}\n")).len(), 1);
        }
        assert_eq!(
            faults("a.rs", "//! Its bytes.\n"),
            ["a.rs:1: a doc comment opens with \"Its\"; begin with the noun of the item"]
        );
    }

    #[test]
    fn long_comments_are_found_outside_code_and_tables() {
        let long = "Word. ".repeat(30);
        assert_eq!(faults("a.rs", &format!("// {long}\n")).len(), 1);
        for other in [
            format!("/// | {long} |\n"),
            format!("/// A table.\n/// ```\n/// {long}\n/// ```\n"),
            format!("let a = 1; // {long}\n"),
        ] {
            assert_eq!(faults("a.rs", &other).len(), 0, "{other}");
        }
        assert_eq!(faults("a.rs", &format!("/// A.\n/// ```\n/// b\n/// ```\n/// {long}\n")).len(), 1);
        assert_eq!(faults("a.md", &long).len(), 0);
    }

    #[test]
    fn long_sentences_are_found_in_markdown_but_not_in_reports() {
        let long = "word ".repeat(26);
        let found = "a sentence has 26 words, more than 25: \"word word word word word word\"";
        assert_eq!(faults("docs/a.md", &format!("# A\n\n{long}\n")), [format!("docs/a.md:3: {found}")]);
        assert_eq!(faults("docs/measurements/a.md", &long), [format!("docs/measurements/a.md:1: {found}")]);
        for folder in REPORTS {
            assert_eq!(faults(&format!("{folder}a.md"), &long), [""; 0]);
        }
    }

    #[test]
    fn words_that_are_not_used_are_found() {
        for text in ["It does so anew.", "Nobody waits.", "a server who waits", "the clients, who wait"] {
            assert_eq!(faults("a.rs", &format!("// {text}\n")).len(), 1, "{text}");
            assert_eq!(faults("a.md", text).len(), 1, "{text}");
            assert_eq!(faults("a.md", &format!("```\n{text}\n```\n")).len(), 0, "{text}");
        }
        assert_eq!(faults("a.md", "a user who waits in a renewed session"), [""; 0]);
    }
}
