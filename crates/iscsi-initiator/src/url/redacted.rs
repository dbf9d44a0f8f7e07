//! Texts without the passwords of the URLs in them.
//!
//! The text alone decides what is shown. Messages name URLs with mistakes, and these are covered too. A part that may
//! belong to a password counts as one.

use std::borrow::Cow;

use crate::portal::check_bracketed;

/// The text in the place of a password. It is no password itself: [`Url::parse`](super::Url::parse) refuses it.
pub const REDACTED: &str = "***";

/// The parameter of iSCSI URLs that is a password.
const TARGET_PASSWORD: &str = "target_password=";

/// The beginning of the name of an image in Ceph.
const RBD: &str = "rbd:";

/// The beginnings of URLs of disks, even where their slashes are missing.
const SCHEMES: [&str; 4] = ["iscsi:", "ecl:", "ecl+eth:", "iser:"];

/// The beginnings of a user's key in such a name, as QEMU writes it. Here it is a mistake.
const RBD_KEYS: [&str; 3] = [":key=", "?key=", "&key="];

/// `text` with [`REDACTED`] in the place of each password of the URLs in it: behind `USER%`, and in `target_password`.
/// Also the keys in names of images in Ceph (`key=`), which do not belong there. All else stays as it is.
///
/// A URL ends with its quotation mark, or where there is none with a space.
pub fn redacted(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(begin) = next_url(rest) {
        let quote = rest[..begin].chars().next_back().filter(|c| "\"'`".contains(*c));
        let is_end = |c: char| quote.map_or(c.is_whitespace() || c == '"', |quote| c == quote);
        let end = rest[begin..].find(is_end).map_or(rest.len(), |len| begin + len);
        shown.push_str(&rest[..begin]);
        shown.push_str(&of_url(&rest[begin..end]));
        rest = &rest[end..];
    }
    if shown.is_empty() {
        return rest.into();
    }
    shown.push_str(rest);
    shown.into()
}

/// A text that is one URL as a whole, as [`redacted`] shows it, even where its password has spaces or quotation marks.
pub fn redacted_url(text: &str) -> String {
    let (before, url) = text.split_at(next_url(text).unwrap_or(text.len()));
    before.to_owned() + &of_url(url)
}

/// Where the next URL begins, or a text that is meant to be one: `iscsi:u%p@h` and `iscsi//u%p@h` are mistakes, but
/// show a password too.
fn next_url(text: &str) -> Option<usize> {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == ':';
    let before_slashes = text.find("//").map(|at| text[..at].trim_end_matches(is_scheme).len());
    let schemes = SCHEMES.iter().filter_map(|scheme| find_ignoring_case(text, scheme));
    schemes.chain(before_slashes).chain(text.find(RBD)).min()
}

fn find_ignoring_case(text: &str, wanted: &str) -> Option<usize> {
    text.as_bytes().windows(wanted.len()).position(|window| window.eq_ignore_ascii_case(wanted.as_bytes()))
}

/// A URL without its passwords.
fn of_url(text: &str) -> String {
    if text.starts_with(RBD) {
        return without_keys(text);
    }
    let known = SCHEMES.iter().find(|scheme| find_ignoring_case(text, scheme) == Some(0)).map(|scheme| scheme.len());
    let scheme = known.or_else(|| text.find("//")).unwrap_or_default();
    let rest = text[scheme..].trim_start_matches('/');
    let (scheme, rest) = text.split_at(text.len() - rest.len());
    let (secret, mut tail) = split_password(rest);
    let mut shown = scheme.to_owned();
    if let Some(user) = secret {
        shown.extend([user, "%", REDACTED]);
    }
    while let Some(at) = tail.find(TARGET_PASSWORD) {
        let (before, value) = tail.split_at(at + TARGET_PASSWORD.len());
        shown.extend([before, REDACTED]);
        tail = next_parameter(value);
    }
    shown + tail
}

/// The user before a password, and what follows the password; all of the text when there is none.
fn split_password(rest: &str) -> (Option<&str>, &str) {
    let place = rest.split('?').next().unwrap_or_default();
    // Hosts have no at sign, and names of targets hardly ever, so a slash before one belongs to the password.
    let end = place.rfind('@').or_else(|| {
        let authority = place.split('/').next().unwrap_or_default();
        (authority.contains('%') && !has_zone(authority)).then(|| rest.rfind('@').unwrap_or(authority.len()))
    });
    match end.and_then(|end| Some((rest[..end].split_once('%')?, &rest[end..]))) {
        Some(((user, password), tail)) if !password.is_empty() => (Some(user), tail),
        _ => (None, rest),
    }
}

/// Whether the percent sign is that of an address with a zone, `[fe80::1%25eth0]`.
fn has_zone(authority: &str) -> bool {
    let inside = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    inside.is_some_and(|(host, _)| check_bracketed(host).is_ok())
}

/// The text behind a value. An ampersand behind which there is no parameter belongs to the value, by mistake.
fn next_parameter(value: &str) -> &str {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    let begins = |rest: &str| rest.split_once('=').is_some_and(|(name, _)| name.chars().all(is_name));
    value.match_indices('&').find(|(at, _)| begins(&value[at + 1..])).map_or("", |(at, _)| &value[at..])
}

fn without_keys(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = RBD_KEYS.iter().filter_map(|key| Some(rest.find(key)? + key.len())).min() {
        shown.extend([&rest[..at], REDACTED]);
        let end = rest[at..].find([':', '&']).map_or(rest.len(), |len| at + len);
        rest = &rest[end..];
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Url;

    #[test]
    fn passwords_are_replaced_and_all_else_is_shown() {
        for (text, expected) in [
            ("", ""),
            ("/srv/a%b@c.img", "/srv/a%b@c.img"),
            ("iscsi://h/iqn.a%3ab/0?chap_secret_file=/x@y", "iscsi://h/iqn.a%3ab/0?chap_secret_file=/x@y"),
            ("iscsi://u@h/iqn.a/0", "iscsi://u@h/iqn.a/0"),
            ("iscsi://u%hush@h/iqn.a/0?connections=2", "iscsi://u%***@h/iqn.a/0?connections=2"),
            (
                "ecl://u%hush@h/iqn.a/0?target_user=t&target_password=hush&coalesce=no",
                "ecl://u%***@h/iqn.a/0?target_user=t&target_password=***&coalesce=no",
            ),
            ("ecl+eth://u%hu@sh@eth0/02:00:00:00:00:01", "ecl+eth://u%***@eth0/02:00:00:00:00:01"),
            ("rbd:p/i?keyring=/k&keys=file:k", "rbd:p/i?keyring=/k&keys=file:k"),
            ("rbd:p/i:id=u:key=hush:conf=/c", "rbd:p/i:id=u:key=***:conf=/c"),
            (
                "a iscsi://u%hush@h/x and \"ecl://u%hu sh@h/y\", iscsi://h",
                "a iscsi://u%***@h/x and \"ecl://u%***@h/y\", iscsi://h",
            ),
            ("3 | disk = 'iscsi://u%hush", "3 | disk = 'iscsi://u%***"),
            ("iscsi:u%hush@h/iqn.a/0", "iscsi:u%***@h/iqn.a/0"),
            ("iscsi:/u%hush@h/iqn.a/0", "iscsi:/u%***@h/iqn.a/0"),
            ("invalid value 'ISCSI//u%hush@h' for", "invalid value 'ISCSI//u%***@h' for"),
            ("iscsi:u%hu//sh@h/iqn.a/0", "iscsi:u%***@h/iqn.a/0"),
            ("//u%hush@h?target_password=hush", "//u%***@h?target_password=***"),
            ("iscsi://[fe80::1%25eth0]:860/iqn.a/0", "iscsi://[fe80::1%25eth0]:860/iqn.a/0"),
            ("iscsi://u%hush@[fe80::1%25eth0]/iqn.a", "iscsi://u%***@[fe80::1%25eth0]/iqn.a"),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }

    #[test]
    fn a_url_alone_ends_with_its_text() {
        for (text, expected) in [
            ("iscsi://u%hu sh\"hu'sh@h/iqn.a/x", "iscsi://u%***@h/iqn.a/x"),
            ("iscsi:u%hu sh@h", "iscsi:u%***@h"),
            ("/srv/a%b@c", "/srv/a%b@c"),
            ("", ""),
        ] {
            assert_eq!(redacted_url(text), expected);
        }
    }

    #[test]
    fn parts_of_passwords_in_urls_with_mistakes_are_not_shown() {
        for text in [
            "iscsi://u%hu/sh@h/iqn.a/0",
            "iscsi://u%hu?sh@h/iqn.a/0",
            "iscsi://u%hush",
            "iscis://u%hush@h",
            "iscsi://u@h/iqn.a/0?target_user=t&target_password=hu&sh",
            "iscsi://u%hu@sh/hush@h/iqn.a/0",
            "rbd:p/i?key=hush",
        ] {
            let shown = redacted(text);
            assert!(!shown.contains("hu") && !shown.contains("sh"), "{shown}");
            let error = Url::parse(text).unwrap_err().to_string();
            assert!(!error.contains("hu") && !error.contains("sh/"), "{text}: {error}");
        }
    }

    #[test]
    fn what_stands_for_a_password_is_none() {
        for text in ["iscsi://u%***@h/iqn.a/0", "iscsi://u@h/iqn.a/0?target_user=t&target_password=***"] {
            let error = Url::parse(text).unwrap_err().to_string();
            assert!(error.contains("stands where a password is not shown"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_password_of_a_url_is_shown(secret in "(Ω|%[0-9A-F]{2}){0,8}Ω", beside in "[ -~]{0,20}") {
            let text = format!("{beside}\"iscsi://u%{secret}@h/iqn.a/0?target_user=t&target_password={secret}\" {beside}");
            let shown = redacted(&text);
            prop_assert!(!shown.contains('Ω'), "{}", shown);
            prop_assert_eq!(&redacted(&shown), &shown, "twice");
        }
    }
}
