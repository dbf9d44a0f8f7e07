//! iSCSI names (RFC 7143 section 4.2.7), and the texts that a login carries beside them.

use crate::limits::{MAX_LOCAL_NAME_BYTES, MAX_NAME_BYTES};

/// Not an iSCSI name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an iSCSI name; write one such as iqn.2026-11.org.example:disk1")]
pub struct NameError(String);

/// Checks that `name` has a type (`iqn.`, `eui.`, `naa.`) and a unique part of lower-case letters, digits, dash, dot and
/// colon.
///
/// # Errors
///
/// [`NameError`], which repeats the name.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let typed = ["iqn.", "eui.", "naa."].iter().any(|kind| name.len() > kind.len() && name.starts_with(kind));
    let legal = name.chars().all(|c| c.is_alphanumeric() && !c.is_ascii_uppercase() || matches!(c, '-' | '.' | ':'));
    if typed && legal && name.len() <= MAX_NAME_BYTES { Ok(()) } else { Err(NameError(name.into())) }
}

/// Not a text that a login can carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be told in a login; write 1 to {MAX_LOCAL_NAME_BYTES} bytes without control characters")]
pub struct LocalNameError(String);

/// Checks a TargetAlias (RFC 7143 section 13.6) or a CHAP user (section 12.1.3). With another text no login could succeed.
///
/// # Errors
///
/// [`LocalNameError`], which repeats the text.
pub fn check_local_name(text: &str) -> Result<(), LocalNameError> {
    let is_told = (1..=MAX_LOCAL_NAME_BYTES).contains(&text.len()) && !text.contains(char::is_control);
    if is_told { Ok(()) } else { Err(LocalNameError(text.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_name_has_no_control_characters_and_an_end() {
        for text in ["disk", "Datenbank für Köln", "a:b c=d", &"x".repeat(MAX_LOCAL_NAME_BYTES)] {
            assert_eq!(check_local_name(text), Ok(()), "{text}");
        }
        for text in ["", "a\nb", "a\0", "\u{7f}", "\u{85}", &"x".repeat(MAX_LOCAL_NAME_BYTES + 1)] {
            assert!(check_local_name(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn names_have_a_type_and_a_unique_part() {
        for name in ["iqn.2026-11.org.example:disk1", "eui.0123456789abcdef", "naa.52004567ba64678d", "iqn.ü"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let long = format!("iqn.{}", "x".repeat(MAX_NAME_BYTES));
        for name in ["", "iqn.", "disk", "iqn.Disk", "iqn.a b", "iqn.a_b", &long] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
