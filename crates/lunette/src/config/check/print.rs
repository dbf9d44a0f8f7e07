//! Mistakes as people read them: the place, the text, and the line with a mark.

use std::fmt;

use lunette_initiator::redacted;

use super::text::Found;
use super::{Located, Severity};

/// Characters of a line that are shown.
const MAX_SHOWN: usize = 160;

/// A mistake with its line and column, counted from 1 in characters. Passwords of URLs are not shown.
pub(super) fn located(file: &str, text: &str, severity: Severity, found: &Found) -> Located {
    let message = redacted(&found.text).into_owned();
    let (mut line, mut column, mut excerpt) = (None, None, String::new());
    if let Some(span) = found.span.clone().filter(|span| span.start <= text.len() && !text.is_empty()) {
        let start = (0..=span.start).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        let begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let shown = text[begin..].lines().next().unwrap_or_default();
        let (number, at) = (text[..start].matches('\n').count() + 1, text[begin..start].chars().count());
        let len = text.get(span).map_or(1, |part| part.lines().next().unwrap_or_default().chars().count()).max(1);
        (line, column) = (Some(number), Some(at + 1));
        excerpt = mark(number, shown, at, len);
    }
    Located { file: file.into(), line, column, severity, text: message, excerpt, subject: None }
}

fn mark(number: usize, line: &str, at: usize, len: usize) -> String {
    let line = without_secret(line);
    let (line, gutter) = (redacted(line), number.to_string());
    let at = at.min(line.chars().count());
    // What is far to the right is shown from a little before it.
    let from = if at + len > MAX_SHOWN { at.saturating_sub(20) } else { 0 };
    let shown: String = line.chars().skip(from).take(MAX_SHOWN).map(|c| if c == '\t' { ' ' } else { c }).collect();
    let left = at.saturating_sub(from).min(shown.chars().count());
    let marks = "^".repeat(len.min(shown.chars().count().saturating_sub(left)).max(1));
    let empty = " ".repeat(gutter.len());
    format!("{empty} |\n{gutter} | {shown}\n{empty} | {}{marks}", " ".repeat(left))
}

/// A line up to the value of a key that people take for one of a secret. No key of ours has one as its value.
fn without_secret(line: &str) -> &str {
    const KEYS: [&str; 4] = ["secret", "password", "passphrase", "token"];
    let value = |key: &str| {
        line.match_indices(key).find_map(|(at, _)| {
            let behind = line[at + key.len()..].trim_start_matches(['"', '\'']).trim_start().strip_prefix('=')?;
            Some(line.len() - behind.len())
        })
    };
    KEYS.into_iter().filter_map(value).min().map_or(line, |at| &line[..at])
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ": line {line}, column {column}")?;
        }
        match self.severity {
            Severity::Error => {}
            Severity::Degraded => f.write_str(": degraded")?,
            Severity::Note => f.write_str(": note")?,
        }
        write!(f, ": {}", self.text)?;
        if self.excerpt.is_empty() { Ok(()) } else { write!(f, "\n{}", self.excerpt) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_shown_with_its_line_and_a_mark() {
        let text = "a = 1\nbäh = \"iscsi://u%hush@h/iqn.a/0\"\n";
        let at = text.find("\"isc").unwrap();
        let found = Found { span: Some(at..text.len() - 1), text: "wrong".into(), object: None };
        let shown = located("f.toml", text, Severity::Error, &found);
        assert_eq!((shown.line, shown.column), (Some(2), Some(7)));
        let all = shown.to_string();
        assert!(
            all.starts_with(
                "f.toml: line 2, column 7: wrong\n  |\n2 | bäh = \"iscsi://u%***@h/iqn.a/0\"\n  |       ^^^"
            ),
            "{all}"
        );
        assert!(!all.contains("hush"));
        for span in [None, Some(900..901)] {
            let nowhere = located("f", text, Severity::Note, &Found { span, text: "x".into(), object: None });
            assert_eq!(nowhere.to_string(), "f: note: x");
        }
        for line in ["chap = [{ user = \"b\", secret = \"hush\" }]", "password=\"hush\"", "\"secret\" = 'hush'"] {
            let at = line.find("hush").unwrap();
            let found = Found { span: Some(at..at + 4), text: "unknown".into(), object: None };
            let excerpt = located("f", line, Severity::Error, &found).excerpt;
            assert!(!excerpt.contains("hush") && excerpt.contains('^'), "{excerpt}");
        }
        let file = "chap = [{ user = \"b\", secret_file = \"/s\" }]";
        let found = Found { span: Some(8..9), text: "x".into(), object: None };
        assert!(located("f", file, Severity::Error, &found).excerpt.contains("\"/s\""));
        let long = format!("k = [{}]", "1, ".repeat(200));
        let far = located("f", &long, Severity::Error, &Found { span: Some(590..591), text: "x".into(), object: None });
        assert!(far.excerpt.lines().all(|line| line.chars().count() < 200) && far.excerpt.contains('^'));
    }
}
