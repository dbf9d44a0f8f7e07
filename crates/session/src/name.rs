//! iSCSI names (RFC 7143 section 4.2.7).

use crate::limits::MAX_NAME_BYTES;

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

#[cfg(test)]
mod tests {
    use super::*;

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
