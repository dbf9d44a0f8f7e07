//! tgt: `targets.conf`, as `tgt-admin` reads it (targets.conf(5)).
//!
//! `tgt-admin` goes through everything in the order of its name: targets, options, and paths. So `backing-store` is
//! numbered before `direct-store`, and paths are in alphabetical order. Blocks of one name are one block. What stands
//! at the level of a target holds for those of its disks that say nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lunette_rbd::RbdUrl;
use lunette_scsi::MAX_FLAT_LUN;

use super::draft::{Host, Lun, Target, User};
use super::report::{Imported, is_on, may_ask_for_proof, names, network, unknown_proof};
use super::tree::{self, Statement};

/// The first LUN of a disk: LUN 0 is tgt's controller.
const FIRST_LUN: u16 = 1;

/// The default device type, a disk.
const DISK: &str = "disk";

/// Settings that change nothing that an initiator could rely on, or that ours has anyway.
const SILENT: [&str; 10] = [
    "default-driver",
    "driver",
    "allow-in-use",
    "write-cache",
    "bsoflags",
    "bsopts",
    "controller_tid",
    "ignore-errors",
    "control-port",
    "sense_format",
];

/// Settings of a disk that a target may give for all of its disks.
const INHERITED: [&str; 9] =
    ["scsi_id", "scsi_sn", "vendor_id", "product_id", "product_rev", "removable", "readonly", "online", "device-type"];

/// Settings of a target that give it users.
const USERS: [&str; 2] = ["incominguser", "outgoinguser"];

/// The state of a target in which initiators can log in.
const READY: &str = "ready";

/// The word that `tgt-admin --dump` writes in the place of each password.
const NO_PASSWORD: &str = "PLEASE_CORRECT_THE_PASSWORD";

/// Kinds of backing stores that are files or block devices.
const OF_FILES: [&str; 4] = ["rdwr", "aio", "sync", "mmap"];

/// Accounts by their names: tgtd has one secret for each, the first that it is given.
type Accounts = BTreeMap<String, String>;

pub(super) fn import(statements: &[Statement], mut imported: Imported) -> Imported {
    let mut accounts = Accounts::new();
    let mut targets: BTreeMap<&str, Vec<&Statement>> = BTreeMap::new();
    let mut driver = None;
    for statement in statements {
        match (statement.key(), statement.value()) {
            ("target", Some(name)) => targets.entry(name).or_default().push(statement),
            ("incomingdiscoveryuser", _) => match user("discovery", statement, &mut accounts, &mut imported) {
                Ok(user) => imported.draft.discovery.chap.push(user),
                Err(why) => {
                    // Without a user discovery would ask for no proof.
                    let name = statement.value().and_then(|value| value.split_whitespace().next()).unwrap_or("unknown");
                    let user = imported.user_without_secret("discovery", name);
                    let what = format!("{why}; write it into {}", user.secret_file.display());
                    imported.note(tree::place(&[], statement), format!("{}: {what}", statement.key()));
                    imported.draft.discovery.chap.push(user);
                }
            },
            ("outgoingdiscoveryuser", _) => match user("discovery", statement, &mut accounts, &mut imported) {
                Ok(user) => imported.draft.discovery.mutual_chap = Some(user),
                Err(why) => imported.note(tree::place(&[], statement), format!("{}: {why}", statement.key())),
            },
            ("default-driver", value) => driver = value,
            (key, _) if SILENT.contains(&key) => {}
            _ => leave_out(&[], statement, &mut imported),
        }
    }
    if imported.draft.discovery.chap.is_empty() {
        imported.draft.discovery.mutual_chap = None;
    }
    for (name, blocks) in targets {
        let body: Vec<&Statement> = blocks.iter().flat_map(|block| &block.body).collect();
        Importer { name, place: tree::place(&[], blocks[0]), body, accounts: &mut accounts, imported: &mut imported }
            .import(driver.unwrap_or("iscsi"));
    }
    imported
}

/// Reports a setting, but none of its values: it may be a secret.
fn leave_out(path: &[&str], statement: &Statement, imported: &mut Imported) {
    imported.note(tree::place(path, statement), format!("the setting {}", statement.key()));
}

/// A user, written as `USER SECRET`, or why it is none.
fn user(
    owner: &str,
    statement: &Statement,
    accounts: &mut Accounts,
    imported: &mut Imported,
) -> Result<User, &'static str> {
    let (user, words) = statement.value().and_then(|value| value.split_once(char::is_whitespace)).ok_or(NO_SECRET)?;
    let user = unquoted(user).unwrap_or(user);
    let words = words.trim();
    let first = words.split(char::is_whitespace).next().unwrap_or_default();
    let secret = unquoted(words).or_else(|| unquoted(first)).unwrap_or(first);
    match secret {
        "" => return Err(NO_SECRET),
        NO_PASSWORD => return Err("tgt-admin --dump does not tell its secret"),
        _ if secret.starts_with(MARKS) => return Err("its secret has a quotation mark without an end"),
        _ if user.contains(MARKS) => return Err("its name has a quotation mark without an end"),
        _ => {}
    }
    let place = tree::place(&[owner], statement);
    if first != words {
        let what = format!("{user}: tgt-admin reads one word as the secret, and there are several");
        imported.note(&place, format!("{}: {what}", statement.key()));
    }
    let known = accounts.entry(user.into()).or_insert_with(|| secret.into()).clone();
    if known != secret {
        let what = format!("another secret for {user}: tgtd has one for each user, the first of the file");
        imported.note(place, what);
    }
    Ok(imported.user(owner, user, &known))
}

/// Quotation marks of a shell.
const MARKS: [char; 2] = ['"', '\''];

/// The reason of a user that is left out.
const NO_SECRET: &str = "a user without a secret";

/// A text between two quotation marks, which the shell takes away that tgt-admin calls.
fn unquoted(text: &str) -> Option<&str> {
    let between = |mark: char| text.strip_prefix(mark)?.strip_suffix(mark);
    between('"').or_else(|| between('\''))
}

/// The keys and values of statements `params KEY=VALUE,KEY=VALUE`.
fn params<'a>(statements: impl Iterator<Item = &'a Statement>) -> Vec<(&'a str, &'a str)> {
    let values = statements.filter(|statement| statement.key() == PARAMS).filter_map(Statement::value);
    let pairs = values.flat_map(|value| unquoted(value).unwrap_or(value).split(','));
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect()
}

/// The setting that says several others of a disk.
const PARAMS: &str = "params";

/// A target that is being imported.
struct Importer<'a> {
    name: &'a str,
    place: String,
    /// The settings of all blocks of that name.
    body: Vec<&'a Statement>,
    accounts: &'a mut Accounts,
    imported: &'a mut Imported,
}

/// The paths of backing stores, each with the settings of its disk.
type Stores<'a> = BTreeMap<&'a str, Vec<&'a Statement>>;

impl<'a> Importer<'a> {
    fn import(mut self, default_driver: &str) {
        let driver = self.option("driver").unwrap_or(default_driver);
        if !matches!(driver, "iscsi" | "iser") {
            let what = format!("{}: a target of the driver {driver}", self.name);
            return self.imported.note(&self.place, what);
        }
        let state = self.body.iter().filter(|setting| setting.key() == "state").find_map(|setting| setting.value());
        if let Some(state) = state.filter(|state| *state != READY) {
            let what = format!("{}: its state is {state}, and tgtd lets no initiator log in then", self.name);
            return self.imported.note(&self.place, what);
        }
        if driver == "iser" {
            self.imported.note(&self.place, format!("{}: iSER; initiators reach it over TCP", self.name));
        }
        let mut target = Target { name: self.imported.normal_name(&self.place, self.name), ..Target::default() };
        target.lun = self.luns();
        self.users(&mut target);
        self.access(&mut target);
        for setting in self.body.clone() {
            let key = setting.key();
            let is_read = ["backing-store", "direct-store", "initiator-address", "initiator-name", "bs-type"]
                .contains(&key)
                || USERS.contains(&key)
                || ["lun", "state"].contains(&key);
            match key {
                PARAMS => self.leave_out_params(&[self.name], setting),
                _ if is_read || INHERITED.contains(&key) || SILENT.contains(&key) => {}
                "block-size" => self.imported.note(
                    tree::place(&[self.name], setting),
                    "block-size: tgt-admin takes it within a disk alone, so these disks have blocks of 512 bytes",
                ),
                _ => leave_out(&[self.name], setting, self.imported),
            }
        }
        self.imported.draft.target.push(target);
    }

    /// The value of an option of the target.
    fn option(&self, key: &str) -> Option<&'a str> {
        self.body.iter().rev().find(|setting| setting.key() == key).and_then(|setting| setting.value())
    }

    fn stores(&self, key: &str) -> Stores<'a> {
        let mut stores = Stores::new();
        for setting in self.body.iter().filter(|setting| setting.key() == key) {
            if let Some(path) = setting.value() {
                stores.entry(path).or_default().push(setting);
            }
        }
        stores
    }

    fn luns(&mut self) -> Vec<Lun> {
        let (backing, direct) = (self.stores("backing-store"), self.stores("direct-store"));
        // The number of a target holds for all of its disks, of which tgtd takes the first then.
        let of_target = self.option("lun");
        let own = |settings: &Vec<&Statement>| {
            of_target.or_else(|| settings.iter().find_map(|setting| setting.find("lun"))).map(str::to_owned)
        };
        // Numbers that a disk asks for are given to no other one.
        let mut taken: BTreeSet<String> = backing.values().chain(direct.values()).filter_map(own).collect();
        let mut luns: Vec<Lun> = Vec::new();
        let mut has_missing = false;
        for (path, settings) in backing.iter().chain(&direct) {
            if !has_missing && own(settings).is_none() && Path::new(path).is_absolute() && !Path::new(path).exists() {
                has_missing = true;
                let what =
                    "it is not on this machine; where it is missing, tgt-admin gives its number to the next disk";
                self.imported.note(tree::place(&[self.name, path], settings[0]), what);
            }
            let number = own(settings).unwrap_or_else(|| {
                let free =
                    (FIRST_LUN..=u16::MAX).map(|number| number.to_string()).find(|number| !taken.contains(number));
                free.unwrap_or_default()
            });
            taken.insert(number.clone());
            let place = tree::place(&[self.name, path], settings[0]);
            let parsed = number.parse().ok().filter(|number| (FIRST_LUN..=MAX_FLAT_LUN).contains(number));
            match parsed {
                Some(number) if luns.iter().any(|lun| lun.number == number) => {
                    self.imported.note(place, format!("LUN {number} is there twice"));
                }
                Some(number) => luns.extend(self.lun(number, path, settings, direct.contains_key(path))),
                None => self
                    .imported
                    .note(place, format!("LUN {number}: disks have numbers from {FIRST_LUN} to {MAX_FLAT_LUN}")),
            }
        }
        luns
    }

    /// A disk, or nothing when it is none that ours can serve.
    fn lun(&mut self, number: u16, path: &str, settings: &[&Statement], is_direct: bool) -> Option<Lun> {
        let place = tree::place(&[self.name, path], settings[0]);
        let own = |key: &str| settings.iter().rev().find_map(|setting| setting.find(key));
        let target = |key: &str| self.option(key);
        let value = |key: &str| own(key).or_else(|| target(key));
        let (own_params, target_params) =
            (params(settings.iter().flat_map(|setting| &setting.body)), params(self.body.iter().copied()));
        // tgt-admin sets the params of the target last.
        let param = |key: &str| own_params.iter().chain(&target_params).rev().find(|(known, _)| *known == key);
        let attribute = |key: &str| param(key).map(|(_, value)| *value).or_else(|| value(key));
        let kind = value("device-type").unwrap_or(DISK);
        let store = value("bs-type").unwrap_or(OF_FILES[0]);
        let disk = match store {
            "rbd" => image(path, value("bsopts")),
            _ if OF_FILES.contains(&store) => Some(path.to_owned()),
            _ => None,
        };
        let refusal = match (&disk, kind, own("block-size")) {
            (None, ..) => Some(format!("a backing store of the kind {store}")),
            (_, kind, _) if kind != DISK => Some(format!("a device of the kind {kind}")),
            (.., Some(other)) if !matches!(other, "512" | "4096") => Some(format!("blocks of {other} bytes")),
            _ if attribute("online").is_some_and(|online| !is_on(online)) => Some("it is not online".into()),
            _ => None,
        };
        let (disk, refusal) = (disk.unwrap_or_default(), refusal.map(|what| format!("LUN {number}: {what}")));
        let mut lun = Lun {
            number,
            disk,
            block_size: own("block-size").filter(|size| *size == "4096").map(|_| 4096),
            read_only: attribute("readonly").is_some_and(is_on),
            removable: attribute("removable").is_some_and(is_on),
            ..Lun::default()
        };
        let identity = names(
            &mut lun,
            attribute("vendor_id"),
            attribute("product_id"),
            attribute("product_rev"),
            attribute("scsi_sn"),
        );
        let has_scsi_id = attribute("scsi_id").is_some();
        if let Some(what) = refusal {
            self.imported.note(place, what);
            return None;
        }
        for what in identity {
            self.imported.note(&place, what);
        }
        if has_scsi_id {
            self.imported.note(&place, "the setting scsi_id");
        }
        if is_direct {
            let what = "direct-store: vendor, product, serial number and block length of the device are not asked for";
            self.imported.note(&place, what);
        }
        self.other_settings(path, settings);
        Some(lun)
    }

    fn other_settings(&mut self, path: &str, settings: &[&Statement]) {
        for setting in settings.iter().flat_map(|setting| &setting.body) {
            let key = setting.key();
            let is_read =
                INHERITED.contains(&key) || SILENT.contains(&key) || ["lun", "block-size", "bs-type"].contains(&key);
            match key {
                PARAMS => self.leave_out_params(&[self.name, path], setting),
                _ if is_read => {}
                _ => leave_out(&[self.name, path], setting, self.imported),
            }
        }
    }

    /// Reports what a statement `params` says that no disk of ours has.
    fn leave_out_params(&mut self, path: &[&str], setting: &Statement) {
        for (key, _) in params([setting].into_iter()).into_iter().filter(|(key, _)| !INHERITED.contains(key)) {
            self.imported.note(tree::place(path, setting), format!("the setting {PARAMS} {key}"));
        }
    }

    fn users(&mut self, target: &mut Target) {
        for setting in self.body.clone() {
            let is_outgoing = match setting.key() {
                "incominguser" => false,
                "outgoinguser" if target.users.mutual_chap.is_some() => {
                    let what = "outgoinguser: tgt-admin takes the first alone, so the target does not prove itself as this one";
                    self.imported.note(tree::place(&[self.name], setting), what);
                    continue;
                }
                "outgoinguser" => true,
                _ => continue,
            };
            match user(self.name, setting, self.accounts, self.imported) {
                Ok(user) if is_outgoing => target.users.mutual_chap = Some(user),
                Ok(user) => target.users.chap.push(user),
                Err(why) => {
                    let effect =
                        if is_outgoing { "the target does not prove itself" } else { "no initiator is let in for it" };
                    let what = format!("{}: {why}; {effect}", setting.key());
                    self.imported.note(tree::place(&[self.name], setting), what);
                    if !is_outgoing {
                        // Without any other user the target would ask for no proof.
                        target.allow = Some(Vec::new());
                    }
                }
            }
        }
        if !target.users.chap.is_empty() {
            target.allow = None;
        } else if target.users.mutual_chap.take().is_some() {
            let what = "outgoinguser: no user of initiators is there, so the target does not prove itself";
            self.imported.note(&self.place, what);
        }
        let is_unknown = |setting: &&&Statement| !USERS.contains(&setting.key()) && may_ask_for_proof(setting.key());
        if let Some(setting) = self.body.iter().find(is_unknown) {
            self.imported.note(tree::place(&[self.name], setting), unknown_proof(setting.key()));
            target.close();
        }
    }

    /// An initiator has to fit both lists. No address means every address, and no name every name.
    fn access(&mut self, target: &mut Target) {
        let (mut networks, mut initiators): (Option<Vec<String>>, Option<Vec<String>>) = (None, None);
        let mut is_everywhere = false;
        for setting in self.body.clone() {
            let Some(value) = setting.value() else { continue };
            match (setting.key(), network(value)) {
                ("initiator-address", _) if value == "ALL" => is_everywhere = true,
                // `tgt-admin --dump` calls addresses names, too.
                ("initiator-address" | "initiator-name", Some(network)) => {
                    networks.get_or_insert_default().push(network);
                }
                ("initiator-name", None) if value == "ALL" => {}
                ("initiator-name", None) => initiators.get_or_insert_default().push(value.to_lowercase()),
                ("initiator-address", None) => {
                    networks.get_or_insert_default();
                    let what = format!("initiator-address {value}: only addresses and networks, such as 192.0.2.0/24");
                    self.imported.note(tree::place(&[self.name], setting), what);
                }
                _ => {}
            }
        }
        if target.allow.is_some() {
            return;
        }
        if let Some(networks) = networks.filter(|_| !is_everywhere) {
            target.host.push(Host {
                name: "initiators".into(),
                initiators,
                networks: Some(networks),
                ..Host::default()
            });
        } else {
            target.allow = initiators;
        }
    }
}

/// An image in Ceph, `[POOL/]IMAGE[@SNAPSHOT]`, with what `bsopts` says of the cluster: `conf=FILE;id=USER`.
fn image(path: &str, options: Option<&str>) -> Option<String> {
    let path = if path.contains('/') { path.to_owned() } else { format!("rbd/{path}") };
    let url: RbdUrl = format!("rbd:{path}").parse().ok()?;
    let option = |key: &str| options?.split(';').find_map(|option| option.trim().strip_prefix(key)?.strip_prefix('='));
    let (conf, user) = (option("conf").map(Into::into), option("id").map(Into::into));
    Some(RbdUrl { conf, user, ..url }.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::general::Reader;
    use super::*;

    const CONF: &str = r#"
default-driver iscsi
incomingdiscoveryuser scan secret-of-scan
<target iqn.2008-09.org.example:Server.one>
    backing-store /dev/vg0/one   # the first
    <backing-store /srv/two.img>
        scsi_sn S2
        lun 7
        readonly 1
        block-size 4096
        vendor_id ACME
        product_id a-name-that-is-too-long
        write-cache off
    </backing-store>
    <backing-store /srv/tape>
        device-type tape
    </backing-store>
    <backing-store pool/image>
        bs-type rbd
        bsopts conf=/etc/ceph/other.conf;id=tgt
    </backing-store>
    backing-store /srv/three.img
    incominguser alice "secret of alice"
    initiator-address 192.0.2.7/24
    initiator-address 198.51.100.9
    initiator-name iqn.x:a
    initiator-name 203.0.113.0/24
</target>
<target iqn.2008-09.org.example:two>
    driver iser
    initiator-address ALL
    initiator-name iqn.x:B
    MaxConnections 2
</target>
"#;

    fn imported(text: &str) -> (toml::Table, Vec<String>) {
        let statements = Reader::new(Path::new("/")).statements(text, None).unwrap();
        let mut imported = import(&statements, Imported::new(Path::new("/s")));
        let text = imported.finish().unwrap();
        (text.parse().unwrap(), imported.notes().map(ToString::to_string).collect())
    }

    fn luns(text: &str) -> Vec<(String, i64)> {
        let (table, _) = imported(text);
        let lun = |lun: &toml::Value| (lun["disk"].as_str().unwrap().to_owned(), lun["number"].as_integer().unwrap());
        table["target"][0]["lun"].as_array().unwrap().iter().map(lun).collect()
    }

    #[test]
    fn targets_disks_and_rules_are_taken_over_and_the_rest_is_named() {
        let (table, notes) = imported(CONF);
        let expected = r#"
discovery = { chap = [{ user = "scan", secret_file = "/s/discovery.scan" }] }
[[target]]
name = "iqn.2008-09.org.example:server.one"
chap = [{ user = "alice", secret_file = "/s/iqn.2008-09.org.example_Server.one.alice" }]
lun = [
    { number = 1, disk = "/dev/vg0/one" },
    { number = 3, disk = "/srv/three.img" },
    { number = 7, disk = "/srv/two.img", serial = "S2", read_only = true, block_size = 4096, vendor = "ACME" },
    { number = 4, disk = "rbd:pool/image?conf=/etc/ceph/other.conf&user=tgt" },
]
host = [{ name = "initiators", initiators = ["iqn.x:a"], networks = ["192.0.2.0/24", "198.51.100.9", "203.0.113.0/24"] }]
[[target]]
name = "iqn.2008-09.org.example:two"
allow = ["iqn.x:b"]
"#;
        assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{table}");
        for part in [
            "Server.one: its name is written in lower case",
            "/srv/two.img: product \"a-name-that-is-too-long\"",
            "/srv/tape: LUN 2: a device of the kind tape",
            "two: iSER",
            "line 33, iqn.2008-09.org.example:two: the setting MaxConnections",
            "/dev/vg0/one: it is not on this machine",
            "ours listens on 127.0.0.1 alone",
            "incominguser: alice: tgt-admin reads one word as the secret",
        ] {
            assert!(notes.iter().any(|note| note.contains(part)), "{part} in {notes:#?}");
        }
        assert_eq!(notes.len(), 8, "{notes:#?}");
    }

    #[test]
    fn disks_have_the_numbers_that_tgt_admin_gives_them() {
        let of = |body: &str| luns(&format!("<target iqn.a>\n{body}\n</target>"));
        let numbered =
            |list: &[(&str, i64)]| list.iter().map(|(disk, number)| ((*disk).to_owned(), *number)).collect::<Vec<_>>();
        assert_eq!(
            of("direct-store /b\nbacking-store /c\ndirect-store /d\nbacking-store /e"),
            numbered(&[("/c", 1), ("/e", 2), ("/b", 3), ("/d", 4)])
        );
        assert_eq!(of("backing-store /z\nbacking-store /a"), numbered(&[("/a", 1), ("/z", 2)]));
        let explicit = "<backing-store /a>\nlun 2\n</backing-store>\n<backing-store /b>\n</backing-store>\n<direct-store /c>\nlun 1\n</direct-store>\n<direct-store /d>\n</direct-store>";
        assert_eq!(of(explicit), numbered(&[("/a", 2), ("/b", 3), ("/c", 1), ("/d", 4)]));
        // That of the target is the number of each disk, and the first has it.
        assert_eq!(of("lun 5\nbacking-store /a\nbacking-store /b"), numbered(&[("/a", 5)]));
        assert_eq!(of("lun 5\n<backing-store /a>\nlun 2\n</backing-store>"), numbered(&[("/a", 5)]));
        let many: Vec<_> = (0..400).map(|at| format!("backing-store /d{at:03}")).collect();
        let luns = of(&many.join("\n"));
        let expected = (0..400).map(|at| (format!("/d{at:03}"), at + 1)).collect::<Vec<(String, i64)>>();
        assert_eq!(luns, expected);
    }

    #[test]
    fn what_stands_in_the_target_holds_for_its_disks() {
        let text = "<target iqn.a>\nreadonly 1\nremovable 1\nvendor_id ACME\nscsi_sn X\nblock-size 4096\nbacking-store /a\n</target>\n\
                    <target iqn.a>\n<direct-store /b>\nreadonly 0\nvendor_id OTHER\n</direct-store>\n</target>";
        let (table, notes) = imported(text);
        let expected = r#"
[[target]]
name = "iqn.a"
lun = [
    { number = 1, disk = "/a", read_only = true, removable = true, vendor = "ACME", serial = "X" },
    { number = 2, disk = "/b", removable = true, vendor = "OTHER" },
]
"#;
        assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{table}");
        assert!(
            notes.iter().any(|note| note.contains("line 6, iqn.a: block-size: tgt-admin takes it within a disk")),
            "{notes:?}"
        );
        assert!(notes.iter().any(|note| note.contains("is that of iqn.a, LUN 1, another disk")), "{notes:?}");
    }

    #[test]
    fn params_set_what_other_settings_set() {
        let text = "<target iqn.a>\nparams vendor_id=ACME\n<backing-store /a>\nparams readonly=1, removable=1\n\
                    params \"scsi_sn=S,sense_format=1\"\nvendor_id OTHER\n</backing-store>\n\
                    <backing-store /b>\nparams online=0\n</backing-store>\n</target>";
        let (table, notes) = imported(text);
        let expected =
            "number = 1\ndisk = \"/a\"\nread_only = true\nremovable = true\nserial = \"S\"\nvendor = \"ACME\"";
        let luns = table["target"][0]["lun"].as_array().unwrap();
        assert_eq!(luns.as_slice(), [expected.parse::<toml::Table>().unwrap().into()], "{table}");
        for part in ["the setting params sense_format", "LUN 2: it is not online"] {
            assert!(notes.iter().any(|note| note.ends_with(part)), "{part} in {notes:#?}");
        }
    }

    #[test]
    fn a_secret_is_one_word_and_no_placeholder() {
        for (words, secret, note) in [
            ("secretsecret12", Some("secretsecret12"), ""),
            ("'secretsecret12'", Some("secretsecret12"), ""),
            ("secretsecret12 trailing", Some("secretsecret12"), "there are several"),
            ("\"secretsecret12\" trailing", Some("secretsecret12"), "there are several"),
            ("\"secretsecret12 trailing", None, "without an end; no initiator is let in"),
            ("PLEASE_CORRECT_THE_PASSWORD", None, "--dump does not tell its secret; no initiator is let in"),
        ] {
            let text = format!("<target iqn.a>\nincominguser u {words}\n</target>");
            let statements = Reader::new(Path::new("/")).statements(&text, None).unwrap();
            let imported = import(&statements, Imported::new(Path::new("/s")));
            assert_eq!(imported.secrets().map(|(_, secret)| secret).next(), secret, "{words}");
            let notes: Vec<_> = imported.notes().map(ToString::to_string).collect();
            assert!(notes.is_empty() == note.is_empty() && notes.concat().contains(note), "{words}: {notes:?}");
        }
    }

    #[test]
    fn quotation_marks_around_a_user_are_taken_away() {
        for user in ["'joe' 'joesecret1234'", "\"joe\" joesecret1234"] {
            let (table, _) = imported(&format!("<target iqn.a>\nincominguser {user}\n</target>"));
            assert_eq!(table["target"][0]["chap"][0]["user"].as_str(), Some("joe"), "{user}");
            assert_eq!(table["target"][0]["chap"][0]["secret_file"].as_str(), Some("/s/iqn.a.joe"), "{user}");
        }
    }

    #[test]
    fn the_first_user_of_a_target_counts_and_others_are_named() {
        let (table, notes) = imported(
            "<target iqn.a>\nincominguser u uuuuuuuuuuuu\noutgoinguser a aaaaaaaaaaaaa\noutgoinguser b bbbbbbbbbbbbb\n</target>\n\
             <target iqn.b>\noutgoinguser c ccccccccccccc\n</target>",
        );
        assert_eq!(table["target"][0]["mutual_chap"]["user"].as_str(), Some("a"), "{table}");
        for part in
            ["line 4, iqn.a: outgoinguser: tgt-admin takes the first", "outgoinguser: no user of initiators is there"]
        {
            assert!(notes.iter().any(|note| note.contains(part)), "{part} in {notes:#?}");
        }
    }

    #[test]
    fn targets_that_let_no_initiator_log_in_are_left_out() {
        let (table, notes) =
            imported("<target iqn.a>\nstate offline\n</target>\n<target iqn.b>\nstate ready\n</target>");
        let names: Vec<_> = table["target"].as_array().unwrap().iter().map(|target| target["name"].as_str()).collect();
        assert_eq!(names, [Some("iqn.b")]);
        assert!(notes.concat().contains("iqn.a: its state is offline"), "{notes:?}");
    }

    #[test]
    fn nothing_is_more_open_than_it_was() {
        for (body, expected) in [
            ("initiator-address 192.0.2.*", "host = [{ name = \"initiators\", networks = [] }]"),
            ("incominguser alice", "allow = []"),
            ("incominguser alice \"\"", "allow = []"),
            ("incominguser alice PLEASE_CORRECT_THE_PASSWORD", "allow = []"),
            ("initiator-name iqn.X\ninitiator-name iqn.*", "allow = [\"iqn.x\"]"),
            ("initiator-name iqn.*", "allow = []"),
            ("initiator-name iqn.x:a_B", "allow = [\"iqn.x:a_b\"]"),
            ("initiator-address ALL\ninitiator-address 192.0.2.1", ""),
            ("outgoinguser bob secret", ""),
            ("incominguser1 joe joesecret1234", "allow = []"),
            ("IncomingUser joe joesecret1234\ninitiator-name iqn.x", "allow = []"),
        ] {
            let (table, _) = imported(&format!("<target iqn.a>\n{body}\n</target>"));
            let expected = format!("[[target]]\nname = \"iqn.a\"\n{expected}");
            assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{body}: {table}");
        }
    }

    #[test]
    fn discovery_without_a_known_secret_is_not_open() {
        for user in ["scan PLEASE_CORRECT_THE_PASSWORD", "scan"] {
            let (table, notes) = imported(&format!("incomingdiscoveryuser {user}\n<target iqn.a>\n</target>"));
            let expected = [("user", "scan"), ("secret_file", "/s/discovery.scan.unknown")];
            let expected: toml::Table = expected.map(|(key, text)| (key.into(), text.into())).into_iter().collect();
            assert_eq!(table["discovery"]["chap"][0].as_table(), Some(&expected), "{table}");
            assert!(notes.concat().contains("write it into /s/discovery.scan.unknown"), "{notes:?}");
        }
    }

    #[test]
    fn a_user_has_one_secret_in_all_targets() {
        let text = "<target iqn.b>\nincominguser u two\n</target>\n<target iqn.a>\nincominguser u one\n</target>";
        let statements = Reader::new(Path::new("/")).statements(text, None).unwrap();
        let imported = import(&statements, Imported::new(Path::new("/s")));
        assert_eq!(imported.secrets().map(|(_, secret)| secret).collect::<Vec<_>>(), ["one", "one"]);
        assert!(imported.notes().any(|note| note.to_string().contains("another secret for u")));
    }
}
