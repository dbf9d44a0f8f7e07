//! Statements with bodies: the shape of `targets.conf`, `scst.conf` and `ctl.conf`.

use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;

/// Bodies within bodies.
const MAX_DEPTH: usize = 16;

/// Words, and the statements between the braces or tags behind them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// The file; `None` is the main file.
    pub(super) file: Option<Rc<Path>>,
    pub(super) line: usize,
    pub(super) words: Vec<String>,
    pub(super) body: Vec<Self>,
}

impl Statement {
    /// The first word.
    pub(super) fn key(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The word behind the first.
    pub(super) fn value(&self) -> Option<&str> {
        self.words.get(1).map(String::as_str)
    }

    /// The value of the first statement of the body with this key.
    pub(super) fn find(&self, key: &str) -> Option<&str> {
        self.all(key).find_map(Self::value)
    }

    /// The statements of the body with this key.
    pub(super) fn all(&self, key: &str) -> impl Iterator<Item = &Self> {
        self.body.iter().filter(move |statement| statement.key() == key)
    }
}

/// The statements of a text in which braces enclose bodies.
pub(super) fn braces(text: &str) -> Result<Vec<Statement>, String> {
    let mut open = Open::default();
    for (line, text) in numbered(text) {
        let mut words = Vec::new();
        for word in split(text, line, &['{', '}', ';'])? {
            match word {
                Word::Mark('{') => open.begin(line, std::mem::take(&mut words))?,
                Word::Mark('}') => {
                    open.add(line, std::mem::take(&mut words));
                    open.end(line, None)?;
                }
                Word::Mark(_) => open.add(line, std::mem::take(&mut words)),
                Word::Text(word) => words.push(word),
            }
        }
        open.add(line, words);
    }
    open.finish()
}

/// The statements that are open, from the outermost on.
#[derive(Default)]
pub(super) struct Open {
    file: Option<Rc<Path>>,
    done: Vec<Statement>,
    begun: Vec<Statement>,
}

impl Open {
    /// Nothing yet, of this file.
    pub(super) fn new(file: Option<Rc<Path>>) -> Self {
        Self { file, ..Self::default() }
    }

    /// A line of the file, for reports.
    pub(super) fn place(&self, line: usize) -> String {
        line_of(self.file.as_deref(), line)
    }

    /// Adds statements of another file.
    pub(super) fn splice(&mut self, statements: Vec<Statement>) {
        self.body().extend(statements);
    }

    fn body(&mut self) -> &mut Vec<Statement> {
        self.begun.last_mut().map_or(&mut self.done, |statement| &mut statement.body)
    }

    pub(super) fn add(&mut self, line: usize, words: Vec<String>) {
        if !words.is_empty() {
            let file = self.file.clone();
            self.body().push(Statement { file, line, words, body: Vec::new() });
        }
    }

    pub(super) fn begin(&mut self, line: usize, words: Vec<String>) -> Result<(), String> {
        if self.begun.len() == MAX_DEPTH {
            return Err(format!("line {line}: more than {MAX_DEPTH} bodies within each other"));
        }
        let file = self.file.clone();
        self.begun.push(Statement { file, line, words, body: Vec::new() });
        Ok(())
    }

    pub(super) fn end(&mut self, line: usize, name: Option<&str>) -> Result<(), String> {
        let statement =
            self.begun.pop().ok_or_else(|| format!("line {line}: the end of something that did not begin"))?;
        if let Some(name) = name.filter(|name| *name != statement.key()) {
            let (begun, at) = (statement.key(), statement.line);
            return Err(format!("line {line}: </{name}> ends <{begun}> of line {at}"));
        }
        self.body().push(statement);
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Vec<Statement>, String> {
        match self.begun.last() {
            Some(statement) => Err(format!("line {}: {} does not end", statement.line, statement.key())),
            None => Ok(self.done),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Word {
    Text(String),
    Mark(char),
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, text)| (index + 1, text))
}

/// The words of a line. Quotes keep blanks and marks within a word, a comment goes from `#` to the end of the line, and
/// both end a word.
fn split(text: &str, line: usize, marks: &[char]) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next().filter(|first| *first != '#') {
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').ok_or_else(|| format!("line {line}: a quote does not end"))?;
            words.push(Word::Text(quoted[..end].into()));
            rest = &quoted[end + 1..];
        } else if marks.contains(&first) {
            words.push(Word::Mark(first));
            rest = &rest[first.len_utf8()..];
        } else {
            let end =
                rest.find(|c: char| c.is_whitespace() || "\"#".contains(c) || marks.contains(&c)).unwrap_or(rest.len());
            words.push(Word::Text(rest[..end].into()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(words)
}

/// Where a statement stands, for reports.
pub(super) fn place(path: &[&str], statement: &Statement) -> String {
    let mut place = line_of(statement.file.as_deref(), statement.line);
    for name in path {
        // Writing to a string cannot fail.
        let _ = write!(place, ", {name}");
    }
    place
}

fn line_of(file: Option<&Path>, line: usize) -> String {
    file.map_or_else(|| format!("line {line}"), |file| format!("{}, line {line}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(line: usize, words: &[&str]) -> Statement {
        block(line, words, Vec::new())
    }

    fn block(line: usize, words: &[&str], body: Vec<Statement>) -> Statement {
        Statement { file: None, line, words: words.iter().map(|word| (*word).into()).collect(), body }
    }

    #[test]
    fn braces_are_trees() {
        let text = "# head\na b { c\"d e # f\"; g\n  h i } # tail\nj# end";
        let body = vec![leaf(2, &["c", "d e # f"]), leaf(2, &["g"]), leaf(3, &["h", "i"])];
        assert_eq!(braces(text).unwrap(), [block(2, &["a", "b"], body), leaf(4, &["j"])]);
    }

    #[test]
    fn what_does_not_end_or_begin_is_named() {
        for (result, expected) in [
            (braces("a {\nb {\n}"), "line 1: a does not end"),
            (braces("}"), "line 1: the end of something"),
            (braces("a \"b"), "line 1: a quote does not end"),
            (braces(&"a {".repeat(MAX_DEPTH + 1)), "more than 16 bodies"),
        ] {
            assert!(result.as_ref().unwrap_err().contains(expected), "{result:?}");
        }
    }
}
