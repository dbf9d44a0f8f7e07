//! Schedules of snapshots, as a pool has them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use glob::Pattern;
use lunette_pools::Name;
use lunette_pools::schedule::{Keep, MAX_INTERVAL, MAX_KEPT, MIN_INTERVAL};
use serde::Deserialize;

use super::yes;
use crate::text;

/// The most schedules of a pool.
pub(super) const MAX_SCHEDULES: usize = 64;

/// The longest name of a schedule: the name of a snapshot has a time behind it.
const MAX_NAME_BYTES: usize = 40;

/// Snapshots of some volumes at regular times.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleEntry {
    /// The beginning of the names of its snapshots.
    #[serde(deserialize_with = "text::read")]
    pub(crate) name: Name,
    /// The names of volumes, with `*` and `?` for any letters.
    pub(crate) volumes: Vec<String>,
    #[serde(deserialize_with = "text::read")]
    pub(crate) every: Every,
    pub(crate) keep: Keep,
    /// Whether all volumes are snapshotted at one instant.
    #[serde(default = "yes")]
    pub(crate) together: bool,
}

/// An interval, as `15m`, `1h`, `1d` or `1w`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Every(pub(crate) Duration);

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{:?} is no interval; write a number and m, h, d or w, such as 15m or 1h", text::start(text));
        let unit_secs = match text.chars().last() {
            Some('m') => 60,
            Some('h') => 3600,
            Some('d') => 86_400,
            Some('w') => 7 * 86_400,
            _ => return Err(wrong()),
        };
        let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
        let interval = number.checked_mul(unit_secs).map(Duration::from_secs).ok_or_else(wrong)?;
        if (MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
            return Ok(Self(interval));
        }
        Err(format!("{text}: an interval has 1m to 366d"))
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let units = [(7 * 86_400, "w"), (86_400, "d"), (3600, "h"), (60, "m")];
        let (unit_secs, unit) = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit)).unwrap_or((1, "s"));
        write!(f, "{}{unit}", seconds / unit_secs)
    }
}

impl ScheduleEntry {
    /// Whether it is for this volume.
    pub(crate) fn is_for(&self, volume: &Name) -> bool {
        let fits = |pattern: &String| Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(volume.as_str()));
        self.volumes.iter().any(fits)
    }

    /// The mistake of a schedule: the key, and the reason.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        if self.name.as_str().len() > MAX_NAME_BYTES {
            return Some(("name", format!("the name of a schedule has {MAX_NAME_BYTES} characters at most")));
        }
        if self.volumes.is_empty() {
            return Some(("volumes", "volumes is empty; write [\"*\"] for all".into()));
        }
        if let Some((pattern, error)) = self.volumes.iter().find_map(|one| Some((one, Pattern::new(one).err()?))) {
            return Some(("volumes", format!("{pattern:?} is no pattern: {error}")));
        }
        match self.keep.largest() {
            0 => Some(("keep", "it keeps no snapshot; write keep = { hourly = 24, daily = 7 }, for example".into())),
            kept if kept > MAX_KEPT => Some(("keep", format!("a class keeps {MAX_KEPT} snapshots at most"))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_numbers_with_a_unit() {
        for (text, seconds) in [("1m", 60), ("90m", 5400), ("1h", 3600), ("2d", 172_800), ("1w", 604_800)] {
            assert_eq!(text.parse(), Ok(Every(Duration::from_secs(seconds))), "{text}");
        }
        assert_eq!("60m".parse::<Every>().unwrap().to_string(), "1h");
        for wrong in ["", "h", "1", "1s", "0m", "1.5h", "400d", "99999999999999999999w", "1µ"] {
            assert!(wrong.parse::<Every>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn patterns_choose_volumes() {
        let schedule = |volumes: &[&str]| ScheduleEntry {
            name: "auto".parse().unwrap(),
            volumes: volumes.iter().map(ToString::to_string).collect(),
            every: "1h".parse().unwrap(),
            keep: Keep { last: 1, ..Keep::default() },
            together: true,
        };
        let is_for = |volumes: &[&str], name: &str| schedule(volumes).is_for(&name.parse().unwrap());
        assert!(is_for(&["db", "web-*"], "web-1") && is_for(&["*"], "a") && !is_for(&["db", "web-*"], "web"));
        assert_eq!(schedule(&["[a"]).mistake().unwrap().0, "volumes");
        assert_eq!(ScheduleEntry { keep: Keep::default(), ..schedule(&["*"]) }.mistake().unwrap().0, "keep");
        assert_eq!(schedule(&["*"]).mistake(), None);
    }
}
