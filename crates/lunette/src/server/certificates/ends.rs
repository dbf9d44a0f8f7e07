//! The ends of certificates and lists that are in use: what the log and the health tell of them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use lunette_api::{Cause, Health, Subject};

use super::files::Use;

/// The time before the end of a certificate at which the log warns. The packaged alert has the same.
const WARNED_BEFORE_SECONDS: i64 = 14 * 24 * 3600;

/// A file that counts until some moment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    pub(crate) of: Use,
    pub(crate) kind: Kind,
    pub(crate) file: PathBuf,
    /// In seconds since 1970.
    pub(crate) at_seconds: i64,
}

/// The content of such a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Certificates of the server. The end is that of the first one that ends.
    Certificate,
    /// The list of revoked certificates. The end is the moment at which the next list is due.
    List,
}

/// How near the end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Far,
    Soon,
    Over,
}

/// The ends of which the log has told.
static TOLD: Mutex<Told> = Mutex::new(Told(BTreeSet::new()));

/// Tells of the ends that are near and of which nothing was told yet. With `again`, of all of them.
pub(super) fn tell(ends: &[End], health: &Health, again: bool) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if again {
        *told = Told::default();
    }
    let news = told.news(ends, now);
    drop(told);
    for End { of, kind, file, at_seconds } in news {
        let (file, of) = (file.display(), of.name());
        match kind {
            Kind::Certificate => {
                let days_left = at_seconds.saturating_sub(now) / (24 * 3600);
                tracing::warn!(%file, of, days_left, "a certificate ends soon; renew it");
            }
            Kind::List => {
                tracing::warn!(%file, of, "the next list of revoked certificates is late; what was revoked since is let in");
            }
        }
    }
    let is_ended = |end: &&End| end.kind == Kind::Certificate && end.stage(now) == Stage::Over;
    // One file may be used twice, and is one trouble.
    let troubles = ends.iter().filter(is_ended).map(|End { file, .. }| {
        let text = "it has ended, and clients refuse it; renew it".to_owned();
        (Subject::Certificate(file.display().to_string()), Cause::Ended, text)
    });
    health.settle(|_, cause| cause == Cause::Ended, troubles.collect());
}

/// Ends with the stage of which was told.
#[derive(Default)]
struct Told(BTreeSet<(End, Stage)>);

impl Told {
    /// The ends of which the log has to tell now. A certificate that has ended is told by the health.
    fn news(&mut self, ends: &[End], now: i64) -> Vec<End> {
        let due = ends.iter().map(|end| (end.clone(), end.stage(now)));
        let due: BTreeSet<_> = due.filter(|(end, stage)| end.is_told_at(*stage)).collect();
        let news = due.difference(&self.0).map(|(end, _)| end.clone()).collect();
        self.0 = due;
        news
    }
}

impl End {
    fn stage(&self, now: i64) -> Stage {
        match self.at_seconds.saturating_sub(now) {
            left if left < 0 => Stage::Over,
            left if left < WARNED_BEFORE_SECONDS => Stage::Soon,
            _ => Stage::Far,
        }
    }

    /// Whether the log tells of this stage. Lists may be made for a day or two, so none of them is near its end early.
    fn is_told_at(&self, stage: Stage) -> bool {
        match self.kind {
            Kind::Certificate => stage == Stage::Soon,
            Kind::List => stage == Stage::Over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;

    fn end(kind: Kind, at_seconds: i64) -> End {
        End { of: Use::Portal, kind, file: "/tls/a.pem".into(), at_seconds }
    }

    #[test]
    fn the_end_of_a_certificate_is_told_once_until_another_one_is_in_its_place() {
        let mut told = Told::default();
        let [first, second] = [100 * DAY, 102 * DAY].map(|at| [end(Kind::Certificate, at)]);
        for (ends, now, expected) in [
            (&first[..], 86 * DAY, &[][..]),
            (&first, 86 * DAY + 1, &first),
            (&first, 99 * DAY, &[]),
            (&second, 99 * DAY, &second),
            (&[], 99 * DAY, &[]),
            (&second, 99 * DAY, &second),
        ] {
            assert_eq!(told.news(ends, now), expected, "{now}");
        }
    }

    #[test]
    fn a_list_is_told_of_when_the_next_one_is_late() {
        let (mut told, list) = (Told::default(), [end(Kind::List, 100)]);
        assert_eq!(told.news(&list, 100), []);
        assert_eq!(told.news(&list, 101), list);
        assert_eq!(told.news(&list, 102), []);
    }

    #[test]
    fn a_certificate_that_has_ended_is_a_trouble_until_it_is_renewed() {
        let health = Health::default();
        let texts = |health: &Health| health.troubles_now().iter().map(ToString::to_string).collect::<Vec<_>>();
        tell(&[end(Kind::Certificate, 1), end(Kind::List, 1)], &health, false);
        let told = texts(&health);
        assert!(told.len() == 1 && told[0].starts_with("certificate /tls/a.pem: it has ended"), "{told:?}");
        tell(&[end(Kind::Certificate, i64::MAX)], &health, true);
        assert!(texts(&health).is_empty());
    }
}
