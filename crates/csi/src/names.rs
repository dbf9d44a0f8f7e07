//! Names: of a volume in its pool, of its target, of the hosts of nodes, and the identifiers that callers get.
//!
//! All of them follow from the name that the caller suggests, so a call that is repeated finds what it made before.

use std::fmt;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::limits::{
    MAX_HOST_NAME_BYTES, MAX_ISCSI_NAME_BYTES, MAX_POOL_NAME_BYTES, MAX_SNAPSHOT_NAME_BYTES, MAX_VOLUME_NAME_BYTES,
};

/// Hexadecimal digits of the digest in a name that is not the caller's.
const DIGEST_DIGITS: usize = 16;

/// A volume, as its identifier names it: `POOL/VOLUME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId {
    /// The pool.
    pub pool: String,
    /// The volume in the pool.
    pub volume: String,
}

/// A snapshot, as its identifier names it: `POOL/VOLUME@SNAPSHOT`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId {
    /// The volume.
    pub of: VolumeId,
    /// The snapshot of the volume.
    pub snapshot: String,
}

impl VolumeId {
    /// The volume for a name that the caller suggests.
    pub fn of_name(pool: &str, name: &str) -> Self {
        Self { pool: pool.into(), volume: fitted(name, MAX_VOLUME_NAME_BYTES) }
    }

    /// Reads an identifier. `None` when no volume can have it.
    pub fn parse(text: &str) -> Option<Self> {
        let (pool, volume) = text.split_once('/')?;
        (is_pool(pool) && is_plain(volume, MAX_VOLUME_NAME_BYTES))
            .then(|| Self { pool: pool.into(), volume: volume.into() })
    }

    /// The name of the volume's target.
    pub fn target(&self, prefix: &str) -> String {
        let name = format!("{prefix}:{}:{}", iscsi_part(&self.pool), iscsi_part(&self.volume));
        debug_assert!(name.len() <= MAX_ISCSI_NAME_BYTES, "the prefix was checked");
        name
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

impl SnapshotId {
    /// Reads an identifier. `None` when no snapshot can have it.
    pub fn parse(text: &str) -> Option<Self> {
        let (volume, snapshot) = text.rsplit_once('@')?;
        let of = VolumeId::parse(volume)?;
        is_plain(snapshot, MAX_SNAPSHOT_NAME_BYTES).then(|| Self { of, snapshot: snapshot.into() })
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.of, self.snapshot)
    }
}

/// The name of a snapshot in its volume, for a name that the caller suggests.
pub fn snapshot_name(name: &str) -> String {
    fitted(name, MAX_SNAPSHOT_NAME_BYTES)
}

/// The name of the host that a target has for an initiator since a time, in nanoseconds.
pub fn host_name(initiator: &str, since: u64) -> String {
    let since = format!("-{since:016x}");
    fitted(initiator, MAX_HOST_NAME_BYTES - since.len()) + &since
}

/// Whether a pool of this name can be used, which leaves room for volumes and snapshots in identifiers.
pub fn is_pool(name: &str) -> bool {
    is_plain(name, MAX_POOL_NAME_BYTES)
}

/// Checks a name of an initiator, as RFC 7143 section 4.2.7 forms it.
///
/// # Errors
///
/// A sentence that says what is wrong with it.
pub fn check_initiator(name: &str) -> Result<(), String> {
    let has_type = ["iqn.", "eui.", "naa."].iter().any(|kind| name.starts_with(kind));
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:_".contains(c);
    if has_type && name.len() <= MAX_ISCSI_NAME_BYTES && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is no name of an initiator; write one as in /etc/iscsi/initiatorname.iscsi, such as iqn.1993-08.org.debian:01:abc"
    ))
}

/// Checks the beginning of the names of targets.
///
/// # Errors
///
/// A sentence that says what is wrong with it.
pub fn check_prefix(prefix: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:".contains(c);
    // The pool and the volume follow, each perhaps with a digest.
    let room = MAX_ISCSI_NAME_BYTES - MAX_POOL_NAME_BYTES - MAX_VOLUME_NAME_BYTES - 2 * (DIGEST_DIGITS + 2);
    if prefix.starts_with("iqn.") && prefix.len() <= room && prefix.chars().all(is_plain) {
        return Ok(());
    }
    Err(format!(
        "{prefix:?} begins no name of a target; write iqn.YEAR-MONTH.DOMAIN in lower case, of up to {room} letters, such as iqn.2026-11.org.example"
    ))
}

/// Whether a text is a name of a volume, pool or snapshot in Lunette.
fn is_plain(name: &str, max_bytes: usize) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=max_bytes).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with(['.', '-'])
}

/// The name itself when it fits, else what is left of it with a digest of all of it.
fn fitted(name: &str, max_bytes: usize) -> String {
    if is_plain(name, max_bytes) {
        return name.into();
    }
    let plain = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' });
    let kept: String = plain.skip_while(|c| "-.".contains(*c)).take(max_bytes - DIGEST_DIGITS - 1).collect();
    let separator = if kept.is_empty() { "" } else { "-" };
    format!("{kept}{separator}{}", digest(name))
}

/// A part of an iSCSI name, which is in lower case and has no underscore.
fn iscsi_part(name: &str) -> String {
    let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    if name.chars().all(is_fine) {
        return name.into();
    }
    let plain: String =
        name.chars().map(|c| c.to_ascii_lowercase()).map(|c| if is_fine(c) { c } else { '-' }).collect();
    format!("{plain}-{}", digest(name))
}

/// Digits that differ for texts that differ.
pub(crate) fn digest(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().take(DIGEST_DIGITS / 2).fold(String::new(), |mut digits, byte| {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_TEXT_BYTES;

    const PREFIX: &str = "iqn.2026-11.org.example";

    #[test]
    fn a_name_that_fits_is_kept_and_another_gets_a_digest() {
        let volume = |name: &str| VolumeId::of_name("tank", name).volume;
        assert_eq!(volume("pvc-6f5902ac-237b-4b9c-9d2f-a1b2c3d4e5f6"), "pvc-6f5902ac-237b-4b9c-9d2f-a1b2c3d4e5f6");
        let longest = "x".repeat(MAX_TEXT_BYTES);
        for name in [&longest[..], "a/b", "../../etc", "größe", "-", ".", "a b", "\0"] {
            let made = volume(name);
            assert!(is_plain(&made, MAX_VOLUME_NAME_BYTES), "{name:?} {made:?}");
            assert_eq!(made, volume(name));
        }
        assert_ne!(volume("a/b"), volume("a-b"));
        assert_ne!(volume(&longest), volume(&longest[1..]));
        assert_eq!(host_name(&"y".repeat(MAX_ISCSI_NAME_BYTES), u64::MAX).len(), MAX_HOST_NAME_BYTES);
    }

    #[test]
    fn identifiers_are_read_as_they_are_written_and_others_are_none() {
        let volume = VolumeId::of_name("tank", "db");
        assert_eq!((volume.to_string(), VolumeId::parse("tank/db")), ("tank/db".into(), Some(volume.clone())));
        let snapshot = SnapshotId { of: volume, snapshot: "monday".into() };
        assert_eq!(SnapshotId::parse(&snapshot.to_string()), Some(snapshot));
        for text in ["", "tank", "tank/", "/db", "tank/../db", "tank/a/b", "tank/db@s", "ta nk/db", "tank/.x"] {
            assert_eq!(VolumeId::parse(text), None, "{text}");
        }
        for text in ["", "tank/db", "tank/db@", "db@s", "tank/db@a@b", "tank/db@../x"] {
            assert_eq!(SnapshotId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_longest_identifier_keeps_to_the_limit_of_csi() {
        let longest = "x".repeat(MAX_TEXT_BYTES);
        let of = VolumeId::of_name(&"p".repeat(MAX_POOL_NAME_BYTES), &longest);
        let id = SnapshotId { of, snapshot: snapshot_name(&longest) }.to_string();
        assert_eq!((id.len(), SnapshotId::parse(&id).is_some()), (MAX_TEXT_BYTES, true));
    }

    #[test]
    fn targets_of_different_volumes_have_different_names() {
        let target = |pool: &str, name: &str| VolumeId::of_name(pool, name).target(PREFIX);
        assert_eq!(target("tank", "pvc-1"), "iqn.2026-11.org.example:tank:pvc-1");
        let all = [("tank", "pvc-1"), ("tank", "PVC-1"), ("tank", "pvc_1"), ("Tank", "pvc-1"), ("tan", "k-pvc-1")];
        let names: std::collections::BTreeSet<String> = all.iter().map(|(pool, name)| target(pool, name)).collect();
        assert_eq!(names.len(), all.len(), "{names:?}");
        assert!(names.iter().all(|name| check_initiator(name).is_ok() && !name.contains('_')), "{names:?}");
    }

    #[test]
    fn names_of_initiators_and_beginnings_of_targets_are_checked() {
        assert_eq!(check_initiator("iqn.1993-08.org.debian:01:abc_1"), Ok(()));
        for name in ["", "node-1", "iqn.2026-11.org.example:A", "iqn.x/../y", &format!("iqn.{}", "x".repeat(220))] {
            assert!(check_initiator(name).is_err(), "{name}");
        }
        assert_eq!(check_prefix(PREFIX), Ok(()));
        for prefix in ["", "eui.0123", "iqn.2026-11.org.Example", "iqn.a_b", &format!("iqn.{}", "x".repeat(200))] {
            assert!(check_prefix(prefix).is_err(), "{prefix}");
        }
    }
}
