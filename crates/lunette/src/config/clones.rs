//! Hosts that are templates: each of their initiators gets a host of its own, with a clone of a golden image.
//!
//! The hosts and clones that initiators are given stand in no file. They are added to a configuration after it was
//! read, and taken out before another one is compared with files.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lunette_pools::{Name, NameError, Origin};
use lunette_scsi::MAX_FLAT_LUN;
use serde_json::json;

use super::hosts::{HostEntry, MappedLun};
use super::mistakes::Step;
use super::schedules::Every;
use super::{Config, LunEntry, Target, document};

/// The most clones that a template makes, unless it says otherwise.
const DEFAULT_MAX_CLONES: u32 = 256;

/// The most clones of a template.
const MAX_CLONES: u32 = 1024;

/// The numbers of a target that are left to clones when it has a template.
const CLONE_NUMBERS: u16 = 4096;

/// The origin of the clones of a template, as `POOL/VOLUME[@SNAPSHOT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CloneOf {
    pub(crate) pool: Name,
    pub(crate) origin: Origin,
}

impl FromStr for CloneOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "a clone is of POOL/VOLUME@SNAPSHOT, or of POOL/VOLUME as it is then".to_owned();
        let (pool, origin) = text.split_once('/').ok_or_else(form)?;
        let (volume, snapshot) = match origin.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(snapshot)),
            None => (origin, None),
        };
        let wrong = |error: NameError| error.to_string();
        let snapshot = snapshot.map(Name::from_str).transpose().map_err(wrong)?;
        let origin = Origin { volume: volume.parse().map_err(wrong)?, snapshot };
        Ok(Self { pool: pool.parse().map_err(wrong)?, origin })
    }
}

impl fmt::Display for CloneOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.origin)
    }
}

/// The time for which a clone outlives the last session of its initiator: `0` or an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ephemeral(pub(crate) Duration);

impl FromStr for Ephemeral {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        text.parse().map(|Every(interval)| Self(interval)).map_err(|why| format!("{why}; 0 is at once"))
    }
}

/// A host and its clone, which an initiator of a template was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) target: String,
    pub(crate) template: String,
    pub(crate) initiator: String,
    pub(crate) pool: Name,
    pub(crate) volume: Name,
    /// The number of the logical unit in the target.
    pub(crate) number: u16,
}

/// The name of the host of a template's initiator. No host of a file has a colon in its name.
pub(crate) fn host_name(template: &str, clone: &Name) -> String {
    format!("{template}:{clone}")
}

impl Given {
    /// The name of the host.
    fn host(&self) -> String {
        host_name(&self.template, &self.volume)
    }

    fn host_entry(&self, template: &HostEntry, own: &[LunEntry]) -> HostEntry {
        let all = || own.iter().map(|lun| MappedLun { number: lun.number, seen_as: None, read_only: false }).collect();
        let mut luns: Vec<MappedLun> = template.luns.clone().unwrap_or_else(all);
        luns.push(MappedLun { number: self.number, seen_as: Some(template.clone_as), read_only: false });
        HostEntry {
            name: self.host(),
            initiators: Some(vec![self.initiator.clone()]),
            luns: Some(luns),
            clone: None,
            is_given: true,
            ..template.clone()
        }
    }

    fn lun_entry(&self) -> LunEntry {
        let text = json!({ "number": self.number, "disk": format!("volume:{}/{}", self.pool, self.volume) });
        let entry: LunEntry = document::read(&text).expect("a number and the name of a volume");
        LunEntry { is_given: true, ..entry }
    }
}

impl Target {
    /// Whether initiators get hosts of their own at it.
    pub(crate) fn has_templates(&self) -> bool {
        self.hosts.iter().any(|host| host.clone.is_some())
    }

    /// The highest number that neither a file nor `given` uses.
    pub(crate) fn free_number(&self, given: &[Given]) -> Option<u16> {
        let is_given = |number| given.iter().any(|one| one.target == self.name && one.number == number);
        clone_numbers().rev().find(|number| self.lun(*number).is_none() && !is_given(*number))
    }
}

/// The numbers that are left to clones.
fn clone_numbers() -> std::ops::RangeInclusive<u16> {
    MAX_FLAT_LUN - CLONE_NUMBERS + 1..=MAX_FLAT_LUN
}

impl Config {
    /// The configuration of the files.
    pub(crate) fn without_given(&self) -> Self {
        let mut config = self.clone();
        for target in &mut config.targets {
            target.hosts.retain(|host| !host.is_given);
            target.luns.retain(|lun| !lun.is_given);
        }
        config
    }

    /// Adds what initiators were given, as far as their templates are there.
    pub(crate) fn give(&mut self, all: &[Given]) {
        for target in self.targets.iter_mut().filter(|target| target.has_templates()) {
            let own = target.luns.clone();
            for given in all.iter().filter(|given| given.target == target.name) {
                let is_of = |host: &HostEntry| host.name == given.template && host.clone.is_some();
                if let Some(at) = target.hosts.iter().position(is_of) {
                    let host = given.host_entry(&target.hosts[at], &own);
                    target.hosts.insert(at, host);
                    target.luns.push(given.lun_entry());
                }
            }
        }
        self.find_volumes();
    }

    /// The templates, with the names of their targets.
    pub(crate) fn templates(&self) -> impl Iterator<Item = (&Target, &HostEntry, &CloneOf)> {
        self.targets
            .iter()
            .flat_map(|target| target.hosts.iter().filter_map(move |host| Some((target, host, host.clone.as_ref()?))))
    }
}

impl HostEntry {
    /// The most clones that it makes.
    pub(crate) fn most_clones(&self) -> u32 {
        self.max_clones.unwrap_or(DEFAULT_MAX_CLONES)
    }
}

/// All mistakes of a host as a template, except for a pool that is not there: the key, and the reason.
pub(super) fn mistakes(host: &HostEntry, target: &Target, is_whole: bool) -> Vec<(Vec<Step>, String)> {
    let mut found = Vec::new();
    let mut wrong = |key: &'static str, why: String| found.push((vec![Step::Key(key)], why));
    if host.clone.is_none() {
        let unused = [
            ("clone_as", host.clone_as != 0),
            ("ephemeral", host.ephemeral.is_some()),
            ("max_clones", host.max_clones.is_some()),
        ];
        for (key, _) in unused.into_iter().filter(|(_, is_there)| *is_there) {
            wrong(key, format!("{key} is for hosts with clone"));
        }
        return found;
    }
    let sees_it = |seen_as: u16| seen_as == host.clone_as;
    let is_taken = match &host.luns {
        Some(luns) => luns.iter().any(|lun| sees_it(lun.seen_as.unwrap_or(lun.number))),
        None => is_whole && target.luns.iter().any(|lun| sees_it(lun.number)),
    };
    if is_taken {
        let why = "the host sees another LUN under this number; give the clone another, or write lun";
        wrong("clone_as", format!("clone_as = {}: {why}", host.clone_as));
    }
    if host.clone_as > MAX_FLAT_LUN {
        wrong("clone_as", format!("clone_as = {}: LUNs go up to {MAX_FLAT_LUN}", host.clone_as));
    }
    if !(1..=MAX_CLONES).contains(&host.most_clones()) {
        wrong("max_clones", format!("max_clones = {}: write 1 to {MAX_CLONES}", host.most_clones()));
    }
    if target.gateways.is_some() {
        wrong("clone", "the disks of gateways are the same for all; leave out clone".into());
    }
    found
}

/// The mistake of a number that is left to clones.
pub(super) fn wrong_number(target: &Target, number: u16) -> Option<String> {
    let numbers = clone_numbers();
    let is_theirs = target.has_templates() && numbers.contains(&number);
    is_theirs.then(|| format!(": the numbers from {} on are for clones, because a host has clone", numbers.start()))
}

/// Why a template can make no clones: the configuration has no such pool.
pub(super) fn unknown_pool(host: &HostEntry, config: &Config) -> Option<String> {
    let CloneOf { pool, .. } = host.clone.as_ref()?;
    let is_there = config.pools.iter().any(|entry| entry.name == *pool);
    (!is_there).then(|| format!("there is no [[pool]] {pool}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{hosts, mistakes, parse_only};

    const POOL: &str = "[[pool]]\nname = \"tank\"\nplace = \"/srv/tank\"\n";

    fn config(target: &str) -> Config {
        let mut config = parse_only(&format!("{POOL}[[target]]\nname = \"iqn.a\"\n{target}"));
        config.find_volumes();
        config
    }

    fn given(initiator: &str, volume: &str, number: u16) -> Given {
        Given {
            target: "iqn.a".into(),
            template: "web".into(),
            initiator: initiator.into(),
            pool: "tank".parse().unwrap(),
            volume: volume.parse().unwrap(),
            number,
        }
    }

    #[test]
    fn an_initiator_of_a_template_sees_its_clone_and_no_other() {
        let text = "lun = [{ number = 7, disk = \"mem:1M\" }]\n\
                    [[target.host]]\nname = \"web\"\ninitiators = [\"*\"]\nclone = \"tank/golden@v3\"\n\
                    [[target.host]]\nname = \"rest\"\nnetworks = [\"192.0.2.0/24\"]";
        let mut config = config(text);
        assert_eq!(mistakes::of(&config, true), []);
        let files = config.clone();
        config.give(&[given("iqn.x", "golden-x", 16383), given("iqn.y", "golden-y", 16382)]);
        let target = &config.targets[0];
        let names: Vec<_> = target.hosts.iter().map(|host| &*host.name).collect();
        assert_eq!(names, ["web:golden-x", "web:golden-y", "web", "rest"]);
        assert!(target.lun(16383).unwrap().disk.place.path().is_some(), "its blocks are found");
        let (read, _) = hosts::read(target, &crate::secret::SecretFiles::default()).unwrap();
        let lun = |number| lunette_scsi::Lun::new(number).unwrap();
        let seen = |host: usize, number| read[host].luns.place(lun(number)).map(|place| place.lun);
        assert_eq!([seen(0, 16383), seen(0, 7), seen(0, 16382)], [Some(lun(0)), Some(lun(7)), None]);
        assert_eq!([seen(1, 16382), seen(1, 16383)], [Some(lun(0)), None]);
        assert_eq!([seen(3, 7), seen(3, 16383)], [Some(lun(7)), None], "no host sees the clones of others");
        let templates: Vec<_> = read.iter().map(|host| host.host.is_template).collect();
        assert_eq!(templates, [false, false, true, false]);

        assert_eq!(format!("{:?}", config.without_given()), format!("{files:?}"));
        config.targets[0].hosts.retain(|host| host.name != "web");
        let mut without = config.without_given();
        without.give(&[given("iqn.x", "golden-x", 16383)]);
        assert_eq!(without.targets[0].hosts.len(), 1, "what a template has given goes with it");
    }

    #[test]
    fn clones_take_numbers_from_the_top() {
        let config = config("[[target.host]]\nname = \"web\"\nclone = \"tank/golden@v3\"");
        let all = [given("iqn.x", "x", 16383), given("iqn.y", "y", 16381)];
        assert_eq!(config.targets[0].free_number(&all), Some(16382));
    }

    #[test]
    fn mistakes_of_templates_are_named() {
        for (host, word) in [
            ("ephemeral = \"10m\"", "ephemeral is for hosts with clone"),
            ("clone = \"tank/golden\"\nclone_as = 7", "clone_as = 7: the host sees another LUN"),
            ("clone = \"tank/golden\"\nclone_as = 16384", "LUNs go up to 16383"),
            ("clone = \"tank/golden\"\nlun = [{ number = 7, as = 0 }]", "clone_as = 0: the host sees another LUN"),
            ("clone = \"tank/golden\"\nmax_clones = 0", "write 1 to 1024"),
            ("clone = \"lake/golden\"", "no [[pool]] lake"),
        ] {
            let text = format!("lun = [{{ number = 7, disk = \"mem:1M\" }}]\n[[target.host]]\nname = \"web\"\n{host}");
            let found: Vec<_> = mistakes::of(&config(&text), true).into_iter().map(|mistake| mistake.text).collect();
            assert!(found.len() == 1 && found[0].contains(word), "{host}: {found:?}");
        }
        let text = "lun = [{ number = 16000, disk = \"mem:1M\" }]\n[[target.host]]\nname = \"web\"\nclone = \"tank/a\"";
        let found = mistakes::of(&config(text), true);
        assert!(found.len() == 1 && found[0].text.contains("from 12288 on are for clones"), "{found:?}");
    }

    #[test]
    fn names_and_times_of_clones_are_read() {
        for text in ["tank/golden", "tank/golden@v3"] {
            assert_eq!(text.parse::<CloneOf>().unwrap().to_string(), text);
        }
        for wrong in ["golden@v3", "tank/", "tank/golden@", "tank/a/b"] {
            assert!(wrong.parse::<CloneOf>().is_err(), "{wrong}");
        }
        assert_eq!("0".parse(), Ok(Ephemeral(Duration::ZERO)));
        assert_eq!("10m".parse(), Ok(Ephemeral(Duration::from_mins(10))));
        assert!("10".parse::<Ephemeral>().unwrap_err().contains("0 is at once"));
    }
}
