//! Names and credentials, as far as the dashboard and ceph-iscsi take them.

use std::ops::RangeInclusive;

use crate::document::Auth;
use crate::form::Form;
use crate::limits::MAX_NAME_BYTES;
use crate::refusal::Refusal;

/// The lengths of a user's name and of a password, as ceph-iscsi takes them.
const USER_LENGTH: RangeInclusive<usize> = 8..=64;
const PASSWORD_LENGTH: RangeInclusive<usize> = 12..=16;

/// An iSCSI name, in lower case, as LIO and Lunette write it.
pub(crate) fn iqn(text: &str) -> Result<String, Refusal> {
    let lower = text.to_ascii_lowercase();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-.:_".contains(c);
    if lower.len() > MAX_NAME_BYTES || !lower.starts_with("iqn.") || !lower.chars().all(is_plain) {
        return Err(Refusal::failed(format!(
            "Invalid iqn {text} - it is not an iSCSI name such as iqn.2026-11.org.example:a"
        )));
    }
    Ok(lower)
}

/// The name of a gateway, group, pool or image.
pub(crate) fn plain(text: &str) -> Result<String, Refusal> {
    let is_plain = |c: char| !c.is_control() && !"/@,?".contains(c);
    if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.chars().all(is_plain) {
        return Err(Refusal::bad(format!("{text:?} is not a name that can be used here")));
    }
    Ok(text.to_owned())
}

/// Whether a gateway may have this name.
pub fn is_gateway_name(text: &str) -> bool {
    plain(text).is_ok()
}

/// The credentials of a form. All are empty, or the pairs are whole.
pub(crate) fn auth(form: &Form) -> Result<Auth, Refusal> {
    let text = |name| form.text(name).to_owned();
    let auth = Auth {
        username: text("username"),
        password: text("password"),
        mutual_username: text("mutual_username"),
        mutual_password: text("mutual_password"),
        ..Auth::default()
    };
    let is_user =
        |text: &str| USER_LENGTH.contains(&text.len()) && text.chars().all(|c| is_word(c) || ".:@-".contains(c));
    let is_password =
        |text: &str| PASSWORD_LENGTH.contains(&text.len()) && text.chars().all(|c| is_word(c) || "@-/".contains(c));
    let is_pair = |user: &str, password: &str| is_user(user) && is_password(password);
    if auth.has_user() && !is_pair(&auth.username, &auth.password) {
        return Err(Refusal::bad(
            "Invalid CHAP credentials: a username has 8 to 64 letters, digits and .:@_-, a password 12 to 16 letters, digits \
             and @-_/",
        ));
    }
    if auth.has_mutual_user() && !(auth.has_user() && is_pair(&auth.mutual_username, &auth.mutual_password)) {
        return Err(Refusal::bad("Invalid mutual CHAP credentials: they follow the same rules, and need the others"));
    }
    Ok(auth)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_lower_case_and_lead_nowhere_else() {
        assert_eq!(iqn("iqn.2026-11.org.Example:a").unwrap(), "iqn.2026-11.org.example:a");
        for wrong in ["", "naa.1", "iqn.a/b", "iqn.a b", "iqn.ä", &format!("iqn.{}", "a".repeat(220))] {
            assert_eq!(iqn(wrong).unwrap_err().status, 500, "{wrong}");
        }
        for wrong in ["", "a/b", "a@b", "a,b", "a\0", &"a".repeat(224)] {
            assert_eq!(plain(wrong).unwrap_err().status, 400, "{wrong}");
        }
    }

    #[test]
    fn credentials_are_whole_or_not_there() {
        let of = |text: &str| auth(&Form::parse(text.as_bytes()).unwrap());
        assert!(!of("").unwrap().has_user());
        assert!(of("username=initiator&password=secret%2Fsecret").unwrap().has_user());
        let pair = "username=initiator&password=secretsecret";
        assert!(of(&format!("{pair}&mutual_username=target-user&mutual_password=otherothero")).is_err(), "11 bytes");
        assert!(of(&format!("{pair}&mutual_username=target-user&mutual_password=otherotherother")).is_ok());
        for wrong in ["username=initiator", "password=secretsecret", "username=short&password=secretsecret"] {
            assert_eq!(of(wrong).unwrap_err().status, 400, "{wrong}");
        }
        assert!(of("mutual_username=target-user&mutual_password=otherotherother").is_err(), "needs the others");
    }
}
