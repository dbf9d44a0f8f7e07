//! The form of `scst.conf`, as `scstadmin` reads it (scst.conf(5)).
//!
//! A line is a statement of up to three words. A brace begins or ends a body wherever it stands. What stands before a
//! closing brace on its line is not read, and a statement takes the place of an earlier one with the same words. A
//! backslash takes the meaning from the character behind it, before all else, so quotation marks protect blanks alone.

use std::collections::HashSet;
use std::mem::take;

use super::report::Imported;
use super::tree::{Open, Statement};

/// Words of a line that mean something.
const MAX_WORDS: usize = 3;

/// The statements of a text. What is not read is reported.
pub(super) fn read(text: &str, imported: &mut Imported) -> Result<Vec<Statement>, String> {
    let mut open = Open::default();
    for (number, line) in (1..).zip(text.lines()) {
        let mut begun = String::new();
        for character in plain(line).chars() {
            match character {
                '{' => open.begin(number, words(&take(&mut begun)))?,
                '}' => {
                    if !take(&mut begun).trim().is_empty() {
                        let what = "what stands before } on its line: scstadmin does not read it; write } on a line of its own";
                        imported.note(format!("line {number}"), what);
                    }
                    open.end(number, None)?;
                }
                other => begun.push(other),
            }
        }
        open.add(number, words(&begun));
    }
    open.finish().map(last_of_each)
}

/// A line without its comment and its backslashes. The character before the mark of a comment goes with it.
fn plain(line: &str) -> String {
    if line.starts_with('#') {
        return String::new();
    }
    let mut before = None;
    let comment = line.char_indices().find_map(|(index, character)| {
        let begins = (character == '#' && before.is_some_and(|(_, before)| before != '\\')).then_some(before);
        before = Some((index, character));
        begins.flatten()
    });
    let line = comment.map_or(line, |(begin, _)| &line[..begin]);
    let mut plain = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        plain.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    plain
}

fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() && words.len() < MAX_WORDS {
        let quoted = rest.strip_prefix('"').and_then(|quoted| quoted.split_once('"'));
        let (word, behind) =
            quoted.unwrap_or_else(|| rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())));
        words.push(word.into());
        rest = behind.trim_start();
    }
    words
}

/// Without the statements that later ones replace.
fn last_of_each(statements: Vec<Statement>) -> Vec<Statement> {
    let mut known = HashSet::new();
    let is_last = |statement: &Statement| known.insert(statement.words.clone());
    let mut kept: Vec<Statement> = statements.into_iter().rev().filter(is_last).collect();
    kept.reverse();
    for statement in &mut kept {
        statement.body = last_of_each(take(&mut statement.body));
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The statements in one line, and how many lines of the text were not read.
    fn shown(text: &str) -> (String, usize) {
        fn show(statements: &[Statement]) -> String {
            let one = |statement: &Statement| match statement.body.as_slice() {
                [] => statement.words.join("|"),
                body => format!("{} {{{}}}", statement.words.join("|"), show(body)),
            };
            statements.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        let mut imported = Imported::new(Path::new("/s"));
        let statements = read(text, &mut imported).unwrap();
        (show(&statements), imported.notes().count())
    }

    #[test]
    fn statements_are_those_that_scstadmin_reads() {
        for (text, expected, left_out) in [
            ("# comment\na b # more\n  # indented\nc", "a|b, c", 0),
            ("a {\n\tb \"c d\"\n}", "a {b|c d}", 0),
            // Semicolons are parts of words, and quotation marks do not hide comments and braces.
            ("filename /a;b", "filename|/a;b", 0),
            ("user \"joe pa\\#ss\"", "user|joe pa#ss", 0),
            ("user \"joe pa #ss\"", "user|\"joe|pa", 0),
            ("path /a\\\\b", "path|/a\\b", 0),
            ("a 1#2", "a", 0),
            // What stands before a closing brace is lost.
            ("a { b 1 }\nc", "a, c", 1),
            ("a { b 1\n} c 2", "a {b|1}, c|2", 0),
            ("a b c d e", "a|b|c", 0),
            // The last of its kind holds.
            ("h x {\nd 1\n}\nh x {\nd 2\n}\nh y", "h|x {d|2}, h|y", 0),
            ("user a\nuser b\nuser a", "user|b, user|a", 0),
        ] {
            assert_eq!(shown(text), (expected.to_owned(), left_out), "{text}");
        }
    }

    #[test]
    fn bodies_end_where_they_should() {
        let read = |text: &str| read(text, &mut Imported::new(Path::new("/s"))).unwrap_err();
        assert!(read("a {\nb {\n}").contains("line 1: a does not end"));
        assert!(read("}").contains("line 1: the end of something"));
    }
}
