//! iSCSI names (RFC 7143 section 4.2.7), and the texts that a login carries beside them.
//!
//! Nodes of this crate's users have names in normal form ([`check_name`]). Names of other nodes are taken and sent as
//! they are ([`check_foreign_name`]), because many targets compare bytes. Comparisons on our side fold case
//! ([`is_same_name`]), as RFC 3722 asks.

use crate::limits::{MAX_LOCAL_NAME_BYTES, MAX_NAME_BYTES};

/// Not an iSCSI name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name would be valid in lower case.
    #[error(
        "{name:?} has capitals; write {lower:?}, which is its normal form (RFC 3722). Initiators that write capitals find it all the same"
    )]
    Capitals {
        /// The name.
        name: String,
        /// The name in normal form.
        lower: String,
    },
    /// The name has no type, or characters that names do not have.
    #[error(
        "{0:?} is not an iSCSI name: it begins with iqn., eui. or naa. and has letters, digits, '-', '.' and ':' alone; write one such as \
         iqn.2026-11.org.example:disk1"
    )]
    NotAName(String),
    /// The name has characters that the names of initiators do not have.
    #[error(
        "{0:?} is not an iSCSI name: it has no blanks and no characters of patterns; write the whole name of one initiator"
    )]
    NotOneInitiator(String),
    /// The name is longer than names may be.
    #[error("an iSCSI name has at most {MAX_NAME_BYTES} bytes, and this has {0}")]
    TooLong(usize),
}

/// Checks that `name` has a type (`iqn.`, `eui.`, `naa.`) and a unique part of lower-case letters, digits, dash, dot
/// and colon.
///
/// # Errors
///
/// [`NameError`], which repeats the name. Of one with capitals it says how to write it.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong(name.len()));
    }
    if is_normal(name) {
        return Ok(());
    }
    match folded_name(name) {
        lower if is_normal(&lower) => Err(NameError::Capitals { name: name.into(), lower }),
        _ => Err(NameError::NotAName(name.into())),
    }
}

/// Checks the name by which rules know an initiator: one that it may log in with, in lower case. Underscores and names
/// without a type are common.
///
/// # Errors
///
/// [`NameError`], which repeats the name.
pub fn check_initiator_name(name: &str) -> Result<(), NameError> {
    check_foreign_name(name)?;
    if !name.chars().all(|c| c.is_alphanumeric() || OF_INITIATORS.contains(c)) {
        return Err(NameError::NotOneInitiator(name.into()));
    }
    match folded_name(name) {
        lower if lower == name => Ok(()),
        lower => Err(NameError::Capitals { name: name.into(), lower }),
    }
}

/// The marks in the names of initiators. Those of patterns are none: no rule has them.
const OF_INITIATORS: &str = "-.:_@+/=%";

fn is_normal(name: &str) -> bool {
    let typed = ["iqn.", "eui.", "naa."].iter().any(|kind| name.len() > kind.len() && name.starts_with(kind));
    typed && name.chars().all(|c| c.is_alphanumeric() && !c.is_uppercase() || matches!(c, '-' | '.' | ':'))
}

/// Checks the name of a node that may know no normal form: capitals, underscores and names without a type are common.
///
/// # Errors
///
/// [`NameError`]: it is empty or too long, or has control characters.
pub fn check_foreign_name(name: &str) -> Result<(), NameError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong(name.len()));
    }
    if name.is_empty() || name.chars().any(char::is_control) { Err(NameError::NotAName(name.into())) } else { Ok(()) }
}

/// Whether two names are of one node. RFC 3722 folds case.
pub fn is_same_name(one: &str, other: &str) -> bool {
    one.chars().flat_map(char::to_lowercase).eq(other.chars().flat_map(char::to_lowercase))
}

/// A name as nodes of one name share it, byte for byte.
pub fn folded_name(name: &str) -> String {
    name.chars().flat_map(char::to_lowercase).collect()
}

/// Not a text that a login can carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be told in a login; write 1 to {MAX_LOCAL_NAME_BYTES} bytes without control characters")]
pub struct LocalNameError(String);

/// Checks a TargetAlias (RFC 7143 section 13.6) or a CHAP user (section 12.1.3). With another text no login could
/// succeed.
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
        for name in ["", "iqn.", "disk", "Disk", "iqn.a b", "iqn.A b", "iqn.a_b"] {
            assert_eq!(check_name(name), Err(NameError::NotAName(name.into())), "{name}");
        }
        let long = format!("iqn.{}", "x".repeat(MAX_NAME_BYTES));
        assert_eq!(check_name(&long), Err(NameError::TooLong(227)));
    }

    #[test]
    fn an_initiator_has_any_name_that_is_one() {
        for name in ["iqn.2026-11.org.example:a_b", "foo", "eui.0123456789abcdef", "iqn.ü", "host@rack/1"] {
            assert_eq!(check_initiator_name(name), Ok(()), "{name}");
        }
        for name in ["iqn.a b", "iqn.x:*", "iqn.?", "iqn.a,iqn.b"] {
            assert_eq!(check_initiator_name(name), Err(NameError::NotOneInitiator(name.into())), "{name}");
        }
        assert_eq!(check_initiator_name(""), Err(NameError::NotAName(String::new())));
        let lower = "iqn.a_b".to_owned();
        assert_eq!(check_initiator_name("iqn.A_b"), Err(NameError::Capitals { name: "iqn.A_b".into(), lower }));
    }

    #[test]
    fn capitals_are_told_with_their_remedy() {
        for (name, lower) in [
            (
                "iqn.2000-01.com.synology:DiskStation.Target-1.ABCDEF",
                "iqn.2000-01.com.synology:diskstation.target-1.abcdef",
            ),
            ("IQN.2026-11.org.example:a", "iqn.2026-11.org.example:a"),
            ("eui.02004567A425678D", "eui.02004567a425678d"),
            ("naa.52004567BA64678D", "naa.52004567ba64678d"),
            ("iqn.Ü", "iqn.ü"),
        ] {
            let error = check_name(name).unwrap_err();
            assert_eq!(error, NameError::Capitals { name: name.into(), lower: lower.into() });
            assert!(error.to_string().contains(&format!("write {lower:?}")), "{error}");
        }
    }

    #[test]
    fn other_nodes_have_the_names_that_they_have() {
        for name in
            ["iqn.2000-01.com.synology:DiskStation.Target-1.ABCDEF", "EUI.02004567A425678D", "disk_1", "My Disk", "Ü"]
        {
            assert_eq!(check_foreign_name(name), Ok(()), "{name}");
        }
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for name in ["", "iqn.a\0b", "iqn.a\n", &long] {
            assert!(check_foreign_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn comparisons_fold_case() {
        for (one, other, same) in [
            ("iqn.a", "IQN.A", true),
            ("iqn.ü", "iqn.Ü", true),
            ("eui.02004567A425678D", "eui.02004567a425678d", true),
            ("iqn.a", "iqn.b", false),
            ("iqn.ü", "iqn.u", false),
        ] {
            assert_eq!(is_same_name(one, other), same, "{one} {other}");
            assert_eq!(folded_name(one) == folded_name(other), same, "{one} {other}");
        }
    }
}
