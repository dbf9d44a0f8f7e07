//! The rules of snapshots by schedule: when one is due, and which ones stay. Without I/O and without a clock.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use time::OffsetDateTime;

/// The most snapshots that a class keeps.
pub const MAX_KEPT: u32 = 1000;

/// The shortest interval between two snapshots.
pub const MIN_INTERVAL: Duration = Duration::from_mins(1);

/// The longest interval between two snapshots.
pub const MAX_INTERVAL: Duration = Duration::from_hours(24 * 366);

/// How many snapshots stay: the newest ones, and the newest of each hour, day, week and month.
///
/// Days and weeks are those of UTC; a week begins on Monday. A snapshot stays when one class keeps it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keep {
    /// The newest ones, whenever they were taken.
    pub last: u32,
    /// The newest of each of the last hours that have one.
    pub hourly: u32,
    /// The newest of each of the last days that have one.
    pub daily: u32,
    /// The newest of each of the last weeks that have one.
    pub weekly: u32,
    /// The newest of each of the last months that have one.
    pub monthly: u32,
}

/// How many snapshots a class keeps, and the number of the hour, day and so on that a second is in.
type Class = (u32, fn(u64) -> u64);

impl Keep {
    fn classes(self) -> [Class; 5] {
        [
            (self.last, |second| second),
            (self.hourly, |second| second / 3600),
            (self.daily, |second| second / 86_400),
            // The first day of 1970 was a Thursday.
            (self.weekly, |second| (second / 86_400 + 3) / 7),
            (self.monthly, month),
        ]
    }

    /// The largest number of a class.
    pub fn largest(self) -> u32 {
        self.classes().into_iter().map(|(count, _)| count).max().unwrap_or(0)
    }

    /// The snapshots that go: those that no class keeps. `taken`: when each was, in seconds since 1970.
    ///
    /// ```
    /// use lunette_pools::schedule::Keep;
    ///
    /// let keep = Keep { last: 1, hourly: 2, ..Keep::default() };
    /// // Two in the first hour, two in the second, two in the third.
    /// assert_eq!(keep.without(&[10, 20, 3610, 3620, 7210, 7220]), [0, 1, 2, 4]);
    /// ```
    pub fn without(self, taken: &[u64]) -> Vec<usize> {
        let mut newest_first: Vec<usize> = (0..taken.len()).collect();
        newest_first.sort_by_key(|index| std::cmp::Reverse((taken[*index], *index)));
        let mut kept = BTreeSet::new();
        for (count, class) in self.classes() {
            let mut classes = BTreeSet::new();
            for index in &newest_first {
                if classes.len() >= count as usize {
                    break;
                }
                if classes.insert(class(taken[*index])) {
                    kept.insert(*index);
                }
            }
        }
        (0..taken.len()).filter(|index| !kept.contains(index)).collect()
    }
}

/// The months since the year 0.
fn month(second: u64) -> u64 {
    let time = i64::try_from(second).ok().and_then(|second| OffsetDateTime::from_unix_timestamp(second).ok());
    time.map_or(u64::MAX, |time| u64::from(time.year().unsigned_abs()) * 12 + u64::from(u8::from(time.month())))
}

/// The moment whose snapshot is due, if one is: the last multiple of the interval that has passed. All times are in
/// seconds since 1970. A server that was down takes one snapshot for all that it has missed.
///
/// ```
/// use std::time::Duration;
///
/// use lunette_pools::schedule::due;
///
/// let hour = Duration::from_secs(3600);
/// assert_eq!(due(hour, Some(3600), 7199), None);
/// assert_eq!(due(hour, Some(3600), 7201), Some(7200));
/// assert_eq!(due(hour, Some(3600), 36_001), Some(36_000));
/// ```
pub fn due(every: Duration, last: Option<u64>, now: u64) -> Option<u64> {
    let every = every.as_secs().max(1);
    let moment = now / every * every;
    last.is_none_or(|last| last < moment).then_some(moment)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> u64 {
        let [year, month, day, hour] =
            [&text[..4], &text[4..6], &text[6..8], &text[8..]].map(|part| part.parse::<u32>().unwrap());
        let date = time::Date::from_calendar_date(
            year.cast_signed(),
            u8::try_from(month).unwrap().try_into().unwrap(),
            day.try_into().unwrap(),
        );
        let midnight = date.unwrap().midnight().assume_utc().unix_timestamp();
        u64::try_from(midnight).unwrap() + u64::from(hour) * 3600
    }

    /// The hours of which a snapshot is kept.
    fn kept<'t>(keep: Keep, taken: &[&'t str]) -> Vec<&'t str> {
        let times: Vec<_> = taken.iter().map(|text| at(text)).collect();
        let gone = keep.without(&times);
        let stays = taken.iter().enumerate().filter(|(index, _)| !gone.contains(index));
        stays.map(|(_, text)| *text).collect()
    }

    #[test]
    fn weeks_begin_on_monday_and_months_on_their_first_day() {
        // 2026-11-29 is a Sunday.
        let week = Keep { weekly: 2, ..Keep::default() };
        assert_eq!(kept(week, &["2026112223", "2026112300", "2026112923", "2026113000"]), ["2026112923", "2026113000"]);
        let month = Keep { monthly: 2, ..Keep::default() };
        assert_eq!(
            kept(month, &["2026103123", "2026110100", "2026113023", "2026120100"]),
            ["2026113023", "2026120100"]
        );
        let day = Keep { daily: 1, last: 2, ..Keep::default() };
        assert_eq!(kept(day, &["2026112901", "2026112902", "2026112903"]), ["2026112902", "2026112903"]);
        assert_eq!(kept(Keep::default(), &["2026112901"]), <[&str; 0]>::default());
    }

    proptest! {
        #[test]
        fn a_class_keeps_as_many_as_it_says_and_the_newest_of_all(
            taken in prop::collection::vec(0_u64..4_000_000_000, 0..60),
            last in 0_u32..5, hourly in 0_u32..5, daily in 0_u32..5, weekly in 0_u32..5, monthly in 0_u32..5,
        ) {
            let keep = Keep { last, hourly, daily, weekly, monthly };
            let gone = keep.without(&taken);
            let stay = taken.len() - gone.len();
            prop_assert!(stay <= (last + hourly + daily + weekly + monthly) as usize);
            let newest = taken.iter().max();
            let is_kept = |second: &u64| taken.iter().enumerate().any(|(index, other)| other == second && !gone.contains(&index));
            prop_assert!(keep.largest() == 0 || newest.is_none_or(is_kept));
            // What has stayed once stays while nothing is added.
            let left: Vec<u64> = taken.iter().enumerate().filter(|(index, _)| !gone.contains(index)).map(|(_, second)| *second).collect();
            prop_assert!(keep.without(&left).is_empty());
        }

        #[test]
        fn one_is_due_once_in_each_interval(every in 60_u64..100_000, now in 0_u64..4_000_000_000) {
            let interval = Duration::from_secs(every);
            let moment = due(interval, None, now).unwrap();
            prop_assert!(moment <= now && now - moment < every);
            prop_assert_eq!(due(interval, Some(moment), now), None);
            prop_assert_eq!(due(interval, Some(moment), moment + every), Some(moment + every));
        }
    }
}
