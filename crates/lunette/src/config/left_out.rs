//! Objects with mistakes: they are left out, and all others are served.
//!
//! A portal or a target with a mistake is left out as a whole: a target without one of its rules would be more open
//! than its file says. Two of its parts have their mistakes for themselves. A logical unit goes alone, because nothing
//! depends on it. A host is shut: it lets no initiator in, and no later host takes its initiators.

use std::collections::BTreeMap;
use std::fmt;

use lunette_api::Subject;
use lunette_initiator::redacted;

use super::mistakes::{Mistake, Step};
use super::{Config, Target};

/// An object that is not served as its text says.
#[derive(Debug, Clone)]
pub(crate) struct LeftOut {
    pub(crate) subject: Subject,
    /// The mistake.
    pub(crate) why: String,
    /// The mistake with its line, where that is known.
    pub(crate) place: Option<String>,
}

impl LeftOut {
    /// `why` may begin with the subject.
    pub(crate) fn new(subject: Subject, why: &str) -> Self {
        let why = redacted(why).into_owned();
        let why = why.strip_prefix(&format!("{subject}: ")).map_or(why.clone(), str::to_owned);
        Self { subject, why, place: None }
    }

    /// The mistake for people.
    pub(crate) fn text(&self) -> &str {
        self.place.as_ref().unwrap_or(&self.why)
    }

    /// Whether it is the mistake `other`, wherever that stands.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (&self.subject, &self.why) == (&other.subject, &other.why)
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.why)
    }
}

/// A part of a configuration that can be left out. Parts within others come behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Listen(usize),
    Portal(usize),
    Target(usize),
    Lun(usize, usize),
    Host(usize, usize),
}

impl Part {
    /// The part that this place is in.
    fn of(at: &[Step]) -> Option<Self> {
        match at {
            [Step::Key("target"), Step::Index(target), Step::Key("lun"), Step::Index(lun), ..] => {
                Some(Self::Lun(*target, *lun))
            }
            // By its name a host is known, so without one there is no telling what is served.
            [Step::Key("target"), Step::Index(target), Step::Key("host"), Step::Index(host), rest @ ..]
                if rest.first() != Some(&Step::Key("name")) =>
            {
                Some(Self::Host(*target, *host))
            }
            [Step::Key("target"), Step::Index(target), ..] => Some(Self::Target(*target)),
            [Step::Key("portal"), Step::Index(portal), ..] => Some(Self::Portal(*portal)),
            [Step::Key("listen"), Step::Index(listen), ..] => Some(Self::Listen(*listen)),
            _ => None,
        }
    }

    fn subject(self, config: &Config) -> Option<Subject> {
        match self {
            Self::Listen(at) => config.listen.as_ref()?.get(at).map(|listen| Subject::Portal(listen.to_string())),
            Self::Portal(at) => config.portals.get(at).map(|portal| Subject::Portal(portal.address.to_string())),
            Self::Target(at) => config.targets.get(at).map(|target| Subject::Target(target.name.clone())),
            Self::Lun(target, at) => {
                let target = config.targets.get(target)?;
                target.luns.get(at).map(|lun| Subject::lun(&*target.name, lun.number))
            }
            Self::Host(target, at) => {
                let target = config.targets.get(target)?;
                target.hosts.get(at).map(|host| Subject::host(&*target.name, &*host.name))
            }
        }
    }

    fn remove(self, config: &mut Config) {
        match self {
            Self::Listen(at) => drop(config.listen.as_mut().map(|listen| listen.remove(at))),
            Self::Portal(at) => drop(config.portals.remove(at)),
            Self::Target(at) => drop(config.targets.remove(at)),
            Self::Lun(target, at) => {
                let target = &mut config.targets[target];
                if let Some(number) = target.luns.get(at).map(|lun| lun.number) {
                    target.leave_out(number);
                }
            }
            Self::Host(target, at) => config.targets[target].hosts[at].shut(),
        }
    }
}

/// The object that this place of a configuration belongs to, if it can be left out.
pub(crate) fn object_at(config: &Config, at: &[Step]) -> Option<Subject> {
    Part::of(at)?.subject(config)
}

impl Config {
    /// Leaves out the objects with mistakes.
    ///
    /// # Errors
    ///
    /// All mistakes, when one of them stands in no object.
    pub(crate) fn leave_out(&mut self, mistakes: Vec<Mistake>) -> Result<Vec<LeftOut>, String> {
        if mistakes.iter().any(|mistake| Part::of(&mistake.at).is_none()) {
            let all: Vec<_> = mistakes.into_iter().map(|mistake| mistake.text).collect();
            return Err(all.join("; "));
        }
        let mut parts: BTreeMap<Part, Vec<String>> = BTreeMap::new();
        for Mistake { at, text } in mistakes {
            if let Some(part) = Part::of(&at) {
                parts.entry(part).or_default().push(text);
            }
        }
        let of_part = |(part, texts): (&Part, &Vec<String>)| Some(LeftOut::new(part.subject(self)?, &texts.join("; ")));
        let left_out = parts.iter().filter_map(of_part).collect();
        parts.into_keys().rev().for_each(|part| part.remove(self));
        Ok(left_out)
    }

    /// Keeps what was served before of the objects that are left out now.
    pub(super) fn keep(&mut self, before: &Self, left_out: &[LeftOut]) {
        for LeftOut { subject, .. } in left_out {
            match subject {
                Subject::Target(name) if self.target(name).is_none() => {
                    self.targets.extend(before.target(name).cloned());
                }
                Subject::Lun { target, number } => {
                    let known = before.target(target).and_then(|target| target.lun(*number)).cloned();
                    if let Some(target) = self.targets.iter_mut().find(|known| known.name == *target)
                        && target.lun(*number).is_none()
                    {
                        target.luns.extend(known);
                    }
                }
                Subject::Host { target, name } => {
                    let known = before.target(target).and_then(|target| target.host(name)).cloned();
                    let targets = self.targets.iter_mut().filter(|known| known.name == *target);
                    let shut =
                        targets.flat_map(|target| &mut target.hosts).find(|host| host.name == *name && host.is_shut);
                    shut.into_iter().zip(known).for_each(|(shut, known)| *shut = known);
                }
                Subject::Portal(name) => {
                    let is_named = |portal: &&super::Portal| portal.address.to_string() == *name;
                    if !self.portals.iter().any(|portal| is_named(&portal)) {
                        self.portals.extend(before.portals.iter().find(is_named).cloned());
                    }
                }
                _ => {}
            }
        }
    }

    /// Gives an object back what it was before.
    pub(crate) fn restore(&mut self, before: &Self, subject: &Subject) {
        let Some(old) = subject.target().and_then(|name| before.target(name)) else { return };
        let Some(new) = self.targets.iter_mut().find(|target| target.name == old.name) else { return };
        match subject {
            Subject::Lun { number, .. } => {
                let lun = new.luns.iter_mut().find(|lun| lun.number == *number);
                lun.into_iter().zip(old.lun(*number)).for_each(|(new, old)| new.clone_from(old));
            }
            _ => new.clone_from(old),
        }
    }

    /// The target of this name.
    pub(crate) fn target(&self, name: &str) -> Option<&Target> {
        self.targets.iter().find(|target| target.name == name)
    }
}

#[cfg(test)]
mod tests {
    use lunette_scsi::Lun;

    use crate::config::hosts::{self, HostEntry};
    use crate::config::{Config, SHUT, mistakes, parse_only};
    use crate::secret::SecretFiles;

    /// The names of what is served, and what is not.
    fn served(text: &str, before: Option<&str>) -> (String, Vec<String>) {
        let mut config = parse_only(text);
        let mut left_out = config.leave_out(mistakes::of(&config, true)).unwrap();
        if let Some(before) = before {
            config.keep(&parse_only(before), &left_out);
            left_out.extend(config.leave_out(mistakes::of(&config, true)).unwrap());
        }
        let targets = config.targets.iter().map(|target| {
            let luns: Vec<_> = target.luns.iter().map(|lun| format!("{}={}", lun.number, lun.disk.place)).collect();
            format!("{}[{}]", target.name, luns.join(" "))
        });
        let portals = config.portals().into_iter().map(|portal| portal.address.port().to_string());
        let all: Vec<_> = portals.chain(targets).collect();
        (all.join(" "), left_out.iter().map(|one| one.subject.to_string()).collect())
    }

    #[test]
    fn each_mistake_takes_its_own_object_away_and_no_other() {
        const GOOD: &str =
            "listen = [\"192.0.2.1:1\"]\n[[target]]\nname = \"iqn.a\"\nlun = [{ number = 0, disk = \"mem:1M\" }]\n";
        let good = "1 iqn.a[0=mem:1048576]";
        for (bad, lost) in [
            ("name = \"iqn.B\"", "target iqn.B"),
            ("name = \"iqn.a\"", "target iqn.a"),
            ("name = \"iqn.b\"\nmax_connections = 0", "target iqn.b"),
            ("name = \"iqn.b\"\nallow = [\"x y\"]", "target iqn.b"),
            ("name = \"iqn.b\"\nredirect = { to = [] }", "target iqn.b"),
            ("name = \"iqn.b\"\nmarker_interval = 1", "target iqn.b"),
            ("name = \"iqn.b\"\nmutual_chap = { user = \"u\", secret_file = \"/s\" }", "target iqn.b"),
            ("name = \"iqn.b\"\n[[target.host]]\nname = \"h h\"", "target iqn.b"),
            ("name = \"iqn.b\"\n[[target.host]]\nname = \"h\"\n[[target.host]]\nname = \"h\"", "target iqn.b"),
            (
                "name = \"iqn.b\"\n[[target.port_group]]\nid = 1\nlun = [{ number = 7, state = \"standby\" }]",
                "target iqn.b",
            ),
            ("name = \"iqn.b\"\ngateways = { group = 2, groups = [1, 2] }", "target iqn.b"),
        ] {
            assert_eq!(served(&format!("{GOOD}[[target]]\n{bad}\n"), None), (good.into(), vec![lost.into()]), "{bad}");
        }
        let portals = [
            ("[[portal]]\naddress = \"192.0.2.1:1\"", "portal 192.0.2.1:1"),
            ("[[portal]]\naddress = \"[::1]:2\"\ngroup = 0", "portal [::1]:2"),
        ];
        for (bad, lost) in portals {
            assert_eq!(served(&format!("{GOOD}{bad}\n"), None), (good.into(), vec![lost.into()]), "{bad}");
        }
    }

    #[test]
    fn a_logical_unit_goes_alone_and_of_two_with_one_number_none_is_served() {
        let with = |luns: &str| {
            let text = format!(
                "listen = []\n[api]\nlisten = [\"unix:/a\"]\n[[target]]\nname = \"iqn.a\"\nlun = [{{ number = 9, disk = \"/k\" }}, {luns}]"
            );
            served(&text, None)
        };
        for luns in [
            "{ number = 1, disk = \"/x\", block_size = 5 }",
            "{ number = 1, disk = \"mem:1M\", provisioning = \"full\" }",
            "{ number = 1, disk = \"/x\", create = \"1000\" }",
            "{ number = 1, disk = \"/x\", vendor = \"muchtoolongvendor\" }",
            "{ number = 1, disk = \"/x\", serial = \"\" }",
            "{ number = 1, disk = \"/x\", sanitize_rate = \"1K\" }",
            "{ number = 1, disk = \"/x\" }, { number = 1, disk = \"/y\" }",
            "{ number = 1, disk = \"/k?keys=file:f\" }",
        ] {
            assert_eq!(with(luns), ("iqn.a[9=/k]".into(), vec!["target iqn.a: LUN 1".into()]), "{luns}");
        }
    }

    /// The hosts of `iqn.a`, those that are shut in parentheses, each with the initiators that it is for.
    fn hosts(config: &Config) -> Vec<String> {
        let host = |host: &HostEntry| {
            let initiators = host.initiators.as_ref().map_or("*".into(), |all| all.join(" "));
            let text = format!("{}={initiators}", host.name);
            if host.is_shut { format!("({text})") } else { text }
        };
        config.target("iqn.a").map(|target| target.hosts.iter().map(host).collect()).unwrap_or_default()
    }

    #[test]
    fn a_host_with_a_mistake_is_shut_and_the_others_are_served() {
        for (bad, shut) in [
            ("initiators = [\"iqn.h\"]\nlun = [{ number = 7 }]", "(bad=iqn.h)"),
            ("initiators = [\"iqn.h\"]\nmutual_chap = { user = \"u\", secret_file = \"/s\" }", "(bad=iqn.h)"),
            // The initiator that it means may be any.
            ("initiators = [\"iqn.h\", \"Db 1\"]", "(bad=*)"),
        ] {
            let mut config = parse_only(&format!(
                "[[target]]\nname = \"iqn.a\"\nlun = [{{ number = 1, disk = \"/1\" }}]\n\
                 [[target.host]]\nname = \"one\"\ninitiators = [\"iqn.1\"]\n\
                 [[target.host]]\nname = \"bad\"\n{bad}\n[[target.host]]\nname = \"rest\""
            ));
            let left_out = config.leave_out(mistakes::of(&config, true)).unwrap();
            let subjects: Vec<_> = left_out.iter().map(|one| one.subject.to_string()).collect();
            assert_eq!(subjects, ["target iqn.a: host bad"], "{bad}");
            assert_eq!(hosts(&config), ["one=iqn.1", shut, "rest=*"], "{bad}");
            let (read, _) = hosts::read(config.target("iqn.a").unwrap(), &SecretFiles::read([])).unwrap();
            assert!(read[1].host.authentication.as_ref().is_some_and(|rule| rule.same_as(&SHUT)));
            assert_eq!(read[1].luns.place(Lun::new(1).unwrap()), None);
        }
    }

    #[test]
    fn a_host_that_was_served_goes_on_and_a_unit_that_is_left_out_is_no_mistake_of_its_host() {
        let text = |keys: &str| {
            parse_only(&format!(
                "[[target]]\nname = \"iqn.a\"\nlun = [{{ number = 1, disk = \"/1\" }}{keys}\n\
                 [[target.host]]\nname = \"rest\""
            ))
        };
        let before = text("]\n[[target.host]]\nname = \"h\"\ninitiators = [\"iqn.h\"]");
        for (now, expected) in [
            ("]\n[[target.host]]\nname = \"h\"\ninitiators = [\"Db 1\"]", "target iqn.a: host h"),
            (
                ", { number = 2, disk = \"/2\", block_size = 5 }]\n[[target.host]]\nname = \"h\"\n\
                 initiators = [\"iqn.h\"]\nlun = [{ number = 1 }, { number = 2 }]",
                "target iqn.a: LUN 2",
            ),
        ] {
            let mut config = text(now);
            let mut left_out = config.leave_out(mistakes::of(&config, true)).unwrap();
            config.keep(&before, &left_out);
            left_out.extend(config.leave_out(mistakes::of(&config, true)).unwrap());
            let subjects: Vec<_> = left_out.iter().map(|one| one.subject.to_string()).collect();
            assert_eq!(subjects, [expected]);
            assert_eq!(hosts(&config), ["h=iqn.h", "rest=*"]);
        }
    }

    #[test]
    fn what_was_served_goes_on() {
        let text = |target: &str, lun: &str| {
            format!(
                "[[target]]\nname = \"iqn.a\"\n{target}\nlun = [{{ number = 1, disk = \"/old\" {lun} }}, {{ number = 2, disk = \"/2\" }}]"
            )
        };
        let before = text("", "");
        let (now, left_out) = served(&text("max_connections = 0", ""), Some(&before));
        assert_eq!((&*now, left_out.len()), ("3260 iqn.a[1=/old 2=/2]", 1));
        let (now, left_out) = served(&text("", ", block_size = 5"), Some(&before));
        assert_eq!((&*now, left_out.len()), ("3260 iqn.a[2=/2 1=/old]", 1));
        assert_eq!(served(&text("", ", block_size = 5"), None).0, "3260 iqn.a[2=/2]");
    }

    #[test]
    fn a_mistake_in_no_object_refuses_all() {
        let mut config = parse_only("cores = 0\n[[target]]\nname = \"iqn.a\"\nmax_connections = 0");
        let why = config.leave_out(mistakes::of(&config, true)).unwrap_err();
        assert!(why.contains("cores = 0") && why.contains("max_connections = 0"), "{why}");
    }
}
