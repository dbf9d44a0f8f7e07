//! The names of objects on the command line.

use std::fmt;
use std::str::FromStr;

use lunette_api::client;

use crate::failure::Failure;

/// The forms of paths of objects.
const OBJECTS: &str = "targets/IQN, targets/IQN/luns/NUMBER, targets/IQN/hosts/NAME or portals/ADDR:PORT";

/// The path of an object or a list, below `/v1/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectPath(Vec<String>);

impl ObjectPath {
    pub(super) fn sessions() -> Self {
        Self(vec!["sessions".into()])
    }

    pub(super) fn luns() -> Self {
        Self(vec!["luns".into()])
    }

    pub(super) fn session(id: u16) -> Self {
        Self(vec!["sessions".into(), id.to_string()])
    }

    pub(super) fn job(id: u64) -> Self {
        Self(vec!["jobs".into(), id.to_string()])
    }

    /// The path of an action on the object.
    pub(super) fn action(&self, name: &str) -> Self {
        Self(self.0.iter().map(String::as_str).chain(["actions", name]).map(str::to_owned).collect())
    }

    /// The path as a request has it.
    pub(super) fn url(&self) -> String {
        client::path(&self.0)
    }

    /// Whether it is that of a logical unit.
    pub(super) fn is_lun(&self) -> bool {
        matches!(self.0.as_slice(), [targets, _, luns, _] if targets == "targets" && luns == "luns")
    }

    /// Whether it is that of the logical unit of this number of a target.
    pub(super) fn is_lun_of(&self, (target, number): (&str, u64)) -> bool {
        self.is_lun() && self.0[1] == target && self.0[3].parse() == Ok(number)
    }

    /// Whether it is that of a host.
    pub(super) fn is_host(&self) -> bool {
        matches!(self.0.as_slice(), [targets, _, hosts, _] if targets == "targets" && hosts == "hosts")
    }

    /// Whether it is that of a target.
    pub(super) fn is_target(&self) -> bool {
        matches!(self.0.as_slice(), [targets, _] if targets == "targets")
    }

    /// Refuses what cannot be added, changed or removed.
    pub(super) fn check_object(&self) -> Result<(), Failure> {
        match self.0.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["targets" | "portals", _] | ["targets", _, _, _] => Ok(()),
            ["sessions", _] => Err(Failure::Usage(format!("{self} is a session; `lunette ctl kick` ends one"))),
            ["jobs", _] => Err(Failure::Usage(format!("{self} is a job; `lunette ctl jobs --cancel` ends one"))),
            _ => Err(Failure::Usage(format!("{self} is a list; name one object: {OBJECTS}"))),
        }
    }

    /// The kind of a list's entries.
    pub(super) fn last(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }
}

impl FromStr for ObjectPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let segments: Vec<_> = text.split('/').collect();
        let is_known = match segments.as_slice() {
            ["targets" | "portals" | "sessions" | "luns" | "jobs"] => true,
            ["targets" | "portals" | "sessions" | "jobs", name] => !name.is_empty(),
            ["targets", target, "luns" | "hosts"] => !target.is_empty(),
            ["targets", target, "luns" | "hosts", name] => !target.is_empty() && !name.is_empty(),
            _ => false,
        };
        if !is_known {
            return Err(format!(
                "write {OBJECTS}; or a list: targets, targets/IQN/luns, targets/IQN/hosts, luns, portals, sessions or jobs"
            ));
        }
        Ok(Self(segments.into_iter().map(str::to_owned).collect()))
    }
}

impl fmt::Display for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        for (text, url) in [
            ("targets", "/v1/targets"),
            ("targets/iqn.2026-11.org.example:db/luns/0", "/v1/targets/iqn.2026-11.org.example:db/luns/0"),
            ("portals/[::1]:3260", "/v1/portals/%5B::1%5D:3260"),
            ("targets/iqn.ü?", "/v1/targets/iqn.%C3%BC%3F"),
        ] {
            assert_eq!(text.parse::<ObjectPath>().unwrap().url(), url);
        }
        for list in ["targets", "portals", "luns", "targets/iqn.a/luns", "sessions/1", "jobs/1"] {
            let path: ObjectPath = list.parse().unwrap();
            assert!(matches!(path.check_object(), Err(Failure::Usage(why)) if why.starts_with(list)), "{list}");
        }
        for object in ["targets/iqn.a", "targets/iqn.a/luns/0", "targets/iqn.a/hosts/h", "portals/[::1]:3260"] {
            assert!(object.parse::<ObjectPath>().unwrap().check_object().is_ok(), "{object}");
        }
        for text in ["", "targets/", "targets/a/b", "target/a", "targets/a/luns/", "targets/a/luns/0/x"] {
            assert!(text.parse::<ObjectPath>().is_err(), "{text}");
        }
    }
}
