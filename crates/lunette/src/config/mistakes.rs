//! Contradictions within a configuration, which no single key shows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::{
    Config, Listen, LunEntry, Redirect, Target, check_cores, check_initiator_name, check_marker_interval,
    check_max_connections, check_name,
};
use super::{clones, gateways, hosts, pools, port_groups};
use crate::disks::identities;

/// A step on the way to a part of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// To the value of this key.
    Key(&'static str),
    /// To an element of a list.
    Index(usize),
}

/// A contradiction, and the part that it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) at: Vec<Step>,
    pub(crate) text: String,
}

/// All contradictions. When parts of the configuration could not be read (it is not whole), what refers to others is
/// not checked.
pub(crate) fn of(config: &Config, is_whole: bool) -> Vec<Mistake> {
    let mut found = Mistakes(Vec::new());
    let key = |name| vec![Step::Key(name)];
    // The API can add a portal.
    if config.listen.as_ref().is_some_and(Vec::is_empty) && config.api.is_none() {
        let text = "listen is empty; leave it out for 127.0.0.1:3260, or serve an API that adds portals";
        found.add(key("listen"), Err(text.into()));
    }
    portals(config, &mut found);
    for (portal, why) in config.unknown_portals().filter(|_| config.strict) {
        found.add(key("listen"), Err(format!("portal {portal}: {why}")));
    }
    found.add(key("cores"), check_cores(config.cores));
    found.add(key("limits"), config.limits.check(config.cores).map_err(|why| format!("limits: {why}")));
    if let Some(metrics) = &config.metrics {
        found.add(key("metrics"), metrics.check().map_err(|why| format!("metrics: {why}")));
    }
    if let Some(nbd) = &config.nbd {
        found.add(key("nbd"), nbd.check().map_err(|why| format!("nbd: {why}")));
    }
    if let Some(api) = &config.api {
        found.add(key("api"), api.check().map_err(|why| format!("api: {why}")));
    } else if config.targets.is_empty() && is_whole {
        found.add(Vec::new(), Err("there is no [[target]]".into()));
    }
    found.add(key("adapters"), config.adapters.check(config).map_err(|why| format!("adapters: {why}")));
    for (at, why) in pools::mistakes(config) {
        found.add(at, Err(why));
    }
    let mut names = BTreeSet::new();
    for (index, target) in config.targets.iter().enumerate() {
        let at = vec![Step::Key("target"), Step::Index(index)];
        of_target(target, &at, is_whole, &mut found);
        if !names.insert(&target.name) {
            found.at(&at, "name", Err(format!("target {} is there twice", target.name)));
        }
        for (number, host) in target.hosts.iter().enumerate() {
            if let Some(why) = clones::unknown_pool(host, config) {
                let at = [&*at, &[Step::Key("host"), Step::Index(number)]].concat();
                found.at(&at, "clone", Err(format!("target {}: host {}: {why}", target.name, host.name)));
            }
        }
        if is_whole {
            let of_target = |why| format!("target {}: gateways: {why}", target.name);
            found.at(&at, "gateways", gateways::check(target, config).map_err(of_target));
            found.at(&at, "port_group", port_groups::check(target, config));
        }
    }
    found.0.extend(encrypted_doubles(config).iter().map(Double::mistake));
    one_serial_for_two_disks(config, &mut found);
    found.0
}

/// Finds logical units with the serial number of another disk: initiators would take both for one disk and mix their
/// blocks, and both would share reservations. One disk at several places is one disk, so it may have one serial number.
fn one_serial_for_two_disks(config: &Config, found: &mut Mistakes) {
    let mut known: BTreeMap<String, (&Target, &LunEntry)> = BTreeMap::new();
    for (at, target, lun) in luns(config) {
        let serial = lun.serial_at(&target.name);
        let Some((first_target, first)) = known.get(&serial) else {
            known.insert(serial, (target, lun));
            continue;
        };
        if (&first_target.name, first.number) == (&target.name, lun.number) {
            // A number that is there twice is another mistake.
            continue;
        }
        let [place, first_place] = identities(&[&lun.disk.place, &first.disk.place]).try_into().unwrap_or_default();
        if place.is_none() || place != first_place {
            let text = format!(
                "target {}: LUN {}: LUN {} of {first_target}, another disk, has the serial number {serial:?}, too; \
                 give each disk its own",
                target.name,
                lun.number,
                first.number,
                first_target = first_target.name
            );
            found.at(&at, "serial", Err(text));
        }
    }
}

/// All logical units, with their places and targets.
fn luns(config: &Config) -> impl Iterator<Item = (Vec<Step>, &Target, &LunEntry)> {
    config.targets.iter().enumerate().flat_map(|(index, target)| {
        target.luns.iter().enumerate().map(move |(number, lun)| {
            let at = [Step::Key("target"), Step::Index(index), Step::Key("lun"), Step::Index(number)];
            (at.to_vec(), target, lun)
        })
    })
}

/// Two logical units over one disk.
pub(crate) struct Double<'c> {
    pub(crate) first: (&'c Target, &'c LunEntry),
    pub(crate) second: (&'c Target, &'c LunEntry),
    at: Vec<Step>,
}

impl Double<'_> {
    /// Whether each would write over the other's quanta and journal.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.first.1.disk.keys.is_some() || self.second.1.disk.keys.is_some()
    }

    /// The mistake, at the second one.
    pub(crate) fn mistake(&self) -> Mistake {
        let ((one, first), (two, second)) = (self.first, self.second);
        let kind = if self.is_encrypted() { "one encrypted disk" } else { "one disk" };
        let text = format!(
            "LUN {} of {} and LUN {} of {} are {kind}, {}; leave out one of them",
            first.number, one.name, second.number, two.name, second.disk.place
        );
        Mistake { at: self.at.clone(), text }
    }
}

/// The logical units whose disk is that of an earlier one, too, when one of them is encrypted.
pub(crate) fn encrypted_doubles(config: &Config) -> Vec<Double<'_>> {
    let mut luns = config.targets.iter().flat_map(|target| &target.luns);
    if !luns.any(|entry| entry.disk.keys.is_some()) {
        // The machine need not be asked.
        return Vec::new();
    }
    doubles(config).into_iter().filter(Double::is_encrypted).collect()
}

/// The logical units whose disk is that of an earlier one, too.
pub(crate) fn doubles(config: &Config) -> Vec<Double<'_>> {
    let (mut known, mut doubles) = (BTreeMap::new(), Vec::new());
    let places: Vec<_> = config.targets.iter().flat_map(|target| &target.luns).map(|lun| &lun.disk.place).collect();
    let mut identities = identities(&places).into_iter();
    for (mut at, target, entry) in luns(config) {
        let Some(identity) = identities.next().flatten() else { continue };
        match known.get(&identity) {
            Some(first) => {
                at.push(Step::Key("disk"));
                doubles.push(Double { first: *first, second: (target, entry), at });
            }
            None => drop(known.insert(identity, (target, entry))),
        }
    }
    doubles
}

struct Mistakes(Vec<Mistake>);

impl Mistakes {
    fn add(&mut self, at: Vec<Step>, result: Result<(), String>) {
        if let Err(text) = result {
            self.0.push(Mistake { at, text });
        }
    }

    fn at(&mut self, at: &[Step], key: &'static str, result: Result<(), String>) {
        self.add([at, &[Step::Key(key)]].concat(), result);
    }
}

fn portals(config: &Config, found: &mut Mistakes) {
    let mut addresses = BTreeSet::new();
    // Port 0 is another port each time.
    let mut twice = |address: &SocketAddr| address.port() != 0 && !addresses.insert(*address);
    let mut check = |listen: &Listen| match listen.addresses.iter().find(|address| twice(address)) {
        Some(address) => Err(format!("portal {address} is there twice")),
        None => Ok(()),
    };
    for (index, listen) in config.listen.iter().flatten().enumerate() {
        found.add(vec![Step::Key("listen"), Step::Index(index)], check(listen));
    }
    for (index, portal) in config.portals.iter().enumerate() {
        let at = [Step::Key("portal"), Step::Index(index)];
        found.at(&at, "address", check(&portal.address));
        if portal.group == 0 {
            // The tag is the RELATIVE TARGET PORT IDENTIFIER too, where zero is reserved (SPC-5 4.3.4).
            let text = format!("portal {}: group 0 is reserved; count from 1", portal.address);
            found.at(&at, "group", Err(text));
        }
    }
    let all = config.portals();
    for (index, portal) in config.portals.iter().enumerate().filter(|(_, portal)| portal.tls.is_some()) {
        // Initiators are told of the portals of their group, and none speaks both.
        if all.iter().any(|other| other.group == portal.group && other.tls.is_none()) {
            let text =
                format!("portal {}: group {} has portals without TLS; choose another", portal.address, portal.group);
            found.at(&[Step::Key("portal"), Step::Index(index)], "group", Err(text));
        }
    }
}

fn of_target(target: &Target, at: &[Step], is_whole: bool, found: &mut Mistakes) {
    let of_target = |why: String| format!("target {}: {why}", target.name);
    found.at(at, "name", check_name(&target.name));
    for (index, initiator) in target.allow.iter().flatten().enumerate().filter(|(_, name)| *name != hosts::ALL) {
        found.add([at, &[Step::Key("allow"), Step::Index(index)]].concat(), check_initiator_name(initiator));
    }
    found.at(at, "allow", hosts::check_allow(target).map_err(of_target));
    for (index, host) in target.hosts.iter().enumerate() {
        let at = [at, &[Step::Key("host"), Step::Index(index)]].concat();
        let of_host = |why: String| of_target(format!("host {}: {why}", host.name));
        found.at(&at, "name", hosts::check_host_name(host, index, target).map_err(of_host));
        for (key, why) in hosts::mistakes(host, target, is_whole) {
            found.add([&*at, &key].concat(), Err(of_host(why)));
        }
    }
    found.at(at, "max_connections", check_max_connections(target.max_connections).map_err(of_target));
    found.at(at, "marker_interval", check_marker_interval(target.marker_interval).map_err(of_target));
    found.at(at, "session", target.session.check().map_err(|why| of_target(format!("session: {why}"))));
    if target.mutual_chap.is_some() && target.chap.is_empty() {
        found.at(at, "mutual_chap", Err(of_target("mutual_chap needs a chap user too".into())));
    }
    for (key, why) in target.redirect.iter().flat_map(Redirect::mistakes) {
        found.add([at, &[Step::Key("redirect")], &key].concat(), Err(of_target(format!("redirect: {why}"))));
    }
    let mut numbers = BTreeSet::new();
    for (index, lun) in target.luns.iter().enumerate() {
        let at = [at, &[Step::Key("lun"), Step::Index(index)]].concat();
        let of_lun = |why: String| of_target(format!("LUN {}{why}", lun.number));
        if !numbers.insert(lun.number) {
            found.at(&at, "number", Err(of_lun(" is there twice".into())));
        }
        if let Some(why) = clones::wrong_number(target, lun.number) {
            found.at(&at, "number", Err(of_lun(why)));
        }
        for (key, why) in lun.mistakes(&target.name) {
            found.at(&at, key, Err(of_lun(format!(": {why}"))));
        }
    }
}
