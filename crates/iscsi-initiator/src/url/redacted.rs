//! Texts without the passwords of the URLs in them.
//!
//! The text alone decides what is shown. Messages name URLs with mistakes, and these are covered too. A part that may
//! belong to a password counts as one.

use std::borrow::Cow;

use super::parameters::is_parameter;
use crate::portal::check_bracketed;

/// The text in the place of a password. It is no password itself: [`Url::parse`](super::Url::parse) refuses it.
pub const REDACTED: &str = "***";

/// The parameter of iSCSI URLs that is a password.
pub(super) const TARGET_PASSWORD: &str = "target_password";

/// The parameter of NBD URIs, which are no URLs of this crate: a path.
const SOCKET: &str = "socket";

/// The parameter that says where the password is, so that none stands behind a user's colon.
const SECRET_FILE: &str = "chap_secret_file=";

/// The beginnings of names of targets (RFC 7143 section 4.2.7.3).
const NAME_TYPES: [&str; 3] = ["/iqn.", "/eui.", "/naa."];

/// The beginning of the name of an image in Ceph.
const RBD: &str = "rbd:";

/// The beginnings of URLs of disks, even where their slashes are missing.
const SCHEMES: [&str; 4] = ["iscsi:", "ecl:", "ecl+eth:", "iser:"];

/// The beginnings of a user's key in such a name, as QEMU writes it. Here it is a mistake.
const RBD_KEYS: [&str; 3] = [":key=", "?key=", "&key="];

/// `text` with [`REDACTED`] in the place of each password of the URLs in it: behind `USER%` and, by mistake, `USER:`.
/// Also the values of `target_password` and of unknown parameters, which may be passwords by another name. Also the
/// keys in names of images in Ceph (`key=`), which do not belong there. All else stays as it is.
///
/// A URL ends with its quotation mark, or where there is none with a space. `USER%PASSWORD@HOST` is one without a
/// scheme.
pub fn redacted(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(begin) = next_url(rest) {
        let quote = rest[..begin].chars().next_back().filter(|c| "\"'`".contains(*c));
        let is_end = |c: char| quote.map_or(c.is_whitespace() || c == '"', |quote| c == quote);
        let end = rest[begin..].find(is_end).map_or(rest.len(), |len| begin + len);
        let end = begin + before_quoted_url(&rest[begin..end]).len();
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
/// `USER:PASSWORD@HOST` is one, too.
pub fn redacted_url(text: &str) -> String {
    let has_user = text.split('/').next().is_some_and(|authority| authority.contains('@'));
    let begin = next_url(text).or(has_user.then_some(0));
    let (before, url) = text.split_at(begin.unwrap_or(text.len()));
    before.to_owned() + &of_url(url)
}

/// Where the next URL begins, or a text that is meant to be one: `iscsi:u%p@h` and `iscsi//u%p@h` are mistakes, but
/// show a password too.
fn next_url(text: &str) -> Option<usize> {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == ':';
    let before_slashes = text.find("//").map(|at| text[..at].trim_end_matches(is_scheme).len());
    let schemes = SCHEMES.iter().filter_map(|scheme| find_ignoring_case(text, scheme));
    schemes.chain(before_slashes).chain(text.find(RBD)).chain(next_user(text)).min()
}

/// The beginning of a text up to a quotation mark behind which a URL begins. What looks like a URL before may be none.
fn before_quoted_url(text: &str) -> &str {
    let is_url = |(at, _): &(usize, &str)| {
        let behind = text.as_bytes().get(at + 1..).unwrap_or_default();
        let begins =
            |scheme: &str| behind.get(..scheme.len()).is_some_and(|own| own.eq_ignore_ascii_case(scheme.as_bytes()));
        SCHEMES.into_iter().chain([RBD]).any(begins)
    };
    let mut marks = text.match_indices(['"', '\'', '`']);
    marks.find(is_url).map_or(text, |(at, _)| &text[..at])
}

/// Where the next word begins that has a user, a percent sign and an at sign: a URL without its scheme.
fn next_user(text: &str) -> Option<usize> {
    let is_end = |c: char| c.is_whitespace() || "\"'`".contains(c);
    let is_user = |word: &str| {
        let parts = word.split_once('%');
        parts.is_some_and(|(user, rest)| !user.is_empty() && !user.contains('/') && rest.contains('@'))
    };
    let mut words = text.split_inclusive(is_end);
    let mut begin = 0;
    let found = words.find(|word| {
        is_user(word) || {
            begin += word.len();
            false
        }
    });
    found.map(|_| begin)
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
    let scheme = known.or_else(|| text.find("//").filter(|at| may_be_scheme(&text[..*at]))).unwrap_or_default();
    let rest = text[scheme..].trim_start_matches('/');
    let (scheme, rest) = text.split_at(text.len() - rest.len());
    let (user, tail) = split_password(rest);
    let mut shown = scheme.to_owned();
    if let Some(user) = user {
        shown.extend([user, REDACTED]);
    }
    match tail.split_once('?') {
        Some((place, query)) => shown + place + "?" + &without_passwords(query),
        None => shown + tail,
    }
}

fn may_be_scheme(text: &str) -> bool {
    text.strip_suffix(':').unwrap_or(text).chars().all(|c| c.is_ascii_alphanumeric() || c == '+')
}

/// The user before a password, with the sign between them, and what follows the password; all of the text when there
/// is none.
fn split_password(rest: &str) -> (Option<&str>, &str) {
    let place = rest.split('?').next().unwrap_or_default();
    let authority = place.split('/').next().unwrap_or_default();
    let colon = authority.find(':').filter(|_| !rest.contains(SECRET_FILE));
    let Some(sign) = colon.into_iter().chain(place.find('%')).min() else { return (None, rest) };
    let is_of_port = Some(sign) == colon && has_port(place, authority, sign);
    if is_of_port || has_address(authority) {
        return (None, rest);
    }
    // Hosts have no at sign, and names of targets hardly ever, so a slash before one belongs to the password, and a
    // question mark behind which the only one is.
    let behind = if sign < authority.len() { rest.rfind('@') } else { None };
    let unfinished = (Some(sign) != colon && sign < authority.len()).then_some(authority.len());
    match place.rfind('@').or(behind).or(unfinished) {
        Some(end) if sign + 1 < end => (Some(&rest[..=sign]), &rest[end..]),
        _ => (None, rest),
    }
}

/// Whether the colon of an authority stands between a host and its port.
fn has_port(place: &str, authority: &str, colon: usize) -> bool {
    let is_number = authority[colon + 1..].parse::<u16>().is_ok();
    let path = &place[authority.len()..];
    is_number && (!path.contains('@') || NAME_TYPES.iter().any(|name| path.starts_with(name)))
}

/// Whether a colon or a percent sign is that of an address, as in `[fe80::1%25eth0]`.
fn has_address(authority: &str) -> bool {
    let inside = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    inside.is_some_and(|(host, _)| check_bracketed(host).is_ok())
}

/// The parameters of a URL, without the values that are passwords or may be.
fn without_passwords(query: &str) -> String {
    let mut shown = String::new();
    let mut rest = query;
    while let Some((before, value)) = rest.split_once('=') {
        let name = before.rsplit('&').next().unwrap_or_default();
        shown.extend([before, "="]);
        rest = if name != TARGET_PASSWORD && (is_parameter(name) || name == SOCKET) {
            let (value, next) = value.split_at(value.find('&').unwrap_or(value.len()));
            shown.push_str(value);
            next
        } else {
            let next = next_parameter(value);
            shown.push_str(if next.len() < value.len() { REDACTED } else { "" });
            next
        };
    }
    shown + rest
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
            ("nbd+unix:///a?socket=/run/s: lost", "nbd+unix:///a?socket=/run/s: lost"),
            ("nbd+unix:///a?socket=/run/s&key=hush", "nbd+unix:///a?socket=/run/s&key=***"),
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
            ("iscsi://u:hush@h:3260/iqn.a/0", "iscsi://u:***@h:3260/iqn.a/0"),
            ("iscsi://u:hush@[fe80::1%25eth0]/iqn.a", "iscsi://u:***@[fe80::1%25eth0]/iqn.a"),
            ("iscsi://iqn.x:u%hush@h/iqn.a/0", "iscsi://iqn.x:***@h/iqn.a/0"),
            ("https://u:hush@h:1/, \"http://u:hu sh@h/\"", "https://u:***@h:1/, \"http://u:***@h/\""),
            ("iscsi://h:3260/iqn.a@b/0?initiator=iqn.c@d", "iscsi://h:3260/iqn.a@b/0?initiator=iqn.c@d"),
            ("iscsi://iqn.x:u@h/iqn.a/0?chap_secret_file=/f", "iscsi://iqn.x:u@h/iqn.a/0?chap_secret_file=/f"),
            (
                "iscsi://u@h/iqn.a?target_pasword=hush&connections=2&password=hu&sh&secret=hush&x=",
                "iscsi://u@h/iqn.a?target_pasword=***&connections=2&password=***&secret=***&x=",
            ),
            ("no u%hush@h/iqn.a: \"u%hu/sh@h\" and 100% of u@h", "no u%***@h/iqn.a: \"u%***@h\" and 100% of u@h"),
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
            ("u%hu sh@h/iqn.a", "u%***@h/iqn.a"),
            ("u:hu sh@h/iqn.a?password=hu sh", "u:***@h/iqn.a?password=***"),
            ("u:hu//sh@h", "u:***@h"),
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
            "iscsi://u:hu/sh@h/iqn.a/x",
            "iscsi://u:hu?sh@h/iqn.a/0",
            "iscsi://u:12/sh@h/iqn.a/x",
            "iscsi://u@h/iqn.a/0?password=hush",
            "https://u:hush@h",
            "u%hush@h/iqn.a/0",
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
        for text in [
            "iscsi://u%***@h/iqn.a/0",
            "iscsi://u:***@h/iqn.a/0",
            "iscsi://u@h/iqn.a/0?target_user=t&target_password=***",
        ] {
            let error = Url::parse(text).unwrap_err().to_string();
            assert!(error.contains("stands where a password is not shown"), "{error}");
        }
    }

    #[test]
    fn what_only_looks_like_a_url_hides_none_behind_it() {
        let text = "`?%@\"iscsi://u%hush@h/iqn.a/0?target_password=hush\" iscsi://u:hush@h?secret=hush `?%@";
        assert!(!redacted(text).contains("hush"), "{}", redacted(text));
    }

    proptest! {
        #[test]
        fn no_password_of_a_url_is_shown(secret in "(Ω|%[0-9A-F]{2}){0,8}Ω", beside in "[ -~]{0,20}") {
            let text = format!(
                "{beside}\"iscsi://u%{secret}@h/iqn.a/0?target_user=t&target_password={secret}\" iscsi://u:{secret}@h?secret={secret} {beside}"
            );
            let shown = redacted(&text);
            prop_assert!(!shown.contains('Ω'), "{}", shown);
            prop_assert_eq!(&redacted(&shown), &shown, "twice");
        }
    }
}
