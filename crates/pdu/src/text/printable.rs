//! Text of a peer, made fit for display.

use std::borrow::Cow;

/// Replaces each character of `text` that is invisible or changes how its neighbours look.
///
/// These are control characters, which terminals obey; line and paragraph separators; marks that turn the direction of
/// writing, with which `gpj.exe` looks like `exe.jpg`; and characters of no width, with which two names look the same.
/// RFC 3454 tables C.1 to C.9 prohibit most of them in iSCSI names; the isolates of Unicode 6.3 are newer.
///
/// Only displayed text goes through here: names are compared and sent as they came.
///
/// ```
/// use lunette_pdu::text::printable;
///
/// assert_eq!(printable("Büro 3"), "Büro 3");
/// assert_eq!(printable("\u{1b}[2Jdisk\u{202e}"), "\u{fffd}[2Jdisk\u{fffd}");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    let shown = |c| if is_printable(c) { c } else { char::REPLACEMENT_CHARACTER };
    Cow::Owned(text.chars().map(shown).collect())
}

fn is_printable(c: char) -> bool {
    let is_invisible = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}'
    );
    !c.is_control() && !is_invisible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_or_hide_is_replaced() {
        for (text, expected) in [
            ("plain \"text\" \\ 'of' a peer", "plain \"text\" \\ 'of' a peer"),
            ("Gerät № 5, 装置, جهاز", "Gerät № 5, 装置, جهاز"),
            ("\x1b]0;title\x07", "\u{fffd}]0;title\u{fffd}"),
            ("a\tb\r\nc\0", "a\u{fffd}b\u{fffd}\u{fffd}c\u{fffd}"),
            ("\u{9b}31m\u{7f}", "\u{fffd}31m\u{fffd}"),
            ("\u{202e}\u{2066}\u{2069}\u{200f}\u{61c}", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            ("a\u{2028}b\u{2029}\u{200b}\u{feff}", "a\u{fffd}b\u{fffd}\u{fffd}\u{fffd}"),
            ("\u{e0041}", "\u{fffd}"),
            ("", ""),
        ] {
            assert_eq!(printable(text), expected, "{text:?}");
        }
    }

    #[test]
    fn text_that_is_fit_for_display_is_not_copied() {
        assert!(matches!(printable("iqn.2026-11.org.example:disk"), Cow::Borrowed(_)));
    }
}
