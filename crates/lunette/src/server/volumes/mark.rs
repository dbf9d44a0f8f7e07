//! The mark of a volume that is being filled, and the identities of snapshots: words among the labels of both.

use std::time::UNIX_EPOCH;

use lunette_pools::{Labels, Snapshot};

use crate::disks::volume::FILLING;
use crate::disks::volume::takeover::{BLOCK_BYTES, OWN_LABELS};
use crate::text::digest16;

/// The label of a snapshot that was received, with the identity of the one that was sent.
pub(super) const ID: &str = "lunette.id";

/// The beginning of the labels that are of this server alone.
const OWN: &str = "lunette.";

/// The text of a part that a mark has not.
const NONE: &str = "-";

/// The mark of a volume that is being filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    /// The proof of the client that fills it.
    pub(super) token: String,
    /// The identity of the snapshot whose content it gets.
    pub(super) id: Option<String>,
    /// The identity of its snapshot whose content it had before; `None` for a new volume.
    pub(super) since: Option<String>,
    /// The bytes from the start that it has already.
    pub(super) done_bytes: u64,
}

impl Mark {
    /// The mark among labels.
    pub(super) fn of(labels: &Labels) -> Option<Self> {
        let mut parts = labels.get(FILLING)?.split(' ').map(|part| (part != NONE).then(|| part.to_owned()));
        let mut next = || parts.next().flatten();
        let (token, id, since, done) = (next(), next(), next(), next());
        let done_bytes = done.and_then(|done| done.parse().ok()).unwrap_or(0);
        Some(Self { token: token.unwrap_or_default(), id, since, done_bytes })
    }

    /// The labels of a volume, with the mark.
    pub(super) fn among(&self, labels: Labels) -> Labels {
        let part = |part: &Option<String>| part.clone().unwrap_or_else(|| NONE.into());
        let Self { token, id, since, done_bytes } = self;
        let text = format!("{token} {} {} {done_bytes}", part(id), part(since));
        let mut labels = without(labels);
        labels.insert(FILLING.into(), text);
        labels
    }
}

/// Whether a label is of this server alone.
pub(super) fn is_own(key: &str) -> bool {
    key.starts_with(OWN)
}

/// Labels without marks.
pub(super) fn without(mut labels: Labels) -> Labels {
    labels.retain(|key, _| !is_mark(key));
    labels
}

/// The labels that a user wants, with the marks that the volume has, and the length of its blocks.
pub(super) fn kept(now: &Labels, wanted: Labels) -> Labels {
    let stays =
        |(key, _): &(&String, &String)| is_mark(key) || *key == BLOCK_BYTES && !wanted.contains_key(BLOCK_BYTES);
    let stay: Labels = now.iter().filter(stays).map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut labels = without(wanted);
    labels.extend(stay);
    labels
}

fn is_mark(key: &str) -> bool {
    key == FILLING || OWN_LABELS.contains(&key)
}

/// The labels that go to another server: a schedule there would remove what has the labels of ours.
pub(super) fn of_users(mut labels: Labels) -> Labels {
    labels.retain(|key, _| !is_own(key));
    labels
}

/// The identity of a snapshot, the same in all pools that it was sent to. `serial` is that of its volume.
pub(super) fn identity(serial: &str, snapshot: &Snapshot) -> String {
    let taken = || snapshot.created.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    snapshot.labels.get(ID).cloned().unwrap_or_else(|| digest16(&format!("{serial} {}", taken())))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn labels() -> Labels {
        [("of".to_owned(), "us".to_owned())].into()
    }

    #[test]
    fn a_mark_is_read_as_it_was_put_among_labels() {
        let text = |text: &str| Some(text.to_owned());
        for (id, since) in [(None, None), (text("b2"), None), (text("b2"), text("a1"))] {
            let mark = Mark { token: "0123".into(), id, since, done_bytes: 1 << 40 };
            let marked = mark.among(labels());
            assert_eq!(Mark::of(&marked), Some(mark));
            assert_eq!(without(marked.clone()), labels());
            assert_eq!(kept(&marked, Labels::new()), without_users(marked));
        }
        assert_eq!(Mark::of(&labels()), None);
        assert_eq!(kept(&labels(), [(FILLING.to_owned(), "x".to_owned())].into()), Labels::new());
    }

    fn without_users(mut labels: Labels) -> Labels {
        labels.remove("of");
        labels
    }

    #[test]
    fn a_snapshot_keeps_its_identity_where_it_is_received() {
        let created = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_800_000_000_000_000_001);
        let sent = Snapshot { name: "monday".parse().unwrap(), len_bytes: 512, created, labels: labels() };
        let id = identity("s", &sent);
        let later = Snapshot { created: created + Duration::from_nanos(1), ..sent.clone() };
        assert!(identity("s", &later) != id && identity("t", &sent) != id);
        let received = Snapshot { labels: [(ID.to_owned(), id.clone())].into(), ..later };
        assert_eq!(identity("t", &received), id);
        assert_eq!(of_users([labels(), received.labels].into_iter().flatten().collect()), labels());
    }
}
