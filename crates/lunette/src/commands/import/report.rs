//! The result of an import: a draft, its secrets, and the parts without an equivalent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use lunette_session::folded_name;

use super::draft::{Draft, Host, Lun, Target, User};
use crate::config::{self, Listen};

/// A configuration that is being imported.
pub(super) struct Imported {
    pub(super) draft: Draft,
    folder: PathBuf,
    secrets: BTreeMap<PathBuf, String>,
    notes: Vec<Note>,
}

/// Something that has no equivalent.
pub(super) struct Note {
    place: String,
    what: String,
}

impl Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // On one line, because it stands in comments, too.
        for character in self.place.chars().chain(": ".chars()).chain(self.what.chars()) {
            f.write_char(if character.is_control() { ' ' } else { character })?;
        }
        Ok(())
    }
}

impl Imported {
    /// Nothing yet. Secrets are for files in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        let (secrets, notes) = (BTreeMap::new(), Vec::new());
        Self { draft: Draft::default(), folder: folder.into(), secrets, notes }
    }

    /// Reports what has no equivalent, and where it stands. Neither may say a secret.
    pub(super) fn note(&mut self, place: impl Display, what: impl Into<String>) {
        self.notes.push(Note { place: place.to_string(), what: what.into() });
    }

    /// A user, whose secret is for a file named after `owner` (a target, a host) and the user.
    pub(super) fn user(&mut self, owner: &str, user: &str, secret: &str) -> User {
        let stem = plain_name(&format!("{owner}.{user}"));
        let names = (1_u32..).map(|n| if n == 1 { stem.clone() } else { format!("{stem}.{n}") });
        let mut paths = names.map(|name| self.folder.join(name));
        let is_free = |path: &PathBuf| self.secrets.get(path).is_none_or(|known| known == secret);
        let secret_file = paths.find(is_free).unwrap_or_default();
        self.secrets.insert(secret_file.clone(), secret.into());
        User { user: user.into(), secret_file }
    }

    /// A user whose secret is not known. Its file is not written, so the rule lets no initiator in until it is.
    pub(super) fn user_without_secret(&self, owner: &str, user: &str) -> User {
        let name = plain_name(&format!("{owner}.{user}.unknown"));
        User { user: user.into(), secret_file: self.folder.join(name) }
    }

    /// Reports that discovery lets no initiator in, because the secret of `user` is not known.
    pub(super) fn note_closed_discovery(&mut self, place: impl Display, user: &User) {
        let what = format!("discovery is closed until its secret is in {}", user.secret_file.display());
        self.note(place, what);
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter()
    }

    /// The files of secrets, with their contents.
    pub(super) fn secrets(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.secrets.iter().map(|(path, secret)| (path.as_path(), secret.as_str()))
    }

    /// A name in normal form, as ours has it. A change is reported.
    pub(super) fn normal_name(&mut self, place: impl Display, name: &str) -> String {
        self.renamed(place, name, folded_name(name))
    }

    /// The name that ours has for `name`. A change is reported.
    pub(super) fn renamed(&mut self, place: impl Display, name: &str, ours: String) -> String {
        if ours == name.to_lowercase() && ours != name {
            let what = "its name is written in lower case; initiators that write capitals find it all the same";
            self.note(place, format!("{name}: {what}"));
        } else if ours != name {
            self.note(place, format!("{name}: initiators know it as {ours}"));
        }
        ours
    }

    /// Reports that portals of ours lead to all targets, where those of the source, as `theirs` says, do not.
    pub(super) fn note_portals(&mut self, theirs: &str) {
        if self.draft.target.len() > 1 && self.draft.portal.len() > 1 {
            self.note("portals", format!("each leads to all targets; {theirs}"));
        }
    }

    /// The text of the configuration, which is one that `lunette serve` reads. What ours does not take is left out and
    /// reported. Without any target it is empty.
    pub(super) fn finish(&mut self) -> Result<String, String> {
        self.keep_portals();
        let mut targets: Vec<Target> = Vec::new();
        let mut serials = BTreeMap::new();
        for mut target in std::mem::take(&mut self.draft.target) {
            self.repair_names(&mut target, &mut serials);
            self.repair(&mut target);
            let is_twice = targets.iter().any(|known| known.name == target.name);
            match self.check(&target).and_then(|()| if is_twice { Err("it is there twice".into()) } else { Ok(()) }) {
                Ok(()) => targets.push(target),
                Err(why) => self.note(format!("target {}", target.name), why),
            }
        }
        self.draft.target = targets;
        self.note_shared_secrets();
        self.note_shared_disks();
        if self.draft.target.is_empty() {
            self.note("the file", "it has no target that ours could serve");
        } else if self.draft.portal.is_empty() {
            self.note("portals", NO_PORTAL);
        }
        let used: BTreeSet<PathBuf> = self.draft.secret_files().map(Into::into).collect();
        self.secrets.retain(|path, _| used.contains(path));
        let text = toml::to_string(&self.draft).map_err(|error| error.to_string())?;
        if !self.draft.target.is_empty() {
            config::check_text(&text).map_err(|why| format!("it cannot be said in a configuration of ours: {why}"))?;
        }
        Ok(text)
    }

    /// Reports secrets that prove an initiator and the target: the server refuses them.
    fn note_shared_secrets(&mut self) {
        let secret = |user: &User| self.secrets.get(&user.secret_file);
        let of_initiators: BTreeSet<&String> =
            self.draft.users().flat_map(|users| &users.chap).filter_map(secret).collect();
        let of_target = self.draft.users().filter_map(|users| users.mutual_chap.as_ref());
        let shared: BTreeSet<String> = of_target
            .filter(|user| secret(user).is_some_and(|secret| of_initiators.contains(secret)))
            .map(|user| user.user.clone())
            .collect();
        for user in shared {
            let what = "an initiator has the same secret, and is not let in until the target has another (RFC 7143 section 9.2.1)";
            self.note(format!("the target as {user}"), what);
        }
    }

    /// Reports disks of several logical units. Each disk in memory is another one.
    fn note_shared_disks(&mut self) {
        let mut known: BTreeMap<&str, String> = BTreeMap::new();
        let mut notes = Vec::new();
        for (target, lun) in self.draft.target.iter().flat_map(|target| target.lun.iter().map(move |lun| (target, lun)))
        {
            let place = format!("{}, LUN {}", target.name, lun.number);
            match known.get(lun.disk.as_str()) {
                _ if lun.disk.starts_with(MEMORY) => {}
                Some(first) => notes.push(Note {
                    place,
                    what: format!(
                        "{} is {first} as well; a disk is one LUN of ours, so this one is not served",
                        lun.disk
                    ),
                }),
                None => drop(known.insert(&lun.disk, place)),
            }
        }
        self.notes.extend(notes);
    }

    /// Leaves out keys of sessions that ours has no such values for.
    fn repair_session(&mut self, target: &mut Target) {
        let bare = Target { name: target.name.clone(), ..Target::default() };
        for (key, value) in std::mem::take(&mut target.session) {
            match self.check(&Target { session: [(key, value.clone())].into(), ..bare.clone() }) {
                Ok(()) => drop(target.session.insert(key, value)),
                Err(why) => self.note(format!("target {}", target.name), why),
            }
        }
        if let Some(redirect) = &target.redirect
            && let Err(why) = self.check(&Target { redirect: Some(redirect.clone()), ..bare.clone() })
        {
            self.note(format!("target {}", target.name), why);
            target.redirect = None;
        }
        if let Some(most) = target.max_connections
            && let Err(why) = self.check(&Target { max_connections: Some(most), ..bare })
        {
            self.note(format!("target {}", target.name), why);
            target.max_connections = None;
        }
    }

    /// Leaves out names of disks that ours does not take, and serial numbers that another disk has: initiators would
    /// take both for one disk. `serials` has those of disks that came before.
    fn repair_names(&mut self, target: &mut Target, serials: &mut BTreeMap<String, (String, String)>) {
        for lun in &mut target.lun {
            let place = format!("{}, LUN {}", target.name, lun.number);
            for name in [&mut lun.vendor, &mut lun.product, &mut lun.revision, &mut lun.serial] {
                name.take_if(|name| name.is_empty());
            }
            let Some(serial) = lun.serial.clone() else { continue };
            let alone = Lun { number: lun.number, disk: "mem:1M".into(), serial: lun.serial.clone(), ..Lun::default() };
            let alone = self.check(&Target { name: target.name.clone(), lun: vec![alone], ..Target::default() });
            let (first, disk) = serials.entry(serial.clone()).or_insert_with(|| (place.clone(), lun.disk.clone()));
            let is_other = *first != place && (*disk != lun.disk || disk.starts_with("mem:"));
            let double = is_other.then(|| format!("the serial number {serial:?} is that of {first}, another disk"));
            if let Some(why) = alone.err().or(double) {
                self.note(place, why);
                lun.serial = None;
            }
        }
    }

    fn keep_portals(&mut self) {
        for portal in std::mem::take(&mut self.draft.portal) {
            match portal.address.parse::<Listen>() {
                Ok(_) => self.draft.portal.push(portal),
                Err(why) => self.note("portal", why),
            }
        }
    }

    /// Whether a target could be served alone.
    fn check(&self, target: &Target) -> Result<(), String> {
        let alone = Draft { portal: self.draft.portal.clone(), target: vec![target.clone()], ..Draft::default() };
        let text = toml::to_string(&alone).map_err(|error| error.to_string())?;
        config::check_text(&text).map_err(|why| why.trim_end().replace('\n', " "))
    }

    /// Leaves to a host the first number of each logical unit, and the first logical unit of each number.
    fn map_once(&mut self, target: &str, host: &mut Host) {
        let Some(list) = &mut host.lun else { return };
        let all = std::mem::take(list);
        let (mut units, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        for mapped in all {
            let (unit, number) = (mapped.number, mapped.seen_as());
            if units.contains(&unit) || numbers.contains(&number) {
                let what = format!("LUN {unit} as {number}: a host of ours sees a LUN under one number");
                self.notes.push(Note { place: format!("{target}, host {}", host.name), what });
            } else {
                units.insert(unit);
                numbers.insert(number);
                list.push(mapped);
            }
        }
    }

    /// Takes out of a target what it cannot be served with. No initiator is let in for it.
    fn repair(&mut self, target: &mut Target) {
        let name = target.name.clone();
        for list in target.allow.iter_mut().chain(target.host.iter_mut().filter_map(|host| host.initiators.as_mut())) {
            list.retain(|initiator| match config::check_initiator_name(initiator) {
                Ok(()) => true,
                Err(why) => {
                    self.notes.push(Note { place: name.clone(), what: format!("an initiator: {why}") });
                    false
                }
            });
        }
        let mut known = BTreeSet::new();
        for host in &mut target.host {
            let stem = host.name.clone();
            let mut names = (1_u32..).map(|n| if n == 1 { stem.clone() } else { numbered(&stem, n) });
            host.name = names.find(|name| known.insert(name.clone())).unwrap_or_default();
        }
        for host in &mut target.host {
            self.map_once(&name, host);
        }
        if self.check(target).is_ok() {
            return;
        }
        // One LUN after the other, until it is known which is wrong.
        let bare = Target { name: name.clone(), ..Target::default() };
        let mut luns: Vec<Lun> = Vec::new();
        for lun in std::mem::take(&mut target.lun) {
            let is_twice = luns.iter().any(|known| known.number == lun.number);
            let result = self.check(&Target { lun: vec![lun.clone()], ..bare.clone() });
            match result.and_then(|()| if is_twice { Err("it is there twice".into()) } else { Ok(()) }) {
                Ok(()) => luns.push(lun),
                Err(why) => self.note(format!("{name}, LUN {}", lun.number), why),
            }
        }
        target.lun = luns;
        self.repair_session(target);
        for mapped in target.host.iter_mut().filter_map(|host| host.lun.as_mut()) {
            mapped.retain(|mapped| target.lun.iter().any(|lun| lun.number == mapped.number));
        }
    }
}

/// The report where nothing says at which addresses initiators reach the targets.
const NO_PORTAL: &str = "there are none, so ours listens on 127.0.0.1 alone; name addresses in listen, such as listen = [\"0.0.0.0\", \"[::]\"]";

/// The beginning of the name of a disk in memory.
const MEMORY: &str = "mem:";

/// A name of a host with a number behind it, no longer than names may be.
fn numbered(stem: &str, number: u32) -> String {
    let end = format!(".{number}");
    let kept = stem.chars().take(config::hosts::MAX_HOST_NAME_CHARACTERS - end.len());
    kept.chain(end.chars()).collect()
}

/// A network as ours writes it; an address is one, too.
pub(super) fn network(text: &str) -> Option<String> {
    let network = text.parse::<IpNet>().map(|network| network.trunc().to_string());
    network.or_else(|_| text.parse::<IpAddr>().map(|address| address.to_string())).ok()
}

/// Whether a setting is on, in any form that people write.
pub(super) fn is_on(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "yes" | "on" | "true")
        || value.parse().is_ok_and(|number: i64| number != 0)
}

/// Whether a setting that is not known may be about a proof of initiators, by its name. A target is closed for it.
pub(super) fn may_ask_for_proof(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let is_of_target = key.contains("outgoing");
    !is_of_target && ["incoming", "user", "chap", "auth", "secret", "password"].iter().any(|word| key.contains(word))
}

/// The report of a setting that [may ask for a proof](may_ask_for_proof).
pub(super) fn unknown_proof(key: &str) -> String {
    format!("{key}: it is not known what proof it asks for; no initiator is let in")
}

/// Gives a LUN the names that initiators see in its INQUIRY data. Says which are longer than INQUIRY has room for.
pub(super) fn names(
    lun: &mut Lun,
    vendor: Option<&str>,
    product: Option<&str>,
    revision: Option<&str>,
    serial: Option<&str>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut take = |what: &str, value: Option<&str>, max: usize| {
        let value = value?;
        let fits = value.len() <= max && value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if !fits {
            problems.push(format!("{what} {value:?}: at most {max} characters of ASCII"));
        }
        fits.then(|| value.to_owned())
    };
    lun.vendor = take("vendor", vendor, 8);
    lun.product = take("product", product, 16);
    lun.revision = take("revision", revision, 4);
    lun.serial = take("serial number", serial, MAX_SERIAL_CHARACTERS);
    problems
}

/// The longest serial number of a logical unit.
const MAX_SERIAL_CHARACTERS: usize = 200;

/// A text as a name that files and hosts may have.
pub(super) fn plain_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
    text.chars().take(config::hosts::MAX_HOST_NAME_CHARACTERS).map(plain).collect()
}

/// An address with a port, as `listen` takes it; without a port when that is iSCSI's.
pub(super) fn address(host: &str, port: Option<&str>) -> String {
    let host = host.trim_matches(['[', ']']);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    match port {
        None | Some("3260") => host,
        Some(port) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::draft::{MappedLun, Users};
    use super::*;

    #[test]
    fn each_secret_has_a_file_of_its_own() {
        let mut imported = Imported::new(Path::new("/s"));
        let file = |imported: &mut Imported, owner, secret| imported.user(owner, "a/b", secret).secret_file;
        assert_eq!(file(&mut imported, "iqn.x:1", "one"), Path::new("/s/iqn.x_1.a_b"));
        assert_eq!(file(&mut imported, "iqn.x:1", "one"), Path::new("/s/iqn.x_1.a_b"));
        assert_eq!(file(&mut imported, "iqn.x:1", "two"), Path::new("/s/iqn.x_1.a_b.2"));
        assert_eq!(imported.secrets().map(|(_, secret)| secret).collect::<Vec<_>>(), ["one", "two"]);
    }

    #[test]
    fn a_host_sees_each_unit_once_and_nothing_else_is_lost() {
        let mut imported = Imported::new(Path::new("/s"));
        let mapped =
            |pairs: &[(u16, u16)]| pairs.iter().map(|(unit, as_)| MappedLun::new(*unit, *as_, false)).collect();
        let host = |name: &str, lun| Host {
            name: name.into(),
            initiators: Some(vec!["iqn.h".into()]),
            lun,
            ..Host::default()
        };
        let luns = [0, 1].map(|number| Lun { number, disk: format!("/{number}"), ..Lun::default() });
        imported.draft.target.push(Target {
            name: "iqn.a".into(),
            lun: luns.into(),
            host: vec![
                host("h", Some(mapped(&[(0, 0), (0, 5), (1, 0), (1, 7)]))),
                host("none", Some(Vec::new())),
                host("all", None),
            ],
            ..Target::default()
        });
        let table: toml::Table = imported.finish().unwrap().parse().unwrap();
        let hosts = "host = [{ name = \"h\", initiators = [\"iqn.h\"], lun = [{ number = 0 }, { number = 1, as = 7 }] }, \
                     { name = \"none\", initiators = [\"iqn.h\"], lun = [] }, { name = \"all\", initiators = [\"iqn.h\"] }]";
        assert_eq!(table["target"][0]["host"], hosts.parse::<toml::Table>().unwrap()["host"], "{table}");
        // And no portal.
        assert_eq!(imported.notes().count(), 3);
    }

    #[test]
    fn names_of_disks_that_do_not_fit_are_left_out_and_so_are_serial_numbers_of_others() {
        let mut imported = Imported::new(Path::new("/s"));
        let lun = |number, disk: &str, serial: &str| {
            let vendor = Some(String::new());
            Lun { number, disk: disk.into(), serial: Some(serial.into()), vendor, ..Lun::default() }
        };
        let long = "s".repeat(201);
        let luns = [lun(0, "/a", ""), lun(1, "/b", "ü"), lun(2, "/c", &long), lun(3, "/d", "S"), lun(4, "/e", "S")];
        let target = |name: &str, lun| Target { name: name.into(), lun, ..Target::default() };
        imported.draft.target.push(target("iqn.a", luns.into()));
        imported.draft.target.push(target("iqn.b", vec![lun(0, "/d", "S")]));
        imported.finish().unwrap();
        let luns = imported.draft.target.iter().flat_map(|target| &target.lun);
        let serials: Vec<_> = luns.map(|lun| lun.serial.as_deref()).collect();
        assert_eq!(serials, [None, None, None, Some("S"), None, Some("S")]);
        // And the disk of two targets, and no portal.
        assert_eq!(imported.notes().count(), 5);
    }

    #[test]
    fn a_secret_of_both_sides_and_a_disk_of_two_units_are_named() {
        let mut imported = Imported::new(Path::new("/s"));
        let (alice, bob) = (imported.user("iqn.a", "alice", "one"), imported.user("iqn.b", "bob", "one"));
        let (carol, dave) = (imported.user("iqn.b", "carol", "two"), imported.user("iqn.a", "dave", "three"));
        let luns = |disks: &[&str]| {
            (0..).zip(disks).map(|(number, disk)| Lun { number, disk: (*disk).into(), ..Lun::default() }).collect()
        };
        let target = |name: &str, chap, mutual, disks| Target {
            name: name.into(),
            users: Users { chap: vec![chap], mutual_chap: Some(mutual) },
            lun: luns(disks),
            ..Target::default()
        };
        imported.draft.target.push(target("iqn.a", alice, dave, &["/a", "mem:1M", "mem:1M"]));
        imported.draft.target.push(target("iqn.b", carol, bob, &["/b", "/a"]));
        imported.finish().unwrap();
        let notes: Vec<String> = imported.notes().map(ToString::to_string).collect();
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[0].starts_with("the target as bob: an initiator has the same secret"), "{notes:?}");
        assert!(notes[1].starts_with("iqn.b, LUN 1: /a is iqn.a, LUN 0 as well"), "{notes:?}");
    }

    #[test]
    fn addresses_have_brackets_and_ports_where_they_need_them() {
        for (host, port, expected) in [
            ("192.0.2.1", None, "192.0.2.1"),
            ("192.0.2.1", Some("3260"), "192.0.2.1"),
            ("192.0.2.1", Some("860"), "192.0.2.1:860"),
            ("::", Some("3260"), "[::]"),
            ("[2001:db8::1]", Some("860"), "[2001:db8::1]:860"),
        ] {
            assert_eq!(address(host, port), expected);
        }
    }
}
