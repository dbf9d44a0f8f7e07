//! The form of `targets.conf`: that of Perl's Config::General, as `tgt-admin` asks for it.
//!
//! An option is a word, and all that follows it on the line is its value. A comment goes from `#` to the end of the
//! line, also within quotation marks. `include` takes a file, a folder or a pattern, and reads each file once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::tree::{Open, Statement};
use crate::config;

/// Files that a configuration may include.
const MAX_FILES: usize = 1024;

/// Files within files.
const MAX_DEPTH: usize = 16;

/// Bytes of all files together.
const MAX_BYTES: usize = 16 << 20;

/// Reads files that include others.
pub(super) struct Reader {
    /// Where relative names begin.
    folder: PathBuf,
    known: BTreeSet<PathBuf>,
    bytes: usize,
    depth: usize,
    /// The files that could not be included: where, and why.
    pub(super) problems: Vec<(String, String)>,
}

impl Reader {
    /// Reads the main file of `folder`, whose text is there already.
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.into(), known: BTreeSet::new(), bytes: 0, depth: 0, problems: Vec::new() }
    }

    /// The statements of a text, with those of the files that it includes in their places.
    pub(super) fn statements(&mut self, text: &str, file: Option<&Rc<Path>>) -> Result<Vec<Statement>, String> {
        let mut open = Open::new(file.cloned());
        let (mut begun, mut is_comment) = (String::new(), false);
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let Some(line) = without_comments(line, &mut is_comment) else { continue };
            if let Some(rest) = line.strip_suffix('\\').filter(|rest| !rest.ends_with('\\')) {
                begun.push_str(rest.trim_start());
                continue;
            }
            let line = std::mem::take(&mut begun) + line.trim_start();
            let line = line.trim();
            match included(line) {
                Some(what) => {
                    let statements = self.include(what, &open.place(number));
                    open.splice(statements);
                }
                None => read_line(line, number, &mut open)?,
            }
        }
        open.finish()
    }

    /// The statements of the files that a pattern, a folder or a name means.
    fn include(&mut self, what: &str, place: &str) -> Vec<Statement> {
        let path = self.folder.join(what);
        let files = match path.to_str() {
            Some(pattern) if what.contains(['*', '?', '[']) => matching(pattern),
            _ if path.is_dir() => in_folder(&path),
            _ => Ok(vec![path]),
        };
        let files = files.unwrap_or_else(|why| {
            self.problems.push((place.into(), format!("include {what}: {why}")));
            Vec::new()
        });
        files.into_iter().flat_map(|file| self.read(&file, place)).collect()
    }

    fn read(&mut self, file: &Path, place: &str) -> Vec<Statement> {
        let known = file.canonicalize().unwrap_or_else(|_| file.into());
        if self.known.contains(&known) {
            return Vec::new();
        }
        let too_many = self.known.len() >= MAX_FILES || self.depth >= MAX_DEPTH || self.bytes >= MAX_BYTES;
        self.known.insert(known);
        let text = match config::read_bounded(file) {
            _ if too_many => Err(format!("{}: too many files are included", file.display())),
            text => text.map_err(|failure| failure.to_string()),
        };
        self.depth += 1;
        let statements = text.and_then(|text| {
            self.bytes += text.len();
            self.statements(&text, Some(&file.into())).map_err(|why| format!("{}: {why}", file.display()))
        });
        self.depth -= 1;
        statements.unwrap_or_else(|why| {
            self.problems.push((place.into(), format!("include {why}")));
            Vec::new()
        })
    }
}

/// The regular files that a pattern means, in their order.
fn matching(pattern: &str) -> Result<Vec<PathBuf>, String> {
    let options =
        glob::MatchOptions { require_literal_leading_dot: true, require_literal_separator: true, ..Default::default() };
    let paths = glob::glob_with(pattern, options).map_err(|error| error.to_string())?;
    Ok(paths.filter_map(Result::ok).filter(|path| path.is_file()).take(MAX_FILES).collect())
}

fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut files: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect();
    files.sort();
    files.truncate(MAX_FILES);
    Ok(files)
}

/// A line without its comment; `None` when it lies within a comment of C as a whole.
fn without_comments<'a>(line: &'a str, is_comment: &mut bool) -> Option<&'a str> {
    let trimmed = line.trim();
    if *is_comment || trimmed.starts_with("/*") {
        let end = trimmed.find("*/");
        *is_comment = end.is_none();
        return end.map(|at| &trimmed[at + 2..]).filter(|rest| !rest.trim().is_empty());
    }
    let is_escaped = |at: usize| line[..at].ends_with('\\');
    let end = line.match_indices('#').map(|(at, _)| at).find(|at| !is_escaped(*at)).unwrap_or(line.len());
    Some(line[..end].trim_end())
}

/// The files that a line includes: `include FILE`, as Apache has it, or `<<include FILE>>`. The word may be in
/// capitals.
fn included(line: &str) -> Option<&str> {
    let line = line.strip_prefix("<<").and_then(|line| line.strip_suffix(">>")).unwrap_or(line).trim();
    let (word, rest) = line.split_once(|c: char| c.is_whitespace() || c == '"')?;
    let is_include = ["include", "includeoptional"].iter().any(|known| word.eq_ignore_ascii_case(known));
    is_include.then(|| unquoted(line[word.len()..].trim())).filter(|_| !rest.trim().is_empty())
}

fn read_line(line: &str, number: usize, open: &mut Open) -> Result<(), String> {
    if let Some(name) = line.strip_prefix("</").and_then(|rest| rest.strip_suffix('>')) {
        return open.end(number, Some(name.trim()));
    }
    if let Some(tag) = line.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
        let (tag, is_empty) =
            tag.strip_suffix('/').filter(|tag| is_closed(tag)).map_or((tag, false), |tag| (tag, true));
        let (key, name) = tag.trim().split_once(char::is_whitespace).unwrap_or((tag.trim(), ""));
        open.begin(number, words(unquoted(key), unquoted(name.trim())))?;
        return if is_empty { open.end(number, None) } else { Ok(()) };
    }
    let end = line.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(line.len());
    let value = line[end..].trim_start();
    let value = value.strip_prefix('=').map_or(value, str::trim_start);
    open.add(number, words(&line[..end], &unescaped(unquoted(value))));
    Ok(())
}

/// Whether the slash behind a tag ends it at once, and is no end of a path: `<target iqn.a/>`, but `<backing-store
/// /srv/>`.
fn is_closed(tag: &str) -> bool {
    !tag.trim_start().starts_with("backing-store")
}

fn words(key: &str, value: &str) -> Vec<String> {
    let words = [key, value].into_iter().filter(|word| !word.is_empty());
    words.map(ToOwned::to_owned).collect()
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

/// A backslash stands before characters that would mean something else.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match rest.peek() {
            Some('$' | '\\' | '"' | '#') if character == '\\' => plain.extend(rest.next()),
            _ => plain.push(character),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn shown(statements: &[Statement]) -> String {
        let one = |statement: &Statement| match statement.body.as_slice() {
            [] => statement.words.join("="),
            body => format!("{}{{{}}}", statement.words.join("="), shown(body)),
        };
        statements.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    fn read(text: &str) -> Result<String, String> {
        Reader::new(Path::new("/nonexistent")).statements(text, None).map(|statements| shown(&statements))
    }

    #[test]
    fn lines_are_read_as_tgt_admin_does() {
        for (text, expected) in [
            ("x y\n<a b>\n c d # e\n <f g>\n  h\n </f>\n</a>", "x=y; a=b{c=d; f=g{h}}"),
            ("\ta\t \t1  \r\n b = 2\r\nc=3\r\n", "a=1; b=2; c=3"),
            ("backing-store /srv/my disk.img", "backing-store=/srv/my disk.img"),
            ("backing-store \"/srv/my disk.img\"", "backing-store=/srv/my disk.img"),
            ("incominguser \"alice secret\"", "incominguser=alice secret"),
            ("incominguser alice se\\#cret\\\\", "incominguser=alice se#cret\\"),
            ("a b \\\n   c\nd e", "a=b c; d=e"),
            ("/* x\n y */\na b\n/* one line */ c d", "a=b; c=d"),
            ("<target \"iqn.a\">\n</target>", "target=iqn.a"),
            ("<target iqn.a/>\n", "target=iqn.a"),
            ("#x\n   # y\n\n", ""),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_does_not_end_or_begin_is_named() {
        for (text, expected) in [
            ("<a>\n</b>", "line 2: </b> ends <a> of line 1"),
            ("<a b>\nc d", "line 1: a does not end"),
            ("</a>", "line 1: the end of something"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn files_folders_and_patterns_are_included_once_each() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::create_dir_all(place("conf.d")).unwrap();
        fs::create_dir_all(place("more")).unwrap();
        fs::write(place("conf.d/b.conf"), "b 1").unwrap();
        fs::write(place("conf.d/a.conf"), "a 1\ninclude more\n").unwrap();
        fs::write(place("conf.d/.hidden.conf"), "hidden 1").unwrap();
        fs::write(place("conf.d/other"), "other 1").unwrap();
        fs::write(place("more/m"), "<t x>\nm 1\n</t>\ninclude conf.d/*.conf").unwrap();
        fs::write(place("more/wrong"), "<t x>").unwrap();
        let mut reader = Reader::new(folder.path());
        let text = format!(
            "Include {}/conf.d/*.conf\ninclude no-such/*\ninclude missing\n<t y>\n<<include conf.d/other>>\n</t>",
            folder.path().display()
        );
        let statements = reader.statements(&text, None).unwrap();
        assert_eq!(shown(&statements), "a=1; t=x{m=1}; b=1; t=y{other=1}");
        let problems: Vec<_> = reader.problems.iter().map(|(at, why)| format!("{at}: {why}")).collect();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems[0].contains("a.conf, line 2: include")
                && problems[0].contains("more/wrong: line 1: t does not end"),
            "{problems:?}"
        );
        assert!(problems[1].starts_with("line 3: include ") && problems[1].contains("missing"), "{problems:?}");
    }
}
