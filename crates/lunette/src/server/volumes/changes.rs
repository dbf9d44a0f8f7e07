//! The content of a snapshot, and what it changed of another one, as a list of ranges.

use lunette_api::Problem;
use lunette_api::limits::MAX_CHANGED_RANGES;
use lunette_api::volumes::{BaseSnapshot, ChangedRange, Changes, MovedSnapshot};
use lunette_pools::{Change, Name, PoolError, Snapshot};

use super::{At, ServedVolumes, mark, problem};

impl ServedVolumes {
    pub(super) fn list_changes(
        &self,
        at: &At,
        snapshot: &Name,
        since: Option<&Name>,
        from: u64,
    ) -> Result<Changes, Problem> {
        let pool = self.pool(at.pool.as_str())?;
        let place = self.look().pool(at.pool.as_str())?.place.place(&at.volume, Some(snapshot));
        let read = || {
            let (volume, snapshots) = (pool.volume(&at.volume)?, pool.snapshots(&at.volume)?);
            let until = find(&snapshots, at, snapshot)?.clone();
            let since = since.map(|since| find(&snapshots, at, since).cloned()).transpose()?;
            let changes = pool.changes(&at.volume, since.as_ref().map(|since| &since.name), Some(snapshot))?;
            Ok((volume, until, since, changes))
        };
        let (volume, until, since, changes) = read().map_err(|error: PoolError| problem(&error))?;
        let (ranges, next) = page(changes, from);
        Ok(Changes {
            place: super::fill::text_of(&place),
            size_bytes: until.len_bytes,
            snapshot: MovedSnapshot {
                name: until.name.to_string(),
                id: mark::identity(&volume.serial, &until),
                labels: mark::of_users(until.labels),
            },
            since: since
                .map(|since| BaseSnapshot { name: since.name.to_string(), id: mark::identity(&volume.serial, &since) }),
            serial: volume.serial,
            labels: mark::of_users(volume.labels),
            ranges,
            next,
        })
    }
}

fn find<'s>(snapshots: &'s [Snapshot], at: &At, name: &Name) -> Result<&'s Snapshot, PoolError> {
    let none = || PoolError::NoSnapshot { volume: at.volume.clone(), snapshot: name.clone() };
    snapshots.iter().find(|snapshot| snapshot.name == *name).ok_or_else(none)
}

/// The changes from an offset on, as many as an answer has, and where the next answer begins.
fn page(changes: Vec<Change>, from: u64) -> (Vec<ChangedRange>, Option<u64>) {
    let mut later = changes.into_iter().filter(|change| change.range.end > from);
    let range = |Change { range, is_zero }: Change| {
        let offset = range.start.max(from);
        ChangedRange { offset, len: range.end - offset, zero: is_zero }
    };
    let ranges = later.by_ref().take(MAX_CHANGED_RANGES).map(range).collect();
    (ranges, later.next().map(|change| change.range.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_bounded_number_of_ranges_and_the_next_one_goes_on() {
        let all: Vec<Change> = (0..MAX_CHANGED_RANGES as u64 + 2)
            .map(|number| Change { range: number * 1024..number * 1024 + 512, is_zero: number == 1 })
            .collect();
        let (first, next) = page(all.clone(), 0);
        let from = next.unwrap();
        assert_eq!((first.len(), from), (MAX_CHANGED_RANGES, MAX_CHANGED_RANGES as u64 * 1024));
        assert!(first[1].zero && !first[0].zero);
        let (rest, end) = page(all.clone(), from);
        assert_eq!((rest.len(), end), (2, None));
        let within = page(all, from + 1024 + 256).0;
        assert_eq!(within, [ChangedRange { offset: from + 1024 + 256, len: 256, zero: false }]);
    }
}
