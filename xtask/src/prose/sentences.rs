//! The lengths of sentences in Markdown.
//!
//! A paragraph, an item of a list and a cell of a table are texts of their own. A code span is one word, the target of
//! a link is none, and a name of the standards such as COMPARE AND WRITE is one.

/// Words that a sentence may have.
const WORDS: usize = 25;

/// Words that end with a full stop and end no sentence.
const ABBREVIATIONS: [&str; 4] = ["cf.", "e.g.", "i.e.", "vs."];

/// Passes each sentence that is too long to `fault`: the line where its text begins, and the reason.
pub(super) fn check(document: &str, fault: &mut dyn FnMut(usize, String)) {
    for (line, text) in texts(document) {
        let text = plain(&text);
        let words: Vec<&str> = text.split_whitespace().collect();
        for sentence in words.chunk_by(|word, next| !ends_sentence(word, next)) {
            let count = count(sentence);
            if count > WORDS {
                let start = sentence.iter().take(6).copied().collect::<Vec<_>>().join(" ");
                fault(line, format!("a sentence has {count} words, more than {WORDS}: {start:?}"));
            }
        }
    }
}

/// The texts outside code and headings, each with the number of its first line.
fn texts(document: &str) -> Vec<(usize, String)> {
    let mut texts: Vec<(usize, String)> = Vec::new();
    let mut is_code = false;
    // The next line may belong to the last text.
    let mut is_open = false;
    for (number, line) in (1..).zip(document.lines()) {
        let text = line.trim_start();
        let is_fence = text.starts_with("```");
        is_code ^= is_fence;
        let was_open = std::mem::take(&mut is_open);
        if is_code || is_fence || text.is_empty() || text.starts_with('#') || line.starts_with("    ") {
            continue;
        }
        if text.starts_with('|') {
            texts.extend(text.split('|').map(|cell| (number, cell.to_owned())));
            continue;
        }
        is_open = true;
        match texts.last_mut() {
            Some((_, before)) if was_open && !begins_item(text) => {
                before.push(' ');
                before.push_str(text);
            }
            _ => texts.push((number, text.to_owned())),
        }
    }
    texts
}

/// Whether a line begins an item of a list.
fn begins_item(line: &str) -> bool {
    let Some((mark, _)) = line.split_once(' ') else {
        return false;
    };
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    matches!(mark, "-" | "*") || mark.strip_suffix('.').is_some_and(is_number)
}

/// The text with the word `X` for each code span, and with links that have lost their targets.
fn plain(text: &str) -> String {
    let mut spans = String::new();
    for (index, piece) in text.split('`').enumerate() {
        spans.push_str(if index.is_multiple_of(2) { piece } else { "X" });
    }
    let mut pieces = spans.split("](");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        plain.push(']');
        plain.push_str(piece.split_once(')').map_or("", |(_, behind)| behind));
    }
    plain
}

/// Whether a sentence ends between two words. A colon ends one, because a list or an explanation of its own follows.
fn ends_sentence(word: &str, next: &str) -> bool {
    let word = word.trim_matches(['*', '_', '"', '(', ')', '[', ']']);
    let begins = |char: char| char.is_uppercase() || matches!(char, '*' | '[' | '(' | '"');
    match word.chars().next_back() {
        Some('.') => !ABBREVIATIONS.contains(&word),
        // In a ratio such as 1 : 3 the colon stands alone.
        Some(':') => word.len() > 1,
        Some(';' | '!' | '?') => next.starts_with(begins),
        _ => false,
    }
}

/// The words of a sentence. Signs such as ÷ are none.
fn count(sentence: &[&str]) -> usize {
    let words = sentence.iter().filter(|word| word.contains(char::is_alphanumeric)).count();
    let continues_name = |pair: &&[&str]| is_of_name(pair[0]) && is_of_name(pair[1]) && !pair[0].ends_with([',', ';']);
    words - sentence.windows(2).filter(continues_name).count()
}

/// Whether a word is in capitals, as the names of commands and conditions in the standards are.
fn is_of_name(word: &str) -> bool {
    let letters: Vec<char> = word.chars().filter(|char| char.is_alphabetic()).collect();
    letters.len() > 1 && letters.iter().all(|letter| letter.is_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of the sentences in `document` that are too long.
    fn long(document: &str) -> Vec<usize> {
        let mut lines = Vec::new();
        check(document, &mut |line, _| lines.push(line));
        lines
    }

    /// A sentence of this many words, without its full stop.
    fn words(count: usize) -> String {
        vec!["Word"; count].join(" ")
    }

    #[test]
    fn sentences_of_more_than_25_words_are_found_with_the_line_of_their_text() {
        assert_eq!(long(&format!("{}.", words(25))), [0; 0]);
        assert_eq!(long(&format!("{}.", words(26))), [1]);
        assert_eq!(long(&format!("# A heading\n\nShort. {}.\n", words(26))), [3]);
        let mut reason = String::new();
        check(&words(26), &mut |_, why| reason = why);
        assert_eq!(reason, "a sentence has 26 words, more than 25: \"Word Word Word Word Word Word\"");
    }

    #[test]
    fn a_sentence_goes_on_over_lines_and_ends_with_its_text() {
        let (half, other) = (words(13), words(13));
        for one in [
            format!("{half}\n{other}."),
            format!("- {half}\n  {other}."),
            format!("| {half} {other} |"),
            format!("| a |\n|---|\n| b |\n\n{half}\n{other}"),
        ] {
            assert_eq!(long(&one).len(), 1, "{one}");
        }
        for several in [
            format!("{half}\n\n{other}"),
            format!("- {half}\n- {other}"),
            format!("1. {half}\n12. {other}"),
            format!("* {half}\n* {other}"),
            format!("| {half} | {other} |"),
            format!("| {half} |\n{other}"),
            format!("{half}\n# {other}"),
            format!("{half}. {other}"),
            format!("{half}: {other}"),
            format!("{half}; {other}"),
            format!("**{half}.** {other}"),
            format!("({half}.) {other}"),
        ] {
            assert_eq!(long(&several), [0; 0], "{several}");
        }
        assert_eq!(long(&format!("{half}; {}", other.to_lowercase())), [1]);
    }

    #[test]
    fn code_spans_links_and_names_of_the_standards_are_one_word() {
        for one in [
            "`lunette serve --config FILE`",
            "[page](https://host.example/a.b:c)",
            "[`a b`](c.md#d)",
            "COMPARE AND WRITE",
            "÷ word",
        ] {
            assert_eq!(long(&format!("{} {one} and", words(23))), [0; 0], "{one}");
            assert_eq!(long(&format!("{} {one} and", words(24))), [1], "{one}");
        }
        assert_eq!(long(&format!("{} UNMAP, READ and", words(23))), [1]);
    }

    #[test]
    fn abbreviations_and_ratios_end_no_sentence() {
        for middle in ["e.g. a", "(i.e. a)", "cf. a", "1 : 3", "1.5"] {
            assert_eq!(long(&format!("{} {middle} {}.", words(13), words(13))), [1], "{middle}");
        }
    }

    #[test]
    fn code_is_no_text() {
        for code in [format!("```\n{}\n```\n", words(26)), format!("    {}\n", words(26))] {
            assert_eq!(long(&code), [0; 0], "{code}");
        }
        assert_eq!(long(&format!("```\na\n```\n{}\n", words(26))), [4]);
    }
}
